//! Preflight: checks Modules against a kernel that no node runs yet.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{normalise, serve, validate};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::meta::{dns_label_problem, dns_subdomain_problem};
use crate::object::object;
use gantry_yaml::node::{Node, Path};

object! {
    /// Preflight asks whether the Modules of the cluster are prepared for a kernel that no node
    /// runs yet. Everything is done as if such a node were there, except that nothing runs on
    /// nodes.
    pub struct Preflight {
        /// The kernel, and which Modules are asked about.
        pub spec: PreflightSpec,
        /// The answer, Module by Module.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<PreflightStatus>,
    }
    group: "ooto.sigs.k8s.io",
    version: "v1alpha1",
    plural: "preflights",
    scope: Cluster,
    short_names: &["pf"],
    status: true,
    columns: &[
        Column::new("Kernel", "string", ".spec.kernelVersion"),
        Column::new("Total", "integer", ".status.total"),
        Column::new("Succeeded", "integer", ".status.succeeded"),
        Column::new("Failed", "integer", ".status.failed"),
        Column::new("In-Progress", "integer", ".status.inProgress"),
        Column::wide("Push", "boolean", ".spec.pushBuiltImage"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    serve: serve_preflight,
    normalise: |object: &mut Node, findings: &mut Findings| {
        if let Some(spec) = object.get_mut("spec") {
            normalise::labels(spec, "labels", &Path::of("spec"), findings);
        }
    },
}

/// The kernel, and which Modules are asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightSpec {
    /// The kernel, exactly as a node would report it. It cannot be changed: create one Preflight
    /// per kernel.
    // The kernel limits the length of a release (`__NEW_UTS_LEN`).
    #[schemars(length(max = 64))]
    pub kernel_version: String,
    /// Labels of the imagined node. Modules that would select it are asked about; without labels,
    /// every Module that has a driver container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether images that had to be built or signed are pushed. If not, they are made, verified
    /// and thrown away.
    #[serde(default)]
    pub push_built_image: bool,
    /// Asks about these Modules only; an empty list is no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend(
            "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]
        )
    )]
    pub modules: Vec<ModuleReference>,
    /// Architecture of the imagined node, such as `amd64`. By default the one in the name of the
    /// kernel; if there is none, any that the image has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// A Module of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleReference {
    /// Namespace of the Module.
    pub namespace: String,
    /// Name of the Module.
    pub name: String,
}

/// The answer, Module by Module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightStatus {
    /// Every Module that was asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend(
            "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]
        )
    )]
    pub modules: Vec<ModuleVerification>,
    /// How many Modules were asked about.
    #[serde(default)]
    pub total: i32,
    /// How many of them are prepared.
    #[serde(default)]
    pub succeeded: i32,
    /// How many of them are not.
    #[serde(default)]
    pub failed: i32,
    /// How many of them have not answered yet.
    #[serde(default)]
    pub in_progress: i32,
}

/// How far the verification of one Module has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleVerification {
    /// Namespace of the Module.
    pub namespace: String,
    /// Name of the Module.
    pub name: String,
    /// The step it is at.
    pub verification_stage: VerificationStage,
    /// How the step went.
    pub verification_status: VerificationStatus,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status_reason: String,
    /// The image that a node with this kernel would run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The generation of the Module that was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When step or result changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_transition_time: Option<Time>,
}

/// The steps of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerificationStage {
    /// Looking for the image and into it.
    Image,
    /// Building the image.
    Build,
    /// Signing the modules in the image.
    Sign,
    /// Nothing is left to do.
    Done,
}

/// How a step of a verification went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerificationStatus {
    /// It has not ended.
    InProgress,
    /// The Module is prepared for the kernel.
    Success,
    /// It is not; `statusReason` says why.
    Failure,
}

/// The pattern of kernel versions, for kernels of any vendor.
const KERNEL_VERSION: &str = r"^[0-9]+\.[0-9]+(\.[0-9]+)?([^0-9].*)?$";

fn time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "format": "date-time"})
}

fn serve_preflight(schema: &mut Value) {
    let spec = &mut schema["properties"]["spec"];
    serve::accept_any_label_values(spec, "labels");
    let kernel = &mut spec["properties"]["kernelVersion"];
    kernel["pattern"] = json!(KERNEL_VERSION);
    kernel["x-kubernetes-validations"] =
        json!([{"rule": "self == oldSelf", "message": "immutable"}]);
}

impl Preflight {
    /// Checks the rules that the schema cannot state.
    pub fn validate(&self, findings: &mut Findings) {
        static VERSION: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(KERNEL_VERSION).expect("the pattern is constant"));
        let spec = Path::of("spec");
        let kernel = &self.spec.kernel_version;
        if !VERSION.is_match(kernel) {
            findings
                .error(&spec.key("kernelVersion"), format!("not a kernel version: \"{kernel}\""));
        }
        validate::check_labels(&self.spec.labels, &spec.key("labels"), findings);
        for (index, module) in self.spec.modules.iter().enumerate() {
            let path = spec.key("modules").index(index);
            for (field, text, problem) in [
                ("namespace", &module.namespace, dns_label_problem(&module.namespace)),
                ("name", &module.name, dns_subdomain_problem(&module.name)),
            ] {
                if let Some(problem) = problem {
                    findings
                        .error(&path.key(field), format!("Invalid value: \"{text}\": {problem}"));
                }
            }
        }
    }
}
