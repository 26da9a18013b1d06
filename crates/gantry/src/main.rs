//! `gantry`: see `gantry --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gantry::cli::run(std::env::args_os())
}
