//! From the objects of a cluster, or of files, to a problem that can be searched.
//!
//! A [`Snapshot`] is what drivers publish and schedulers have written into the books of their
//! pools; [`Snapshot::request`] makes a request of what a pod's claims say. Everything that can be
//! found wrong without looking for devices is found here: a pool that contradicts itself is not
//! used and says why, a claim that contradicts its class is refused.

mod catalog;
mod claim;
mod file;
mod pod;
mod pool;
mod reach;
mod selector;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub use claim::{ClaimError, Fault, Lowered, Note, Wanted};
pub use file::{file_claims, file_pools};
pub use pod::{PodEntry, ResolveError, Resolved, generated_name, resolve};
pub use reach::NodeLabels;
pub(crate) use reach::selects;
pub use snapshot::{Lost, Snapshot};
pub use status::allocations;
pub(crate) use status::amount_as_asked;
