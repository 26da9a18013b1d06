//! The binary as a library: command line, configuration, wiring. It has no control logic.

pub mod admission_hooks;
pub mod cli;
pub mod config;
pub mod containers;
pub mod endpoint;
pub mod image_registry;
pub mod kubeconfig;
pub mod manifests;
mod model_programs;
pub mod operator;
pub mod output;
pub mod overview;
pub mod queue_pages;
pub mod sample_driver;
pub mod server;
mod status_page;
pub mod subsystems;
pub mod up;
pub mod version;
