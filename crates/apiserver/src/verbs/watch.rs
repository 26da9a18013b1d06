//! Watches: initial objects, then every change, until the client ends the watch.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Clock, Moment as Deadline};
use gantry_store::{EventKind, Revision, Watch, WatchError};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Entry, ResourceRequest};
use crate::request::body::rope::{Rope, SendBuffer};
use crate::request::body::{Body, unfold};
use crate::request::negotiate::{Encoding, Shape};
use crate::resource::Resource;
use crate::resource::stored::{EncodedEvent, EntryCache, with_revision};
use crate::response::pagination::{ContinueFrom, ListOptions, RevisionMatch};
use crate::response::render::WatchFormat;
use crate::response::status::StatusError;
use crate::verbs::read::selects;
use crate::{response, streams::websocket};

type Event = gantry_store::Event<EntryCache, EncodedEvent>;

/// How often a watcher that allows bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// How long before its end a watch gets its last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Objects or events that are encoded at once.
const MAX_BATCH_EVENTS: usize = 256;
/// Bytes that are encoded at once, after which nothing is added. A client that does not read holds
/// no more than this and one object, and shares most of that with others.
const MAX_BATCH_BYTES: usize = 64 * 1024;
/// Objects that are examined for one batch, selected or not.
const MAX_SCANNED_OBJECTS: usize = 4_096;
/// Events up to this size are encoded once for all watchers; the copy costs little. Larger ones are
/// sent in parts that share the memory of the object.
const MAX_SHARED_EVENT_BYTES: usize = 16 * 1024;

impl Api {
    /// Watches a collection, or one object.
    pub(crate) async fn watch(
        &self,
        mut ask: ResourceRequest,
    ) -> Result<Response<Body>, StatusError> {
        if ask.format.encoding == Encoding::Yaml {
            // A stream of documents is not written as YAML.
            let words =
                "only the following media types are accepted: application/json;stream=watch";
            return Err(StatusError::not_acceptable(words));
        }
        let mut options = ListOptions::read(&ask.query, true)?;
        ask.resource.check_fields(&options.fields)?;
        if !ask.target.name.is_empty() {
            options.fields.0.push(crate::request::selector::Term {
                field: "metadata.name".to_owned(),
                value: std::mem::take(&mut ask.target.name),
                equal: true,
            });
        }
        let follower = self.start_watch(&ask, options).await?;
        let content_type = ask.style.content_type();
        if websocket::is_websocket_upgrade(&ask.headers) {
            return websocket::respond(&ask, follower);
        }
        let body = unfold(follower, |mut follower| async move {
            let bytes = follower.next().await?;
            Some((bytes, follower))
        });
        Ok(response::with_body(StatusCode::OK, content_type, body))
    }

    async fn start_watch(
        &self,
        ask: &ResourceRequest,
        options: ListOptions,
    ) -> Result<Watcher, StatusError> {
        let seconds = options.timeout_seconds.unwrap_or_else(|| fastrand::u64(1800..3600));
        let start = self.0.clock.moment();
        let end = start + Duration::from_secs(seconds.max(1));
        let frame = WatchFormat::of(ask, self.0.clock.clone())?;
        let mut follower = Watcher {
            view: WatchView {
                resource: Arc::clone(&ask.resource),
                scope: scope(ask),
                frame,
                options: options.clone(),
                columns_sent: false,
            },
            frames: SendBuffer::default(),
            ready_lines: VecDeque::new(),
            pending_events: Vec::new(),
            initial: None,
            source: EventSource::Ended,
            api: self.clone(),
            clock: self.0.clock.clone(),
            stop: self.0.stop.clone(),
            unserved: ask.resource.custom().map(|it| it.unserved.clone()).unwrap_or_default(),
            next_bookmark: first_bookmark(start, end),
            last_revision: 0,
            end,
        };
        let initial = match (options.initial_events, options.revision_match) {
            (Some(asked), _) => asked,
            (None, RevisionMatch::Latest | RevisionMatch::Any) => true,
            (None, RevisionMatch::NotOlderThan(_) | RevisionMatch::Exact(_)) => false,
        };
        if !initial {
            let after = match options.revision_match {
                RevisionMatch::NotOlderThan(revision) | RevisionMatch::Exact(revision) => revision,
                RevisionMatch::Latest | RevisionMatch::Any => self.0.store.revision().get(),
            };
            follower.begin_after(self, after);
            return Ok(follower);
        }
        let wait = ListOptions { limit: 0, continue_from: None::<ContinueFrom>, ..options };
        let revision = self.list_snapshot(&ask.resource, &wait).await?.revision().get();
        follower.begin_after(self, revision);
        follower.initial = Some(InitialEvents { revision, after: None });
        // Objects that cannot be converted are refused before the response begins.
        follower.read_initial().await?;
        Ok(follower)
    }
}

/// Returns the prefix of all keys of a watch.
fn scope(ask: &ResourceRequest) -> String {
    match ask.target.namespace.as_str() {
        namespace if ask.resource.namespaced && !namespace.is_empty() => format!("{namespace}/"),
        _ => String::new(),
    }
}

fn first_bookmark(start: Deadline, end: Deadline) -> Deadline {
    let before_end = start + (end - start).saturating_sub(BOOKMARK_BEFORE_END);
    before_end.min(start + BOOKMARK_INTERVAL)
}

/// How far the initial objects of a watch have been sent.
///
/// It is a position and nothing more. Holding the snapshot itself would keep all its objects in
/// memory for as long as a client does not read; instead the snapshot is looked up again for each
/// batch, and a client that is so late that the store no longer has it gets an error, as with
/// events.
struct InitialEvents {
    revision: u64,
    /// The key after which it continues.
    after: Option<Bytes>,
}

/// Where events come from.
enum EventSource {
    /// The store.
    Store(Watch<EntryCache, EncodedEvent>),
    /// It cannot continue, because its start is too old or an object was not converted: the client
    /// gets this error and nothing more.
    Broken(StatusError),
    /// The end.
    Ended,
}

/// A watch in progress.
pub(crate) struct Watcher {
    view: WatchView,
    /// The initial objects.
    frames: SendBuffer,
    /// Lines to be sent next.
    ready_lines: VecDeque<Rope>,
    /// Events of the store that are not encoded yet. They are kept here while a webhook converts
    /// them, because the future that waits for the conversion may be dropped.
    pending_events: Vec<Arc<Event>>,
    initial: Option<InitialEvents>,
    source: EventSource,
    api: Api,
    clock: Clock,
    stop: CancellationToken,
    /// Cancelled when the kind is no longer served as it was when the watch began.
    unserved: CancellationToken,
    next_bookmark: Deadline,
    /// The newest revision the client has.
    last_revision: u64,
    end: Deadline,
}

impl Watcher {
    fn begin_after(&mut self, api: &Api, revision: u64) {
        let space = &self.view.resource.space;
        self.last_revision = revision;
        // A custom kind has no objects before its definition.
        let since = self.view.resource.custom().map_or(0, |custom| custom.created_revision);
        if revision < since {
            self.source = EventSource::Broken(too_old_error(revision, since));
            return;
        }
        self.source = match api.0.store.watch(space, Revision::new(revision)) {
            Ok(watch) => EventSource::Store(watch),
            Err(old) => EventSource::Broken(too_old_error(revision, old.oldest.get())),
        };
    }

    /// Returns the next bytes for the client; `None` when the watch is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.next() {
                return Some(frame);
            }
            let event = self.next_event().await?;
            self.frames.push_rope(event);
            self.ready_lines.drain(..).for_each(|event| self.frames.push_rope(event));
        }
    }

    /// Whether another event is available without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready_lines.is_empty()
    }

    /// Returns the next event for the client; `None` when the watch is over. Cancel-safe: the
    /// future may be dropped at any time without losing anything.
    pub(crate) async fn next_event(&mut self) -> Option<Rope> {
        loop {
            if let Some(event) = self.ready_lines.pop_front() {
                return Some(event);
            }
            if self.initial.is_some() {
                let stop = self.stop.clone();
                // Dropped when the server stops: the client gets nothing more anyway.
                let read = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    read = self.read_initial() => read,
                };
                if let Err(refusal) = read {
                    self.initial = None;
                    self.source = EventSource::Broken(refusal);
                }
                continue;
            }
            if !self.pending_events.is_empty() {
                let stop = self.stop.clone();
                let read = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    read = self.read_events() => read,
                };
                if let Err(refusal) = read {
                    self.pending_events.clear();
                    self.source = EventSource::Broken(refusal);
                }
                continue;
            }
            let deadline = self.next_bookmark.min(self.end);
            let watch = match &mut self.source {
                EventSource::Store(watch) => watch,
                EventSource::Broken(refusal) => {
                    self.ready_lines.push_back(error_line(refusal));
                    self.source = EventSource::Ended;
                    continue;
                }
                EventSource::Ended => return None,
            };
            // Cancel-safe: waiting takes nothing from the window. The last branch has the lowest
            // priority: the deletion of the objects of a kind is sent before its watch ends.
            let batch = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                () = self.clock.sleep_until(deadline) => None,
                batch = watch.next_with_byte_limit(MAX_BATCH_EVENTS, MAX_BATCH_BYTES) => {
                    Some(batch)
                }
                () = self.unserved.cancelled() => return None,
            };
            match batch {
                Some(Ok(events)) => self.pending_events = events,
                Some(Err(WatchError::Lagged { oldest })) => {
                    let refusal = too_old_error(self.last_revision, oldest.get());
                    self.source = EventSource::Broken(refusal);
                }
                Some(Err(WatchError::Closed)) => return None,
                None if self.clock.moment() >= self.end => return None,
                None => self.push_bookmark(),
            }
        }
    }

    /// Encodes events of the store.
    async fn read_events(&mut self) -> Result<(), StatusError> {
        let WatchView { resource, scope, options, .. } = &self.view;
        let (scope, selects) = (scope.as_bytes(), options.selects());
        let events = self.pending_events.clone();
        let events = self.api.converted_events(resource, scope, selects, events).await?;
        self.pending_events.clear();
        for event in events {
            self.last_revision = event.revision.get();
            self.ready_lines.extend(self.view.line(&event));
        }
        Ok(())
    }

    /// Encodes some of the initial objects, and at their end the bookmark that says so.
    async fn read_initial(&mut self) -> Result<(), StatusError> {
        let Some(InitialEvents { revision, after }) = &self.initial else { return Ok(()) };
        let (revision, WatchView { resource, scope, .. }) = (*revision, &self.view);
        let scope = scope.as_bytes();
        let snapshot = self.api.0.store.snapshot_at(&resource.space, Revision::new(revision));
        let snapshot = snapshot.map_err(|old| too_old_error(revision, old.oldest.get()))?;
        let start = after.as_ref().map_or(Bound::Included(scope), |key| Bound::Excluded(&key[..]));
        let in_scope = snapshot.range(start).take_while(|entry| entry.key.starts_with(scope));
        // Objects that a webhook converts are selected after their conversion.
        let converts = resource.converter().is_some();
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut ended = true;
        for (count, entry) in in_scope.enumerate() {
            if count == MAX_SCANNED_OBJECTS
                || entries.len() == MAX_BATCH_EVENTS
                || bytes >= MAX_BATCH_BYTES
            {
                ended = false;
                break;
            }
            last = Some(entry.key.clone());
            if converts || self.view.selects(entry) {
                bytes += entry.value.len();
                entries.push(Arc::clone(entry));
            }
        }
        drop(snapshot);
        let converted = self.api.converted_entries(resource, entries).await?;
        // No await from here on: the objects are queued and the position moves, or neither.
        for entry in converted {
            if !converts || self.view.selects(&entry) {
                self.ready_lines.push_back(self.view.encode_entry("ADDED", &entry));
            }
        }
        if !ended {
            self.initial = Some(InitialEvents { revision, after: last });
            return Ok(());
        }
        self.initial = None;
        if self.view.options.bookmarks {
            self.ready_lines.push_back(self.view.bookmark(revision, true));
        }
        Ok(())
    }

    fn push_bookmark(&mut self) {
        let now = self.clock.moment();
        let before_end = now + (self.end - now).saturating_sub(BOOKMARK_BEFORE_END);
        self.next_bookmark =
            if before_end > now { before_end.min(now + BOOKMARK_INTERVAL) } else { self.end };
        let EventSource::Store(watch) = &mut self.source else { return };
        let revision = watch.progress_revision().get().max(self.last_revision);
        if self.view.options.bookmarks {
            self.ready_lines.push_back(self.view.bookmark(revision, false));
        }
    }
}

fn too_old_error(asked: u64, oldest: u64) -> StatusError {
    let message = format!("too old resource version: {asked} ({oldest})");
    StatusError::expired(message, None)
}

fn error_line(refusal: &StatusError) -> Rope {
    line("ERROR", Bytes::from(refusal.document().to_string()).into())
}

/// Makes one line of a watch.
fn line(kind: &str, object: Rope) -> Rope {
    let opening = match kind {
        "ADDED" => Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":"),
        "MODIFIED" => Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":"),
        "DELETED" => Bytes::from_static(b"{\"type\":\"DELETED\",\"object\":"),
        other => Bytes::from(format!("{{\"type\":\"{other}\",\"object\":")),
    };
    object.between(opening, Bytes::from_static(b"}\n"))
}

/// The view of one client on events.
struct WatchView {
    resource: Arc<Resource>,
    scope: String,
    frame: WatchFormat,
    options: ListOptions,
    columns_sent: bool,
}

impl WatchView {
    /// Returns the event for the client, if it gets any.
    fn line(&mut self, event: &Event) -> Option<Rope> {
        if !event.entry.key.starts_with(self.scope.as_bytes()) {
            return None;
        }
        let kind = match (event.kind, &event.previous) {
            (EventKind::Delete, _) => "DELETED",
            (EventKind::Put, None) => "ADDED",
            (EventKind::Put, Some(_)) => "MODIFIED",
        };
        if !self.options.selects() {
            return Some(self.encode_event(kind, event));
        }
        let is = event.kind == EventKind::Put && self.selects(&event.entry);
        let was = event.previous.as_ref().filter(|previous| self.selects(previous));
        match (was, is) {
            (Some(_), true) => Some(self.encode_event(kind, event)),
            (Some(_), false) if event.kind == EventKind::Delete => {
                Some(self.encode_event(kind, event))
            }
            (None, true) if event.previous.is_none() => Some(self.encode_event(kind, event)),
            (None, true) => Some(self.encode_entry("ADDED", &event.entry)),
            // It no longer matches: the client gets the last matching state, at the new revision.
            (Some(previous), false) => {
                let bytes = self.resource.present(previous);
                let parts = with_revision(&bytes, event.revision.get());
                if self.frame.shape() == Shape::Object {
                    return Some(line("DELETED", Rope::of(parts)));
                }
                let framed = self.wrap(Bytes::from(parts.concat()));
                Some(line("DELETED", framed))
            }
            (None, false) => None,
        }
    }

    /// Encodes an event. Watchers that get objects as they are stored share the bytes.
    fn encode_event(&mut self, kind: &str, event: &Event) -> Rope {
        let value = &event.entry.value;
        if self.frame.is_stored_bytes(&self.resource) && value.len() <= MAX_SHARED_EVENT_BYTES {
            let whole = || line(kind, value.clone().into()).parts().concat();
            return event.extra.get(|| Bytes::from(whole())).into();
        }
        self.encode_entry(kind, &event.entry)
    }

    fn selects(&self, entry: &Entry) -> bool {
        selects(&self.resource, &self.options, entry)
    }

    fn encode_entry(&mut self, kind: &str, entry: &Entry) -> Rope {
        let bytes = self.resource.present(entry);
        line(kind, self.wrap(bytes))
    }

    /// Renders the object in the requested representation.
    fn wrap(&mut self, bytes: Bytes) -> Rope {
        let first = !std::mem::replace(&mut self.columns_sent, true);
        self.frame.wrap(&self.resource, bytes, first)
    }

    fn bookmark(&mut self, revision: u64, end_of_initial: bool) -> Rope {
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if end_of_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.frame.shape() {
            Shape::Metadata(version) | Shape::MetadataList(version) => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
            }),
            Shape::Object => self.resource.bookmark_object(metadata),
            Shape::Table(_) => {
                let object = self.resource.bookmark_object(metadata);
                let bytes = Bytes::from(object.to_string());
                return line("BOOKMARK", self.wrap(bytes));
            }
        };
        line("BOOKMARK", Bytes::from(Value::to_string(&object)).into())
    }
}
