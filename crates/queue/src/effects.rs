//! What the queue does beside deciding: it asks the server what its decisions need to know, answers the server
//! about AppWrappers, and counts.
//!
//! The decisions are pure and elsewhere. Here is what knows a client and a runtime.

use std::error::Error;

pub mod access;
pub mod admission;
pub mod kind_discovery;
pub mod metrics;
pub mod rules;

/// An error and what caused it, in one line.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}
