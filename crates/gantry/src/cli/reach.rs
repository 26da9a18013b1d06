//! How commands reach a cluster that runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_controller::read::{self, Bounds, ReadError};
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, InvalidPath, Parameter};
use http::{Method, StatusCode};
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::config;
use crate::operator::cluster::{ConnectError, client, configure, configure_in};

/// What one question may take. Who types a command does not wait longer.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), bytes: 256 << 20 };
/// How many objects a page has.
const PAGE: u32 = 500;

/// Which cluster is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    /// The kubeconfig of the cluster.
    ///
    /// By default it is that of KUBECONFIG, or of the server that was started here, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; by default its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,

    /// Where a server that was started here keeps its kubeconfig.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR", global = true)]
    data_dir: Option<PathBuf>,
}

/// A cluster that can be asked.
pub(super) struct Reached {
    /// What asks it.
    pub(super) client: kube::Client,
    /// Where it is.
    pub(super) place: Place,
    clock: Clock,
}

/// Where a cluster is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The URL of its server.
    pub(super) server: String,
    /// The context that leads there.
    pub(super) context: Option<String>,
    /// The kubeconfig that has it; none in a pod.
    pub(super) kubeconfig: Option<String>,
}

impl fmt::Display for Place {
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

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The server does not believe who asks.
    #[error(
        "{place} does not accept the credentials; take the kubeconfig that the server wrote when it \
         was last started: {says}"
    )]
    Stranger { place: Place, says: String },
    /// Who asks may not.
    #[error("may not read {path} on {place}; use a kubeconfig with the right to: {says}")]
    Forbidden { path: String, place: Place, says: String },
    /// There is no such thing.
    #[error("there is no {path} on {place}: {says}")]
    Absent { path: String, place: Place, says: String },
    /// The server refused for another reason.
    #[error("could not read {path} on {place}: the server says: {says}")]
    Refused { path: String, place: Place, says: String },
    /// What is asked for cannot be there.
    #[error("cannot read that from a cluster; check the names that were given: {0}")]
    Unaddressable(#[from] InvalidPath),
    /// There was no answer.
    #[error(
        "could not reach {place}; does it run? Start one with `gantry up`, or say --kubeconfig"
    )]
    NoAnswer {
        place: Place,
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Reach {
    /// Whether somebody said which cluster is meant.
    pub(super) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// How the cluster is reached, for those who make clients of their own.
    pub(super) async fn config(&self) -> Result<kube::Config, ConnectError> {
        let named = self.file().map(|path| path.to_string_lossy().into_owned());
        match &self.context {
            None => configure(named.as_deref().unwrap_or_default(), None).await,
            Some(context) => configure_in(named.as_deref(), context).await,
        }
    }

    pub(super) async fn reach(&self) -> Result<Reached, ConnectError> {
        let named = self.file().map(|path| path.to_string_lossy().into_owned());
        let config = self.config().await?;
        // The same places in the same order; only what it is called is read here.
        let (read, usual) = match &named {
            Some(path) => (Kubeconfig::read_from(path).ok(), None),
            None => (Kubeconfig::read().ok(), config::kubeconfig().ok()),
        };
        let usual = usual.filter(|_| read.is_some());
        let place = Place {
            server: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            context: self.context.clone().or_else(|| read.and_then(|it| it.current_context)),
            kubeconfig: named.or_else(|| usual.map(|path| path.to_string_lossy().into_owned())),
        };
        Ok(Reached { client: client(&config)?, place, clock: Clock::system() })
    }

    fn file(&self) -> Option<PathBuf> {
        if let Some(file) = &self.kubeconfig {
            return Some(file.clone());
        }
        if config::names_kubeconfig() {
            return None;
        }
        let own = config::data_dir(self.data_dir.as_deref()).ok()?.join("kubeconfig");
        own.is_file().then_some(own)
    }
}

impl Reached {
    /// What is at a path.
    pub(super) async fn get(&self, path: &ApiPath) -> Result<Value, AskError> {
        self.send(Method::GET, path, None).await
    }

    /// What is said to a question that is sent to a path. Nothing is kept of it.
    pub(super) async fn review(&self, path: &ApiPath, question: &Value) -> Result<Value, AskError> {
        self.send(Method::POST, path, Some(question)).await
    }

    async fn send(
        &self,
        method: Method,
        path: &ApiPath,
        body: Option<&Value>,
    ) -> Result<Value, AskError> {
        let body = ("application/json", body);
        let sent = read::send(&self.client, &self.clock, method, path, body, BOUNDS).await;
        sent.map_err(|error| match error {
            ReadError::Refused { code, message } => self.put(path, code, message),
            error @ (ReadError::NoAnswer(_) | ReadError::Garbled(_)) => {
                self.no_answer(error.into())
            }
        })
    }

    /// No answer, or none that can be used.
    pub(super) fn no_answer(&self, error: Box<dyn std::error::Error + Send + Sync>) -> AskError {
        AskError::NoAnswer { place: self.place.clone(), error }
    }

    /// All objects of a kind, page by page.
    pub(super) async fn items(&self, path: &ApiPath) -> Result<Vec<Value>, AskError> {
        let mut all = Vec::new();
        let mut next = path.clone().with(Parameter::Limit(PAGE));
        loop {
            let page = self.get(&next).await?;
            all.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => {
                    next = path.clone().with(Parameter::Limit(PAGE));
                    next = next.with(Parameter::Continue(more));
                }
                _ => return Ok(all),
            }
        }
    }

    fn put(&self, path: &ApiPath, code: StatusCode, says: String) -> AskError {
        let (path, place) = (path.without_query().to_owned(), self.place.clone());
        match code {
            StatusCode::UNAUTHORIZED => AskError::Stranger { place, says },
            StatusCode::FORBIDDEN => AskError::Forbidden { path, place, says },
            StatusCode::NOT_FOUND => AskError::Absent { path, place, says },
            _ => AskError::Refused { path, place, says },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_who_says_so() {
        let place = |context: Option<&str>, kubeconfig: Option<&str>| Place {
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
