use std::sync::Mutex;

use gantry_kmod::{KernelRelease, SyntheticModule};
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::NewEntry;
use gantry_oci::{Digest, Document, MemoryBlobs, Platform, Reference};
use jiff::Timestamp;

use super::*;

pub(crate) const RELEASE: &str = "6.1.0-55-cloud-amd64";

/// A registry in memory: images by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestRegistry(Arc<Mutex<Vec<TestImage>>>);

type TestImage = (String, Document, Arc<MemoryBlobs>);

impl TestRegistry {
    /// Adds an image with these files.
    pub(crate) fn push(&self, image: &str, files: Vec<(&str, Vec<u8>)>) -> Digest {
        let builder =
            ImageBuilder::from_scratch(Platform::linux("amd64").unwrap(), Timestamp::UNIX_EPOCH);
        let entries = files
            .into_iter()
            .map(|(path, content)| match path.strip_prefix("link:") {
                Some(path) => NewEntry::symlink(path, std::str::from_utf8(&content).unwrap()),
                None => NewEntry::file(path, content, 0o644),
            })
            .collect();
        let builder = builder
            .layer(entries, "test")
            .unwrap()
            .entrypoint(&["sleep"])
            .command(&["infinity"])
            .variable("FROM_IMAGE", "yes")
            .working_directory("/opt");
        let mut blobs = MemoryBlobs::default();
        let manifest = builder.build(&mut blobs).unwrap();
        let digest = manifest.digest().clone();
        let document = Document::Manifest(manifest);
        self.0.lock().unwrap().push((image.to_owned(), document, Arc::new(blobs)));
        digest
    }
}

impl ImageSource for TestRegistry {
    fn resolve(
        &self,
        pull: &ImagePull,
        reference: &Reference,
    ) -> Result<ResolvedImage, ImagePullError> {
        if pull.namespace == "other" {
            return Err(ImagePullError::Forbidden("denied".to_owned()));
        }
        let images = self.0.lock().unwrap();
        let found = images.iter().rev().find(|(name, document, _)| match reference.digest() {
            Some(digest) => document.digest() == digest,
            None => *name == pull.image,
        });
        let (_, document, blobs) = found.ok_or(ImagePullError::NotFound)?;
        Ok(ResolvedImage { document: document.clone(), blobs: Arc::<MemoryBlobs>::clone(blobs) })
    }
}

pub(crate) fn pull(image: &str) -> ImagePull {
    ImagePull {
        image: image.to_owned(),
        namespace: "default".to_owned(),
        account: "default".to_owned(),
    }
}

/// A synthetic module for the release of the tests.
pub(crate) fn module(name: &str, depends: &[&str]) -> Vec<u8> {
    let module = SyntheticModule::new(name, &RELEASE.parse::<KernelRelease>().unwrap());
    depends.iter().fold(module, |it, name| it.depends_on(name)).to_bytes().unwrap()
}

/// The root of a container whose image has these files.
pub(crate) async fn root(files: Vec<(&str, Vec<u8>)>, host_paths: &[(&str, &str)]) -> RootFiles {
    let registry = TestRegistry::default();
    registry.push("reg:1/ns/driver:v1", files);
    let tree = RegistryImages::new(registry).open(&pull("reg:1/ns/driver:v1")).await.unwrap();
    RootFiles::new(tree, host_paths.iter().copied())
}

#[tokio::test]
async fn images_are_opened_by_tag_and_by_digest() {
    let registry = TestRegistry::default();
    let images = RegistryImages::new(registry.clone());
    let image = "reg:1/ns/driver:v1";
    let missing = images.resolve(&pull(image)).await.unwrap_err();
    assert_eq!(
        missing.message(image),
        "rpc error: code = NotFound desc = failed to pull and unpack image \
         \"reg:1/ns/driver:v1\": failed to resolve reference \"reg:1/ns/driver:v1\": \
         reg:1/ns/driver:v1: not found"
    );
    let first = registry.push(image, vec![("/opt/a", b"one".to_vec())]);
    let second = registry.push(image, vec![("/opt/a", b"two".to_vec())]);
    assert_eq!(images.resolve(&pull(image)).await, Ok(second.to_string()));
    for (image, expected) in [
        (image.to_owned(), "two"),
        (format!("reg:1/ns/driver@{first}"), "one"),
        (format!("reg:1/ns/driver@{first}"), "one"),
    ] {
        let tree = images.open(&pull(&image)).await.unwrap();
        assert_eq!(tree.read_file("/opt/a", 10).unwrap(), expected.as_bytes());
        let config = tree.config();
        assert_eq!(
            (&config.entrypoint[..], &config.command[..]),
            (&["sleep".to_owned()][..], &["infinity".to_owned()][..])
        );
        assert_eq!(config.variables, [("FROM_IMAGE".to_owned(), "yes".to_owned())]);
    }
    let other = ImagePull { namespace: "other".to_owned(), ..pull(image) };
    let denied = ImagePullError::Forbidden("denied".to_owned());
    assert_eq!(images.open(&other).await.unwrap_err(), denied);
    let malformed = images.resolve(&pull("reg:1/UPPER")).await.unwrap_err();
    assert!(matches!(malformed, ImagePullError::Failed(_)), "{malformed:?}");
}

#[tokio::test]
async fn old_trees_are_dropped() {
    let registry = TestRegistry::default();
    let images = RegistryImages::new(registry.clone());
    for number in 0..20 {
        let image = format!("reg:1/ns/driver:v{number}");
        registry.push(&image, vec![("/a", vec![number])]);
        images.open(&pull(&image)).await.unwrap();
    }
    assert!(format!("{images:?}").matches("ImageTree(").count() <= 8);
}

#[tokio::test]
async fn files_of_images_are_found_through_links() {
    let root = root(
        vec![
            ("/opt/lib/modules/1.2/extra/a.ko", b"a".to_vec()),
            ("/opt/lib/modules/1.2/b.ko.xz", b"b".to_vec()),
            ("/opt/lib/modules/1.2/modules.dep", b"".to_vec()),
            ("/opt/lib/modules/1.20/c.ko", b"c".to_vec()),
            ("link:/usr/opt", b"/opt".to_vec()),
            ("link:/loop", b"/loop".to_vec()),
            ("/lib/modules/1.2/image.ko", b"x".to_vec()),
            ("/large", vec![0; 100]),
        ],
        &[("/lib/modules/", "/lib/modules"), ("/", "/host"), ("/libx", "/x")],
    )
    .await;
    let files = root.module_files("/usr/opt", "1.2", "1.2");
    assert_eq!(files, ["/usr/opt/lib/modules/1.2/b.ko.xz", "/usr/opt/lib/modules/1.2/extra/a.ko"]);
    assert_eq!(root.read_file(&files[1], "1.2", 10).unwrap(), b"a");
    let kind = |path: &str| root.read_file(path, "1.2", 10).unwrap_err().kind();
    assert_eq!(kind("/large"), std::io::ErrorKind::FileTooLarge);
    assert_eq!(kind("/loop"), std::io::ErrorKind::NotFound);
    assert_eq!(kind("/opt"), std::io::ErrorKind::IsADirectory);
    assert_eq!(kind("/opt/../../etc"), std::io::ErrorKind::NotFound);
    // The node's modules hide those of the image.
    assert_eq!(kind("/lib/modules/1.2/image.ko"), std::io::ErrorKind::NotFound);
    assert!(!root.is_file("/lib/modules/1.2/image.ko"));
    let names = |path: &str| root.list(path, "1.2").unwrap_or_default();
    assert_eq!(names("/lib/modules"), ["1.2"]);
    assert_eq!(names("/host/lib/modules/1.2"), ["kernel"]);
    assert_eq!(names("/opt/lib/modules"), ["1.2", "1.20"]);
    let own = root.module_files("", "1.2", "1.2");
    assert!(own.contains(&"/lib/modules/1.2/kernel/drivers/net/dummy.ko".to_owned()), "{own:?}");
    assert!(root.module_files("", "1.3", "1.2").is_empty(), "of another kernel");
    let path = "/host/usr/lib/modules/1.2/kernel/lib/crc-itu-t.ko";
    assert_eq!(root.in_tree_module(path, "1.2").map(|it| it.name), Some("crc-itu-t"));
    assert!(root.in_tree_module("/x/modules/1.2/kernel/lib/crc-itu-t.ko", "1.2").is_none());
}
