//! LauncherConfig: what a launcher pod looks like.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObservedStatus;
use crate::finding::Findings;
use crate::kind::Trust;
use crate::node::Path;
use crate::object::object;

/// Name of the container that runs the engine or the launcher, in requesting and providing pods.
pub const INFERENCE_SERVER: &str = "inference-server";

object! {
    /// LauncherConfig describes launcher pods: processes that have loaded the engine's code and
    /// start engines as children.
    pub struct LauncherConfig {
        /// The pod and how many engines it may hold.
        pub spec: LauncherConfigSpec,
        /// What the controllers have to say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ObservedStatus>,
    }
    group: "fma.llm-d.ai",
    version: "v1alpha1",
    plural: "launcherconfigs",
    scope: Namespaced,
    short_names: &["lcfg"],
    status: true,
    trust: Trust::Tenant,
}

/// The pod and how many engines it may hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LauncherConfigSpec {
    /// Most engines in one launcher at a time, awake or asleep.
    #[schemars(range(min = 1))]
    pub max_instances: i32,
    /// The launcher pod. Its container `inference-server` runs the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// A pod to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplate {
    /// Labels and annotations of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PodTemplateMetadata>,
    /// What the pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::kubernetes::pod_spec")]
    pub spec: Option<PodSpec>,
}

/// The part of a pod's metadata that a template may set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplateMetadata {
    /// Labels of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl LauncherConfig {
    /// Checks what the schema does not. The server admits all of it, so these are warnings: the
    /// controller will report the configuration as malformed.
    pub fn validate(&self, findings: &mut Findings) {
        let template = self.spec.pod_template.as_ref();
        let containers = template.and_then(|t| t.spec.as_ref()).map_or(&[][..], |s| &s.containers);
        if !containers.iter().any(|container| container.name == INFERENCE_SERVER) {
            findings.warn(
                &Path::of("spec.podTemplate.spec.containers"),
                format!("no container is named \"{INFERENCE_SERVER}\"; launchers cannot be made from this"),
            );
        }
    }
}
