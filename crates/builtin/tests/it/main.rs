//! Compares the results of this crate with those of Kubernetes' own code.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fault in a test ends it")]

use std::io::Read as _;

use serde::de::DeserializeOwned;

mod conversions;
mod reading;
mod schemas;
mod served;
mod wire;

/// Opens a golden file.
fn golden<T: DeserializeOwned>(packed: &[u8]) -> T {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    serde_json::from_slice(&plain).unwrap()
}
