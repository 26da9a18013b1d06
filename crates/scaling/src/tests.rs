//! Whole runs: whatever goes wrong on the way, everything bought is given back, and nothing twice.

mod models;
mod plans;
mod service;

mod groups;
mod handover;
mod machine_sets;
mod managed_pools;
mod shapes;
mod waiting;
