//! The notifier: publishes the states of a launcher's instances as an annotation of its pod, so
//! that the API server notifies those who watch pods.

use std::fmt::Write as _;
use std::time::Duration;

use gantry_http_client::{Body, Bounds, Client};
use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::exchange as serving;
use crate::host::Host;
use crate::kubernetes::{self, KubernetesApi};

/// The annotation.
pub const ANNOTATION: &str = "dual-pods.llm-d.ai/vllm-instance-signature";
/// The container whose readiness is waited for.
const CONTAINER: &str = "inference-server";
/// The interval at which the pod is read until that container is ready, and the wait after an
/// error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which instances are listed where they cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How much a list may take.
const LIST_BOUNDS: Bounds = Bounds { time: Duration::from_secs(5), bytes: 16 << 20 };
/// How much a watch may take: an hour, after which it is resumed.
const WATCH_BOUNDS: Bounds = Bounds { time: Duration::from_secs(3600), bytes: 1 << 30 };
/// The exit code where there is no pod.
const FAILED_EXIT_CODE: u8 = 1;

const EXAMPLES: &str = "\
Examples:
  LAUNCHER_BASE_URL=http://127.0.0.1:8001 POD_NAME=$POD NAMESPACE=$NS gantry notifier";

/// Publish the states of a launcher's engines as an annotation of its pod.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The launcher [default: $LAUNCHER_BASE_URL, or http://127.0.0.1:8001].
    #[arg(long, value_name = "URL")]
    pub launcher: Option<String>,
    /// The file of the token that the launcher asks for [default: $GANTRY_TOKEN_FILE, or none].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<std::path::PathBuf>,
}

/// What it needs to publish.
struct Notifier<'a> {
    api: &'a dyn KubernetesApi,
    pod_path: String,
    launcher: String,
    token: Option<HeaderValue>,
    client: Client,
    clock: Clock,
    host: &'a Host,
    /// What was published last.
    published: Option<String>,
}

/// Runs until the tasks stop, and returns the exit code.
pub async fn run(arguments: Arguments, host: Host, tasks: Tasks) -> u8 {
    let (clock, stop) = (tasks.clock().clone(), tasks.token().clone());
    let mut notifier = match Notifier::new(&arguments, &host, clock) {
        Ok(notifier) => notifier,
        Err(message) => {
            host.log(&message);
            return FAILED_EXIT_CODE;
        }
    };
    (host.set_ready)(true);
    tokio::select! {
        biased;
        // May be dropped: an annotation that was sent is published again if it was not stored.
        () = stop.cancelled() => {}
        () = notifier.publish() => {}
    }
    0
}

impl<'a> Notifier<'a> {
    fn new(arguments: &Arguments, host: &'a Host, clock: Clock) -> Result<Self, String> {
        let named = |name: &str, known: &Option<String>| {
            known.clone().ok_or_else(|| format!("{name} is not set: set it from the pod's field"))
        };
        let name = named("POD_NAME", &host.pod.name)?;
        let namespace = named("NAMESPACE", &host.pod.namespace)?;
        let api = host.kubernetes.as_deref();
        let api = api.ok_or("the API server can only be reached inside a cluster")?;
        let launcher = arguments.launcher.as_deref();
        let launcher = launcher.or_else(|| host.variable("LAUNCHER_BASE_URL"));
        let launcher = launcher.unwrap_or("http://127.0.0.1:8001").trim_end_matches('/');
        // The containers of a pod share its addresses, of which a simulated pod has one.
        let launcher = match host.address() {
            Some(own) => launcher
                .replace("//127.0.0.1:", &format!("//{own}:"))
                .replace("//localhost:", &format!("//{own}:")),
            None => launcher.to_owned(),
        };
        if let Some(own) = host.address().filter(|_| host.confinement().is_some()) {
            let uri: Option<http::Uri> = launcher.parse().ok();
            let is_own = |it: &http::Uri| it.host().is_some_and(|it| it == own.to_string());
            if !uri.as_ref().is_some_and(is_own) {
                return Err(format!(
                    "LAUNCHER_BASE_URL is {launcher:?}: in simulated pods use \
                     http://127.0.0.1:PORT, a container of the same pod"
                ));
            }
        }
        let token = host.token(arguments.token_file.as_ref()).map_err(|it| it.to_string())?;
        let token = token.map(|it| HeaderValue::from_str(&format!("Bearer {it}")));
        let token = token.transpose().map_err(|_| "the token is no header".to_owned())?;
        let client = serving::pod_client(clock.clone(), WATCH_BOUNDS.time);
        Ok(Self {
            api,
            pod_path: format!("/api/v1/namespaces/{namespace}/pods/{name}"),
            launcher,
            token,
            client: client.map_err(|error| gantry_process::error_chain(&error))?,
            clock,
            host,
            published: None,
        })
    }

    async fn publish(&mut self) {
        while !self.is_container_ready().await {
            self.clock.sleep(RETRY_INTERVAL).await;
        }
        loop {
            let watched = self.publish_once().await;
            match watched {
                Ok(revision) => self.wait_for_change(revision).await,
                Err(message) => {
                    self.host.log(&message);
                    self.clock.sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn is_container_ready(&self) -> bool {
        let request =
            kubernetes::request(self.api, Method::GET, &self.pod_path, "application/json", None);
        match request.await {
            Ok(pod) => {
                let statuses = pod["status"]["containerStatuses"].as_array();
                let own = statuses.into_iter().flatten().find(|it| it["name"] == CONTAINER);
                own.is_some_and(|it| it["ready"] == true)
            }
            Err(error) => {
                self.host.log(&error.to_string());
                false
            }
        }
    }

    /// Lists the instances and publishes them if they changed; returns the revision of the list.
    async fn publish_once(&mut self) -> Result<u64, String> {
        let list = self.get("/v2/vllm/instances")?;
        let list = self.client.fetch(list, LIST_BOUNDS).await;
        let list = list.map_err(|error| {
            format!("could not list instances: {}", gantry_process::error_chain(&error))
        })?;
        if !list.status().is_success() {
            return Err(format!("could not list instances: {}", list.status()));
        }
        let list: Value = serde_json::from_slice(list.body())
            .map_err(|error| format!("the launcher's list is unreadable: {error}"))?;
        let signature = signature(&list);
        if self.published.as_ref() != Some(&signature) {
            let patch = json!({"metadata": {"annotations": {ANNOTATION: signature}}});
            let kind = "application/merge-patch+json";
            let patched =
                kubernetes::request(self.api, Method::PATCH, &self.pod_path, kind, Some(&patch));
            patched.await.map_err(|error| error.to_string())?;
            self.host.log(&format!("published {signature}"));
            self.published = Some(signature);
        }
        Ok(list["revision"].as_u64().unwrap_or(0))
    }

    /// Returns when something happened after a revision; after an interval where that cannot be
    /// watched.
    async fn wait_for_change(&self, revision: u64) {
        let watch = async {
            let request = self.get(&format!("/v2/vllm/instances/watch?since={revision}")).ok()?;
            let mut answer = self.client.send(request, WATCH_BOUNDS).await.ok()?;
            if !answer.status().is_success() {
                return None;
            }
            use http_body_util::BodyExt as _;
            answer.body_mut().frame().await?.ok()
        };
        if watch.await.is_none() {
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    fn get(&self, path: &str) -> Result<Request<Body>, String> {
        let mut request = Request::get(format!("{}{path}", self.launcher));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        request.body(Body::empty()).map_err(|error| format!("LAUNCHER_BASE_URL: {error}"))
    }
}

/// Returns what identifies the states in a list: the SHA-256 of the sorted pairs of ID and status,
/// as compact JSON.
fn signature(list: &Value) -> String {
    let instances = list["instances"].as_array();
    let pair = |it: &Value| {
        let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        (text("instance_id"), text("status"))
    };
    let mut pairs: Vec<(String, String)> = instances.into_iter().flatten().map(pair).collect();
    pairs.sort();
    let text = json!(pairs).to_string();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut all, byte| {
        // Writing to a string does not fail.
        let _ = write!(all, "{byte:02x}");
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_depends_on_states_alone() {
        let list = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().enumerate().map(
                |(at, (id, status))| json!({"instance_id": id, "status": status, "revision": at}),
            );
            signature(&json!({"instances": all.collect::<Vec<_>>()}))
        };
        let one = list(&[("a", "running"), ("b", "stopped")]);
        assert_eq!(one, list(&[("b", "stopped"), ("a", "running")]));
        assert_ne!(one, list(&[("a", "stopped"), ("b", "stopped")]));
        // What the original computes of an empty list: the SHA-256 of `[]`.
        let empty = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945";
        assert_eq!(list(&[]), empty);
    }
}
