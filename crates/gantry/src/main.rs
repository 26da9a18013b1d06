//! `gantry`: see `gantry --help`.

use std::process::ExitCode;

/// The server creates and frees many objects of all sizes; with the system's allocator that takes a
/// quarter of the server's time, and keeps more memory. Built without huge pages: they save no
/// measurable time, and an idle server would hold half as much memory again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gantry::cli::run(std::env::args_os())
}
