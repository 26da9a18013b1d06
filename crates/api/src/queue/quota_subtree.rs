//! QuotaSubtree: a node of a quota tree and its children.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::object::object;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

object! {
    /// QuotaSubtree adds children to a node of a quota tree. The label `tree` names the tree;
    /// objects of all namespaces with the same value form one tree, and objects without it are
    /// ignored.
    pub struct QuotaSubtree {
        /// The parent node and its children.
        pub spec: QuotaSubtreeSpec,
        /// What the children use at present.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<QuotaSubtreeStatus>,
    }
    group: "quota.codeflare.dev",
    version: "v1alpha1",
    plural: "quotasubtrees",
    scope: Namespaced,
    columns: &[
        Column::new("Tree", "string", ".metadata.labels.tree"),
        Column::new("Parent", "string", ".spec.parent"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
}

/// The children of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaSubtreeSpec {
    /// Name of the node the children hang below. Absent, empty or `nil` makes the children roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Accepted and ignored: nodes are found by name in all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_namespace: Option<String>,
    /// The nodes below the parent. Names are unique in a tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildQuota>,
}

/// A node and its quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildQuota {
    /// Name of the node; AppWrappers name a leaf in a label whose key is the name of the tree.
    pub name: String,
    /// Accepted and ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Accepted and ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the node may hand out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Quotas>,
}

/// How much a node may hand out, and whether it may borrow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quotas {
    /// Accepted and ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Whether the node is kept from borrowing what its parent has left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard_limit: bool,
    /// Amount per resource. Of cpu, memory and `nvidia.com/gpu`, one that is not listed has quota
    /// 0; other resources count only at nodes that list them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// What is charged to the nodes of the subtree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaSubtreeStatus {
    /// Sum over all children.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub total_allocation: BTreeMap<String, Quantity>,
    /// What each child has handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildAllocation>,
}

/// What one child has handed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildAllocation {
    /// Name of the node.
    pub name: String,
    /// Amount per resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
}

impl QuotaSubtree {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        let children = Path::of("spec.children");
        if self.metadata.labels.as_ref().is_none_or(|labels| !labels.contains_key("tree")) {
            findings.warn(
                &Path::of("metadata.labels"),
                "no label \"tree\": the object is ignored until it names its tree",
            );
        }
        let mut seen = BTreeSet::new();
        for (index, child) in self.spec.children.iter().enumerate() {
            let path = children.index(index);
            if child.name.is_empty() {
                findings.refuse_file(&path.key("name"), "Required value: a node needs a name");
            } else if !seen.insert(&child.name) {
                findings
                    .refuse_file(&path.key("name"), format!("Duplicate value: \"{}\"", child.name));
            }
            for (name, amount) in child.quotas.iter().flat_map(|quotas| &quotas.requests) {
                if amount.is_negative() {
                    findings.refuse_file(
                        &path.join("quotas.requests").key(name),
                        format!("Invalid value: \"{amount}\": a quota cannot be negative"),
                    );
                }
            }
        }
    }
}
