use serde_json::{Value, json};

use super::*;
use crate::blob::{Layered, MemoryBlobs};
use crate::layer::{
    Attributes, LayerEntry, Mtime, NewEntry, NewEntryKind, read_layer, write_layer,
};
use crate::media_type::{Family, MediaType};
use crate::test_image::{Image, image_of};

fn attributes() -> Attributes {
    Attributes {
        mode: 0o4640,
        uid: 5,
        gid: 6,
        user: b"driver".to_vec(),
        group: b"drivers".to_vec(),
        mtime: Mtime { seconds: 1_600_000_000, nanoseconds: 5 },
        xattrs: [("security.evm", "1"), ("security.ima", "2"), ("user.note", "3")]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .to_vec(),
    }
}

fn file(path: &str, content: &str) -> NewEntry {
    let kind = NewEntryKind::File(content.as_bytes().to_vec());
    NewEntry { path: path.as_bytes().to_vec(), kind, attributes: attributes() }
}

fn image(family: Family, layers: &[&[NewEntry]]) -> Image {
    let written: Vec<_> = layers.iter().map(|entries| write_layer(entries).unwrap()).collect();
    let blobs: Vec<Vec<u8>> = written.iter().map(|layer| layer.content.clone()).collect();
    let diff_ids: Vec<Digest> = written.iter().map(|layer| layer.diff_id.clone()).collect();
    image_of(family, &blobs, &diff_ids)
}

fn usual(family: Family) -> Image {
    let hard = NewEntryKind::HardLink(b"opt/b.ko".to_vec());
    let hard = NewEntry { path: b"opt/hard.ko".to_vec(), kind: hard, attributes: attributes() };
    image(
        family,
        &[
            &[file("opt/a.ko", "old a"), file("opt/b.ko", "b"), file("etc/x", "x")],
            &[file("opt/a.ko", "a"), hard, NewEntry::symlink("opt/link.ko", "a.ko")],
        ],
    )
}

fn options(patterns: &[&str]) -> Options {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    Options::new(patterns, Timestamp::from_second(1_700_000_000).unwrap())
}

/// Appends a signature.
fn sign(file: &SelectedFile) -> Result<Edit, BoxError> {
    Ok(Edit::Replace([&file.content[..], b"+signed"].concat()))
}

fn run(image: &Image, options: &Options) -> Result<(Repacked, MemoryBlobs), RepackError> {
    let mut sink = MemoryBlobs::default();
    let document = Document::Manifest(image.manifest.clone());
    let repacked = repack(&image.blobs, &mut sink, &document, options, &mut sign)?;
    Ok((repacked, sink))
}

fn entries(blobs: &MemoryBlobs, layer: &Descriptor) -> Vec<(LayerEntry, String)> {
    let mut entries = Vec::new();
    read_layer(blobs, layer, None, &Limits::default(), &mut |entry, content| {
        let mut text = String::new();
        content.read_to_string(&mut text).unwrap();
        entries.push((entry.clone(), text));
        Ok(())
    })
    .unwrap();
    entries
}

#[test]
fn kms_58_one_layer_with_the_changed_files_is_added() {
    for family in [Family::Oci, Family::Docker] {
        let image = usual(family);
        let base: Repository = "quay.io/team/driver".parse().unwrap();
        let options = options(&["/opt/link.ko", "/opt/hard.ko", "/opt/a.ko"]);
        let options = options.with_base(&base, Some("v1"));
        let (repacked, sink) = run(&image, &options).unwrap();
        let Document::Manifest(manifest) = &repacked.document else { panic!("a manifest") };
        let files = &repacked.images[0].files;
        let names: Vec<String> = files.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(names, ["/opt/a.ko", "/opt/hard.ko"]);

        assert_eq!(manifest.media_type(), image.manifest.media_type());
        assert_eq!(manifest.layers()[..2], *image.manifest.layers());
        assert_eq!(manifest.layers().len(), 3);
        let layer = &manifest.layers()[2];
        assert_eq!(*layer.media_type(), MediaType::gzip_layer_of(family));
        assert_eq!(*manifest.config().media_type(), MediaType::config_of(family));
        let written = entries(&sink, layer);
        let shown: Vec<(String, &str)> = written
            .iter()
            .map(|(entry, text)| (String::from_utf8_lossy(&entry.name).into_owned(), &**text))
            .collect();
        let expected = [("opt/a.ko", "a+signed"), ("opt/hard.ko", "b+signed")];
        assert_eq!(shown, expected.map(|(name, text)| (name.to_owned(), text)));
        for (entry, _) in &written {
            let mut expected = attributes();
            expected.xattrs.drain(..2);
            assert_eq!(entry.attributes, expected);
        }

        let config = sink.get(manifest.config().digest()).unwrap();
        let config: Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
        assert_eq!(
            config["history"][2],
            json!({
                "created": "2023-11-14T22:13:20Z",
                "created_by": "gantry modules sign",
                "comment": "2 files",
            })
        );
        let annotations = manifest.annotations();
        match family {
            Family::Oci => {
                let digest = image.manifest.digest().as_str();
                assert_eq!(annotations["org.opencontainers.image.base.digest"], digest);
                assert_eq!(
                    annotations["org.opencontainers.image.base.name"],
                    "quay.io/team/driver:v1"
                );
            }
            Family::Docker => assert!(annotations.is_empty()),
        }
        assert_eq!(sink.iter().count(), 3, "layer, configuration and manifest are new");

        let (again, second) = run(&image, &options).unwrap();
        assert_eq!(again.document.digest(), repacked.document.digest(), "the same again");
        assert_eq!(second, sink);
        // The new image is read as one.
        let both = Layered(&sink, &image.blobs);
        let config = blob::read_config(&both, manifest.config()).unwrap();
        let tree = crate::Tree::read(&both, manifest, &config, &Limits::default()).unwrap();
        let paths = [TreePath::from_user("/opt/a.ko").unwrap()];
        let files = tree.read_files(&both, manifest, &config, &paths).unwrap();
        assert_eq!(files[0].content, b"a+signed");
    }
}

#[test]
fn kms_58_the_digest_of_a_repacked_image_stays() {
    // A user who signs again with another release of this program gets the same image, except
    // after a release of the compressor that finds shorter forms: that is one for the changelog.
    let (repacked, sink) = run(&usual(Family::Oci), &options(&["/opt/*.ko"])).unwrap();
    let Document::Manifest(manifest) = &repacked.document else { panic!("a manifest") };
    let config = blob::read_config(&sink, manifest.config()).unwrap();
    assert_eq!(
        (config.diff_ids()[2].as_str(), manifest.digest().as_str()),
        (
            "sha256:2b77ec2e00b65fcf93e4e8042a229a856cef1c24ad2595c8f7472ba65f9c1bb7",
            "sha256:f86ccc519e7233c43562d81729b9a8acdb8ecc0ff5909bc142e9e1529d283bec"
        )
    );
}

#[test]
fn kms_58_nothing_changes_if_no_file_does() {
    let image = usual(Family::Oci);
    let document = Document::Manifest(image.manifest.clone());
    for edit in [Edit::Keep, Edit::Replace(b"a".to_vec())] {
        let mut sink = MemoryBlobs::default();
        let mut editor = |_: &SelectedFile| Ok(edit.clone());
        let options = options(&["/opt/a.ko"]);
        let repacked = repack(&image.blobs, &mut sink, &document, &options, &mut editor).unwrap();
        assert!(!repacked.is_changed());
        assert_eq!(repacked.document, document);
        assert_eq!(repacked.document.bytes(), image.manifest.bytes());
        assert_eq!(sink.iter().count(), 1, "only the manifest itself");
    }
}

#[test]
fn kms_58_labels_and_annotations_are_added() {
    let mut options = options(&["/opt/a.ko"]);
    options.labels.insert("inputs".to_owned(), "1".to_owned());
    options.annotations.insert("inputs".to_owned(), "2".to_owned());
    let (repacked, sink) = run(&usual(Family::Oci), &options).unwrap();
    let Document::Manifest(manifest) = &repacked.document else { panic!("a manifest") };
    assert_eq!(manifest.annotations()["inputs"], "2");
    let config = blob::read_config(&sink, manifest.config()).unwrap();
    assert_eq!(config.labels()["inputs"], "1");
}

#[test]
fn kms_57_an_entry_that_matches_nothing_is_an_error_before_any_edit() {
    let image = usual(Family::Oci);
    let document = Document::Manifest(image.manifest.clone());
    let mut sink = MemoryBlobs::default();
    let mut editor = |_: &SelectedFile| panic!("no file is edited");
    let options = options(&["/opt/a.ko", "/lib/a.ko"]);
    let error = repack(&image.blobs, &mut sink, &document, &options, &mut editor).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot select files: /lib/a.ko matches no file; similar: /opt/a.ko"
    );
    assert_eq!(sink.iter().count(), 0);
}

#[test]
fn errors_say_which_file_and_why() {
    let image = usual(Family::Oci);
    let document = Document::Manifest(image.manifest.clone());
    let mut editor = |_: &SelectedFile| Err::<Edit, BoxError>("not ELF".into());
    let mut sink = MemoryBlobs::default();
    let options = options(&["/etc/x"]);
    let error = repack(&image.blobs, &mut sink, &document, &options, &mut editor).unwrap_err();
    let RepackError::Edit { path, source } = error else { panic!("{error}") };
    assert_eq!((path.to_string(), source.to_string()), ("/etc/x".to_owned(), "not ELF".to_owned()));
    let short = image_of(Family::Oci, &[write_layer(&[]).unwrap().content], &[]);
    let error = run(&short, &options).unwrap_err();
    assert!(matches!(error, RepackError::Inconsistent { layers: 1, diff_ids: 0, .. }), "{error}");
    let config = Descriptor::of(MediaType::from("application/vnd.cncf.helm.config.v1+json"), b"{}");
    let chart = Manifest::new(Family::Oci, &config, &[], &BTreeMap::new());
    let document = Document::Manifest(chart);
    let error = repack(&image.blobs, &mut sink, &document, &options, &mut sign).unwrap_err();
    assert!(matches!(error, RepackError::NotAnImage { .. }), "{error}");
}

/// An index with children for three platforms, an attestation and a Windows image.
fn index(family: Family) -> (MemoryBlobs, Index) {
    let mut blobs = MemoryBlobs::default();
    let mut children = Vec::new();
    let images = [
        ("linux/amd64", image(family, &[&[file("opt/a.ko", "amd64")]])),
        ("unknown/unknown", image(family, &[&[file("opt/a.ko", "attestation")]])),
        ("linux/arm64", image(family, &[&[file("opt/a.ko", "arm64"), file("opt/arm.ko", "x")]])),
        ("windows/amd64", image(family, &[&[file("opt/a.ko", "windows")]])),
        ("linux/s390x", image(family, &[&[file("other", "s390x")]])),
    ];
    for (platform, image) in images {
        for (_, content) in image.blobs.iter() {
            blobs.insert(content.to_vec());
        }
        let child = image.manifest.descriptor().with_annotation("of", platform);
        children.push(child.with_platform(&platform.parse().unwrap()));
    }
    let annotations = BTreeMap::from([("kept".to_owned(), "yes".to_owned())]);
    let index = Index::new(family, &children, &annotations);
    (blobs, index)
}

#[test]
fn kms_59_each_linux_image_of_an_index_is_repacked_and_attestations_are_dropped() {
    for family in [Family::Oci, Family::Docker] {
        let (blobs, old) = index(family);
        let mut sink = MemoryBlobs::default();
        let document = Document::Index(old.clone());
        let options = options(&["/opt/a.ko", "/opt/arm.ko"]);
        let repacked = repack(&blobs, &mut sink, &document, &options, &mut sign).unwrap();
        let Document::Index(new) = &repacked.document else { panic!("an index") };
        assert_eq!(new.media_type(), old.media_type());
        assert_eq!(new.annotations(), old.annotations());
        let platforms: Vec<String> =
            new.manifests().iter().map(|child| child.platform().unwrap().to_string()).collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64", "windows/amd64", "linux/s390x"]);
        for (place, child) in new.manifests().iter().enumerate() {
            assert_eq!(child.annotations()["of"], platforms[place]);
        }
        assert_ne!(new.manifests()[0].digest(), old.manifests()[0].digest());
        assert_eq!(new.manifests()[2], old.manifests()[3], "another system is not touched");
        assert_eq!(new.manifests()[3], old.manifests()[4], "nor is one without a match");
        let both = Layered(&sink, &blobs);
        let arm = blob::read_document(&both, &new.manifests()[1]).unwrap();
        let Document::Manifest(arm) = arm else { panic!("a manifest") };
        let texts: Vec<String> =
            entries(&sink, &arm.layers()[1]).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["arm64+signed", "x+signed"]);
        assert_eq!(sink.get(new.digest()).unwrap(), new.bytes());
        let listed = blob::list_blobs(&both, &new.descriptor()).unwrap();
        assert_eq!(listed.last().unwrap().digest(), new.digest());
    }
}

#[test]
fn kms_59_an_index_without_change_keeps_its_bytes_and_its_attestations() {
    let (blobs, old) = index(Family::Oci);
    let mut sink = MemoryBlobs::default();
    let document = Document::Index(old);
    let options = options(&["/opt/a.ko"]);
    let mut keep = |_: &SelectedFile| Ok(Edit::Keep);
    let repacked = repack(&blobs, &mut sink, &document, &options, &mut keep).unwrap();
    assert_eq!(repacked.document, document);
    assert!(!repacked.is_changed());
}

#[test]
fn kms_59_at_least_one_image_must_match() {
    let (blobs, old) = index(Family::Oci);
    let mut sink = MemoryBlobs::default();
    let document = Document::Index(old.clone());
    for patterns in [&["/nothing"][..], &["/opt/a.ko", "/nothing"]] {
        let options = options(patterns);
        let error = repack(&blobs, &mut sink, &document, &options, &mut sign).unwrap_err();
        assert_eq!(error.to_string(), "cannot select files: /nothing matches no file");
    }
    let windows = old.with_manifests(&old.manifests()[3..4], &BTreeMap::new());
    let document = Document::Index(windows);
    let error = repack(&blobs, &mut sink, &document, &options(&["/a"]), &mut sign).unwrap_err();
    assert!(matches!(error, RepackError::NoLinuxImage { .. }), "{error}");
}

#[test]
fn kms_59_a_child_without_platform_is_told_by_its_configuration() {
    let (blobs, old) = index(Family::Oci);
    let child = |place: usize| {
        let child = &old.manifests()[place];
        Descriptor::new(child.media_type().clone(), child.digest().clone(), child.size())
    };
    let bare = Index::new(Family::Oci, &[child(0)], &BTreeMap::new());
    let mut sink = MemoryBlobs::default();
    let document = Document::Index(bare);
    let options = options(&["/opt/a.ko"]);
    let repacked = repack(&blobs, &mut sink, &document, &options, &mut sign).unwrap();
    assert!(repacked.is_changed());
}
