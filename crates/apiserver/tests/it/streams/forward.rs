//! Port forwarding, over every transport that clients use.

#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

use bytes::{Bytes, BytesMut};
use gantry_apiserver::streams::spdy::{Decoder, Encoder, Frame, Headers};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::client::{self, WebSocket};
use super::{PODS, TestListener};

/// A client of SPDY, plain or inside of a WebSocket.
struct SpdyClient {
    carrier: Carrier,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    next: u32,
}

enum Carrier {
    Plain(BufReader<TcpStream>),
    Tunnel(WebSocket),
}

/// The two transports.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Plain,
    Tunnel,
}

const TRANSPORTS: [Transport; 2] = [Transport::Plain, Transport::Tunnel];

impl SpdyClient {
    async fn open(listening: &TestListener, form: Transport, pod: &str) -> Self {
        let path = format!("{PODS}/{pod}/portforward");
        let carrier = match form {
            Transport::Plain => {
                let headers = [
                    ("upgrade", "SPDY/3.1"),
                    ("connection", "Upgrade"),
                    ("x-stream-protocol-version", "portforward.k8s.io"),
                ];
                let (stream, reply) =
                    client::begin(listening.address, "POST", &path, &headers).await;
                assert_eq!(reply.status, 101);
                assert_eq!(reply.header("upgrade"), Some("SPDY/3.1"));
                let chosen = reply.header("x-stream-protocol-version");
                assert_eq!(chosen, Some("portforward.k8s.io"));
                Carrier::Plain(stream)
            }
            Transport::Tunnel => {
                let protocol = "SPDY/3.1+portforward.k8s.io";
                let socket = WebSocket::open(listening.address, &path, protocol).await.unwrap();
                assert_eq!(socket.response.header("sec-websocket-protocol"), Some(protocol));
                Carrier::Tunnel(socket)
            }
        };
        let (encoder, decoder) = (Encoder::default(), Decoder::default());
        Self { carrier, encoder, decoder, input: BytesMut::new(), next: 1 }
    }

    async fn send_frame(&mut self, frame: &Frame) {
        let bytes = self.encoder.encode(frame);
        match &mut self.carrier {
            Carrier::Plain(stream) => stream.write_all(&bytes).await.unwrap(),
            Carrier::Tunnel(socket) => socket.send_frame(0x82, &bytes).await,
        }
    }

    /// Reads the next frame; `None` when the server has closed the session.
    async fn receive_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.input).unwrap() {
                return Some(frame);
            }
            match &mut self.carrier {
                Carrier::Plain(stream) => {
                    if stream.read_buf(&mut self.input).await.unwrap() == 0 {
                        return None;
                    }
                }
                Carrier::Tunnel(socket) => match socket.receive_frame().await {
                    (0x82, bytes) => self.input.extend_from_slice(&bytes),
                    (0x88, _) => return None,
                    other => panic!("{other:?}"),
                },
            }
        }
    }

    /// Opens a stream without waiting for its reply.
    async fn open_stream(&mut self, kind: &str, port: &str, request: &str) -> u32 {
        let stream = self.next;
        self.next += 2;
        let list = [("streamtype", kind), ("port", port), ("requestid", request)];
        let list = list.iter().filter(|(_, value)| !value.is_empty());
        let headers = list.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let headers = Headers(headers.collect());
        self.send_frame(&Frame::SynStream { stream, headers, fin: false }).await;
        stream
    }

    /// Opens a connection as client-go does: the error stream first, which is half-closed at once.
    async fn connect(&mut self, port: u16, request: &str) -> (u32, u32) {
        let error = self.open_stream("error", &port.to_string(), request).await;
        self.expect_reply(error).await;
        self.close_stream(error).await;
        let data = self.open_stream("data", &port.to_string(), request).await;
        self.expect_reply(data).await;
        (data, error)
    }

    async fn expect_reply(&mut self, stream: u32) {
        let expected = Frame::SynReply { stream, headers: Headers::default(), fin: false };
        let mut heard = self.receive_frame().await;
        while let Some(Frame::WindowUpdate { .. }) = heard {
            heard = self.receive_frame().await;
        }
        assert_eq!(heard, Some(expected));
    }

    async fn send(&mut self, stream: u32, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.send_frame(&Frame::Data { stream, bytes, fin: false }).await;
    }

    async fn close_stream(&mut self, stream: u32) {
        self.send_frame(&Frame::Data { stream, bytes: Bytes::new(), fin: true }).await;
    }

    /// Reads the data of a stream until it ends; window updates are skipped.
    async fn read(&mut self, wanted: u32) -> Vec<u8> {
        let mut read = Vec::new();
        loop {
            match self.receive_frame().await.expect("the session goes on") {
                Frame::Data { stream, bytes, fin } if stream == wanted => {
                    read.extend_from_slice(&bytes);
                    if fin {
                        return read;
                    }
                }
                Frame::WindowUpdate { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn bytes_are_copied_both_ways_until_each_side_closes() {
    let listening = TestListener::start().await;
    for form in TRANSPORTS {
        let mut client = SpdyClient::open(&listening, form, "p").await;
        let (data, error) = client.connect(7, "0").await;
        client.send(data, b"hello").await;
        let mut heard = Vec::new();
        while heard.len() < 5 {
            match client.receive_frame().await {
                Some(Frame::Data { stream, bytes, fin: false }) if stream == data => {
                    heard.extend_from_slice(&bytes);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(heard, b"hello", "{form:?}");
        client.send(data, b"again").await;
        client.close_stream(data).await;
        assert_eq!(client.read(data).await, b"again", "{form:?}: the other half is still open");
        assert_eq!(client.read(error).await, b"", "{form:?}: no error");
        // The pod closes first.
        let (data, error) = client.connect(13, "1").await;
        assert_eq!(client.read(data).await, b"I am p on n");
        client.send_frame(&Frame::Reset { stream: data, status: 5 }).await;
        assert_eq!(client.read(error).await, b"");
        client.send_frame(&Frame::Ping(7)).await;
        assert_eq!(client.receive_frame().await, Some(Frame::Ping(7)));
    }
}

#[tokio::test]
async fn a_closed_port_has_the_kubelet_error_message() {
    let listening = TestListener::start().await;
    let (_, pod) =
        listening.server.send_request("GET", &format!("{PODS}/p"), "application/json", "").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let refused = "dial tcp 127.16.0.2:81: connect: connection refused";
    let words = format!("error forwarding port 81 to pod {uid}, uid : {refused}");
    for form in TRANSPORTS {
        let mut client = SpdyClient::open(&listening, form, "p").await;
        let (data, error) = client.connect(81, "0").await;
        assert_eq!(String::from_utf8(client.read(error).await).unwrap(), words);
        assert_eq!(client.receive_frame().await, Some(Frame::Reset { stream: data, status: 5 }));
        // The session goes on.
        let (data, _) = client.connect(13, "1").await;
        assert_eq!(client.read(data).await, b"I am p on n");
    }
    let mut socket = listening.open("p/portforward?ports=81", "v4.channel.k8s.io").await.unwrap();
    assert_eq!(socket.receive_frame().await.1, [0, 81, 0]);
    assert_eq!(socket.receive_frame().await.1, [1, 81, 0]);
    assert_eq!(socket.receive_frame().await.1, [b"\x01", words.as_bytes()].concat());
    assert_eq!(socket.receive_frame().await, (0x88, 1000_u16.to_be_bytes().to_vec()));
}

#[tokio::test]
async fn channels_of_a_websocket_carry_each_port() {
    let listening = TestListener::start().await;
    let path = "p/portforward?ports=7,13";
    let mut socket = listening.open(path, "v4.channel.k8s.io").await.unwrap();
    for expected in [[0, 7, 0], [1, 7, 0], [2, 13, 0], [3, 13, 0]] {
        assert_eq!(socket.receive_frame().await, (0x82, expected.to_vec()));
    }
    assert_eq!(socket.receive_frame().await.1, b"\x02I am p on n");
    // Data on error channels, or on channels that do not exist, is ignored.
    socket.send_frame(0x82, b"\x01x").await;
    socket.send_frame(0x82, b"\x09x").await;
    socket.send_frame(0x82, b"\0hello").await;
    assert_eq!(socket.receive_frame().await.1, b"\0hello");
    // One message in two frames.
    socket.send_frame(0x02, b"\0to").await;
    socket.send_frame(0x80, b"gether").await;
    let mut heard = Vec::new();
    while heard.len() < 8 {
        heard.extend_from_slice(&socket.receive_frame().await.1[1..]);
    }
    assert_eq!(heard, b"together");
    socket.send_frame(0x88, b"").await;
    socket.read_to_close().await;
}

/// Many connections share a session, and one that is not read does not block clients that obey
/// windows.
#[tokio::test]
async fn many_connections_share_a_session() {
    let listening = TestListener::start().await;
    for form in TRANSPORTS {
        let mut client = SpdyClient::open(&listening, form, "p").await;
        let (silent, _) = client.connect(19, "silent").await;
        // A whole window, in small pieces; the program reads next to none.
        for _ in 0..64 {
            client.send(silent, &[b's'; 1024]).await;
        }
        let mut streams = Vec::new();
        for number in 0..50 {
            streams.push(client.connect(7, &number.to_string()).await);
        }
        for (data, error) in streams {
            let text = format!("I am {data}");
            client.send(data, text.as_bytes()).await;
            client.close_stream(data).await;
            assert_eq!(client.read(data).await, text.as_bytes());
            assert_eq!(client.read(error).await, b"");
        }
    }
}

/// A client that never sends window updates, as client-go, gets more than any window; one that does
/// gets no more than it has asked for.
#[tokio::test]
async fn windows_are_enforced_once_the_client_uses_them() {
    let listening = TestListener::start().await;
    let long: Vec<u8> = (0..200_000_u32).map(|it| it.to_le_bytes()[1]).collect();
    for form in TRANSPORTS {
        for counts in [false, true] {
            let mut client = SpdyClient::open(&listening, form, "p").await;
            if counts {
                client.send_frame(&Frame::Settings { initial_window: Some(5000) }).await;
            }
            let (data, _) = client.connect(7, "0").await;
            let (mut sent, mut granted, mut back) = (0, 0_u32, Vec::new());
            let mut window = 5000;
            while back.len() < long.len() {
                // No more is in transit than all buffers in between can hold.
                if sent < long.len() && sent - back.len() < 16_000 {
                    let end = long.len().min(sent + 8_000);
                    client.send(data, &long[sent..end]).await;
                    sent = end;
                    continue;
                }
                match client.receive_frame().await.unwrap() {
                    Frame::Data { stream, bytes, fin: false } if stream == data => {
                        if counts {
                            window -= i64::try_from(bytes.len()).unwrap();
                            assert!(window >= 0, "{form:?}: more than was asked for");
                            let delta = u32::try_from(bytes.len()).unwrap();
                            for stream in [0, data] {
                                client.send_frame(&Frame::WindowUpdate { stream, delta }).await;
                            }
                            window += i64::from(delta);
                        }
                        back.extend_from_slice(&bytes);
                    }
                    Frame::WindowUpdate { stream, delta } if stream == data => granted += delta,
                    Frame::WindowUpdate { stream: 0, .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(back == long, "{form:?}: the bytes are the same");
            assert!(granted > 100_000, "{form:?}: the client may go on sending: {granted}");
        }
    }
}

#[tokio::test]
async fn a_session_ends_with_its_pod_or_the_server() {
    let listening = TestListener::start().await;
    for form in TRANSPORTS {
        let mut client = SpdyClient::open(&listening, form, "two").await;
        let mut other = SpdyClient::open(&listening, form, "p").await;
        client.connect(19, "0").await;
        let path = format!("{PODS}/two/status");
        let over = json!({ "status": { "phase": "Succeeded" } });
        let kind = "application/merge-patch+json";
        let (status, answer) = listening.server.send_request("PATCH", &path, kind, &over).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(client.receive_frame().await, Some(Frame::GoAway { last: 0, status: 0 }));
        assert_eq!(client.receive_frame().await, None, "{form:?}");
        let (data, _) = other.connect(13, "0").await;
        assert_eq!(other.read(data).await, b"I am p on n", "{form:?}: nobody else is bothered");
        let runs = json!({ "status": { "phase": "Running" } });
        listening.server.send_request("PATCH", &path, kind, &runs).await;
    }
    let mut client = SpdyClient::open(&listening, Transport::Tunnel, "p").await;
    client.connect(19, "0").await;
    listening.server.tasks.token().cancel();
    assert_eq!(client.receive_frame().await, Some(Frame::GoAway { last: 0, status: 0 }));
    assert_eq!(client.receive_frame().await, None);
}

/// Invalid frames reset their own stream, or end their own session.
#[tokio::test]
async fn hostile_frames_do_no_harm() {
    let listening = TestListener::start().await;
    let mut client = SpdyClient::open(&listening, Transport::Plain, "p").await;
    for (kind, port) in [("data", "0"), ("data", "x"), ("data", "65536"), ("", "7"), ("x", "7")] {
        let stream = client.open_stream(kind, port, "0").await;
        let reset = Frame::Reset { stream, status: 5 };
        assert_eq!(client.receive_frame().await, Some(reset), "{kind} {port}");
    }
    let first = client.open_stream("data", "7", "1").await;
    client.expect_reply(first).await;
    let second = client.open_stream("data", "7", "1").await;
    assert_eq!(client.receive_frame().await, Some(Frame::Reset { stream: second, status: 5 }));
    for stream in [first, 2] {
        let headers = Headers(vec![("port".to_owned(), "7".to_owned())]);
        client.send_frame(&Frame::SynStream { stream, headers, fin: false }).await;
        assert_eq!(client.receive_frame().await, Some(Frame::Reset { stream, status: 1 }));
    }
    // Data for an unknown stream.
    client.send(999, b"x").await;
    let mut refused = 0;
    for number in 0..600 {
        client.open_stream("error", "7", &format!("many-{number}")).await;
        match client.receive_frame().await.unwrap() {
            Frame::SynReply { .. } => {}
            Frame::Reset { status: 3, .. } => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 600 - 511, "one was open before");
    let bytes = [0x80, 0x02, 0, 1, 0, 0, 0, 0];
    let Carrier::Plain(stream) = &mut client.carrier else { panic!("it is plain") };
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(client.receive_frame().await, None, "another version of SPDY");
    assert_eq!(listening.send_request("GET", "p/log").await.status, 200);
}
