//! A registry of others with the images that builds and nodes need.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::NewEntry;
use gantry_oci::{
    BlobSource as _, Config, Descriptor, Digest, Document, Family, Hasher, Limits, Manifest,
    MediaType, MemoryBlobs, Platform, Reference, Repository, Tree, TreePath,
};
use gantry_process::clock::Clock;
use gantry_registry::{BlobPush, BlobSource, Client, ClientSettings, Fallback, FileSource};
use gantry_testkit::docker_registry::{DockerRegistry, LocalAddress};
use jiff::Timestamp;
use serde_json::json;

/// The largest layer that tests read; those of modules are far smaller.
const MAX_LAYER_BYTES: u64 = 64 << 20;

/// Debian's registry without TLS, at an address that the operator does not take for its own
/// machine.
pub(super) struct Registry {
    /// Host and port.
    pub(super) address: String,
    client: Client,
    _server: DockerRegistry,
    /// Removed last.
    _local: LocalAddress,
}

/// An image, with everything in it.
pub(super) struct PulledImage {
    pub(super) digest: Digest,
    manifest: Manifest,
    config: Config,
    blobs: MemoryBlobs,
}

impl Registry {
    pub(super) fn start(program: &Path) -> Self {
        let local = LocalAddress::add().unwrap();
        let server = DockerRegistry::start(program, local.host, None).unwrap();
        let mut settings = ClientSettings::new("gantry-e2e");
        settings.default_registry.fallback = Fallback::PlainHttp;
        let client = Client::new(Clock::system(), fastrand::Rng::new(), settings);
        Self { address: server.address.clone(), client, _server: server, _local: local }
    }

    /// The full name of an image here.
    pub(super) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn reference(&self, name: &str) -> Reference {
        self.image(name).parse().unwrap()
    }

    async fn push_blob(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        source: &dyn BlobSource,
    ) {
        let (digest, size) = (descriptor.digest(), descriptor.size());
        let push = BlobPush { repository, digest, size, source, mount_from: &[] };
        self.client.push_blob(push).await.unwrap();
    }

    /// Pushes an image whose only layer is this archive.
    pub(super) async fn push_archive(&self, name: &str, archive: &Path) {
        let reference = self.reference(name);
        let repository = reference.repository();
        let mut hasher = Hasher::new(gantry_oci::Algorithm::Sha256);
        let mut reader = File::open(archive).unwrap();
        let mut size = 0;
        let mut piece = vec![0; 1 << 20];
        loop {
            let read = std::io::Read::read(&mut reader, &mut piece).unwrap();
            if read == 0 {
                break;
            }
            hasher.update(&piece[..read]);
            size += u64::try_from(read).unwrap();
        }
        let layer = Descriptor::new(MediaType::OciLayer, hasher.finish(), size);
        let file = FileSource::new(File::open(archive).unwrap());
        self.push_blob(repository, &layer, &file).await;
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest().as_str()]},
        });
        let config = config.to_string().into_bytes();
        let descriptor = Descriptor::of(MediaType::OciConfig, &config);
        self.push_blob(repository, &descriptor, &bytes::Bytes::from(config)).await;
        let manifest = Manifest::new(Family::Oci, &descriptor, &[layer], &BTreeMap::new());
        let bytes = bytes::Bytes::copy_from_slice(manifest.bytes());
        self.client.push_manifest(&reference, &MediaType::OciManifest, bytes).await.unwrap();
    }

    /// Pushes an image of one static program that is a shell and its tools.
    pub(super) async fn push_shell(&self, name: &str, busybox: &Path, label: &str) {
        let mut entries =
            vec![NewEntry::file("bin/busybox", std::fs::read(busybox).unwrap(), 0o755)];
        let tools = ["sh", "sleep", "cat"];
        entries.extend(tools.iter().map(|it| NewEntry::symlink(&format!("bin/{it}"), "busybox")));
        let mut blobs = MemoryBlobs::default();
        let platform = Platform::linux("amd64").unwrap();
        let image = ImageBuilder::from_scratch(platform, Timestamp::UNIX_EPOCH)
            .layer(entries, "a shell")
            .unwrap()
            .variable("PATH", "/bin")
            .command(&["sleep", "infinity"])
            .label("example.com/made-for", label);
        let manifest = image.build(&mut blobs).unwrap();
        let reference = self.reference(name);
        for descriptor in manifest.layers().iter().chain([manifest.config()]) {
            let content = blobs.get(descriptor.digest()).unwrap().to_vec();
            let content = bytes::Bytes::from(content);
            self.push_blob(reference.repository(), descriptor, &content).await;
        }
        let bytes = bytes::Bytes::copy_from_slice(manifest.bytes());
        self.client.push_manifest(&reference, &MediaType::OciManifest, bytes).await.unwrap();
    }

    /// Pushes the image of this program, as `make image` writes it, with a program of others.
    pub(super) fn push_gantry(&self, name: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (binary, archive) = (path("gantry"), path("gantry.tar"));
        // What a debugger reads is most of a binary of tests.
        let stripped = run("strip", &["-o", &binary, env!("CARGO_BIN_EXE_gantry")]);
        if stripped.is_err() {
            std::fs::copy(env!("CARGO_BIN_EXE_gantry"), &binary).unwrap();
        }
        let words = ["image", "--tag", "e2e", "--binary", &binary, "--output", &archive];
        // The program that cargo builds beside ours for the tests of all crates; else it builds it.
        let beside = Path::new(env!("CARGO_BIN_EXE_gantry")).with_file_name("xtask");
        match beside.is_file() {
            true => run(beside.to_str().unwrap(), &words),
            false => {
                let build = ["run", "--quiet", "--package", "xtask", "--"];
                run(env!("CARGO"), &[&build[..], &words].concat())
            }
        }
        .unwrap();
        let (from, to) =
            (format!("oci-archive:{archive}:e2e"), format!("docker://{}", self.image(name)));
        let words = ["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", &from, &to];
        run("skopeo", &words).unwrap();
    }

    /// Pulls an image with all its layers.
    pub(super) async fn pull(&self, name: &str) -> PulledImage {
        let reference: Reference = name.parse().unwrap();
        let pulled = self.client.pull_manifest(&reference).await.unwrap();
        let document = Document::parse(&pulled.bytes, Some(&pulled.media_type)).unwrap();
        let Document::Manifest(manifest) = document else { panic!("{name} is an index") };
        let mut blobs = MemoryBlobs::default();
        for descriptor in manifest.layers().iter().chain([manifest.config()]) {
            let (digest, size) = (descriptor.digest(), descriptor.size());
            let blob =
                self.client.pull_small_blob(reference.repository(), digest, size, MAX_LAYER_BYTES);
            blobs.insert(blob.await.unwrap().to_vec());
        }
        let mut config = Vec::new();
        let mut reader = blobs.open(manifest.config()).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut config).unwrap();
        drop(reader);
        let config = Config::parse(&config).unwrap();
        PulledImage { digest: pulled.digest, manifest, config, blobs }
    }
}

impl PulledImage {
    /// The files below a directory, by their paths.
    pub(super) fn files(&self, directory: &str) -> BTreeMap<String, Vec<u8>> {
        let Self { manifest, config, blobs, .. } = self;
        let tree = Tree::read(blobs, manifest, config, &Limits::default()).unwrap();
        let mut paths: Vec<TreePath> = Vec::new();
        tree.walk(&mut |path, _| {
            if path.to_string().starts_with(directory) {
                paths.push(path.clone());
            }
            true
        });
        let files = tree.read_files(blobs, manifest, config, &paths).unwrap();
        files.into_iter().map(|file| (file.path.to_string(), file.content)).collect()
    }
}

/// Runs a program; the error is what it said.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{program} {arguments:?}: {said}")),
    }
}

/// Where a program is.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/bin"];
    folders.iter().map(|it| Path::new(it).join(name)).find(|it| it.is_file())
}
