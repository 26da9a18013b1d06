//! Connections to hosts: the system's `ssh` or a local shell, with or without `sudo`.
//!
//! A [`Connection`] runs commands on one host. It starts the user's own `ssh`, because what is
//! configured there (jump hosts, hardware keys, known hosts) is how users reach their hosts, and
//! shares one connection between all commands. A command begins with a random [`Marker`], so what a
//! login shell prints is never taken for its output, and ends with its exit status, so a connection
//! that was lost is never taken for a command that failed. [`FrameDecoder`] and [`encode_frame`]
//! carry messages over a [`Session`].
//!
//! The password of `sudo` is a [`Secret`], which is only ever written to the standard input of
//! `sudo`, after it asked. Every failure of `ssh` and `sudo` is classified by its text into a
//! [`ConnectionError`] with a reason, a next step and an exit code.

mod control_folder;
mod copy;
mod diagnosis;
mod error;
mod frame;
mod marker;
mod secret;
mod session;
mod shell;
mod target;

mod connection;

pub use connection::{CommandResult, Connection, Request, Settings};
pub use control_folder::{ControlFolder, ControlFolderError, MAX_CONTROL_PATH_BYTES};
pub use copy::{CopyOutcome, Upload};
pub use diagnosis::{SshReason, SudoReason, ssh_reason, sudo_reason};
pub use error::{ConnectionError, EXIT_FAILED, EXIT_UNREACHABLE};
pub use frame::{FrameDecoder, FrameError, MAX_FRAME_BYTES, encode_frame};
pub use marker::{
    MARKER_BYTES, MAX_PREAMBLE_BYTES, Marker, MarkerScanner, PreambleTooLong, TrailerScanner,
};
pub use secret::Secret;
pub use session::Session;
pub use shell::{MAX_SCRIPT_BYTES, ScriptTooLong, login_command, quote, quote_words};
pub use target::{Become, HostKeyPolicy, InvalidTarget, SshTarget, Target, Transport};
