//! Tests the controllers together, against a model of the API server.

mod build;
mod closed_pools;
mod configs;
mod crashes;
mod decisions;
mod gates;
mod invariants;
mod rules;
mod scenarios;
mod search_cache;
mod stress;
