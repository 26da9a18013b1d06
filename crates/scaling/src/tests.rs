//! Whole runs: whatever faults occur, everything bought is released, and nothing is bought twice.

mod models;
mod plans;
mod service;

mod groups;
mod handover;
mod machine_sets;
mod managed_pools;
mod shapes;
mod waiting;
