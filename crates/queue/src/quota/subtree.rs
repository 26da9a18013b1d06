//! QuotaSubtrees, as far as decisions depend on them.

use std::collections::BTreeMap;

use gantry_reconcile::{Change, Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::amount::Amount;
use super::bindings::BINDINGS_ANNOTATION;

/// The label that names the tree.
const TREE_LABEL: &str = "tree";

/// A node of a tree and the children it gets. See [`QuotaSubtree`](gantry_api::queue::QuotaSubtree)
/// for the whole kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Subtree {
    /// Metadata.
    pub metadata: Meta,
    /// The parent and its children.
    pub spec: SubtreeSpec,
    /// The last status, which reports what the children hold.
    pub status: Value,
}

impl View for Subtree {
    const RESOURCE: Resource =
        Resource::namespaced("quota.codeflare.dev", "v1alpha1", "quotasubtrees", "QuotaSubtree")
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Subtree {
    /// Returns the tree it belongs to; without one it is ignored.
    #[must_use]
    pub fn tree(&self) -> Option<&str> {
        self.metadata.labels.get(TREE_LABEL).map(String::as_str)
    }

    /// Returns the bindings of its nodes, as written; `None` where it binds none.
    #[must_use]
    pub fn bindings(&self) -> Option<&str> {
        self.metadata.annotations.get(BINDINGS_ANNOTATION).map(String::as_str)
    }

    /// Returns whether the same trees are built from it as from another one: the status does not
    /// matter.
    #[must_use]
    pub fn has_same_tree(&self, other: &Self) -> bool {
        let key = self.metadata.key() == other.metadata.key();
        let bindings = self.bindings() == other.bindings();
        key && bindings && self.tree() == other.tree() && self.spec == other.spec
    }

    /// Returns whether a change concerns the status of a QuotaSubtree only.
    pub(crate) fn is_status_change(change: &Change) -> bool {
        let both = change.before::<Self>().zip(change.after::<Self>());
        both.is_some_and(|(before, after)| before.has_same_tree(after))
    }

    /// Returns the parent of its children, unless they are roots.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.spec.parent.as_deref().filter(|name| !matches!(*name, "" | "nil"))
    }
}

/// The children of one node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SubtreeSpec {
    /// The name of the parent of the children.
    pub parent: Option<String>,
    /// The nodes below it.
    pub children: Vec<Child>,
}

/// A node and its quota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// Its quota.
    pub quotas: Option<Quotas>,
}

/// The quota of a node, and whether it may borrow.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quotas {
    /// Whether it may not borrow.
    pub hard_limit: bool,
    /// Amount per resource.
    pub requests: BTreeMap<String, Amount>,
}
