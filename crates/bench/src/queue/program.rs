//! A measured controller, as a process of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::peak_memory::peak_megabytes;
use crate::usage;

/// A running program. It is stopped when this value is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    name: &'static str,
    log: PathBuf,
}

/// The resources a program has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Processor time.
    pub(crate) cpu: Duration,
    /// Peak memory, in megabytes.
    pub(crate) peak: f64,
}

impl Program {
    /// Starts a program whose output goes to a file in this folder.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: &[OsString],
        folder: &Path,
    ) -> anyhow::Result<Self> {
        ensure!(program.is_file(), "there is no {}: build it first", program.display());
        let log = folder.join(format!("{name}.log"));
        let file = fs::File::create(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .env("NAMESPACE", "default")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        Ok(Self { child, name, log })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resources it has used so far.
    pub(crate) fn cost(&self) -> Cost {
        let peak = peak_megabytes(self.pid()).unwrap_or_default();
        Cost { cpu: usage::cpu(&[self.pid()]), peak }
    }

    /// Returns whether it has exited successfully.
    pub(crate) fn has_exited(&mut self) -> anyhow::Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{} exited with {status}\n{}", self.name, self.tail()),
        }
    }

    /// Fails if the program has exited: it is needed until the end.
    pub(crate) fn ensure_running(&mut self) -> anyhow::Result<()> {
        ensure!(!self.has_exited()?, "{} exited\n{}", self.name, self.tail());
        Ok(())
    }

    /// Returns the end of its log.
    pub(crate) fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have exited already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that was built together with this one.
pub(crate) fn beside_this_program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("could not find this program")?;
    Ok(own.with_file_name(name))
}
