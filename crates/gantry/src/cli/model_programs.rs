//! `gantry requester`, `launcher`, `notifier` and `engine`: the programs that serve models.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Context as _;
use gantry_engine::command_line::CommandLineError;
use gantry_engine::kubernetes::InCluster;
use gantry_engine::programs::Command;
use gantry_engine::tiny::options::known_options;
use gantry_engine::{Host, Invocation, Program, command_line};
use gantry_process::clock::Clock;

use super::{CommandOutcome, run_to_end};

/// Run the process of an engine that holds its memory; engines start it.
#[derive(Debug, clap::Args)]
pub(super) struct EngineCore {
    /// The name its root listens under.
    pub(super) name: String,
}

/// Print accelerators and their used memory as the tool of the vendor does.
#[derive(Debug, clap::Args)]
pub(super) struct VendorTool {
    /// The arguments of the tool.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<String>,
}

/// The exit code of a command that is not found, as shells have it.
pub(super) const NOT_FOUND_EXIT_CODE: u8 = 127;

/// Programs that run others. In Gantry's image they are names of it: manifests of the original
/// start `python3 /app/launcher.py`, `uvicorn launcher:app`, or a shell with such a line.
const INTERPRETERS: [&str; 6] = ["bash", "python", "python3", "sh", "uvicorn", "vllm"];

/// Makes a command line of Gantry of one that begins with the executable of a program, and removes
/// options of an engine that mean nothing here.
///
/// # Errors
/// It is an interpreter of something that is no program of Gantry.
pub(super) fn by_executable(words: Vec<OsString>) -> Result<Vec<OsString>, CommandLineError> {
    let mut rest = words.into_iter();
    let Some(executable) = rest.next() else { return Ok(Vec::new()) };
    let mut rest: Vec<OsString> = rest.collect();
    let name = executable.to_str().unwrap_or_default();
    let is_interpreter = INTERPRETERS.iter().any(|it| name.rsplit('/').next() == Some(it));
    let named = match is_interpreter {
        true => {
            // Words that are not Unicode are no words of these programs.
            let words = rest.iter().map(|it| it.to_string_lossy().into_owned());
            let words: Vec<String> = std::iter::once(name.to_owned()).chain(words).collect();
            let Invocation { program, arguments } = command_line::resolve(&words)?;
            rest = arguments.into_iter().map(OsString::from).collect();
            Some(program)
        }
        false => Program::by_executable(name),
    };
    let prefix: &[&str] = match named {
        None => &[],
        Some(Program::Requester) => &["requester"],
        Some(Program::TestRequester) => &["requester", "--accelerators", "config-maps"],
        Some(Program::Launcher) => &["launcher"],
        Some(Program::Notifier) => &["notifier"],
        Some(Program::Engine) => &["engine"],
        // The last of an option counts, so that this is a default.
        Some(Program::TestServer) => &["engine", "--startup-delay", "47"],
        Some(Program::EngineCore) => &["engine-core"],
        Some(Program::VendorTool) => &["nvidia-smi"],
    };
    let mut words = vec![executable];
    words.extend(prefix.iter().map(OsString::from));
    words.extend(rest);
    if words.get(1).is_some_and(|it| it == "engine") {
        // Text that is not Unicode is no option of an engine.
        let options: Vec<String> =
            words.iter().skip(2).filter_map(|it| it.to_str().map(str::to_owned)).collect();
        words.truncate(2);
        words.extend(known_options(&options).into_iter().map(OsString::from));
    }
    Ok(words)
}

/// Runs a program as this process.
pub(super) fn run(program: Command) -> anyhow::Result<CommandOutcome> {
    let executable = std::env::current_exe().context("could not find this program")?;
    let mut host = Host::new(std::env::vars().collect(), executable);
    // Programs that need the API server say so themselves.
    if let Ok(api) = InCluster::new(Clock::system(), &host.environment) {
        host.kubernetes = Some(Arc::new(api));
    }
    run_to_end(async move {
        let code = program.run_as_process(host).await?;
        Ok(CommandOutcome::FailureWithCode(code))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_commands() {
        let table = [
            ("/usr/bin/gantry up --demo", "/usr/bin/gantry up --demo"),
            ("/app/requester --spi-port 1", "/app/requester requester --spi-port 1"),
            (
                "/ko-app/test-requester --node n",
                "/ko-app/test-requester requester --accelerators config-maps --node n",
            ),
            ("/app/launcher.py --mock-gpus", "/app/launcher.py launcher --mock-gpus"),
            ("/app/launcher_pod_notifier.py", "/app/launcher_pod_notifier.py notifier"),
            (
                "/ko-app/test-server --startup-delay 3",
                "/ko-app/test-server engine --startup-delay 3",
            ),
            ("test-server --port=9", "test-server engine --startup-delay 47 --port=9"),
            ("nvidia-smi -L", "nvidia-smi nvidia-smi -L"),
            ("/usr/bin/python3 /app/launcher.py --port 1", "/usr/bin/python3 launcher --port 1"),
            ("python3 -u /app/launcher_pod_notifier.py", "python3 notifier"),
            ("vllm serve m --max-model-len 5 --port 8", "vllm engine --model m --port 8"),
            ("gantry engine --max-model-len 5 --model m", "gantry engine --model m"),
            ("", ""),
        ];
        for (words, expected) in table {
            let words = words.split_whitespace().map(OsString::from).collect();
            let found: Vec<String> = by_executable(words)
                .unwrap()
                .iter()
                .map(|it| it.to_string_lossy().into_owned())
                .collect();
            assert_eq!(found.join(" "), expected);
        }
        let line = ["/bin/bash", "-c", "python3 launcher.py --host 0.0.0.0"].map(OsString::from);
        let expected = ["/bin/bash", "launcher", "--host", "0.0.0.0"].map(OsString::from);
        assert_eq!(by_executable(line.to_vec()).unwrap(), expected);
    }

    #[test]
    fn an_interpreter_runs_nothing_else() {
        for words in ["python3 -c pass", "/bin/sh", "bash -c ls", "uvicorn other:app"] {
            let words = words.split(' ').map(OsString::from).collect();
            let error = by_executable(words).unwrap_err().to_string();
            assert!(error.contains("no such program"), "{error}");
        }
    }
}
