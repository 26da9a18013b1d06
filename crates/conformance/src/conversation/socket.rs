//! A watch over a WebSocket (RFC 6455), as far as a watcher needs it.

use gantry_testkit::http::Upgraded;

use super::{Ask, Conversation, PATIENCE, ask, headers, read_event};
use crate::answer::{Answer, Body};
use crate::case::{CaseError, unexpected};

/// Any sixteen bytes in base64; the server proves by it that it knows the protocol.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The answer to [`KEY`], from the standard.
pub const PROOF: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// What a WebSocket told until the server closed it.
#[derive(Debug)]
pub struct Told {
    /// Head and events.
    pub answer: Answer,
    /// The code the server closed with; none if it closed without a word.
    pub code: Option<u16>,
}

/// One frame.
struct Frame {
    opcode: u8,
    payload: Vec<u8>,
}

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;

impl Conversation {
    /// Watches over a WebSocket until the server closes it, and records it.
    ///
    /// # Errors
    /// The server refuses, breaks the connection or says what no watch says.
    pub async fn watch_by_socket(&mut self, ask: Ask) -> Result<Told, CaseError> {
        let ask = ask.header("upgrade", "websocket").header("connection", "Upgrade");
        let ask = ask.header("sec-websocket-version", "13").header("sec-websocket-key", KEY);
        // Kubernetes refuses those who do not say where they come from.
        let ask = ask.header("origin", "https://case.test");
        let request = ask.filled(&self.transcript.place);
        let asked = format!("{} {}", request.method, request.path);
        let mut socket = self.clients.admin.upgrade(ask::request(&request)?).await?;
        let mut events = Vec::new();
        let mut code = None;
        while socket.status.as_u16() == 101 {
            let Frame { opcode, payload } = next(&mut socket).await?;
            match opcode {
                TEXT => events.push(read_event(&payload)),
                CLOSE => {
                    code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    break;
                }
                other => return Err(unexpected(asked, "a text", format!("opcode {other}"))),
            }
        }
        let answer = Answer {
            asked,
            status: socket.status.as_u16(),
            headers: headers(&socket.headers),
            body: Body::Events { events, ended: true },
        };
        self.record(request, answer.clone());
        Ok(Told { answer, code })
    }
}

/// Reads one whole frame; servers do not mask.
async fn next(socket: &mut Upgraded) -> Result<Frame, CaseError> {
    let head = socket.read(2, PATIENCE).await?;
    let (first, second) = (head[0], head[1]);
    let extended = match second {
        127 => 8,
        126 => 2,
        _ => 0,
    };
    let length = socket.read(extended, PATIENCE).await?;
    let length = length.iter().fold(0, |sum: usize, byte| (sum << 8) | usize::from(*byte));
    let length = if extended == 0 { usize::from(second) } else { length };
    let payload = socket.read(length, PATIENCE).await?.to_vec();
    Ok(Frame { opcode: first & 0x0f, payload })
}
