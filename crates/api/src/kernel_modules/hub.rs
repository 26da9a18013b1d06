//! ManagedClusterModule: a Module that a hub prepares and distributes to its spokes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::module::ModuleSpec;
use super::{normalise, serve, validate};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::meta::dns_label_problem;
use crate::object::object;
use gantry_yaml::node::{Node, Path};

object! {
    /// ManagedClusterModule asks a hub to build and sign the images of a Module and to create it on
    /// the spokes, without the parts about building and signing.
    pub struct ManagedClusterModule {
        /// The Module, and which spokes get it.
        pub spec: ManagedClusterModuleSpec,
        /// How many spokes there are and how many have it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ManagedClusterModuleStatus>,
    }
    group: "hub.ooto.sigs.k8s.io",
    version: "v1alpha1",
    plural: "managedclustermodules",
    scope: Cluster,
    status: true,
    columns: &[
        Column::new("Spoke-Namespace", "string", ".spec.spokeNamespace"),
        Column::new("Desired", "integer", ".status.numberDesired"),
        Column::new("Applied", "integer", ".status.numberApplied"),
        Column::new("Degraded", "integer", ".status.numberDegraded"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    aliases: &normalise::HUB_ALIASES,
    serve: |schema: &mut Value| {
        let spec = &mut schema["properties"]["spec"];
        serve::accept_any_label_values(spec, "selector");
        serve::module_spec(&mut spec["properties"]["moduleSpec"]);
    },
    normalise: |object: &mut Node, findings: &mut Findings| {
        let path = Path::of("spec");
        let Some(spec) = object.get_mut("spec") else { return };
        normalise::labels(spec, "selector", &path, findings);
        if let Some(module) = spec.get_mut("moduleSpec") {
            normalise::module_spec(module, &path.key("moduleSpec"), findings);
        }
    },
}

/// The Module, and which spokes get it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterModuleSpec {
    /// The specification of the Module. Builds and signatures are made on the hub, with Secrets and
    /// ConfigMaps of the operator's namespace there.
    pub module_spec: ModuleSpec,
    /// The namespace of the Module on the spokes.
    pub spoke_namespace: String,
    /// Labels that a ManagedCluster must have, all of them. An empty map selects every one.
    pub selector: BTreeMap<String, String>,
}

/// How many spokes there are and how many have the Module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterModuleStatus {
    /// How many clusters should have the Module.
    #[serde(default)]
    pub number_desired: i32,
    /// How many of them have it.
    #[serde(default)]
    pub number_applied: i32,
    /// How many of them report trouble with it.
    #[serde(default)]
    pub number_degraded: i32,
}

impl ManagedClusterModule {
    /// Checks the rules that the schema cannot state (W-28).
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        let namespace = &self.spec.spoke_namespace;
        if let Some(problem) = dns_label_problem(namespace) {
            findings.error(
                &path.key("spokeNamespace"),
                format!("Invalid value: \"{namespace}\": {problem}"),
            );
        }
        validate::check_labels(&self.spec.selector, &path.key("selector"), findings);
        // The Module on the spoke has the name of this object.
        validate::check_names(&self.metadata, namespace, findings);
        self.spec.module_spec.validate(&path.key("moduleSpec"), findings);
    }
}
