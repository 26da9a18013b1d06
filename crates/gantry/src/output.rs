//! Writes the output of commands: results to standard output, everything else to standard error.
//!
//! Colour follows the terminal, `NO_COLOR`, `CLICOLOR_FORCE` and `--color`. If the reader closes
//! the pipe (`gantry crds | head`), the command ends without an error message.

use std::fmt;
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use gantry_process::error_chain;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The two streams of a command.
///
/// Neither stream is kept locked: other threads write their logs to standard error, and there would
/// be a deadlock if the command waited for such a thread.
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

    /// Prints a result without adding a line break.
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

    /// Prints an error with its causes, on one line.
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
        // Written in one piece, so that no log line gets in between. A closed standard error cannot
        // be reported anywhere.
        let _ = self.err.write_all(format!("{text}\n").as_bytes());
    }
}

/// Escapes control characters, with which the content of a file could control the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
