//! Quota trees: how an administrator divides the cluster, and which AppWrappers are preempted for
//! others.
//!
//! QuotaSubtrees with the same `tree` label form a [`Tree`] of nodes, each with a quota; all trees
//! together are the [`Forest`]. An AppWrapper is a [`Consumer`]: its labels name one leaf in every
//! tree, and it runs only if its request fits into the quota of every tree.
//!
//! In one tree a consumer is *placed* on its leaf or, by borrowing, on an ancestor of it, and it is
//! charged to that node and to every node above. Three rules decide which consumers move:
//!
//! - A consumer that requests quota of its own leaf gets it. Borrowers of that quota are pushed up,
//!   whatever their priority, and off the root, which means they are preempted.
//! - On the node where it is placed, a consumer pushes up those of lower priority only.
//! - Where that does not help, a consumer of positive priority preempts those of lower priority
//!   that are placed on its own path.
//!
//! A node with a hard limit neither lends to those below it nor lets them move past it.
//!
//! # How a dispatcher uses it
//!
//! ```
//! use gantry_queue::quota::{Consumer, ConsumerId, Forest, Subtree};
//! use serde_json::json;
//!
//! let root: Subtree = serde_json::from_value(json!({
//!     "metadata": {"name": "root", "namespace": "n", "labels": {"tree": "team"}},
//!     "spec": {"children": [{"name": "all", "quotas": {"requests": {"cpu": "2"}}}]},
//! }))?;
//! let leaves: Subtree = serde_json::from_value(json!({
//!     "metadata": {"name": "leaves", "namespace": "n", "labels": {"tree": "team"}},
//!     "spec": {"parent": "all", "children": [
//!         {"name": "gold", "quotas": {"requests": {"cpu": "2"}}},
//!         {"name": "default"},
//!     ]},
//! }))?;
//! let (mut forest, problems) = Forest::new([&root, &leaves]);
//! assert!(problems.is_empty());
//!
//! // Labels that the AppWrapper lacks are written to it before it is evaluated.
//! let mut labels = Default::default();
//! for (tree, node) in forest.missing_labels(&labels) {
//!     labels.insert(tree, node);
//! }
//! assert_eq!(labels["team"], "default");
//!
//! let consumer = |name: &str, labels, cpu| Consumer {
//!     id: ConsumerId::new("n", name),
//!     priority: 0,
//!     preemptable: true,
//!     preempt_first: false,
//!     request: [("cpu".to_owned(), cpu)].into(),
//!     labels,
//! };
//! let borrowed = forest.try_allocate(&consumer("idle", labels, 1500))?;
//! assert_eq!(borrowed.placed["team"], "all");
//!
//! // The owner of the quota reclaims it; the dispatcher preempts the victims, or undoes it.
//! let gold = [("team".to_owned(), "gold".to_owned())].into();
//! let owned = forest.try_allocate(&consumer("job", gold, 1000))?;
//! assert_eq!(owned.victims, [ConsumerId::new("n", "idle")]);
//! forest.undo(owned)?;
//! assert!(forest.holds(&ConsumerId::new("n", "idle")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - At the start, and wherever a forest is rebuilt from the objects of the server, every
//!   AppWrapper that was dispatched is restored: [`Forest::rebuild`] restores all,
//!   [`Forest::restore`] restores one, and [`Forest::force_place`] does so as the original does.
//! - [`Forest::try_allocate`] comes before the check of real capacity. If that fails,
//!   [`Forest::undo`] undoes everything, victims included.
//! - [`Forest::release`] is called for every consumer that ends, is deleted or is evicted for
//!   another reason. Victims of an allocation have been released already.
//! - When QuotaSubtrees change, [`Forest::edit`] comes before the next evaluation.
//!
//! # Guarantees
//! No allocation makes a node exceed its quota; only force placement and edits can. A refused
//! allocation changes nothing. Nothing depends on the order in which trees or objects are given,
//! nor on hashes. Amounts are whole numbers (thousandths of cpus, else units), and sums cannot
//! overflow.

mod allocate;
mod amount;
pub mod bindings;
mod build;
mod consumer;
mod forest;
mod forest_cache;
mod journal;
mod problem;
mod rebuild;
mod refusal;
mod subtree;
mod tree;
mod usage;

#[cfg(test)]
mod tests;

pub use amount::{Amount, TRACKED_RESOURCES, quantity, requested};
pub use bindings::{Applicant, BINDINGS_ANNOTATION, Bindings, LeafForbidden};
pub use consumer::{Consumer, ConsumerId, DEFAULT_NODE};
pub use forest::{Allocation, Forest, Superseded};
pub use forest_cache::ForestCache;
pub use problem::{QuotaProblem, QuotaProblemKind};
pub use rebuild::QuotaHolder;
pub use refusal::{QuotaRefusal, QuotaRefusalReason};
pub use subtree::Subtree;
pub use tree::Tree;
pub use usage::NodeUsage;
