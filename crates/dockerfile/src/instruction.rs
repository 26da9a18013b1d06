//! What a Dockerfile consists of.

use crate::words::Flag;

/// A Dockerfile that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dockerfile {
    /// The character that continues lines and escapes others.
    pub(crate) escape: char,
    /// The value of the directive `syntax`.
    pub(crate) syntax: Option<String>,
    /// `ARG` instructions before the first stage.
    pub(crate) global: Vec<Step>,
    /// The stages, the last of which is the image.
    pub(crate) stages: Vec<Stage>,
}

impl Dockerfile {
    /// The stages, the last of which is the image.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Whether a stage runs commands.
    #[must_use]
    pub fn has_run(&self) -> bool {
        let steps = self.stages.iter().flat_map(|stage| &stage.steps);
        steps.into_iter().any(|step| matches!(step.instruction, Instruction::Run { .. }))
    }
}

/// A stage: `FROM` and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The line of `FROM`.
    pub line: usize,
    /// The instruction as it was written, in one line.
    pub text: String,
    /// What it is based on, before variables are expanded.
    pub base: String,
    /// The platform, before variables are expanded.
    pub platform: Option<String>,
    /// Its name, in lower case.
    pub name: Option<String>,
    /// What follows.
    pub steps: Vec<Step>,
}

/// An instruction and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line, from 1.
    pub line: usize,
    /// The instruction as it was written, in one line.
    pub text: String,
    /// What it says.
    pub instruction: Instruction,
}

/// What an instruction says, before variables are expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Declares arguments of the build.
    Arg(Vec<(String, Option<String>)>),
    /// Sets variables of the environment.
    Env(Vec<(String, String)>),
    /// Sets labels.
    Label(Vec<(String, String)>),
    /// Sets the author.
    Maintainer(String),
    /// Sets the working directory.
    Workdir(String),
    /// Sets the user.
    User(String),
    /// Sets the program.
    Entrypoint(Command),
    /// Sets the program's arguments.
    Cmd(Command),
    /// Sets the shell of later commands.
    Shell(Vec<String>),
    /// Declares ports.
    Expose(Vec<String>),
    /// Declares volumes.
    Volume(Vec<String>),
    /// Sets the signal that stops the program.
    StopSignal(String),
    /// Sets the health check.
    Healthcheck(Healthcheck),
    /// An instruction for builds on top of this image.
    OnBuild(String),
    /// Copies files.
    Copy(CopySources),
    /// Copies files and unpacks archives.
    Add(CopySources),
    /// Runs a command.
    Run {
        /// The command.
        command: Command,
        /// Values of `--mount`.
        mounts: Vec<String>,
        /// Here-documents.
        heredocs: Vec<Heredoc>,
    },
}

/// A command in one of its two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments.
    Exec(Vec<String>),
    /// A text for the shell.
    Shell(String),
}

/// What `HEALTHCHECK` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healthcheck {
    /// That of the base image is removed.
    None,
    /// A command, with its settings by their names in an image's configuration.
    Test {
        /// The command.
        command: Command,
        /// Durations in nanoseconds, and retries.
        settings: Vec<(&'static str, u64)>,
    },
}

/// What `COPY` and `ADD` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySources {
    /// The stage or image of `--from`.
    pub from: Option<String>,
    /// The owner of `--chown`.
    pub chown: Option<String>,
    /// The permissions of `--chmod`.
    pub chmod: Option<String>,
    /// Paths and patterns of files.
    pub sources: Vec<String>,
    /// Files whose content the Dockerfile has.
    pub heredocs: Vec<Heredoc>,
    /// Where they are copied to.
    pub destination: String,
    /// Flags that real builders know and this one does not.
    pub unsupported_flags: Vec<String>,
}

/// A here-document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heredoc {
    /// The word that ends it, and the name of the file that it becomes.
    pub name: String,
    /// Whether variables are expanded.
    pub expand: bool,
    /// Its lines.
    pub content: String,
}

/// Flags of one instruction, taken one by one.
#[derive(Debug)]
pub(crate) struct Flags {
    flags: Vec<Flag>,
}

impl Flags {
    pub(crate) const fn new(flags: Vec<Flag>) -> Self {
        Self { flags }
    }

    /// Takes the value of a flag that needs one.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let mut values = self.values(name)?;
        if values.len() > 1 {
            return Err(format!("--{name} is set twice; remove one"));
        }
        Ok(values.pop())
    }

    /// Takes the values of a flag that may be repeated.
    pub(crate) fn values(&mut self, name: &str) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        for flag in self.flags.extract_if(.., |flag| flag.name == name) {
            match flag.value {
                Some(value) if !value.is_empty() => values.push(value),
                Some(_) | None => return Err(format!("--{name} has no value; write --{name}=…")),
            }
        }
        Ok(values)
    }

    /// Takes flags by their names, whatever their values are, and returns those that are set.
    pub(crate) fn names(&mut self, names: &[&str]) -> Vec<String> {
        let taken = self.flags.extract_if(.., |flag| names.contains(&flag.name.as_str()));
        taken.map(|flag| flag.name).collect()
    }

    /// Refuses flags that were not taken.
    pub(crate) fn finish(self, keyword: &str) -> Result<(), String> {
        match self.flags.first() {
            None => Ok(()),
            Some(flag) => {
                Err(format!("{keyword} has no flag --{} that is supported; remove it", flag.name))
            }
        }
    }
}
