//! Views of the objects that the controllers of actuation read.

mod claims;
mod configs;
mod pod;

pub use claims::{
    Allocation, ClaimedDevice, RequesterClaims, UsedResourceClaim, agreed_accelerators,
    read_resource_claim,
};
pub use configs::{
    AcceleratorMap, InferenceServerConfig, LauncherConfig, LauncherPopulationPolicy,
    PopulationSpec, ResourceBounds,
};
pub use gantry_pods::view::Node;
pub use pod::{
    ActuationPod, Binding, DirectEngine, ServerContainer, Variant, bound_to, launchers_of, on_node,
    requester_with_uid, with_server_config,
};
