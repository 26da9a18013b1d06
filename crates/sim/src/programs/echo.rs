//! A program that answers with the request, and shows the environment of its pod.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{Binary, BoxFuture, ProgramContext};

mod handler;

use handler::EchoService;

/// The port it listens on by default.
const DEFAULT_PORT: u16 = 8080;
/// The most connections at one time; further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// The timeout of reading the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to end.
const CONNECTION_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of requests to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// The variable that lists what it shows besides the request.
const ALLOW_VARIABLE: &str = "ECHO_ALLOW";

/// An HTTP server that answers with its pod, the method, the path and the headers of the request.
///
/// It listens on `$PORT`, or the first port of its container, or 8080. More paths:
///
/// | path | answer | needs in `$ECHO_ALLOW` |
/// |---|---|---|
/// | `/healthz` | `ok` | |
/// | `/ready` | whether it is ready: 200 or 503 | |
/// | `/ready` with PUT or POST of `true` or `false` | sets its readiness | `ready` |
/// | `/env` | its variables | `env` |
/// | `/devices` | the devices that are allocated to its container | `devices` |
/// | `/file?path=/etc/name` | a file of a volume of its container | `file` |
/// | `/api?path=/api/v1/…` | the response of the API server to its pod's account | `api` |
///
/// Every user of this machine can connect, so what could be secret is shown only where the pod
/// allows it.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Binary for Echo {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(serve(context, tasks))
    }
}

async fn serve(context: ProgramContext, mut tasks: Tasks) -> u8 {
    let port = match context.environment.get("PORT") {
        Some(text) => match text.parse() {
            Ok(port) => port,
            Err(_) => {
                let message = format!("cannot listen on port {text:?}: set PORT to a number");
                context.termination_message.set(&message);
                (context.log)(&message);
                return 2;
            }
        },
        None => context.ports.first().copied().unwrap_or(DEFAULT_PORT),
    };
    let address = SocketAddr::from((context.address, port));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            let message = format!("could not listen on {address}: {error}");
            context.termination_message.set(&message);
            (context.log)(&message);
            return 1;
        }
    };
    (context.log)(&format!("listening on {address}"));
    let service = Arc::new(EchoService::new(context));
    service.set_ready(true);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let stop = tasks.token().clone();
    let code = loop {
        let (stream, permit) = tokio::select! {
            biased;
            // Each may be dropped: none has taken anything off a queue before it is ready.
            () = stop.cancelled() => break 0,
            _ = tasks.join(), if !tasks.is_empty() => continue,
            next = accept_connection(&listener, &permits) => match next {
                Ok(next) => next,
                Err(error) => {
                    (service.context.log)(&format!("could not accept a connection: {error}"));
                    break 1;
                }
            },
        };
        let (service, clock) = (Arc::clone(&service), tasks.clock().clone());
        tasks.spawn("echo connection", OnLoss::CarryOn, |stop| async move {
            serve_connection(stream, service, &clock, &stop).await;
            drop(permit);
            Ok(())
        });
    };
    drop(listener);
    tasks.token().cancel();
    while tasks.join().await.is_err() {}
    (service.context.log)("stopped");
    code
}

type ResponseFuture = BoxFuture<'static, Result<Response<Full<Bytes>>, Infallible>>;

async fn accept_connection(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(std::io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok((stream, permit)),
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Serves one client until it disconnects or the program is to stop. Errors of the connection are
/// ignored.
async fn serve_connection(
    stream: TcpStream,
    service: Arc<EchoService>,
    clock: &Clock,
    stop: &CancellationToken,
) {
    let answer = |request: Request<Incoming>| -> ResponseFuture {
        (service.context.log)(&format!("{} {}", request.method(), request.uri().path()));
        let (service, clock) = (Arc::clone(&service), clock.clone());
        Box::pin(async move { Ok(service.handle(request, &clock).await) })
    };
    let connection = http1::Builder::new()
        .timer(clock.hyper_timer())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        // Each may be dropped: the connection is only borrowed, the other only waits.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = clock.timeout(CONNECTION_DRAIN_TIMEOUT, connection).await;
}
