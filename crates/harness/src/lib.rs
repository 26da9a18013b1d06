//! A world in which everything goes wrong, on a virtual clock.
//!
//! A [`Scenario`] is some controllers, the objects they begin with, and what users do on the way. It
//! is run many times: in each run chance decides whose turn it is, which news arrive late, which
//! requests and answers get lost or are doubled, and when a process dies and starts with nothing but
//! what the server still knows. Then the faults stop, and when nothing is left to do, the end is
//! looked at. Chance follows from a seed, so every failure can be had again.
//!
//! The server is a small model of the real one ([`Server`]): revisions, fences, finalizers, grace
//! periods and garbage collection, but no schemas. What the real one fills in is an argument.
//!
//! [`Scenario::prove`] and [`Scenario::prove_apart`] are all that most controllers need, and
//! [`prove_worlds`] where there are many worlds to begin with. A [`Stage`] is for tests about what happens
//! when. [`Kubelet`] runs pods for controllers whose decisions depend on that.

mod calls;
mod kubelet;
mod outside;
mod prove;
mod replica;
mod scenario;
mod server;
mod stage;
mod trial;

pub use kubelet::{Kubelet, KubeletNode, KubeletNodes, KubeletPod, PodLifecycle};
pub use outside::{Ask, Asker, Asking, Check, Edge, InitialFacts, Invariant, MakeEdge, Outside};
pub use prove::prove_worlds;
pub use scenario::{
    Action, CONFLICTED, Crash, Ending, Failure, Faults, REFUSED, Scenario, Sent, UNREADABLE,
};
pub use server::Server;
pub use stage::Stage;

#[cfg(test)]
mod tests;
