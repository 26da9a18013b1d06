//! Groups `ooto.sigs.k8s.io` and `hub.ooto.sigs.k8s.io`: out-of-tree kernel modules, preflight
//! checks of a kernel upgrade, and modules that a hub distributes to its spokes.

mod build;
mod container;
mod driver;
mod host_paths;
mod hub;
mod images;
mod mapping;
mod modprobe;
mod module;
mod normalise;
mod preflight;
mod reference;
mod serve;
mod sign;
mod template;
#[cfg(test)]
mod tests;
mod validate;

pub use build::{Build, BuildArg, Builder, DockerfileSource, Push, Rebuild, dockerfile_problem};
pub use container::{
    ContainerFields, DEVICE_PLUGIN_MOUNTS, DRIVER_MOUNTS, HostMount, PluginContainer,
};
pub use driver::{DriverContainer, LoaderContainer};
pub use host_paths::check_host_paths;
pub use hub::{ManagedClusterModule, ManagedClusterModuleSpec, ManagedClusterModuleStatus};
pub use mapping::{KernelMapping, Matcher};
pub use modprobe::{Modprobe, ModprobeArgs};
pub use module::{
    DaemonSetCounts, DevicePlugin, KernelStatus, LONGEST_NAMES, Module, ModuleSpec, ModuleStatus,
};
pub use preflight::{
    ModuleReference, ModuleVerification, Preflight, PreflightSpec, PreflightStatus,
    VerificationStage, VerificationStatus,
};
pub use reference::{LocalReference, Tls};
pub use sign::{ExistingSignature, HashAlgorithm, Sign, SignedImage, UnsignedImage};
pub use template::{MODULE_VARIABLES, Template, TemplateError, UndefinedVariable, VARIABLES};
