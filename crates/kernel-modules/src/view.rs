//! Views of the objects that controllers of kernel modules read.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::decode;
use gantry_api::kernel_modules::{ModuleSpec, ModuleStatus};
use gantry_api::object::Object;
pub use gantry_pods::view::{Namespace, Node};
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Key, Meta, Resource, View};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::driver_failure::failed_container;
use crate::labels::{IMAGE_HASH_LABEL, JOB_TYPE_LABEL, MODULE_LABEL, ModulePart, ROLE_LABEL};

/// A Module, in its canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state, or what is wrong with it.
    pub spec: Result<Arc<ModuleSpec>, Vec<String>>,
    /// The observed state.
    pub status: ModuleStatus,
}

/// The fields of a stored Module that are read as they are.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredModule {
    metadata: Meta,
    status: ModuleStatus,
}

impl<'de> Deserialize<'de> for Module {
    /// Reads a stored Module. A Module that breaks a rule is read as well, with what is wrong: it
    /// must be reported, and nothing of it may be deleted.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        if let Some(object) = value.as_object_mut() {
            // Items of a list need not have them.
            object.entry("apiVersion").or_insert_with(|| Self::RESOURCE.api_version().into());
            object.entry("kind").or_insert_with(|| Self::RESOURCE.kind.as_ref().into());
        }
        let spec = match decode::object(&value) {
            Ok((Object::Module(module), _)) => Ok(Arc::new(module.spec)),
            Ok(_) => Err(vec!["kind: not a Module".to_owned()]),
            Err(findings) => {
                Err(findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text)).collect())
            }
        };
        let StoredModule { metadata, status } =
            StoredModule::deserialize(value).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata, spec, status })
    }
}

impl View for Module {
    const RESOURCE: Resource =
        Resource::namespaced("ooto.sigs.k8s.io", "v1alpha1", "modules", "Module");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Module {
    /// Whether the Module selects a node with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let Ok(spec) = &self.spec else { return false };
        spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The version of its driver; empty without ordered upgrades.
    #[must_use]
    pub fn version(&self) -> &str {
        let driver = self.spec.as_ref().ok().and_then(|spec| spec.driver_container.as_ref());
        driver.map_or("", |driver| driver.container.version.as_str())
    }
}

/// A DaemonSet of a Module.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: DaemonSetSpec,
    /// The observed state.
    pub status: DaemonSetStatus,
}

/// The fields of a DaemonSet's spec that would matter if somebody changed them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    /// The template of its pods.
    pub template: PodTemplate,
}

/// The template of a DaemonSet's pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// The desired state of the pods.
    pub spec: TemplateSpec,
}

/// The spec of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateSpec {
    /// The labels of nodes that pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// The containers.
    pub containers: Vec<TemplateContainer>,
}

/// A container of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateContainer {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
}

/// The status of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// How many nodes should run it.
    pub desired_number_scheduled: i32,
    /// How many nodes run it and are ready.
    pub number_ready: i32,
    /// How many nodes run it and have been ready for long enough.
    pub number_available: i32,
    /// The generation that the numbers are about.
    pub observed_generation: i64,
}

impl View for DaemonSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl DaemonSet {
    /// The part of the Module that it runs.
    #[must_use]
    pub fn part(&self) -> Option<ModulePart> {
        self.metadata.labels.get(ROLE_LABEL).and_then(|role| ModulePart::parse(role))
    }
}

/// A Job that builds or signs an image.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// The observed state.
    pub status: JobStatus,
}

/// The status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// How many pods succeeded.
    pub succeeded: i32,
    /// How many pods failed.
    pub failed: i32,
    /// When it was completed.
    pub completion_time: Option<Timestamp>,
    /// Its conditions.
    pub conditions: Vec<JobCondition>,
}

/// A condition of a Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is true.
    pub status: String,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// When it changed last.
    pub last_transition_time: Option<Timestamp>,
}

impl View for Job {
    const RESOURCE: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let owner = self.metadata.controller().map(|owner| IndexValue::owner(&owner.uid));
        let image = self.metadata.labels.get(IMAGE_HASH_LABEL).map(|it| Self::image_index(it));
        owner.into_iter().chain(image).collect()
    }
}

impl Job {
    /// The index value of Jobs that push the image with this hash.
    #[must_use]
    pub fn image_index(hash: &str) -> IndexValue {
        IndexValue { index: "image", value: hash.to_owned() }
    }

    /// Whether it builds or signs, and has not finished.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.metadata.labels.contains_key(JOB_TYPE_LABEL) && self.state() == JobState::Active
    }

    /// How the Job stands.
    #[must_use]
    pub fn state(&self) -> JobState {
        let holds = |kind: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.find(|it| it.kind == kind && it.status == "True")
        };
        if let Some(failed) = holds("Failed") {
            return JobState::Failed { message: failed.message.clone() };
        }
        match (holds("Complete"), self.status.succeeded, self.status.failed) {
            (Some(complete), ..) => JobState::Succeeded {
                at: self.status.completion_time.or(complete.last_transition_time),
            },
            (None, 1.., _) => JobState::Succeeded { at: self.status.completion_time },
            (None, _, 1..) => JobState::Failed { message: String::new() },
            (None, ..) => JobState::Active,
        }
    }
}

/// How a Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It runs, or is to run.
    Active,
    /// It succeeded.
    Succeeded {
        /// When.
        at: Option<Timestamp>,
    },
    /// It failed.
    Failed {
        /// Why.
        message: String,
    },
}

/// A pod of a Module: what its status says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModulePod {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: ModulePodSpec,
    /// The observed state.
    pub status: ModulePodStatus,
}

/// The spec of a Module's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModulePodSpec {
    /// Its node.
    pub node_name: String,
}

/// The status of a Module's pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModulePodStatus {
    /// Its conditions.
    pub conditions: Vec<JobCondition>,
    /// The containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// The init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// The image that it runs.
    pub image: String,
    /// Its state.
    pub state: ContainerState,
    /// The state before the last restart.
    pub last_state: ContainerState,
    /// How often it was restarted.
    pub restart_count: i32,
}

/// The state of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Why it does not run yet.
    pub waiting: Option<WaitingState>,
    /// How it ended.
    pub terminated: Option<TerminatedState>,
}

/// Why a container does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WaitingState {
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, in words.
    pub message: String,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedState {
    /// Its exit code.
    pub exit_code: i32,
    /// Why, in CamelCase.
    pub reason: String,
    /// Its termination message.
    pub message: String,
}

impl View for ModulePod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let owner = self.metadata.controller().map(|owner| IndexValue::owner(&owner.uid));
        let node = Self::node_index(&self.spec.node_name);
        let module = self.module();
        let failing = module.as_ref().filter(|_| self.is_failing()).map(Self::failing_index);
        let module = module.as_ref().map(Self::module_index);
        owner.into_iter().chain([node]).chain(module).chain(failing).collect()
    }
}

impl ModulePod {
    /// The index value of pods on a node.
    #[must_use]
    pub fn node_index(node: &str) -> IndexValue {
        IndexValue { index: "node", value: node.to_owned() }
    }

    /// The index value of pods of a Module.
    #[must_use]
    pub fn module_index(module: &Key) -> IndexValue {
        IndexValue { index: "module", value: module.to_string() }
    }

    /// The index value of the pods of a Module whose image cannot be pulled or whose driver
    /// container failed. Plans read these and not all pods, so that what a change of one node costs
    /// does not depend on how many nodes there are.
    #[must_use]
    pub fn failing_index(module: &Key) -> IndexValue {
        IndexValue { index: "failing", value: module.to_string() }
    }

    fn is_failing(&self) -> bool {
        self.failed_pull().is_some() || failed_container(self).is_some()
    }

    /// Its Module.
    #[must_use]
    pub fn module(&self) -> Option<Key> {
        let name = self.metadata.labels.get(MODULE_LABEL)?;
        Some(Key::new(&self.metadata.namespace, name))
    }

    /// The part of the Module that it runs; absent for the pods of Jobs.
    #[must_use]
    pub fn part(&self) -> Option<ModulePart> {
        self.metadata.labels.get(ROLE_LABEL).and_then(|role| ModulePart::parse(role))
    }

    /// Whether it is ready and not terminating.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready =
            self.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True");
        ready && !self.metadata.is_terminating()
    }

    /// The image of a container that cannot be pulled, and why.
    #[must_use]
    pub fn failed_pull(&self) -> Option<(&str, &WaitingState)> {
        self.status.container_statuses.iter().find_map(|status| {
            let waiting = status.state.waiting.as_ref()?;
            let pulls = ["ErrImagePull", "ImagePullBackOff"].contains(&waiting.reason.as_str());
            pulls.then_some((status.image.as_str(), waiting))
        })
    }
}

/// A service account of a Module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    /// Metadata.
    pub metadata: Meta,
}

impl View for ServiceAccount {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The ConfigMap with the inline Dockerfile of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DockerfileMap {
    /// Metadata.
    pub metadata: Meta,
}

impl View for DockerfileMap {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl DockerfileMap {
    /// The Module of its Job.
    #[must_use]
    pub fn module(&self) -> Option<Key> {
        let name = self.metadata.labels.get(MODULE_LABEL)?;
        Some(Key::new(&self.metadata.namespace, name))
    }
}
