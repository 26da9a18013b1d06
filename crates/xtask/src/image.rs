//! Writes the container image of the `gantry` binary as an OCI archive.
//!
//! The image is made from nothing: one layer with the binary, other names of it, the dynamic loader
//! and the shared libraries that the binary needs, and `/tmp`. The same files give the same bytes:
//! entries are sorted, root owns them, and the only time in the image is `SOURCE_DATE_EPOCH`, or
//! 1970.
//!
//! The must-gather image has in addition a shell, tar and what else `oc adm must-gather` and
//! `kubectl cp` start in a container, which this image has no use for.

mod must_gather;
mod shared_libraries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::{Attributes, Mtime, NewEntry, NewEntryKind};
use gantry_oci::layout::write_archive;
use gantry_oci::{Manifest, MemoryBlobs, Platform, Reference, Tag};
use jiff::Timestamp;

use self::shared_libraries::{ImageFile, LibraryDirectories, collect};
use crate::workspace;

/// Where the binary is in the image.
pub(crate) const PROGRAM: &str = "/usr/bin/gantry";

/// The entry point of must-gather images.
const GATHER: &str = "/usr/bin/gather";

/// Other names of the program: the executables that the manifests of the llm-d fast model actuation
/// project start, the interpreters that they start some of them with, and the entry point of
/// must-gather images. Which command each of them is, is known to the command line of the program.
/// The tool of the vendor is not among them: a real one comes with the runtime.
const NAMES: [&str; 14] = [
    "/app/launcher.py",
    "/app/launcher_pod_notifier.py",
    "/app/requester",
    "/bin/bash",
    "/bin/sh",
    "/ko-app/dual-pods-controller",
    "/ko-app/launcher-populator",
    "/ko-app/test-requester",
    "/ko-app/test-server",
    GATHER,
    "/usr/bin/python",
    "/usr/bin/python3",
    "/usr/bin/uvicorn",
    "/usr/bin/vllm",
];

/// The user that containers run as, by number, so that Kubernetes can see that it is not root.
const USER: &str = "65532:65532";

/// The variable with the time of the image, in seconds since 1970.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The options of `cargo xtask image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageOptions {
    /// The binary; the release binary if there is none.
    pub(crate) binary: Option<PathBuf>,
    /// The archive; a file in the target directory if there is none.
    pub(crate) output: Option<PathBuf>,
    /// The name of the image in the archive; the version if there is none.
    pub(crate) tag: Option<String>,
    /// Whether it is the must-gather image.
    pub(crate) must_gather: bool,
}

/// An image that was composed, before it is written.
#[derive(Debug)]
struct ComposedImage {
    blobs: MemoryBlobs,
    manifest: Manifest,
    platform: Platform,
    files: Vec<ImageFile>,
}

/// Reads the words after `image`; the error is a sentence for the user.
pub(crate) fn parse(words: &[&str]) -> Result<ImageOptions, String> {
    let mut options = ImageOptions::default();
    let mut words = words.iter();
    while let Some(option) = words.next() {
        if *option == "--must-gather" {
            options.must_gather = true;
            continue;
        }
        if !matches!(*option, "--binary" | "--output" | "--tag") {
            return Err(format!("cannot read `{option}` after `image`"));
        }
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match *option {
            "--binary" => options.binary = Some(PathBuf::from(value)),
            "--output" => options.output = Some(PathBuf::from(value)),
            _ => options.tag = Some((*value).to_owned()),
        }
    }
    if let Some(tag) = &options.tag
        && tag.parse::<Tag>().is_err()
        && tag.parse::<Reference>().is_err()
    {
        return Err(format!("--tag {tag:?} is neither a tag nor the name of an image"));
    }
    Ok(options)
}

/// Composes the image, writes the archive, and prints its digest and size.
pub(crate) fn run(
    root: &Path,
    options: &ImageOptions,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let target = workspace::target_directory(root)?;
    let binary = options.binary.clone().unwrap_or_else(|| target.join("release/gantry"));
    let content = fs::read(&binary).with_context(|| {
        format!("could not read {}; `make build` builds the release binary", binary.display())
    })?;
    #[expect(clippy::disallowed_methods, reason = "the variable of all builds that are repeated")]
    let epoch = std::env::var(SOURCE_DATE_EPOCH).ok();
    let version = gantry::version::VERSION.version;
    let directories = LibraryDirectories::of_this_machine();
    let variant = match options.must_gather {
        true => Variant::MustGather(must_gather::tools(&directories)?),
        false => Variant::Program,
    };
    let archive = match options.must_gather {
        true => "gantry-must-gather-image.tar",
        false => "gantry-image.tar",
    };
    let image = compose(content, &variant, &directories, created(epoch)?, version)
        .with_context(|| format!("cannot put {} into an image", binary.display()))?;
    let output = options.output.clone().unwrap_or_else(|| target.join(archive));
    let tag = options.tag.as_deref().unwrap_or(version);
    let size = write(&image, tag, &output)
        .with_context(|| format!("could not write {}", output.display()))?;
    for file in &image.files {
        writeln!(out, "{} ({})", file.path, megabytes(file.content.len() as u64))?;
    }
    writeln!(out, "platform  {}/{}", image.platform.os(), image.platform.architecture())?;
    writeln!(out, "tag       {tag}")?;
    writeln!(out, "digest    {}", image.manifest.digest())?;
    writeln!(out, "archive   {} ({})", output.display(), megabytes(size))?;
    Ok(true)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The time of the image: the start of 1970 unless the variable says otherwise.
fn created(epoch: Option<String>) -> anyhow::Result<Timestamp> {
    let Some(text) = epoch else { return Ok(Timestamp::UNIX_EPOCH) };
    let seconds = text.parse().ok().filter(|seconds| *seconds >= 0);
    seconds
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .with_context(|| format!("{SOURCE_DATE_EPOCH}={text:?} is not a number of seconds"))
}

/// What an image is for.
#[derive(Clone, Debug)]
enum Variant {
    /// It runs the program, and has nothing else.
    Program,
    /// It gathers diagnostic data, and has these tools with their libraries.
    MustGather(Vec<ImageFile>),
}

/// Composes the image of a binary.
fn compose(
    binary: Vec<u8>,
    variant: &Variant,
    directories: &LibraryDirectories,
    created: Timestamp,
    version: &str,
) -> anyhow::Result<ComposedImage> {
    let (files, architecture) = collect(PROGRAM, binary, directories)?;
    let platform = Platform::linux(architecture)?;
    let (title, entrypoint, tools) = match variant {
        Variant::Program => ("gantry", PROGRAM, &[] as &[ImageFile]),
        Variant::MustGather(tools) => ("gantry-must-gather", GATHER, tools.as_slice()),
    };
    let files: BTreeMap<String, ImageFile> =
        files.into_iter().chain(tools.iter().cloned()).map(|it| (it.path.clone(), it)).collect();
    let files: Vec<ImageFile> = files.into_values().collect();
    // Blobs to be pushed are written to temporary files.
    let mut entries = vec![NewEntry::directory("tmp", 0o1777)];
    let file = |file: &ImageFile| NewEntry::file(&file.path, file.content.clone(), 0o755);
    entries.extend(files.iter().map(file));
    let links: Vec<(&str, &str)> = match variant {
        Variant::Program => NAMES.map(|name| (name, PROGRAM)).to_vec(),
        // Its shell is a real one.
        Variant::MustGather(_) => {
            std::iter::once((GATHER, PROGRAM)).chain(must_gather::LINKS).collect()
        }
    };
    let attributes = Attributes { mode: 0o777, ..entries[0].attributes.clone() };
    entries.extend(links.into_iter().map(|(path, target)| NewEntry {
        path: path.trim_start_matches('/').into(),
        kind: NewEntryKind::Symlink(target.into()),
        attributes: attributes.clone(),
    }));
    let mtime = Mtime { seconds: created.as_second(), nanoseconds: 0 };
    for entry in &mut entries {
        entry.attributes.mtime = mtime;
    }
    let mut blobs = MemoryBlobs::default();
    let manifest = ImageBuilder::from_scratch(platform.clone(), created)
        .layer(entries, "cargo xtask image")?
        .entrypoint(&[entrypoint])
        .user(USER)
        .label("org.opencontainers.image.title", title)
        .label("org.opencontainers.image.version", version)
        .build(&mut blobs)?;
    Ok(ComposedImage { blobs, manifest, platform, files })
}

/// Writes the archive beside the one it replaces, and returns its size.
fn write(image: &ComposedImage, tag: &str, output: &Path) -> anyhow::Result<u64> {
    let name = output.file_name().context("it has no file name")?;
    let mut partial = name.to_owned();
    partial.push(".partial");
    let partial = output.with_file_name(partial);
    let written = (|| {
        let mut file = BufWriter::new(File::create(&partial)?);
        write_archive(&image.blobs, &image.manifest.descriptor(), Some(tag), &mut file)?;
        let file = file.into_inner()?;
        file.sync_all()?;
        let size = file.metadata()?.len();
        fs::rename(&partial, output)?;
        anyhow::Ok(size)
    })();
    if written.is_err() {
        // The error that matters is the first one.
        let _ = fs::remove_file(&partial);
    }
    written
}
