//! Clients that are slow, large, many, or malicious.

use super::*;

const WHO: &[u8] = b"GET /who HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn slow_request_heads_time_out_after_32_seconds() {
    let site = plain_server().await;
    let mut slow = site.connect().await;
    site.wait_until_timer_due(second(90)).await;
    slow.write_all(b"GET /who HT").await.unwrap();
    site.wait_until_timer_due(second(32)).await;
    slow.write_all(b"TP/1.1\r\nhost").await.unwrap();
    site.advance_clock(second(31));
    slow.write_all(b": a\r\n").await.unwrap();
    site.wait_until_timer_due(second(1)).await;
    site.advance_clock(second(1));
    assert_eq!(read_all(&mut slow).await, b"", "more bytes do not buy more time");
    site.wait_until("counted", |site| site.connection_ends("head_too_slow") == 1).await;
}

#[tokio::test]
async fn idle_connections_close_90_seconds_after_the_last_response() {
    let site = plain_server().await;
    let mut kept = site.connect().await;
    site.wait_until_timer_due(second(90)).await;
    // A client that returns in time finds it open, long after the limit for a head.
    site.advance_clock(second(89));
    kept.write_all(WHO).await.unwrap();
    read_until(&mut kept, "nobody HTTP/1.1").await;
    // The earlier timer fires, and is armed again for the rest.
    site.advance_clock(second(1));
    site.wait_until_timer_due(second(89)).await;
    site.advance_clock(second(89));
    assert_eq!(read_all(&mut kept).await, b"");
    site.wait_until("counted", |site| site.connection_ends("idle") == 1).await;
}

#[tokio::test]
async fn an_idle_http2_connection_ends_but_not_one_with_a_stream() {
    let site = test_server(true, |options| options.timeouts.ping = second(1_000_000)).await;
    let client = site.client(Speak::Http2, None);
    let mut stream = client.open(Ask::get("/stream")).await.unwrap();
    stream.next_line(TEST_TIMEOUT).await.unwrap();
    site.advance_clock(second(1000));
    let answer = client.send(Ask::get("/who")).await.unwrap();
    assert_eq!((answer.status, site.metric("gantry_server_connections")), (StatusCode::OK, 1));
    drop(stream);
    site.wait_until_timer_due(second(90)).await;
    site.advance_clock(second(90));
    site.wait_until("counted", |site| site.connection_ends("idle") == 1).await;
}

#[tokio::test]
async fn handshakes_time_out_after_10_seconds() {
    let site = tls_server().await;
    let mut silent = site.connect().await;
    site.wait_until_timer_due(second(10)).await;
    // Others are served meanwhile: a handshake does not block the next.
    let answer = site.client(Speak::Http1, None).send(Ask::get("/who")).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    site.advance_clock(second(10));
    assert_eq!(read_all(&mut silent).await, b"");
    let mut wrong = site.connect().await;
    wrong.write_all(WHO).await.unwrap();
    read_all(&mut wrong).await;
    site.wait_until("counted", |site| site.connection_ends("handshake_failed") == 2).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let site = plain_server().await;
    let mut socket = site.connect().await;
    socket.write_all(b"GET /huge HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    site.wait_until_timer_due(second(60)).await;
    site.advance_clock(second(60));
    site.wait_until("counted", |site| site.connection_ends("stalled") == 1).await;
    assert!(read_all(&mut socket).await.len() < 64 << 20);
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let site = test_server(true, |options| options.max_head = 16 << 10).await;
    for speak in [Speak::Http1, Speak::Http2] {
        let client = site.client(speak, None);
        let with = |size: usize| {
            let value = HeaderValue::try_from("a".repeat(size)).unwrap();
            Ask::new(Method::GET, "/who").header(HeaderName::from_static("x-large"), value)
        };
        let answer = client.send(with(15 << 10)).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{speak:?}");
        let answer = client.send(with(17 << 10)).await;
        let refused =
            answer.is_ok_and(|answer| answer.status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert!(refused, "{speak:?}");
        let answer = client.send(Ask::get("/who")).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{speak:?}: others are served");
    }
}

#[tokio::test]
async fn many_headers_are_accepted() {
    let site = tls_server().await;
    for speak in [Speak::Http1, Speak::Http2] {
        let mut ask = Ask::get("/who");
        for number in 0..900 {
            let name = HeaderName::from_static("impersonate-group");
            ask.headers.append(name, HeaderValue::from(number));
        }
        let answer = site.client(speak, None).send(ask).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{speak:?}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait_in_the_backlog() {
    let site = test_server(false, |options| options.max_connections = 1).await;
    let mut first = site.connect().await;
    first.write_all(WHO).await.unwrap();
    read_until(&mut first, "nobody HTTP/1.1").await;
    let mut next = site.connect().await;
    next.write_all(WHO).await.unwrap();
    first.write_all(WHO).await.unwrap();
    read_until(&mut first, "nobody HTTP/1.1").await;
    assert_eq!(site.metric("gantry_server_connections"), 1);
    assert_eq!(next.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    read_until(&mut next, "nobody HTTP/1.1").await;
}

#[tokio::test]
async fn rapid_connects_are_all_served() {
    let site = tls_server().await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..100 {
        let speak = if number % 2 == 0 { Speak::Http1 } else { Speak::Http2 };
        let client = site.client(speak, None);
        asking.spawn(async move { client.send(Ask::get("/who")).await.unwrap().status });
        // Some disconnect before anything was sent.
        drop(site.connect().await);
    }
    let statuses = asking.join_all().await;
    assert_eq!(statuses, [StatusCode::OK; 100]);
    site.wait_until("all gone", |site| site.metric("gantry_server_connections") == 0).await;
}

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// GET / at https://a, from the static table of header compression.
const GET: [u8; 6] = [0x82, 0x84, 0x87, 0x41, 0x01, b'a'];
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_HEADERS_AND_STREAM: u8 = 0x5;
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 0xb];

async fn connect_http2(site: &TestServer) -> TlsStream<TcpStream> {
    let mut config = site.trust(rustls::ALL_VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut stream = site.connect_tls(config).await;
    let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*frame(SETTINGS, 0, 0, &[])].concat();
    stream.write_all(&hello).await.unwrap();
    stream
}

async fn read_frame(stream: &mut TlsStream<TcpStream>) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], payload))
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let site = tls_server().await;
    let mut stream = connect_http2(&site).await;
    let mut flood = Vec::new();
    // Few enough that all are read, so that the response is not lost with unread data.
    for number in 0..300_u32 {
        let id = 2 * number + 1;
        flood.extend(frame(HEADERS, END_HEADERS_AND_STREAM, id, &GET));
        flood.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
    }
    stream.write_all(&flood).await.unwrap();
    let goaway = async {
        loop {
            let (kind, payload) = read_frame(&mut stream).await.expect("a reason is given");
            if kind == GOAWAY {
                break payload[4..8].to_vec();
            }
        }
    };
    let calm =
        Clock::system().timeout(TEST_TIMEOUT, goaway).await.expect("the connection is ended");
    assert_eq!(calm, ENHANCE_YOUR_CALM);
    site.wait_until("ended", |site| site.connection_ends("broken") == 1).await;
}

#[tokio::test]
async fn http2_settings_are_those_of_upstream() {
    let site = tls_server().await;
    let (kind, payload) = read_frame(&mut connect_http2(&site).await).await.unwrap();
    assert_eq!(kind, SETTINGS);
    let settings: Vec<(u8, u32)> = payload
        .chunks_exact(6)
        .map(|entry| (entry[1], u32::from_be_bytes(entry[2..6].try_into().unwrap())))
        .collect();
    // Concurrent streams, initial window, frame size, header list.
    for expected in [(3, 100), (4, 256 << 10), (5, 256 << 10), (6, 1 << 20)] {
        assert!(settings.contains(&expected), "{expected:?} in {settings:?}");
    }
}
