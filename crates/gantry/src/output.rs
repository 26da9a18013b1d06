//! Writes the output of commands: results to standard output, everything else to standard error.
//!
//! Colour follows the terminal, `NO_COLOR`, `CLICOLOR_FORCE` and `--color`. If the reader closes
//! the pipe (`gantry crds | head`), the command ends without an error message.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use gantry_process::error_chain;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The two streams of a command.
///
/// Neither stream is kept locked: other threads write their logs to standard error, and there would
/// be a deadlock if the command waited for such a thread.
pub struct Output {
    out: AutoStream<Box<dyn Write + Send>>,
    err: AutoStream<Box<dyn Write + Send>>,
}

impl fmt::Debug for Output {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    /// The streams of this process.
    #[must_use]
    pub fn standard(color: ColorChoice) -> Self {
        // The choice is made before the type of the stream, which tells a terminal, is erased.
        let chosen = |choice, detected| match choice {
            ColorChoice::Auto => detected,
            choice => choice,
        };
        let out = chosen(color, AutoStream::choice(&io::stdout()));
        let err = chosen(color, AutoStream::choice(&io::stderr()));
        Self {
            out: AutoStream::new(Box::new(io::stdout()), out),
            err: AutoStream::new(Box::new(io::stderr()), err),
        }
    }

    /// Both streams as lines of a log, without colour.
    #[must_use]
    pub fn to_log(log: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        let stream =
            |log| -> Box<dyn Write + Send> { Box::new(LogLines { log, line: Vec::new() }) };
        Self {
            out: AutoStream::never(stream(Arc::clone(&log))),
            err: AutoStream::never(stream(log)),
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

/// Writes whole lines to a log; what is left at the end is a line.
struct LogLines {
    log: Arc<dyn Fn(&str) + Send + Sync>,
    line: Vec<u8>,
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.flush()?,
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            (self.log)(&String::from_utf8_lossy(&self.line));
            self.line.clear();
        }
        Ok(())
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        // It writes to memory, and cannot fail.
        let _ = self.flush();
    }
}

/// Escapes control characters, with which the content of a file could control the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
