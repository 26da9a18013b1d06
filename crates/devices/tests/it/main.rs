//! The allocator against a solver that is obviously right, and the scenarios of the specification.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod agree;
mod generate;
mod oracle;
mod scenarios;
mod shrink;
mod twins;
