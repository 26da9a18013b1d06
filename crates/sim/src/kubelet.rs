//! Pretend kubelets: what nodes say of themselves, and what becomes of the pods on them.
//!
//! Everything follows from the objects, what programs really did ([`Program`](crate::view::Program))
//! and the time. Waiting is a time to look again; a delay that varies is drawn from the pod's
//! identity, so that a plan made twice is the same plan.
//!
//! Annotations of nodes:
//!
//! | annotation | meaning |
//! |---|---|
//! | `kwok.x-k8s.io/node: fake` | this node is pretended |
//! | `gantry.dev/sim-node: down` | it has no power: it renews nothing, and its pods stay as they are |
//! | `gantry.dev/sim-capacity`, `-allocatable` | what it has, as a JSON map of quantities |
//! | `gantry.dev/sim-kernel-version` | the release of its kernel |
//!
//! Annotations of pods:
//!
//! | annotation | meaning |
//! |---|---|
//! | `gantry.dev/sim-run-for: 30s` | containers end after this time, with code 0 |
//! | `gantry.dev/sim-crash-after: 5s` | containers end after this time, with code 1 |
//! | `gantry.dev/sim-exit-code: "3"` | with which code they end; `"1,1,0"` is a code for each run |
//! | `gantry.dev/sim-image-pull-error` | images cannot be pulled; the value says why, or `true` |
//! | `gantry.dev/sim-logs` | what containers say when they start, a line each; see [`logs`](crate::logs) |
//! | `gantry.dev/sim-never-ready: "true"` | containers run and never get ready |
//! | `gantry.dev/sim-kill: "0"` | runs of containers up to this restart count are killed without notice, with code 137 |
//! | `gantry.dev/sim-cpu-usage`, `-memory-usage`, `-cpu-load` | what containers use; see [`usage`](crate::usage) |
//! | `<stage>.stage.kwok.x-k8s.io/delay`, `/jitter-delay` | how long a [stage](Stage) takes |

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::Selector;

use crate::pod_config::ApiServer;
use crate::programs;
use crate::view::{Container, Node, Pod};

mod admit;
mod container;
#[cfg(test)]
mod convergence;
pub(crate) mod health;
mod node;
mod pod;
mod prepare;
mod range;
mod stage;
mod status;

pub use node::Nodes;
pub use pod::Pods;
pub use range::{PodAddress, Ranges, pod_address};
pub use stage::{Profile, Stage};
pub(crate) use status::condition as condition_body;

/// How nodes are pretended.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long things take.
    pub profile: Profile,
    /// Nodes with these labels are pretended too, beside those with the annotation.
    pub selector: Option<Selector>,
    /// What is told about pods that do as they should.
    pub tells: Tells,
    /// Images of programs that really run; what becomes of their containers is told by
    /// [`Program`](crate::view::Program).
    pub programs: Arc<BTreeSet<String>>,
    /// Whether pods wait for the ConfigMaps and Secrets they name.
    pub sources: SourcePolicy,
    /// Where containers reach the API server, for their environment.
    pub api_server: Option<ApiServer>,
}

/// Whether pods wait for the ConfigMaps and Secrets they name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePolicy {
    /// They do not: nobody reads such objects.
    #[default]
    Assumed,
    /// They do, and [`PodSources`](crate::pod_config::PodSources) says which are read.
    Read,
}

/// What is told about pods that do as they should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tells {
    /// Every container that is pulled, created, started or stopped, as a kubelet does.
    #[default]
    All,
    /// Only what goes wrong: three events for each pod are most of the work for many pods.
    Trouble,
}

/// Names of annotations.
pub mod annotation {
    /// Marks a node as pretended, with the value `fake`.
    pub const FAKE: &str = "kwok.x-k8s.io/node";
    /// Whether a node has power: `down` when not.
    pub const POWER: &str = "gantry.dev/sim-node";
    /// What a node has.
    pub const CAPACITY: &str = "gantry.dev/sim-capacity";
    /// What a node has for pods.
    pub const ALLOCATABLE: &str = "gantry.dev/sim-allocatable";
    /// The release of a node's kernel.
    pub const KERNEL: &str = "gantry.dev/sim-kernel-version";
    /// With which codes containers end.
    pub const EXIT_CODE: &str = "gantry.dev/sim-exit-code";
    /// After which time containers fail.
    pub const CRASH_AFTER: &str = "gantry.dev/sim-crash-after";
    /// After which time containers end.
    pub const RUN_FOR: &str = "gantry.dev/sim-run-for";
    /// Why images cannot be pulled.
    pub const PULL_ERROR: &str = "gantry.dev/sim-image-pull-error";
    /// Whether containers never get ready.
    pub const NEVER_READY: &str = "gantry.dev/sim-never-ready";
    /// Up to which restart count runs of containers are killed.
    pub const KILL: &str = "gantry.dev/sim-kill";
}

impl Settings {
    /// Whether a node is one of ours.
    #[must_use]
    pub fn pretends(&self, node: &Node) -> bool {
        let meta = &node.metadata;
        meta.annotations.get(annotation::FAKE).is_some_and(|it| it == "fake")
            || self.selector.as_ref().is_some_and(|it| it.matches(&meta.labels))
    }

    /// Whether a container is a program that really runs.
    #[must_use]
    pub fn is_program(&self, container: &Container) -> bool {
        self.programs.contains(programs::repository(&container.image))
    }

    /// Whether a pod has programs that really run.
    #[must_use]
    pub fn has_programs(&self, pod: &Pod) -> bool {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.any(|it| self.is_program(it))
    }

    /// Whether a node is one of ours and has power.
    #[must_use]
    pub fn is_up(&self, node: &Node) -> bool {
        let down = node.metadata.annotations.get(annotation::POWER).is_some_and(|it| it == "down");
        self.pretends(node) && !down
    }
}

/// A moment as objects have it: to the second.
pub(crate) fn second(now: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}
