//! Answers the questions about requesters, launchers and engines.

use std::time::Duration;

use futures_util::future::join_all;
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_http_client::Bounds;
use gantry_reconcile::{Key, World};
use http::{HeaderMap, Method};

use super::peer::{PeerClient, PeerRequest, PeerResponse, socket_address};
use crate::bookkeeping::Bookkeeping;
use crate::facts::{
    AcceleratorMemory, Endpoint, EngineQuestion, EngineState, InstanceLog, InstanceState,
    LauncherState, LogQuestion, RequesterAccelerators, read_accelerators, read_instances,
    read_memory, read_sleeping,
};
use crate::labels::{ACCELERATORS_PATH, INSTANCES_PATH, LAUNCHER_PORT, MEMORY_PATH};
use crate::view::{ActuationPod, Variant};

/// How long one question may take.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an instance may take to say whether it sleeps: one that hangs must not keep the others
/// of its launcher from being known.
pub(super) const INSTANCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest answer.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The longest ID of an instance in a path.
const MAX_ID_BYTES: usize = 253;
/// The path that tells whether an engine sleeps.
const SLEEPING_PATH: &str = "/is_sleeping";

/// Answers all questions of actuation.
#[derive(Clone, Debug)]
pub struct PeerResponder(pub PeerClient);

/// What is asked.
struct Question<'a> {
    purpose: &'static str,
    endpoint: &'a Endpoint,
    path: &'a str,
    time: Duration,
    has_token: bool,
    config: &'a str,
}

impl Responder<LauncherState> for PeerResponder {
    fn answer<'a>(
        &'a self,
        question: &'a Endpoint,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<LauncherState, String>> {
        Box::pin(async move {
            let config = config_name(context.handle.world(), &question.pod);
            self.0.launcher_state(question, &config).await
        })
    }
}

impl Responder<InstanceLog> for PeerResponder {
    fn answer<'a>(
        &'a self,
        question: &'a LogQuestion,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<InstanceLog, String>> {
        Box::pin(async move {
            let LogQuestion { launcher, instance, .. } = question;
            if !is_path_segment(instance) {
                return Err(format!("cannot read the log of {instance:?}: it is no ID"));
            }
            let config = config_name(context.handle.world(), &launcher.pod);
            let tail = self.0.log_tail(launcher, &config, instance).await?;
            Ok(InstanceLog { tail })
        })
    }
}

impl Responder<EngineState> for PeerResponder {
    fn answer<'a>(
        &'a self,
        question: &'a EngineQuestion,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<EngineState, String>> {
        Box::pin(async move {
            let config = config_name(context.handle.world(), &question.endpoint.pod);
            self.0.engine_state(&question.endpoint, &config, QUESTION_TIMEOUT).await
        })
    }
}

impl Responder<RequesterAccelerators> for PeerResponder {
    fn answer<'a>(
        &'a self,
        question: &'a Endpoint,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<RequesterAccelerators, String>> {
        Box::pin(async move {
            let config = config_name(context.handle.world(), &question.pod);
            self.0.accelerators(question, &config).await
        })
    }
}

impl Responder<AcceleratorMemory> for PeerResponder {
    fn answer<'a>(
        &'a self,
        question: &'a Endpoint,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<AcceleratorMemory, String>> {
        Box::pin(async move {
            let config = config_name(context.handle.world(), &question.pod);
            self.0.memory(question, &config).await
        })
    }
}

impl PeerClient {
    /// The instances of a launcher, whether they sleep, and how those that have ended did.
    ///
    /// # Errors
    /// The launcher does not list them.
    pub(super) async fn launcher_state(
        &self,
        launcher: &Endpoint,
        config: &str,
    ) -> Result<LauncherState, String> {
        let question = Question {
            purpose: "list_instances",
            endpoint: launcher,
            path: INSTANCES_PATH,
            time: QUESTION_TIMEOUT,
            has_token: true,
            config,
        };
        let answer = self.ask(question).await?;
        let state = read_instances(answer.status, &answer.body)?;
        let instances = state.instances.into_iter().map(|it| self.completed(launcher, it));
        Ok(LauncherState { instances: join_all(instances).await, ..state })
    }

    /// Adds what only the instance itself knows.
    async fn completed(&self, launcher: &Endpoint, mut instance: InstanceState) -> InstanceState {
        let config = instance.config.clone().unwrap_or_default();
        if instance.is_stopped {
            if is_path_segment(&instance.id) {
                let tail = self.log_tail(launcher, &config, &instance.id).await;
                instance.log_tail = match tail {
                    Ok(tail) => Some(tail),
                    Err(error) => {
                        tracing::debug!(instance = instance.id, error, "has no log");
                        None
                    }
                };
            }
            return instance;
        }
        // The API of the launcher is no engine, whatever the annotation says.
        let Some(port) = instance.port.filter(|it| *it != LAUNCHER_PORT) else { return instance };
        let endpoint = Endpoint { port, ..launcher.clone() };
        let state = self.engine_state(&endpoint, &config, INSTANCE_TIMEOUT).await;
        instance.is_sleeping = state.ok().map(|it| it.is_sleeping);
        instance
    }

    /// Whether an engine sleeps.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn engine_state(
        &self,
        endpoint: &Endpoint,
        config: &str,
        time: Duration,
    ) -> Result<EngineState, String> {
        let question = Question {
            purpose: "query_sleeping",
            endpoint,
            path: SLEEPING_PATH,
            time,
            has_token: false,
            config,
        };
        let answer = self.ask(question).await?;
        read_sleeping(answer.status, &answer.body)
    }

    /// The accelerators of a requester.
    ///
    /// # Errors
    /// The stub does not report them.
    pub(super) async fn accelerators(
        &self,
        requester: &Endpoint,
        config: &str,
    ) -> Result<RequesterAccelerators, String> {
        let question = Question {
            purpose: "get_gpu_uuids",
            endpoint: requester,
            path: ACCELERATORS_PATH,
            time: QUESTION_TIMEOUT,
            has_token: true,
            config,
        };
        let answer = self.ask(question).await?;
        read_accelerators(answer.status, &answer.body)
    }

    /// The memory in use on the accelerators of a requester.
    ///
    /// # Errors
    /// The stub does not report it.
    pub(super) async fn memory(
        &self,
        requester: &Endpoint,
        config: &str,
    ) -> Result<AcceleratorMemory, String> {
        let question = Question {
            purpose: "get_accel_memory_usage",
            endpoint: requester,
            path: MEMORY_PATH,
            time: QUESTION_TIMEOUT,
            has_token: true,
            config,
        };
        let answer = self.ask(question).await?;
        read_memory(answer.status, &answer.body)
    }

    async fn ask(&self, question: Question<'_>) -> Result<PeerResponse, String> {
        let Question { purpose, endpoint, path, time, has_token, config } = question;
        self.send(PeerRequest {
            purpose,
            method: Method::GET,
            pod: &endpoint.pod,
            address: socket_address(endpoint)?,
            path,
            headers: HeaderMap::new(),
            body: None,
            bounds: Bounds { time, bytes: MAX_ANSWER_BYTES },
            has_token,
            config,
            requester: None,
        })
        .await
    }
}

/// The InferenceServerConfig that a pod is about, for metrics; empty if there is none.
pub(super) fn config_name(world: &World, pod: &Key) -> String {
    let Some(pod) = world.store::<ActuationPod>().get(pod) else { return String::new() };
    config_of(&pod)
}

/// The InferenceServerConfig of a requester or of a bound launcher.
pub(super) fn config_of(pod: &ActuationPod) -> String {
    match pod.variant() {
        Some(Variant::Launcher(config)) => config.to_owned(),
        Some(Variant::Direct(_)) => String::new(),
        None => Bookkeeping::read(pod).map(|it| it.config_name().to_owned()).unwrap_or_default(),
    }
}

/// Whether an ID that a launcher reported can be part of a path as it is.
fn is_path_segment(id: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    !id.is_empty() && id.len() <= MAX_ID_BYTES && id != "." && id != ".." && id.bytes().all(plain)
}
