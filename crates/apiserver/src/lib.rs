//! Speaks the Kubernetes HTTP protocol over the store.

pub mod status;

pub mod negotiate;
pub mod query;
pub mod route;
pub mod selector;

pub mod stored;
