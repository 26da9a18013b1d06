//! The files that came with the original, and one for every later form. The findings about each are
//! announced in it and checked with the manifests of all kinds.

use std::fs;

use super::{documents, value};
use crate::alias;
use crate::decode::{self, Decoded, Options};
use crate::finding::Findings;
use gantry_yaml::node::Node;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests/devices");

fn read(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}")).unwrap()
}

/// Reading is idempotent.
#[test]
fn canonical_output_is_left_alone() {
    for entry in fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap_or_default() {
            if document.content == Decoded::Refused {
                continue;
            }
            let once = value(&document);
            if let Decoded::Object(object) = &document.content {
                let mut node = Node::from_json(&once);
                let mut findings = Findings::default();
                alias::rewrite(object.kind().aliases, &mut node, &mut findings);
                (object.kind().normalise)(&mut node, &mut findings);
                assert_eq!(node.to_json(), once, "{}", document.subject);
                assert_eq!(findings, Findings::default(), "{}", document.subject);
            }
            let again = documents(&once.to_string()).remove(0);
            assert_eq!(value(&again), once, "{path:?}: {}", document.subject);
        }
    }
}

/// The pods of both files are one object, applied twice.
#[test]
fn the_two_foozer_pods_are_the_same_object() {
    let subjects: Vec<String> =
        ["pod-template-foozer-single.yaml", "pod-embedded-foozer-single.yaml"]
            .iter()
            .map(|file| documents(&read(file)).pop().unwrap().subject)
            .collect();
    assert_eq!(subjects[0], subjects[1]);
}
