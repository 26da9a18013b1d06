//! Expressions from the outside: what a real server answers, and what must never happen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check;
mod fuzz;
mod host;
mod limits;
mod upstream;
mod view;
