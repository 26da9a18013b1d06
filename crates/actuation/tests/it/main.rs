//! Proves the controllers of actuation in a simulated cluster.

mod pairing;
mod world;
