//! Finds programs of the container, and runs the vendor's tool.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_process::children::{Command, Input};
use gantry_process::clock::Clock;

use crate::host::Host;

/// How long the vendor tool may take.
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);
/// The most output of the vendor tool that is read.
const MAX_TOOL_BYTES: usize = 1 << 20;

/// Why the vendor tool has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The container does not have it.
    #[error("nvidia-smi is not in $PATH")]
    Missing,
    /// It does not end.
    #[error("nvidia-smi took more than {TOOL_TIMEOUT:?}")]
    TooSlow,
    /// It cannot be started.
    #[error("could not run nvidia-smi: {0}")]
    NotRun(#[from] io::Error),
}

/// Finds a program in a search path.
pub(crate) fn find(name: &str, path: &str) -> Option<PathBuf> {
    let folders = path.split(':').filter(|it| !it.is_empty());
    folders.map(|it| Path::new(it).join(name)).find(|it| it.is_file())
}

/// Runs the vendor tool of the container; returns its exit code and its output.
pub(crate) async fn run_vendor_tool(
    host: &Host,
    clock: &Clock,
    arguments: &[String],
) -> Result<(u8, String), ToolError> {
    // Those who write simulated pods must not choose the program.
    let path = host.variable("PATH").filter(|_| host.confinement().is_none());
    let program = find("nvidia-smi", path.unwrap_or_default());
    let command = Command {
        program: program.ok_or(ToolError::Missing)?,
        args: arguments.to_vec(),
        environment: host.environment.clone(),
        directory: "/".into(),
        input: Input::Null,
    };
    let run = async {
        let (mut child, mut output) = command.start_merged()?;
        let mut printed = Vec::new();
        while let Some(bytes) = output.next().await {
            if printed.len() < MAX_TOOL_BYTES {
                printed.extend(bytes);
            }
        }
        Ok::<_, io::Error>((child.wait().await?, printed))
    };
    let ended = clock.timeout(TOOL_TIMEOUT, run).await.map_err(|_| ToolError::TooSlow)?;
    let (exit, printed) = ended?;
    Ok((exit.code(), String::from_utf8_lossy(&printed).into_owned()))
}
