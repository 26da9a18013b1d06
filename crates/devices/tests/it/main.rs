//! Compares the allocator with an exhaustive solver, and runs the scenarios of the specification.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod agree;
mod generate;
mod oracle;
mod scenarios;
mod shrink;
mod twins;
