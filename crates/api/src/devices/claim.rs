//! DeviceClaim: devices that pods of a namespace want.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::term::{RequiredSelection, check_terms};
use super::{ClaimStatus, Term, normalise, serve};
use crate::alias::{Alias, AliasNotice};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// DeviceClaim asks for devices. Pods refer to it by name; the scheduler picks a node that has
    /// the devices and records which ones they are. Pods that refer to the same claim share them.
    pub struct DeviceClaim {
        /// What is asked for. It cannot change while devices are allocated.
        pub spec: ClaimSpec,
        /// What was allocated. Written by the scheduler and by drivers.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ClaimStatus>,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "deviceclaims",
    scope: Namespaced,
    short_names: &["dclaim"],
    status: true,
    columns: &[
        Column::new("Allocated", "string", ".status.conditions[?(@.type==\"Allocated\")].status"),
        Column::new("Node", "string", ".status.nodeName"),
        Column::wide("Pods", "string", ".status.podNames"),
        Column::AGE,
    ],
    trust: Trust::Tenant,
    any_case: true,
    aliases: &ALLOCATION_ALIASES,
    serve: serve_claim,
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            normalise::claim_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// What a claim asks for: one or more entries that are satisfied together, on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpec {
    /// Attributes that must be equal on all devices of the claim, whichever entry they serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub match_attributes: Vec<String>,
    /// Attributes that must differ between any two devices of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub distinct_attributes: Vec<String>,
    /// The entries of the claim.
    #[schemars(length(min = 1, max = 32))]
    pub claims: Vec<Term>,
}

/// Allocations of count-only pools were written with `count` for a few days.
pub(super) const ALLOCATION_ALIASES: [Alias; 1] = [Alias {
    within: "status.allocations[]",
    old: "count",
    new: "deviceCount",
    notice: AliasNotice::Silent,
}];

fn serve_claim(schema: &mut Value) {
    serve::claim_spec(serve::schema_of(schema, "spec"));
    serve::rule(
        schema,
        "!has(oldSelf.status) || !has(oldSelf.status.allocations) || \
         size(oldSelf.status.allocations) == 0 || self.spec == oldSelf.spec",
        "the spec cannot change while devices are allocated; delete the pods that use the claim \
         first",
    );
}

impl DeviceClaim {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        self.spec.validate(&Path::of("spec"), findings);
    }
}

impl ClaimSpec {
    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        check_terms(&self.claims, &path.key("claims"), RequiredSelection::ClassOrType, findings);
    }
}
