//! The remote command protocol: several streams over one WebSocket, distinguished by the first byte
//! of each message.

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use serde_json::{Value, json};

use crate::response::status::StatusError;
use crate::streams::kubelet_client::{Action, ExitCode, KubeletError, TerminalSize};
use crate::streams::websocket_frames::Violation;

/// The channels.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const STATUS: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// Closes the channel in the next byte.
const CLOSE: u8 = 255;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// v5: a client can close its input.
    V5,
    /// v4: the result is a `Status`.
    V4,
    /// Older: the result is text, and only on failure.
    V1,
}

impl Protocol {
    /// Returns the best offered protocol, and its name if the client named any; `None` if none is
    /// supported.
    pub(super) fn choose(headers: &HeaderMap) -> Option<(Self, Option<&'static str>)> {
        let offered: Vec<&str> = headers
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(','))
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .collect();
        if offered.is_empty() {
            return Some((Self::V1, None));
        }
        let known = [
            (Self::V5, "v5.channel.k8s.io"),
            (Self::V4, "v4.channel.k8s.io"),
            (Self::V1, "channel.k8s.io"),
        ];
        let found = known.into_iter().find(|(_, name)| offered.contains(name));
        found.map(|(protocol, name)| (protocol, Some(name)))
    }

    /// Returns the result of a command as it is sent to the client; `None` when nothing is sent.
    pub(super) fn outcome(
        self,
        action: &Action,
        end: Result<ExitCode, KubeletError>,
    ) -> Option<Bytes> {
        let status = match end {
            Ok(ExitCode(0)) => json!({ "metadata": {}, "status": "Success" }),
            // A client that attaches did not start the command, and does not get its exit status.
            Ok(ExitCode(_)) if *action == Action::Attach => {
                json!({ "metadata": {}, "status": "Success" })
            }
            Ok(ExitCode(code)) => self.exited(action, code),
            Err(fault) => self.failed(action, &fault),
        };
        match self {
            Self::V5 | Self::V4 => Some(status.to_string().into()),
            Self::V1 => status["message"].as_str().map(|words| words.to_owned().into()),
        }
    }

    fn exited(self, action: &Action, code: u8) -> Value {
        // In the newest protocol the server repeats the error in its own words; in the others it
        // forwards that of the runtime.
        let why = match (self, action) {
            (Self::V4 | Self::V1, Action::Exec(command)) => {
                format!("error executing command [{}], exit code {code}", command.join(" "))
            }
            (Self::V5, _) | (_, Action::Attach) => {
                format!("command terminated with exit code {code}")
            }
        };
        json!({
            "metadata": {}, "status": "Failure",
            "message": format!("command terminated with non-zero exit code: {why}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        })
    }

    fn failed(self, action: &Action, fault: &KubeletError) -> Value {
        let doing = match action {
            Action::Exec(_) => "error executing command in container",
            Action::Attach => "error attaching to container",
        };
        let words = match (fault, self) {
            (
                KubeletError::NotFound(words)
                | KubeletError::NotReady(words)
                | KubeletError::Forbidden(words),
                _,
            ) => {
                format!("unable to upgrade connection: {words}")
            }
            // The error of the runtime, inside of that of the server.
            (KubeletError::Failed(words), Self::V5) => {
                format!("Internal error occurred: {doing}: {words}")
            }
            (KubeletError::Failed(words), Self::V4 | Self::V1) => format!("{doing}: {words}"),
            (KubeletError::Unreachable(words), _) => format!("error sending request: {words}"),
        };
        let mut document = StatusError::internal(&words).document();
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
        }
        document
    }
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// Input.
    Input(Bytes),
    /// The end of the input.
    InputClosed,
    /// The size of its terminal.
    Resized(TerminalSize),
}

/// The longest message that is buffered until it is complete: resize messages are shorter.
const MAX_RESIZE_MESSAGE: usize = 256;

/// Decodes the channels of a client.
#[derive(Debug)]
pub(super) struct ChannelDecoder {
    protocol: Protocol,
    /// The channel of the current message, once its first byte has arrived.
    channel: Option<u8>,
    /// The received part of a message that must be complete; at most one byte too long.
    buffered: Vec<u8>,
}

impl ChannelDecoder {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, channel: None, buffered: Vec::new() }
    }

    /// Returns what a part of a message contains, if anything.
    pub(super) fn decode(
        &mut self,
        mut bytes: Bytes,
        first: bool,
        last: bool,
    ) -> Result<Option<ClientMessage>, Violation> {
        if first {
            self.channel = None;
            self.buffered.clear();
        }
        let channel = match self.channel {
            Some(channel) => channel,
            None if bytes.is_empty() => return Ok(None),
            None => *self.channel.insert(bytes.get_u8()),
        };
        match channel {
            STDIN => Ok((!bytes.is_empty()).then_some(ClientMessage::Input(bytes))),
            RESIZE => {
                self.buffer(&bytes);
                Ok(if last { parse_size(&self.buffered).map(ClientMessage::Resized) } else { None })
            }
            CLOSE if self.protocol == Protocol::V5 => {
                self.buffer(&bytes);
                match (last, self.buffered.as_slice()) {
                    (true, [STDIN]) => Ok(Some(ClientMessage::InputClosed)),
                    (false, _) | (true, [STDOUT..=RESIZE]) => Ok(None),
                    (true, _) => Err(Violation),
                }
            }
            // As a real server does: data on other channels is dropped.
            _ => Ok(None),
        }
    }

    fn buffer(&mut self, bytes: &[u8]) {
        let remaining = (MAX_RESIZE_MESSAGE + 1).saturating_sub(self.buffered.len());
        self.buffered.extend_from_slice(&bytes[..bytes.len().min(remaining)]);
    }
}

/// Parses the terminal size in a message; `None` if it is something else.
fn parse_size(message: &[u8]) -> Option<TerminalSize> {
    if message.len() > MAX_RESIZE_MESSAGE {
        return None;
    }
    let said: Value = serde_json::from_slice(message).ok()?;
    let number = |name: &str| said[name].as_u64().and_then(|it| u16::try_from(it).ok());
    Some(TerminalSize { width: number("Width")?, height: number("Height")? })
}

#[cfg(test)]
mod tests;
