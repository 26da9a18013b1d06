//! The embedded registry on a port of this machine, with faults on the way if a test wants them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_registry::{
    Access, AccessUnavailable, Body, PresentedCredentials, Registry, RepositoryName,
    ServerSettings, Storage, StorageLimits, Verb,
};
use gantry_serve::counters::Counters;
use gantry_serve::pki::Identity;
use gantry_serve::tls::ServerCertificate;
use gantry_serve::{Options, TransportSecurity, serve};
use gantry_testkit::pki::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio_util::sync::CancellationToken;

/// Accepts the password or token `right`, and lets such users do everything but with repositories
/// that begin with `forbidden`.
#[derive(Debug)]
pub(crate) struct OneUser;

impl Access for OneUser {
    type User = ();

    async fn authenticate(
        &self,
        presented: PresentedCredentials,
    ) -> Result<Option<()>, AccessUnavailable> {
        let secret = match &presented {
            PresentedCredentials::Bearer(token) => token,
            PresentedCredentials::Basic { password, .. } => password,
        };
        Ok((secret.reveal() == "right").then_some(()))
    }

    async fn authorize(
        &self,
        _: Option<&()>,
        _: Verb,
        repository: Option<&RepositoryName>,
    ) -> Result<bool, AccessUnavailable> {
        Ok(!repository.is_some_and(|it| it.as_str().starts_with("forbidden")))
    }
}

/// What happens to a request instead of being served.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A response with this status and these headers.
    Respond(u16, Vec<(&'static str, String)>, &'static str),
    /// It is served, and its response breaks off after this many bytes.
    CutResponse(usize),
    /// It is served, and its response is lost.
    LoseResponse,
    /// The body of the request breaks off after this many bytes.
    CutRequest(usize),
    /// The header `Range` is ignored.
    IgnoreRange,
    /// One byte of the response is changed.
    Damage,
}

/// A fault for the next request with this method whose path contains this text.
#[derive(Clone, Debug)]
struct PlannedFault {
    method: &'static str,
    path: &'static str,
    fault: Fault,
}

/// What the server has seen of a request.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
}

#[derive(Debug, Default)]
struct Front {
    faults: Mutex<VecDeque<PlannedFault>>,
    seen: Mutex<Vec<SeenRequest>>,
}

/// Listens on a port of this machine.
async fn listen(
    registry: &Registry<OneUser>,
    front: &Arc<Front>,
    security: TransportSecurity,
    clock: Clock,
) -> (SocketAddr, Tasks) {
    let metrics = Metrics::new(&BuildInfo::default());
    let counters = TaskMetrics::register(&metrics).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(clock, counters, fastrand::Rng::with_seed(2), &stop);
    let options = Options::new("127.0.0.1:0".parse().unwrap(), security);
    let (served, before) = (registry.clone(), Arc::clone(front));
    let service = move |request: Request<Incoming>, _| {
        let (served, before) = (served.clone(), Arc::clone(&before));
        async move { before.handle(&served, request).await }
    };
    let counters = Counters::register(&metrics).unwrap();
    let address = serve(&mut tasks, "registry", options, counters, service).await.unwrap();
    (address, tasks)
}

/// Serves the registry in a directory without TLS.
pub(crate) async fn serve_directory(directory: &Path) -> (SocketAddr, Tasks) {
    let storage = Storage::open(directory, StorageLimits::default()).unwrap();
    let (clock, random) = (Clock::system(), fastrand::Rng::new());
    let settings = ServerSettings::default();
    let registry = Registry::new(storage, OneUser, clock.clone(), random, settings);
    let front = Arc::new(Front::default());
    listen(&registry, &front, TransportSecurity::PlainOnLoopback, clock).await
}

/// A registry that listens.
pub(crate) struct Embedded {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) registry: Registry<OneUser>,
    front: Arc<Front>,
    _tasks: Tasks,
    _folder: tempfile::TempDir,
}

impl Embedded {
    /// Without TLS.
    pub(crate) async fn plain() -> Self {
        Self::start(false, StorageLimits::default()).await
    }

    /// With TLS and a certificate of its own authority.
    pub(crate) async fn tls() -> Self {
        Self::start(true, StorageLimits::default()).await
    }

    async fn start(tls: bool, limits: StorageLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(&folder.path().join("registry"), limits).unwrap();
        let clock = Clock::system();
        let random = fastrand::Rng::with_seed(1);
        let settings = ServerSettings::default();
        let registry = Registry::new(storage, OneUser, clock.clone(), random, settings);
        let authority = Authority::new("registry").unwrap();
        let security = if tls {
            let issued = authority.server("registry", &["127.0.0.1", "localhost"]).unwrap();
            let identity = Identity { certificate: issued.certificate, key: issued.key };
            let certificate = ServerCertificate::new(&identity).unwrap();
            TransportSecurity::Tls { certificate, clients: None }
        } else {
            TransportSecurity::PlainOnLoopback
        };
        let front = Arc::new(Front::default());
        let (address, tasks) = listen(&registry, &front, security, clock).await;
        Self { address, authority, registry, front, _tasks: tasks, _folder: folder }
    }

    /// Plans a fault for the next request with this method whose path contains this text.
    pub(crate) fn fault(&self, method: &'static str, path: &'static str, fault: Fault) {
        self.front.faults.lock().unwrap().push_back(PlannedFault { method, path, fault });
    }

    /// The number of faults that have not happened.
    pub(crate) fn faults_left(&self) -> usize {
        self.front.faults.lock().unwrap().len()
    }

    /// The requests so far, which are forgotten.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        std::mem::take(&mut self.front.seen.lock().unwrap())
    }

    /// The methods and paths of the requests so far, with digests and names of uploads shortened.
    pub(crate) fn lines(&self) -> Vec<String> {
        let shorten = |line: &str| {
            let line = line.split('?').next().unwrap();
            match line.split_once("/blobs/uploads/").filter(|(_, id)| !id.is_empty()) {
                Some((before, _)) => format!("{before}/blobs/uploads/ID"),
                None => line.split("sha256:").next().unwrap().to_owned(),
            }
        };
        self.seen().iter().map(|it| shorten(&it.line)).collect()
    }
}

fn text(body: &'static str) -> Body {
    Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

impl Front {
    async fn handle(
        &self,
        registry: &Registry<OneUser>,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let line = format!("{} {}", request.method(), request.uri());
        let headers = request.headers().clone();
        self.seen.lock().unwrap().push(SeenRequest { line: line.clone(), headers });
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let matches = |it: &PlannedFault| line.starts_with(it.method) && line.contains(it.path);
            let index = faults.iter().position(matches);
            index.and_then(|index| faults.remove(index)).map(|it| it.fault)
        };
        match fault {
            None => registry.handle(request, None).await,
            Some(Fault::Respond(status, headers, body)) => {
                let mut response = Response::new(text(body));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                for (name, value) in headers {
                    response.headers_mut().append(name, HeaderValue::from_str(&value).unwrap());
                }
                response
            }
            Some(Fault::IgnoreRange) => {
                request.headers_mut().remove("range");
                registry.handle(request, None).await
            }
            Some(Fault::CutRequest(count)) => {
                let (mut parts, body) = request.into_parts();
                parts.headers.remove("content-length");
                parts.headers.remove("content-range");
                let bytes = body.collect().await.unwrap().to_bytes();
                let body = pieces(bytes.slice(..count.min(bytes.len())), true);
                drop(registry.handle(Request::from_parts(parts, body), None).await);
                broken()
            }
            Some(Fault::LoseResponse) => {
                drop(registry.handle(request, None).await);
                broken()
            }
            Some(Fault::CutResponse(count)) => {
                let (parts, body) = registry.handle(request, None).await.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let body = pieces(bytes.slice(..count.min(bytes.len())), true);
                Response::from_parts(parts, body)
            }
            Some(Fault::Damage) => {
                let (parts, body) = registry.handle(request, None).await.into_parts();
                let mut bytes = body.collect().await.unwrap().to_bytes().to_vec();
                bytes[0] ^= 1;
                Response::from_parts(parts, pieces(bytes.into(), false))
            }
        }
    }
}

/// A response that breaks off before its end.
fn broken() -> Response<Body> {
    let mut response = Response::new(pieces(Bytes::from_static(b"x"), true));
    response.headers_mut().insert("content-length", HeaderValue::from_static("100"));
    response
}

/// A body, which breaks off at its end if it is `cut`.
fn pieces(bytes: Bytes, cut: bool) -> Body {
    let whole = stream::iter([Ok(Frame::data(bytes))]);
    let end = stream::once(async move {
        // What was written before is sent when a body has nothing more for a moment.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut by the test"))
    });
    let end = stream::iter(cut.then_some(end)).flatten();
    StreamBody::new(whole.chain(end)).boxed_unsync()
}
