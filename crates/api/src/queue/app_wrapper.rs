//! AppWrapper: everything one job needs, created together or not at all.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app_wrapper_status::AppWrapperStatus;
use super::scheduling_spec::{self, SchedulingSettings, drop_ignored};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::object::object;
use crate::quantity::Quantity;
use gantry_yaml::node::{Node, Path};

object! {
    /// AppWrapper wraps every object of one job. Nothing inside is created until all of it is
    /// believed to fit in the cluster and in the quota; then all of it is.
    pub struct AppWrapper {
        /// The wrapped objects and how they queue.
        pub spec: AppWrapperSpec,
        /// Where the job stands.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<AppWrapperStatus>,
    }
    group: "workload.codeflare.dev",
    version: "v1beta1",
    plural: "appwrappers",
    scope: Namespaced,
    short_names: &["aw"],
    status: true,
    columns: &[
        Column::new("State", "string", ".status.state"),
        Column::new("Queue", "string", ".status.queuejobstate"),
        Column::new("Priority", "integer", ".spec.priority"),
        Column::new("Running", "integer", ".status.running"),
        Column::new("Pending", "integer", ".status.pending"),
        Column::AGE,
    ],
    trust: Trust::Tenant,
    normalise: normalise,
    serve: serve,
}

/// What to run, and how it waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperSpec {
    /// Larger goes first, in the queue and in quota trees.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Priority gained per second of waiting, if the queue is configured for dynamic priority.
    #[serde(rename = "priorityslope", default, skip_serializing_if = "is_flat")]
    pub priority_slope: f64,
    /// Accepted and not acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceTemplate>,
    /// Accepted and not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::kubernetes::label_selector")]
    pub selector: Option<LabelSelector>,
    /// The wrapped objects.
    pub resources: AppWrapperResources,
    /// When the job counts as running, and what happens when it does not get there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_spec: Option<SchedulingSettings>,
}

/// A service specification that is accepted and not acted on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceTemplate {
    /// The specification.
    #[schemars(schema_with = "crate::kubernetes::service_spec")]
    pub spec: ServiceSpec,
}

/// The wrapped objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppWrapperResources {
    /// One entry per wrapped object.
    #[serde(rename = "GenericItems", default, skip_serializing_if = "Vec::is_empty")]
    pub generic_items: Vec<GenericItem>,
}

/// One wrapped object and the pods it will start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenericItem {
    /// The object to create. It must say what it is with `apiVersion` and `kind`.
    #[serde(rename = "generictemplate", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::kubernetes::embedded_object")]
    pub template: Option<Value>,
    /// Ignored: exactly one object is created per item.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Ignored.
    #[serde(rename = "minavailable", skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub allocated: i32,
    /// Ignored: the priority of the AppWrapper counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Ignored: the slope of the AppWrapper counts.
    #[serde(rename = "priorityslope", default, skip_serializing_if = "is_flat")]
    pub priority_slope: f64,
    /// The pods this object will start and what each requests. If given, the demand is not inferred
    /// from the object.
    #[serde(rename = "custompodresources", default, skip_serializing_if = "Vec::is_empty")]
    pub pod_resources: Vec<PodResources>,
    /// Condition types of the created object, separated by commas; any of them means that the item
    /// has finished.
    #[serde(rename = "completionstatus", skip_serializing_if = "Option::is_none")]
    pub completion_status: Option<String>,
}

/// A number of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodResources {
    /// How many pods.
    pub replicas: i64,
    /// What each pod requests.
    pub requests: BTreeMap<String, Quantity>,
    /// What each pod is limited to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

fn normalise(node: &mut Node, findings: &mut Findings) {
    let spec_path = Path::of("spec");
    let Some(spec) = node.get_mut("spec") else { return };
    if let Some(settings) = spec.get_mut("schedulingSpec") {
        let path = spec_path.key("schedulingSpec");
        drop_ignored(settings, &scheduling_spec::IGNORED, &path, findings);
    }
    let Some(resources) = spec.get_mut("resources") else { return };
    let path = spec_path.key("resources");
    drop_ignored(resources, &["Items", "metadata"], &path, findings);
    let path = path.key("GenericItems");
    let items = resources.get_mut("GenericItems").and_then(Node::items_mut);
    for (index, item) in items.into_iter().flatten().enumerate() {
        drop_ignored(item, &["metadata", "replica"], &path.index(index), findings);
    }
}

/// Strict clients reject fields a schema does not have, and manifests of the original have these.
fn serve(schema: &mut Value) {
    let open = json!({
        "type": "object",
        "description": "Deprecated: accepted and ignored.",
        "x-kubernetes-preserve-unknown-fields": true,
    });
    let spec = &mut schema["properties"]["spec"]["properties"];
    scheduling_spec::declare_ignored(&mut spec["schedulingSpec"]);
    let resources = &mut spec["resources"]["properties"];
    resources["Items"] = json!({
        "type": "array",
        "description": "Deprecated: accepted and ignored.",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    });
    resources["metadata"] = open.clone();
    let item = &mut resources["GenericItems"]["items"]["properties"];
    item["metadata"] = open;
    item["replica"] =
        json!({"type": "integer", "description": "Deprecated: accepted and ignored."});
}

impl AppWrapper {
    /// Checks the rules that span several fields. No object that a server stores is rejected:
    /// problems that would occur later give warnings.
    pub fn validate(&self, findings: &mut Findings) {
        let items = Path::of("spec.resources.GenericItems");
        if self.spec.resources.generic_items.is_empty() {
            findings.warn(&items, "nothing is wrapped: the AppWrapper will never have pods");
        }
        for (index, item) in self.spec.resources.generic_items.iter().enumerate() {
            let path = items.index(index);
            if item.template.is_none() {
                findings
                    .warn(&path.key("generictemplate"), "missing: dispatching this item will fail");
            }
            for (place, pods) in item.pod_resources.iter().enumerate() {
                check_pods(pods, &path.key("custompodresources").index(place), findings);
            }
        }
        if let Some(settings) = &self.spec.scheduling_spec {
            settings.validate(&Path::of("spec.schedulingSpec"), findings);
        }
    }
}

fn check_pods(pods: &PodResources, path: &Path, findings: &mut Findings) {
    if pods.replicas < 0 {
        findings.refuse_file(
            &path.key("replicas"),
            format!("Invalid value: {}: cannot be negative", pods.replicas),
        );
    }
    for (name, amounts) in [("requests", &pods.requests), ("limits", &pods.limits)] {
        for (resource, amount) in amounts {
            if amount.is_negative() {
                findings.refuse_file(
                    &path.key(name).key(resource),
                    format!("Invalid value: \"{amount}\": cannot be negative"),
                );
            }
        }
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_flat(slope: &f64) -> bool {
    *slope == 0.0
}
