//! What this crate makes of objects, judged by what Kubernetes' own code made of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fault in a test ends it")]

use std::io::Read as _;

use serde::de::DeserializeOwned;

mod reading;
mod schemas;
mod served;
mod views;
mod wire;

/// Opens a golden file.
fn golden<T: DeserializeOwned>(packed: &[u8]) -> T {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    serde_json::from_slice(&plain).unwrap()
}
