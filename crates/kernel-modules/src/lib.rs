//! The right driver on every node for every kernel: which image goes with which kernel, how it is
//! built and signed, and which DaemonSets load it.
//!
//! [`KernelPlan::of`] decides what a Module means for one kernel, [`pipeline`] how its image comes
//! to be, [`daemon_set`] and [`job`] write the objects, [`ModuleController`] and
//! [`NodeLabelController`] reconcile Modules and nodes. All of that is pure; [`facts`] are what it
//! needs to know about registries.
//!
//! [`sign_image()`] signs the selected files of an image and adds one layer with them;
//! [`verify_image()`] says of each selected file whether its signature is trusted. Both read blobs
//! from any [`gantry_oci::BlobSource`] and do no I/O of their own. [`effects`] has the blobs of
//! registries.

pub mod admission;
pub mod controller;
pub mod daemon_set;
pub mod driver_failure;
pub mod effects;
pub mod facts;
pub mod job;
mod job_failure;
pub mod kernel_plan;
pub mod labels;
pub mod module_counts;
pub mod module_kernels;
pub mod node_labels;
pub mod pipeline;
mod plugin_image;
pub mod selected_nodes;
pub mod settings;
mod sign_image;
pub mod subsystem;
#[cfg(test)]
mod test_support;
mod verify_image;
pub mod view;

pub use controller::ModuleController;
pub use kernel_plan::KernelPlan;
pub use node_labels::NodeLabelController;
pub use settings::{LiveSettings, Settings};

pub use sign_image::{
    FileResult, SignImageError, SignImageOptions, SignedFile, SignedImage, sign_image,
};
pub use verify_image::{VerifiedFile, verify_image};
