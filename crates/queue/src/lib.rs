//! Which AppWrappers run now, what each is charged to, and who makes room.
//!
//! A user wraps every object of one job in an AppWrapper. Nothing inside is created until all of it is
//! believed to fit. Two controllers do that, and neither remembers anything but what the objects say:
//!
//! - [`decide::Dispatch`] decides about the whole queue at once: who passes, who waits, and why.
//! - [`progress::Progress`] looks after each AppWrapper: it makes the items of one that passed, counts
//!   its pods, and notices when it has finished or must be taken back.
//!
//! [`shape::Chooser`] says which nodes would make one fit for which there is no room.
//!
//! With [`quota`] trees, who passes is charged to them, and who borrowed makes room for who owns;
//! [`quota_status`] tells administrators what was handed out.
//!
//! Leaves of the trees may be bound to namespaces and groups: [`leaf`] says who may use which.
//!
//! Where authors must be allowed to create what they wrap, [`author`] records who they are, and [`access`]
//! says what is known of their rights.
//!
//! What the server has to be asked for that is asked by inquiries ([`kind_discovery`], [`access`]); the module
//! [`effects`] answers them, and is the only one that knows a client and a runtime.
//!
//! The states and the transitions between them are in [`state`]; `docs/specs/queue.md` says what they
//! mean.

pub mod access;
pub mod author;
pub mod condition;
pub mod kind_discovery;
pub mod settings;
pub mod wrapped;

pub mod quota;
pub mod quota_status;

pub mod availability;
pub mod backoff;
mod books;
pub mod capacity;
pub mod charge;
mod claims;
pub mod decide;
pub mod evict;
pub mod fair;
pub mod hold;
pub mod leaf;
pub mod listing;
pub mod news;
pub mod order;
pub mod outlook;
mod packing;
pub mod shape;
pub mod story;

pub mod completion;
pub mod count;
pub mod deadline;
pub mod dispatch;
pub mod progress;
pub mod requeue;
pub mod state;
pub mod status;
pub mod unreachable;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod scenarios;

pub use decide::Dispatch;
pub use gantry_pods::{amounts, app_wrapper, demand, pod_sets, privilege};
pub use progress::Progress;
pub use settings::{Inference, Live, Settings, UserAccess};
