//! Serves the operator's metrics with TLS, to callers that the API server knows and that may read them.
//!
//! A caller shows a bearer token. The API server reviews the token, and then whether its user may `get`
//! the path: what kube-rbac-proxy and controller-runtime ask for, so that the same ClusterRoles do. The
//! probes are not here: a kubelet has no token, and asks at an address of its own.

mod certificate;
mod reviews;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gantry_process::health::BindAddress;
use gantry_process::metrics::{CONTENT_TYPE, Metrics};
use gantry_process::tasks::OnLoss;
use gantry_serve::counters::Counters;
use gantry_serve::limits::{Class, Figures, Limits, RequestBody};
use gantry_serve::listener::Timeouts;
use gantry_serve::tls::ServerCertificate;
use gantry_serve::{Body, Door, Options, Peer};
use http::header::{AUTHORIZATION, CONTENT_TYPE as TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use self::certificate::Source;
use self::reviews::{ApiServer, Decision, Gate};
use super::controllers::Standing;
use super::{Shell, Start};
use crate::config::operator::MetricsServer;

/// How often the files of the certificate are read again, and the age of our own is looked at.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Connections at one time; some scrapers need less than ten.
const CONNECTIONS: usize = 64;
/// Requests at one time. Those that wait for a review are among them.
const REQUESTS: usize = 32;
/// The largest head of a request: tokens are some kilobytes.
const LARGEST_HEAD: usize = 64 << 10;
/// How long an answer may take, two reviews included.
const DEADLINE: Duration = Duration::from_secs(20);

/// Serves the pages at the address of the settings, if there is one.
///
/// # Errors
/// The certificate cannot be used, or the address is taken.
pub(super) async fn serve(
    start: &Start,
    client: kube::Client,
    counters: Counters,
    standing: &Standing,
    shell: &mut Shell,
) -> anyhow::Result<()> {
    let settings = &start.checked.settings.metrics;
    let MetricsServer { bind_address, .. } = settings;
    if *bind_address == BindAddress::Disabled {
        return Ok(());
    }
    let clock = shell.tasks.clock().clone();
    let source = Source::new(settings, start.follow.sources.own_namespace().ok().as_deref());
    let shown = source.load(clock.now())?;
    let certificate =
        ServerCertificate::new(&shown.identity).with_context(|| format!("cannot use {source}"))?;
    let pages = Arc::new(Pages {
        metrics: shell.metrics.clone(),
        standing: standing.clone(),
        gate: Gate::new(ApiServer::new(client, clock.clone()), clock.clone()),
    });
    let figures =
        Figures { reads: REQUESTS, changes: 1, body: 0, deadline: DEADLINE, ..Figures::default() };
    let limits = Limits::new(figures, clock.clone(), counters.clone(), |parts| {
        Class::of_method(&parts.method)
    });
    let answer = move |request: Request<Incoming>, _: Arc<Peer>| {
        let (limits, pages) = (limits.clone(), Arc::clone(&pages));
        async move { limits.answer(request, |request| pages.answer(request)).await }
    };
    let mut at = Err(anyhow::anyhow!("there is no address to listen on"));
    for address in bind_address.candidates() {
        let door = Door::Tls { certificate: certificate.clone(), clients: None };
        let options = Options {
            connections: CONNECTIONS,
            max_head: LARGEST_HEAD,
            timeouts: Timeouts { drain: Duration::from_secs(2), ..Timeouts::default() },
            on_panic: OnLoss::CarryOn,
            ..Options::new(address, door)
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
                // Either may be dropped: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = clock.sleep(CERTIFICATE_CHECK_INTERVAL) => {}
            }
            shown = source.renew(shown, &certificate, clock.now());
        }
    });
    Ok(())
}

/// What is served, and who may read it.
struct Pages {
    metrics: Metrics,
    standing: Standing,
    gate: Gate<ApiServer>,
}

impl Pages {
    async fn answer(self: Arc<Self>, request: Request<RequestBody>) -> Response<Body> {
        let path = request.uri().path();
        let page: fn(&Self) -> Response<Body> = match path {
            "/metrics" => Self::metrics_page,
            "/status" => Self::status_page,
            _ => return plain(StatusCode::NOT_FOUND, "404 page not found"),
        };
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered");
        }
        let Some(token) = bearer_token(request.headers()) else {
            return unauthorized("send a token: Authorization: Bearer TOKEN");
        };
        match self.gate.decide(token, path).await {
            Ok(Decision::Allowed) => page(&self),
            Ok(Decision::Unauthenticated) => {
                unauthorized("the API server does not know this token")
            }
            Ok(Decision::Denied { user }) => plain(
                StatusCode::FORBIDDEN,
                &format!(
                    "user {user:?} may not get {path}: bind it to a ClusterRole with the verb get on \
                     nonResourceURLs {path}, such as gantry-metrics-reader"
                ),
            ),
            // What went wrong is for those who run the operator: it is in the log.
            Err(_) => plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server could not be asked about this token; the log of the operator says why",
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
        typed(plain(StatusCode::OK, &self.standing.page().to_string()), "application/json")
    }
}

/// The token of a request that has exactly one.
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
    fn one_token_is_taken_and_nothing_else() {
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
