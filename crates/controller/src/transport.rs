//! Clients of a server: over the network, or of a server in the same process.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};

mod gate;

use gate::GatedConnector;
pub use gate::WriteGate;

/// What a body may fail with.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A client of a server over the network.
///
/// It retries nothing by itself: a retried write is a decision, and there is one policy for it
/// ([`crate::retry`]). It also never times out on a silent response: watches are silent, and every
/// caller in this crate sets a timeout of its own.
///
/// # Errors
/// The configuration is invalid: a certificate that cannot be read, a proxy of an unknown kind.
pub fn to_cluster(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.read_timeout = None;
    Client::try_from(config)
}

/// The same for the writes of a process with leader election: bytes that are not sent when the
/// permit lapses do not leave this process any more, however long it was suspended. Connections on
/// which something was sent before are closed with the permit.
///
/// # Errors
/// As [`to_cluster`].
pub fn to_cluster_with_gate(mut config: Config, gate: WriteGate) -> Result<Client, kube::Error> {
    // It checks the configuration, proxies included, and selects the TLS implementation.
    to_cluster(config.clone())?;
    config.default_retry = false;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector =
        config.rustls_https_connector_with_connector(GatedConnector { connector, gate })?;
    let client = BoxedErrors(legacy::Client::builder(TokioExecutor::new()).build(connector));
    let namespace = config.default_namespace.clone();
    let client = ClientBuilder::new(client, namespace).with_layer(&config.extra_headers_layer()?);
    let address = config.base_uri_layer();
    Ok(match config.auth_layer()? {
        Some(auth) => client.with_layer(&auth).with_layer(&address).build(),
        None => client.with_layer(&address).build(),
    })
}

/// A client whose errors are boxed, as the layers of `kube` require.
#[derive(Clone, Debug)]
struct BoxedErrors<Inner>(Inner);

impl<Inner> tower_service::Service<Request<Body>> for BoxedErrors<Inner>
where
    Inner: tower_service::Service<Request<Body>>,
    Inner::Future: Send + 'static,
    Inner::Error: Into<BodyError>,
{
    type Response = Inner::Response;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Inner::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

/// A client of a server in the same process: requests are passed on without a socket, and responses
/// are read as they are produced.
///
/// A request whose response is no longer awaited is dropped, as a closed connection would end it.
pub fn in_process<Serve, Answer, Content>(serve: Serve) -> Client
where
    Serve: Fn(Request<Bytes>) -> Answer + Clone + Send + 'static,
    Answer: Future<Output = Response<Content>> + Send + 'static,
    Content: hyper::body::Body<Data = Bytes> + Send + 'static,
    Content::Error: Into<BodyError>,
{
    Client::new(InProcess(serve), "default")
}

/// A function as the client's service.
#[derive(Clone)]
struct InProcess<Serve>(Serve);

impl<Serve> fmt::Debug for InProcess<Serve> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("InProcess")
    }
}

type InProcessResponse<Content> = Response<Either<Full<Bytes>, Content>>;

impl<Serve, Answer, Content> tower_service::Service<Request<Body>> for InProcess<Serve>
where
    Serve: Fn(Request<Bytes>) -> Answer + Clone + Send + 'static,
    Answer: Future<Output = Response<Content>> + Send + 'static,
    Content: hyper::body::Body<Data = Bytes> + Send + 'static,
    Content::Error: Into<BodyError>,
{
    type Response = InProcessResponse<Content>;
    type Error = Infallible;
    type Future =
        Pin<Box<dyn Future<Output = Result<InProcessResponse<Content>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let serve = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await else {
                let words = Bytes::from_static(b"the body of the request was cut short");
                let mut answer = Response::new(Either::Left(Full::new(words)));
                *answer.status_mut() = StatusCode::BAD_REQUEST;
                return Ok(answer);
            };
            let answer = serve(Request::from_parts(parts, body.to_bytes())).await;
            Ok(answer.map(Either::Right))
        })
    }
}
