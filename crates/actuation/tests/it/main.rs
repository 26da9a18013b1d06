//! Proves the controllers of actuation in a simulated cluster.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod failures;
mod pairing;
mod population;
mod world;
mod worlds;
