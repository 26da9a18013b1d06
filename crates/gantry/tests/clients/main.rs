//! Clients as people use them, against the embedded server; `make e2e` builds what is needed.
//!
//! `tour` gives kubectl the same commands on the embedded server and on a real one and compares
//! every word. The others run programs that were written for Kubernetes and know nothing of us.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod chart;
mod containers;
mod devices;
mod document;
mod fma_chart;
mod go;
mod helm;
mod mask;
mod python;
mod shell;
mod toolchain;
mod tour;

use std::io::Write as _;

/// Prints to the user who runs the tests, past the harness, which captures the output of passing
/// tests.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}
