//! Images that this crate writes, read by skopeo and umoci.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gantry_oci::blob::read_config;
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::{NewEntry, NewEntryKind};
use gantry_oci::layout::{Archive, Layout, save_image, write_archive};
use gantry_oci::repack::{Edit, Options, repack};
use gantry_oci::{
    BlobSink, BlobSource, Descriptor, Document, Family, Manifest, MediaType, MemoryBlobs,
    SelectedFile,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::tools::{available, run, unpack};

fn created() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn image(blobs: &mut MemoryBlobs) -> Manifest {
    let long = "long/".repeat(30) + "name";
    let mut link = NewEntry::file("opt/hard.ko", Vec::new(), 0o640);
    link.kind = NewEntryKind::HardLink(b"opt/a.ko".to_vec());
    ImageBuilder::from_scratch("linux/amd64".parse().unwrap(), created())
        .layer(
            vec![
                NewEntry::file("opt/a.ko", b"module a".to_vec(), 0o640),
                link,
                NewEntry::file(&long, b"long".to_vec(), 0o755),
                NewEntry::file("grün/ä", b"utf-8".to_vec(), 0o644),
                NewEntry::symlink("lib", "opt"),
            ],
            "first",
        )
        .unwrap()
        .layer(vec![NewEntry::file("opt/b.ko", b"module b".to_vec(), 0o600)], "second")
        .unwrap()
        .entrypoint(&["/opt/run"])
        .label("org.example.test", "yes")
        .build(blobs)
        .unwrap()
}

fn sign(file: &SelectedFile) -> Result<Edit, gantry_oci::repack::BoxError> {
    Ok(Edit::Replace([&file.content[..], b" signed"].concat()))
}

#[test]
fn kms_58_other_tools_read_our_layouts_and_archives() {
    if !available("kms_58_other_tools_read_our_layouts_and_archives", &["skopeo", "umoci"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut blobs = MemoryBlobs::default();
    let manifest = image(&mut blobs);
    let mut layout = Layout::create(&root.join("layout")).unwrap();
    save_image(&blobs, &mut layout, &manifest.descriptor(), Some("v1")).unwrap();
    let mut tar = fs::File::create(root.join("image.tar")).unwrap();
    write_archive(&blobs, &manifest.descriptor(), Some("v1"), &mut tar).unwrap();
    for image in ["oci:layout:v1", "oci-archive:image.tar:v1"] {
        let raw = run(root, "skopeo", &["inspect", "--raw", image]);
        assert_eq!(raw.as_bytes(), manifest.bytes(), "{image}");
        let inspected: Value =
            serde_json::from_str(&run(root, "skopeo", &["inspect", image])).unwrap();
        assert_eq!(inspected["Labels"]["org.example.test"], "yes");
        assert_eq!(inspected["Layers"].as_array().unwrap().len(), 2);
        assert_eq!(inspected["Digest"], manifest.digest().as_str());
    }
    unpack(root, "layout:v1", "bundle");
    let file = |path: &str| fs::read(root.join("bundle/rootfs").join(path)).unwrap();
    assert_eq!(file("opt/a.ko"), b"module a");
    assert_eq!(file("lib/hard.ko"), b"module a");
    assert_eq!(file("opt/b.ko"), b"module b");
    assert_eq!(file(&("long/".repeat(30) + "name")), b"long");
    assert_eq!(file("grün/ä"), b"utf-8");
    let mode = |path: &str| {
        fs::metadata(root.join("bundle/rootfs").join(path)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode("opt/a.ko"), mode("opt/b.ko"), mode("opt")), (0o640, 0o600, 0o755));
}

#[test]
fn kms_58_an_image_of_umoci_is_repacked_and_unpacked_by_umoci() {
    let name = "kms_58_an_image_of_umoci_is_repacked_and_unpacked_by_umoci";
    if !available(name, &["skopeo", "umoci"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(root, "umoci", &["init", "--layout", "layout"]);
    run(root, "umoci", &["new", "--image", "layout:v1"]);
    unpack(root, "layout:v1", "first");
    let rootfs = root.join("first/rootfs");
    fs::create_dir_all(rootfs.join("opt/lib")).unwrap();
    fs::write(rootfs.join("opt/lib/a.ko"), "a").unwrap();
    fs::write(rootfs.join("opt/lib/gone.ko"), "gone").unwrap();
    run(root, "umoci", &["repack", "--image", "layout:v1", "first"]);
    unpack(root, "layout:v1", "second");
    let rootfs = root.join("second/rootfs");
    fs::write(rootfs.join("opt/lib/b.ko"), "b").unwrap();
    fs::remove_file(rootfs.join("opt/lib/gone.ko")).unwrap();
    run(root, "umoci", &["repack", "--image", "layout:v1", "second"]);

    let mut layout = Layout::open(&root.join("layout")).unwrap();
    let old = layout.image(Some("v1")).unwrap().clone();
    let document = gantry_oci::blob::read_document(&layout, &old).unwrap();
    let source = Layout::open(&root.join("layout")).unwrap();
    let options = Options::new(vec!["/opt/lib/*.ko".parse().unwrap()], created());
    let repacked = repack(&source, &mut layout, &document, &options, &mut sign).unwrap();
    let files: Vec<String> =
        repacked.images[0].files.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(files, ["/opt/lib/a.ko", "/opt/lib/b.ko"], "a whiteout of umoci is understood");
    layout.set_image(&repacked.document.descriptor(), Some("signed")).unwrap();

    unpack(root, "layout:signed", "third");
    let rootfs = root.join("third/rootfs/opt/lib");
    assert_eq!(fs::read(rootfs.join("a.ko")).unwrap(), b"a signed");
    assert_eq!(fs::read(rootfs.join("b.ko")).unwrap(), b"b signed");
    assert!(!rootfs.join("gone.ko").exists());
    let inspected = run(root, "skopeo", &["inspect", "--config", "oci:layout:signed"]);
    let config: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
    let history = config["history"].as_array().unwrap();
    assert_eq!(history.last().unwrap()["created_by"], "gantry modules sign");
    // umoci can go on with the image.
    fs::write(rootfs.join("c.ko"), "c").unwrap();
    run(root, "umoci", &["repack", "--image", "layout:signed", "third"]);
}

/// The directory format of skopeo: blobs by their digits beside `manifest.json`.
struct SkopeoDirectory(PathBuf);

impl SkopeoDirectory {
    fn path(&self, descriptor: &Descriptor) -> PathBuf {
        self.0.join(descriptor.digest().hex())
    }
}

impl BlobSource for SkopeoDirectory {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(fs::File::open(self.path(descriptor))?))
    }
}

impl BlobSink for SkopeoDirectory {
    fn contains(&self, descriptor: &Descriptor) -> bool {
        self.path(descriptor).exists()
    }

    fn put(&mut self, descriptor: &Descriptor, content: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        fs::write(self.path(descriptor), bytes)
    }
}

#[test]
fn kms_58_a_docker_image_of_skopeo_is_repacked_and_read_by_skopeo() {
    let name = "kms_58_a_docker_image_of_skopeo_is_repacked_and_read_by_skopeo";
    if !available(name, &["skopeo"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut blobs = MemoryBlobs::default();
    let manifest = image(&mut blobs);
    let mut layout = Layout::create(&root.join("layout")).unwrap();
    save_image(&blobs, &mut layout, &manifest.descriptor(), Some("v1")).unwrap();
    policy(root);
    let copy = |arguments: &[&str]| {
        run(root, "skopeo", &[&["--policy", "policy.json", "copy"], arguments].concat())
    };
    copy(&["--format", "v2s2", "oci:layout:v1", "dir:docker"]);
    let mut docker = SkopeoDirectory(root.join("docker"));
    let source = SkopeoDirectory(root.join("docker"));
    let bytes = fs::read(root.join("docker/manifest.json")).unwrap();
    let document = Document::parse(&bytes, None).unwrap();
    assert_eq!(*document.media_type(), MediaType::DockerManifest);
    let options = Options::new(vec!["/opt/a.ko".parse().unwrap()], created());
    let repacked = repack(&source, &mut docker, &document, &options, &mut sign).unwrap();
    let Document::Manifest(signed) = &repacked.document else { panic!("a manifest") };
    assert_eq!(signed.family(), Family::Docker);
    fs::write(root.join("docker/manifest.json"), signed.bytes()).unwrap();
    let inspected: Value =
        serde_json::from_str(&run(root, "skopeo", &["inspect", "dir:docker"])).unwrap();
    assert_eq!(inspected["Layers"].as_array().unwrap().len(), 3);
    // skopeo checks all digests and counts when it converts.
    copy(&["--format", "oci", "dir:docker", "oci:back:v1"]);
    let back = Layout::open(&root.join("back")).unwrap();
    let document = gantry_oci::blob::read_document(&back, back.image(None).unwrap()).unwrap();
    let Document::Manifest(manifest) = document else { panic!("a manifest") };
    let config = read_config(&back, manifest.config()).unwrap();
    assert_eq!(config.diff_ids().len(), 3);
    assert_eq!(config.labels()["org.example.test"], "yes");
}

#[test]
fn kms_58_an_archive_that_skopeo_writes_for_docker_is_read() {
    let name = "kms_58_an_archive_that_skopeo_writes_for_docker_is_read";
    if !available(name, &["skopeo"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut blobs = MemoryBlobs::default();
    let manifest = image(&mut blobs);
    let mut layout = Layout::create(&root.join("layout")).unwrap();
    save_image(&blobs, &mut layout, &manifest.descriptor(), Some("v1")).unwrap();
    policy(root);
    let to = "docker-archive:docker.tar:registry.example/driver:v1";
    run(root, "skopeo", &["--policy", "policy.json", "copy", "oci:layout:v1", to]);
    let archive = Archive::open(fs::File::open(root.join("docker.tar")).unwrap()).unwrap();
    let descriptor = archive.image(Some("registry.example/driver:v1")).unwrap();
    assert_eq!(archive.image(None).unwrap().digest(), descriptor.digest());
    let document = gantry_oci::blob::read_document(&archive, descriptor).unwrap();
    let options = Options::new(vec!["/opt/*.ko".parse().unwrap()], created());
    let mut signed = Layout::create(&root.join("signed")).unwrap();
    let repacked = repack(&archive, &mut signed, &document, &options, &mut sign).unwrap();
    let root_descriptor = repacked.document.descriptor();
    let all = gantry_oci::blob::Layered(&archive, &Layout::open(&root.join("signed")).unwrap());
    let mut out = Layout::create(&root.join("out")).unwrap();
    save_image(&all, &mut out, &root_descriptor, Some("v1")).unwrap();
    let inspected: Value =
        serde_json::from_str(&run(root, "skopeo", &["inspect", "oci:out:v1"])).unwrap();
    assert_eq!(inspected["Digest"], root_descriptor.digest().as_str());
    assert_eq!(inspected["Layers"].as_array().unwrap().len(), 3);
    assert_eq!(inspected["Labels"]["org.example.test"], "yes");
}

fn policy(root: &Path) {
    let text = r#"{"default":[{"type":"insecureAcceptAnything"}]}"#;
    fs::write(root.join("policy.json"), text).unwrap();
}
