//! Finds or creates a provider for a requester that has none.

use gantry_pods::view::Node;
use gantry_reconcile::{Key, Step};

use super::status::problem;
use super::{Planner, delete, is_alive, notice};
use crate::accelerator_use::{Claim, blocker};
use crate::actuation_record::{ActuationPath, ActuationRecord};
use crate::engine_failures::{EngineFailure, EngineFailures};
use crate::facts::{Endpoint, LauncherState};
use crate::instance::DesiredInstance;
use crate::labels::{GPU_MAP, LAUNCHER_HASH_ANNOTATION, NOMINAL_ANNOTATION};
use crate::launcher_template::launcher_template;
use crate::nominal_pod::{IndexedAccelerators, nominal_pod};
use crate::object_names::length_problem;
use crate::select::{Candidate, Path, Selection, Wanted, select, shortfalls};
use crate::view::{
    AcceleratorMap, ActuationPod, InferenceServerConfig, LauncherConfig, Variant, launchers_of,
    on_node, requester_with_uid,
};

impl Planner<'_> {
    /// Makes the next step towards a provider.
    pub(super) fn find_provider(&mut self, requester: &ActuationPod) {
        let name = &requester.metadata.name;
        let node = &requester.node_name;
        let too_long = length_problem("requester", name).or_else(|| length_problem("node", node));
        if let Some(problem) = too_long {
            return self.report(requester, problem, &[]);
        }
        if node.is_empty() {
            return self.hold(
                requester,
                "NotScheduled",
                "the requester is not scheduled".to_owned(),
            );
        }
        let Some(node) = self.world.store::<Node>().get(&Key::cluster(node)) else {
            return self.hold(requester, "NodeGone", format!("node {node} does not exist"));
        };
        if node.metadata.is_terminating() {
            return self.hold(requester, "NodeGone", "the node is being deleted".to_owned());
        }
        if let Err(problem) = requester.admin_port().and_then(|_| requester.proxy_port()) {
            return self.report(requester, problem, &[]);
        }
        if requester.ip.is_empty() {
            return self.hold(requester, "NoAddress", "the requester has no address".to_owned());
        }
        let Some(accelerators) = self.accelerators(requester) else { return };
        if node.spec.unschedulable {
            let message =
                format!("node {} is cordoned; the requester is deleted", node.metadata.name);
            let event = notice(requester, "NodeCordoned", message);
            return self.plan.steps.push(Step::new(delete(requester)).on_success(event));
        }
        match requester.variant() {
            Some(Variant::Direct(_)) => self.find_direct(requester, &accelerators),
            Some(Variant::Launcher(config)) => {
                self.find_launcher(requester, config, &accelerators);
            }
            None => {}
        }
    }

    fn find_direct(&mut self, requester: &ActuationPod, uuids: &[String]) {
        let key = requester.metadata.key().in_same_namespace(GPU_MAP);
        let map = self.world.store::<AcceleratorMap>().get(&key);
        let on_its_node = map.as_ref().and_then(|it| it.indices.get(&requester.node_name));
        let index = |uuid: &String| on_its_node.and_then(|it| it.get(uuid)).copied();
        let Some(indices) = uuids.iter().map(index).collect::<Option<Vec<u32>>>() else {
            let text = format!(
                "ConfigMap {GPU_MAP} does not have the accelerators {} on node {}; add them",
                uuids.join(", "),
                requester.node_name
            );
            return self.report(requester, text, uuids);
        };
        let nominal = match nominal_pod(requester, IndexedAccelerators { uuids, indices: &indices })
        {
            Ok(nominal) => nominal,
            Err(text) => return self.report(requester, text, uuids),
        };
        let mut providers =
            self.world.store::<ActuationPod>().by_index(&on_node(&requester.node_name));
        providers.retain(|it| {
            it.metadata.namespace == requester.metadata.namespace
                && it.annotation(NOMINAL_ANNOTATION) == Some(&nominal.hash)
                && !it.metadata.is_terminating()
                && !it.is_terminal()
        });
        providers.sort_by_key(|it| (it.binding().is_some(), it.metadata.key()));
        match providers.first() {
            Some(provider) if provider.binding().is_none() => {
                let record = ActuationRecord::new(ActuationPath::Hot, "");
                return self.bind(requester, provider, uuids, None, "hot", record);
            }
            Some(provider) => {
                let name = &provider.metadata.name;
                let message = format!("waits until provider {name} is unbound");
                return self.hold(requester, "AwaitingUnbinding", message);
            }
            None => {}
        }
        let node = &requester.node_name;
        let claim = Claim { node, accelerators: uuids, provider: None, instance: None };
        if let Some(blocker) = blocker(self.world, claim) {
            return self.hold_blocked(requester, &blocker);
        }
        if self.enforce_sleeper_limit(requester, &indices) {
            let message = "deletes sleeping providers beyond the limit first".to_owned();
            return self.hold(requester, "AwaitingDeletion", message);
        }
        self.create_direct(requester, &nominal, uuids);
    }

    fn find_launcher(&mut self, requester: &ActuationPod, name: &str, uuids: &[String]) {
        let key = requester.metadata.key();
        let configs = self.world.store::<InferenceServerConfig>();
        let Some(config) = configs.get(&key.in_same_namespace(name)) else {
            let text = format!("InferenceServerConfig {name} does not exist; create it");
            return self.report(requester, text, uuids);
        };
        let server = &config.spec.model_server_config;
        let instance = match DesiredInstance::new(name, server, uuids) {
            Ok(instance) => instance,
            Err(text) => return self.report(requester, text, uuids),
        };
        let subject = EngineFailures::subject(&instance.config);
        if let Some(failure) = self.recorded_failure(requester, &subject) {
            let due = failure.retry_at();
            if self.now < due {
                self.plan.requeue_at(due, self.now);
                let EngineFailure { count, reason, .. } = failure;
                let text = format!(
                    "the engine of InferenceServerConfig {name} failed {count} times in a row on \
                     these accelerators; it is started again at {due}. The last time: {reason}"
                );
                return self.report(requester, text, uuids);
            }
        }
        let launcher_config = &config.spec.launcher_config_name;
        let launchers = self.world.store::<LauncherConfig>();
        let Some(launcher) = launchers.get(&key.in_same_namespace(launcher_config)) else {
            let text = format!("LauncherConfig {launcher_config} does not exist; create it");
            return self.report(requester, text, uuids);
        };
        let template = match launcher_template(&launcher, &self.settings.notifier_command) {
            Ok(template) => template,
            Err(text) => {
                let text = format!("LauncherConfig {launcher_config}: {text}");
                return self.report(requester, text, uuids);
            }
        };
        let body = template.pod("", &requester.node_name);
        let problems = routing_problems(&instance, &body);
        if !problems.is_empty() {
            let text = format!("InferenceServerConfig {name}: {}", problems.join("; "));
            return self.report(requester, text, uuids);
        }
        let hash = template.hash_on(&requester.node_name);
        let index = launchers_of(key.namespace(), launcher_config, &requester.node_name);
        let mut pods = self.world.store::<ActuationPod>().by_index(&index);
        let all = pods.len();
        pods.retain(|it| it.annotation(LAUNCHER_HASH_ANNOTATION) == Some(&hash));
        let stale = all - pods.len();
        pods.sort_by_key(|it| it.metadata.key());
        let facts = self.world.facts::<LauncherState>();
        let states: Vec<_> =
            pods.iter().map(|it| facts.observed(&Endpoint::launcher(it))).collect();
        let candidates: Vec<Candidate<'_>> = pods
            .iter()
            .zip(&states)
            .map(|(launcher, state)| Candidate {
                launcher,
                state: state.as_deref().map(|it| &it.value),
                is_unbinding: self.is_unbinding(launcher),
            })
            .collect();
        let wanted = Wanted {
            id: &instance.id,
            port: instance.port,
            max_instances: usize::try_from(launcher.spec.max_instances).unwrap_or(1),
            config: name,
            accelerators: uuids,
        };
        let shortfalls = || shortfalls(&candidates, wanted, stale);
        match select(&candidates, wanted) {
            Selection::Bind(launcher, path, instances_deleted) => {
                let meta = &launcher.metadata;
                let problems = instance.routing.problems(&meta.labels, &meta.annotations);
                if !problems.is_empty() {
                    let text = format!("InferenceServerConfig {name}: {}", problems.join("; "));
                    return self.report(requester, text, uuids);
                }
                let record = match path {
                    Path::Hot => ActuationRecord::new(ActuationPath::Hot, ""),
                    Path::Warm | Path::Reclaim => ActuationRecord {
                        instances_deleted,
                        ..ActuationRecord::new(ActuationPath::Warm, &shortfalls())
                    },
                };
                let path = format!("{path:?}").to_lowercase();
                self.bind(requester, launcher, uuids, Some(&instance), &path, record);
            }
            Selection::AwaitUnbinding(launcher) => {
                let message = format!("waits until launcher {} is unbound", launcher.metadata.name);
                self.hold(requester, "AwaitingUnbinding", message);
            }
            Selection::AwaitReady(launcher) => {
                let message = format!("waits until launcher {} is ready", launcher.metadata.name);
                self.hold(requester, "AwaitingLauncher", message);
            }
            Selection::Create => {
                let record = ActuationRecord::new(ActuationPath::Cold, &shortfalls());
                self.create_launcher(requester, &template, &instance, uuids, record);
            }
        }
    }

    /// Whether the binding of a provider ends.
    fn is_unbinding(&self, provider: &ActuationPod) -> bool {
        let Some(binding) = provider.binding() else { return false };
        let pods = self.world.store::<ActuationPod>();
        let requester = pods.by_index(&requester_with_uid(&binding.uid)).into_iter().next();
        provider.unbinding_since().is_some() || requester.is_none_or(|it| !is_alive(&it))
    }

    /// Reports a problem that the user must solve.
    pub(super) fn report(
        &mut self,
        requester: &ActuationPod,
        text: String,
        accelerators: &[String],
    ) {
        self.hold(requester, "UserProblem", text.clone());
        let write = problem(requester, &[text], accelerators);
        self.plan.steps.extend(write.map(Step::new));
    }
}

/// What is wrong with the routing metadata of an instance for a new launcher.
fn routing_problems(instance: &DesiredInstance, body: &serde_json::Value) -> Vec<String> {
    let map = |name: &str| {
        let fields = body["metadata"][name].as_object().into_iter().flatten();
        fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    instance.routing.problems(&map("labels"), &map("annotations"))
}
