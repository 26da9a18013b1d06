//! Manifests, indexes and configurations: bytes are kept, and what is written reads back.
#![no_main]

use std::collections::BTreeMap;

use gantry_oci::{Config, Document, Platform};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(bytes, None) {
        assert_eq!(document.bytes(), bytes);
        let rewritten = match &document {
            Document::Manifest(manifest) => Document::Manifest(manifest.with_content(
                manifest.config(),
                manifest.layers(),
                &BTreeMap::new(),
            )),
            Document::Index(index) => {
                let machine: Platform = "linux/arm64".parse().expect("it is a platform");
                let _ = index.choose(&machine);
                Document::Index(index.with_manifests(index.manifests(), &BTreeMap::new()))
            }
        };
        let declared = Some(document.media_type());
        let read = Document::parse(rewritten.bytes(), declared).expect("it was written by us");
        assert_eq!(read, rewritten);
    }
    if let Ok(config) = Config::parse(bytes) {
        assert_eq!(config.bytes(), bytes);
        let labelled = config.with_label("name", "value");
        assert_eq!(Config::parse(labelled.bytes()).expect("it was written by us"), labelled);
    }
});
