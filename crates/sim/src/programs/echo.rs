//! A program that answers with what it was asked, and shows what its pod has.

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

use super::{Binary, Later, Setting};

mod answer;

use answer::Service;

/// Where it listens when nobody says.
const PORT: u16 = 8080;
/// Connections at one time; the next ones wait.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may take to end.
const DRAIN: Duration = Duration::from_secs(1);
/// How long the API server may take to answer.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// The variable that lists what it shows beside the request.
const ALLOW: &str = "ECHO_ALLOW";

/// An HTTP server that answers with its pod, the method, the path and the headers of the request.
///
/// It listens on `$PORT`, or the first port its container names, or 8080. More paths:
///
/// | path | answer | needs in `$ECHO_ALLOW` |
/// |---|---|---|
/// | `/healthz` | `ok` | |
/// | `/ready` | whether it is ready: 200 or 503 | |
/// | `/ready` with PUT or POST of `true` or `false` | makes it so | `ready` |
/// | `/env` | its variables | `env` |
/// | `/file?path=/etc/name` | a file of a volume of its container | `file` |
/// | `/api?path=/api/v1/…` | what the API server answers its pod's account | `api` |
///
/// Whoever can connect can ask, so what could be secret is shown only where the pod says so.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Binary for Echo {
    fn run(&self, setting: Setting, tasks: Tasks) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(serve(setting, tasks))
    }
}

async fn serve(setting: Setting, mut tasks: Tasks) -> u8 {
    let port = match setting.environment.get("PORT") {
        Some(text) => match text.parse() {
            Ok(port) => port,
            Err(_) => {
                let words = format!("cannot listen on port {text:?}: set PORT to a number");
                setting.last_words.set(&words);
                (setting.say)(&words);
                return 2;
            }
        },
        None => setting.ports.first().copied().unwrap_or(PORT),
    };
    let address = SocketAddr::from((setting.address, port));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            let words = format!("could not listen on {address}: {error}");
            setting.last_words.set(&words);
            (setting.say)(&words);
            return 1;
        }
    };
    (setting.say)(&format!("listening on {address}"));
    let service = Arc::new(Service::new(setting));
    service.set_ready(true);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let stop = tasks.token().clone();
    let code = loop {
        let (stream, permit) = tokio::select! {
            biased;
            // Each may be dropped: none has taken anything off a queue before it is ready.
            () = stop.cancelled() => break 0,
            _ = tasks.join(), if !tasks.is_empty() => continue,
            next = next(&listener, &permits) => match next {
                Ok(next) => next,
                Err(error) => {
                    (service.setting.say)(&format!("could not accept a connection: {error}"));
                    break 1;
                }
            },
        };
        let (service, clock) = (Arc::clone(&service), tasks.clock().clone());
        tasks.spawn("echo connection", OnLoss::CarryOn, |stop| async move {
            converse(stream, service, &clock, &stop).await;
            drop(permit);
            Ok(())
        });
    };
    drop(listener);
    tasks.token().cancel();
    while tasks.join().await.is_err() {}
    (service.setting.say)("stopped");
    code
}

type Answer = Later<'static, Result<Response<Full<Bytes>>, Infallible>>;

async fn next(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(std::io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok((stream, permit)),
            // The client went away before we came to it.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Answers one client until it leaves or the program is to stop. How it left is its own affair.
async fn converse(
    stream: TcpStream,
    service: Arc<Service>,
    clock: &Clock,
    stop: &CancellationToken,
) {
    let answer = |request: Request<Incoming>| -> Answer {
        (service.setting.say)(&format!("{} {}", request.method(), request.uri().path()));
        let (service, clock) = (Arc::clone(&service), clock.clone());
        Box::pin(async move { Ok(service.answer(request, &clock).await) })
    };
    let connection = http1::Builder::new()
        .timer(clock.hyper_timer())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        // Each may be dropped: the connection is only borrowed, the other only waits.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = clock.timeout(DRAIN, connection).await;
}
