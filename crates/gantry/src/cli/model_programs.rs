//! `gantry requester`, `launcher`, `notifier` and `engine`: the programs that serve models.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Context as _;
use gantry_engine::kubernetes::InCluster;
use gantry_engine::programs::Command;
use gantry_engine::tiny::options::known_options;
use gantry_engine::{Host, Program};
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

/// Makes a command line of Gantry of one that begins with the executable of a program, and removes
/// options of an engine that mean nothing here.
pub(super) fn by_executable(words: Vec<OsString>) -> Vec<OsString> {
    let mut rest = words.into_iter();
    let Some(executable) = rest.next() else { return Vec::new() };
    let rest: Vec<OsString> = rest.collect();
    let named = executable.to_str().and_then(Program::by_executable);
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
    words
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
            ("gantry engine --max-model-len 5 --model m", "gantry engine --model m"),
            ("", ""),
        ];
        for (words, expected) in table {
            let words = words.split_whitespace().map(OsString::from).collect();
            let found: Vec<String> =
                by_executable(words).iter().map(|it| it.to_string_lossy().into_owned()).collect();
            assert_eq!(found.join(" "), expected);
        }
    }
}
