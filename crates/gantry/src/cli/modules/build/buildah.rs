//! Builds images with the buildah of this machine, for `gantry up --builder buildah`.
//!
//! buildah carries out the instructions, also RUN, in a process of its own. It pushes nothing: the
//! image becomes an archive in the scratch directory, and goes from there to where images of the
//! simulated builder go, too.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use gantry_kernel_modules::effects::SharedBlobs;
use gantry_oci::Descriptor;
use gantry_oci::layout::Archive;
use gantry_process::children::{ChildExit, Command, Input};
use serde_json::{Map, Value, json};

use super::Arguments;
use crate::cli::modules::key_files::in_secret;
use crate::cli::modules::registry_flags::RegistryScope;
use crate::cli::modules::{ExitReason, Failure};
use crate::config;
use crate::output::Output;

/// The name of the program.
const PROGRAM: &str = "buildah";
/// The name of the image in the scratch directory, which nothing else can reach.
const LOCAL_IMAGE: &str = "localhost/gantry-build:latest";
/// How a build is isolated: as in Jobs on real nodes.
const ISOLATION: &str = "chroot";

/// Finds buildah in these directories, as `PATH` has them.
///
/// # Errors
/// It is not there; the error says how to get it.
pub(crate) fn find_buildah(path: Option<&std::ffi::OsStr>) -> anyhow::Result<PathBuf> {
    let directories = path.map(std::env::split_paths).into_iter().flatten();
    let mut files = directories.filter(|it| it.is_absolute()).map(|it| it.join(PROGRAM));
    files.find(|it| it.is_file()).with_context(|| {
        format!(
            "--builder: there is no program {PROGRAM} in PATH; install it (`apt-get install \
             buildah`, `dnf install buildah`), or use --builder simulated, which runs no commands"
        )
    })
}

/// Builds an image as the arguments say, and returns it with its blobs.
pub(super) async fn build(
    program: &Path,
    arguments: &Arguments,
    registries: &RegistryScope,
    scratch: &Path,
    output: &mut Output,
) -> Result<(Descriptor, SharedBlobs), Failure> {
    let built = build_archive(program, arguments, registries, scratch, output).await;
    // For users other than root, files in layers belong to other users: only buildah removes them.
    let remove = ["rmi", "--all", "--force"].map(str::to_owned).to_vec();
    if let Err(Failure { error, .. }) = run(program, scratch, remove, output).await {
        output.warning(format_args!("could not remove layers in {}: {error}", scratch.display()));
    }
    built
}

async fn build_archive(
    program: &Path,
    arguments: &Arguments,
    registries: &RegistryScope,
    scratch: &Path,
    output: &mut Output,
) -> Result<(Descriptor, SharedBlobs), Failure> {
    let files = ScratchFiles::write(arguments, registries, scratch)?;
    output.note("building with buildah: commands of RUN are run on this machine");
    run(program, scratch, build_arguments(arguments, &files), output).await?;
    let archive = scratch.join("image.tar");
    let to = format!("oci-archive:{}", archive.display());
    run(program, scratch, ["push", LOCAL_IMAGE, &to].map(str::to_owned).to_vec(), output).await?;
    let open = || {
        let archive = Archive::open(File::open(&archive)?)?;
        let root = archive.image(None)?.clone();
        let blobs: SharedBlobs = Arc::new(archive);
        anyhow::Ok((root, blobs))
    };
    let opened = open().context("could not read the image that buildah has built");
    opened.map_err(|it| ExitReason::Repack.because(it))
}

/// What buildah reads besides the files of the build.
struct ScratchFiles {
    /// Credentials of registries.
    credentials: PathBuf,
    /// A directory with certificates of registries.
    certificates: PathBuf,
}

impl ScratchFiles {
    fn write(
        arguments: &Arguments,
        registries: &RegistryScope,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let certificates = scratch.join("certificates");
        fs::create_dir(&certificates).context("could not create a directory for certificates")?;
        let mut entries = Map::new();
        for path in &arguments.auth_files {
            let named = || format!("cannot use the credentials in {}", path.display());
            let file = in_secret(path, &[".dockerconfigjson", ".dockercfg", "config.json"]);
            let bytes = fs::read(file.with_context(named)?).with_context(named)?;
            let file: Value = serde_json::from_slice(&bytes).with_context(named)?;
            let of_file = file.get("auths").unwrap_or(&file).as_object().cloned();
            for (registry, entry) in of_file.into_iter().flatten() {
                entries.entry(registry).or_insert(entry);
            }
        }
        if let Some(path) = &arguments.ca_file {
            fs::copy(path, certificates.join("own.crt"))
                .with_context(|| format!("could not read {}", path.display()))?;
        }
        if let RegistryScope::Pod(cluster) = registries {
            fs::write(certificates.join("cluster.crt"), &cluster.roots)
                .context("could not write the certificates of the cluster")?;
            let own: Value = serde_json::from_str(cluster.credentials_text.reveal())
                .context("the credentials of the cluster are malformed")?;
            for (registry, entry) in own["auths"].as_object().into_iter().flatten() {
                entries.entry(registry.clone()).or_insert_with(|| entry.clone());
            }
        }
        let credentials = scratch.join("credentials.json");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&credentials);
        let text = json!({"auths": entries}).to_string();
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .context("could not write the credentials for buildah")?;
        Ok(Self { credentials, certificates })
    }
}

/// The arguments of the build, as the Jobs of real nodes have them.
fn build_arguments(arguments: &Arguments, files: &ScratchFiles) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let verifies = !arguments.insecure_pull && !arguments.skip_tls_verify_pull;
    let file = arguments.file.clone().unwrap_or_else(|| arguments.context.join("Dockerfile"));
    let mut all = vec![
        "build".to_owned(),
        format!("--isolation={ISOLATION}"),
        format!("--tls-verify={verifies}"),
        format!("--authfile={}", text(&files.credentials)),
        format!("--cert-dir={}", text(&files.certificates)),
        format!("--platform={}", arguments.platform),
        format!("--file={}", text(&file)),
    ];
    let pairs = |option: &str, pairs: &[(String, String)]| -> Vec<String> {
        pairs.iter().map(|(name, value)| format!("{option}={name}={value}")).collect()
    };
    all.extend(pairs("--label", &arguments.labels));
    all.extend(pairs("--build-arg", &arguments.build_args));
    let volumes = arguments.volumes.iter();
    all.extend(volumes.map(|(directory, path)| format!("--volume={}:{path}:ro", text(directory))));
    all.extend([format!("--tag={LOCAL_IMAGE}"), text(&arguments.context)]);
    all
}

/// Runs buildah with images in the scratch directory only. Dropping the future ends it.
async fn run(
    program: &Path,
    scratch: &Path,
    arguments: Vec<String>,
    output: &mut Output,
) -> Result<(), Failure> {
    let text = |path: PathBuf| path.display().to_string();
    let mut args = vec![
        format!("--root={}", text(scratch.join("storage"))),
        format!("--runroot={}", text(scratch.join("run"))),
        "--storage-driver=vfs".to_owned(),
    ];
    args.extend(arguments);
    let path = config::program_path().and_then(|it| it.into_string().ok());
    let path = path.unwrap_or_else(|| "/usr/bin:/bin".to_owned());
    let home = text(scratch.to_path_buf());
    let environment = [("PATH", path), ("HOME", home.clone()), ("TMPDIR", home)];
    let command = Command {
        program: program.to_path_buf(),
        args,
        environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
        directory: scratch.to_path_buf(),
        input: Input::Null,
    };
    let (mut child, mut lines) =
        command.start().with_context(|| format!("could not start {}", program.display()))?;
    while let Some(line) = lines.next().await {
        output.note(line);
    }
    match child.wait().await.context("could not wait for buildah")? {
        ChildExit::Exited(0) => Ok(()),
        exit => {
            let why = anyhow::anyhow!("buildah ended with code {}; its log says why", exit.code());
            Err(ExitReason::Repack.because(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_missing_buildah_is_reported_with_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().as_os_str();
        for path in [None, Some(path)] {
            let error = find_buildah(path).unwrap_err().to_string();
            for part in ["apt-get install buildah", "--builder simulated"] {
                assert!(error.contains(part), "{error}");
            }
        }
        let program = folder.path().join(PROGRAM);
        fs::write(&program, "").unwrap();
        assert_eq!(find_buildah(Some(path)).unwrap(), program);
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn options_become_those_of_buildah() {
        let line = Line::parse_from([
            "build",
            "--tag",
            "a.example/b:1",
            "--build-arg",
            "A=x y",
            "--label",
            "l=1",
            "--volume",
            "/s:/run/secrets/s:ro",
            "--platform",
            "linux/arm64",
            "--insecure-pull",
            "--module",
            "/opt/m.ko",
            "/work",
        ]);
        let files =
            ScratchFiles { credentials: "/t/auth.json".into(), certificates: "/t/certs".into() };
        let expected = [
            "build",
            "--isolation=chroot",
            "--tls-verify=false",
            "--authfile=/t/auth.json",
            "--cert-dir=/t/certs",
            "--platform=linux/arm64",
            "--file=/work/Dockerfile",
            "--label=l=1",
            "--build-arg=A=x y",
            "--volume=/s:/run/secrets/s:ro",
            "--tag=localhost/gantry-build:latest",
            "/work",
        ];
        assert_eq!(build_arguments(&line.arguments, &files), expected);
    }
}
