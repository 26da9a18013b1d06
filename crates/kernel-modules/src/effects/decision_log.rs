//! Logs what is decided about kernels and nodes, for `--v=1`.
//!
//! Plans are pure and log nothing. This observer follows what changes and evaluates the same pure
//! functions again, only while such lines are shown, so that they cost nothing otherwise. The lines
//! name objects, kernels and images, and never what Secrets, Dockerfiles or build arguments hold.

use std::collections::BTreeMap;

use gantry_kmod::KernelRelease;
use gantry_reconcile::{Change, FactChange, FactKind, Key, Kind, Observer, World};
use tracing::Level;

use crate::facts::ImageState;
use crate::kernel_plan::KernelPlan;
use crate::labels::{IMAGE_ANNOTATION, JOB_TYPE_LABEL, KERNEL_ANNOTATION, ModulePart, NodeLabel};
use crate::selected_nodes::{affected_modules, is_relevant};
use crate::settings::LiveSettings;
use crate::view::{Job, JobState, Module, ModulePod, Node};

/// The value of the key `controller` of these lines.
const CONTROLLER: &str = crate::ModuleController::NAME;

/// Logs decisions about kernels and nodes.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    settings: LiveSettings,
}

impl DecisionLog {
    /// Logs decisions that are made with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings }
    }

    /// Whether lines of this depth are shown now; that may change while the process runs.
    fn is_shown() -> bool {
        tracing::enabled!(Level::DEBUG)
    }

    /// What a Module means for the kernel of a node.
    fn log_node(&self, node: &Node, module: &Module) {
        let (key, kernel) = (module.metadata.key(), &node.status.node_info.kernel_version);
        let node = &node.metadata.name;
        let module_name = key.to_string();
        let (module_name, controller) = (module_name.as_str(), CONTROLLER);
        let Ok(spec) = &module.spec else {
            tracing::debug!(
                controller,
                module = module_name,
                node,
                kernel,
                "Module is invalid, the node is left as it is"
            );
            return;
        };
        if spec.driver_container.is_none() {
            let what = "node gets the device plugin, the Module has no driver";
            tracing::debug!(controller, module = module_name, node, kernel, "{what}");
            return;
        }
        let release = match kernel.parse::<KernelRelease>() {
            Ok(release) => release,
            Err(error) => {
                let error = error.to_string();
                let what = "kernel cannot be read, the node gets no driver";
                tracing::debug!(controller, module = module_name, node, kernel, error, "{what}");
                return;
            }
        };
        match KernelPlan::of(&key, spec, &release) {
            Ok(Some(plan)) => {
                let plan = plan.limited_to(self.settings.get().stages);
                let (image, mapping) = (plan.final_image(), plan.mapping);
                let (build, sign) = (plan.build.is_some(), plan.sign.is_some());
                tracing::debug!(
                    controller,
                    module = module_name,
                    node,
                    kernel,
                    image,
                    mapping,
                    build,
                    sign,
                    "kernel mapping matches the node"
                );
            }
            Ok(None) => tracing::debug!(
                controller,
                module = module_name,
                node,
                kernel,
                "no kernel mapping matches the node"
            ),
            Err(error) => {
                let (reason, error) = (error.reason(), error.to_string());
                let what = "kernel mapping cannot be used for the node";
                tracing::debug!(
                    controller,
                    module = module_name,
                    node,
                    kernel,
                    reason,
                    error,
                    "{what}"
                );
            }
        }
    }

    fn node_changed(&self, world: &World, change: &Change) {
        let modules = world.store::<Module>();
        if let Some(node) = change.after::<Node>() {
            log_labels(change.before::<Node>(), node);
        }
        if !is_relevant(change) {
            return;
        }
        for key in affected_modules(world, change) {
            let Some(module) = modules.get(&key) else { continue };
            match change.after::<Node>().filter(|it| module.selects(&it.metadata.labels)) {
                Some(node) => self.log_node(node, &module),
                None => {
                    let (module, node) = (key.to_string(), change.key.name());
                    let (module, controller) = (module.as_str(), CONTROLLER);
                    tracing::debug!(controller, module, node, "node is not selected any more");
                }
            }
        }
    }

    fn module_changed(&self, world: &World, change: &Change) {
        let spec = |it: Option<&Module>| it.map(|it| it.spec.clone());
        let Some(module) = change.after::<Module>() else { return };
        if spec(change.before()) == spec(Some(module)) {
            return;
        }
        // The name of one node for each kernel: what is decided is the same for all of them.
        let mut of_kernels: BTreeMap<String, _> = BTreeMap::new();
        for node in world.store::<Node>().list() {
            if module.selects(&node.metadata.labels) {
                of_kernels.entry(node.status.node_info.kernel_version.clone()).or_insert(node);
            }
        }
        of_kernels.values().for_each(|node| self.log_node(node, module));
    }
}

/// The labels that say on which nodes a Module is loaded.
fn log_labels(before: Option<&Node>, after: &Node) {
    let has = |node: Option<&Node>, key: &str| {
        node.is_some_and(|it| it.metadata.labels.contains_key(key))
    };
    let log = |label: &NodeLabel, key: &str, what: &'static str| {
        let (module, node) = (label.module_key().to_string(), after.metadata.name.as_str());
        let (module, controller) = (module.as_str(), crate::NodeLabelController::NAME);
        let kernel = after.status.node_info.kernel_version.as_str();
        tracing::debug!(controller, module, node, kernel, label = key, "{what}");
    };
    for key in after.metadata.labels.keys().filter(|it| !has(before, it)) {
        if let Some(label) = NodeLabel::parse(key) {
            log(&label, key, "label was added to the node");
        }
    }
    for key in before.into_iter().flat_map(|it| it.metadata.labels.keys()) {
        if let Some(label) = NodeLabel::parse(key).filter(|_| !has(Some(after), key)) {
            log(&label, key, "label was removed from the node");
        }
    }
}

fn log_job(change: &Change) {
    let state = |it: Option<&Job>| {
        let it = it.filter(|it| it.metadata.labels.contains_key(JOB_TYPE_LABEL));
        it.map(|it| it.state())
    };
    let (before, after) = (state(change.before()), state(change.after()));
    if before == after {
        return;
    }
    let Some(shown) = change.after::<Job>().or_else(|| change.before::<Job>()) else { return };
    let what = match after {
        None => "Job was deleted",
        Some(JobState::Active) => "Job runs",
        Some(JobState::Succeeded { .. }) => "Job succeeded",
        Some(JobState::Failed { .. }) => "Job failed",
    };
    let annotation = |name: &str| shown.metadata.annotations.get(name).map(String::as_str);
    let owner = shown.metadata.controller().map(|it| it.name.clone()).unwrap_or_default();
    let module = Key::new(change.key.namespace(), &owner).to_string();
    let (job, controller) = (change.key.name(), CONTROLLER);
    tracing::debug!(
        controller,
        module,
        job,
        kernel = annotation(KERNEL_ANNOTATION),
        image = annotation(IMAGE_ANNOTATION),
        "{what}"
    );
}

fn log_pod(change: &Change) {
    let is_ready = |it: Option<&ModulePod>| it.is_some_and(ModulePod::is_ready);
    let (before, after) = (is_ready(change.before()), is_ready(change.after()));
    let pod = change.after::<ModulePod>().or_else(|| change.before::<ModulePod>());
    let Some((pod, part)) = pod.and_then(|it| Some((it, it.part()?))) else { return };
    if before == after {
        return;
    }
    let what = match (part, after) {
        (ModulePart::DriverContainer, true) => "driver container is ready",
        (ModulePart::DriverContainer, false) => "driver container is not ready any more",
        (ModulePart::DevicePlugin, true) => "device plugin is ready",
        (ModulePart::DevicePlugin, false) => "device plugin is not ready any more",
    };
    let module = pod.module().map(|it| it.to_string());
    let (node, pod) = (pod.spec.node_name.as_str(), change.key.name());
    let controller = crate::NodeLabelController::NAME;
    tracing::debug!(controller, module, node, pod, "{what}");
}

impl Observer for DecisionLog {
    fn name(&self) -> &'static str {
        "module-decisions"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Module>(), Kind::of::<Node>(), Kind::of::<Job>(), Kind::of::<ModulePod>()]
    }

    fn observe(&self, world: &World, change: &Change) {
        if !Self::is_shown() {
            return;
        }
        if change.is::<Node>() {
            self.node_changed(world, change);
        } else if change.is::<Module>() {
            self.module_changed(world, change);
        } else if change.is::<Job>() {
            log_job(change);
        } else if change.is::<ModulePod>() {
            log_pod(change);
        }
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<ImageState>()]
    }

    fn observe_fact(&self, _: &World, change: &FactChange) {
        let Some(change) = change.of::<ImageState>() else { return };
        let Some(state) = change.after.filter(|_| Self::is_shown()) else { return };
        let what = match (&state.failure, state.value()) {
            (Some(_), _) => "registry did not answer",
            (None, Some(ImageState::Present { .. })) => "registry has the image",
            (None, Some(ImageState::Missing)) => "registry lacks the image",
            (None, Some(ImageState::MissingArchitecture(_))) => {
                "registry lacks the image for an architecture"
            }
            (None, Some(ImageState::SecretMissing(_))) => "registry was not asked: no Secret",
            (None, Some(ImageState::CaBundleMissing(_))) => {
                "registry was not asked: no ConfigMap with certificates"
            }
            (None, None) => return,
        };
        let (controller, namespace) = (CONTROLLER, change.subject.namespace.as_str());
        let error = state.failure.as_ref().map(|it| it.message.as_str());
        tracing::debug!(controller, namespace, image = change.subject.image, error, "{what}");
    }
}

#[cfg(test)]
mod tests;
