//! LauncherConfig: the template of launcher pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::ObservedStatus;
use crate::finding::Findings;
use crate::kind::Trust;
use crate::object::object;
use gantry_yaml::node::Path;

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
    #[schemars(schema_with = "launcher_pod_spec")]
    pub spec: Option<PodSpec>,
}

/// Returns the schema of a launcher's pod, equal to the one in the CRD that others publish for this
/// version: one CRD is shared by all installations in a cluster, and objects must mean the same
/// whichever installation created it. Generators of CRDs from Go types mark inlined references as
/// atomic, leave out two defaults of a server, and prune the metadata of a volume claim.
fn launcher_pod_spec(_: &mut SchemaGenerator) -> schemars::Schema {
    const ATOMIC: [&str; 9] = [
        "/properties/containers/items/properties/envFrom/items/properties/configMapRef",
        "/properties/containers/items/properties/envFrom/items/properties/secretRef",
        "/properties/initContainers/items/properties/envFrom/items/properties/configMapRef",
        "/properties/initContainers/items/properties/envFrom/items/properties/secretRef",
        "/properties/ephemeralContainers/items/properties/envFrom/items/properties/configMapRef",
        "/properties/ephemeralContainers/items/properties/envFrom/items/properties/secretRef",
        "/properties/volumes/items/properties/configMap",
        "/properties/volumes/items/properties/projected/properties/sources/items/properties/configMap",
        "/properties/volumes/items/properties/projected/properties/sources/items/properties/secret",
    ];
    const WITHOUT_DEFAULT: [&str; 2] = [
        "/properties/volumes/items/properties/azureDisk/properties/kind",
        "/properties/volumes/items/properties/azureDisk/properties/cachingMode",
    ];
    const PRUNED: &str = "/properties/volumes/items/properties/ephemeral/properties/\
                          volumeClaimTemplate/properties/metadata";
    let mut schema = crate::kubernetes::schema("PodSpec");
    let mut at = |path: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        let field = schema.pointer_mut(path).and_then(Value::as_object_mut);
        change(field.expect("the dump has every field of a pod"));
    };
    for path in ATOMIC {
        at(path, &|field| {
            field.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        });
    }
    for path in WITHOUT_DEFAULT {
        at(path, &|field| {
            field.shift_remove("default");
        });
    }
    at(PRUNED, &|field| field.retain(|name, _| matches!(name.as_str(), "description" | "type")));
    schemars::Schema::try_from(schema).expect("the schema of a pod is an object")
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
    /// Checks what the schema does not. The server accepts all of it, so these are warnings: the
    /// controller will report the configuration as malformed.
    pub fn validate(&self, findings: &mut Findings) {
        let template = self.spec.pod_template.as_ref();
        let containers = template.and_then(|t| t.spec.as_ref()).map_or(&[][..], |s| &s.containers);
        if !containers.iter().any(|container| container.name == INFERENCE_SERVER) {
            findings.warn(
                &Path::of("spec.podTemplate.spec.containers"),
                format!(
                    "no container is named \"{INFERENCE_SERVER}\"; launchers cannot be made from \
                     this"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twelve places in which the CRD once differed from the one that others publish.
    #[test]
    fn the_definition_is_the_one_that_others_publish() {
        let kind = crate::object::find("fma.llm-d.ai/v1alpha1", "LauncherConfig").unwrap();
        let definition = serde_json::to_value(kind.crd()).unwrap();
        let pod = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/podTemplate/\
                   properties/spec/properties";
        let pod = definition.pointer(pod).unwrap();
        let mut atomic = Vec::new();
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let from = &pod[list]["items"]["properties"]["envFrom"]["items"]["properties"];
            atomic.extend([&from["configMapRef"], &from["secretRef"]]);
        }
        let volume = &pod["volumes"]["items"]["properties"];
        let source = &volume["projected"]["properties"]["sources"]["items"]["properties"];
        atomic.extend([&volume["configMap"], &source["configMap"], &source["secret"]]);
        for field in atomic {
            assert_eq!(field["type"], "object");
            assert_eq!(field["x-kubernetes-map-type"], "atomic");
        }
        assert_eq!(volume["secret"].get("x-kubernetes-map-type"), None, "it is a type of its own");
        let disk = &volume["azureDisk"]["properties"];
        for field in ["kind", "cachingMode"] {
            assert_eq!(
                (&disk[field]["type"], disk[field].get("default")),
                (&json!("string"), None)
            );
        }
        assert_eq!(disk["fsType"]["default"], "ext4", "other defaults stay");
        let claim = &volume["ephemeral"]["properties"]["volumeClaimTemplate"]["properties"];
        assert_eq!(claim["metadata"]["type"], "object");
        assert_eq!(claim["metadata"].get("properties"), None);
    }
}
