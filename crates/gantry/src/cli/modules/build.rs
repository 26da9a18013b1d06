//! `gantry modules build`: makes an image from a Dockerfile without running its commands.

mod base_images;
mod buildah;
mod context;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use gantry_dockerfile::{BuildError, BuildRequest, BuiltImage, MissingBases, StepProblem};
use gantry_kernel_modules::effects::{self, SharedBlobs};
use gantry_kmod::KernelRelease;
use gantry_oci::layout::Layout;
use gantry_oci::{Descriptor, Platform, Reference};
use gantry_process::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::container_files::{ContainerFiles, PathError};
use super::registry_flags::{RegistryAccess, RegistryScope};
use super::{ExitReason, Failure, image_files};
use crate::cli::{CommandOutcome, OutputFormat, render};
use crate::output::Output;
use base_images::RegistryBases;
pub(crate) use buildah::find_buildah;
use context::{DirectoryContext, files_below};

/// The largest Dockerfile that is read.
const MAX_DOCKERFILE_BYTES: u64 = gantry_dockerfile::MAX_DOCKERFILE_BYTES as u64;
/// How many lines of the build's log wait to be printed.
const LOG_LINES: usize = 64;

/// Build a container image from a Dockerfile without running its commands.
///
/// It is a real image: files are copied, layers, settings and labels are those that a builder would
/// make. RUN is simulated, and the log says so: where its commands would have built kernel modules,
/// synthetic ones with the right version magic take their place. Kernels refuse to load them. Use
/// it to try manifests without a builder; use buildah for drivers.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "these are flags, one by one")]
#[command(after_help = "Examples:
  gantry modules build --build-arg KERNEL_FULL_VERSION=6.1.0-54-amd64 \\
      --tag registry.example/driver:v1 .
  gantry modules build --file Dockerfile --module /opt/lib/modules/6.1.0-54-amd64/driver.ko \\
      --kernel 6.1.0-54-amd64 --oci-archive driver.tar .

Exit codes:
  0  built
  1  a file of the command line could not be read or written
  2  the command line is wrong
  3  a base image could not be pulled
  6  the Dockerfile is wrong, or an instruction of it failed
  7  the image could not be pushed")]
pub(super) struct Arguments {
    /// The directory with the files that COPY and ADD find.
    #[arg(value_name = "DIR", default_value = ".")]
    context: PathBuf,

    /// The Dockerfile; by default the one in the directory.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// A build argument; may be repeated.
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = super::named_value)]
    build_args: Vec<(String, String)>,

    /// A label that the image gets; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = super::named_value)]
    labels: Vec<(String, String)>,

    /// A directory whose files commands find at another path, such as a mounted Secret; may be
    /// repeated.
    #[arg(long = "volume", value_name = "DIR:PATH[:ro]", value_parser = volume)]
    volumes: Vec<(PathBuf, String)>,

    /// The machines that the image is for.
    #[arg(long, value_name = "OS/ARCH", default_value_t = machine())]
    platform: Platform,

    /// The kernel of synthetic modules; by default that of the build arguments.
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<KernelRelease>,

    /// A module that the commands would have built, by its absolute path; may be repeated.
    #[arg(long = "module", value_name = "PATH")]
    modules: Vec<String>,

    /// What happens without a base image.
    #[arg(long, value_name = "ACTION", default_value = "refuse")]
    missing_base: MissingBase,

    /// The name of the image.
    #[arg(short, long, value_name = "IMAGE")]
    #[arg(required_unless_present_any = ["oci_layout_out", "oci_archive"])]
    tag: Option<Reference>,

    /// Build, but push nothing.
    #[arg(long, help_heading = "Registries")]
    no_push: bool,

    /// Credentials, in the format of Docker; may be repeated.
    #[arg(long = "auth-file", value_name = "FILE", help_heading = "Registries")]
    auth_files: Vec<PathBuf>,

    /// Pull over plain HTTP if the registry does not speak TLS.
    #[arg(long, help_heading = "Registries")]
    insecure_pull: bool,

    /// Do not verify the certificate of the registry when pulling.
    #[arg(long, help_heading = "Registries")]
    skip_tls_verify_pull: bool,

    /// Push over plain HTTP if the registry does not speak TLS.
    #[arg(long, help_heading = "Registries")]
    insecure_push: bool,

    /// Do not verify the certificate of the registry when pushing.
    #[arg(long, help_heading = "Registries")]
    skip_tls_verify_push: bool,

    /// More certificate authorities for registries, in PEM.
    #[arg(long, value_name = "FILE", help_heading = "Registries")]
    ca_file: Option<PathBuf>,

    /// Write the image to a directory in the OCI image layout.
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    oci_layout_out: Option<PathBuf>,

    /// Write the image to an archive that other tools call oci-archive.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    oci_archive: Option<PathBuf>,

    /// Where the result is written for Kubernetes, if that file exists.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/dev/termination-log",
        help_heading = "Files"
    )]
    termination_log: PathBuf,

    /// The time of the image, in seconds since 1970.
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH")]
    source_date_epoch: Option<i64>,

    /// Print the result in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
}

/// What carries out the instructions of a Dockerfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImageBuilder {
    /// This program, which runs no commands.
    #[default]
    Simulated,
    /// The buildah at this path.
    Buildah(PathBuf),
}

/// What happens without a base image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MissingBase {
    /// The build fails.
    Refuse,
    /// An empty image takes its place.
    Empty,
}

/// The platform of this machine, in the words of images.
fn machine() -> Platform {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Platform::linux(architecture).expect("names of architectures are short words")
}

/// Reads a volume.
fn volume(text: &str) -> Result<(PathBuf, String), String> {
    let text = text.strip_suffix(":ro").unwrap_or(text);
    match text.rsplit_once(':') {
        Some((directory, path)) if !directory.is_empty() && path.starts_with('/') => {
            Ok((PathBuf::from(directory), path.to_owned()))
        }
        _ => Err("write DIR:PATH with an absolute path".to_owned()),
    }
}

impl Arguments {
    /// The same arguments with the paths of a container.
    pub(super) fn in_container(mut self, files: &ContainerFiles) -> Result<Self, PathError> {
        files.map_input(&mut self.context)?;
        let volumes = self.volumes.iter_mut().map(|(directory, _)| directory);
        for path in self.auth_files.iter_mut().chain(volumes) {
            files.map_input(path)?;
        }
        for path in [&mut self.file, &mut self.ca_file].into_iter().flatten() {
            files.map_input(path)?;
        }
        for path in [&mut self.oci_layout_out, &mut self.oci_archive].into_iter().flatten() {
            files.map_output(path)?;
        }
        files.map_output(&mut self.termination_log)?;
        Ok(self)
    }

    fn access(&self, insecure: bool, skip_tls_verify: bool) -> RegistryAccess<'_> {
        RegistryAccess {
            auth_files: &self.auth_files,
            insecure,
            skip_tls_verify,
            ca_file: self.ca_file.as_deref(),
        }
    }
}

pub(super) fn run(arguments: Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let registries = RegistryScope::Machine;
    runtime.block_on(execute(arguments, &registries, &ImageBuilder::Simulated, output))
}

/// Builds as the arguments say.
pub(super) async fn execute(
    arguments: Arguments,
    registries: &RegistryScope,
    builder: &ImageBuilder,
    output: &mut Output,
) -> Result<CommandOutcome, Failure> {
    if let ImageBuilder::Buildah(program) = builder {
        let scratch = tempfile::tempdir().context("could not create a temporary directory")?;
        let built = buildah::build(program, &arguments, registries, scratch.path(), output).await?;
        let image = deliver(&arguments, registries, &built.0, &built.1, output).await?;
        report(&arguments, &image, json!({"builder": "buildah"}), output)?;
        return Ok(CommandOutcome::Success);
    }
    let created = match arguments.source_date_epoch {
        Some(seconds) => Timestamp::from_second(seconds)
            .with_context(|| format!("SOURCE_DATE_EPOCH={seconds} is no time"))?,
        None => Clock::system().now(),
    };
    let arguments = Arc::new(arguments);
    // Layers of base images may be large: they are kept in files.
    let scratch = tempfile::tempdir().context("could not create a temporary directory")?;
    let layout = Layout::create(scratch.path()).context("could not create a temporary image")?;
    let (log, mut lines) = mpsc::channel::<String>(LOG_LINES);
    let (job, scope) = (Arc::clone(&arguments), registries.clone());
    let runtime = Handle::current();
    let build = tokio::task::spawn_blocking(move || {
        build(&job, &scope, runtime, created, layout, &mut |line| {
            // Without a reader the command was ended, and nothing is printed any more.
            let _ = log.blocking_send(line.to_owned());
        })
    });
    while let Some(line) = lines.recv().await {
        output.note(line);
    }
    let (built, layout) = build.await.context("the build ended early")??;
    let root = built.manifest.descriptor();
    let blobs: SharedBlobs = Arc::new(layout);
    let image = deliver(&arguments, registries, &root, &blobs, output).await?;
    let what = json!({
        "simulated": built.simulated,
        "syntheticModules": built.synthetic_modules,
    });
    report(&arguments, &image, what, output)?;
    Ok(CommandOutcome::Success)
}

/// Builds the image into a layout.
fn build(
    arguments: &Arguments,
    registries: &RegistryScope,
    runtime: Handle,
    created: Timestamp,
    mut layout: Layout,
    log: &mut dyn FnMut(&str),
) -> Result<(BuiltImage, Layout), Failure> {
    let file = arguments.file.clone().unwrap_or_else(|| arguments.context.join("Dockerfile"));
    let dockerfile = context::read_bounded(&file, MAX_DOCKERFILE_BYTES)
        .with_context(|| format!("could not read {}", file.display()))?;
    let dockerfile = String::from_utf8(dockerfile)
        .with_context(|| format!("{} is no text in UTF-8", file.display()))?;
    let context = DirectoryContext::new(&arguments.context)
        .with_context(|| format!("could not read {}", arguments.context.display()))?;
    if context.has_ignore_file() {
        log("warning: .dockerignore is not applied; COPY and ADD find all files");
    }
    let mut run_files = Vec::new();
    for (directory, path) in &arguments.volumes {
        let found = files_below(directory, path)
            .with_context(|| format!("could not read {}", directory.display()))?;
        run_files.extend(found);
    }
    let access = arguments.access(arguments.insecure_pull, arguments.skip_tls_verify_pull);
    let bases = RegistryBases::new(registries, access, runtime);
    let request = BuildRequest {
        dockerfile: &dockerfile,
        args: &arguments.build_args,
        context: &context,
        platform: &arguments.platform,
        created,
        labels: &arguments.labels,
        kernel: arguments.kernel.as_ref(),
        expected_modules: &arguments.modules,
        run_files: &run_files,
        missing_bases: match arguments.missing_base {
            MissingBase::Refuse => MissingBases::Refuse,
            MissingBase::Empty => MissingBases::Empty,
        },
    };
    let built = gantry_dockerfile::build(&request, &bases, &mut layout, log)?;
    Ok((built, layout))
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let is_base = matches!(
            &error,
            BuildError::Step { problem, .. } if matches!(**problem, StepProblem::BaseImage { .. })
        );
        match is_base {
            true => ExitReason::Pull.because(error),
            false => ExitReason::Repack.because(error),
        }
    }
}

/// Writes the image to where it goes, and returns its name with its digest.
async fn deliver(
    arguments: &Arguments,
    registries: &RegistryScope,
    root: &Descriptor,
    blobs: &SharedBlobs,
    output: &mut Output,
) -> Result<String, Failure> {
    let (saved, image) = (Arc::clone(blobs), root.clone());
    let (layout, archive) = (arguments.oci_layout_out.clone(), arguments.oci_archive.clone());
    let name = arguments.tag.as_ref().map(|it| it.manifest_name().to_owned());
    let save = move || {
        image_files::save(&*saved, &image, layout.as_deref(), archive.as_deref(), name.as_deref())
    };
    tokio::task::spawn_blocking(save).await.context("writing ended early")??;
    let Some(to) = arguments.tag.as_ref().filter(|_| !arguments.no_push) else {
        return Ok(root.digest().to_string());
    };
    let access = arguments.access(arguments.insecure_push, arguments.skip_tls_verify_push);
    let client = registries.client(access, to.repository())?;
    output.note(format_args!("pushing {to}"));
    let pushed = effects::push_image(&client, to, root, blobs, &[]).await;
    pushed.map_err(|error| ExitReason::Push.because(error))?;
    Ok(format!("{}@{}", to.repository(), root.digest()))
}

/// Prints the result, and writes it to where Kubernetes reads it.
fn report(
    arguments: &Arguments,
    image: &str,
    fields: Value,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut result = fields;
    result["image"] = json!(image);
    image_files::write_termination_message(&arguments.termination_log, &result)?;
    match arguments.output {
        Some(form) => output.result_text(&render(&result, form)?)?,
        None => output.result(image)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_have_a_directory_and_an_absolute_path() {
        let table = [
            ("a:/b", Some(("a", "/b"))),
            ("/a/b:/c:ro", Some(("/a/b", "/c"))),
            ("/a:b", None),
            (":/b", None),
            ("/a", None),
        ];
        for (text, expected) in table {
            let read = volume(text).ok();
            let expected = expected.map(|(dir, path)| (PathBuf::from(dir), path.to_owned()));
            assert_eq!(read, expected, "{text}");
        }
    }
}
