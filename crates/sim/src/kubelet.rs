//! Simulated kubelets: they report the status of nodes, and run the pods on them.
//!
//! Everything follows from the objects, what programs really did
//! ([`Program`](crate::view::Program)) and the time. A wait is a requeue at a later time; a delay
//! that varies is drawn from the pod's UID, so that planning twice gives the same plan.
//!
//! Annotations of nodes:
//!
//! | annotation | meaning |
//! |---|---|
//! | `kwok.x-k8s.io/node: fake` | this node is simulated |
//! | `gantry.dev/sim-node: down` | it is off: it renews nothing, and its pods stay as they are |
//! | `gantry.dev/sim-capacity`, `-allocatable` | its capacity, as a JSON map of quantities |
//! | `gantry.dev/sim-kernel-version` | the release of its kernel; another one is a reboot |
//! | `sim.gantry.dev/module-signatures` | `off`, `enforce` or `lockdown`: what it loads |
//! | `sim.gantry.dev/trusted-keys` | the certificates that its kernel trusts, in PEM |
//! | `sim.gantry.dev/loaded-modules`, `/boot` | the state of its kernel, which its kubelet writes |
//! | `sim.gantry.dev/device-plugins` | resources of device plugins, which its kubelet writes |
//!
//! Annotations of pods:
//!
//! | annotation | meaning |
//! |---|---|
//! | `gantry.dev/sim-run-for: 30s` | containers exit after this time, with code 0 |
//! | `gantry.dev/sim-crash-after: 5s` | containers exit after this time, with code 1 |
//! | `gantry.dev/sim-exit-code: "3"` | the exit code; `"1,1,0"` is a code for each run |
//! | `gantry.dev/sim-image-pull-error` | images cannot be pulled, for this reason or `true` |
//! | `gantry.dev/sim-logs` | what containers log at start; see [`logs`](crate::logs) |
//! | `gantry.dev/sim-never-ready: "true"` | containers run and never become ready |
//! | `gantry.dev/sim-kill: "0"` | runs up to this restart count are killed, with code 137 |
//! | `gantry.dev/sim-cpu-usage`, `-memory-usage`, `-cpu-load` | see [`usage`](crate::usage) |
//! | `<stage>.stage.kwok.x-k8s.io/delay`, `/jitter-delay` | how long a [stage](Stage) takes |

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::Selector;

use crate::kernel;
use crate::pod_config::ApiServer;
use crate::programs;
use crate::view::{Container, Node, Pod};

mod admission;
mod container;
#[cfg(test)]
mod convergence;
mod dependencies;
pub(crate) mod device_plugins;
pub(crate) mod health;
mod image_pull;
mod kernel_state;
mod node;
mod pod;
mod pod_cidr;
mod stage;
mod status;

pub use node::SimulatedNodes;
pub use pod::SimulatedPods;
pub use pod_cidr::{PodAddress, PodCidrAllocator, pod_address};
pub use stage::{Profile, Stage};

/// The settings of simulated nodes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long the steps of a pod take.
    pub profile: Profile,
    /// Nodes with these labels are simulated too, besides those with the annotation.
    pub selector: Option<Selector>,
    /// Which events are recorded about pods that work as intended.
    pub events: EventPolicy,
    /// Images of programs that really run; [`Program`](crate::view::Program) has the state of their
    /// containers.
    pub programs: Arc<BTreeSet<String>>,
    /// Registries whose images are pulled, as images name them; nodes have all others.
    /// [`PulledImage`](crate::view::PulledImage) has the results.
    pub registries: Arc<BTreeSet<String>>,
    /// Whether pods wait for the ConfigMaps and Secrets they reference.
    pub sources: SourcePolicy,
    /// Where containers reach the API server; it is part of their environment.
    pub api_server: Option<ApiServer>,
}

/// Whether pods wait for the ConfigMaps and Secrets they reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePolicy {
    /// Pods do not wait: such objects are not read.
    #[default]
    Assumed,
    /// Pods wait, and [`PodSourceInquiry`](crate::pod_config::PodSourceInquiry) decides which are
    /// read.
    Read,
}

/// Which events are recorded about pods that work as intended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventPolicy {
    /// An event for every container that is pulled, created, started or stopped, as a kubelet
    /// records.
    #[default]
    All,
    /// Only warnings: with many pods, three events for each are most of the work.
    WarningsOnly,
}

/// Names of annotations.
pub mod annotation {
    /// Marks a node as simulated, with the value `fake`.
    pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
    /// The power of a node: `down` when it is off.
    pub const NODE_POWER: &str = "gantry.dev/sim-node";
    /// The capacity of a node.
    pub const CAPACITY: &str = "gantry.dev/sim-capacity";
    /// The allocatable resources of a node.
    pub const ALLOCATABLE: &str = "gantry.dev/sim-allocatable";
    /// The release of a node's kernel.
    pub const KERNEL: &str = "gantry.dev/sim-kernel-version";
    /// How strict a node's kernel is about signatures of modules.
    pub const MODULE_SIGNATURES: &str = "sim.gantry.dev/module-signatures";
    /// The certificates that a node's kernel trusts.
    pub const TRUSTED_KEYS: &str = "sim.gantry.dev/trusted-keys";
    /// The modules that a node's kernel has loaded.
    pub const LOADED_MODULES: &str = "sim.gantry.dev/loaded-modules";
    /// The last reboot of a node with another kernel.
    pub const BOOT: &str = "sim.gantry.dev/boot";
    /// The resources that device plugins have registered on a node, separated by commas.
    pub const DEVICE_PLUGINS: &str = "sim.gantry.dev/device-plugins";
    /// The exit codes of containers.
    pub const EXIT_CODE: &str = "gantry.dev/sim-exit-code";
    /// How long after their start containers fail.
    pub const CRASH_AFTER: &str = "gantry.dev/sim-crash-after";
    /// How long after their start containers complete.
    pub const RUN_FOR: &str = "gantry.dev/sim-run-for";
    /// Why images cannot be pulled.
    pub const PULL_ERROR: &str = "gantry.dev/sim-image-pull-error";
    /// Whether containers never become ready.
    pub const NEVER_READY: &str = "gantry.dev/sim-never-ready";
    /// The restart count up to which runs of containers are killed.
    pub const KILL: &str = "gantry.dev/sim-kill";
}

impl Settings {
    /// Returns whether a node is simulated with these settings.
    #[must_use]
    pub fn simulates(&self, node: &Node) -> bool {
        let meta = &node.metadata;
        meta.annotations.get(annotation::KWOK_NODE).is_some_and(|it| it == "fake")
            || self.selector.as_ref().is_some_and(|it| it.matches(&meta.labels))
    }

    /// Returns whether a container is a program that really runs.
    #[must_use]
    pub fn is_program(&self, container: &Container) -> bool {
        self.is_built_in(container) || (container.may_load_modules() && self.pulls(container))
    }

    fn is_built_in(&self, container: &Container) -> bool {
        self.programs.contains(programs::repository(&container.image))
    }

    /// Returns whether the image of a container is pulled.
    #[must_use]
    pub fn pulls(&self, container: &Container) -> bool {
        let from = |registry: &String| {
            container.image.strip_prefix(registry.as_str()).is_some_and(|it| it.starts_with('/'))
        };
        self.registries.iter().any(from) && !self.is_built_in(container)
    }

    /// Returns whether the image of any container of a pod is pulled.
    #[must_use]
    pub fn pulls_any(&self, pod: &Pod) -> bool {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.any(|it| self.pulls(it))
    }

    /// Returns whether a pod has programs that really run.
    #[must_use]
    pub fn has_programs(&self, pod: &Pod) -> bool {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.any(|it| self.is_program(it))
    }

    /// Returns whether pods run on a node: it is simulated, has power, and does not reboot.
    #[must_use]
    pub fn runs_pods(&self, node: &Node) -> bool {
        self.is_up(node) && !kernel::is_rebooting(node)
    }

    /// Returns whether a node is simulated and has power.
    #[must_use]
    pub fn is_up(&self, node: &Node) -> bool {
        let down =
            node.metadata.annotations.get(annotation::NODE_POWER).is_some_and(|it| it == "down");
        self.simulates(node) && !down
    }
}
