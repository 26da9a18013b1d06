//! A command on a host, from its start to its end.

use std::collections::VecDeque;
use std::time::Duration;

use gantry_process::children::{Child, ChildExit, InputBytes, OutputBytes, Pipes};
use gantry_process::clock::Clock;

use crate::diagnosis::{SshReason, SudoReason, ssh_reason, sudo_reason};
use crate::error::ConnectionError;
use crate::frame::{FrameDecoder, encode_frame};
use crate::marker::{MARKER_BYTES, Marker, MarkerScanner};
use crate::secret::Secret;

/// How much of the messages of a command is held: the last of them.
const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// How long messages may arrive after the end of the program: a shared connection of old releases
/// of ssh keeps that pipe open.
const MESSAGES_GRACE: Duration = Duration::from_secs(1);

/// The exit code of `ssh` for its own failures.
const SSH_FAILED: ChildExit = ChildExit::Exited(255);

/// A running command whose output has begun.
#[derive(Debug)]
pub struct Session {
    child: Child,
    stdin: InputBytes,
    stdout: OutputBytes,
    stderr: OutputBytes,
    /// Output that was read together with the marker.
    first: Option<Vec<u8>>,
    messages: Messages,
    preamble: Vec<u8>,
    decoder: FrameDecoder,
}

/// What [`Session::begin`] waits for.
pub(crate) struct Start<'s> {
    pub(crate) marker: Marker,
    /// The prompt of `sudo`, if it is used with a password, and that password.
    pub(crate) password: Option<(Marker, &'s Secret)>,
    pub(crate) uses_sudo: bool,
    /// The line for users; absent for local commands.
    pub(crate) line: Option<String>,
}

impl Session {
    /// Waits for the marker, and gives `sudo` the password when it asks.
    pub(crate) async fn begin(
        child: Child,
        pipes: Pipes,
        start: Start<'_>,
    ) -> Result<Self, ConnectionError> {
        let Pipes { stdin, stdout, stderr } = pipes;
        let mut session = Self {
            child,
            stdin,
            stdout,
            stderr,
            first: None,
            messages: Messages::default(),
            preamble: Vec::new(),
            decoder: FrameDecoder::new(),
        };
        let mut scanner = MarkerScanner::new(start.marker);
        let mut has_answered = false;
        let mut before_messages: Option<Vec<u8>> = None;
        let (mut stdout_open, mut stderr_open) = (true, true);
        loop {
            // Both streams begin with the marker.
            if let (Some(_), Some(before)) = (&session.first, &before_messages) {
                let before = [scanner.preamble(), &session.preamble, before].concat();
                session.preamble = before;
                return Ok(session);
            }
            tokio::select! {
                // What comes after the marker is read when it is asked for.
                piece = session.stdout.next(), if stdout_open => match piece {
                    Some(piece) => match scanner.push(&piece) {
                        Ok(None) => {}
                        Ok(Some(rest)) => {
                            session.first = Some(rest);
                            stdout_open = false;
                        }
                        Err(error) => {
                            return Err(start.ssh(SshReason::NoShell, error.to_string()));
                        }
                    },
                    None => stdout_open = false,
                },
                piece = session.stderr.next(), if stderr_open => match piece {
                    Some(piece) => {
                        session.messages.push(&piece);
                        session.answer(&start, &mut has_answered).await?;
                        if before_messages.is_none() {
                            before_messages = session.messages.take_through(&start.marker);
                        }
                    }
                    None => stderr_open = false,
                },
                else => break,
            }
        }
        let failed = |source| ConnectionError::Local { what: "wait for it".to_owned(), source };
        let end = session.child.wait().await.map_err(failed)?;
        Err(start.failure(end, &session.messages.text(), scanner.preamble()))
    }

    /// Gives `sudo` the password once it asked; when it asks again, the password is wrong.
    async fn answer(
        &mut self,
        start: &Start<'_>,
        has_answered: &mut bool,
    ) -> Result<(), ConnectionError> {
        let Some((prompt, password)) = &start.password else { return Ok(()) };
        while let Some(before) = self.messages.take_through(prompt) {
            self.preamble.extend(before);
            if *has_answered {
                let (reason, messages) = (SudoReason::WrongPassword, "Sorry, try again.".into());
                return Err(ConnectionError::Sudo { reason, messages });
            }
            *has_answered = true;
            for part in [password.bytes(), b"\n"] {
                // If sudo has ended, its messages say why.
                let _ = self.stdin.write(part).await;
            }
        }
        Ok(())
    }

    /// What was printed before the command began: by login shells, ssh and sudo.
    #[must_use]
    pub fn preamble(&self) -> String {
        String::from_utf8_lossy(&self.preamble).into_owned()
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// It is too long, or the command does not read any more.
    pub async fn send_frame(&mut self, message: &[u8]) -> Result<(), ConnectionError> {
        let frame = encode_frame(message)?;
        match self.stdin.write(&frame).await {
            Ok(()) => Ok(()),
            Err(_) => Err(ConnectionError::Ended { messages: self.messages.text() }),
        }
    }

    /// Returns the next frame, or none at the end of the output. Cancel-safe.
    ///
    /// # Errors
    /// The stream is not one of frames, or ends inside one.
    pub async fn receive_frame(&mut self) -> Result<Option<Vec<u8>>, ConnectionError> {
        if let Some(first) = self.first.take() {
            self.decoder.push(&first);
        }
        let mut stderr_open = true;
        loop {
            if let Some(message) = self.decoder.next_frame()? {
                return Ok(Some(message));
            }
            tokio::select! {
                piece = self.stdout.next() => match piece {
                    Some(piece) => self.decoder.push(&piece),
                    None => {
                        self.decoder.finish()?;
                        return Ok(None);
                    }
                },
                // Read as well, so that the command never waits for us.
                piece = self.stderr.next(), if stderr_open => match piece {
                    Some(piece) => self.messages.push(&piece),
                    None => stderr_open = false,
                },
            }
        }
    }

    /// Closes the input, and returns how the program ended and its messages. Frames that are left
    /// are dropped.
    ///
    /// # Errors
    /// It does not end in time, or cannot be waited for.
    pub async fn finish(
        mut self,
        clock: &Clock,
        limit: Duration,
    ) -> Result<(ChildExit, String), ConnectionError> {
        self.stdin.close();
        let end = async {
            while self.stdout.next().await.is_some() {}
            self.wait(clock).await
        };
        let timed_out = |_| ConnectionError::CommandTimedOut { limit };
        clock.timeout(limit, end).await.map_err(timed_out)?
    }

    /// Its streams, to be read and written at once.
    pub(crate) fn streams(&mut self) -> Streams<'_> {
        Streams {
            stdin: &mut self.stdin,
            output: SessionOutput { stdout: &mut self.stdout, first: &mut self.first },
            stderr: &mut self.stderr,
            messages: &mut self.messages,
        }
    }

    /// Waits for the end, and returns the messages.
    pub(crate) async fn wait(
        &mut self,
        clock: &Clock,
    ) -> Result<(ChildExit, String), ConnectionError> {
        let failed = |source| ConnectionError::Local { what: "wait for it".to_owned(), source };
        let end = self.child.wait().await.map_err(failed)?;
        let rest = async {
            while let Some(piece) = self.stderr.next().await {
                self.messages.push(&piece);
            }
        };
        // A pipe that stays open is not the program's: everything of it has arrived.
        let _ = clock.timeout(MESSAGES_GRACE, rest).await;
        Ok((end, self.messages.text()))
    }
}

/// The streams of a session.
pub(crate) struct Streams<'s> {
    pub(crate) stdin: &'s mut InputBytes,
    pub(crate) output: SessionOutput<'s>,
    pub(crate) stderr: &'s mut OutputBytes,
    pub(crate) messages: &'s mut Messages,
}

/// The output of a session.
pub(crate) struct SessionOutput<'s> {
    stdout: &'s mut OutputBytes,
    first: &'s mut Option<Vec<u8>>,
}

impl SessionOutput<'_> {
    /// The next piece of output. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.stdout.next().await,
        }
    }
}

impl Start<'_> {
    /// Why the command did not begin.
    fn failure(&self, end: ChildExit, messages: &str, preamble: &[u8]) -> ConnectionError {
        if end == SSH_FAILED && self.line.is_some() {
            return self.ssh(ssh_reason(messages), messages.to_owned());
        }
        if self.uses_sudo {
            let reason = sudo_reason(messages);
            if reason != SudoReason::Other || messages.contains("sudo") {
                return ConnectionError::Sudo { reason, messages: messages.to_owned() };
            }
        }
        let preamble = String::from_utf8_lossy(preamble);
        self.ssh(SshReason::NoShell, format!("{preamble}{messages}"))
    }

    fn ssh(&self, reason: SshReason, messages: String) -> ConnectionError {
        let line = self.line.clone().unwrap_or_else(|| "/bin/sh -c true".to_owned());
        ConnectionError::Ssh { reason, messages, line }
    }
}

/// Why the connection ended while the command ran, if it did.
pub(crate) fn lost(
    end: ChildExit,
    messages: &str,
    line: Option<String>,
) -> Option<ConnectionError> {
    let line = line.filter(|_| end == SSH_FAILED)?;
    let reason = SshReason::ConnectionLost;
    Some(ConnectionError::Ssh { reason, messages: messages.to_owned(), line })
}

/// The last messages of a command.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Messages {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend(piece);
        let excess = self.bytes.len().saturating_sub(MAX_MESSAGE_BYTES);
        self.bytes.drain(..excess);
        self.dropped += excess as u64;
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        match self.dropped {
            0 => text.into_owned(),
            dropped => format!("({dropped} bytes before this were dropped)\n{text}"),
        }
    }

    /// Removes the first marker and what is before it, which is returned.
    fn take_through(&mut self, marker: &Marker) -> Option<Vec<u8>> {
        let at = marker.find(self.bytes.make_contiguous())?;
        let before = self.bytes.drain(..at).collect();
        self.bytes.drain(..MARKER_BYTES);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_messages_are_held() {
        let mut messages = Messages::default();
        messages.push(b"first ");
        messages.push(&vec![b'x'; MAX_MESSAGE_BYTES]);
        let text = messages.text();
        assert!(text.starts_with("(6 bytes before this were dropped)\nxxx"), "{}", &text[..50]);
    }

    #[test]
    fn prompts_are_removed_with_what_is_before_them() {
        let prompt = Marker::random(&mut fastrand::Rng::with_seed(3));
        let mut messages = Messages::default();
        messages.push(format!("We trust you{}", &prompt.to_string()[..9]).as_bytes());
        assert_eq!(messages.take_through(&prompt), None);
        messages.push(format!("{}\nSorry", &prompt.to_string()[9..]).as_bytes());
        assert_eq!(messages.take_through(&prompt).as_deref(), Some(&b"We trust you"[..]));
        assert_eq!(messages.take_through(&prompt), None);
        assert_eq!(messages.text(), "\nSorry");
    }

    #[test]
    fn pvs_4_what_ends_before_the_command_is_classified() {
        let ssh = |uses_sudo| Start {
            marker: Marker::random(&mut fastrand::Rng::with_seed(3)),
            password: None,
            uses_sudo,
            line: Some("ssh a true".to_owned()),
        };
        let local = Start { line: None, ..ssh(true) };
        let table = [
            (ssh(false), 255, "x: Connection refused", "ConnectionRefused", 4),
            (ssh(true), 255, "", "Unreachable", 4),
            (ssh(true), 1, "sudo: a password is required", "SudoPasswordRequired", 2),
            (ssh(true), 1, "sudo: new words", "SudoFailed", 2),
            (ssh(true), 1, "This account is currently not available.", "NoShell", 4),
            (ssh(false), 127, "", "NoShell", 4),
            (local, 1, "a is not in the sudoers file.", "SudoNotAllowed", 2),
        ];
        for (start, code, messages, reason, exit_code) in table {
            let error = start.failure(ChildExit::Exited(code), messages, b"");
            assert_eq!((error.reason(), error.exit_code()), (reason, exit_code), "{messages}");
            assert!(error.to_string().contains(messages), "{error}");
        }
    }
}
