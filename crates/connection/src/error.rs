//! Why something could not be done on a host.

use std::io;
use std::time::Duration;

use crate::diagnosis::{SshReason, SudoReason};
use crate::frame::FrameError;
use crate::shell::ScriptTooLong;
use crate::target::InvalidTarget;

/// The exit code when a host failed.
pub const EXIT_FAILED: u8 = 2;

/// The exit code when a host could not be reached; it wins over [`EXIT_FAILED`].
pub const EXIT_UNREACHABLE: u8 = 4;

/// Why a command did not run on a host, or what it did is not known.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// `ssh` did not reach it.
    #[error("{}{}", reason.about(), messages_suffix(messages))]
    Ssh {
        /// Why not.
        reason: SshReason,
        /// What ssh printed.
        messages: String,
        /// The command line with which a user sees the same.
        line: String,
    },
    /// `sudo` did not run the command.
    #[error("{}{}", reason.about(), messages_suffix(messages))]
    Sudo {
        /// Why not.
        reason: SudoReason,
        /// What sudo printed.
        messages: String,
    },
    /// The host was reached, and the login or `sudo` took too long.
    #[error("the host did not let us in within {} s", limit.as_secs())]
    LoginTimedOut {
        /// How long it may take.
        limit: Duration,
    },
    /// The command took too long. It was left; it may still run on the host.
    #[error("the command did not end within {} s", limit.as_secs())]
    CommandTimedOut {
        /// How long it may take.
        limit: Duration,
    },
    /// The program does not start here.
    #[error("could not start {program}")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// Something in the inventory cannot be given to a program.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// The command is too long.
    #[error(transparent)]
    Script(#[from] ScriptTooLong),
    /// The peer does not speak in frames.
    #[error("the host does not follow the protocol")]
    Frame(#[from] FrameError),
    /// The peer closed its output.
    #[error("the program on the host ended{}", messages_suffix(messages))]
    Ended {
        /// What it printed.
        messages: String,
    },
    /// A file was not copied.
    #[error("could not copy {path}{}", messages_suffix(messages))]
    Copy {
        /// The path on the host.
        path: String,
        /// What the host printed.
        messages: String,
    },
    /// A file or pipe of this machine.
    #[error("could not {what}")]
    Local {
        /// What failed.
        what: String,
        /// Why.
        source: io::Error,
    },
}

fn messages_suffix(messages: &str) -> String {
    let messages = messages.trim();
    if messages.is_empty() { String::new() } else { format!(": {messages}") }
}

impl ConnectionError {
    /// The reason in one word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ssh { reason, .. } => reason.name(),
            Self::Sudo { reason, .. } => reason.name(),
            Self::LoginTimedOut { .. } => "LoginTimedOut",
            Self::CommandTimedOut { .. } => "CommandTimedOut",
            Self::Start { .. } => "ProgramMissing",
            Self::Target(_) => "InvalidTarget",
            Self::Script(_) => "CommandTooLong",
            Self::Frame(_) => "ProtocolError",
            Self::Ended { .. } => "ProgramEnded",
            Self::Copy { .. } => "CopyFailed",
            Self::Local { .. } => "LocalError",
        }
    }

    /// What the user should do next.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Ssh { reason, .. } => reason.next_step(),
            Self::Sudo { reason, .. } => reason.next_step(),
            Self::LoginTimedOut { .. } => "log in by hand, and see what takes so long",
            Self::CommandTimedOut { .. } => {
                "see on the host whether it still runs; --timeout gives it more time"
            }
            Self::Start { .. } => "install it, for instance the package openssh-client",
            Self::Target(_) => "correct the inventory",
            Self::Script(_) => "copy a script to the host, and run it there",
            Self::Frame(_) => "see with -vv what the host prints",
            Self::Ended { .. } => "run the command again; see the messages for the cause",
            Self::Copy { .. } => "correct the path, or use --become to copy as root",
            Self::Local { .. } => "correct it on this machine",
        }
    }

    /// The command line with which a user sees the same failure.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        match self {
            Self::Ssh { line, .. } => Some(line),
            Self::Sudo { .. }
            | Self::LoginTimedOut { .. }
            | Self::CommandTimedOut { .. }
            | Self::Start { .. }
            | Self::Target(_)
            | Self::Script(_)
            | Self::Frame(_)
            | Self::Ended { .. }
            | Self::Copy { .. }
            | Self::Local { .. } => None,
        }
    }

    /// The exit code of a command that ends with it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Ssh { .. } | Self::LoginTimedOut { .. } => EXIT_UNREACHABLE,
            Self::Start { .. } | Self::Target(_) | Self::Script(_) | Self::Local { .. } => 1,
            Self::Sudo { .. }
            | Self::CommandTimedOut { .. }
            | Self::Frame(_)
            | Self::Ended { .. }
            | Self::Copy { .. } => EXIT_FAILED,
        }
    }
}
