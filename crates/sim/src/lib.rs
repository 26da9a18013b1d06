//! Simulated nodes: their kubelets, the programs in their pods, what containers log and use, and
//! the driver of their devices.
//!
//! Controllers in the words of crate `reconcile` take pods from a node that was chosen to a status,
//! as a kubelet does. What a simulated container logs is kept in [`logs`], commands in it are run
//! by [`shell`], and images of Gantry's own programs really run ([`programs`]). Each node has a
//! [`kernel`], into which containers load modules.

#[cfg(test)]
mod test_world;
pub mod view;

pub mod controller_set;
pub mod device_driver;
pub mod effects;
pub mod image;
pub mod kernel;
pub mod kubelet;
pub mod logs;
pub mod node_shape;
pub mod pod_config;
pub mod programs;
pub mod rbac;
pub mod shell;
pub mod subsystem;
pub mod usage;
