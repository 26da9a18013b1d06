//! The ways to the outside of the API: observers, inquiries and calls.
//!
//! Decisions are pure and live in the crates of their subsystems. What is here lets them reach the outside
//! once for the whole process: [`Observer`]s are shown every change, [`inquiries`] asks the open questions of
//! an [`Inquiry`](gantry_reconcile::Inquiry), and [`calls`] keeps those calls under way that plans want.
//! Answers and replies become facts and enqueue the keys that depend on them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_reconcile::Observer;
use gantry_reconcile::call::CallBounds;

pub mod calls;
pub mod inquiries;

pub use calls::{CallError, Caller};
pub use inquiries::{AnyInquiry, Asks, Responder, ResponderContext};

/// A future that may be sent to another thread.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What beside controllers has a part in a shell.
#[derive(Clone, Default)]
pub struct Outside {
    /// What follows changes and writes nothing.
    pub observers: Vec<Arc<dyn Observer>>,
    /// What is asked, and who answers.
    pub inquiries: Vec<Arc<dyn AnyInquiry>>,
    /// What carries calls out, one for each protocol.
    pub callers: Vec<Arc<dyn Caller>>,
    /// How many calls may be under way.
    pub call_bounds: CallBounds,
}

impl fmt::Debug for Outside {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let observers: Vec<&str> = self.observers.iter().map(|it| it.name()).collect();
        let inquiries: Vec<&str> = self.inquiries.iter().map(|it| it.name()).collect();
        let protocols: Vec<&str> = self.callers.iter().map(|it| it.protocol()).collect();
        to.debug_struct("Outside")
            .field("observers", &observers)
            .field("inquiries", &inquiries)
            .field("callers", &protocols)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
