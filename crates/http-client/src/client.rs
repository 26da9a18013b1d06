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
use crate::body::{Body, Progress, ReadLimits, ResponseBody, Upload};
use crate::connect::{Connector, Dialer, Resolve, SystemResolver};
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
    /// The name that is sent as SNI and that the certificate must have, whatever the host is
    /// called.
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
    /// HTTP/1.1: one request at a time per connection, so that requests are spread over all
    /// backends of one address.
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
    /// Everywhere. For clients that are configured to allow it.
    Anywhere,
}

/// How long parts of an exchange may take. The whole is limited by [`Bounds::time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving the name and connecting, over all addresses that are tried.
    pub connect: Duration,
    /// The TLS handshake.
    pub handshake: Duration,
    /// The longest time in which neither the request nor the response makes progress. It must be
    /// longer than a server may take to produce a response.
    pub idle: Duration,
    /// How long a connection without a request is kept.
    pub keep_alive: Duration,
}

/// How many resources a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest header of a response, in bytes; at least 8 KiB.
    pub header_bytes: usize,
    /// Concurrent requests, counted until their responses are read to the end. Further requests
    /// wait, within their own time limit.
    pub requests: usize,
    /// Connections without a request that are kept per host.
    pub idle_connections: usize,
    /// Redirects that are followed for one request. With zero, a redirect is returned like any
    /// other response.
    ///
    /// Credentials are not sent to another origin, a streamed body is not sent again, and a
    /// redirect from TLS to plain HTTP is not followed: such redirects are returned as the
    /// response. A client with a server name or a client certificate follows redirects within the
    /// same origin only.
    pub redirects: usize,
}

/// How much time and memory one request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Until its response is read to the end; waiting for other requests of the client is part of
    /// it.
    pub time: Duration,
    /// The largest body of the response, in bytes.
    pub bytes: usize,
}

impl Settings {
    /// Returns the strictest settings: HTTPS with the roots of the machine, no loopback, no
    /// redirects.
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

/// The smallest buffer that hyper accepts.
const MIN_BUFFER_SIZE: usize = 8 << 10;

/// How often an HTTP/2 server is pinged while a response is outstanding.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);

/// Sends requests. Clones share connections and limits.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    clock: Clock,
    pool: legacy::Client<Connector, Upload>,
    request_permits: Arc<Semaphore>,
    user_agent: HeaderValue,
    plain_http: PlainHttp,
    idle: Duration,
    header_limit: usize,
    redirects: usize,
    /// Whether redirects to other origins are returned instead of followed.
    one_origin: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("user_agent", &self.0.user_agent).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client without connections.
    ///
    /// # Errors
    /// The TLS settings are invalid.
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
        let dial = Dialer {
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
        let header_limit = limits.header_bytes.max(MIN_BUFFER_SIZE);
        // A request is sent again only if the connection it was for had ended before its first
        // byte.
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
            request_permits: Arc::new(Semaphore::new(limits.requests)),
            user_agent,
            plain_http,
            idle: timeouts.idle,
            header_limit,
            redirects: limits.redirects,
            one_origin,
        })))
    }

    /// Sends a request and reads the whole response, whatever its status is.
    ///
    /// # Errors
    /// No response arrived within the bounds.
    pub async fn fetch(
        &self,
        request: Request<Body>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, ClientError> {
        let (parts, body) = self.send(request, bounds).await?.into_parts();
        Ok(Response::from_parts(parts, body.read_to_end().await?))
    }

    /// Sends a request and returns the response, whatever its status is, as soon as its header has
    /// arrived. The bounds hold for the body too.
    ///
    /// # Errors
    /// No response arrived within the bounds.
    pub async fn send(
        &self,
        mut request: Request<Body>,
        bounds: Bounds,
    ) -> Result<Response<ResponseBody>, ClientError> {
        let Inner { clock, request_permits: turns, .. } = &*self.0;
        let deadline = clock.moment() + bounds.time;
        let late = |_| ClientError::Timeout { phase: Phase::Total, limit: bounds.time };
        let turn = clock.timeout(bounds.time, Arc::clone(turns).acquire_owned());
        // The semaphore is never closed, so every request gets a permit eventually.
        let turn = turn.await.map_err(late)?;
        let turn = turn.map_err(|closed| ClientError::ConnectionLost(Arc::new(closed)))?;
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.0.user_agent.clone());
        for _ in 0..=self.0.redirects {
            self.check(request.uri())?;
            let spare = self.replayable_copy(&request);
            let answer = self.exchange(request, bounds, deadline).await?;
            match spare.and_then(|spare| self.redirected_request(spare, &answer)) {
                Some(next) => request = next,
                None => {
                    let (parts, body) = answer.into_parts();
                    let body = ResponseBody::new(body, self.read_limits(bounds, deadline), turn)?;
                    return Ok(Response::from_parts(parts, body));
                }
            }
        }
        Err(ClientError::TooManyRedirects(self.0.redirects))
    }

    fn read_limits(&self, bounds: Bounds, deadline: Moment) -> ReadLimits {
        let Inner { clock, idle, header_limit, .. } = &*self.0;
        let (idle, header_limit) = (*idle, *header_limit);
        ReadLimits { clock: clock.clone(), bounds, deadline, idle, header_limit }
    }

    /// Checks the address of a request as far as possible before its name is resolved.
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
                // User information and query are left out, because they may contain a password.
                let host = uri.host().unwrap_or_default();
                let scheme = uri.scheme_str().map_or_else(String::new, |it| format!("{it}://"));
                Err(ClientError::InvalidUrl { url: format!("{scheme}{host}{}", uri.path()), why })
            }
        }
    }

    /// Copies a request that may have to be sent to another address after a redirect.
    fn replayable_copy(&self, request: &Request<Body>) -> Option<ReplayableRequest> {
        (self.0.redirects > 0).then(|| ReplayableRequest {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            body: request.body().try_clone(),
        })
    }

    /// Returns the request that a redirect asks for, if it may be sent.
    fn redirected_request(
        &self,
        spare: ReplayableRequest,
        answer: &Response<Incoming>,
    ) -> Option<Request<Body>> {
        let ReplayableRequest { method, uri, mut headers, body } = spare;
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

    /// Sends one request and waits for the header of its response.
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
                    let failed = |error| ClientError::from_exchange(error, *header_limit);
                    let answer = answer.map_err(failed)?;
                    // The buffer of HTTP/1 is not an exact bound: everything that was read at once
                    // is parsed.
                    if header_size(answer.headers()) > *header_limit {
                        let (part, limit) = (ResponsePart::Header, *header_limit);
                        return Err(ClientError::TooLarge { part, limit });
                    }
                    return Ok(answer);
                }
                // Dropped with the response, or to wait for longer because the request made
                // progress.
                () = clock.sleep_until(quiet.min(deadline)) => {}
            }
            let now = clock.moment();
            if now >= deadline {
                return Err(ClientError::Timeout { phase: Phase::Total, limit: bounds.time });
            }
            if now >= progress.last() + *idle {
                return Err(ClientError::Timeout { phase: Phase::Idle, limit: *idle });
            }
        }
    }
}

/// The size of a header as HTTP/1.1 writes it, without the status line.
fn header_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// What a redirected request is made of.
struct ReplayableRequest {
    method: http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Option<Body>,
}

#[cfg(test)]
mod tests;
