//! The I/O of kernel modules: registries, objects that are read by name, metrics and logs.

pub mod decision_log;
mod images;
pub mod metrics;
mod objects;
mod pod_security;
mod transfer;

pub use images::{HostRegistry, HostRegistryExtension, ImageResponder, USER_AGENT};
pub use objects::{CredentialReadError, ObjectReader};
pub use pod_security::discover_pod_security;
pub use transfer::{
    ImageBlobs, PullError, PushError, RegistryBlobs, RegistryImage, SharedBlobs, open_image,
    push_image,
};
