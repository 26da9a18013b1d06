//! The client: settings, connections and requests.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Clock, Moment};
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use crate::address::AddressPolicy;
use crate::body::{Body, Progress, Reading, ResponseBody, Upload};
use crate::connect::{Connector, Dial, Resolve, SystemResolver};
use crate::error::{ClientError, Phase, ResponsePart};
use crate::redirect::{Redirect, redirect, strip_credentials};
use crate::tls::{self, Identity, Roots, TlsError};

/// How a client calls.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What requests name as their `User-Agent`, if they do not name one themselves.
    pub user_agent: HeaderValue,
    /// Which authorities are trusted.
    pub roots: Roots,
    /// The certificate of the client, for servers that ask for one.
    pub identity: Option<Identity>,
    /// The name that is sent as SNI and that the certificate must have, whatever the host is called.
    pub server_name: Option<String>,
    /// Which versions of HTTP are offered.
    pub protocols: Protocols,
    /// Where requests may be sent without TLS.
    pub plain_http: PlainHttp,
    /// Which addresses may be called.
    pub addresses: AddressPolicy,
    /// Finds the addresses of hosts.
    pub resolver: Arc<dyn Resolve>,
    /// How long parts of an exchange may take.
    pub timeouts: Timeouts,
    /// How much a client may take.
    pub limits: Limits,
}

/// Which versions of HTTP are offered to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1: one request at a time per connection, so that requests are spread over those who serve
    /// one address.
    Http1,
    /// HTTP/2 where a server with TLS agrees, otherwise HTTP/1.1.
    Http1And2,
}

/// Where requests may be sent without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainHttp {
    /// Nowhere.
    Never,
    /// To loopback addresses of this machine.
    Loopback,
    /// Everywhere: somebody has asked for it.
    Anywhere,
}

/// How long parts of an exchange may take. The whole is limited by [`Bounds::time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving the name and connecting, over all addresses that are tried.
    pub connect: Duration,
    /// The TLS handshake.
    pub handshake: Duration,
    /// The longest time in which neither the request nor the answer moves on. It must be longer than a
    /// server may take to think about an answer.
    pub idle: Duration,
    /// How long a connection without a request is kept.
    pub keep_alive: Duration,
}

/// How much a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest header of an answer, in bytes; at least 8 KiB.
    pub header_bytes: usize,
    /// Requests at a time, until their answers are read to the end. Others wait, within their own time.
    pub requests: usize,
    /// Connections without a request that are kept per host.
    pub idle_connections: usize,
    /// Redirects that are followed for one request. With none, a redirect is an answer like any other.
    ///
    /// Credentials are not sent to another origin, a body that is streamed is not sent again, and TLS is
    /// never left: what may not be followed is returned as the answer that it is. A client with a server
    /// name or a certificate of its own stays with the origin that these are for.
    pub redirects: usize,
}

/// How much one request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Until its answer is read to the end; waiting for other requests of the client is part of it.
    pub time: Duration,
    /// The largest body of the answer, in bytes.
    pub bytes: usize,
}

impl Settings {
    /// The strictest settings: HTTPS by the roots of the machine, no loopback, no redirects.
    #[must_use]
    pub fn new(user_agent: &'static str) -> Self {
        let second = Duration::from_secs(1);
        Self {
            user_agent: HeaderValue::from_static(user_agent),
            roots: Roots::System,
            identity: None,
            server_name: None,
            protocols: Protocols::Http1,
            plain_http: PlainHttp::Never,
            addresses: AddressPolicy::NoLoopback,
            resolver: Arc::new(SystemResolver),
            timeouts: Timeouts {
                connect: 10 * second,
                handshake: 10 * second,
                idle: 30 * second,
                keep_alive: 60 * second,
            },
            limits: Limits {
                header_bytes: 64 << 10,
                requests: 64,
                idle_connections: 8,
                redirects: 0,
            },
        }
    }
}

/// The smallest buffer that hyper takes.
const SMALLEST_BUFFER: usize = 8 << 10;

/// How often a server that speaks HTTP/2 is asked whether it is still there, while it owes an answer.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);

/// Sends requests. Clones share connections and limits.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    clock: Clock,
    pool: legacy::Client<Connector, Upload>,
    turns: Arc<Semaphore>,
    user_agent: HeaderValue,
    plain_http: PlainHttp,
    idle: Duration,
    header_limit: usize,
    redirects: usize,
    /// Whether redirects to other origins are answers.
    one_origin: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("user_agent", &self.0.user_agent).finish_non_exhaustive()
    }
}

impl Client {
    /// A client without connections.
    ///
    /// # Errors
    /// TLS cannot be set up as the settings ask.
    pub fn new(clock: Clock, settings: Settings) -> Result<Self, TlsError> {
        let Settings {
            user_agent,
            roots,
            identity,
            server_name,
            protocols,
            plain_http,
            addresses,
            resolver,
            timeouts,
            limits,
        } = settings;
        let http2 = match protocols {
            Protocols::Http1 => false,
            Protocols::Http1And2 => true,
        };
        let one_origin = server_name.is_some() || identity.is_some();
        let tls = tls::config(&roots, identity.as_ref(), http2)?;
        let server_name = match server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|_| TlsError::ServerName(name))?)
            }
        };
        let dial = Dial {
            clock: clock.clone(),
            resolver,
            addresses,
            plain_http,
            tls: TlsConnector::from(Arc::new(tls)),
            server_name,
            connect_timeout: timeouts.connect,
            handshake_timeout: timeouts.handshake,
            write_timeout: timeouts.idle,
        };
        let header_limit = limits.header_bytes.max(SMALLEST_BUFFER);
        // A request is sent again only if the connection it was for had ended before its first byte.
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(clock.hyper_timer())
            .pool_timer(clock.hyper_timer())
            .pool_idle_timeout(timeouts.keep_alive)
            .pool_max_idle_per_host(limits.idle_connections)
            .http1_max_buf_size(header_limit)
            .http2_max_header_list_size(u32::try_from(header_limit).unwrap_or(u32::MAX))
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .build(Connector(Arc::new(dial)));
        Ok(Self(Arc::new(Inner {
            clock,
            pool,
            turns: Arc::new(Semaphore::new(limits.requests)),
            user_agent,
            plain_http,
            idle: timeouts.idle,
            header_limit,
            redirects: limits.redirects,
            one_origin,
        })))
    }

    /// Sends a request and reads its whole answer, whatever its status is.
    ///
    /// # Errors
    /// There is no answer within the bounds.
    pub async fn fetch(
        &self,
        request: Request<Body>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, ClientError> {
        let (parts, body) = self.send(request, bounds).await?.into_parts();
        Ok(Response::from_parts(parts, body.whole().await?))
    }

    /// Sends a request and returns its answer, whatever its status is, as soon as its header is there.
    /// The bounds hold for the body too.
    ///
    /// # Errors
    /// There is no answer within the bounds.
    pub async fn send(
        &self,
        mut request: Request<Body>,
        bounds: Bounds,
    ) -> Result<Response<ResponseBody>, ClientError> {
        let Inner { clock, turns, .. } = &*self.0;
        let deadline = clock.moment() + bounds.time;
        let late = |_| ClientError::Late { phase: Phase::Total, limit: bounds.time };
        let turn = clock.timeout(bounds.time, Arc::clone(turns).acquire_owned());
        // Nobody closes it, so everybody gets a turn.
        let turn = turn.await.map_err(late)?;
        let turn = turn.map_err(|closed| ClientError::BrokenOff(Arc::new(closed)))?;
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.0.user_agent.clone());
        for _ in 0..=self.0.redirects {
            self.check(request.uri())?;
            let spare = self.spare(&request);
            let answer = self.exchange(request, bounds, deadline).await?;
            match spare.and_then(|spare| self.redirected(spare, &answer)) {
                Some(next) => request = next,
                None => {
                    let (parts, body) = answer.into_parts();
                    let body = ResponseBody::new(body, self.reading(bounds, deadline), turn)?;
                    return Ok(Response::from_parts(parts, body));
                }
            }
        }
        Err(ClientError::Redirects(self.0.redirects))
    }

    fn reading(&self, bounds: Bounds, deadline: Moment) -> Reading {
        let Inner { clock, idle, header_limit, .. } = &*self.0;
        let (idle, header_limit) = (*idle, *header_limit);
        Reading { clock: clock.clone(), bounds, deadline, idle, header_limit }
    }

    /// Checks the address of a request, as far as it can be judged before its name is resolved.
    fn check(&self, uri: &Uri) -> Result<(), ClientError> {
        let allowed = match (uri.scheme_str(), self.0.plain_http) {
            (Some("https"), _) | (Some("http"), PlainHttp::Loopback | PlainHttp::Anywhere) => None,
            (Some("http"), PlainHttp::Never) => Some("it must begin with https://"),
            (Some(_) | None, _) => Some("it must begin with https:// or http://"),
        };
        let host = || uri.host().is_none_or(str::is_empty).then_some("it names no host");
        let user = || {
            let named = uri.authority().is_some_and(|it| it.as_str().contains('@'));
            named.then_some("credentials belong in a header, not in a URL")
        };
        match allowed.or_else(host).or_else(user) {
            None => Ok(()),
            Some(why) => {
                // What is before an at sign may be a password, and what is in a query as well.
                let host = uri.host().unwrap_or_default();
                let scheme = uri.scheme_str().map_or_else(String::new, |it| format!("{it}://"));
                Err(ClientError::Url { url: format!("{scheme}{host}{}", uri.path()), why })
            }
        }
    }

    /// A copy of a request that may have to be sent to another address.
    fn spare(&self, request: &Request<Body>) -> Option<Spare> {
        (self.0.redirects > 0).then(|| Spare {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            body: request.body().again(),
        })
    }

    /// The request that an answer asks for instead, if it may be sent.
    fn redirected(&self, spare: Spare, answer: &Response<Incoming>) -> Option<Request<Body>> {
        let Spare { method, uri, mut headers, body } = spare;
        let Redirect { method, uri, with_body, same_origin } =
            redirect(&method, &uri, answer.status(), answer.headers())?;
        if !same_origin {
            if self.0.one_origin {
                return None;
            }
            strip_credentials(&mut headers);
        }
        let mut request = Request::new(if with_body { body? } else { Body::empty() });
        if !with_body {
            headers.remove(http::header::CONTENT_TYPE);
            headers.remove(http::header::CONTENT_LENGTH);
        }
        // The pool writes the name of the host that is called.
        headers.remove(http::header::HOST);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Some(request)
    }

    /// Sends one request and waits for the header of its answer.
    async fn exchange(
        &self,
        request: Request<Body>,
        bounds: Bounds,
        deadline: Moment,
    ) -> Result<Response<Incoming>, ClientError> {
        let Inner { clock, pool, idle, header_limit, .. } = &*self.0;
        let progress = Progress::new(clock);
        let request = request.map(|body| body.upload(progress.clone()));
        let mut exchange = pin!(pool.request(request));
        loop {
            let quiet = progress.last() + *idle;
            tokio::select! {
                biased;
                // Dropped when the time is up, which gives up the connection.
                answer = &mut exchange => {
                    let failed = |error| ClientError::of_exchange(error, *header_limit);
                    let answer = answer.map_err(failed)?;
                    // The buffer of HTTP/1 is a bound with slack: what was read at once is parsed.
                    if header_size(answer.headers()) > *header_limit {
                        let (part, limit) = (ResponsePart::Header, *header_limit);
                        return Err(ClientError::TooLarge { part, limit });
                    }
                    return Ok(answer);
                }
                // Dropped with the answer, or to wait for longer because the request moved on.
                () = clock.sleep_until(quiet.min(deadline)) => {}
            }
            let now = clock.moment();
            if now >= deadline {
                return Err(ClientError::Late { phase: Phase::Total, limit: bounds.time });
            }
            if now >= progress.last() + *idle {
                return Err(ClientError::Late { phase: Phase::Idle, limit: *idle });
            }
        }
    }
}

/// The size of a header as HTTP/1.1 writes it, without the status line.
fn header_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// What a redirected request is made of.
struct Spare {
    method: http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Option<Body>,
}

#[cfg(test)]
mod tests;
