//! The files of a container when its program starts: its image, its volumes, and its termination
//! message.

use std::path::PathBuf;
use std::time::Duration;

use gantry_process::clock::Clock;

use super::files::{PodFiles, make_directory};
use super::mounts::read_bounded;
use super::program_spec::ProgramSpec;
use super::{Mounts, ProgramHost, TerminationMessage};
use crate::image::RootFiles;
use crate::kernel::KernelAccess;
use crate::shell;

/// How long the files of an image may take to be read.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the image of a container, if its files are read.
pub(super) async fn open_image(
    want: &ProgramSpec,
    host: &ProgramHost,
    clock: &Clock,
) -> Result<RootFiles, String> {
    let Some(pull) = &want.pull else { return Ok(RootFiles::default()) };
    let Some(images) = &host.images else {
        return Err(format!("the files of image {:?} cannot be read here", pull.image));
    };
    let opened = clock.timeout(IMAGE_TIMEOUT, images.open(pull)).await;
    let opened = opened.map_err(|_| format!("reading image {:?} took too long", pull.image))?;
    let tree = opened.map_err(|error| error.message(&pull.image))?;
    let host_paths = want.host_paths.iter().map(|(host, mount)| (host.as_str(), mount.as_str()));
    Ok(RootFiles::new(tree, host_paths))
}

/// Returns the simulated shell of a container.
pub(super) fn shell_context(
    want: &ProgramSpec,
    clock: &Clock,
    files: Mounts,
    root: RootFiles,
    kernel: Option<KernelAccess>,
) -> shell::ShellContext {
    let mut variables = want.environment.clone();
    for (name, value) in root.image().iter().flat_map(|it| &it.config().variables) {
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
    shell::ShellContext {
        hostname: want.hostname.clone(),
        variables: variables.into_iter().collect(),
        tty: false,
        clock: clock.clone(),
        files,
        root,
        kernel,
    }
}

/// Mounts the volumes of a container; returns the mounts and the termination message file, if there
/// is one.
pub(super) async fn mount_volumes(
    want: &ProgramSpec,
    files: Option<&PodFiles>,
) -> Result<(Mounts, Option<PathBuf>), String> {
    let Some(files) = files else { return Ok((Mounts::default(), None)) };
    files.wait_until_written().await?;
    let own = files.directory().join("containers").join(&want.container);
    let log = own.join("termination-log");
    let empty = {
        let log = log.clone();
        move || make_directory(&own).and_then(|()| std::fs::write(&log, ""))
    };
    let made = tokio::task::spawn_blocking(empty).await.map_err(|it| it.to_string())?;
    made.map_err(|error| format!("could not create the termination message file: {error}"))?;
    let mut mounts =
        Mounts::with_root(files.directory()).with_mount(&want.termination_log, &log, "")?;
    for mount in &want.mounts {
        mounts = mounts.with_mount(&mount.path, &files.volume(&mount.volume), &mount.sub_path)?;
    }
    Ok((mounts, Some(log)))
}

/// Reads the termination message file, unless the program set a message.
pub(super) async fn read_termination_log(log: Option<PathBuf>, words: &TerminationMessage) {
    let Some(log) = log.filter(|_| words.get().is_empty()) else { return };
    // More than that is cut off anyway; the file may be any size.
    let read =
        tokio::task::spawn_blocking(move || read_bounded(&log, 16 * TerminationMessage::MAX_BYTES));
    if let Ok(Ok(bytes)) = read.await {
        words.set(&String::from_utf8_lossy(&bytes));
    }
}
