//! What tests and benches stand on; never part of the product.
//!
//! [`http`] sends exactly the request it is given and returns exactly what came back, which is
//! what a comparison of two servers and a load generator both need.

pub mod cluster;

pub mod http;

pub mod pki;
pub mod programs;
pub mod run;
