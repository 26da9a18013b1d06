//! Serves the operator's metrics with TLS, to authenticated callers that may read them.
//!
//! A caller sends a bearer token. The API server reviews the token, and then whether its user may
//! `get` the path: the same checks as kube-rbac-proxy and controller-runtime, so that the same
//! ClusterRoles apply. Probes are not served here: a kubelet has no token, and uses an address of
//! its own.

mod certificate;
mod reviews;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gantry_process::health::BindAddress;
use gantry_process::metrics::{CONTENT_TYPE, Metrics};
use gantry_process::tasks::OnLoss;
use gantry_serve::counters::Counters;
use gantry_serve::limits::{Limits, RequestBody, RequestClass, RequestLimits};
use gantry_serve::listener::Timeouts;
use gantry_serve::tls::ServerCertificate;
use gantry_serve::{Body, Options, Peer, TransportSecurity};
use http::header::{AUTHORIZATION, CONTENT_TYPE as TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use self::certificate::CertificateSource;
use self::reviews::{ApiServerReviewer, Decision, MetricsAuthorizer};
use super::controllers::OperatorStatus;
use super::{ProcessContext, StartOptions};
use crate::config::operator::MetricsServer;

/// How often the certificate files are read again, and the age of a self-signed certificate is
/// checked.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of connections; a few scrapers need less than ten.
const MAX_CONNECTIONS: usize = 64;
/// The maximum number of concurrent requests, including those that wait for a review.
const MAX_CONCURRENT_REQUESTS: usize = 32;
/// The maximum size of the headers of a request: tokens are some kilobytes.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// How long a response may take, two reviews included.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves the pages at the configured address, if there is one.
///
/// # Errors
/// The certificate cannot be used, or the address is in use.
pub(super) async fn serve(
    start: &StartOptions,
    client: kube::Client,
    counters: Counters,
    standing: &OperatorStatus,
    shell: &mut ProcessContext,
) -> anyhow::Result<()> {
    let settings = &start.checked.settings.metrics;
    let MetricsServer { bind_address, .. } = settings;
    if *bind_address == BindAddress::Disabled {
        return Ok(());
    }
    let clock = shell.tasks.clock().clone();
    let source = CertificateSource::new(
        settings,
        start.config_watch.sources.own_namespace().ok().as_deref(),
    );
    let shown = source.load(clock.now())?;
    let certificate =
        ServerCertificate::new(&shown.identity).with_context(|| format!("cannot use {source}"))?;
    let pages = Arc::new(MetricsService {
        metrics: shell.metrics.clone(),
        status: standing.clone(),
        authorizer: MetricsAuthorizer::new(
            ApiServerReviewer::new(client, clock.clone()),
            clock.clone(),
        ),
    });
    let figures = RequestLimits {
        max_read_only: MAX_CONCURRENT_REQUESTS,
        max_mutating: 1,
        max_body_bytes: 0,
        request_timeout: RESPONSE_TIMEOUT,
        ..RequestLimits::default()
    };
    let limits = Limits::new(figures, clock.clone(), counters.clone(), |parts| {
        RequestClass::of_method(&parts.method)
    });
    let answer = move |request: Request<Incoming>, _: Arc<Peer>| {
        let (limits, pages) = (limits.clone(), Arc::clone(&pages));
        async move { limits.handle(request, |request| pages.answer(request)).await }
    };
    let mut at = Err(anyhow::anyhow!("there is no address to listen on"));
    for address in bind_address.candidates() {
        let security = TransportSecurity::Tls { certificate: certificate.clone(), clients: None };
        let options = Options {
            max_connections: MAX_CONNECTIONS,
            max_head: MAX_HEADER_BYTES,
            timeouts: Timeouts { drain: Duration::from_secs(2), ..Timeouts::default() },
            on_panic: OnLoss::CarryOn,
            ..Options::new(address, security)
        };
        let tried = gantry_serve::serve(
            &mut shell.tasks,
            "metrics",
            options,
            counters.clone(),
            answer.clone(),
        );
        at = tried.await.map_err(anyhow::Error::from);
        if at.is_ok() {
            break;
        }
    }
    at.context("could not serve metrics")?;
    shell.tasks.spawn("metrics certificate", OnLoss::EndOwner, move |stop| async move {
        let mut shown = shown;
        loop {
            tokio::select! {
                // Either future may be dropped: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = clock.sleep(CERTIFICATE_CHECK_INTERVAL) => {}
            }
            shown = source.renew(shown, &certificate, clock.now());
        }
    });
    Ok(())
}

/// The service for metrics, and its authorizer.
struct MetricsService {
    metrics: Metrics,
    status: OperatorStatus,
    authorizer: MetricsAuthorizer<ApiServerReviewer>,
}

impl MetricsService {
    async fn answer(self: Arc<Self>, request: Request<RequestBody>) -> Response<Body> {
        let path = request.uri().path();
        let page: fn(&Self) -> Response<Body> = match path {
            "/metrics" => Self::metrics_page,
            "/status" => Self::status_page,
            _ => return plain(StatusCode::NOT_FOUND, "404 page not found"),
        };
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported");
        }
        let Some(token) = bearer_token(request.headers()) else {
            return unauthorized("send a token: Authorization: Bearer TOKEN");
        };
        match self.authorizer.decide(token, path).await {
            Ok(Decision::Allowed) => page(&self),
            Ok(Decision::Unauthenticated) => {
                unauthorized("the API server does not accept this token")
            }
            Ok(Decision::Denied { user }) => plain(
                StatusCode::FORBIDDEN,
                &format!(
                    "user {user:?} may not get {path}: bind it to a ClusterRole with the verb get \
                     on nonResourceURLs {path}, such as gantry-metrics-reader"
                ),
            ),
            // The cause is for the administrator of the operator: it is in the log.
            Err(_) => plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server could not review this token; the log of the operator says why",
            ),
        }
    }

    fn metrics_page(&self) -> Response<Body> {
        match self.metrics.encode() {
            Ok(page) => typed(plain(StatusCode::OK, &page), CONTENT_TYPE),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    fn status_page(&self) -> Response<Body> {
        typed(plain(StatusCode::OK, &self.status.status_json().to_string()), "application/json")
    }
}

/// Returns the token of a request that has exactly one.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(text: &str) -> Response<Body> {
    let mut answer = plain(StatusCode::UNAUTHORIZED, text);
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(gantry_serve::body::full(text.to_owned()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    typed(answer, "text/plain; charset=utf-8")
}

fn typed(mut answer: Response<Body>, content_type: &'static str) -> Response<Body> {
    answer.headers_mut().insert(TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bearer_token_is_accepted() {
        let table: [(&[&str], Option<&str>); 8] = [
            (&["Bearer abc"], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&[], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Basic YTpi"], None),
            (&["abc"], None),
            (&["Bearer a", "Bearer b"], None),
        ];
        for (values, expected) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(bearer_token(&headers), expected, "{values:?}");
        }
    }
}
