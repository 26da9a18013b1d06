//! The input and the output of the allocator: inventories, requests and outcomes.
//!
//! An [`Inventory`] is what drivers published, less what is held; a [`Request`] is what one pod
//! claims, in the order in which it claims it. Both are free of text that would have to be parsed
//! while searching: names are [`Symbol`]s, amounts are integers of 10⁻⁹ units, and the results of
//! constraints come as a table of [`Verdict`]s, one row for each selector and one column for each
//! [`Signature`].
//!
//! # What a solution is
//! Every term of every claim gets one of its alternatives and a set of devices of the node, so that
//! 1. the number of devices is within the alternative's [`Count`]; `All` takes every candidate;
//! 2. no term gets the same device twice, and no claim gets a device twice that one of its terms
//!    holds with administrator access ([`Alternative::admin`]);
//! 3. on every device, old and new holds have compatible access modes ([`AccessMode`]);
//! 4. amounts are available: for [`Draws::Each`] on every device, for [`Draws::Together`] on all
//!    devices of the term in sum;
//! 5. no pool's resources are charged beyond what is available, each newly held device once;
//! 6. in every match group all devices have the attribute with the same value, in every distinct
//!    group no two have the same, and a device without the attribute is in no such group;
//! 7. required topologies hold.
//!
//! Holds with administrator access ([`Alternative::admin`]) are exempt from 3 to 5.
//!
//! A *candidate* of an alternative is a device of a valid pool whose verdict is [`Verdict::Met`],
//! whose taints are tolerated, that publishes every requested name in a kind that fits, and, unless
//! the alternative has administrator access, whose holds allow one more in the mode it would be
//! given, that can serve each request of [`Draws::Each`] by itself, and whose charge the pool can
//! afford. All of that is about the inventory as it is, not about what other terms take.
//!
//! The *mode* of a hold is what [`Draws::Each`] requests of a capacity of kind `accessMode`; else
//! [`Alternative::mode`]; else shared (`ReadWriteShared`) if any name is requested and exclusive
//! (`ReadWriteExclusive`) if not; in each case as the device upgrades it ([`Device::sharing`]).
//!
//! # Scores
//! A term has 100, less 10 for each alternative before the one it got, 20 for each `prefer` rule
//! that it does not meet and 5 for each part of a request after its first, and at least 1. A rule
//! of a scope (term, claim, pod) is met by a term that has no part in topology domains of that
//! kind, or whose parts and those of the terms before it in the scope are all in one domain of the
//! kind. Claims have the integer mean of their terms, the pod that of its claims.
//!
//! # Which solution is chosen
//! The first one. Terms are decided in order; for each the alternatives in order; for each of those
//! the moves in this order ([`Policy::FewestPools`]):
//! 1. fewer devices;
//! 2. fewer pools;
//! 3. higher score, if a topology rule applies to the term (its own, its claim's or the pod's);
//! 4. the set of pools, as a list of indexes in [`Node::pools`], compared from the front;
//! 5. more devices from the first pool of the set, then from the second, and so on;
//! 6. the devices, as a list of (pool, device), compared from the front;
//! 7. the parts, device by device and request by request, in the order that [`Draws`] defines.
//!
//! [`Policy::FirstFit`] keeps 1, 6 and 7 only.
//!
//! [`AccessMode`]: gantry_api::devices::AccessMode

mod inventory;
mod outcome;
mod request;
mod shapes;
mod symbols;

pub(crate) use inventory::holders;
pub use inventory::{
    CapacityPart, Charge, CountedDevices, Device, DeviceCapacity, Granularity, Hold, HoldError,
    Inventory, Node, Pool, PoolDevices, PoolResource, Signature, TopologyDomain,
};
pub use outcome::{
    Allocation, AllocationOutcome, AlternativeReport, ClaimAllocation, DeviceReport, PoolReport,
    Reason, TermAllocation, TermReport, Undecided, UnsatisfiableReport,
};
pub use request::{
    Alternative, Budget, Claim, Count, Draws, Policy, Refusal, Request, Term, Verdict,
};
pub use symbols::{Symbol, Symbols, Value, ValueSymbol};
