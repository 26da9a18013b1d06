use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gantry_process::clock::Hand;
use jiff::Timestamp;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::super::activity::IDLE_TIMEOUT;
use super::*;
use crate::nodes::{Action, Chunks, Duplex, LogOptions};

/// A node that does what a test says.
struct Node<Run>(Run);

impl<Run> std::fmt::Debug for Node<Run> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Node")
    }
}

impl<Run, Work> Nodes for Node<Run>
where
    Run: Fn(Ends) -> Work + Send + Sync,
    Work: Future<Output = Result<Exit, Fault>> + Send + 'static,
{
    fn logs(&self, _: Target, _: LogOptions) -> Later<'_, Result<Box<dyn Chunks>, Fault>> {
        Box::pin(async { Err(Fault::Unknown("no logs here".to_owned())) })
    }

    fn run(&self, _: Target, _: Session, ends: Ends) -> Later<'_, Result<Exit, Fault>> {
        Box::pin((self.0)(ends))
    }

    fn dial(&self, _: Target, _: u16) -> Later<'_, Result<Box<dyn Duplex>, Fault>> {
        Box::pin(async { Err(Fault::Unknown("no ports here".to_owned())) })
    }
}

const ALL: Wants = Wants { stdin: true, stdout: true, stderr: true };

/// The client's end of a conversation, with all that moves it.
struct Talk {
    client: DuplexStream,
    hand: Hand,
    stop: CancellationToken,
    held: JoinHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test is the owner of the task, and joins it")]
fn talk<Run, Work>(wants: Wants, run: Run) -> Talk
where
    Run: Fn(Ends) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Exit, Fault>> + Send + 'static,
{
    let (client, server) = tokio::io::duplex(1024);
    let (hand, stop) = (Hand::at(Timestamp::UNIX_EPOCH), CancellationToken::new());
    let name = || "x".to_owned();
    let target = Target {
        namespace: name(),
        pod: name(),
        uid: name(),
        node: name(),
        container: name(),
        object: Arc::default(),
        host: Arc::default(),
    };
    let call = Call {
        nodes: Arc::new(Node(run)),
        target,
        session: Session { action: Action::Exec(vec![name()]), tty: false },
        wants,
        protocol: Protocol::V5,
        clock: hand.clock(),
        stop: stop.clone(),
    };
    let held = tokio::spawn(hold(server, call));
    Talk { client, hand, stop, held }
}

/// A frame of a client, hidden by a mask of zeros.
fn say(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

impl Talk {
    async fn say(&mut self, first: u8, payload: &[u8]) {
        self.client.write_all(&say(first, payload)).await.unwrap();
    }

    /// The next frame: its opcode and what is in it.
    async fn hear(&mut self) -> (u8, Vec<u8>) {
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

    /// Hears what is said when everything has begun.
    async fn begin(&mut self) {
        assert_eq!(self.hear().await, (0x82, vec![STDOUT]));
    }

    /// Leaves, and waits until that is noticed.
    async fn leave(self) {
        drop(self.client);
        self.held.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_typed_is_heard_and_what_is_said_is_told() {
    let mut talk = talk(ALL, |mut ends: Ends| async move {
        let (mut stdin, stdout) = (ends.stdin.take().unwrap(), ends.stdout.unwrap());
        while let Some(bytes) = stdin.recv().await {
            stdout.send(bytes.to_ascii_uppercase().into()).await.unwrap();
        }
        let size = *ends.size.borrow();
        let words = format!("{size:?}");
        ends.stderr.unwrap().send(words.into()).await.unwrap();
        Ok(Exit(3))
    });
    talk.begin().await;
    talk.say(0x82, b"\0hello").await;
    assert_eq!(talk.hear().await, (0x82, b"\x01HELLO".to_vec()));
    talk.say(0x82, b"\x04{\"Width\":80,\"Height\":24}").await;
    talk.say(0x89, b"there?").await;
    assert_eq!(talk.hear().await, (0x8A, b"there?".to_vec()));
    talk.say(0x82, b"\xff\0").await;
    let size = b"\x02Some(Size { width: 80, height: 24 })".to_vec();
    assert_eq!(talk.hear().await, (0x82, size));
    let (opcode, status) = talk.hear().await;
    assert_eq!((opcode, status[0]), (0x82, STATUS));
    assert!(String::from_utf8_lossy(&status).contains("NonZeroExitCode"));
    assert_eq!(talk.hear().await, (0x88, vec![0x03, 0xe8]), "an end in order");
    // Bytes that come late are read: otherwise the client might lose our last words.
    talk.say(0x82, b"\0more").await;
    talk.leave().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_the_command() {
    let said = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&said);
    let mut talk = talk(ALL, move |ends: Ends| {
        let counter = Arc::clone(&counter);
        async move {
            let stdout = ends.stdout.unwrap();
            for _ in 0..1_000 {
                stdout.send(vec![b'x'; 512].into()).await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Exit(0))
        }
    });
    talk.begin().await;
    talk.hand.advance(Duration::from_secs(60 * 60)).await;
    let waiting = said.load(Ordering::Relaxed);
    assert!(waiting <= WAITING + 4, "{waiting} pieces were said to nobody");
    let mut heard = 0;
    loop {
        match talk.hear().await {
            (0x82, bytes) if bytes[0] == STDOUT => heard += bytes.len() - 1,
            (0x82, status) => {
                assert_eq!(&status, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
                break;
            }
            (opcode, _) => assert_eq!(opcode, 0x8A, "a sign of life"),
        }
    }
    assert_eq!(heard, 512_000);
    talk.leave().await;
}

#[tokio::test]
async fn a_command_that_does_not_read_holds_up_the_client_but_not_its_questions() {
    let mut talk = talk(ALL, |ends: Ends| async move {
        // The input stays open, and nobody reads it.
        let ends = ends;
        ends.gone.cancelled().await;
        drop(ends);
        Ok(Exit(0))
    });
    talk.begin().await;
    let piece = say(0x82, &[b"\0", &[b'x'; 100][..]].concat());
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
    talk.hand.advance(HEARTBEAT).await;
    assert_eq!(talk.hear().await, (0x8A, Vec::new()));
    talk.hand.advance(HEARTBEAT).await;
    assert_eq!(talk.hear().await, (0x8A, Vec::new()));
    talk.stop.cancel();
    talk.leave().await;
}

/// Sets a flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_command_ends_with_its_client() {
    let ended = Arc::new(AtomicBool::new(false));
    let gone = Arc::new(Mutex::new(None));
    let (flag, token) = (Arc::clone(&ended), Arc::clone(&gone));
    let mut talk = talk(ALL, move |ends: Ends| {
        let flag = Flag(Arc::clone(&flag));
        *token.lock().unwrap() = Some(ends.gone.clone());
        async move {
            let _flag = flag;
            std::future::pending::<()>().await;
            drop(ends);
            Ok(Exit(0))
        }
    });
    talk.begin().await;
    talk.leave().await;
    assert!(ended.load(Ordering::Relaxed));
    assert!(gone.lock().unwrap().take().unwrap().is_cancelled());
}

#[tokio::test]
async fn every_end_has_its_code() {
    enum How {
        Stop,
        Break,
        Leave,
    }
    let table = [(How::Stop, 1001_u16), (How::Break, 1002), (How::Leave, 1000)];
    for (how, code) in table {
        let mut talk = talk(ALL, |ends: Ends| async move {
            ends.gone.cancelled().await;
            Ok(Exit(0))
        });
        talk.begin().await;
        match how {
            How::Stop => talk.stop.cancel(),
            How::Break => talk.client.write_all(&[0x82, 0x01, 0x00]).await.unwrap(),
            How::Leave => talk.say(0x88, &1000_u16.to_be_bytes()).await,
        }
        assert_eq!(talk.hear().await, (0x88, code.to_be_bytes().to_vec()));
        talk.leave().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_take_its_leave_is_not_waited_for() {
    let mut talk = talk(ALL, |_| async { Ok(Exit(0)) });
    talk.begin().await;
    let (_, status) = talk.hear().await;
    assert_eq!(status[0], STATUS);
    assert_eq!(talk.hear().await.0, 0x88);
    talk.hand.advance(LINGER).await;
    talk.held.await.unwrap();
}

#[tokio::test]
async fn a_conversation_without_words_is_ended() {
    let mut talk = talk(ALL, |ends: Ends| async move {
        ends.gone.cancelled().await;
        Ok(Exit(0))
    });
    talk.begin().await;
    for _ in 0..2 {
        talk.hand.jump_to(talk.hand.clock().moment() + (IDLE_TIMEOUT - Duration::from_secs(1)));
        talk.say(0x8A, b"").await;
        // The sign of life that was due.
        assert_eq!(talk.hear().await.0, 0x8A);
        tokio::task::yield_now().await;
        assert!(!talk.held.is_finished());
    }
    talk.hand.advance(IDLE_TIMEOUT).await;
    talk.held.await.unwrap();
}

#[tokio::test]
async fn nothing_is_run_for_who_wants_nothing() {
    let none = Wants { stdin: false, stdout: false, stderr: false };
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    let mut talk = talk(none, move |_| {
        flag.store(true, Ordering::Relaxed);
        async { Ok(Exit(0)) }
    });
    assert_eq!(talk.hear().await, (0x82, vec![STATUS]));
    let (_, status) = talk.hear().await;
    let words =
        "unable to upgrade connection: you must specify at least 1 of stdin, stdout, stderr";
    assert!(String::from_utf8_lossy(&status).contains(words));
    talk.leave().await;
    assert!(!ran.load(Ordering::Relaxed));
}
