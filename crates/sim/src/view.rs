//! The views of objects that simulated nodes read, and the facts about their pods.

mod program;
mod source;

pub use gantry_kube_controllers::view::*;

pub use program::{
    ContainerKey, FailedHook, Hook, ProbeKey, ProbeKind, ProbeResult, ProbeVerdict, Program,
    ProgramState, probes_of, programs_of,
};
pub use source::{SourceKey, SourceKind, SourceObject};
