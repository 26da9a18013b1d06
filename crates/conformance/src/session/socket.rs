//! A watch over a WebSocket (RFC 6455), as far as a watcher needs it.

use gantry_testkit::http::Upgraded;

use super::{RequestSpec, Session, WAIT_TIMEOUT, headers, read_event, request};
use crate::case::{CaseError, unexpected};
use crate::response::{Body, Response};

/// Any sixteen bytes in base64; the server proves by it that it knows the protocol.
const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The answer to [`WEBSOCKET_KEY`], from the standard.
pub const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// What a WebSocket sent until the server closed it.
#[derive(Debug)]
pub struct WebSocketWatch {
    /// Head and events.
    pub response: Response,
    /// The code the server closed with; none if it closed without a word.
    pub close_code: Option<u16>,
}

/// One frame.
struct Frame {
    opcode: u8,
    payload: Vec<u8>,
}

const TEXT_OPCODE: u8 = 0x1;
const CLOSE_OPCODE: u8 = 0x8;

impl Session {
    /// Watches over a WebSocket until the server closes it, and records it.
    ///
    /// # Errors
    /// The server refuses, breaks the connection or says what no watch says.
    pub async fn watch_over_websocket(
        &mut self,
        ask: RequestSpec,
    ) -> Result<WebSocketWatch, CaseError> {
        let ask = ask.header("upgrade", "websocket").header("connection", "Upgrade");
        let ask =
            ask.header("sec-websocket-version", "13").header("sec-websocket-key", WEBSOCKET_KEY);
        // Kubernetes refuses clients that send no origin.
        let ask = ask.header("origin", "https://case.test");
        let request = ask.resolve(&self.transcript.namespace);
        let asked = format!("{} {}", request.method, request.path);
        let mut socket = self.clients.admin.upgrade(request::to_http_request(&request)?).await?;
        let mut events = Vec::new();
        let mut code = None;
        while socket.status.as_u16() == 101 {
            let Frame { opcode, payload } = read_frame(&mut socket).await?;
            match opcode {
                TEXT_OPCODE => events.push(read_event(&payload)),
                CLOSE_OPCODE => {
                    code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    break;
                }
                other => return Err(unexpected(asked, "a text", format!("opcode {other}"))),
            }
        }
        let answer = Response {
            request_line: asked,
            status: socket.status.as_u16(),
            headers: headers(&socket.headers),
            body: Body::Events { events, ended: true },
        };
        self.record(request, answer.clone());
        Ok(WebSocketWatch { response: answer, close_code: code })
    }
}

/// Reads one whole frame; servers do not mask.
async fn read_frame(socket: &mut Upgraded) -> Result<Frame, CaseError> {
    let head = socket.read(2, WAIT_TIMEOUT).await?;
    let (first, second) = (head[0], head[1]);
    let extended = match second {
        127 => 8,
        126 => 2,
        _ => 0,
    };
    let length = socket.read(extended, WAIT_TIMEOUT).await?;
    let length = length.iter().fold(0, |sum: usize, byte| (sum << 8) | usize::from(*byte));
    let length = if extended == 0 { usize::from(second) } else { length };
    let payload = socket.read(length, WAIT_TIMEOUT).await?.to_vec();
    Ok(Frame { opcode: first & 0x0f, payload })
}
