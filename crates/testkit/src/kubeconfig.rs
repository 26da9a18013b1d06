//! Reads a kubeconfig, as far as tests need it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_yaml::node::Node;
use serde::Deserialize;

use crate::http::{Credentials, Target};

/// Returns the server and the user of a kubeconfig that has one of each.
///
/// # Errors
/// The file cannot be read, or lacks one of them.
pub fn read_target(path: &Path) -> Result<Target, KubeconfigError> {
    let error = |what: &'static str| KubeconfigError::Lacks { path: path.to_owned(), what };
    let text = fs::read_to_string(path)
        .map_err(|source| KubeconfigError::Io { path: path.to_owned(), source })?;
    let unreadable = |why: String| KubeconfigError::Unreadable { why };
    let documents = gantry_yaml::read(&text).map_err(|error| unreadable(error.to_string()))?;
    let document = documents.first().map(Node::to_json).unwrap_or_default();
    let Kubeconfig { clusters, users } =
        serde_json::from_value(document).map_err(|error| unreadable(error.to_string()))?;
    let cluster = clusters.into_iter().next().ok_or_else(|| error("cluster"))?;
    let user = users.into_iter().next().ok_or_else(|| error("user"))?;
    let Cluster { server, certificate_authority, certificate_authority_data } = cluster.cluster;
    let authority = pem(certificate_authority_data, certificate_authority)?.unwrap_or_default();
    Ok(Target { base: server, authority, credentials: credentials(user.user)? })
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file could not be read.
    #[error("could not read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("cannot read a kubeconfig: {why}")]
    Unreadable {
        /// What is wrong.
        why: String,
    },
    /// Something is missing.
    #[error("there is no {what} in {}", path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
}

/// Returns the credentials of the user: a token, or a certificate.
fn credentials(user: User) -> Result<Credentials, KubeconfigError> {
    let User { token, client_certificate, client_certificate_data, client_key, client_key_data } =
        user;
    if let Some(token) = token {
        return Ok(Credentials::Token(token));
    }
    let chain = pem(client_certificate_data, client_certificate)?;
    let key = pem(client_key_data, client_key)?;
    let (Some(chain), Some(key)) = (chain, key) else { return Ok(Credentials::Anonymous) };
    Ok(Credentials::Certificate { chain, key })
}

/// Returns PEM that is in the kubeconfig itself in base64, or in a file beside it.
fn pem(data: Option<String>, path: Option<PathBuf>) -> Result<Option<String>, KubeconfigError> {
    let unreadable = |why: String| KubeconfigError::Unreadable { why };
    match (data, path) {
        (Some(data), _) => {
            let bytes = STANDARD.decode(data).map_err(|fault| unreadable(fault.to_string()))?;
            String::from_utf8(bytes).map(Some).map_err(|fault| unreadable(fault.to_string()))
        }
        (None, Some(path)) => match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(source) => Err(KubeconfigError::Io { path, source }),
        },
        (None, None) => Ok(None),
    }
}
