//! The client that commands use for a running cluster.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_controller::read::{self, ReadBounds, ReadError};
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, InvalidPath, Parameter};
use http::{Method, StatusCode};
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::config;
use crate::operator::cluster::{ConnectError, client, kube_config, kube_config_for_context};

/// The timeout of one request; users do not wait longer for a command.
const BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(30), bytes: 256 << 20 };
/// The number of objects per page of a list.
const LIST_PAGE_SIZE: u32 = 500;

/// Flags that select the cluster.
#[derive(Debug, clap::Args)]
pub(super) struct ClusterFlags {
    /// The kubeconfig of the cluster.
    ///
    /// By default it is that of KUBECONFIG, or of the server that was started here, or
    /// ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; by default its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,

    /// The data directory of a server that was started here, which has its kubeconfig.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR", global = true)]
    data_dir: Option<PathBuf>,
}

/// A connection to a cluster.
pub(super) struct ClusterClient {
    /// The HTTP client.
    pub(super) client: kube::Client,
    /// The location of the cluster, for messages.
    pub(super) location: ClusterLocation,
    clock: Clock,
}

/// The URL of a cluster, and the kubeconfig it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterLocation {
    /// The URL of its server.
    pub(super) server: String,
    /// The context that was used.
    pub(super) context: Option<String>,
    /// The kubeconfig file; none in a pod.
    pub(super) kubeconfig: Option<String>,
}

impl fmt::Display for ClusterLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, context, kubeconfig } = self;
        f.write_str(server)?;
        match (context, kubeconfig) {
            (Some(context), Some(file)) => write!(f, " (context {context} of {file})"),
            (None, Some(file)) => write!(f, " (of {file})"),
            (Some(context), None) => write!(f, " (context {context})"),
            (None, None) => Ok(()),
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterRequestError {
    /// The server does not accept the credentials.
    #[error(
        "{place} does not accept the credentials; use the kubeconfig that the server wrote when it \
         was last started: {says}"
    )]
    Unauthenticated { place: ClusterLocation, says: String },
    /// The user lacks the permission.
    #[error("may not read {path} on {place}; use a kubeconfig with the permission: {says}")]
    Forbidden { path: String, place: ClusterLocation, says: String },
    /// The object or path does not exist.
    #[error("there is no {path} on {place}: {says}")]
    NotFound { path: String, place: ClusterLocation, says: String },
    /// The server rejected the request for another reason.
    #[error("could not read {path} on {place}: the server says: {says}")]
    Refused { path: String, place: ClusterLocation, says: String },
    /// The request cannot be expressed as a path.
    #[error("cannot read that from a cluster; check the given names: {0}")]
    Unaddressable(#[from] InvalidPath),
    /// There was no response.
    #[error("could not connect to {place}; start a cluster with `gantry up`, or use --kubeconfig")]
    NoResponse {
        place: ClusterLocation,
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClusterFlags {
    /// Returns whether the user selected a cluster explicitly.
    pub(super) fn is_explicit(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Returns the client configuration, for commands that create clients of their own.
    pub(super) async fn config(&self) -> Result<kube::Config, ConnectError> {
        let named = self.file().map(|path| path.to_string_lossy().into_owned());
        match &self.context {
            None => kube_config(named.as_deref().unwrap_or_default(), None).await,
            Some(context) => kube_config_for_context(named.as_deref(), context).await,
        }
    }

    pub(super) async fn connect(&self) -> Result<ClusterClient, ConnectError> {
        let named = self.file().map(|path| path.to_string_lossy().into_owned());
        let config = self.config().await?;
        // The same sources in the same order; only the name of the context is read here.
        let (read, usual) = match &named {
            Some(path) => (Kubeconfig::read_from(path).ok(), None),
            None => (Kubeconfig::read().ok(), config::kubeconfig().ok()),
        };
        let usual = usual.filter(|_| read.is_some());
        let place = ClusterLocation {
            server: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            context: self.context.clone().or_else(|| read.and_then(|it| it.current_context)),
            kubeconfig: named.or_else(|| usual.map(|path| path.to_string_lossy().into_owned())),
        };
        Ok(ClusterClient { client: client(&config)?, location: place, clock: Clock::system() })
    }

    fn file(&self) -> Option<PathBuf> {
        if let Some(file) = &self.kubeconfig {
            return Some(file.clone());
        }
        if config::has_kubeconfig_variable() {
            return None;
        }
        let own = config::data_dir(self.data_dir.as_deref()).ok()?.join("kubeconfig");
        own.is_file().then_some(own)
    }
}

impl ClusterClient {
    /// Gets what is at a path.
    pub(super) async fn get(&self, path: &ApiPath) -> Result<Value, ClusterRequestError> {
        self.send(Method::GET, path, None).await
    }

    /// Posts a review to a path and returns the result. The server stores nothing.
    pub(super) async fn review(
        &self,
        path: &ApiPath,
        question: &Value,
    ) -> Result<Value, ClusterRequestError> {
        self.send(Method::POST, path, Some(question)).await
    }

    /// Rejects a namespace that is known not to exist. A namespace that the user may not read is
    /// accepted.
    pub(super) async fn check_namespace(&self, namespace: &str) -> Result<(), ClusterRequestError> {
        let path = ApiPath::object("v1", "", "namespaces", namespace)?;
        match self.get(&path).await {
            Ok(_) | Err(ClusterRequestError::Forbidden { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &ApiPath,
        body: Option<&Value>,
    ) -> Result<Value, ClusterRequestError> {
        let body = ("application/json", body);
        let sent = read::send(&self.client, &self.clock, method, path, body, BOUNDS).await;
        sent.map_err(|error| self.request_error(path, error))
    }

    fn request_error(&self, path: &ApiPath, error: ReadError) -> ClusterRequestError {
        match error {
            ReadError::Refused { code, message } => self.refusal_error(path, code, message),
            error @ (ReadError::NoResponse(_) | ReadError::InvalidJson(_)) => {
                self.no_response(error.into())
            }
        }
    }

    /// Wraps an error for a missing or unusable response.
    pub(super) fn no_response(
        &self,
        error: Box<dyn std::error::Error + Send + Sync>,
    ) -> ClusterRequestError {
        ClusterRequestError::NoResponse { place: self.location.clone(), error }
    }

    /// Lists all objects of a kind, page by page.
    pub(super) async fn items(&self, path: &ApiPath) -> Result<Vec<Value>, ClusterRequestError> {
        let mut all = Vec::new();
        let mut next = path.clone().with(Parameter::Limit(LIST_PAGE_SIZE));
        loop {
            let page = self.get(&next).await?;
            all.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => {
                    next = path.clone().with(Parameter::Limit(LIST_PAGE_SIZE));
                    next = next.with(Parameter::Continue(more));
                }
                _ => return Ok(all),
            }
        }
    }

    /// Gets a log, which is text. What is no UTF-8 in it is replaced.
    pub(super) async fn log(&self, path: &ApiPath) -> Result<String, ClusterRequestError> {
        let read = read::bytes(&self.client, &self.clock, path, BOUNDS).await;
        let read = read.map_err(|error| self.request_error(path, error))?;
        Ok(String::from_utf8_lossy(&read).into_owned())
    }

    fn refusal_error(&self, path: &ApiPath, code: StatusCode, says: String) -> ClusterRequestError {
        let (path, place) = (path.without_query().to_owned(), self.location.clone());
        match code {
            StatusCode::UNAUTHORIZED => ClusterRequestError::Unauthenticated { place, says },
            StatusCode::FORBIDDEN => ClusterRequestError::Forbidden { path, place, says },
            StatusCode::NOT_FOUND => ClusterRequestError::NotFound { path, place, says },
            _ => ClusterRequestError::Refused { path, place, says },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_names_server_and_context() {
        let place = |context: Option<&str>, kubeconfig: Option<&str>| ClusterLocation {
            server: "https://a:1".to_owned(),
            context: context.map(str::to_owned),
            kubeconfig: kubeconfig.map(str::to_owned),
        };
        let table = [
            (place(Some("c"), Some("/f")), "https://a:1 (context c of /f)"),
            (place(None, Some("/f")), "https://a:1 (of /f)"),
            (place(Some("c"), None), "https://a:1 (context c)"),
            (place(None, None), "https://a:1"),
        ];
        for (place, expected) in table {
            assert_eq!(place.to_string(), expected);
        }
    }
}
