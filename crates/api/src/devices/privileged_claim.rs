//! DevicePrivilegedClaim: access to every device of a driver, to monitor or manage it.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::ALLOCATION_ALIASES;
use super::status::snapshots;
use super::term::check_tolerations;
use super::{
    Consumer, DeviceAllocation, TermConfig, Toleration, check_config, check_constraints,
    check_driver, normalise, serve,
};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::kubernetes;
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// DevicePrivilegedClaim gives a pod every device of a driver on its node, even if others hold
    /// them, to monitor or to manage them. The namespace needs the label
    /// `devmgmtproto.k8s.io/admin-access: "true"`.
    pub struct DevicePrivilegedClaim {
        /// Which devices.
        pub spec: PrivilegedClaimSpec,
        /// What was allocated. Written by the scheduler.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<PrivilegedClaimStatus>,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "deviceprivilegedclaims",
    scope: Namespaced,
    short_names: &["dpriv"],
    status: true,
    columns: &[
        Column::new("Driver", "string", ".spec.driver"),
        Column::new("Node", "string", ".status.nodeName"),
        Column::wide("Pods", "string", ".status.podNames"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    any_case: true,
    aliases: &ALLOCATION_ALIASES,
    serve: |schema| serve::privileged_spec(serve::schema_of(schema, "spec")),
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            normalise::privileged_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// Which devices of a driver are wanted: all that satisfy the constraints, at least one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrivilegedClaimSpec {
    /// Name of the driver.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// CEL expression over `device` that a device must satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10_240))]
    pub constraints: Option<String>,
    /// Objects in the claim's namespace that configure the devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub configs: Vec<TermConfig>,
    /// Device taints that are put up with. Taints count even here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
}

/// What a privileged claim got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrivilegedClaimStatus {
    /// The devices. They are not held: others may use them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<DeviceAllocation>,
    /// The node the devices are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that reach the devices, when none of them is bound to a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// What the objects named by `configs` said when the claim was allocated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "snapshots")]
    pub claim_configs: Vec<Value>,
    /// The pods that may use the devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"])
    )]
    pub reserved_for: Vec<Consumer>,
    /// Names of the pods in `reservedFor`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_names: Vec<String>,
    /// Whether the claim is allocated, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

impl DevicePrivilegedClaim {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        self.spec.validate(&Path::of("spec"), findings);
    }
}

impl PrivilegedClaimSpec {
    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        check_driver(&self.driver, &path.key("driver"), findings);
        check_constraints(self.constraints.as_deref(), path, findings);
        check_tolerations(&self.tolerations, &path.key("tolerations"), findings);
        for (index, config) in self.configs.iter().enumerate() {
            let path = path.key("configs").index(index);
            check_config(config.reference(), &path, findings);
        }
    }
}
