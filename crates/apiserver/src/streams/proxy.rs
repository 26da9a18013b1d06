//! `proxy` of pods and services: forwards a request to a program in a pod, and its response back.
//!
//! The program is not trusted: it never sees the credentials of the caller, and its response is
//! streamed, however long it is. `backend` finds the program, `rewrite` changes requests and
//! responses.

mod backend;
mod rewrite;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gantry_serve::upgrade::Upgrade;
use http::header::{CONNECTION, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use self::backend::Backend;
use self::rewrite::{KeptHeaders, ProxyPath};
use super::activity::Activity;
use crate::api::{Api, ResourceRequest};
use crate::request::body::{Body, full};
use crate::response::status::StatusError;
use crate::streams::kubelet_client::{Duplex, KubeletError};

/// How long a program may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a program may take until its response begins.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The longest response head of a program.
const MAX_HEAD_BYTES: usize = 64 * 1024;

impl Api {
    /// Forwards a request to a program.
    pub(super) async fn proxy(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        self.review_connection(&ask).await?;
        let id = ask.target.name.as_str();
        let backend = match ask.resource.plural.as_str() {
            "pods" => self.pod_backend(&ask, id)?,
            "services" => self.service_backend(&ask, id)?,
            _ => {
                return Err(StatusError::failure(
                    "the proxy of nodes is not served: the nodes of this server have no kubelet to \
                     ask; use the log, exec, portforward or proxy of their pods",
                ));
            }
        };
        let proxied = ProxyPath::of(&ask.uri, &ask.target.subresource);
        let upgrades = rewrite::is_upgrade(&ask.headers);
        if proxied.path.is_empty() && !upgrades && matches!(ask.method, Method::GET | Method::HEAD)
        {
            return Ok(redirect(&proxied.with_slash()));
        }
        let kept = if upgrades { KeptHeaders::Upgrade } else { KeptHeaders::Nothing };
        let request = rewrite::request(&ask, &proxied, kept)?;
        match upgrades {
            true => self.proxy_upgrade(backend, request).await,
            false => {
                let host = request.headers().get(http::header::HOST).cloned();
                let answer = self.proxy_plain(&backend, request).await?;
                rewrite::response(answer, &proxied, &backend.authority(), host.as_ref())
            }
        }
    }

    /// Sends a request and streams the response.
    async fn proxy_plain(
        &self,
        backend: &Backend,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, StatusError> {
        let reach =
            |why: &str| StatusError::unreachable(&format!("error trying to reach service: {why}"));
        let (io, place) = self.dial_backend(backend).await.map_err(|fault| match fault {
            KubeletError::Forbidden(words) => StatusError::bad_request(words),
            other => reach(&other.to_string()),
        })?;
        let exchange = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_buf_size(MAX_HEAD_BYTES)
                .handshake(TokioIo::new(io))
                .await?;
            let mut connection = ConnectionDriver::new(connection);
            let response = connection.until(sender.send_request(request)).await?;
            hyper::Result::Ok((response, connection))
        };
        let answered = self.0.clock.timeout(RESPONSE_TIMEOUT, exchange).await;
        let (response, connection) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(reach(&error.to_string())),
            Err(_) => return Err(reach("the program did not respond in time")),
        };
        let activity = Arc::new(Activity::new(&self.0.clock));
        let end = session_end(self.0.stop.clone(), Arc::clone(&activity));
        Ok(response.map(|incoming| {
            StreamedBody { connection, incoming, activity, end, _permit: place }.boxed_unsync()
        }))
    }

    /// Sends an upgrade request, and joins both sides once the program accepts it.
    async fn proxy_upgrade(
        &self,
        backend: Backend,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, StatusError> {
        let Ok(session) = Arc::clone(&self.0.session_permits).try_acquire_owned() else {
            let words = "too many conversations with containers at once, please try again later";
            return Err(StatusError::too_many(words, None));
        };
        let (io, place) = self.dial_backend(&backend).await.map_err(|fault| match fault {
            KubeletError::Forbidden(words) => StatusError::bad_request(words),
            other => StatusError::failure(format!("error dialing backend: {other}")),
        })?;
        let failed = |why: String| StatusError::failure(format!("error sending request: {why}"));
        let exchange = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_buf_size(MAX_HEAD_BYTES)
                .handshake(TokioIo::new(io))
                .await?;
            let mut connection = ConnectionDriver::new(connection.with_upgrades());
            let response = connection.until(sender.send_request(request)).await?;
            hyper::Result::Ok((response, connection))
        };
        let answered = self.0.clock.timeout(RESPONSE_TIMEOUT, exchange).await;
        let (mut response, mut connection) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed("the program did not respond in time".to_owned())),
        };
        let activity = Arc::new(Activity::new(&self.0.clock));
        let end = session_end(self.0.stop.clone(), Arc::clone(&activity));
        let code = response.status();
        if code != StatusCode::SWITCHING_PROTOCOLS {
            if code.as_u16() < 400 {
                let code = code.as_u16();
                let words = format!("invalid upgrade response: status code {code}");
                return Err(StatusError::failure(words));
            }
            rewrite::remove_hop_by_hop(response.headers_mut(), KeptHeaders::Nothing);
            return Ok(response.map(|incoming| {
                StreamedBody { connection, incoming, activity, end, _permit: place }.boxed_unsync()
            }));
        }
        let upgraded = hyper::upgrade::on(&mut response);
        let joined = self.0.clock.timeout(RESPONSE_TIMEOUT, connection.until(upgraded)).await;
        let Ok(Ok(program)) = joined else {
            return Err(failed("the program did not go on after the upgrade".to_owned()));
        };
        rewrite::remove_hop_by_hop(response.headers_mut(), KeptHeaders::Upgrade);
        let mut response = response.map(|_| full(""));
        let upgrade = HeaderValue::from_static("Upgrade");
        response.headers_mut().insert(CONNECTION, upgrade);
        Upgrade::attach(&mut response, move |mut client| async move {
            let mut program = TokioIo::new(program);
            let carry = tokio::io::copy_bidirectional(&mut client, &mut program);
            // Cancel-safe: one side has disconnected, or the server stops.
            tokio::select! {
                _ = carry => {}
                () = end => {}
            }
            drop((session, place));
        });
        Ok(response)
    }

    async fn dial_backend(
        &self,
        backend: &Backend,
    ) -> Result<(Box<dyn Duplex>, OwnedSemaphorePermit), KubeletError> {
        let Ok(place) = Arc::clone(&self.0.forward_permits).try_acquire_owned() else {
            let words = "too many connections to pods at once, please try again later";
            return Err(KubeletError::Unreachable(words.to_owned()));
        };
        let dialing = backend.nodes.dial(backend.target.clone(), backend.port);
        match self.0.clock.timeout(DIAL_TIMEOUT, dialing).await {
            Ok(dialled) => Ok((dialled?, place)),
            Err(_) => {
                let words = format!("dial tcp {}: i/o timeout", backend.authority());
                Err(KubeletError::Unreachable(words))
            }
        }
    }
}

/// Drives the connection to a program; `None` once it is over.
struct ConnectionDriver(Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>);

impl ConnectionDriver {
    fn new(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Self {
        Self(Some(Box::pin(connection)))
    }

    /// Polls the connection. Its errors are seen by the futures that wait for its data.
    fn advance(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.0
            && connection.as_mut().poll(context).is_ready()
        {
            self.0 = None;
        }
    }

    /// Waits for a future while it drives the connection.
    async fn until<Output>(
        &mut self,
        work: impl Future<Output = hyper::Result<Output>>,
    ) -> hyper::Result<Output> {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(move |context| {
            self.advance(context);
            work.as_mut().poll(context)
        })
        .await
    }
}

/// Ready when the server stops, or there was no activity for too long.
fn session_end(
    stop: CancellationToken,
    activity: Arc<Activity>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        // Cancel-safe: each only waits.
        tokio::select! {
            () = stop.cancelled() => {}
            () = activity.wait_until_idle() => {}
        }
    })
}

/// The body of a program's response. Nothing is read before the client has read the previous piece.
struct StreamedBody {
    connection: ConnectionDriver,
    incoming: Incoming,
    activity: Arc<Activity>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The permit, returned when the response has ended.
    _permit: OwnedSemaphorePermit,
}

impl hyper::body::Body for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    // No size hint: whatever its length, the response is sent as the program made it.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.connection.advance(context);
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            self.activity.record();
            return Poll::Ready(frame.map(|it| it.map_err(io::Error::other)));
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(io::Error::other("the response was cut off")))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }
}

/// Redirects a client to the same path with a trailing slash, because relative links would break
/// without it.
fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}
