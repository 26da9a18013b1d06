//! QuotaSubtrees, as far as decisions depend on them.

use std::collections::BTreeMap;

use gantry_reconcile::{Change, Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::amount::Amount;
use super::bindings::BINDINGS;

/// The label that names the tree.
const TREE: &str = "tree";

/// A node of a tree and the children it gets. See [`QuotaSubtree`](gantry_api::queue::QuotaSubtree)
/// for the whole kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Subtree {
    /// Metadata.
    pub metadata: Meta,
    /// The parent and its children.
    pub spec: SubtreeSpec,
    /// What was said last about what the children hold.
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
    /// The tree it belongs to; without one it is ignored.
    #[must_use]
    pub fn tree(&self) -> Option<&str> {
        self.metadata.labels.get(TREE).map(String::as_str)
    }

    /// Who may be charged to its nodes, as written; nothing where nobody is excluded.
    #[must_use]
    pub fn bindings(&self) -> Option<&str> {
        self.metadata.annotations.get(BINDINGS).map(String::as_str)
    }

    /// Whether trees made of it are those made of another one: what is said about it does not matter.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let key = self.metadata.key() == other.metadata.key();
        let bindings = self.bindings() == other.bindings();
        key && bindings && self.tree() == other.tree() && self.spec == other.spec
    }

    /// Whether a change is about what is said of a QuotaSubtree, and nothing else.
    pub(crate) fn only_says(change: &Change) -> bool {
        let both = change.before::<Self>().zip(change.after::<Self>());
        both.is_some_and(|(before, after)| before.is_like(after))
    }

    /// The node its children hang below, unless they are roots.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.spec.parent.as_deref().filter(|name| !matches!(*name, "" | "nil"))
    }
}

/// The children of one node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SubtreeSpec {
    /// Name of the node the children hang below.
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
    /// What it may hand out.
    pub quotas: Option<Quotas>,
}

/// How much a node may hand out, and whether it may borrow.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quotas {
    /// Whether it is kept from borrowing.
    pub hard_limit: bool,
    /// Amount per resource.
    pub requests: BTreeMap<String, Amount>,
}
