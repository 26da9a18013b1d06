//! The merged tree of random layers, compared with what umoci unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use gantry_oci::blob::{copy_image, read_config};
use gantry_oci::layer::{Attributes, Limits, NewEntry, NewEntryKind, write_layer};
use gantry_oci::layout::Layout;
use gantry_oci::tree::TreeEntry;
use gantry_oci::{Config, Descriptor, Digest, Family, Manifest, MediaType, MemoryBlobs, Tree};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::tools::available;

/// How many random images are compared.
const IMAGES: usize = 150;

fn any_entry() -> impl Strategy<Value = NewEntry> {
    let name = || "[abc](/[ab]){0,2}";
    let entry = |path: String, kind, mode| {
        let attributes = Attributes { mode, ..Attributes::default() };
        NewEntry { path: path.into_bytes(), kind, attributes }
    };
    prop_oneof![
        5 => (name(), "[a-z]{0,3}").prop_map(move |(path, content)| {
            entry(path, NewEntryKind::File(content.into_bytes()), 0o644)
        }),
        3 => name().prop_map(move |path| entry(path, NewEntryKind::Directory, 0o755)),
        2 => (name(), "(/|\\.\\./)?[abc](/[ab])?").prop_map(move |(path, target)| {
            entry(path, NewEntryKind::Symlink(target.into_bytes()), 0o777)
        }),
        1 => (name(), name()).prop_map(move |(path, target)| {
            entry(path, NewEntryKind::HardLink(target.into_bytes()), 0o644)
        }),
        2 => "([abc]/){0,2}\\.wh\\.[abc]".prop_map(move |path| {
            entry(path, NewEntryKind::File(Vec::new()), 0o644)
        }),
        1 => "([abc]/){0,1}\\.wh\\.\\.wh\\.\\.opq".prop_map(move |path| {
            entry(path, NewEntryKind::File(Vec::new()), 0o644)
        }),
    ]
}

/// Layers as writers make them: each path once, sorted.
fn any_layers() -> impl Strategy<Value = Vec<Vec<NewEntry>>> {
    let layer = proptest::collection::vec(any_entry(), 1..6).prop_map(|entries| {
        let by_path: BTreeMap<Vec<u8>, NewEntry> =
            entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        by_path.into_values().collect()
    });
    proptest::collection::vec(layer, 1..4)
}

fn image(layers: &[Vec<NewEntry>]) -> (MemoryBlobs, Manifest) {
    let mut blobs = MemoryBlobs::default();
    let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
    for entries in layers {
        let layer = write_layer(entries).unwrap();
        descriptors.push(layer.descriptor(Family::Oci));
        diff_ids.push(layer.diff_id.clone());
        blobs.insert(layer.content);
    }
    let ids: Vec<&str> = diff_ids.iter().map(Digest::as_str).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": ids },
    });
    let config = Config::parse(config.to_string().as_bytes()).unwrap();
    blobs.insert(config.bytes().to_vec());
    let descriptor = Descriptor::of(MediaType::OciConfig, config.bytes());
    let manifest = Manifest::new(Family::Oci, &descriptor, &descriptors, &BTreeMap::new());
    blobs.insert(manifest.bytes().to_vec());
    (blobs, manifest)
}

fn ours(blobs: &MemoryBlobs, manifest: &Manifest) -> Result<Vec<String>, String> {
    let config = read_config(blobs, manifest.config()).unwrap();
    let tree = Tree::read(blobs, manifest, &config, &Limits::default())
        .map_err(|error| error.to_string())?;
    let (mut lines, mut paths) = (Vec::new(), Vec::new());
    tree.walk(&mut |path, entry| {
        match entry {
            TreeEntry::Directory => lines.push(format!("{path}/")),
            TreeEntry::File { .. } => paths.push(path.clone()),
            TreeEntry::Symlink { target } => {
                lines.push(format!("{path} -> {}", String::from_utf8_lossy(target)));
            }
            TreeEntry::Special => lines.push(format!("{path} special")),
        }
        true
    });
    for file in tree.read_files(blobs, manifest, &config, &paths).unwrap() {
        lines.push(format!("{}={}", file.path, String::from_utf8_lossy(&file.content)));
    }
    lines.sort();
    Ok(lines)
}

fn theirs(root: &Path, below: &str, lines: &mut Vec<String>) {
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        let path = format!("{below}/{}", entry.file_name().into_string().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            lines.push(format!("{path}/"));
            theirs(&entry.path(), &path, lines);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            lines.push(format!("{path} -> {}", target.display()));
        } else {
            let content = fs::read(entry.path()).unwrap();
            lines.push(format!("{path}={}", String::from_utf8_lossy(&content)));
        }
    }
}

#[test]
fn kms_57_random_layers_are_merged_as_umoci_merges_them() {
    if !available("kms_57_random_layers_are_merged_as_umoci_merges_them", &["umoci"]) {
        return;
    }
    let mut runner = TestRunner::deterministic();
    let mut compared = 0;
    for number in 0..IMAGES {
        let layers = any_layers().new_tree(&mut runner).unwrap().current();
        let (blobs, manifest) = image(&layers);
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut layout = Layout::create(&root.join("layout")).unwrap();
        copy_image(&blobs, &mut layout, &manifest.descriptor()).unwrap();
        layout.set_image(&manifest.descriptor(), Some("v1")).unwrap();
        let output = Command::new("umoci")
            .args(["unpack", "--rootless", "--image", "layout:v1", "bundle"])
            .current_dir(root)
            .output()
            .unwrap();
        // We accept all that umoci accepts, and a hard link to itself, on which it fails.
        if !output.status.success() {
            continue;
        }
        let ours = ours(&blobs, &manifest).unwrap();
        let mut lines = Vec::new();
        theirs(&root.join("bundle/rootfs"), "", &mut lines);
        lines.sort();
        let shown: Vec<Vec<String>> = layers
            .iter()
            .map(|entries| {
                let show = |entry: &NewEntry| {
                    format!("{} {:?}", String::from_utf8_lossy(&entry.path), entry.kind)
                };
                entries.iter().map(show).collect()
            })
            .collect();
        assert_eq!(ours, lines, "image {number}: {shown:#?}");
        compared += 1;
    }
    assert!(compared > IMAGES / 3, "only {compared} of {IMAGES} could be compared");
}
