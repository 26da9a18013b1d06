//! Logs and measures what the controllers write to the API server, with the keys and names that
//! benchmarks of the original look for.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gantry_controller::Actor;
use gantry_controller::external::BoxFuture;
use gantry_process::clock::Clock;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::metrics::{CreateLabels, LauncherMetrics};
use crate::labels::{LAUNCHER_CONFIG_LABEL, REQUESTER_ANNOTATION};

/// The most bytes of a body that is looked into: pods of templates are far smaller.
const MAX_BODY_BYTES: usize = 4 << 20;

/// Returns an actor whose writes are logged, and whose creations of launchers are measured if there
/// are metrics for that.
pub(crate) fn logged(
    actor: &Actor,
    clock: &Clock,
    metrics: Option<Arc<LauncherMetrics>>,
) -> Arc<Actor> {
    let writes = LoggedWrites { client: actor.client.clone(), clock: clock.clone(), metrics };
    let namespace = actor.client.default_namespace().to_owned();
    Arc::new(Actor {
        client: kube::Client::new(writes, namespace),
        field_manager: actor.field_manager.clone(),
        component: actor.component.clone(),
        host: actor.host.clone(),
        can_impersonate: actor.can_impersonate,
    })
}

/// A client that logs the writes of another.
#[derive(Clone)]
struct LoggedWrites {
    client: kube::Client,
    clock: Clock,
    metrics: Option<Arc<LauncherMetrics>>,
}

impl fmt::Debug for LoggedWrites {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("LoggedWrites")
    }
}

/// What a request writes, for the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    /// The requester that it is about, as far as the request says so.
    requester: Option<String>,
    /// The namespace and the LauncherConfig, if it creates a launcher.
    launcher: Option<(String, String)>,
}

impl Written {
    fn read(method: &Method, path: &str, body: &[u8]) -> Self {
        let is_pod = path.contains("/pods");
        if !is_pod || body.len() > MAX_BODY_BYTES {
            return Self::default();
        }
        let Ok(object) = serde_json::from_slice::<Value>(body) else { return Self::default() };
        let metadata = &object["metadata"];
        let binding = metadata["annotations"][REQUESTER_ANNOTATION].as_str();
        let requester = binding.and_then(|it| it.split(' ').nth(1)).map(str::to_owned);
        let config = metadata["labels"][LAUNCHER_CONFIG_LABEL].as_str();
        let launcher = config.filter(|_| *method == Method::POST).map(|config| {
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            (namespace.to_owned(), config.to_owned())
        });
        Self { requester, launcher }
    }
}

impl LoggedWrites {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let method = parts.method.clone();
        if method == Method::GET {
            return self.client.send(Request::from_parts(parts, body)).await;
        }
        let path = parts.uri.path().to_owned();
        let body: Bytes = body.collect_bytes().await?;
        let written = Written::read(&method, &path, &body);
        let (started, begun) = (self.clock.now(), self.clock.moment());
        let outcome = self.client.send(Request::from_parts(parts, body.into())).await;
        let took = self.clock.moment() - begun;
        let code = outcome.as_ref().map_or(0, |it| it.status().as_u16());
        self.measure(&written, (200..300).contains(&code), took);
        let error = outcome.as_ref().err().map(ToString::to_string);
        let requester = written.requester;
        match path.contains("/events") {
            true => tracing::debug!(
                k8sCallStartTime = %started, %method, path, code, ?took, error, "wrote an event"
            ),
            false => tracing::info!(
                k8sCallStartTime = %started, requesterName = requester, %method, path, code, ?took,
                error, "wrote to the API server"
            ),
        }
        outcome
    }

    fn measure(&self, written: &Written, success: bool, took: Duration) {
        let (Some(metrics), Some((namespace, config))) = (&self.metrics, &written.launcher) else {
            return;
        };
        let labels = CreateLabels {
            exported_namespace: namespace.clone(),
            lcfg_name: config.clone(),
            success: if success { "true" } else { "false" },
        };
        metrics.created(&labels, took);
    }
}

impl tower_service::Service<Request<Body>> for LoggedWrites {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use gantry_controller::transport::in_process;
    use gantry_process::clock::FakeClock;
    use gantry_process::metrics::{BuildInfo, Metrics};
    use http_body_util::Full;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_says_which_requester_and_launcher_it_is_about() {
        let of = |method: Method, path: &str, body: &Value| {
            Written::read(&method, path, body.to_string().as_bytes())
        };
        let launcher = json!({"metadata": {
            "namespace": "n",
            "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
            "annotations": {"dual-pods.llm-d.ai/requester": "uid r"},
        }});
        let pods = "/api/v1/namespaces/n/pods";
        let created = of(Method::POST, pods, &launcher);
        assert_eq!(created.requester.as_deref(), Some("r"));
        assert_eq!(created.launcher, Some(("n".to_owned(), "lc".to_owned())));
        assert_eq!(of(Method::PATCH, pods, &launcher).launcher, None);
        assert_eq!(of(Method::POST, "/api/v1/namespaces/n/events", &launcher), Written::default());
        assert_eq!(Written::read(&Method::POST, pods, b"{"), Written::default());
    }

    /// AS-33: only creations of launchers are measured, and refused ones as such.
    #[tokio::test]
    async fn as_33_creations_of_launchers_are_measured_and_requests_are_passed_on() {
        let clock = FakeClock::at(Timestamp::UNIX_EPOCH).clock();
        let received = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&received);
        let server = in_process(move |request: Request<Bytes>| {
            let requests = Arc::clone(&requests);
            async move {
                let body = String::from_utf8(request.body().to_vec()).unwrap();
                let code = if body.contains("refused") { 409 } else { 201 };
                requests.lock().unwrap().push((request.uri().path().to_owned(), body));
                Response::builder().status(code).body(Full::new(Bytes::from("{}"))).unwrap()
            }
        });
        let metrics = Metrics::new(&BuildInfo::default());
        let launchers = Arc::new(LauncherMetrics::register(&metrics).unwrap());
        let actor = logged(&Actor::new(server, "m", "c"), &clock, Some(launchers));
        let pod = |config: &str, note: &str| {
            let labels = json!({"dual-pods.llm-d.ai/launcher-config-name": config});
            json!({"metadata": {"namespace": "n", "labels": labels, "name": note}}).to_string()
        };
        let pods = "/api/v1/namespaces/n/pods";
        for (method, path, body) in [
            (Method::POST, pods, pod("lc", "made")),
            (Method::POST, pods, pod("lc", "refused")),
            (Method::PATCH, "/api/v1/namespaces/n/pods/p", pod("other", "changed")),
            (Method::GET, pods, String::new()),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::from(body.into_bytes())).unwrap();
            actor.client.send(request).await.unwrap();
        }
        let received = received.lock().unwrap();
        assert_eq!(received.len(), 4);
        assert_eq!(received[0], (pods.to_owned(), pod("lc", "made")), "the body is passed on");
        let page = metrics.encode().unwrap();
        for success in ["true", "false"] {
            let line = format!(
                "fma_launcher_create_seconds_count{{exported_namespace=\"n\",lcfg_name=\"lc\",\
                 success=\"{success}\"}} 1"
            );
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
        assert!(!page.contains("other"), "{page}");
    }
}
