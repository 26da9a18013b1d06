//! An HTTP/1.1 client with what tests need: complete responses, chunks as they arrive, and frames.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl HttpResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends a request, and reads the whole response.
pub(super) async fn send_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> HttpResponse {
    send(address, method, path, headers, "").await
}

/// Sends a request with a body, and reads the whole response.
pub(super) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    if !body.is_empty() {
        headers.push(("content-length", &length));
    }
    let (mut stream, mut reply) = begin_with(address, method, path, &headers, body).await;
    if method == "HEAD" {
        return reply;
    }
    if reply.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = chunk(&mut stream).await {
            reply.body.push_str(&chunk);
        }
    } else {
        read_body(&mut stream, &mut reply).await;
    }
    reply
}

async fn read_body(stream: &mut BufReader<TcpStream>, reply: &mut HttpResponse) {
    let length = reply.header("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    reply.body = String::from_utf8(body).unwrap();
}

/// Sends a request, and reads the head of the response.
pub(super) async fn begin(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (BufReader<TcpStream>, HttpResponse) {
    begin_with(address, method, path, headers, "").await
}

async fn begin_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (BufReader<TcpStream>, HttpResponse) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).await.unwrap();
    let first = line(&mut stream).await;
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let mut reply = HttpResponse { status, headers: Vec::new(), body: String::new() };
    loop {
        let line = line(&mut stream).await;
        let Some((name, value)) = line.split_once(": ") else { break };
        reply.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    (stream, reply)
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

/// Reads the next chunk of a body; `None` at its end.
async fn chunk(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let length = usize::from_str_radix(&line(stream).await, 16).unwrap();
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes.truncate(length);
    (length > 0).then(|| String::from_utf8(bytes).unwrap())
}

/// A streamed response.
pub(super) struct StreamedResponse(BufReader<TcpStream>);

impl StreamedResponse {
    pub(super) async fn open(address: SocketAddr, path: &str) -> Self {
        let (stream, reply) = begin(address, "GET", path, &[]).await;
        assert_eq!(reply.status, 200);
        Self(stream)
    }

    pub(super) async fn chunk(&mut self) -> Option<String> {
        chunk(&mut self.0).await
    }
}

/// A WebSocket.
#[derive(Debug)]
pub(super) struct WebSocket {
    stream: BufReader<TcpStream>,
    pub(super) response: HttpResponse,
}

impl WebSocket {
    pub(super) async fn open(
        address: SocketAddr,
        path: &str,
        protocol: &str,
    ) -> Result<Self, HttpResponse> {
        let headers = [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", protocol),
        ];
        let (mut stream, mut reply) = begin(address, "GET", path, &headers).await;
        if reply.status != 101 {
            read_body(&mut stream, &mut reply).await;
            return Err(reply);
        }
        let proof = reply.header("sec-websocket-accept");
        assert_eq!(proof, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Ok(Self { stream, response: reply })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends a frame.
    pub(super) async fn send_frame(&mut self, first: u8, payload: &[u8]) {
        let mut head = vec![first];
        match u8::try_from(payload.len()) {
            Ok(length) if length < 126 => head.push(0x80 | length),
            _ => {
                head.push(0x80 | 127);
                head.extend(u64::try_from(payload.len()).unwrap().to_be_bytes());
            }
        }
        let mask = [7, 77, 177, 27];
        head.extend(mask);
        head.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.send(&head).await;
    }

    /// Reads the next frame: its first byte and its payload.
    pub(super) async fn receive_frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.stream.read_u16().await.unwrap().to_be_bytes();
        let length = match head[1] {
            126 => self.stream.read_u16().await.unwrap().into(),
            127 => self.stream.read_u64().await.unwrap(),
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.unwrap();
        (head[0], payload)
    }

    /// Reads to the end of the connection, and returns how much there was.
    pub(super) async fn read_to_close(&mut self) -> usize {
        self.stream.read_to_end(&mut Vec::new()).await.unwrap()
    }
}
