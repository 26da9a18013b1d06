//! Runs a program by its command line, to its end.

use gantry_process::children::end_with_input;
use gantry_process::clock::Clock;
use gantry_process::shutdown::Signals;
use gantry_process::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use crate::command_line::{Invocation, Program};
use crate::host::Host;
use crate::{exchange, launcher, notifier, requester, tiny, vendor_tool};

/// The exit code of a wrong command line.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of the vendor tool when it finds nothing, as the real one has it.
const NO_DEVICES_EXIT_CODE: u8 = 6;

/// A program whose arguments were read.
#[derive(Clone, Debug)]
pub enum Command {
    /// The requester.
    Requester(Box<requester::Arguments>),
    /// The launcher.
    Launcher(Box<launcher::Arguments>),
    /// The notifier.
    Notifier(notifier::Arguments),
    /// The engine.
    Engine(Box<tiny::Arguments>),
    /// The process of an engine that holds its memory, and the name its root listens under.
    EngineCore(String),
    /// The vendor tool with its arguments.
    VendorTool(Vec<String>),
}

impl Command {
    /// Reads the arguments of a program. The error is a message, or help, and the exit code.
    ///
    /// # Errors
    /// They are wrong, or ask for help.
    pub fn parse(invocation: Invocation) -> Result<Self, (u8, String)> {
        let Invocation { program, arguments } = invocation;
        Ok(match program {
            Program::Requester => Self::Requester(read("requester", &arguments)?),
            Program::TestRequester => {
                let mut found: Box<requester::Arguments> = read("test-requester", &arguments)?;
                found.accelerators = Some(requester::accelerators::AcceleratorSource::ConfigMaps);
                Self::Requester(found)
            }
            Program::Launcher => Self::Launcher(read("launcher", &arguments)?),
            Program::Notifier => Self::Notifier(*read("notifier", &arguments)?),
            Program::Engine => {
                Self::Engine(read("engine", &tiny::options::known_options(&arguments))?)
            }
            Program::TestServer => {
                let known = tiny::options::known_options(&arguments);
                let mut found: Box<tiny::Arguments> = read("test-server", &known)?;
                found.startup_delay.get_or_insert(47);
                Self::Engine(found)
            }
            Program::EngineCore => match <[String; 1]>::try_from(arguments) {
                Ok([name]) => Self::EngineCore(name),
                Err(_) => {
                    let message = "engine-core is started by engines only".to_owned();
                    return Err((USAGE_EXIT_CODE, message));
                }
            },
            Program::VendorTool => Self::VendorTool(arguments),
        })
    }

    /// Runs it until it ends or the tasks stop, and returns its exit code.
    pub async fn run(self, host: Host, tasks: Tasks) -> u8 {
        match self {
            Self::Requester(arguments) => requester::run(*arguments, host, tasks).await,
            Self::Launcher(arguments) => launcher::run(*arguments, host, tasks).await,
            Self::Notifier(arguments) => notifier::run(arguments, host, tasks).await,
            Self::Engine(arguments) => tiny::run(*arguments, host, tasks).await,
            Self::EngineCore(name) => {
                let clock = tasks.clock().clone();
                tiny::core_process::run(&name, &host, clock).await
            }
            Self::VendorTool(arguments) => {
                let (ledgers, visible) = (host.ledgers(), host.variable("NVIDIA_VISIBLE_DEVICES"));
                match vendor_tool::run(&arguments, ledgers.as_deref(), visible) {
                    Ok(text) => match (host.output)(text.as_bytes()) {
                        Ok(()) => 0,
                        // Nobody reads it.
                        Err(_) => 1,
                    },
                    Err(error) => {
                        host.log(&gantry_process::error_chain(&error));
                        NO_DEVICES_EXIT_CODE
                    }
                }
            }
        }
    }

    /// Runs it as this process: until it ends, or a signal stops it and it is done with that.
    ///
    /// # Errors
    /// Signals cannot be listened for.
    pub async fn run_as_process(self, host: Host) -> Result<u8, std::io::Error> {
        if host.confinement().is_some() {
            end_with_input()?;
        }
        let stop = CancellationToken::new();
        let tasks = exchange::root_tasks(Clock::system(), &stop);
        let mut signals = Signals::listen().map_err(std::io::Error::other)?;
        let run = self.run(host, tasks);
        let mut run = std::pin::pin!(run);
        tokio::select! {
            biased;
            // May be dropped then: the program has ended.
            code = run.as_mut() => return Ok(code),
            // May be dropped: it only waits.
            _ = signals.next() => stop.cancel(),
        }
        Ok(run.await)
    }
}

fn read<T: clap::Args + clap::FromArgMatches>(
    name: &'static str,
    arguments: &[String],
) -> Result<Box<T>, (u8, String)> {
    let command = T::augment_args(clap::Command::new(name));
    let words = std::iter::once(name).chain(arguments.iter().map(String::as_str));
    let matches = command.try_get_matches_from(words);
    let found = matches.and_then(|it| T::from_arg_matches(&it));
    found.map(Box::new).map_err(|error| {
        let code = if error.use_stderr() { USAGE_EXIT_CODE } else { 0 };
        (code, error.render().to_string())
    })
}
