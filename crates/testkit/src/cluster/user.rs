//! A user with a certificate, and the three clients that act as this user.

use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_process::clock::Clock;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::{StartError, file_name, text};
use crate::http::{Client, Credentials, Protocol, Target, TargetError};
use crate::pki::Authority;
use crate::run::Run;

/// A user of a cluster.
#[derive(Clone, Debug)]
pub struct User {
    name: String,
    target: Target,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl User {
    /// Creates the certificate and writes the files.
    pub(super) fn new(
        run: &Run,
        authority: &Authority,
        kubectl: PathBuf,
        base: &str,
        name: &str,
        groups: &[&str],
    ) -> Result<Self, StartError> {
        let issued = authority.client(name, groups)?;
        let stem = file_name(name);
        let authority = authority.own.certificate.clone();
        let trusted = run.write(&format!("{stem}-ca.crt"), &authority)?;
        let certificate = run.write(&format!("{stem}.crt"), &issued.certificate)?;
        let key = run.write(&format!("{stem}.key"), &issued.key)?;
        // JSON is YAML, and quotes what needs quoting.
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": {
                "server": base, "certificate-authority": text(&trusted),
            }}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
            "users": [{"name": name, "user": {
                "client-certificate": text(&certificate), "client-key": text(&key),
            }}],
        });
        let kubeconfig = run.write(&kubeconfig(name), &format!("{config:#}\n"))?;
        let credentials = Credentials::Certificate { chain: issued.certificate, key: issued.key };
        let target = Target { base: base.to_owned(), authority, credentials };
        Ok(Self { name: name.to_owned(), target, kubeconfig, kubectl })
    }

    /// The user name that the server knows.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server and the user's credentials.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The path of a kubeconfig file that only its owner may read (mode 0600).
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a raw client. It belongs to the runtime it is first used in.
    ///
    /// # Errors
    /// None is known: we created the target.
    pub fn http(&self, protocol: Protocol, clock: Clock) -> Result<Client, TargetError> {
        Client::new(&self.target, protocol, clock)
    }

    /// Returns a `kube` client. It belongs to the runtime it is created in.
    ///
    /// # Errors
    /// The files of the cluster are missing.
    pub async fn client(&self) -> Result<kube::Client, ClientError> {
        let config = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
        kube::Client::try_from(config).map_err(|source| ClientError::Client(Box::new(source)))
    }

    /// Returns a `kubectl` command that acts as this user and writes nothing outside the cluster's
    /// folder.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        if let Some(folder) = self.kubeconfig.parent() {
            command.env("HOME", folder).current_dir(folder);
        }
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }
}

/// The file name of a user's kubeconfig.
pub(super) fn kubeconfig(user: &str) -> String {
    format!("{}.kubeconfig", file_name(user))
}

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be read.
    #[error("could not read the kubeconfig file")]
    Kubeconfig(#[from] KubeconfigError),
    /// The client library rejected it.
    #[error("could not make a client")]
    Client(#[source] Box<kube::Error>),
}
