//! Simulates a cluster in which everything goes wrong, on a virtual clock, for the tests of
//! controllers.
//!
//! A [`Scenario`] consists of controllers, the initial objects, and what users do in the course of
//! it. It is run many times: in each run a random generator decides what happens next, which watch
//! events arrive late, which requests and responses get lost or duplicated, and when a process
//! crashes and restarts with nothing but what the server still stores. Then the faults stop, and
//! when nothing is left to do, the final state is checked. The random generator is seeded, so every
//! failure can be reproduced.
//!
//! The server is a small model of the real one ([`Server`]): revisions, fences, finalizers, grace
//! periods and garbage collection, but no schemas. The defaults that the real one sets are an
//! argument.
//!
//! [`Scenario::prove`] and [`Scenario::prove_isolation`] are all that most controllers need, and
//! [`prove_worlds`] where there are many initial states. A [`TestCluster`] is for tests about what
//! happens when. [`Kubelet`] runs pods for controllers whose decisions depend on that.

mod calls;
mod external;
mod kubelet;
mod object_json;
mod prove;
mod replica;
mod scenario;
mod server;
mod simulation;
mod test_cluster;
pub mod test_world;

pub use external::{
    AnySimulatedInquiry, ExternalSystems, InitialFacts, InquiryRunner, Invariant, InvariantCheck,
    MakePeer, SimulatedInquiry, SimulatedPeer,
};
pub use kubelet::{Kubelet, KubeletNode, KubeletNodes, KubeletPod, PodLifecycle};
pub use prove::prove_worlds;
pub use scenario::{
    CONFLICTED_PREFIX, Crash, Failure, Faults, FinalState, InFlightRequests, REFUSED_PREFIX,
    Scenario, UNREADABLE_PREFIX, UserAction,
};
pub use server::Server;
pub use test_cluster::TestCluster;

#[cfg(test)]
mod tests;
