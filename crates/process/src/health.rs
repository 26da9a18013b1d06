//! Serves liveness and readiness over HTTP, as Kubernetes does.
//!
//! The bodies are those of the Kubernetes API server, so that users and probes can read both alike.
//! One difference: a failed check gives its reason. The probe address belongs to the administrator,
//! and "reason withheld" makes a failed check hard to diagnose.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Router;
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::{CONTENT_TYPE, Metrics};

mod serve;

pub use serve::{BindAddress, BindAddressError, PeerAddress, ServeError, serve};

/// The checks of the process. Clones share them.
#[derive(Clone, Default)]
pub struct Health(Arc<RwLock<Vec<Check>>>);

#[derive(Clone)]
struct Check {
    probe: Probe,
    name: Arc<str>,
    run: Arc<CheckFn>,
}

/// Returns `Ok`, or the reason for the failure.
type CheckFn = dyn Fn() -> Result<(), String> + Send + Sync;

/// The probe that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Liveness: would a restart help? A check that fails because another system is down must not
    /// be here.
    Live,
    /// Readiness: can this process be given work now?
    Ready,
}

impl Health {
    /// Adds a check that is called on every request, so it must return at once. A check that has to
    /// wait for something is reported through a [`CheckHandle`] instead.
    ///
    /// # Errors
    /// The probe has a check of this name, or the name is not valid in a path.
    pub fn add(
        &self,
        probe: Probe,
        name: &str,
        look: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), CheckError> {
        if !is_path_segment(name) {
            return Err(CheckError::InvalidName { name: name.to_owned() });
        }
        let mut checks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if checks.iter().any(|check| check.probe == probe && &*check.name == name) {
            return Err(CheckError::DuplicateName { name: name.to_owned() });
        }
        checks.push(Check { probe, name: name.into(), run: Arc::new(look) });
        Ok(())
    }

    /// Adds a check that fails for `reason` until its handle reports otherwise. The last report
    /// stays when the handle is dropped.
    ///
    /// # Errors
    /// As [`Health::add`].
    pub fn handle(
        &self,
        probe: Probe,
        name: &str,
        reason: &str,
    ) -> Result<CheckHandle, CheckError> {
        let state = Arc::new(Mutex::new(Err(reason.to_owned())));
        let read = Arc::clone(&state);
        self.add(probe, name, move || read.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
        Ok(CheckHandle(state))
    }

    /// The endpoints: each reports all checks of its probe, or one named behind it.
    pub fn router(&self, endpoints: &Endpoints) -> Router {
        let mut router = Router::new();
        for (endpoint, probe) in endpoints.routes() {
            let (all, one) = (self.clone(), self.clone());
            let path = format!("/{endpoint}");
            router = router
                .route(
                    &format!("{path}/{{*check}}"),
                    get(async move |name| one.one_check(probe, name)),
                )
                .route(&path, get(async move |query| all.all_checks(probe, &endpoint, &query)));
        }
        router
    }

    fn all_checks(&self, probe: Probe, endpoint: &str, Query(query): &CheckQuery) -> Response {
        let verbose = query.iter().any(|(key, _)| key == "verbose");
        let exclude = query.iter().filter(|(key, _)| key == "exclude");
        let exclude = exclude.map(|(_, name)| name.as_str()).collect();
        let (healthy, page) = report(endpoint, &self.checks_of(probe), exclude);
        match healthy {
            true if verbose => text(StatusCode::OK, page),
            true => text(StatusCode::OK, "ok".to_owned()),
            false => text(StatusCode::INTERNAL_SERVER_ERROR, page),
        }
    }

    fn one_check(&self, probe: Probe, Path(name): Path<String>) -> Response {
        let Some(check) = self.checks_of(probe).into_iter().find(|check| *check.name == *name)
        else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        };
        match (check.run)() {
            Ok(()) => text(StatusCode::OK, "ok".to_owned()),
            Err(reason) => {
                let page = format!("internal server error: {}\n", one_line(&reason));
                text(StatusCode::INTERNAL_SERVER_ERROR, page)
            }
        }
    }

    /// Copied, so that a check may add checks and none runs under the lock.
    fn checks_of(&self, probe: Probe) -> Vec<Check> {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        checks.iter().filter(|check| check.probe == probe).cloned().collect()
    }
}

type CheckQuery = Query<Vec<(String, String)>>;

/// Runs every check that is not excluded and writes the verbose page.
fn report(endpoint: &str, checks: &[Check], mut exclude: BTreeSet<&str>) -> (bool, String) {
    let (mut healthy, mut page) = (true, String::new());
    for Check { probe: _, name, run: look } in checks {
        page += &if exclude.remove(&**name) {
            format!("[+]{name} excluded: ok\n")
        } else if let Err(reason) = look() {
            healthy = false;
            format!("[-]{name} failed: {}\n", one_line(&reason))
        } else {
            format!("[+]{name} ok\n")
        };
    }
    if !exclude.is_empty() {
        let names: Vec<_> = exclude.iter().map(|name| format!("{name:?}")).collect();
        page += "warn: some health checks cannot be excluded: no matches for ";
        page += &names.join(",");
        page += "\n";
    }
    let verdict = if healthy { "passed" } else { "failed" };
    page += &format!("{endpoint} check {verdict}\n");
    (healthy, page)
}

/// A reason must not look like the next check's line.
fn one_line(reason: &str) -> String {
    reason.split(char::is_control).collect::<Vec<_>>().join(" ")
}

fn text(status: StatusCode, page: String) -> Response {
    // Reasons may quote what others sent; a browser must not interpret them as HTML.
    (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], page).into_response()
}

impl fmt::Debug for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names = checks.iter().map(|check| (check.probe, &check.name));
        formatter.debug_list().entries(names).finish()
    }
}

/// Reports the state of one check.
#[derive(Debug)]
pub struct CheckHandle(Arc<Mutex<Result<(), String>>>);

impl CheckHandle {
    /// Makes the check pass from now on.
    pub fn pass(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Ok(());
    }

    /// Makes the check fail from now on.
    pub fn fail(&self, reason: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Err(reason.to_owned());
    }
}

/// Why a check was not added. Both are mistakes in the wiring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The probe has a check of this name.
    #[error("cannot add health check {name}: the name is taken")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The name is not valid in a path.
    #[error("cannot add health check {name:?}: use letters, digits, '-', '_', '.' and '/'")]
    InvalidName {
        /// The name.
        name: String,
    },
}

/// The paths of the probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(BTreeMap<String, Probe>);

/// Liveness is always served here, as in Kubernetes.
const LIVEZ_ENDPOINT: &str = "livez";
/// Reserved for the metrics, which may share the address.
const METRICS_ENDPOINT: &str = "metrics";

impl Endpoints {
    /// Endpoints with the configured names; a leading slash is allowed, and an empty name means the
    /// default. Liveness is also served at `livez`.
    ///
    /// # Errors
    /// A name that is not a path segment, or the same name twice.
    pub fn new(liveness: &str, readiness: &str) -> Result<Self, EndpointError> {
        let mut routes = BTreeMap::from([(LIVEZ_ENDPOINT.to_owned(), Probe::Live)]);
        let names = [(liveness, "healthz", Probe::Live), (readiness, "readyz", Probe::Ready)];
        for (given, usual, probe) in names {
            let name = given.strip_prefix('/').unwrap_or(given);
            let name = if name.is_empty() { usual } else { name };
            if !is_path_segment(name) || name.contains('/') {
                return Err(EndpointError::InvalidName { name: given.to_owned() });
            }
            let before = routes.insert(name.to_owned(), probe);
            if name == METRICS_ENDPOINT || before.is_some_and(|before| before != probe) {
                return Err(EndpointError::DuplicateName { name: name.to_owned() });
            }
        }
        Ok(Self(routes))
    }

    fn routes(&self) -> impl Iterator<Item = (String, Probe)> {
        self.0.clone().into_iter()
    }
}

impl Default for Endpoints {
    /// `healthz` and `readyz`.
    fn default() -> Self {
        let names =
            [(LIVEZ_ENDPOINT, Probe::Live), ("healthz", Probe::Live), ("readyz", Probe::Ready)];
        Self(names.map(|(name, probe)| (name.to_owned(), probe)).into())
    }
}

/// Why the configured endpoint names are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a segment of a path.
    #[error("cannot use {name:?} as an endpoint name: write one path segment such as \"readyz\"")]
    InvalidName {
        /// The name as given.
        name: String,
    },
    /// The name is already used.
    #[error("cannot use {name:?} as an endpoint name: it is taken, choose another")]
    DuplicateName {
        /// The name.
        name: String,
    },
}

fn is_path_segment(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // Browsers and proxies resolve segments of dots before the request is sent.
    let dots = |segment: &str| segment.chars().all(|c| c == '.');
    name.split('/').all(|segment| !dots(segment) && segment.chars().all(fits))
}

/// `/metrics`, to be merged with the probes or served at an address of its own.
pub fn metrics_router(metrics: Metrics) -> Router {
    let page = async move || match metrics.encode() {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    Router::new().route(&format!("/{METRICS_ENDPOINT}"), get(page))
}

#[cfg(test)]
mod tests;
