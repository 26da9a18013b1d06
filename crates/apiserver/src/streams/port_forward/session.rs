//! A session over SPDY, plain or inside of a WebSocket: many connections, each with a data stream
//! and an error stream.

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
use super::connection::{ClientLink, Connection, SessionClosed, Streams};
pub(super) use super::outbox::Carrier;
use super::outbox::{self, MAX_QUEUED_MESSAGES, Message};
use super::window::Window;
use super::{CLOSE_TIMEOUT, Forwarder, READ_BUFFER_BYTES, STREAM_WINDOW_BYTES};
use crate::streams::spdy::{
    CANCEL, Decoder, Frame, Headers, INITIAL_WINDOW, PROTOCOL_ERROR, REFUSED_STREAM,
};
use crate::streams::websocket_frames::{self, WebSocketMessage};

/// Concurrent streams of one session; a connection has two.
const MAX_STREAMS: usize = 512;
/// How long the second stream of a connection may follow the first.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest ID of a connection. Clients number them.
const MAX_REQUEST_ID: usize = 64;

/// Why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The server stops.
    Stopping,
    /// The pod does not run any more, or there was no activity for too long.
    Over,
}

/// Runs a session until the client disconnects, the pod stops or the server stops.
pub(super) async fn serve<Io>(io: Io, carrier: Carrier, forwarder: Forwarder)
where
    Io: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let activity = Activity::new(forwarder.clock());
    let (outbox, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let (connect, connections) = mpsc::channel(1);
    let registry = OpenStreams::default();
    let mut session = Session::new(&forwarder, &registry, outbox.clone(), connect);
    let read = session.read(&mut reader, carrier, &activity);
    let write = outbox::write(messages, &mut writer, carrier, &activity);
    let carry = run_connections(connections, &forwarder, &registry);
    let end = async {
        // Cancel-safe: each only waits.
        let end = tokio::select! {
            () = forwarder.stop().cancelled() => SessionEnd::Stopping,
            () = forwarder.stopped() => SessionEnd::Over,
            () = activity.wait_until_idle() => SessionEnd::Over,
        };
        close_session(&outbox, end, &forwarder).await;
    };
    // Cancel-safe: when one is over, the session has ended. The writer ends after the last message.
    tokio::select! {
        biased;
        _ = write => {}
        () = read => {}
        () = carry => {}
        () = end => {}
    }
}

/// Sends the last message, and gives the client a moment to read it.
async fn close_session(outbox: &mpsc::Sender<Message>, end: SessionEnd, forwarder: &Forwarder) {
    let code = if end == SessionEnd::Stopping { 1001 } else { 1000 };
    let close = async {
        let _ = outbox.send(Message::Frame(Frame::GoAway { last: 0, status: 0 })).await;
        let _ = outbox.send(Message::Close(code)).await;
        // The writer ends the session once it is sent.
        std::future::pending::<()>().await;
    };
    // A client that does not read it in time does not get it.
    let _ = forwarder.clock().timeout(CLOSE_TIMEOUT, close).await;
}

/// Runs all connections of a session concurrently.
async fn run_connections(
    mut connections: mpsc::Receiver<Connection>,
    forwarder: &Forwarder,
    registry: &OpenStreams,
) {
    let mut running = FuturesUnordered::new();
    loop {
        // Cancel-safe: nothing is received before it is ready, and connections keep their state.
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
struct OpenStreams(Mutex<BTreeMap<u32, Stream>>);

/// An open stream, as far as the client's frames affect it.
#[derive(Clone, Debug)]
struct Stream {
    reset: CancellationToken,
    window: Arc<Window>,
}

impl OpenStreams {
    fn with<Output>(&self, work: impl FnOnce(&mut BTreeMap<u32, Stream>) -> Output) -> Output {
        // No foreign code runs under the lock, so a poisoned one is still valid.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remove(&self, streams: &[u32]) {
        self.with(|open| streams.iter().for_each(|it| drop(open.remove(it))));
    }
}

/// The first stream of a connection, until the second arrives.
#[derive(Debug)]
struct PendingPair {
    due: Moment,
    error: Option<u32>,
    data: Option<DataStream>,
}

#[derive(Debug)]
struct DataStream {
    stream: u32,
    port: u16,
    inbox: DuplexStream,
    reset: CancellationToken,
    window: Arc<Window>,
}

/// The type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Data,
    Error,
}

/// The state of a session that follows from the client's frames.
struct Session<'a> {
    forwarder: &'a Forwarder,
    open_streams: &'a OpenStreams,
    outbox: mpsc::Sender<Message>,
    connect: mpsc::Sender<Connection>,
    pairs: BTreeMap<String, PendingPair>,
    /// The receivers of data, for streams that the client has not ended.
    inboxes: BTreeMap<u32, DuplexStream>,
    /// The last stream that the client opened.
    last: u32,
    /// Whether the client opens no more streams.
    going_away: bool,
    /// Bytes that were consumed and not yet acknowledged by a window update.
    unacknowledged: usize,
    initial_window: i64,
    total: Arc<Window>,
    enforced: Arc<AtomicBool>,
}

/// The client broke the protocol, or the session is over.
#[derive(Debug)]
struct SessionEnded;

impl From<SessionClosed> for SessionEnded {
    fn from(_: SessionClosed) -> Self {
        Self
    }
}

impl<'a> Session<'a> {
    fn new(
        forwarder: &'a Forwarder,
        registry: &'a OpenStreams,
        outbox: mpsc::Sender<Message>,
        connect: mpsc::Sender<Connection>,
    ) -> Self {
        Self {
            forwarder,
            open_streams: registry,
            outbox,
            connect,
            pairs: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            last: 0,
            going_away: false,
            unacknowledged: 0,
            initial_window: INITIAL_WINDOW.into(),
            total: Arc::new(Window::new(INITIAL_WINDOW.into())),
            enforced: Arc::default(),
        }
    }

    /// Reads from the client until it disconnects. While a pod does not read its data, the session
    /// is not read: a client that obeys windows never gets that far.
    async fn read<Reader: AsyncRead + Unpin>(
        &mut self,
        reader: &mut Reader,
        carrier: Carrier,
        activity: &Activity,
    ) {
        let (mut input, mut plain) = (BytesMut::new(), BytesMut::new());
        let (mut socket, mut decoder) = (websocket_frames::Decoder::default(), Decoder::default());
        loop {
            input.reserve(READ_BUFFER_BYTES);
            let mut some = (&mut *reader).take(READ_BUFFER_BYTES as u64);
            let due = self.pairs.values().map(|it| it.due).min();
            // Cancel-safe: a read that is not ready has consumed nothing.
            let read = tokio::select! {
                read = some.read_buf(&mut input) => read,
                () = self.wait_until(due) => {
                    if self.expire_pairs().await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            match read {
                Ok(0) | Err(_) => return,
                Ok(_) => activity.record(),
            }
            let taken = match carrier {
                Carrier::Plain => self.handle_frames(&mut decoder, &mut input).await,
                Carrier::Tunnel => {
                    self.decode_messages(&mut socket, &mut input, &mut decoder, &mut plain).await
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

    /// Unpacks the messages of a WebSocket.
    async fn decode_messages(
        &mut self,
        socket: &mut websocket_frames::Decoder,
        input: &mut BytesMut,
        decoder: &mut Decoder,
        plain: &mut BytesMut,
    ) -> Result<(), SessionEnded> {
        while let Some(piece) = socket.next(input).map_err(|_| SessionEnded)? {
            match piece {
                WebSocketMessage::Data { bytes, .. } => {
                    plain.extend_from_slice(&bytes);
                    self.handle_frames(decoder, plain).await?;
                }
                WebSocketMessage::Ping(bytes) => {
                    // A client that pings faster than it reads does not get every pong.
                    let _ = self.outbox.try_send(Message::Pong(bytes));
                }
                WebSocketMessage::Pong => {}
                WebSocketMessage::Close => return Err(SessionEnded),
            }
        }
        Ok(())
    }

    async fn handle_frames(
        &mut self,
        decoder: &mut Decoder,
        input: &mut BytesMut,
    ) -> Result<(), SessionEnded> {
        while let Some(frame) = decoder.next(input).map_err(|_| SessionEnded)? {
            self.handle_frame(frame).await?;
        }
        Ok(())
    }

    async fn handle_frame(&mut self, frame: Frame) -> Result<(), SessionEnded> {
        match frame {
            Frame::SynStream { stream, headers, fin } => {
                self.open_stream(stream, &headers, fin).await
            }
            Frame::Data { stream, bytes, fin } => self.data(stream, bytes, fin).await,
            Frame::Reset { stream, .. } => {
                self.inboxes.remove(&stream);
                if let Some(stream) = self.open_streams.with(|open| open.remove(&stream)) {
                    stream.reset.cancel();
                }
                self.discard_stream(stream);
                Ok(())
            }
            Frame::Ping(number) if number % 2 == 1 => self.put(Frame::Ping(number)).await,
            Frame::GoAway { .. } => {
                self.going_away = true;
                Ok(())
            }
            Frame::WindowUpdate { stream, delta } => {
                self.enforced.store(true, Ordering::Relaxed);
                let window = match stream {
                    0 => Some(Arc::clone(&self.total)),
                    _ => {
                        self.open_streams.with(|open| Some(Arc::clone(&open.get(&stream)?.window)))
                    }
                };
                if let Some(window) = window {
                    window.grow(delta.into());
                }
                Ok(())
            }
            Frame::Settings { initial_window: Some(size) } => {
                self.enforced.store(true, Ordering::Relaxed);
                let by = i64::from(size) - self.initial_window;
                self.initial_window = size.into();
                self.open_streams.with(|open| open.values().for_each(|it| it.window.grow(by)));
                Ok(())
            }
            // The server opens no streams and sends no pings, so it expects no replies.
            Frame::SynReply { .. }
            | Frame::Headers { .. }
            | Frame::Settings { initial_window: None }
            | Frame::Ping(_) => Ok(()),
        }
    }

    /// Opens a stream, and the connection once both of its streams are open.
    async fn open_stream(
        &mut self,
        stream: u32,
        headers: &Headers,
        fin: bool,
    ) -> Result<(), SessionEnded> {
        // Clients use odd numbers, each larger than the one before.
        if stream.is_multiple_of(2) || stream <= self.last {
            return self.put(Frame::Reset { stream, status: PROTOCOL_ERROR }).await;
        }
        self.last = stream;
        if self.going_away || self.open_streams.with(|open| open.len()) >= MAX_STREAMS {
            return self.put(Frame::Reset { stream, status: REFUSED_STREAM }).await;
        }
        let Some((role, port)) = stream_role(headers) else {
            return self.put(Frame::Reset { stream, status: CANCEL }).await;
        };
        let request = match (headers.text("requestid"), role) {
            // Old clients do not name connections, but open the two streams one after the other.
            ("", Role::Error) => stream.to_string(),
            ("", Role::Data) => stream.saturating_sub(2).to_string(),
            (named, _) if named.len() <= MAX_REQUEST_ID => named.to_owned(),
            _ => return self.put(Frame::Reset { stream, status: CANCEL }).await,
        };
        let due = self.forwarder.clock().moment() + PAIR_TIMEOUT;
        let pair = self.pairs.entry(request.clone());
        let pair = pair.or_insert(PendingPair { due, error: None, data: None });
        let assigned = match role {
            Role::Data => pair.data.is_some(),
            Role::Error => pair.error.is_some(),
        };
        if assigned {
            return self.put(Frame::Reset { stream, status: CANCEL }).await;
        }
        let (sender, inbox) = tokio::io::duplex(STREAM_WINDOW_BYTES);
        let (reset, window) =
            (CancellationToken::new(), Arc::new(Window::new(self.initial_window)));
        let open = Stream { reset: reset.clone(), window: Arc::clone(&window) };
        self.open_streams.with(|streams| {
            // Connections may have ended without a frame of the client.
            self.inboxes.retain(|id, _| streams.contains_key(id));
            streams.insert(stream, open);
        });
        // Data that a client sends on an error stream is ignored.
        if role == Role::Data && !fin {
            self.inboxes.insert(stream, sender);
        }
        match role {
            Role::Data => pair.data = Some(DataStream { stream, port, inbox, reset, window }),
            Role::Error => pair.error = Some(stream),
        }
        self.put(Frame::SynReply { stream, headers: Headers::default(), fin: false }).await?;
        self.connect_pair(&request).await
    }

    /// Starts the connection of a complete pair.
    async fn connect_pair(&mut self, request: &str) -> Result<(), SessionEnded> {
        let complete = |pair: &PendingPair| pair.error.is_some() && pair.data.is_some();
        if !self.pairs.get(request).is_some_and(complete) {
            return Ok(());
        }
        let Some(PendingPair { error: Some(error), data: Some(data), .. }) =
            self.pairs.remove(request)
        else {
            return Ok(());
        };
        let DataStream { stream, port, inbox, reset, window } = data;
        let (total, obeyed) = (Arc::clone(&self.total), Arc::clone(&self.enforced));
        let streams = Streams::Spdy { data: stream, error, window, total, enforced: obeyed };
        let link = ClientLink { outbox: self.outbox.clone(), streams };
        let connection = Connection { port, inbox, reset, link };
        self.connect.send(connection).await.map_err(|_| SessionEnded)
    }

    /// Passes data to the connection, and waits while its buffer is full.
    async fn data(&mut self, stream: u32, bytes: Bytes, fin: bool) -> Result<(), SessionEnded> {
        let length = bytes.len();
        // Data without a receiver is dropped: the connection may have ended meanwhile.
        if let Some(inbox) = self.inboxes.get_mut(&stream)
            && (inbox.write_all(&bytes).await.is_err() || fin)
        {
            self.inboxes.remove(&stream);
        }
        self.unacknowledged += length;
        let delta = u32::try_from(self.unacknowledged).unwrap_or(INITIAL_WINDOW);
        if delta < INITIAL_WINDOW / 2 {
            return Ok(());
        }
        self.unacknowledged = 0;
        self.put(Frame::WindowUpdate { stream: 0, delta }).await
    }

    /// Resets pairs whose second stream does not arrive.
    async fn expire_pairs(&mut self) -> Result<(), SessionEnded> {
        let now = self.forwarder.clock().moment();
        let late = self.pairs.iter().filter(|(_, pair)| pair.due <= now);
        let late: Vec<String> = late.map(|(request, _)| request.clone()).collect();
        for request in late {
            let Some(pair) = self.pairs.remove(&request) else { continue };
            if let Some(stream) = pair.error {
                self.open_streams.remove(&[stream]);
                let words = format!("(request={request}) timed out waiting for streams");
                self.put(Frame::Data { stream, bytes: words.into(), fin: true }).await?;
            }
            if let Some(DataStream { stream, .. }) = pair.data {
                self.open_streams.remove(&[stream]);
                self.put(Frame::Reset { stream, status: CANCEL }).await?;
            }
        }
        Ok(())
    }

    /// Removes a stream that was reset before its connection began.
    fn discard_stream(&mut self, stream: u32) {
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

    async fn put(&self, frame: Frame) -> Result<(), SessionEnded> {
        self.outbox.send(Message::Frame(frame)).await.map_err(|_| SessionEnded)
    }
}

/// Returns the type of a stream and its port; `None` if its headers are invalid.
fn stream_role(headers: &Headers) -> Option<(Role, u16)> {
    let port = headers.text("port");
    let port = port.parse().ok().filter(|it| *it > 0 && !port.starts_with('+'))?;
    match headers.text("streamtype") {
        "data" => Some((Role::Data, port)),
        "error" => Some((Role::Error, port)),
        _ => None,
    }
}
