//! A session over SPDY, plain or inside of a WebSocket: many connections, each with a stream for its
//! data and one for its error.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_process::clock::Moment;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::activity::Activity;
use super::connection::{Connection, Link, SessionOver, Streams};
pub(super) use super::outbox::Carrier;
use super::outbox::{self, Message, OUTBOX};
use super::window::Window;
use super::{Forwarder, GOODBYE_TIMEOUT, INBOX, READ};
use crate::frames::{self, Piece};
use crate::spdy::{
    CANCEL, Decoder, Frame, Headers, INITIAL_WINDOW, PROTOCOL_ERROR, REFUSED_STREAM,
};

/// Streams of one session at a time; a connection has two.
const MAX_STREAMS: usize = 512;
/// How long the second stream of a connection may come after the first.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest name of a connection. Clients number them.
const MAX_REQUEST_ID: usize = 64;

/// Why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server stops.
    Stopping,
    /// The pod does not run any more, or nobody has said anything for too long.
    Over,
}

/// Serves a session until the client leaves, the pod stops or the server does.
pub(super) async fn serve<Io>(io: Io, carrier: Carrier, forwarder: Forwarder)
where
    Io: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let activity = Activity::new(forwarder.clock());
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let (connect, connections) = mpsc::channel(1);
    let registry = Registry::default();
    let mut session = Session::new(&forwarder, &registry, outbox.clone(), connect);
    let read = session.read(&mut reader, carrier, &activity);
    let write = outbox::write(messages, &mut writer, carrier, &activity);
    let carry = carry(connections, &forwarder, &registry);
    let end = async {
        // Each only waits for something.
        let end = tokio::select! {
            () = forwarder.stop().cancelled() => End::Stopping,
            () = forwarder.stopped() => End::Over,
            () = activity.idle() => End::Over,
        };
        say_goodbye(&outbox, end, &forwarder).await;
    };
    // Each may be dropped: when one is over, there is nobody to speak to or nothing to say. The
    // writer ends after the goodbye.
    tokio::select! {
        biased;
        _ = write => {}
        () = read => {}
        () = carry => {}
        () = end => {}
    }
}

/// Tells the client that the session is over, and gives it a moment to take what was sent.
async fn say_goodbye(outbox: &mpsc::Sender<Message>, end: End, forwarder: &Forwarder) {
    let code = if end == End::Stopping { 1001 } else { 1000 };
    let goodbye = async {
        let _ = outbox.send(Message::Frame(Frame::GoAway { last: 0, status: 0 })).await;
        let _ = outbox.send(Message::Goodbye(code)).await;
        // The writer ends the session once it is out.
        std::future::pending::<()>().await;
    };
    // Those who do not read it in time are left without.
    let _ = forwarder.clock().timeout(GOODBYE_TIMEOUT, goodbye).await;
}

/// Carries all connections of a session, each as fast as its two ends.
async fn carry(
    mut connections: mpsc::Receiver<Connection>,
    forwarder: &Forwarder,
    registry: &Registry,
) {
    let mut running = FuturesUnordered::new();
    loop {
        // Each may be dropped: what is not received stays, and connections go on where they are.
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            next = connections.recv() => match next {
                Some(connection) => running.push(async move {
                    let ids = match &connection.link.streams {
                        Streams::Spdy { data, error, .. } => vec![*data, *error],
                        Streams::Channels { .. } => Vec::new(),
                    };
                    connection.run(forwarder).await;
                    registry.remove(&ids);
                }),
                None => return,
            },
        }
    }
}

/// The open streams of a session.
#[derive(Debug, Default)]
struct Registry(Mutex<BTreeMap<u32, Stream>>);

/// One open stream, as far as the client's frames concern it.
#[derive(Clone, Debug)]
struct Stream {
    reset: CancellationToken,
    window: Arc<Window>,
}

impl Registry {
    fn with<Output>(&self, work: impl FnOnce(&mut BTreeMap<u32, Stream>) -> Output) -> Output {
        // No code of others runs under the lock, so a poisoned one is still good.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remove(&self, streams: &[u32]) {
        self.with(|open| streams.iter().for_each(|it| drop(open.remove(it))));
    }
}

/// The first stream of a connection, while the second has not come.
#[derive(Debug)]
struct Pair {
    due: Moment,
    error: Option<u32>,
    data: Option<Data>,
}

#[derive(Debug)]
struct Data {
    stream: u32,
    port: u16,
    inbox: DuplexStream,
    reset: CancellationToken,
    window: Arc<Window>,
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Data,
    Error,
}

/// The client's frames, and what is known from them.
struct Session<'a> {
    forwarder: &'a Forwarder,
    registry: &'a Registry,
    outbox: mpsc::Sender<Message>,
    connect: mpsc::Sender<Connection>,
    pairs: BTreeMap<String, Pair>,
    /// Where the data of each stream goes that the client has not ended.
    inboxes: BTreeMap<u32, DuplexStream>,
    /// The last stream that the client began.
    last: u32,
    /// Whether the client begins no more streams.
    leaving: bool,
    /// What was taken from the client and not yet told.
    untold: usize,
    initial_window: i64,
    total: Arc<Window>,
    obeyed: Arc<AtomicBool>,
}

/// The client broke the protocol, or the session is over.
#[derive(Debug)]
struct Ended;

impl From<SessionOver> for Ended {
    fn from(_: SessionOver) -> Self {
        Self
    }
}

impl<'a> Session<'a> {
    fn new(
        forwarder: &'a Forwarder,
        registry: &'a Registry,
        outbox: mpsc::Sender<Message>,
        connect: mpsc::Sender<Connection>,
    ) -> Self {
        Self {
            forwarder,
            registry,
            outbox,
            connect,
            pairs: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            last: 0,
            leaving: false,
            untold: 0,
            initial_window: INITIAL_WINDOW.into(),
            total: Arc::new(Window::new(INITIAL_WINDOW.into())),
            obeyed: Arc::default(),
        }
    }

    /// Reads what the client sends until it leaves. While a pod does not take what it is sent, the
    /// session is not read: a client that counts windows never gets that far.
    async fn read<Reader: AsyncRead + Unpin>(
        &mut self,
        reader: &mut Reader,
        carrier: Carrier,
        activity: &Activity,
    ) {
        let (mut input, mut plain) = (BytesMut::new(), BytesMut::new());
        let (mut socket, mut decoder) = (frames::Decoder::default(), Decoder::default());
        loop {
            input.reserve(READ);
            let mut some = (&mut *reader).take(READ as u64);
            let due = self.pairs.values().map(|it| it.due).min();
            // Each may be dropped: a read that is not ready has taken nothing.
            let read = tokio::select! {
                read = some.read_buf(&mut input) => read,
                () = self.wait_until(due) => {
                    if self.expire().await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            match read {
                Ok(0) | Err(_) => return,
                Ok(_) => activity.note(),
            }
            let taken = match carrier {
                Carrier::Plain => self.take_all(&mut decoder, &mut input).await,
                Carrier::Tunnel => {
                    self.unwrap_all(&mut socket, &mut input, &mut decoder, &mut plain).await
                }
            };
            if taken.is_err() {
                return;
            }
        }
    }

    async fn wait_until(&self, due: Option<Moment>) {
        match due {
            Some(due) => self.forwarder.clock().sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Takes what is inside the messages of a WebSocket.
    async fn unwrap_all(
        &mut self,
        socket: &mut frames::Decoder,
        input: &mut BytesMut,
        decoder: &mut Decoder,
        plain: &mut BytesMut,
    ) -> Result<(), Ended> {
        while let Some(piece) = socket.next(input).map_err(|_| Ended)? {
            match piece {
                Piece::Data { bytes, .. } => {
                    plain.extend_from_slice(&bytes);
                    self.take_all(decoder, plain).await?;
                }
                Piece::Ping(bytes) => {
                    // Those who ask faster than they listen are not owed every answer.
                    let _ = self.outbox.try_send(Message::Pong(bytes));
                }
                Piece::Pong => {}
                Piece::Close => return Err(Ended),
            }
        }
        Ok(())
    }

    async fn take_all(&mut self, decoder: &mut Decoder, input: &mut BytesMut) -> Result<(), Ended> {
        while let Some(frame) = decoder.next(input).map_err(|_| Ended)? {
            self.take(frame).await?;
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Ended> {
        match frame {
            Frame::SynStream { stream, headers, fin } => self.begin(stream, &headers, fin).await,
            Frame::Data { stream, bytes, fin } => self.data(stream, bytes, fin).await,
            Frame::Reset { stream, .. } => {
                self.inboxes.remove(&stream);
                if let Some(stream) = self.registry.with(|open| open.remove(&stream)) {
                    stream.reset.cancel();
                }
                self.forget(stream);
                Ok(())
            }
            Frame::Ping(number) if number % 2 == 1 => self.put(Frame::Ping(number)).await,
            Frame::GoAway { .. } => {
                self.leaving = true;
                Ok(())
            }
            Frame::WindowUpdate { stream, delta } => {
                self.obeyed.store(true, Ordering::Relaxed);
                let window = match stream {
                    0 => Some(Arc::clone(&self.total)),
                    _ => self.registry.with(|open| Some(Arc::clone(&open.get(&stream)?.window))),
                };
                if let Some(window) = window {
                    window.grow(delta.into());
                }
                Ok(())
            }
            Frame::Settings { initial_window: Some(size) } => {
                self.obeyed.store(true, Ordering::Relaxed);
                let by = i64::from(size) - self.initial_window;
                self.initial_window = size.into();
                self.registry.with(|open| open.values().for_each(|it| it.window.grow(by)));
                Ok(())
            }
            // We begin no streams and ask no questions, so nobody answers us.
            Frame::SynReply { .. }
            | Frame::Headers { .. }
            | Frame::Settings { initial_window: None }
            | Frame::Ping(_) => Ok(()),
        }
    }

    /// Begins a stream, and the connection once both of its streams are there.
    async fn begin(&mut self, stream: u32, headers: &Headers, fin: bool) -> Result<(), Ended> {
        // Clients have the odd numbers, each larger than the one before.
        if stream.is_multiple_of(2) || stream <= self.last {
            return self.put(Frame::Reset { stream, status: PROTOCOL_ERROR }).await;
        }
        self.last = stream;
        if self.leaving || self.registry.with(|open| open.len()) >= MAX_STREAMS {
            return self.put(Frame::Reset { stream, status: REFUSED_STREAM }).await;
        }
        let Some((role, port)) = purpose(headers) else {
            return self.put(Frame::Reset { stream, status: CANCEL }).await;
        };
        let request = match (headers.text("requestid"), role) {
            // Old clients do not name connections, but begin the two streams one after the other.
            ("", Role::Error) => stream.to_string(),
            ("", Role::Data) => stream.saturating_sub(2).to_string(),
            (named, _) if named.len() <= MAX_REQUEST_ID => named.to_owned(),
            _ => return self.put(Frame::Reset { stream, status: CANCEL }).await,
        };
        let due = self.forwarder.clock().moment() + PAIR_TIMEOUT;
        let pair = self.pairs.entry(request.clone());
        let pair = pair.or_insert(Pair { due, error: None, data: None });
        let assigned = match role {
            Role::Data => pair.data.is_some(),
            Role::Error => pair.error.is_some(),
        };
        if assigned {
            return self.put(Frame::Reset { stream, status: CANCEL }).await;
        }
        let (sender, inbox) = tokio::io::duplex(INBOX);
        let (reset, window) =
            (CancellationToken::new(), Arc::new(Window::new(self.initial_window)));
        let open = Stream { reset: reset.clone(), window: Arc::clone(&window) };
        self.registry.with(|streams| {
            // Connections may have ended without a word of the client.
            self.inboxes.retain(|id, _| streams.contains_key(id));
            streams.insert(stream, open);
        });
        // Nobody listens to what a client says about errors.
        if role == Role::Data && !fin {
            self.inboxes.insert(stream, sender);
        }
        match role {
            Role::Data => pair.data = Some(Data { stream, port, inbox, reset, window }),
            Role::Error => pair.error = Some(stream),
        }
        self.put(Frame::SynReply { stream, headers: Headers::default(), fin: false }).await?;
        self.connect_pair(&request).await
    }

    /// Begins the connection of a pair that is complete.
    async fn connect_pair(&mut self, request: &str) -> Result<(), Ended> {
        let complete = |pair: &Pair| pair.error.is_some() && pair.data.is_some();
        if !self.pairs.get(request).is_some_and(complete) {
            return Ok(());
        }
        let Some(Pair { error: Some(error), data: Some(data), .. }) = self.pairs.remove(request)
        else {
            return Ok(());
        };
        let Data { stream, port, inbox, reset, window } = data;
        let (total, obeyed) = (Arc::clone(&self.total), Arc::clone(&self.obeyed));
        let streams = Streams::Spdy { data: stream, error, window, total, obeyed };
        let link = Link { outbox: self.outbox.clone(), streams };
        let connection = Connection { port, inbox, reset, link };
        self.connect.send(connection).await.map_err(|_| Ended)
    }

    /// Hands data to the connection, and waits while it has enough.
    async fn data(&mut self, stream: u32, bytes: Bytes, fin: bool) -> Result<(), Ended> {
        let length = bytes.len();
        // What nobody listens to is dropped: the connection may have ended meanwhile.
        if let Some(inbox) = self.inboxes.get_mut(&stream)
            && (inbox.write_all(&bytes).await.is_err() || fin)
        {
            self.inboxes.remove(&stream);
        }
        self.untold += length;
        let delta = u32::try_from(self.untold).unwrap_or(INITIAL_WINDOW);
        if delta < INITIAL_WINDOW / 2 {
            return Ok(());
        }
        self.untold = 0;
        self.put(Frame::WindowUpdate { stream: 0, delta }).await
    }

    /// Gives up pairs whose second stream does not come.
    async fn expire(&mut self) -> Result<(), Ended> {
        let now = self.forwarder.clock().moment();
        let late = self.pairs.iter().filter(|(_, pair)| pair.due <= now);
        let late: Vec<String> = late.map(|(request, _)| request.clone()).collect();
        for request in late {
            let Some(pair) = self.pairs.remove(&request) else { continue };
            if let Some(stream) = pair.error {
                self.registry.remove(&[stream]);
                let words = format!("(request={request}) timed out waiting for streams");
                self.put(Frame::Data { stream, bytes: words.into(), fin: true }).await?;
            }
            if let Some(Data { stream, .. }) = pair.data {
                self.registry.remove(&[stream]);
                self.put(Frame::Reset { stream, status: CANCEL }).await?;
            }
        }
        Ok(())
    }

    /// Forgets a stream that was reset before its connection began.
    fn forget(&mut self, stream: u32) {
        self.pairs.retain(|_, pair| {
            if pair.error == Some(stream) {
                pair.error = None;
            }
            if pair.data.as_ref().is_some_and(|it| it.stream == stream) {
                pair.data = None;
            }
            pair.error.is_some() || pair.data.is_some()
        });
    }

    async fn put(&self, frame: Frame) -> Result<(), Ended> {
        self.outbox.send(Message::Frame(frame)).await.map_err(|_| Ended)
    }
}

/// What a stream is for, and the port; none if its headers do not say it.
fn purpose(headers: &Headers) -> Option<(Role, u16)> {
    let port = headers.text("port");
    let port = port.parse().ok().filter(|it| *it > 0 && !port.starts_with('+'))?;
    match headers.text("streamtype") {
        "data" => Some((Role::Data, port)),
        "error" => Some((Role::Error, port)),
        _ => None,
    }
}
