//! Starts Gantry's own API server as a separate process, which a test can also kill.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::http::{Target, install_provider};
use crate::kubeconfig::{KubeconfigError, read_target};
use crate::run::{Run, RunError};

/// A running server. Dropping it stops the process and removes its files, unless the data directory
/// was given.
#[derive(Debug)]
pub struct EmbeddedServer {
    run: Run,
    target: Target,
    kubeconfig: PathBuf,
    took: Duration,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Plan {
    program: PathBuf,
    command: &'static str,
    data: Option<PathBuf>,
    port: u16,
    flags: Vec<String>,
}

/// How long a server may take to be ready. A healthy one needs a fraction of a second; a loaded
/// machine may need more.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a starting server is polled.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Plan {
    /// Runs the program at `program`, with a data directory of its own.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let command = "apiserver";
        Self { program: program.into(), command, data: None, port: 0, flags: Vec::new() }
    }

    /// Runs a whole cluster instead of the server alone.
    #[must_use]
    pub fn whole_cluster(mut self) -> Self {
        self.command = "up";
        self
    }

    /// Uses this data directory, which is kept.
    #[must_use]
    pub fn data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Listens on this port, for instance that of an earlier server; without it, on any free port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Errors
    /// The server did not start; the error has the end of its log.
    pub async fn start(self, clock: &Clock) -> Result<EmbeddedServer, EmbeddedServerError> {
        install_provider();
        let began = clock.moment();
        let runs = std::env::temp_dir().join("gantry-embedded");
        let mut run = Run::begin(&runs, clock).await?;
        let kubeconfig = run.folder().join("kubeconfig");
        let data = self.data.unwrap_or_else(|| run.folder().join("data"));
        let mut arguments =
            vec![self.command.to_owned(), "--port".to_owned(), self.port.to_string()];
        arguments.extend(["--data-dir".to_owned(), data.display().to_string()]);
        arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        arguments.extend(self.flags);
        run.start("gantry", &self.program, &arguments)?;
        // The file is written, in one step, when the server listens.
        while !kubeconfig.exists() {
            if run.exited_process().is_some() || clock.moment() - began > READY_TIMEOUT {
                return Err(EmbeddedServerError::NotReady { tails: run.tails() });
            }
            clock.sleep(READY_POLL_INTERVAL).await;
        }
        let took = clock.moment() - began;
        let target = read_target(&kubeconfig)?;
        Ok(EmbeddedServer { run, target, kubeconfig, took })
    }
}

impl EmbeddedServer {
    /// Returns the address of the server, with the credentials of its administrator.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the same as the path of a kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// How long it took from the start of the process until it listened.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.run.processes().first().map_or(0, |(_, pid)| *pid)
    }

    /// Sends its process a signal.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until its process exits by itself; nothing if it does not within the time limit.
    pub async fn wait_for_exit(&mut self, patience: Duration, clock: &Clock) -> Option<ExitStatus> {
        let began = clock.moment();
        loop {
            if let Some((_, status)) = self.run.exited_process() {
                return Some(status);
            }
            if clock.moment() - began > patience {
                return None;
            }
            clock.sleep(READY_POLL_INTERVAL).await;
        }
    }

    /// Returns the end of its log.
    #[must_use]
    pub fn tails(&self) -> String {
        self.run.tails()
    }

    /// The run it belongs to, to start other programs beside it.
    pub fn run(&mut self) -> &mut Run {
        &mut self.run
    }
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedServerError {
    /// The process could not be started.
    #[error("could not start the server")]
    Run(#[from] RunError),
    /// The process exited, or took too long.
    #[error("the server is not ready:\n{tails}")]
    NotReady {
        /// The end of its log.
        tails: String,
    },
    /// The kubeconfig it wrote cannot be read.
    #[error("cannot use the server's kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
}
