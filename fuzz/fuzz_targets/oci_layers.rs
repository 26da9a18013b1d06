//! Tars as layers of an image: no panic, no endless work, and every file that is listed is read.
#![no_main]

use std::collections::BTreeMap;

use gantry_oci::tree::TreeEntry;
use gantry_oci::{
    Config, Descriptor, Digest, Family, Limits, Manifest, MediaType, MemoryBlobs, Tree,
};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Corrects the checksums of all blocks, which random input never has right. Content is changed
/// too, and does not matter.
fn with_checksums(layer: &mut [u8]) {
    for block in layer.chunks_exact_mut(512) {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    let middle = data.len() / 1024 * 512;
    let mut blobs = MemoryBlobs::default();
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    for part in [&data[..middle], &data[middle..]] {
        let mut layer = part.to_vec();
        if flags & 1 == 0 {
            with_checksums(&mut layer);
        }
        layers.push(Descriptor::of(MediaType::OciLayer, &layer));
        diff_ids.push(Digest::sha256(&layer).to_string());
        blobs.insert(layer);
    }
    let compressed = flags & 2 == 0;
    if compressed {
        // The digests before compression are not known here.
        diff_ids.clear();
    }
    let config = json!({ "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let config = Config::parse(config.to_string().as_bytes()).expect("it is a configuration");
    let descriptor = Descriptor::of(MediaType::OciConfig, config.bytes());
    let manifest = Manifest::new(Family::Oci, &descriptor, &layers, &BTreeMap::new());
    let limits = Limits { uncompressed_bytes: 64 << 20, ..Limits::default() };
    let Ok(tree) = Tree::read(&blobs, &manifest, &config, &limits) else { return };
    let mut paths = Vec::new();
    tree.walk(&mut |path, entry| {
        if matches!(entry, TreeEntry::File { .. }) {
            paths.push(path.clone());
        }
        paths.len() < 1000
    });
    let files = tree.read_files(&blobs, &manifest, &config, &paths).expect("it was read once");
    assert_eq!(files.len(), paths.len());
});
