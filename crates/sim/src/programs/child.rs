//! Programs that are processes of the operating system.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use gantry_process::children::Command;
use gantry_process::tasks::Tasks;

use super::{Binary, Setting};

/// How long what a process printed last may take to be read.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// The code of a program that cannot be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// A program that is a process of its own, for what must have memory and crashes of its own.
///
/// It has the environment of its pod and nothing else, starts in the directory of its pod, and what it
/// prints is the log of its container. It is ready as soon as it runs; a readiness probe says more. When it
/// is to stop it gets SIGTERM, and SIGKILL, with all it started, when its time is over. Which program it is
/// is said by whoever registers the image, never by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildProcess {
    program: PathBuf,
    args: Vec<String>,
}

impl ChildProcess {
    /// Starts this program with these arguments and those of the container after them.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Self {
        let args = args.iter().map(|it| (*it).to_owned()).collect();
        Self { program: program.into(), args }
    }
}

impl Binary for ChildProcess {
    fn run(&self, setting: Setting, tasks: Tasks) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        let command = Command {
            program: self.program.clone(),
            args: [&self.args[..], &setting.args[..]].concat(),
            environment: setting.environment.clone(),
            directory: setting.directory.clone().unwrap_or_else(|| "/".into()),
        };
        Box::pin(run(command, setting, tasks))
    }
}

async fn run(command: Command, setting: Setting, tasks: Tasks) -> u8 {
    let (mut child, mut output) = match command.start() {
        Ok(started) => started,
        Err(error) => {
            let words = format!("could not start {}: {error}", command.program.display());
            setting.last_words.set(&words);
            (setting.say)(&words);
            return NOT_STARTED;
        }
    };
    (setting.set_ready)(true);
    let stop = tasks.token().clone();
    let (mut is_told, mut is_open) = (false, true);
    let ended = loop {
        tokio::select! {
            biased;
            // Each may be dropped: lines that were read are kept, the others only wait.
            () = stop.cancelled(), if !is_told => {
                is_told = true;
                child.terminate();
            }
            ended = child.ended() => break ended,
            line = output.next(), if is_open => match line {
                Some(line) => (setting.say)(&line),
                None => is_open = false,
            },
        }
    };
    let rest = async {
        while let Some(line) = output.next().await {
            (setting.say)(&line);
        }
    };
    // What held the pipes open was killed with its group; if not, nobody waits for it.
    let _ = tasks.clock().timeout(LAST_OUTPUT, rest).await;
    match ended {
        Ok(ended) => ended.code(),
        Err(error) => {
            (setting.say)(&format!("could not wait for the process: {error}"));
            NOT_STARTED
        }
    }
}
