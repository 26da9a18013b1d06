//! The API server the operator works on: how it is reached, and why a call was not answered.

use std::time::Duration;

use gantry_process::clock::{Clock, TimedOut};
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// How long one call of the start may take. A server that needs longer is not one to start on.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the server of this kubeconfig is reached; without one, that of the usual places
/// (`KUBECONFIG`, `~/.kube/config`, the service account of the pod). `server` takes the place of
/// the server that is found there.
///
/// # Errors
/// There is no such file, or nothing in it that can be used.
pub async fn configure(
    kubeconfig: &str,
    server: Option<&Uri>,
) -> Result<kube::Config, ConnectError> {
    let mut config = match (kubeconfig, server) {
        ("", Some(server)) => kube::Config::new(server.clone()),
        ("", None) => {
            kube::Config::infer().await.map_err(|error| ConnectError::Nowhere(error.into()))?
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

/// A client for the server that [`configure`] finds.
///
/// # Errors
/// As there, or the credentials cannot be used.
pub async fn connect(kubeconfig: &str, server: Option<&Uri>) -> Result<kube::Client, ConnectError> {
    client(&configure(kubeconfig, server).await?)
}

/// How to reach the server of one context of a kubeconfig; without a file, of the usual places.
///
/// # Errors
/// There is no such file or context, or the credentials cannot be used.
pub async fn configure_in(
    kubeconfig: Option<&str>,
    context: &str,
) -> Result<kube::Config, ConnectError> {
    let shown = || kubeconfig.unwrap_or("of the usual places").to_owned();
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

/// A client for a server that is known.
///
/// # Errors
/// The credentials cannot be used.
pub fn client(config: &kube::Config) -> Result<kube::Client, ConnectError> {
    let client = kube::Client::try_from(config.clone());
    client.map_err(|error| ConnectError::Unusable(error.into()))
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing was said, and the usual places are empty.
    #[error(
        "cannot tell which API server to use: there is no kubeconfig, and this is no pod; say \
         --kubeconfig, or set clientConnection.kubeconfig"
    )]
    Nowhere(#[source] Cause),
    /// The file that was named cannot be used.
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
    Unusable(#[source] Cause),
}

/// What a call is about, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The verb of the right that is needed.
    pub verb: &'static str,
    /// The resource of it, in plural, with its group.
    pub resource: &'static str,
    /// The object.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, resource, name, namespace } = self;
        write!(f, "{verb} {resource} {name}")?;
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The operator lacks a right.
    #[error(
        "may not {asked}: give the operator's service account the verb {} on {}, as \
         config/operator does; the server says: {says}", asked.verb, asked.resource
    )]
    Forbidden {
        /// What was asked for.
        asked: Asked,
        /// The words of the server.
        says: String,
    },
    /// The server refused for another reason.
    #[error("could not {asked}: the server says: {says}")]
    Refused {
        /// What was asked for.
        asked: Asked,
        /// The words of the server.
        says: String,
    },
    /// There was no answer.
    #[error("could not {asked}: the API server does not answer")]
    NoAnswer {
        /// What was asked for.
        asked: Asked,
        /// What went wrong.
        #[source]
        error: Cause,
    },
}

/// Waits for a call, for so long, and puts a failure into words.
///
/// # Errors
/// The call failed or took too long.
pub async fn call<Answer>(
    clock: &Clock,
    asked: impl Fn() -> Asked,
    work: impl Future<Output = kube::Result<Answer>>,
) -> Result<Answer, CallError> {
    match clock.timeout(PATIENCE, work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            let (asked, says) = (asked(), status.message.clone());
            Err(match status.is_forbidden() {
                true => CallError::Forbidden { asked, says },
                false => CallError::Refused { asked, says },
            })
        }
        Ok(Err(error)) => Err(CallError::NoAnswer { asked: asked(), error: error.into() }),
        Err(late @ TimedOut { .. }) => {
            Err(CallError::NoAnswer { asked: asked(), error: late.into() })
        }
    }
}
