//! Driver containers: their command runs in the simulated shell, with the files of their image and
//! the kernel of their node.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use gantry_process::tasks::Tasks;
use tokio::sync::mpsc;

use super::{Binary, ProgramContext};
use crate::image::ImageConfig;
use crate::shell::{self, KILLED_EXIT_CODE, Stdio};

/// The exit code of a container that was stopped.
const STOPPED_EXIT_CODE: u8 = 143;
/// The exit code of a container whose program does not exist, as container runtimes have it.
const NOT_STARTED_EXIT_CODE: u8 = 128;
/// The longest line of output that is logged at once.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Runs the command of a container in the simulated shell.
///
/// It ends as soon as it is stopped. A real `sleep infinity` that is the first process of its
/// container ignores the signal, and is killed after the grace period.
#[derive(Debug)]
pub(super) struct DriverContainer;

impl Binary for DriverContainer {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(run(context, tasks))
    }
}

async fn run(context: ProgramContext, tasks: Tasks) -> u8 {
    let stop = tasks.token().clone();
    let failed = |message: &str| {
        context.termination_message.set(message);
        (context.log)(message);
        NOT_STARTED_EXIT_CODE
    };
    let Some(shell) = &context.shell else { return failed("this container has no shell") };
    let none = ImageConfig::default();
    let image = shell.root.image().map_or(&none, |it| it.config());
    let command = command(context.program.as_deref(), &context.args, image);
    if command.is_empty() {
        return failed("no command specified: set `command` of the container, or CMD of its image");
    }
    (context.set_ready)(true);
    let (sender, mut output) = mpsc::channel::<Bytes>(8);
    let stdio = Stdio { stdin: None, stdout: Some(sender.clone()), stderr: Some(sender) };
    let log = async {
        let mut line = Vec::new();
        while let Some(bytes) = output.recv().await {
            line.extend_from_slice(&bytes);
            let whole = line.iter().rposition(|it| *it == b'\n').map(|at| at + 1);
            let is_long = line.len() > MAX_LINE_BYTES;
            let whole = whole.or_else(|| is_long.then_some(line.len()));
            if let Some(end) = whole {
                let lines: Vec<u8> = line.drain(..end).collect();
                (context.log)(String::from_utf8_lossy(&lines).trim_end_matches('\n'));
            }
        }
        if !line.is_empty() {
            (context.log)(&String::from_utf8_lossy(&line));
        }
    };
    let (code, ()) = tokio::join!(shell::run(&command, shell, stdio, &stop), log);
    match code {
        Ok(KILLED_EXIT_CODE) if stop.is_cancelled() => STOPPED_EXIT_CODE,
        Ok(code) => code,
        Err(message) => failed(&message),
    }
}

/// Returns the command of a container: its own, or else that of its image.
fn command(program: Option<&str>, arguments: &[String], image: &ImageConfig) -> Vec<String> {
    let own = |words: &[String]| words.to_vec();
    let first = match program {
        Some(program) => return [vec![program.to_owned()], own(arguments)].concat(),
        None => own(&image.entrypoint),
    };
    let rest = if arguments.is_empty() { own(&image.command) } else { own(arguments) };
    [first, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_image_is_the_default() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let table = [
            (None, "", "e1 e2", "c", "e1 e2 c"),
            (None, "a", "e1", "c", "e1 a"),
            (Some("p"), "", "e1", "c", "p"),
            (Some("p"), "a", "e1", "c", "p a"),
            (None, "", "", "c d", "c d"),
            (None, "", "", "", ""),
        ];
        for (program, arguments, entrypoint, cmd, expected) in table {
            let image = ImageConfig {
                entrypoint: words(entrypoint),
                command: words(cmd),
                ..ImageConfig::default()
            };
            assert_eq!(command(program, &words(arguments), &image), words(expected));
        }
    }
}
