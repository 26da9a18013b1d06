//! Connects to systems outside the API: observers, inquiries and calls.
//!
//! Decisions are pure and are made in the crates of their subsystems. This module does the I/O for
//! them, once for the whole process: [`Observer`]s receive every change, [`inquiries`] asks the
//! open questions of an [`Inquiry`](gantry_reconcile::Inquiry), and [`calls`] keeps the calls in
//! flight that plans want. Answers and replies become facts and enqueue the keys that depend on
//! them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_reconcile::Observer;
use gantry_reconcile::call::CallBounds;

pub mod calls;
pub mod inquiries;

pub use calls::{CallError, Caller};
pub use inquiries::{AnyInquiry, InquiryWithResponder, Responder, ResponderContext};

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The observers, inquiries and callers of a manager.
#[derive(Clone, Default)]
pub struct ExternalSystems {
    /// They follow changes and write nothing.
    pub observers: Vec<Arc<dyn Observer>>,
    /// Inquiries with their responders.
    pub inquiries: Vec<Arc<dyn AnyInquiry>>,
    /// They execute calls, one caller for each protocol.
    pub callers: Vec<Arc<dyn Caller>>,
    /// How many calls may be in flight.
    pub call_bounds: CallBounds,
}

impl fmt::Debug for ExternalSystems {
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
