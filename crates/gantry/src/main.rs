//! `gantry`: see `gantry --help`.

use std::process::ExitCode;

/// Objects come and go by the thousand and in all sizes; the system's allocator takes a quarter of
/// the server's time for it, and keeps more memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gantry::cli::run(std::env::args_os())
}
