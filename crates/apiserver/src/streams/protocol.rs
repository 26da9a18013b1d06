//! What is said in a conversation with a container: several streams over one WebSocket, told apart
//! by the first byte of each message.

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use serde_json::{Value, json};

use crate::frames::Violation;
use crate::nodes::{Action, Exit, Fault, Size};
use crate::status::Refusal;

/// The streams.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const STATUS: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// Says that the stream of the next byte has ended.
const CLOSE: u8 = 255;

/// How much the client knows of how this is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A client can say that it has no more to say.
    V5,
    /// How it ended is told as a status.
    V4,
    /// How it ended is told in words, if it did not end well.
    V1,
}

impl Protocol {
    /// The best protocol that is offered, and its name if the client named any. `None` if none is
    /// known here.
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

    /// How it ended, as it is told; `None` when nothing is.
    pub(super) fn outcome(self, action: &Action, end: Result<Exit, Fault>) -> Option<Bytes> {
        let status = match end {
            Ok(Exit(0)) => json!({ "metadata": {}, "status": "Success" }),
            // Whoever attaches did not run it, and is not told how it ended.
            Ok(Exit(_)) if *action == Action::Attach => {
                json!({ "metadata": {}, "status": "Success" })
            }
            Ok(Exit(code)) => self.exited(action, code),
            Err(fault) => self.failed(action, &fault),
        };
        match self {
            Self::V5 | Self::V4 => Some(status.to_string().into()),
            Self::V1 => status["message"].as_str().map(|words| words.to_owned().into()),
        }
    }

    fn exited(self, action: &Action, code: u8) -> Value {
        // In the newest protocol the server tells it over again in its own words; in the others it
        // hands on what the runtime says.
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

    fn failed(self, action: &Action, fault: &Fault) -> Value {
        let doing = match action {
            Action::Exec(_) => "error executing command in container",
            Action::Attach => "error attaching to container",
        };
        let words = match (fault, self) {
            (Fault::Unknown(words) | Fault::NotNow(words) | Fault::Forbidden(words), _) => {
                format!("unable to upgrade connection: {words}")
            }
            // The refusal of the runtime, inside of that of the server.
            (Fault::Failed(words), Self::V5) => {
                format!("Internal error occurred: {doing}: {words}")
            }
            (Fault::Failed(words), Self::V4 | Self::V1) => format!("{doing}: {words}"),
            (Fault::Unreachable(words), _) => format!("error sending request: {words}"),
        };
        let mut document = Refusal::internal(&words).document();
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
        }
        document
    }
}

/// What a client said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It typed this.
    Input(Bytes),
    /// It will type no more.
    NoMoreInput,
    /// Its terminal has this size.
    Resized(Size),
}

/// Messages that are kept until they are whole: sizes. More than any has.
const SMALL: usize = 256;

/// Tells the streams of a client apart.
#[derive(Debug)]
pub(super) struct Channels {
    protocol: Protocol,
    /// The stream of the message we are inside of, once its first byte has come.
    channel: Option<u8>,
    /// What has come of a message that must be whole; at most one byte too long.
    kept: Vec<u8>,
}

impl Channels {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, channel: None, kept: Vec::new() }
    }

    /// What a part of a message says, if it says anything.
    pub(super) fn take(
        &mut self,
        mut bytes: Bytes,
        first: bool,
        last: bool,
    ) -> Result<Option<Said>, Violation> {
        if first {
            self.channel = None;
            self.kept.clear();
        }
        let channel = match self.channel {
            Some(channel) => channel,
            None if bytes.is_empty() => return Ok(None),
            None => *self.channel.insert(bytes.get_u8()),
        };
        match channel {
            STDIN => Ok((!bytes.is_empty()).then_some(Said::Input(bytes))),
            RESIZE => {
                self.keep(&bytes);
                Ok(if last { size(&self.kept).map(Said::Resized) } else { None })
            }
            CLOSE if self.protocol == Protocol::V5 => {
                self.keep(&bytes);
                match (last, self.kept.as_slice()) {
                    (true, [STDIN]) => Ok(Some(Said::NoMoreInput)),
                    (false, _) | (true, [STDOUT..=RESIZE]) => Ok(None),
                    (true, _) => Err(Violation),
                }
            }
            // As a real server does it: what nobody listens to is dropped.
            _ => Ok(None),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (SMALL + 1).saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// The size in a message; none if it says something else.
fn size(message: &[u8]) -> Option<Size> {
    if message.len() > SMALL {
        return None;
    }
    let said: Value = serde_json::from_slice(message).ok()?;
    let number = |name: &str| said[name].as_u64().and_then(|it| u16::try_from(it).ok());
    Some(Size { width: number("Width")?, height: number("Height")? })
}

#[cfg(test)]
mod tests;
