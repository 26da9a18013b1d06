//! Where a command's words go: results to standard output, everything else to standard error.
//!
//! Colour follows the terminal, `NO_COLOR`, `CLICOLOR_FORCE` and `--color`. A reader that goes away
//! (`gantry crds | head`) ends the command without a complaint.

use std::fmt;
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use gantry_process::error_chain;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The two streams of a command.
///
/// Neither is held locked: other threads write their logs to standard error, and one that has to
/// wait until the command ends waits forever if the command waits for it.
#[derive(Debug)]
pub struct Output {
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
}

impl Output {
    /// The streams of this process.
    #[must_use]
    pub fn standard(color: ColorChoice) -> Self {
        Self {
            out: AutoStream::new(io::stdout(), color),
            err: AutoStream::new(io::stderr(), color),
        }
    }

    /// Prints a result.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn result(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints a result that ends where it ends.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn result_text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Prints a remark that is not part of the result.
    pub fn note(&mut self, text: impl fmt::Display) {
        self.remark(format_args!("{text}"));
    }

    /// Prints a warning.
    pub fn warning(&mut self, text: impl fmt::Display) {
        self.remark(format_args!("{WARNING}warning:{WARNING:#} {text}"));
    }

    /// Prints an error on one line.
    pub fn error(&mut self, text: impl fmt::Display) {
        let text = one_line(&text.to_string());
        self.remark(format_args!("{ERROR}error:{ERROR:#} {text}"));
    }

    /// Prints an error with everything that led to it, on one line.
    pub fn failure(&mut self, error: &anyhow::Error) {
        self.error(error_chain(error.as_ref()));
    }

    /// Flushes both streams.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }

    fn remark(&mut self, text: fmt::Arguments<'_>) {
        // In one piece, so that no log line gets in between. Nobody is left to be told that
        // standard error is gone.
        let _ = self.err.write_all(format!("{text}\n").as_bytes());
    }
}

/// Control characters would let a file that is being complained about write to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
