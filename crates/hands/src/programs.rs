//! Runs programs of the host, with an end, a bounded output and no environment of ours.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gantry_process::children::{ChildExit, Command, Input};
use gantry_process::clock::Clock;
use gantry_provision::Failure;

use crate::files::Root;

/// How long a program may run.
const MAX_RUN: Duration = Duration::from_secs(15 * 60);
/// Lines of output that are kept.
const MAX_LINES: usize = 100_000;
/// Lines of output that a failure shows.
const SHOWN_LINES: usize = 5;

/// Runs programs below a root folder.
pub(crate) struct Programs {
    root: PathBuf,
    runtime: tokio::runtime::Runtime,
    clock: Clock,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Programs({})", self.root.display())
    }
}

impl Programs {
    pub(crate) fn new(root: &Root, clock: Clock) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { root: root.0.clone(), runtime, clock })
    }

    /// Runs a program to its end. Returns its output if it ends with 0.
    pub(crate) fn run(&self, argv: &[&str]) -> Result<String, Failure> {
        match self.try_run(argv)? {
            (0, output) => Ok(output),
            (code, output) => {
                let lines: Vec<&str> = output.lines().collect();
                let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("; ");
                let program = argv.first().copied().unwrap_or_default();
                // The lock of the package tool; another holds it.
                let is_transient = output.contains("Could not get lock");
                let error = format!("{program} ended with {code}: {shown}");
                Err(Failure { error, is_transient })
            }
        }
    }

    /// Runs a program to its end. Returns its exit code and its output.
    pub(crate) fn try_run(&self, argv: &[&str]) -> Result<(u8, String), Failure> {
        let [program, args @ ..] = argv else {
            return Err(Failure::lasting("there is no program to run"));
        };
        let environment = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("LC_ALL", "C"),
            ("HOME", "/root"),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ];
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut environment: BTreeMap<String, String> = environment.into_iter().map(pair).collect();
        environment.insert("GANTRY_ROOT".to_owned(), self.root.display().to_string());
        let path = self.root.join(program.trim_start_matches('/'));
        let command = Command {
            program: path.clone(),
            args: args.iter().map(|it| (*it).to_owned()).collect(),
            environment,
            directory: self.root.clone(),
            input: Input::Null,
        };
        let shown = path.display();
        self.runtime.block_on(async {
            let started = command.start();
            let (mut child, mut output) = started
                .map_err(|error| Failure::lasting(format!("could not start {shown}: {error}")))?;
            let read = async {
                let mut lines = Vec::new();
                while let Some(line) = output.next().await {
                    if lines.len() < MAX_LINES {
                        lines.push(line);
                    }
                }
                lines
            };
            // What the program leaves running is killed when it ends, so that the output closes.
            let work = async {
                let (exit, lines) = tokio::join!(child.wait(), read);
                exit.map(|exit| (exit, lines))
            };
            tokio::select! {
                ended = work => {
                    let (exit, lines) = ended.map_err(|error| {
                        Failure::lasting(format!("could not wait for {shown}: {error}"))
                    })?;
                    let mut text = lines.join("\n");
                    text.push('\n');
                    Ok((ChildExit::code(exit), text))
                }
                () = self.clock.sleep(MAX_RUN) => {
                    let seconds = MAX_RUN.as_secs();
                    let error = format!("{shown} did not end within {seconds} s, and was killed");
                    Err(Failure { error, is_transient: true })
                }
            }
        })
    }
}
