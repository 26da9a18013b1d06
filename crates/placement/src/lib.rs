//! Gives pods that claim devices to nodes, and keeps the books of who holds what.
//!
//! The commit point is the ledger in the status of each pool. A device is a pod's when its claim says
//! so, and a claim says so only after the ledgers do; both are written with the revision they were
//! decided on. Between the two a process may die, lose an answer or meet another one that believes to
//! lead: every step follows from what is seen, so whoever comes next goes on or takes it back.
//!
//! What makes that safe is one rule about time. A claim says when it last came to have devices or to
//! have none (its horizon), and an entry in a ledger says since when it is
//! there. A claim is given devices on entries younger than its horizon only, and an entry is crossed
//! out only when it is not younger than the horizon and not what the claim has. So whoever would cross
//! out an entry must first move the horizon of the claim, and then nobody who saw the claim before can
//! write to it.
//!
//! [`Scheduler`] decides about all pods that wait, because they compete; [`Release`] about what ends,
//! claim by claim; [`Books`] about ledgers, pool by pool; [`Results`] tells pods what they have;
//! [`Gate`] looks after pods that another scheduler binds; [`ClassStanding`] and [`DriverStanding`] say
//! what classes and drivers are worth. [`admission`] answers an API server that asks about new objects.
//! [`ConfigInquiry`] says which objects that configure devices are to be read, and [`effects`] reads them.

mod carrier;
mod claim;
mod condition;
mod config;
mod ledger;
mod seen;

pub mod admission;

mod books;
mod gate;
mod release;
mod results;
mod scheduler;
mod standing;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod tests;

pub use books::Books;
pub use config::{CONFIG_LABEL, ConfigInquiry, ConfigObject, NamedBy, Reference};
pub use gate::{GATE, Gate};
pub use release::Release;
pub use results::Results;
pub use scheduler::{AdminQuota, NAME, Scheduler};
pub use seen::{Published, Quota, Seen};
pub use standing::{ClassStanding, DriverStanding};
