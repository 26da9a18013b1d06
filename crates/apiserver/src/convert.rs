//! Objects in other versions than the one they are stored in, where a webhook makes them.
//!
//! Nothing here concerns kinds without such a webhook: their objects are presented as before, from
//! stored bytes, without waiting. For the others, [`Api::seen`] makes of a stored entry the entry
//! that a version sees, and everything after it (rendering, selecting, tables) works on that one
//! as on any other. Entries that are already in the version pass untouched.
//!
//! Reading one object asks the webhook each time, as upstream. Lists, watches and changes keep what
//! was made of an entry with the entry, as upstream keeps it in its cache: any number of watchers
//! cost one conversion.

mod review;
mod views;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_store::Event;
use gantry_webhook::{Hook, HookError, Wait};
use serde_json::Value;

use crate::api::{Api, Entry};
use crate::custom::Custom;
use crate::names;
use crate::read::Page;
use crate::resource::Resource;
use crate::status::Refusal;
use crate::stored::{Known, Line, encode};
use crate::write::Write;

use review::ReviewVersion;
pub(crate) use review::kind_of;
pub(crate) use views::Views;

/// How long a conversion may take: as long as a request without a limit of its own.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects sent at once.
const BATCH: usize = 256;
/// Stored bytes sent at once. Small enough that an answer several times as large can be read.
const BATCH_BYTES: usize = 512 << 10;

/// Who converts the objects of a kind.
#[derive(Debug)]
pub struct Converter {
    hook: Result<Hook, HookError>,
    /// The form of the question; none if the webhook understands none of ours.
    version: Option<ReviewVersion>,
}

impl Converter {
    /// The converter a definition names.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        let version = versions.filter_map(Value::as_str).find_map(ReviewVersion::named);
        Some(Self { hook: Hook::read(&webhook["clientConfig"]), version })
    }

    /// The objects in another version, in order.
    async fn convert(
        &self,
        api: &Api,
        objects: &[Value],
        api_version: &str,
    ) -> Result<Vec<Value>, Refusal> {
        let Some(first) = objects.first() else { return Ok(Vec::new()) };
        let kind = kind_of(first);
        let failed =
            |why: &str| Refusal::failure(format!("conversion webhook for {kind} failed: {why}"));
        let hook = self.hook.as_ref().map_err(|fault| failed(&fault.to_string()))?;
        let Some(version) = self.version else {
            return Err(Refusal::failure("no supported conversion review versions"));
        };
        let uid = names::uid();
        let question = review::question(version, &uid, api_version, objects);
        let body = Bytes::from(question.to_string());
        let answer = api.0.webhooks.post(hook, body, Wait::Told(PATIENCE)).await;
        let answer = answer.map_err(|fault| failed(&fault.to_string()))?;
        let converted = review::answer(version, &uid, &answer).map_err(|why| failed(&why))?;
        review::accept(objects, converted, api_version)
            .map_err(|why| Refusal::failure(format!("conversion webhook for {kind} {why}")))
    }
}

impl Resource {
    /// Who converts its objects, if not only the version's name differs.
    pub(crate) fn converter(&self) -> Option<(&Custom, &Converter)> {
        let custom = self.custom()?;
        Some((custom, custom.converter.as_deref()?))
    }

    /// The same, if this object needs it.
    fn converter_for(&self, entry: &Entry) -> Option<(&Custom, &Converter)> {
        self.converter().filter(|(custom, _)| !entry.value.starts_with(&custom.opening))
    }

    /// The last state of an object that goes: just what is stored, if it was converted to be seen.
    pub(crate) fn last_state(&self, entry: &Entry, live: &Value) -> Value {
        match self.converter() {
            Some(_) => serde_json::from_slice(&entry.value).unwrap_or_default(),
            None => self.to_storage(live),
        }
    }
}

impl Api {
    /// A stored object as the version of the resource has it.
    pub(crate) async fn seen(
        &self,
        resource: &Resource,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, Refusal> {
        let Some((custom, converter)) = resource.converter_for(&entry) else { return Ok(entry) };
        let stored = [custom.read_stored(&entry.value)];
        let version = resource.api_version();
        let work = converter.convert(self, &stored, &version);
        let converted = Box::pin(work).await?;
        Ok(converted
            .into_iter()
            .next()
            .map_or_else(|| Arc::clone(&entry), |it| view(custom, &entry, it)))
    }

    /// The same for a change, which begins with what lists and watches have seen.
    pub(crate) async fn seen_before(
        &self,
        resource: &Resource,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, Refusal> {
        if resource.converter_for(&entry).is_none() {
            return Ok(entry);
        }
        let seen = self.seen_all(resource, vec![Arc::clone(&entry)]).await?;
        Ok(seen.into_iter().next().unwrap_or(entry))
    }

    /// Stored objects as the version of the resource has them, in order. What was converted once is
    /// not converted again.
    pub(crate) async fn seen_all(
        &self,
        resource: &Resource,
        mut entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>, Refusal> {
        let mut start = 0;
        while start < entries.len() {
            let mut batch = Batch::default();
            while let Some(entry) = entries.get_mut(start).filter(|_| !batch.is_full()) {
                if let Some((custom, _)) = resource.converter_for(entry) {
                    match entry.extra.converted(custom.epoch) {
                        Some(known) => *entry = known,
                        None => batch.add(start, custom.read_stored(&entry.value), &entry.value),
                    }
                }
                start += 1;
            }
            let Some((custom, converter)) = resource.converter() else { break };
            let version = resource.api_version();
            let work = converter.convert(self, &batch.objects, &version);
            let converted = Box::pin(work).await?;
            for (place, object) in batch.places.into_iter().zip(converted) {
                let seen = view(custom, &entries[place], object);
                entries[place].extra.keep_converted(custom.epoch, &seen);
                entries[place] = seen;
            }
        }
        Ok(entries)
    }

    /// Finds the objects of a page, each of which has to be converted before it can be selected.
    pub(crate) async fn convert_page(&self, page: &mut Page) -> Result<(), Refusal> {
        let resource = Arc::clone(&page.resource);
        let mut stored = page.stored();
        let limit = page.limit();
        // Without conditions, as many as are wanted are converted, and whether more come is seen
        // without conversion.
        let stride = if limit > 0 && !page.has_conditions() { limit.min(BATCH) } else { BATCH };
        let mut ready: Vec<Arc<Entry>> = Vec::new();
        loop {
            if limit > 0 && ready.len() >= limit && !page.has_conditions() {
                let more = ready.len() > limit || stored.next().is_some();
                ready.truncate(limit);
                page.hold(ready, more);
                return Ok(());
            }
            let chunk: Vec<_> = stored.by_ref().take(stride).collect();
            let is_last = chunk.len() < stride;
            let seen = self.seen_all(&resource, chunk).await?;
            ready.extend(seen.into_iter().filter(|entry| page.wants(entry)));
            let full = limit > 0 && ready.len() > limit;
            if full {
                ready.truncate(limit);
            }
            if full || is_last {
                page.hold(ready, full);
                return Ok(());
            }
        }
    }

    /// Events as watchers of the version see them. Those out of scope are left as they are.
    pub(crate) async fn seen_events(
        &self,
        resource: &Resource,
        scope: &[u8],
        selects: bool,
        events: Vec<Arc<Event<Known, Line>>>,
    ) -> Result<Vec<Arc<Event<Known, Line>>>, Refusal> {
        if resource.converter().is_none() {
            return Ok(events);
        }
        let in_scope = |event: &Event<Known, Line>| event.entry.key.starts_with(scope);
        // What was there before matters only to whoever sees a part of the objects.
        let before = |event: &Event<Known, Line>| event.previous.clone().filter(|_| selects);
        let entries = events.iter().filter(|event| in_scope(event));
        let entries =
            entries.flat_map(|event| before(event).into_iter().chain([event.entry.clone()]));
        let mut seen = self.seen_all(resource, entries.collect()).await?.into_iter();
        let mut next = |entry: &Arc<Entry>| seen.next().unwrap_or_else(|| Arc::clone(entry));
        let events = events.iter().map(|event| {
            if !in_scope(event) {
                return Arc::clone(event);
            }
            let previous = match before(event) {
                Some(previous) => Some(next(&previous)),
                None => event.previous.clone(),
            };
            let entry = next(&event.entry);
            let (revision, kind) = (event.revision, event.kind);
            Arc::new(Event { revision, kind, entry, previous, extra: Line::default() })
        });
        Ok(events.collect())
    }

    /// An object of the resource in another version; nothing if no webhook is needed for it.
    pub(crate) async fn in_version(
        &self,
        resource: &Resource,
        object: &Value,
        api_version: &str,
    ) -> Result<Option<Value>, Refusal> {
        let Some((_, converter)) = resource.converter() else { return Ok(None) };
        // Parts of an object have kinds of their own, which are the same in all versions.
        if object["kind"] != resource.kind.as_str() {
            return Ok(None);
        }
        let work = converter.convert(self, std::slice::from_ref(object), api_version);
        Ok(Box::pin(work).await?.into_iter().next())
    }

    /// An object as it is to be stored.
    pub(crate) async fn storable(
        &self,
        resource: &Resource,
        object: &Value,
    ) -> Result<Value, Refusal> {
        let Some((custom, converter)) = resource.converter() else {
            return Ok(resource.to_storage(object));
        };
        if object["apiVersion"] == custom.storage_version.as_str() {
            return Ok(object.clone());
        }
        let objects = std::slice::from_ref(object);
        let work = converter.convert(self, objects, &custom.storage_version);
        let mut stored = Box::pin(work).await?.into_iter().next().unwrap_or_default();
        gantry_schema::prune(&custom.storage.schema(), &mut stored);
        Ok(stored)
    }

    /// Makes the author of a new object the owner of its fields.
    pub(crate) async fn own_new(&self, write: &Write, object: &mut Value) -> Result<(), Refusal> {
        let before = write.resource.converter().map(|_| object.clone());
        write.resource.own(write, None, object);
        while self.fetch_views(write).await? {
            if let Some(before) = &before {
                object.clone_from(before);
            }
            write.resource.own(write, None, object);
        }
        Ok(())
    }

    /// Makes the views that were found missing while ownership was worked out; whether there were
    /// any, so that it has to be worked out again.
    pub(crate) async fn fetch_views(&self, write: &Write) -> Result<bool, Refusal> {
        let Some((_, converter)) = write.resource.converter() else { return Ok(false) };
        let wanted = write.views.wanted()?;
        for (object, version) in &wanted {
            let work = converter.convert(self, std::slice::from_ref(object), version);
            let converted = Box::pin(work).await?;
            write.views.keep(object, version, converted.into_iter().next().unwrap_or_default());
        }
        Ok(!wanted.is_empty())
    }
}

/// The entry that a version sees.
fn view(custom: &Custom, entry: &Arc<Entry>, mut object: Value) -> Arc<Entry> {
    gantry_schema::prune(&custom.schema.schema(), &mut object);
    let halves = encode(&object);
    let revision = entry.revision.get().to_string();
    let value = Bytes::from([&halves.head[..], revision.as_bytes(), &halves.tail[..]].concat());
    Arc::new(Entry {
        key: entry.key.clone(),
        created: entry.created,
        revision: entry.revision,
        extra: Known::settled(custom.epoch, value.clone()),
        value,
    })
}

/// Objects that are sent together.
#[derive(Default)]
struct Batch {
    places: Vec<usize>,
    objects: Vec<Value>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, place: usize, object: Value, stored: &Bytes) {
        self.places.push(place);
        self.objects.push(object);
        self.bytes += stored.len();
    }

    fn is_full(&self) -> bool {
        self.objects.len() >= BATCH || self.bytes >= BATCH_BYTES
    }
}
