//! The CPU and memory usage of pods, for the controllers that decide by it.

use std::fmt;

use gantry_reconcile::World;
use jiff::{SignedDuration, Timestamp};

use crate::view::Pod;

/// The usage of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The container.
    pub name: String,
    /// Billionths of a CPU.
    pub cpu: i128,
    /// Billionths of a byte.
    pub memory: i128,
}

impl ContainerUsage {
    /// Returns the usage of a resource by its name; `None` for unknown ones.
    #[must_use]
    pub fn resource(&self, resource: &str) -> Option<i128> {
        match resource {
            "cpu" => Some(self.cpu),
            "memory" => Some(self.memory),
            _ => None,
        }
    }
}

/// Samples what pods use.
pub trait PodMetrics: fmt::Debug + Send + Sync {
    /// Returns the usage of a pod's containers at the last sample; `None` if not all of them ran
    /// for a whole sample.
    fn usage(&self, world: &World, pod: &Pod, now: Timestamp) -> Option<Vec<ContainerUsage>>;

    /// Returns how long a sample takes, and how often one is taken.
    fn window(&self) -> SignedDuration;

    /// Returns when the last sample was taken: all pods are sampled at the same times.
    fn last_sample(&self, now: Timestamp) -> Timestamp {
        let window = self.window().as_secs().max(1);
        let second = now.as_second();
        Timestamp::from_second(second - second.rem_euclid(window)).unwrap_or(now)
    }
}
