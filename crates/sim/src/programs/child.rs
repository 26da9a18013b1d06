//! Programs that are processes of the operating system.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use gantry_process::children::{Command, Input};
use gantry_process::tasks::Tasks;

use super::{Binary, ProgramContext};

/// How long reading the last output of a process may take.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The exit code of a program that cannot be started, as shells have it.
const NOT_STARTED_EXIT_CODE: u8 = 127;

/// A program that is a separate process, for programs that need their own memory and may crash.
///
/// It has the environment of its pod and nothing else, starts in the directory of its pod, and its
/// output is the log of its container. Nothing is written to its input, which closes when this
/// process ends, even if it is killed: it should end then. It is ready as soon as it runs; a
/// readiness probe refines that. When it is to stop it gets SIGTERM, and SIGKILL, with all its
/// descendants, when the grace period is over. The registration of the image decides which program
/// it is, never a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildProcess {
    program: PathBuf,
    args: Vec<String>,
}

impl ChildProcess {
    /// Creates a program with these arguments and those of the container after them.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Self {
        let args = args.iter().map(|it| (*it).to_owned()).collect();
        Self { program: program.into(), args }
    }
}

impl Binary for ChildProcess {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        let command = Command {
            program: self.program.clone(),
            args: [&self.args[..], &context.args[..]].concat(),
            environment: context.environment.clone(),
            directory: context.directory.clone().unwrap_or_else(|| "/".into()),
            input: Input::Tether,
        };
        Box::pin(run(command, context, tasks))
    }
}

async fn run(command: Command, context: ProgramContext, tasks: Tasks) -> u8 {
    let (mut child, mut output) = match command.start() {
        Ok(started) => started,
        Err(error) => {
            let message = format!("could not start {}: {error}", command.program.display());
            context.termination_message.set(&message);
            (context.log)(&message);
            return NOT_STARTED_EXIT_CODE;
        }
    };
    (context.set_ready)(true);
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
            ended = child.wait() => break ended,
            line = output.next(), if is_open => match line {
                Some(line) => (context.log)(&line),
                None => is_open = false,
            },
        }
    };
    let rest = async {
        while let Some(line) = output.next().await {
            (context.log)(&line);
        }
    };
    // The processes that held the pipes open were killed with their group; any that was not is not
    // waited for.
    let _ = tasks.clock().timeout(OUTPUT_DRAIN_TIMEOUT, rest).await;
    match ended {
        Ok(ended) => ended.code(),
        Err(error) => {
            (context.log)(&format!("could not wait for the process: {error}"));
            NOT_STARTED_EXIT_CODE
        }
    }
}
