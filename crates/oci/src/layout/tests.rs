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

/// An archive as `docker save` writes it, with the layers of an image.
fn docker_archive(layers: &[(&str, &str)], list: &str) -> Vec<u8> {
    let tar = |content: &str| Tar::default().file("etc/file", content).end();
    let diff_ids: Vec<String> = layers
        .iter()
        .map(|(_, content)| format!("{:?}", Digest::sha256(&tar(content)).as_str()))
        .collect();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    );
    let mut archive = Tar::default().file("config.json", &config);
    for (name, content) in layers {
        archive = archive.entry(b'0', name, "", &tar(content));
    }
    archive.symlink("old/layer.tar", "../1.tar").file("manifest.json", list).end()
}

const DOCKER_LAYERS: [(&str, &str); 2] = [("1.tar", "one"), ("2.tar", "two")];

#[test]
fn archives_of_docker_are_read() {
    let list = r#"[{"Config":"config.json","RepoTags":["a/b:v1","a/b:v2"],
                    "Layers":["old/layer.tar","2.tar"]}]"#;
    let archive = Archive::open(Cursor::new(docker_archive(&DOCKER_LAYERS, list))).unwrap();
    let image = archive.image(None).unwrap();
    assert_eq!(archive.image(Some("a/b:v2")).unwrap().digest(), image.digest());
    let error = archive.image(Some("a/b:v3")).unwrap_err().to_string();
    assert_eq!(error, "the image layout has no image \"a/b:v3\"; it has: a/b:v1, a/b:v2");
    let Document::Manifest(manifest) = crate::blob::read_document(&archive, image).unwrap() else {
        panic!("it is a manifest");
    };
    assert_eq!(manifest.family(), crate::Family::Oci);
    let config = crate::blob::read_config(&archive, manifest.config()).unwrap();
    let limits = crate::Limits::default();
    let tree = crate::Tree::read(&archive, &manifest, &config, &limits).unwrap();
    let paths = [crate::TreePath::from_user("/etc/file").unwrap()];
    let files = tree.read_files(&archive, &manifest, &config, &paths).unwrap();
    assert_eq!(files[0].content, b"two", "the upper layer wins");
    // Everything is verified while it is copied.
    let mut copied = MemoryBlobs::default();
    crate::blob::copy_image(&archive, &mut copied, image).unwrap();
    assert_eq!(copied.iter().count(), archive.digests().count());
    // Without names, and with layers in another order than the configuration states.
    let list = r#"[{"Config":"config.json","RepoTags":null,"Layers":["2.tar","1.tar"]}]"#;
    let archive = Archive::open(Cursor::new(docker_archive(&DOCKER_LAYERS, list))).unwrap();
    let image = archive.image(None).unwrap();
    let mut refused = MemoryBlobs::default();
    let error = crate::blob::copy_image(&archive, &mut refused, image).unwrap_err();
    assert!(matches!(error.problem, crate::BlobProblem::Wrong(_)), "{error}");
}

#[test]
fn hostile_archives_of_docker_are_refused() {
    let open = |list: &str| {
        let archive = Archive::open(Cursor::new(docker_archive(&DOCKER_LAYERS, list)));
        archive.unwrap_err().to_string()
    };
    let table = [
        ("{", "manifest.json is not JSON"),
        ("{}", "manifest.json is not a list of images"),
        ("[7]", "has an image without Config"),
        (r#"[{"Config":"config.json"}]"#, "has an image without Layers"),
        (r#"[{"Config":"config.json","Layers":[1]}]"#, "whose name is not a text"),
        (r#"[{"Config":"other.json","Layers":[]}]"#, "it has no file other.json"),
        (r#"[{"Config":"1.tar","Layers":[]}]"#, "malformed"),
        (r#"[{"Config":"config.json","Layers":["1.tar"]}]"#, "states 2 layers, and manifest.json"),
        (r#"[{"Config":"config.json","Layers":["1.tar","3.tar"]}]"#, "it has no file 3.tar"),
        (r#"[{"Config":"config.json","Layers":["1.tar","../1.tar"]}]"#, "it has no file ../1.tar"),
    ];
    for (list, expected) in table {
        let error = open(list);
        assert!(error.contains(expected), "{list}: {error}");
    }
    let many = format!("[{}]", vec!["7"; 1001].join(","));
    assert!(open(&many).contains("has more than 1000 images"));
    // Links lead to files of the archive, or nowhere.
    for target in ["/etc/passwd", "../../1.tar", "loop", "1.tar/.."] {
        let list = r#"[{"Config":"loop","Layers":[]}]"#;
        let tar = Tar::default().file("1.tar", "").symlink("loop", target);
        let error = Archive::open(Cursor::new(tar.file("manifest.json", list).end())).unwrap_err();
        assert!(error.to_string().contains("it has no file loop"), "{target}: {error}");
    }
}
