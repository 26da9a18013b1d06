//! Watches: what is there, then every change, until the client has enough.

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

use crate::api::{Api, Ask, Entry};
use crate::body::rope::{Frames, Rope};
use crate::body::{Body, unfold};
use crate::negotiate::{Encoding, Shape};
use crate::paging::{ListOptions, Moment, Resume};
use crate::read::selects;
use crate::render::Frame;
use crate::resource::Resource;
use crate::status::Refusal;
use crate::stored::{Known, Line, restamp};
use crate::{answer, websocket};

type Event = gantry_store::Event<Known, Line>;

/// How often a watcher that asked for it is told how far it is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch is told how far it is, for the last time.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Objects or events that are made ready at once.
const BATCH: usize = 256;
/// Bytes of what is made ready at once, after which nothing is added. A client that does not read
/// holds no more than this and one object, and most of that it shares with others.
const BATCH_BYTES: usize = 64 * 1024;
/// Objects that are looked at for one batch, selected or not.
const SCAN: usize = 4_096;
/// Events up to this size are written once for all watchers; the copy costs little. Larger ones are
/// sent in parts that share the memory of the object.
const COPIED_BYTES: usize = 16 * 1024;

impl Api {
    /// Follows a collection, or one object.
    pub(crate) async fn watch(&self, mut ask: Ask) -> Result<Response<Body>, Refusal> {
        if ask.format.encoding == Encoding::Yaml {
            // Documents that follow each other without an end are not written as YAML.
            let words =
                "only the following media types are accepted: application/json;stream=watch";
            return Err(Refusal::not_acceptable(words));
        }
        let mut options = ListOptions::read(&ask.query, true)?;
        ask.resource.check_fields(&options.fields)?;
        if !ask.target.name.is_empty() {
            options.fields.0.push(crate::selector::Term {
                field: "metadata.name".to_owned(),
                value: std::mem::take(&mut ask.target.name),
                equal: true,
            });
        }
        let follower = self.follow(&ask, options).await?;
        let content_type = ask.style.content_type();
        if websocket::is_asked(&ask.headers) {
            return websocket::answer(&ask, follower);
        }
        let body = unfold(follower, |mut follower| async move {
            let bytes = follower.next().await?;
            Some((bytes, follower))
        });
        Ok(answer::with_body(StatusCode::OK, content_type, body))
    }

    async fn follow(&self, ask: &Ask, options: ListOptions) -> Result<Follower, Refusal> {
        let seconds = options.timeout_seconds.unwrap_or_else(|| fastrand::u64(1800..3600));
        let start = self.0.clock.moment();
        let end = start + Duration::from_secs(seconds.max(1));
        let frame = Frame::of(ask, self.0.clock.clone())?;
        let mut follower = Follower {
            view: View {
                resource: Arc::clone(&ask.resource),
                scope: scope(ask),
                frame,
                options: options.clone(),
                columns_sent: false,
            },
            frames: Frames::default(),
            ready: VecDeque::new(),
            unseen: Vec::new(),
            initial: None,
            source: Source::Ended,
            api: self.clone(),
            clock: self.0.clock.clone(),
            stop: self.0.stop.clone(),
            ended: ask.resource.custom().map(|it| it.ended.clone()).unwrap_or_default(),
            next_bookmark: first_bookmark(start, end),
            last_revision: 0,
            end,
        };
        let initial = match (options.initial_events, options.moment) {
            (Some(asked), _) => asked,
            (None, Moment::Latest | Moment::Any) => true,
            (None, Moment::NotBefore(_) | Moment::At(_)) => false,
        };
        if !initial {
            let after = match options.moment {
                Moment::NotBefore(revision) | Moment::At(revision) => revision,
                Moment::Latest | Moment::Any => self.0.store.revision().get(),
            };
            follower.begin_after(self, after);
            return Ok(follower);
        }
        let wait = ListOptions { limit: 0, resume: None::<Resume>, ..options };
        let revision = self.moment(&ask.resource, &wait).await?.revision().get();
        follower.begin_after(self, revision);
        follower.initial = Some(Initial { revision, after: None });
        // What cannot be read at all is refused before anything is answered.
        follower.read_initial().await?;
        Ok(follower)
    }
}

/// The keys a watch is about all begin with this.
fn scope(ask: &Ask) -> String {
    match ask.target.namespace.as_str() {
        namespace if ask.resource.namespaced && !namespace.is_empty() => format!("{namespace}/"),
        _ => String::new(),
    }
}

fn first_bookmark(start: Deadline, end: Deadline) -> Deadline {
    let before_end = start + (end - start).saturating_sub(BOOKMARK_BEFORE_END);
    before_end.min(start + BOOKMARK_EVERY)
}

/// How far a client has been sent what is there when its watch begins.
///
/// It is a place and nothing more. Whoever held the state itself would keep all its objects in memory
/// for as long as a client does not read; instead the state is looked up again for each batch, and a
/// client that is so late that the store no longer has it is told so, as with events.
struct Initial {
    revision: u64,
    /// The key after which it goes on.
    after: Option<Bytes>,
}

/// Where events come from.
enum Source {
    /// The store.
    Store(Watch<Known, Line>),
    /// It cannot go on, because its beginning is too old or an object was not converted: the
    /// client is told so and that is all.
    Broken(Refusal),
    /// Nothing more comes.
    Ended,
}

/// A watch in progress.
pub(crate) struct Follower {
    view: View,
    /// What is being sent.
    frames: Frames,
    /// Lines to be sent next.
    ready: VecDeque<Rope>,
    /// Events of the store of which no lines were made yet. They are here while a webhook converts
    /// them, because whoever waits for that may stop waiting.
    unseen: Vec<Arc<Event>>,
    initial: Option<Initial>,
    source: Source,
    api: Api,
    clock: Clock,
    stop: CancellationToken,
    /// The kind is no longer what it was when the watch began.
    ended: CancellationToken,
    next_bookmark: Deadline,
    /// The newest revision the client knows of.
    last_revision: u64,
    end: Deadline,
}

impl Follower {
    fn begin_after(&mut self, api: &Api, revision: u64) {
        let space = &self.view.resource.space;
        self.last_revision = revision;
        // A custom kind has no past before its definition.
        let since = self.view.resource.custom().map_or(0, |custom| custom.since);
        if revision < since {
            self.source = Source::Broken(too_old(revision, since));
            return;
        }
        self.source = match api.0.store.watch(space, Revision::new(revision)) {
            Ok(watch) => Source::Store(watch),
            Err(old) => Source::Broken(too_old(revision, old.oldest.get())),
        };
    }

    /// The next bytes for the client; `None` when the watch is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.next() {
                return Some(frame);
            }
            let event = self.next_event().await?;
            self.frames.push_rope(event);
            self.ready.drain(..).for_each(|event| self.frames.push_rope(event));
        }
    }

    /// Whether another event can be had without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next event for the client; `None` when the watch is over. The future may be dropped at
    /// any time; nothing is lost by it.
    pub(crate) async fn next_event(&mut self) -> Option<Rope> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.initial.is_some() {
                let stop = self.stop.clone();
                // Dropped when the server stops: the client is told nothing more anyway.
                let read = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    read = self.read_initial() => read,
                };
                if let Err(refusal) = read {
                    self.initial = None;
                    self.source = Source::Broken(refusal);
                }
                continue;
            }
            if !self.unseen.is_empty() {
                let stop = self.stop.clone();
                let read = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    read = self.read_events() => read,
                };
                if let Err(refusal) = read {
                    self.unseen.clear();
                    self.source = Source::Broken(refusal);
                }
                continue;
            }
            let deadline = self.next_bookmark.min(self.end);
            let watch = match &mut self.source {
                Source::Store(watch) => watch,
                Source::Broken(refusal) => {
                    self.ready.push_back(error_line(refusal));
                    self.source = Source::Ended;
                    continue;
                }
                Source::Ended => return None,
            };
            // Each branch may be dropped: waiting takes nothing from the window. The last is looked
            // at last: what became of the objects of a kind is told before its watch ends.
            let batch = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                () = self.clock.sleep_until(deadline) => None,
                batch = watch.next_within(BATCH, BATCH_BYTES) => Some(batch),
                () = self.ended.cancelled() => return None,
            };
            match batch {
                Some(Ok(events)) => self.unseen = events,
                Some(Err(WatchError::Lagged { oldest })) => {
                    let refusal = too_old(self.last_revision, oldest.get());
                    self.source = Source::Broken(refusal);
                }
                Some(Err(WatchError::Closed)) => return None,
                None if self.clock.moment() >= self.end => return None,
                None => self.tell_progress(),
            }
        }
    }

    /// Makes lines of events that the store has given.
    async fn read_events(&mut self) -> Result<(), Refusal> {
        let View { resource, scope, options, .. } = &self.view;
        let (scope, selects) = (scope.as_bytes(), options.selects());
        let events = self.unseen.clone();
        let events = self.api.seen_events(resource, scope, selects, events).await?;
        self.unseen.clear();
        for event in events {
            self.last_revision = event.revision.get();
            self.ready.extend(self.view.line(&event));
        }
        Ok(())
    }

    /// Makes lines of some of what is there, and at its end the mark that says so.
    async fn read_initial(&mut self) -> Result<(), Refusal> {
        let Some(Initial { revision, after }) = &self.initial else { return Ok(()) };
        let (revision, View { resource, scope, .. }) = (*revision, &self.view);
        let scope = scope.as_bytes();
        let snapshot = self.api.0.store.snapshot_at(&resource.space, Revision::new(revision));
        let snapshot = snapshot.map_err(|old| too_old(revision, old.oldest.get()))?;
        let start = after.as_ref().map_or(Bound::Included(scope), |key| Bound::Excluded(&key[..]));
        let in_scope = snapshot.range(start).take_while(|entry| entry.key.starts_with(scope));
        // What a webhook converts is selected when it is converted.
        let converts = resource.converter().is_some();
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut ended = true;
        for (count, entry) in in_scope.enumerate() {
            if count == SCAN || entries.len() == BATCH || bytes >= BATCH_BYTES {
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
        let seen = self.api.seen_all(resource, entries).await?;
        // From here on nothing waits: what was read is kept and the place moves on, or neither.
        for entry in seen {
            if !converts || self.view.selects(&entry) {
                self.ready.push_back(self.view.framed("ADDED", &entry));
            }
        }
        if !ended {
            self.initial = Some(Initial { revision, after: last });
            return Ok(());
        }
        self.initial = None;
        if self.view.options.bookmarks {
            self.ready.push_back(self.view.bookmark(revision, true));
        }
        Ok(())
    }

    fn tell_progress(&mut self) {
        let now = self.clock.moment();
        let before_end = now + (self.end - now).saturating_sub(BOOKMARK_BEFORE_END);
        self.next_bookmark =
            if before_end > now { before_end.min(now + BOOKMARK_EVERY) } else { self.end };
        let Source::Store(watch) = &mut self.source else { return };
        let revision = watch.caught_up().get().max(self.last_revision);
        if self.view.options.bookmarks {
            self.ready.push_back(self.view.bookmark(revision, false));
        }
    }
}

fn too_old(asked: u64, oldest: u64) -> Refusal {
    let message = format!("too old resource version: {asked} ({oldest})");
    Refusal::expired(message, None)
}

fn error_line(refusal: &Refusal) -> Rope {
    line("ERROR", Bytes::from(refusal.document().to_string()).into())
}

/// One line of a watch.
fn line(kind: &str, object: Rope) -> Rope {
    let opening = match kind {
        "ADDED" => Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":"),
        "MODIFIED" => Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":"),
        "DELETED" => Bytes::from_static(b"{\"type\":\"DELETED\",\"object\":"),
        other => Bytes::from(format!("{{\"type\":\"{other}\",\"object\":")),
    };
    object.between(opening, Bytes::from_static(b"}\n"))
}

/// How one client sees events.
struct View {
    resource: Arc<Resource>,
    scope: String,
    frame: Frame,
    options: ListOptions,
    columns_sent: bool,
}

impl View {
    /// What the client is told of an event, if anything.
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
            return Some(self.told(kind, event));
        }
        let is = event.kind == EventKind::Put && self.selects(&event.entry);
        let was = event.previous.as_ref().filter(|previous| self.selects(previous));
        match (was, is) {
            (Some(_), true) => Some(self.told(kind, event)),
            (Some(_), false) if event.kind == EventKind::Delete => Some(self.told(kind, event)),
            (None, true) if event.previous.is_none() => Some(self.told(kind, event)),
            (None, true) => Some(self.framed("ADDED", &event.entry)),
            // It no longer matches: the client gets what matched last, at the new revision.
            (Some(previous), false) => {
                let bytes = self.resource.present(previous);
                let parts = restamp(&bytes, event.revision.get());
                if self.frame.shape() == Shape::Object {
                    return Some(line("DELETED", Rope::of(parts)));
                }
                let framed = self.wrap(Bytes::from(parts.concat()));
                Some(line("DELETED", framed))
            }
            (None, false) => None,
        }
    }

    /// An event as it was. Those who want it as it is stored share the bytes.
    fn told(&mut self, kind: &str, event: &Event) -> Rope {
        let value = &event.entry.value;
        if self.frame.is_stored_bytes(&self.resource) && value.len() <= COPIED_BYTES {
            let whole = || line(kind, value.clone().into()).parts().concat();
            return event.extra.get(|| Bytes::from(whole())).into();
        }
        self.framed(kind, &event.entry)
    }

    fn selects(&self, entry: &Entry) -> bool {
        selects(&self.resource, &self.options, entry)
    }

    fn framed(&mut self, kind: &str, entry: &Entry) -> Rope {
        let bytes = self.resource.present(entry);
        line(kind, self.wrap(bytes))
    }

    /// The object in the form the client asked for.
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
            Shape::Object => self.resource.bookmark(metadata),
            Shape::Table(_) => {
                let object = self.resource.bookmark(metadata);
                let bytes = Bytes::from(object.to_string());
                return line("BOOKMARK", self.wrap(bytes));
            }
        };
        line("BOOKMARK", Bytes::from(Value::to_string(&object)).into())
    }
}
