//! How connections end: stopping, draining, panics, upgrades.

use super::*;

#[tokio::test]
async fn an_open_stream_is_drained_when_the_server_stops() {
    let mut site = tls_server().await;
    let mut streams = Vec::new();
    for speak in [Speak::Http1, Speak::Http2] {
        let mut stream = site.client(speak, None).open(Ask::get("/stream")).await.unwrap();
        assert_eq!(stream.next_line(TEST_TIMEOUT).await.unwrap().unwrap(), "hello");
        streams.push(stream);
    }
    site.tasks.token().cancel();
    for stream in &mut streams {
        assert_eq!(stream.next_line(TEST_TIMEOUT).await.unwrap(), None, "ended in order");
    }
    site.join().await.unwrap();
    assert!(TcpStream::connect(site.address).await.is_err(), "nobody listens any more");
    assert_eq!(site.metric("gantry_server_connections"), 0);
    assert_eq!(site.connection_ends("cut"), 0);
}

#[tokio::test]
async fn requests_are_cut_off_after_the_drain_timeout() {
    for speak in [Speak::Http1, Speak::Http2] {
        let mut site = tls_server().await;
        let client = site.client(speak, None);
        let asking = client.send(Ask::get("/stuck"));
        let stopping = async {
            site.wait_until("there", |site| site.stuck.load(Ordering::SeqCst) == 1).await;
            site.tasks.token().cancel();
            site.wait_until_timer_due(second(10)).await;
            assert_eq!(site.stuck.load(Ordering::SeqCst), 1, "it has its time");
            site.advance_clock(second(10));
        };
        let (answer, ()) = tokio::join!(asking, stopping);
        assert!(answer.is_err(), "{speak:?}");
        site.join().await.unwrap();
        assert_eq!(site.connection_ends("cut"), 1, "{speak:?}");
        site.wait_until("dropped", |site| site.stuck.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn idle_connections_end_at_once_when_the_server_stops() {
    let mut site = tls_server().await;
    let _silent = site.connect().await;
    let _handshaken = site.connect_tls(site.trust(rustls::ALL_VERSIONS)).await;
    let clients = [Speak::Http1, Speak::Http2].map(|speak| site.client(speak, None));
    for client in &clients {
        client.send(Ask::get("/who")).await.unwrap();
    }
    site.tasks.token().cancel();
    site.join().await.unwrap();
    assert_eq!(site.connection_ends("cut"), 0);
}

#[tokio::test]
async fn a_request_is_cancelled_when_its_client_disconnects() {
    for speak in [Speak::Http1, Speak::Http2] {
        let site = tls_server().await;
        {
            let client = site.client(speak, None);
            let mut asking = std::pin::pin!(client.send(Ask::get("/stuck")));
            let there = site.wait_until("there", |site| site.stuck.load(Ordering::SeqCst) == 1);
            tokio::select! {
                _ = &mut asking => panic!("no answer can come"),
                () = there => {}
            }
        }
        site.wait_until("gone", |site| site.stuck.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn a_panic_ends_the_owner_or_only_its_connection() {
    for speak in [Speak::Http1, Speak::Http2] {
        let mut site = tls_server().await;
        assert!(site.client(speak, None).send(Ask::get("/panic")).await.is_err());
        let lost = site.join().await.unwrap_err();
        assert_eq!(&*lost.task, "test", "{speak:?}");
        assert!(site.tasks.token().is_cancelled());

        let site = test_server(true, |options| options.on_panic = OnLoss::CarryOn).await;
        assert!(site.client(speak, None).send(Ask::get("/panic")).await.is_err());
        let answer = site.client(speak, None).send(Ask::get("/who")).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{speak:?}");
        let how = if speak == Speak::Http1 { "panicked" } else { "failed" };
        let line = format!(r#"gantry_task_ends_total{{task="server connection",how="{how}"}}"#);
        site.wait_until("counted", |site| site.metric(&line) == 1).await;
    }
}

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

#[tokio::test]
async fn an_upgraded_connection_is_raw_bytes_and_closed_on_shutdown() {
    let mut site = plain_server().await;
    let mut socket = site.connect().await;
    socket.write_all(format!("{UPGRADE}early").as_bytes()).await.unwrap();
    let head = read_until(&mut socket, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(read_until(&mut socket, "early").await, "early", "bytes sent ahead are not lost");
    // Longer than any limit for requests: none applies any more.
    site.advance_clock(second(100_000));
    socket.write_all(b"later").await.unwrap();
    assert_eq!(read_until(&mut socket, "later").await, "later");
    assert_eq!(site.metric("gantry_server_connections"), 1, "it counts as a connection");

    site.tasks.token().cancel();
    site.wait_until_timer_due(second(10)).await;
    site.advance_clock(second(10));
    assert_eq!(read_all(&mut socket).await, b"");
    site.join().await.unwrap();
    assert_eq!(site.connection_ends("cut"), 1);
}

#[tokio::test]
async fn an_upgraded_connection_ends_with_its_client() {
    let site = plain_server().await;
    let mut socket = site.connect().await;
    socket.write_all(UPGRADE.as_bytes()).await.unwrap();
    read_until(&mut socket, "\r\n\r\n").await;
    drop(socket);
    site.wait_until("ended", |site| site.metric("gantry_server_connections") == 0).await;
    assert_eq!(site.connection_ends("closed"), 1);
}
