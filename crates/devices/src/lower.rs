//! Converts the objects of a cluster, or of files, to a problem that can be searched.
//!
//! A [`Snapshot`] is what drivers publish and schedulers have written into the ledgers of their
//! pools; [`Snapshot::request`] converts a pod's claims to a request. Everything that can be found
//! wrong without searching devices is found here: a pool that contradicts itself is not used and
//! has a reason, a claim that contradicts its class is refused.

mod catalog;
mod claim;
mod file;
mod node_selection;
mod pod;
mod pool;
mod selector;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub use claim::{ClaimError, ClaimSpecRef, ClaimWarning, LoweredRequest, TermProblem};
pub use file::{file_claims, file_pools};
pub use node_selection::NodeLabels;
pub(crate) use node_selection::matches_selector;
pub use pod::{ClaimObjects, PodClaimEntry, ResolveError, generated_name, resolve};
pub use snapshot::{LostHold, Snapshot};
pub use status::allocations;
pub(crate) use status::amount_as_asked;
