//! The controllers together, against the model of a server.

mod answers;
mod build;
mod configs;
mod crashes;
mod crowd;
mod decisions;
mod gates;
mod invariants;
mod refusals;
mod rules;
mod scenarios;
