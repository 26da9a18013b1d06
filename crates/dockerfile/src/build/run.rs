//! Simulates `RUN`: commands are not run, and what a few of them would leave is written.
//!
//! Known are commands that copy files or kernel modules, that write text, and that make
//! directories and links. Every other command counts as successful and leaves nothing. `false` and
//! `exit` fail as they would for real, so that failures can be demonstrated.

mod commands;

use std::collections::BTreeMap;

use gantry_oci::TreePath;

use super::Build;
use super::copy::absolute;
use super::error::StepProblem;
use super::ownership::{Owner, parse_owner};
use super::stage::StageState;
use crate::expand;
use crate::instruction::{Command, Heredoc};
use crate::shell::{self, Connector, Redirect, SimpleCommand};
use commands::OutputFile;

/// What the log says after every `RUN`.
pub(super) const SIMULATED: &str =
    " (simulated: commands are not run in gantry up; for a real build use buildah and push)";

/// How lines about a simulated command start.
pub(super) const SIMULATED_PREFIX: &str = "simulated";

/// The comment of a simulated command in the history of the image.
pub(super) const SIMULATED_COMMENT: &str = "simulated: the commands were not run";

/// Shells whose commands are understood.
const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "busybox"];

/// A word after expansion; none if its value is known only when the command runs.
pub(super) type Word = Option<String>;

/// The state of the shell that runs a command.
struct Shell {
    directory: TreePath,
    /// Variables that the commands set; none if the value is not known.
    variables: BTreeMap<String, Option<String>>,
    owner: Owner,
    /// Whether a failed command ends the list.
    exit_on_error: bool,
    /// Secrets of `--mount`, by their paths.
    secrets: Vec<(String, Vec<u8>)>,
}

/// How a command ended.
enum Ended {
    Status(u8),
    /// The shell exits.
    Exit(u8),
}

/// What is run.
enum Script {
    List(String),
    Words(Vec<Word>),
    /// Something that is not understood.
    Opaque,
}

impl<'a> Build<'a> {
    pub(super) fn run(
        &mut self,
        state: &mut StageState<'a>,
        command: &Command,
        heredocs: &[Heredoc],
        mounts: &[String],
    ) -> Result<(), StepProblem> {
        let mut shell = Shell {
            directory: absolute(state.working_directory(), "/")?,
            variables: BTreeMap::new(),
            // A user that the image does not know would fail for real; its files are no concern.
            owner: match state.user() {
                "" => Owner::default(),
                user => parse_owner(user, &state.file_system).unwrap_or_default(),
            },
            exit_on_error: false,
            secrets: self.secrets(mounts),
        };
        let code = match script(state, command, heredocs, &mut shell.exit_on_error) {
            Script::Words(words) => match self.simple(state, &mut shell, &words, None)? {
                Ended::Status(code) | Ended::Exit(code) => code,
            },
            Script::List(text) => match shell::parse_list(&text) {
                Some(pipelines) => self.list(state, &mut shell, &pipelines)?,
                None => self.opaque(),
            },
            Script::Opaque => self.opaque(),
        };
        if code == 0 { Ok(()) } else { Err(StepProblem::CommandFailed { code }) }
    }

    fn opaque(&mut self) -> u8 {
        self.log(&format!("{SIMULATED_PREFIX}: none of the effects of this command is simulated"));
        0
    }

    /// Files that `--mount=type=secret` gives other paths.
    fn secrets(&self, mounts: &[String]) -> Vec<(String, Vec<u8>)> {
        let mut secrets = self.request.run_files.to_vec();
        for mount in mounts {
            let options: BTreeMap<&str, &str> =
                mount.split(',').filter_map(|option| option.split_once('=')).collect();
            let target = ["target", "dst", "destination"].iter().find_map(|key| options.get(key));
            if let (Some(&"secret"), Some(id), Some(target)) =
                (options.get("type"), options.get("id"), target)
            {
                let path = format!("/run/secrets/{id}");
                let file = self.request.run_files.iter().find(|(own, _)| *own == path);
                secrets.extend(file.map(|(_, content)| ((*target).to_owned(), content.clone())));
            }
        }
        secrets
    }

    /// Runs a list and returns its exit code.
    fn list(
        &mut self,
        state: &mut StageState<'a>,
        shell: &mut Shell,
        pipelines: &[shell::Pipeline],
    ) -> Result<u8, StepProblem> {
        let mut status = 0;
        for (index, pipeline) in pipelines.iter().enumerate() {
            match pipeline.connector {
                Connector::And if status != 0 => continue,
                Connector::Or if status == 0 => continue,
                Connector::Always | Connector::And | Connector::Or => {}
            }
            let ended = match pipeline.commands.as_slice() {
                [command] => self.command(state, shell, command)?,
                commands => Ended::Status(commands.last().map_or(0, status_in_pipeline)),
            };
            status = match ended {
                Ended::Status(status) => status,
                Ended::Exit(code) => return Ok(code),
            };
            let next = pipelines.get(index + 1).map(|next| next.connector);
            let tested = matches!(next, Some(Connector::And | Connector::Or));
            if status != 0 && shell.exit_on_error && !tested {
                return Ok(status);
            }
        }
        Ok(status)
    }

    fn command(
        &mut self,
        state: &mut StageState<'a>,
        shell: &mut Shell,
        command: &SimpleCommand,
    ) -> Result<Ended, StepProblem> {
        let mut words = Vec::new();
        for raw in &command.words {
            if words.is_empty()
                && let Some((name, value)) = shell::assignment(raw)
            {
                let value = self.expand_word(state, shell, value);
                shell.variables.insert(name.to_owned(), value);
                continue;
            }
            match self.expand_word(state, shell, raw) {
                None => words.push(None),
                Some(value) if shell::is_quoted(raw) => words.push(Some(value)),
                Some(value) => {
                    words.extend(value.split_whitespace().map(|word| Some(word.to_owned())));
                }
            }
        }
        let output = match &command.output {
            None => None,
            Some(Redirect { append, target }) => match self.expand_word(state, shell, target) {
                Some(target) => {
                    let path = absolute(&target, &shell.directory.to_string())?;
                    Some(OutputFile { path, append: *append })
                }
                // Where the output would go is not known.
                None => return Ok(Ended::Status(0)),
            },
        };
        self.simple(state, shell, &words, output)
    }

    /// Expands a word; none if its value is not known.
    fn expand_word(&self, state: &StageState<'_>, shell: &Shell, raw: &str) -> Word {
        if shell::has_substitution(raw) {
            return None;
        }
        let unknown = std::cell::Cell::new(false);
        let lookup = |name: &str| match shell.variables.get(name) {
            Some(Some(value)) => Some(value.clone()),
            Some(None) => {
                unknown.set(true);
                None
            }
            None => {
                let own = state.variable(name).map(str::to_owned);
                own.or_else(|| self.predefined_argument(name))
            }
        };
        // An error is one of the shell's own forms, such as `${a%b}`.
        expand::expand(raw, '\\', &lookup).ok().filter(|_| !unknown.get())
    }
}

/// The exit code of the last command of a pipeline, as far as it is known.
fn status_in_pipeline(command: &SimpleCommand) -> u8 {
    u8::from(command.words.first().is_some_and(|word| word == "false"))
}

fn script(
    state: &StageState<'_>,
    command: &Command,
    heredocs: &[Heredoc],
    exit_on_error: &mut bool,
) -> Script {
    match command {
        Command::Exec(words) => match words.split_last() {
            Some((script, shell)) if is_shell(shell, exit_on_error) => Script::List(script.clone()),
            _ => Script::Words(words.iter().cloned().map(Some).collect()),
        },
        Command::Shell(text) => {
            if !is_shell(&state.shell(), exit_on_error) {
                return Script::Opaque;
            }
            match heredocs {
                [] => Script::List(text.clone()),
                // The shell runs a here-document that stands alone.
                [heredoc] if text.split_whitespace().count() == 1 => {
                    let first = heredoc.content.lines().next().unwrap_or_default();
                    match first.strip_prefix("#!") {
                        Some(program) if !program.trim_end().ends_with("sh") => Script::Opaque,
                        Some(_) | None => Script::List(heredoc.content.clone()),
                    }
                }
                _ => Script::Opaque,
            }
        }
    }
}

/// Whether words start a shell whose next argument is a list of commands.
fn is_shell(words: &[String], exit_on_error: &mut bool) -> bool {
    let Some((program, options)) = words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_short = |option: &&String| option.starts_with('-') && !option.starts_with("--");
    let is_command = options.last().filter(is_short).is_some_and(|option| option.ends_with('c'));
    if SHELLS.contains(&name) && is_command {
        *exit_on_error = options.iter().filter(is_short).any(|option| option.contains('e'));
        return true;
    }
    false
}
