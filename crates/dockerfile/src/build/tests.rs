mod copying;
mod settings;
mod simulated;

use gantry_oci::blob::read_config;
use gantry_oci::tree::TreeEntry;
use gantry_oci::{Limits, MemoryBlobs, SelectedFile, Tree};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const KERNEL: &str = "6.1.0-55-cloud-amd64";

/// A build in memory, with what it reads.
struct TestBuild {
    dockerfile: String,
    args: Vec<(String, String)>,
    context: MemoryContext,
    labels: Vec<(String, String)>,
    expected_modules: Vec<String>,
    run_files: Vec<(String, Vec<u8>)>,
    missing_bases: MissingBases,
    images: BTreeMap<String, (Manifest, MemoryBlobs)>,
}

impl BaseImages for TestBuild {
    fn open(&self, reference: &Reference, _: &Platform) -> Result<BaseImage<'_>, BaseImageError> {
        let image = self.images.get(&reference.to_string());
        let (manifest, blobs) = image.ok_or(BaseImageError::NotFound)?;
        let config = read_config(blobs, manifest.config())
            .map_err(|error| BaseImageError::Unavailable(error.to_string()))?;
        Ok(BaseImage { manifest: manifest.clone(), config, source: Box::new(blobs.clone()) })
    }
}

impl TestBuild {
    fn new(dockerfile: &str) -> Self {
        Self {
            dockerfile: dockerfile.to_owned(),
            args: vec![("KERNEL_FULL_VERSION".to_owned(), KERNEL.to_owned())],
            context: MemoryContext::default(),
            labels: Vec::new(),
            expected_modules: Vec::new(),
            run_files: Vec::new(),
            missing_bases: MissingBases::Refuse,
            images: BTreeMap::new(),
        }
    }

    fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.push((name.to_owned(), value.to_owned()));
        self
    }

    fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.context = self.context.with(path, content);
        self
    }

    /// Adds a base image that is built from another Dockerfile.
    fn base(mut self, reference: &str, base: &Self) -> Self {
        let built = base.build().unwrap();
        let reference: Reference = reference.parse().unwrap();
        self.images.insert(reference.to_string(), (built.manifest, built.blobs));
        self
    }

    fn try_build(&self) -> (Result<BuiltImage, BuildError>, MemoryBlobs, Vec<String>) {
        let (mut blobs, mut log) = (MemoryBlobs::default(), Vec::new());
        let platform = "linux/amd64".parse().unwrap();
        let request = BuildRequest {
            dockerfile: &self.dockerfile,
            args: &self.args,
            context: &self.context,
            platform: &platform,
            created: Timestamp::from_second(1_700_000_000).unwrap(),
            labels: &self.labels,
            kernel: None,
            expected_modules: &self.expected_modules,
            run_files: &self.run_files,
            missing_bases: self.missing_bases,
        };
        let built = build(&request, self, &mut blobs, &mut |line| log.push(line.to_owned()));
        (built, blobs, log)
    }

    fn build(&self) -> Result<TestImage, BuildError> {
        let (built, blobs, log) = self.try_build();
        let BuiltImage { manifest, simulated, synthetic_modules } = built?;
        let config = read_config(&blobs, manifest.config()).unwrap();
        let tree = Tree::read(&blobs, &manifest, &config, &Limits::default()).unwrap();
        Ok(TestImage { manifest, config, tree, blobs, log, simulated, synthetic_modules })
    }

    /// The message of a build that fails.
    fn error(&self) -> String {
        self.try_build().0.unwrap_err().to_string()
    }
}

/// An image that was built, read back.
struct TestImage {
    manifest: Manifest,
    config: gantry_oci::Config,
    tree: Tree,
    blobs: MemoryBlobs,
    log: Vec<String>,
    simulated: bool,
    synthetic_modules: Vec<String>,
}

impl TestImage {
    fn selected(&self, path: &str) -> SelectedFile {
        let path = TreePath::from_user(path).unwrap();
        let (path, _) = self.tree.resolve(&path).unwrap().unwrap_or_else(|| panic!("no {path}"));
        let paths = [path];
        let read = self.tree.read_files(&self.blobs, &self.manifest, &self.config, &paths);
        read.unwrap().remove(0)
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.selected(path).content).unwrap()
    }

    /// All files and links, directories only if they are empty.
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.tree.walk(&mut |path, entry| {
            paths.push(match entry {
                TreeEntry::File { .. } | TreeEntry::Special => path.to_string(),
                TreeEntry::Directory => format!("{path}/"),
                TreeEntry::Symlink { target } => {
                    format!("{path} -> {}", String::from_utf8_lossy(target))
                }
            });
            true
        });
        let all = paths.clone();
        let is_empty = |path: &String| {
            !all.iter().any(|other| other != path && other.starts_with(path.as_str()))
        };
        paths.retain(|path| !path.ends_with('/') || is_empty(path));
        paths
    }

    fn settings(&self) -> Value {
        self.config.object()["config"].clone()
    }
}

#[test]
fn the_same_input_gives_the_same_digest() {
    let build = TestBuild::new(
        "FROM scratch AS a\nCOPY . /src\nRUN cd /src && make\nFROM scratch\nENV B=1 A=2\n\
         COPY --from=a /src/hello.ko /opt/lib/modules/6.1.0/\nLABEL b=1 a=2\n",
    )
    .file("Makefile", "obj-m := hello.o\n");
    let (first, second) = (build.build().unwrap(), build.build().unwrap());
    assert_eq!(first.manifest.digest(), second.manifest.digest());
    assert_eq!(first.blobs, second.blobs);
    // Golden: other bytes would be another image for everybody who built this one before.
    assert_eq!(first.paths(), ["/opt/lib/modules/6.1.0/hello.ko"]);
}

proptest! {
    #[test]
    fn building_never_panics_and_is_reproducible(
        text in parse::tests::dockerfiles(),
        value in "[ -~]{0,10}",
    ) {
        let build = TestBuild::new(&format!("FROM scratch AS first\n{text}"))
            .arg("A", &value)
            .file("a", "content")
            .file("d/Makefile", "obj-m += x.o\n");
        match (build.try_build(), build.try_build()) {
            ((Ok(first), blobs, log), (Ok(second), _, other_log)) => {
                prop_assert_eq!(first.manifest.digest(), second.manifest.digest());
                prop_assert_eq!(log, other_log);
                // What was built is an image.
                let config = read_config(&blobs, first.manifest.config()).unwrap();
                Tree::read(&blobs, &first.manifest, &config, &Limits::default()).unwrap();
            }
            ((Err(first), ..), (Err(second), ..)) => {
                prop_assert_eq!(first.to_string(), second.to_string());
            }
            (first, second) => prop_assert!(false, "{:?} {:?}", first.0, second.0),
        }
    }
}
