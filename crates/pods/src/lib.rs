//! Typed views of pods, nodes and devices, and the rules that decide whether a pod fits on a node.
//!
//! Several schedulers share the nodes of a cluster, and every controller that creates pods for
//! nodes must agree with them: [`view`] holds the fields that all of them read, [`requests`]
//! computes what a pod requests, [`fit`] decides whether it may be on a node at all, and
//! [`node_info`] tracks the free capacity of a node and decides whether the pod fits into it.
//! [`pod_condition`] writes pod conditions on behalf of controllers other than the kubelet.
//! [`devices`] holds devices and the claims to them.

pub mod devices;
pub mod fit;
pub mod node_info;
pub mod pod_condition;
pub mod requests;
pub mod view;

pub use node_info::{HostPort, NodeInfo, NodeRejection, PodRequirements, RejectionReason};
pub use requests::{InsufficientResource, Requests};
