use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gantry_process::clock::FakeClock;
use jiff::Timestamp;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::super::activity::IDLE_TIMEOUT;
use super::*;
use crate::streams::kubelet_client::{Action, Duplex, LogOptions, LogStream};

/// A kubelet client with the behaviour of a test.
struct FakeKubelet<Run>(Run);

impl<Run> std::fmt::Debug for FakeKubelet<Run> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Node")
    }
}

impl<Run, Work> KubeletClient for FakeKubelet<Run>
where
    Run: Fn(SessionStreams) -> Work + Send + Sync,
    Work: Future<Output = Result<ExitCode, KubeletError>> + Send + 'static,
{
    fn logs(
        &self,
        _: PodTarget,
        _: LogOptions,
    ) -> BoxFuture<'_, Result<Box<dyn LogStream>, KubeletError>> {
        Box::pin(async { Err(KubeletError::NotFound("no logs here".to_owned())) })
    }

    fn run(
        &self,
        _: PodTarget,
        _: Session,
        ends: SessionStreams,
    ) -> BoxFuture<'_, Result<ExitCode, KubeletError>> {
        Box::pin((self.0)(ends))
    }

    fn dial(&self, _: PodTarget, _: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, KubeletError>> {
        Box::pin(async { Err(KubeletError::NotFound("no ports here".to_owned())) })
    }
}

const ALL: RequestedStreams = RequestedStreams { stdin: true, stdout: true, stderr: true };

/// The client's end of a session, with everything that drives it.
struct TestSession {
    client: DuplexStream,
    hand: FakeClock,
    stop: CancellationToken,
    held: JoinHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test is the owner of the task, and joins it")]
fn start_session<Run, Work>(wants: RequestedStreams, run: Run) -> TestSession
where
    Run: Fn(SessionStreams) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<ExitCode, KubeletError>> + Send + 'static,
{
    let (client, server) = tokio::io::duplex(1024);
    let (hand, stop) = (FakeClock::at(Timestamp::UNIX_EPOCH), CancellationToken::new());
    let name = || "x".to_owned();
    let target = PodTarget {
        namespace: name(),
        pod: name(),
        uid: name(),
        node: name(),
        container: name(),
        pod_object: Arc::default(),
        node_object: Arc::default(),
    };
    let call = ExecSession {
        nodes: Arc::new(FakeKubelet(run)),
        target,
        session: Session { action: Action::Exec(vec![name()]), tty: false },
        requested: wants,
        protocol: Protocol::V5,
        clock: hand.clock(),
        stop: stop.clone(),
    };
    let held = tokio::spawn(run_session(server, call));
    TestSession { client, hand, stop, held }
}

/// Encodes a frame of a client, with a mask of zeros.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

impl TestSession {
    async fn send(&mut self, first: u8, payload: &[u8]) {
        self.client.write_all(&client_frame(first, payload)).await.unwrap();
    }

    /// Reads the next frame: its opcode and its payload.
    async fn receive(&mut self) -> (u8, Vec<u8>) {
        let head = self.client.read_u16().await.unwrap().to_be_bytes();
        let length = match head[1] {
            126 => self.client.read_u16().await.unwrap().into(),
            127 => self.client.read_u64().await.unwrap(),
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.client.read_exact(&mut payload).await.unwrap();
        (head[0], payload)
    }

    /// Reads the frames that are sent when all streams are open.
    async fn begin(&mut self) {
        assert_eq!(self.receive().await, (0x82, vec![STDOUT]));
    }

    /// Disconnects, and waits until that is noticed.
    async fn close(self) {
        drop(self.client);
        self.held.await.unwrap();
    }
}

#[tokio::test]
async fn stdin_reaches_the_command_and_output_reaches_the_client() {
    let mut talk = start_session(ALL, |mut ends: SessionStreams| async move {
        let (mut stdin, stdout) = (ends.stdin.take().unwrap(), ends.stdout.unwrap());
        while let Some(bytes) = stdin.recv().await {
            stdout.send(bytes.to_ascii_uppercase().into()).await.unwrap();
        }
        let size = *ends.size.borrow();
        let words = format!("{size:?}");
        ends.stderr.unwrap().send(words.into()).await.unwrap();
        Ok(ExitCode(3))
    });
    talk.begin().await;
    talk.send(0x82, b"\0hello").await;
    assert_eq!(talk.receive().await, (0x82, b"\x01HELLO".to_vec()));
    talk.send(0x82, b"\x04{\"Width\":80,\"Height\":24}").await;
    talk.send(0x89, b"there?").await;
    assert_eq!(talk.receive().await, (0x8A, b"there?".to_vec()));
    talk.send(0x82, b"\xff\0").await;
    let size = b"\x02Some(TerminalSize { width: 80, height: 24 })".to_vec();
    assert_eq!(talk.receive().await, (0x82, size));
    let (opcode, status) = talk.receive().await;
    assert_eq!((opcode, status[0]), (0x82, STATUS));
    assert!(String::from_utf8_lossy(&status).contains("NonZeroExitCode"));
    assert_eq!(talk.receive().await, (0x88, vec![0x03, 0xe8]), "an end in order");
    // Late bytes are read: otherwise the client might lose the last frame.
    talk.send(0x82, b"\0more").await;
    talk.close().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_the_command() {
    let said = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&said);
    let mut talk = start_session(ALL, move |ends: SessionStreams| {
        let counter = Arc::clone(&counter);
        async move {
            let stdout = ends.stdout.unwrap();
            for _ in 0..1_000 {
                stdout.send(vec![b'x'; 512].into()).await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(ExitCode(0))
        }
    });
    talk.begin().await;
    talk.hand.advance(Duration::from_secs(60 * 60)).await;
    let waiting = said.load(Ordering::Relaxed);
    assert!(waiting <= MAX_QUEUED_CHUNKS + 4, "{waiting} pieces were said to nobody");
    let mut heard = 0;
    loop {
        match talk.receive().await {
            (0x82, bytes) if bytes[0] == STDOUT => heard += bytes.len() - 1,
            (0x82, status) => {
                assert_eq!(&status, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
                break;
            }
            (opcode, _) => assert_eq!(opcode, 0x8A, "a sign of life"),
        }
    }
    assert_eq!(heard, 512_000);
    talk.close().await;
}

#[tokio::test]
async fn a_command_that_does_not_read_blocks_stdin_but_not_pings() {
    let mut talk = start_session(ALL, |ends: SessionStreams| async move {
        // The input stays open, and is not read.
        let ends = ends;
        ends.disconnected.cancelled().await;
        drop(ends);
        Ok(ExitCode(0))
    });
    talk.begin().await;
    let piece = client_frame(0x82, &[b"\0", &[b'x'; 100][..]].concat());
    let mut taken = 0_usize;
    loop {
        let settled = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            written = talk.client.write(&piece) => taken += written.unwrap(),
            () = settled => break,
        }
        assert!(taken < 200 * 1024, "what nobody reads must not be taken without end");
    }
    talk.hand.advance(HEARTBEAT_INTERVAL).await;
    assert_eq!(talk.receive().await, (0x8A, Vec::new()));
    talk.hand.advance(HEARTBEAT_INTERVAL).await;
    assert_eq!(talk.receive().await, (0x8A, Vec::new()));
    talk.stop.cancel();
    talk.close().await;
}

/// Sets a flag when it is dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_command_ends_with_its_client() {
    let ended = Arc::new(AtomicBool::new(false));
    let gone = Arc::new(Mutex::new(None));
    let (flag, token) = (Arc::clone(&ended), Arc::clone(&gone));
    let mut talk = start_session(ALL, move |ends: SessionStreams| {
        let flag = DropFlag(Arc::clone(&flag));
        *token.lock().unwrap() = Some(ends.disconnected.clone());
        async move {
            let _flag = flag;
            std::future::pending::<()>().await;
            drop(ends);
            Ok(ExitCode(0))
        }
    });
    talk.begin().await;
    talk.close().await;
    assert!(ended.load(Ordering::Relaxed));
    assert!(gone.lock().unwrap().take().unwrap().is_cancelled());
}

#[tokio::test]
async fn every_session_end_has_its_close_code() {
    enum EndCause {
        Stop,
        Break,
        Leave,
    }
    let table = [(EndCause::Stop, 1001_u16), (EndCause::Break, 1002), (EndCause::Leave, 1000)];
    for (how, code) in table {
        let mut talk = start_session(ALL, |ends: SessionStreams| async move {
            ends.disconnected.cancelled().await;
            Ok(ExitCode(0))
        });
        talk.begin().await;
        match how {
            EndCause::Stop => talk.stop.cancel(),
            EndCause::Break => talk.client.write_all(&[0x82, 0x01, 0x00]).await.unwrap(),
            EndCause::Leave => talk.send(0x88, &1000_u16.to_be_bytes()).await,
        }
        assert_eq!(talk.receive().await, (0x88, code.to_be_bytes().to_vec()));
        talk.close().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_close_is_disconnected() {
    let mut talk = start_session(ALL, |_| async { Ok(ExitCode(0)) });
    talk.begin().await;
    let (_, status) = talk.receive().await;
    assert_eq!(status[0], STATUS);
    assert_eq!(talk.receive().await.0, 0x88);
    talk.hand.advance(CLOSE_TIMEOUT).await;
    talk.held.await.unwrap();
}

#[tokio::test]
async fn idle_sessions_are_closed() {
    let mut talk = start_session(ALL, |ends: SessionStreams| async move {
        ends.disconnected.cancelled().await;
        Ok(ExitCode(0))
    });
    talk.begin().await;
    for _ in 0..2 {
        talk.hand.jump_to(talk.hand.clock().moment() + (IDLE_TIMEOUT - Duration::from_secs(1)));
        talk.send(0x8A, b"").await;
        // The heartbeat that was due.
        assert_eq!(talk.receive().await.0, 0x8A);
        tokio::task::yield_now().await;
        assert!(!talk.held.is_finished());
    }
    talk.hand.advance(IDLE_TIMEOUT).await;
    talk.held.await.unwrap();
}

#[tokio::test]
async fn a_session_without_streams_runs_nothing() {
    let none = RequestedStreams { stdin: false, stdout: false, stderr: false };
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    let mut talk = start_session(none, move |_| {
        flag.store(true, Ordering::Relaxed);
        async { Ok(ExitCode(0)) }
    });
    assert_eq!(talk.receive().await, (0x82, vec![STATUS]));
    let (_, status) = talk.receive().await;
    let words =
        "unable to upgrade connection: you must specify at least 1 of stdin, stdout, stderr";
    assert!(String::from_utf8_lossy(&status).contains(words));
    talk.close().await;
    assert!(!ran.load(Ordering::Relaxed));
}
