//! Starts engines: as programs, or as forks of the zygote.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use gantry_process::children::{Child, ChildExit, Command, Input, OutputBytes};
use gantry_process::clock::Clock;
use gantry_process::descendants::AdoptedChild;
use gantry_process::tasks::Tasks;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::config::InstanceConfig;
use super::zygote::{Preloaded, Zygote};
use super::{Arguments, Mode};
use crate::confinement;
use crate::executable;
use crate::host::Host;
use crate::tiny::core_process::INSTANCE_VARIABLE;

/// The variable with the program of engines.
pub(crate) const ENGINE_COMMAND_VARIABLE: &str = "GANTRY_ENGINE_COMMAND";

/// How engines are started.
pub(super) enum Starter {
    Exec(ExecSettings),
    Zygote(Zygote),
}

/// The program of engines.
pub(super) struct ExecSettings {
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    /// Whether variables of callers are those of a list only, and engines end with what started
    /// the launcher.
    is_confined: bool,
}

/// A process that was started.
pub(super) enum EngineProcess {
    Exec(Child),
    Forked(AdoptedChild),
}

/// The output of an engine, as it is written.
pub(super) enum EngineOutput {
    Pipe(OutputBytes),
    Socket(UnixStream),
}

impl EngineProcess {
    pub(super) fn id(&self) -> i32 {
        match self {
            Self::Exec(child) => child.id(),
            Self::Forked(child) => child.id(),
        }
    }

    /// Sends SIGTERM to the root process.
    pub(super) fn terminate(&self) {
        match self {
            Self::Exec(child) => child.terminate_process(),
            Self::Forked(child) => child.terminate(),
        }
    }

    /// Sends SIGKILL to its group.
    pub(super) fn kill(&self) {
        match self {
            Self::Exec(child) => child.kill(),
            Self::Forked(child) => child.kill(),
        }
    }

    /// Returns when the root process has ended. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ChildExit> {
        match self {
            Self::Exec(child) => child.wait().await,
            Self::Forked(child) => child.wait().await,
        }
    }
}

impl EngineOutput {
    /// Returns the next bytes; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Pipe(pipe) => pipe.next().await,
            Self::Socket(socket) => {
                let mut buffer = Vec::with_capacity(16 << 10);
                match socket.read_buf(&mut buffer).await {
                    Ok(1..) => Some(buffer),
                    // A stream that fails has ended.
                    Ok(0) | Err(_) => None,
                }
            }
        }
    }
}

impl Starter {
    pub(super) async fn prepare(
        arguments: &Arguments,
        host: &Host,
        tasks: &mut Tasks,
    ) -> Result<Self, String> {
        if host.confinement().is_some() {
            return Ok(Self::Exec(ExecSettings::own(host, true)));
        }
        let command = arguments.engine_command.as_deref();
        let command = command.or_else(|| host.variable(ENGINE_COMMAND_VARIABLE));
        let exec = || -> Result<Self, String> {
            let words: Vec<String> =
                command.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            let Some((program, rest)) = words.split_first() else {
                return Ok(Self::Exec(ExecSettings::own(host, false)));
            };
            let path = host.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
            let found = if program.contains('/') {
                Some(PathBuf::from(program))
            } else {
                executable::find(program, path)
            };
            let program = found.ok_or_else(|| format!("{program} is not in $PATH"))?;
            let arguments = rest.to_vec();
            Ok(Self::Exec(ExecSettings { program, arguments, ..ExecSettings::own(host, false) }))
        };
        match arguments.mode {
            Mode::Exec => exec(),
            Mode::Auto if command.is_some() => exec(),
            Mode::Auto => match Zygote::start(arguments, Preloaded::Required, host, tasks).await {
                Ok(zygote) => Ok(Self::Zygote(zygote)),
                Err(message) => {
                    host.log(&format!("no zygote: {message}"));
                    exec()
                }
            },
            Mode::Zygote => {
                Zygote::start(arguments, Preloaded::Optional, host, tasks).await.map(Self::Zygote)
            }
        }
    }

    fn is_confined(&self) -> bool {
        match self {
            Self::Exec(exec) => exec.is_confined,
            Self::Zygote(_) => false,
        }
    }

    /// Returns the names of the variables that an engine does not get.
    pub(super) fn withheld(&self, config: &InstanceConfig) -> String {
        match &config.env_vars {
            Some(variables) if self.is_confined() => confinement::divide(variables).1.join(", "),
            Some(_) | None => String::new(),
        }
    }

    /// Starts an engine. `mark` is a value that only its processes have in their environment.
    pub(super) async fn start(
        &self,
        config: &InstanceConfig,
        mark: &str,
        clock: &Clock,
    ) -> io::Result<(EngineProcess, EngineOutput)> {
        let mut environment = config.env_vars.clone().unwrap_or_default();
        if self.is_confined() {
            environment = confinement::divide(&environment).0;
        }
        environment.insert(INSTANCE_VARIABLE.to_owned(), mark.to_owned());
        match self {
            Self::Exec(exec) => {
                let mut all = exec.environment.clone();
                all.extend(environment);
                let command = Command {
                    program: exec.program.clone(),
                    args: [&exec.arguments[..], &config.words()[..]].concat(),
                    environment: all,
                    directory: "/".into(),
                    input: if exec.is_confined { Input::Inherited } else { Input::Null },
                };
                let (child, output) = command.start_merged()?;
                Ok((EngineProcess::Exec(child), EngineOutput::Pipe(output)))
            }
            Self::Zygote(zygote) => {
                let (child, output) = zygote.fork(&config.words(), &environment, clock).await?;
                Ok((EngineProcess::Forked(child), EngineOutput::Socket(output)))
            }
        }
    }
}

impl ExecSettings {
    /// The engine of this binary.
    fn own(host: &Host, is_confined: bool) -> Self {
        let environment = host.environment.clone();
        let arguments = vec!["engine".to_owned()];
        Self { program: host.executable.clone(), arguments, environment, is_confined }
    }
}

impl fmt::Display for Starter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(exec) => {
                write!(to, "running {} {}", exec.program.display(), exec.arguments.join(" "))
            }
            Self::Zygote(zygote) => write!(to, "forking {zygote}"),
        }
    }
}
