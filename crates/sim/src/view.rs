//! The views of objects that simulated nodes read, and the facts about their pods.

mod device_plugin;
mod image;
mod program;
mod source;

pub use gantry_kube_controllers::view::*;

pub use device_plugin::{DevicePluginKey, PluginPool, RegisteredDevices, registered_devices};
pub use image::PulledImage;
pub use program::{
    ContainerKey, FailedHook, Hook, ProbeKey, ProbeKind, ProbeResult, ProbeVerdict, Program,
    ProgramState, probes_of, programs_of,
};
pub use source::{SourceKey, SourceKind, SourceObject};
