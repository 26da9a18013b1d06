//! The programs alone: `gantry-programs launcher …`, or by the name of the executable.

use std::process::ExitCode;

use gantry_engine::kubernetes::InCluster;
use gantry_engine::programs::Command;
use gantry_engine::{Host, Program, command_line};
use gantry_process::clock::Clock;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let by_name = words.first().and_then(|it| Program::by_executable(it)).is_some();
    let words = if by_name { &words[..] } else { words.get(1..).unwrap_or_default() };
    let parsed = command_line::resolve(words).map_err(|error| (2, error.to_string()));
    let command = match parsed.and_then(Command::parse) {
        Ok(command) => command,
        Err((code, message)) => {
            eprintln!("{}", message.trim_end());
            return ExitCode::from(code);
        }
    };
    let executable = std::env::current_exe().unwrap_or_default();
    let mut host = Host::new(std::env::vars().collect(), executable);
    if let Ok(api) = InCluster::new(Clock::system(), &host.environment) {
        host.kubernetes = Some(std::sync::Arc::new(api));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.and_then(|it| it.block_on(command.run_as_process(host)));
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
