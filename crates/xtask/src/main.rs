//! The chores of the repository: generated files, tidy checks, and the steps of CI.
//!
//! `cargo xtask --help` lists the commands. Every check and every generator decides in a pure
//! function over data that was read beforehand; only this file, [`tree`], [`workspace`],
//! [`ci`], [`image`], [`test_run`] and the writing halves of [`generate`] and [`published`] touch
//! the machine.

mod args;
mod ci;
mod generate;
mod image;
mod markdown;
mod published;
mod rust_text;
mod test_run;
mod tidy;
mod tree;
mod workspace;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::args::Command;
use crate::tree::Tree;

/// Exit status for a command line we could not read, as is usual for command-line tools.
const USAGE: u8 = 2;

/// Reads the command line, runs the command, and turns the outcome into an exit status.
fn main() -> ExitCode {
    // As cargo's runner, this program passes on words that need not be text.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == test_run::RUNNER) {
        return run_as_runner(&words.collect::<Vec<_>>());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = match args::parse(&words) {
        Ok(command) => command,
        Err(why) => {
            eprintln!("xtask: {why}\n\n{}", args::HELP);
            return ExitCode::from(USAGE);
        }
    };
    match run(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a test program, and ends as it ends.
fn run_as_runner(words: &[OsString]) -> ExitCode {
    match test_run::run_program(words) {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            if let (None, Some(signal)) = (code, status.signal()) {
                eprintln!("xtask: the test program was ended by signal {signal}");
            }
            code.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Carries out one command; false means that it ran and found something wrong.
fn run(command: Command) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    let root = || workspace_root(&std::env::current_dir()?);
    match command {
        Command::Help => {
            out.write_all(args::HELP.as_bytes())?;
            Ok(true)
        }
        Command::Gen(mode) => generate::run(&Tree::read(&root()?)?, mode, &mut out),
        Command::Freeze(version) => published::freeze(&root()?, &version, &mut out).map(|()| true),
        Command::Tidy => tidy::run(&root()?, &mut out),
        Command::KubernetesSchemas(file) => generate::refresh(&root()?, &file).map(|()| true),
        Command::Test(words) => test_run::run(&root()?, &words, &mut out),
        Command::Image(options) => image::run(&root()?, &options, &mut out),
        Command::Crates => ci::check_each_crate(&root()?, &mut out),
        Command::Ci => ci::run(&root()?, &mut out),
    }
}

/// The folder of the workspace manifest, from `start` upwards.
///
/// It is looked up at run time, not compiled in: several clones may share one target directory.
fn workspace_root(start: &Path) -> anyhow::Result<PathBuf> {
    start
        .ancestors()
        .find(|folder| {
            std::fs::read_to_string(folder.join("Cargo.toml"))
                .is_ok_and(|manifest| manifest.lines().any(|line| line.trim() == "[workspace]"))
        })
        .map(Path::to_path_buf)
        .with_context(|| format!("no workspace manifest in or above {}", start.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_from_a_crate_folder() {
        let folder = tempfile::tempdir().unwrap();
        let member = folder.path().join("crates/one");
        std::fs::create_dir_all(&member).unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        std::fs::write(member.join("Cargo.toml"), "[package]\n").unwrap();

        assert_eq!(workspace_root(&member).unwrap(), folder.path());
        let outside = tempfile::tempdir().unwrap();
        assert!(workspace_root(outside.path()).is_err());
    }
}
