//! `gantry`: see `gantry --help`.

use std::process::ExitCode;

/// Objects come and go by the thousand and in all sizes; the system's allocator takes a quarter of
/// the server's time for it, and keeps more memory. Built without huge pages: they save no time that
/// can be measured, and an idle server would hold half as much memory again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gantry::cli::run(std::env::args_os())
}
