//! Modules in a simulated cluster.

mod cluster;
mod deletion;
mod drain;
mod failures;
mod images;
mod invariants;
mod parts;
mod proofs;
mod published;
mod rebuilds;
mod registry_and_secrets;
mod runners;
mod verdicts;
