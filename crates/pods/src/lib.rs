//! What controllers see of pods, nodes and AppWrappers, and whether one fits on the other.
//!
//! Several schedulers share the nodes of a cluster, and whoever makes pods for nodes must agree with
//! them: [`view`] is what all of them read, [`requests`] what a pod takes, [`fit`] whether it may be on
//! a node at all, and [`site`] what is left of a node and whether the pod finds room there. [`said`] is how
//! others than its node tell it what is true of it.
//!
//! AppWrappers wait as a whole for room for all their pods: [`app_wrapper`] is what is read of them,
//! [`demand`] what their pods will ask for, in [`amounts`], found where [`pod_sets`] says templates are;
//! [`gang`] is those pods one by one, [`privilege`] what their authors must be allowed to do. [`devices`] is what is read of devices and of claims to them.

pub mod devices;
pub mod fit;
pub mod requests;
pub mod said;
pub mod site;
pub mod view;

pub mod amounts;
pub mod app_wrapper;
pub mod demand;
pub mod gang;
pub mod pod_sets;
pub mod privilege;

pub use requests::{Lack, Requests};
pub use site::{HostPort, Misfit, Need, Reason, Site};
