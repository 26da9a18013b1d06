//! What the simulation does beside deciding: it runs programs in simulated pods.

mod pod_programs;

pub use pod_programs::{
    PodAccounts, PodPrograms, PodRuntime, PulledImages, Transport, over_network,
};
