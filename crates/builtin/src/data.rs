//! The embedded generated files, and how they are decompressed.

use std::io::Read as _;

use serde::de::DeserializeOwned;

/// Every type and kind: `data/types.json.gz`.
pub(crate) const TYPES: &[u8] = include_bytes!("../data/types.json.gz");

/// The discovery documents of a server: `data/discovery.json.gz`.
pub(crate) const DISCOVERY: &[u8] = include_bytes!("../data/discovery.json.gz");

/// Decompresses one of the embedded files.
///
/// # Panics
/// If the file is damaged, which a test of this crate would have found.
pub(crate) fn inflate(packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(packed.len() * 8);
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut plain)
        .expect("embedded files are whole, a test opens each of them");
    plain
}

/// Decompresses and parses one of the embedded files.
///
/// # Panics
/// If the file is damaged, which a test of this crate would have found.
pub(crate) fn parse<T: DeserializeOwned>(packed: &[u8]) -> T {
    serde_json::from_slice(&inflate(packed))
        .expect("embedded files are well formed, a test opens each of them")
}
