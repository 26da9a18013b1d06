//! Starts engines: as programs, or as forks of the zygote.

use std::fmt;
use std::io;
use std::path::PathBuf;

use gantry_process::children::{Child, ChildExit, Command, OutputBytes};
use gantry_process::clock::Clock;
use gantry_process::descendants::AdoptedChild;
use gantry_process::tasks::Tasks;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::config::InstanceConfig;
use super::zygote::{Preloaded, Zygote};
use super::{Arguments, Mode};
use crate::executable;
use crate::host::Host;
use crate::tiny::core_process::INSTANCE_VARIABLE;

/// The variable with the program of engines.
const COMMAND_VARIABLE: &str = "GANTRY_ENGINE_COMMAND";

/// How engines are started.
pub(super) enum Starter {
    Exec { program: PathBuf, arguments: Vec<String>, environment: Vec<(String, String)> },
    Zygote(Zygote),
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
        let command = arguments.engine_command.as_deref();
        let command = command.or_else(|| host.variable(COMMAND_VARIABLE));
        let exec = || -> Result<Self, String> {
            let environment = host.environment.clone().into_iter().collect();
            let words: Vec<String> =
                command.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            let Some((program, rest)) = words.split_first() else {
                let (program, arguments) = (host.executable.clone(), vec!["engine".to_owned()]);
                return Ok(Self::Exec { program, arguments, environment });
            };
            let path = host.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
            let found = if program.contains('/') {
                Some(PathBuf::from(program))
            } else {
                executable::find(program, path)
            };
            let program = found.ok_or_else(|| format!("{program} is not in $PATH"))?;
            Ok(Self::Exec { program, arguments: rest.to_vec(), environment })
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

    /// Starts an engine. `mark` is a value that only its processes have in their environment.
    pub(super) async fn start(
        &self,
        config: &InstanceConfig,
        mark: &str,
        clock: &Clock,
    ) -> io::Result<(EngineProcess, EngineOutput)> {
        let mut environment = config.env_vars.clone().unwrap_or_default();
        environment.insert(INSTANCE_VARIABLE.to_owned(), mark.to_owned());
        match self {
            Self::Exec { program, arguments, environment: own } => {
                let mut all: std::collections::BTreeMap<_, _> = own.iter().cloned().collect();
                all.extend(environment);
                let command = Command {
                    program: program.clone(),
                    args: [&arguments[..], &config.words()[..]].concat(),
                    environment: all,
                    directory: "/".into(),
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

impl fmt::Display for Starter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec { program, arguments, .. } => {
                write!(to, "running {} {}", program.display(), arguments.join(" "))
            }
            Self::Zygote(zygote) => write!(to, "forking {zygote}"),
        }
    }
}
