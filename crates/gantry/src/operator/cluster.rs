//! The client for the operator's API server, and the reasons for failed calls.

use std::time::Duration;

use gantry_process::clock::{Clock, TimedOut};
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The timeout of one call of the start. A server that needs longer is not usable.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the client configuration for this kubeconfig; without one, for the default locations
/// (`KUBECONFIG`, `~/.kube/config`, the service account of the pod). `server` overrides the server
/// of the configuration.
///
/// # Errors
/// There is no such file, or its content cannot be used.
pub async fn kube_config(
    kubeconfig: &str,
    server: Option<&Uri>,
) -> Result<kube::Config, ConnectError> {
    let mut config = match (kubeconfig, server) {
        ("", Some(server)) => kube::Config::new(server.clone()),
        ("", None) => {
            kube::Config::infer().await.map_err(|error| ConnectError::NoCluster(error.into()))?
        }
        (path, _) => {
            let failed = |error| ConnectError::Kubeconfig { path: path.to_owned(), error };
            let read = Kubeconfig::read_from(path).map_err(|error| failed(error.into()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| failed(error.into()))?
        }
    };
    if let Some(server) = server {
        config.cluster_url = server.clone();
    }
    tracing::debug!(server = %config.cluster_url, "using this API server");
    Ok(config)
}

/// Creates a client for the server that [`kube_config`] finds.
///
/// # Errors
/// As for [`kube_config`], or the credentials cannot be used.
pub async fn connect(kubeconfig: &str, server: Option<&Uri>) -> Result<kube::Client, ConnectError> {
    client(&kube_config(kubeconfig, server).await?)
}

/// Which entries of a kubeconfig are used, in place of its current context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigEntries {
    /// The context.
    pub context: Option<String>,
    /// The cluster, in place of the context's.
    pub cluster: Option<String>,
    /// The user, in place of the context's.
    pub user: Option<String>,
}

/// Returns the client configuration for these entries of a kubeconfig; without a file, of the
/// default locations.
///
/// # Errors
/// There is no such file or entry, or the credentials cannot be used.
pub async fn kube_config_for_entries(
    kubeconfig: &str,
    entries: KubeconfigEntries,
) -> Result<kube::Config, ConnectError> {
    if entries == KubeconfigEntries::default() {
        return kube_config(kubeconfig, None).await;
    }
    let shown = if kubeconfig.is_empty() { "of the default locations" } else { kubeconfig };
    let failed = |error| ConnectError::Kubeconfig { path: shown.to_owned(), error };
    let read = match kubeconfig {
        "" => Kubeconfig::read(),
        path => Kubeconfig::read_from(path),
    };
    let read = read.map_err(|error| failed(error.into()))?;
    let KubeconfigEntries { context, cluster, user } = entries;
    let options = KubeConfigOptions { context, cluster, user };
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    config.map_err(|error| failed(error.into()))
}

/// Returns the client configuration for one context of a kubeconfig; without a file, of the default
/// locations.
///
/// # Errors
/// There is no such file or context, or the credentials cannot be used.
pub async fn kube_config_for_context(
    kubeconfig: Option<&str>,
    context: &str,
) -> Result<kube::Config, ConnectError> {
    let shown = || kubeconfig.unwrap_or("of the default locations").to_owned();
    let failed = |error| ConnectError::Kubeconfig { path: shown(), error };
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..Default::default() };
    let read = read.map_err(|error| failed(error.into()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    config.map_err(|error| failed(error.into()))
}

/// Creates a client from a client configuration.
///
/// # Errors
/// The credentials cannot be used.
pub fn client(config: &kube::Config) -> Result<kube::Client, ConnectError> {
    let client = kube::Client::try_from(config.clone());
    client.map_err(|error| ConnectError::InvalidCredentials(error.into()))
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No kubeconfig is given, and the default locations have none.
    #[error(
        "cannot determine the API server: there is no kubeconfig, and this is not a pod; use \
         --kubeconfig, or set clientConnection.kubeconfig"
    )]
    NoCluster(#[source] Cause),
    /// The given file cannot be used.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        error: Cause,
    },
    /// The certificates or credentials cannot be used.
    #[error("cannot use the credentials of the kubeconfig or the service account")]
    InvalidCredentials(#[source] Cause),
}

/// Describes a request, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestDescription {
    /// The verb of the permission that is needed.
    pub verb: &'static str,
    /// The resource in plural, with its group.
    pub resource: &'static str,
    /// The object.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
}

impl std::fmt::Display for RequestDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, resource, name, namespace } = self;
        write!(f, "{verb} {resource} {name}")?;
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The operator lacks a permission.
    #[error(
        "may not {asked}: give the operator's service account the verb {} on {}, as \
         config/operator does; the server says: {says}", asked.verb, asked.resource
    )]
    Forbidden {
        /// The request.
        asked: RequestDescription,
        /// The message of the server.
        says: String,
    },
    /// The server rejected the request for another reason.
    #[error("could not {asked}: the server says: {says}")]
    Refused {
        /// The request.
        asked: RequestDescription,
        /// The message of the server.
        says: String,
    },
    /// There was no response.
    #[error("could not {asked}: the API server does not respond")]
    NoResponse {
        /// The request.
        asked: RequestDescription,
        /// The error.
        #[source]
        error: Cause,
    },
}

/// Waits for a call with a timeout, and describes its failure.
///
/// # Errors
/// The call failed or took too long.
pub async fn call<T>(
    clock: &Clock,
    asked: impl Fn() -> RequestDescription,
    work: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match clock.timeout(REQUEST_TIMEOUT, work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            let (asked, says) = (asked(), status.message.clone());
            Err(match status.is_forbidden() {
                true => CallError::Forbidden { asked, says },
                false => CallError::Refused { asked, says },
            })
        }
        Ok(Err(error)) => Err(CallError::NoResponse { asked: asked(), error: error.into() }),
        Err(late @ TimedOut { .. }) => {
            Err(CallError::NoResponse { asked: asked(), error: late.into() })
        }
    }
}
