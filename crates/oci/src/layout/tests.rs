use std::io::Cursor;

use super::*;
use crate::blob::{BlobSink, MemoryBlobs, list_blobs};
use crate::build::ImageBuilder;
use crate::layer::NewEntry;
use crate::manifest::{Document, Manifest};
use crate::test_image::Tar;

fn image(content: &str) -> (MemoryBlobs, Manifest) {
    let mut blobs = MemoryBlobs::default();
    let created = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    let entries = vec![NewEntry::file("etc/file", content.as_bytes().to_vec(), 0o644)];
    let manifest = ImageBuilder::from_scratch("linux/amd64".parse().unwrap(), created)
        .layer(entries, "test")
        .unwrap()
        .build(&mut blobs)
        .unwrap();
    (blobs, manifest)
}

#[test]
fn images_are_saved_and_found_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut layout = Layout::create(directory.path()).unwrap();
    assert!(matches!(layout.image(None), Err(LayoutError::Empty)));
    let (one_blobs, one) = image("one");
    let (two_blobs, two) = image("two");
    save_image(&one_blobs, &mut layout, &one.descriptor(), Some("one")).unwrap();
    assert_eq!(layout.image(None).unwrap().digest(), one.digest());
    save_image(&two_blobs, &mut layout, &two.descriptor(), Some("two")).unwrap();
    let layout = Layout::open(directory.path()).unwrap();
    assert_eq!(layout.image(Some("two")).unwrap().digest(), two.digest());
    assert_eq!(layout.image(Some(one.digest().as_str())).unwrap().digest(), one.digest());
    let error = layout.image(None).unwrap_err().to_string();
    assert_eq!(error, "the image layout has several images; name one of: one, two");
    let error = layout.image(Some("three")).unwrap_err().to_string();
    assert_eq!(error, "the image layout has no image \"three\"; it has: one, two");
    let found = crate::blob::read_document(&layout, layout.image(Some("one")).unwrap()).unwrap();
    assert_eq!(found, Document::Manifest(one.clone()));
    // A name moves to another image.
    let mut layout = layout;
    layout.set_image(&one.descriptor(), Some("two")).unwrap();
    assert_eq!(layout.image(Some("two")).unwrap().digest(), one.digest());
    assert_eq!(layout.index().manifests().len(), 2);
    assert_eq!(Layout::create(directory.path()).unwrap().index(), layout.index());
}

#[test]
fn wrong_blobs_are_not_stored_and_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut layout = Layout::create(directory.path()).unwrap();
    let (_, manifest) = image("one");
    let descriptor = manifest.descriptor();
    assert!(layout.put(&descriptor, &mut &b"other"[..]).is_err());
    assert!(!layout.contains(&descriptor));
    assert_eq!(walk(directory.path()), ["index.json", "oci-layout"], "nothing is left over");
    layout.put(&descriptor, &mut manifest.bytes()).unwrap();
    let path = directory.path().join(blob_path(descriptor.digest()));
    let mut tampered = manifest.bytes().to_vec();
    tampered[5] ^= 1;
    std::fs::write(path, tampered).unwrap();
    let error = crate::blob::read_document(&layout, &descriptor).unwrap_err();
    assert!(matches!(error.problem, crate::BlobProblem::Wrong(_)), "{error}");
}

/// The names of all files.
fn walk(root: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            names.extend(walk(&entry.path()));
        } else {
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    names.sort();
    names
}

#[test]
fn what_is_no_layout_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let error = |root| Layout::open(root).unwrap_err().to_string();
    assert!(error(root).contains("has no file oci-layout"));
    std::fs::write(root.join("oci-layout"), "{}").unwrap();
    assert!(error(root).contains("imageLayoutVersion 1.0.0"));
    std::fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    assert!(error(root).contains("imageLayoutVersion 1.0.0"));
    std::fs::write(root.join("oci-layout"), MARKER_CONTENT).unwrap();
    assert!(error(root).contains("index.json"));
    std::fs::write(root.join("index.json"), "{}").unwrap();
    assert!(matches!(Layout::open(root), Err(LayoutError::Index(_))));
}

#[test]
fn archives_are_written_reproducibly_and_read_back() {
    let (blobs, manifest) = image("one");
    let write = || {
        let mut tar = Vec::new();
        write_archive(&blobs, &manifest.descriptor(), Some("v1"), &mut tar).unwrap();
        tar
    };
    let tar = write();
    assert_eq!(write(), tar);
    let archive = Archive::open(Cursor::new(tar)).unwrap();
    let found = archive.image(Some("v1")).unwrap();
    let expected = list_blobs(&blobs, &manifest.descriptor()).unwrap();
    assert_eq!(list_blobs(&archive, found).unwrap().len(), expected.len());
    assert_eq!(archive.digests().count(), expected.len());
    let mut copied = MemoryBlobs::default();
    crate::blob::copy_image(&archive, &mut copied, found).unwrap();
    assert_eq!(copied, blobs);
}

#[test]
fn hostile_archives_are_refused() {
    let open = |tar: Vec<u8>| Archive::open(Cursor::new(tar)).unwrap_err().to_string();
    let marker = || Tar::default().file("oci-layout", MARKER_CONTENT);
    assert!(open(Vec::new()).contains("it has no file oci-layout"));
    assert!(open(marker().end()).contains("it has no file index.json"));
    assert!(open(marker().file("index.json", "[]").end()).contains("malformed"));
    let long = " ".repeat(5000);
    assert!(open(Tar::default().file("oci-layout", &long).end()).contains("larger than 4096"));
    let lying = marker().entry(b'0', "big", "", b"").patch_header(124, b"77777777777\0");
    assert!(open(lying.end()).contains("ends within an entry"));
    assert!(open(b"\x1f\x8b\x08 compressed".repeat(100)).contains("checksum"));
}
