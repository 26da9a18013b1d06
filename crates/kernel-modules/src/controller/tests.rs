//! Modules in a simulated cluster.

mod cluster;
mod deletion;
mod failures;
mod images;
mod invariants;
mod parts;
mod proofs;
mod published;
mod rebuilds;
mod runners;
mod verdicts;
