//! Conversion of custom objects between versions by webhooks.
//!
//! Kinds without a conversion webhook are not affected: their objects are served from stored bytes,
//! without waiting. For the others, [`Api::converted_entry`] turns a stored entry into the entry of
//! another version, and everything after it (rendering, selecting, tables) uses that one like any
//! other. Entries that are already in the version are returned unchanged.
//!
//! Reading one object calls the webhook each time, as upstream. Lists, watches and changes cache
//! the converted object with the entry, as upstream does in its watch cache: any number of watchers
//! cost one conversion.

mod converted_versions;
mod review;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_store::Event;
use gantry_webhook::{CallTimeout, ClientConfigError, WebhookClientConfig};
use serde_json::Value;

use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::resource::custom::CustomResource;
use crate::resource::names;
use crate::resource::stored::{EncodedEvent, EntryCache, encode};
use crate::response::status::StatusError;
use crate::verbs::read::ListPage;
use crate::verbs::write::Write;

pub(crate) use converted_versions::ConvertedVersions;
use review::ReviewVersion;
pub(crate) use review::kind_of;

/// How long a conversion may take: as long as a request without a limit of its own.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Objects sent in one call.
const MAX_BATCH_OBJECTS: usize = 256;
/// Stored bytes sent in one call. Small enough that a response several times as large can be read.
const MAX_BATCH_BYTES: usize = 512 << 10;

/// The conversion webhook of a kind.
#[derive(Debug)]
pub struct Converter {
    hook: Result<WebhookClientConfig, ClientConfigError>,
    /// The version of the review; `None` if the webhook supports none of ours.
    version: Option<ReviewVersion>,
}

impl Converter {
    /// Returns the conversion webhook of a definition.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        let version = versions.filter_map(Value::as_str).find_map(ReviewVersion::from_name);
        Some(Self { hook: WebhookClientConfig::read(&webhook["clientConfig"]), version })
    }

    /// Converts the objects to another version, in order.
    async fn convert(
        &self,
        api: &Api,
        objects: &[Value],
        api_version: &str,
    ) -> Result<Vec<Value>, StatusError> {
        let Some(first) = objects.first() else { return Ok(Vec::new()) };
        let kind = kind_of(first);
        let failed = |why: &str| {
            StatusError::failure(format!("conversion webhook for {kind} failed: {why}"))
        };
        let hook = self.hook.as_ref().map_err(|fault| failed(&fault.to_string()))?;
        let Some(version) = self.version else {
            return Err(StatusError::failure("no supported conversion review versions"));
        };
        let uid = names::uid();
        let question = review::conversion_review(version, &uid, api_version, objects);
        let body = Bytes::from(question.to_string());
        let answer =
            api.0.webhooks.post(hook, body, CallTimeout::Announced(CONVERSION_TIMEOUT)).await;
        let answer = answer.map_err(|fault| failed(&fault.to_string()))?;
        let converted =
            review::read_response(version, &uid, &answer).map_err(|why| failed(&why))?;
        review::check_converted(objects, converted, api_version)
            .map_err(|why| StatusError::failure(format!("conversion webhook for {kind} {why}")))
    }
}

impl Resource {
    /// Returns the converter of its objects, if more than the version's name differs.
    pub(crate) fn converter(&self) -> Option<(&CustomResource, &Converter)> {
        let custom = self.custom()?;
        Some((custom, custom.converter.as_deref()?))
    }

    /// Returns the converter, if this object needs it.
    fn converter_for(&self, entry: &Entry) -> Option<(&CustomResource, &Converter)> {
        self.converter().filter(|(custom, _)| !entry.value.starts_with(&custom.json_prefix))
    }

    /// Returns the last state of a deleted object: just what is stored, if it was converted for the
    /// request.
    pub(crate) fn final_stored_state(&self, entry: &Entry, live: &Value) -> Value {
        match self.converter() {
            Some(_) => serde_json::from_slice(&entry.value).unwrap_or_default(),
            None => self.to_storage(live),
        }
    }
}

impl Api {
    /// Converts a stored object to the version of the resource.
    pub(crate) async fn converted_entry(
        &self,
        resource: &Resource,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, StatusError> {
        let Some((custom, converter)) = resource.converter_for(&entry) else { return Ok(entry) };
        let stored = [custom.read_stored(&entry.value)];
        let version = resource.api_version();
        let work = converter.convert(self, &stored, &version);
        let converted = Box::pin(work).await?;
        Ok(converted
            .into_iter()
            .next()
            .map_or_else(|| Arc::clone(&entry), |it| converted_copy(custom, &entry, it)))
    }

    /// As above for a change, which begins with the object that lists and watches return.
    pub(crate) async fn converted_for_update(
        &self,
        resource: &Resource,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, StatusError> {
        if resource.converter_for(&entry).is_none() {
            return Ok(entry);
        }
        let converted = self.converted_entries(resource, vec![Arc::clone(&entry)]).await?;
        Ok(converted.into_iter().next().unwrap_or(entry))
    }

    /// Converts stored objects to the version of the resource, in order. Objects that were
    /// converted before are not converted again.
    pub(crate) async fn converted_entries(
        &self,
        resource: &Resource,
        mut entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>, StatusError> {
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
            for (place, object) in batch.indexes.into_iter().zip(converted) {
                let copy = converted_copy(custom, &entries[place], object);
                entries[place].extra.cache_converted(custom.epoch, &copy);
                entries[place] = copy;
            }
        }
        Ok(entries)
    }

    /// Finds the objects of a page, each of which has to be converted before it can be selected.
    pub(crate) async fn convert_page(&self, page: &mut ListPage) -> Result<(), StatusError> {
        let resource = Arc::clone(&page.resource);
        let mut stored = page.entries_in_scope();
        let limit = page.limit();
        // Without selectors, only as many as requested are converted, and whether more follow is
        // known without conversion.
        let stride = if limit > 0 && !page.has_selectors() {
            limit.min(MAX_BATCH_OBJECTS)
        } else {
            MAX_BATCH_OBJECTS
        };
        let mut ready: Vec<Arc<Entry>> = Vec::new();
        loop {
            if limit > 0 && ready.len() >= limit && !page.has_selectors() {
                let more = ready.len() > limit || stored.next().is_some();
                ready.truncate(limit);
                page.set_converted(ready, more);
                return Ok(());
            }
            let chunk: Vec<_> = stored.by_ref().take(stride).collect();
            let is_last = chunk.len() < stride;
            let converted = self.converted_entries(&resource, chunk).await?;
            ready.extend(converted.into_iter().filter(|entry| page.is_selected(entry)));
            let full = limit > 0 && ready.len() > limit;
            if full {
                ready.truncate(limit);
            }
            if full || is_last {
                page.set_converted(ready, full);
                return Ok(());
            }
        }
    }

    /// Converts events to the version of a watch. Those out of scope are left as they are.
    pub(crate) async fn converted_events(
        &self,
        resource: &Resource,
        scope: &[u8],
        selects: bool,
        events: Vec<Arc<Event<EntryCache, EncodedEvent>>>,
    ) -> Result<Vec<Arc<Event<EntryCache, EncodedEvent>>>, StatusError> {
        if resource.converter().is_none() {
            return Ok(events);
        }
        let in_scope = |event: &Event<EntryCache, EncodedEvent>| event.entry.key.starts_with(scope);
        // The previous state only matters for watches with selectors.
        let before =
            |event: &Event<EntryCache, EncodedEvent>| event.previous.clone().filter(|_| selects);
        let entries = events.iter().filter(|event| in_scope(event));
        let entries =
            entries.flat_map(|event| before(event).into_iter().chain([event.entry.clone()]));
        let mut converted = self.converted_entries(resource, entries.collect()).await?.into_iter();
        let mut next = |entry: &Arc<Entry>| converted.next().unwrap_or_else(|| Arc::clone(entry));
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
            Arc::new(Event { revision, kind, entry, previous, extra: EncodedEvent::default() })
        });
        Ok(events.collect())
    }

    /// Converts an object of the resource to another version; `None` if no webhook is needed for
    /// it.
    pub(crate) async fn converted_to(
        &self,
        resource: &Resource,
        object: &Value,
        api_version: &str,
    ) -> Result<Option<Value>, StatusError> {
        let Some((_, converter)) = resource.converter() else { return Ok(None) };
        // Subresources have kinds of their own, which are the same in all versions.
        if object["kind"] != resource.kind.as_str() {
            return Ok(None);
        }
        let work = converter.convert(self, std::slice::from_ref(object), api_version);
        Ok(Box::pin(work).await?.into_iter().next())
    }

    /// Converts an object to the version in which it is stored.
    pub(crate) async fn to_storage_version(
        &self,
        resource: &Resource,
        object: &Value,
    ) -> Result<Value, StatusError> {
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
    pub(crate) async fn set_initial_ownership(
        &self,
        write: &Write,
        object: &mut Value,
    ) -> Result<(), StatusError> {
        let before = write.resource.converter().map(|_| object.clone());
        write.resource.update_managed_fields(write, None, object);
        while self.convert_missing_versions(write).await? {
            if let Some(before) = &before {
                object.clone_from(before);
            }
            write.resource.update_managed_fields(write, None, object);
        }
        Ok(())
    }

    /// Converts the versions that were found missing while field ownership was computed; returns
    /// whether there were any, so that it has to be computed again.
    pub(crate) async fn convert_missing_versions(
        &self,
        write: &Write,
    ) -> Result<bool, StatusError> {
        let Some((_, converter)) = write.resource.converter() else { return Ok(false) };
        let wanted = write.versions.take_missing()?;
        for (object, version) in &wanted {
            let work = converter.convert(self, std::slice::from_ref(object), version);
            let converted = Box::pin(work).await?;
            write.versions.insert(
                object,
                version,
                converted.into_iter().next().unwrap_or_default(),
            );
        }
        Ok(!wanted.is_empty())
    }
}

/// Builds the entry of another version.
fn converted_copy(custom: &CustomResource, entry: &Arc<Entry>, mut object: Value) -> Arc<Entry> {
    gantry_schema::prune(&custom.schema.schema(), &mut object);
    let halves = encode(&object);
    let revision = entry.revision.get().to_string();
    let value = Bytes::from([&halves.head[..], revision.as_bytes(), &halves.tail[..]].concat());
    Arc::new(Entry {
        key: entry.key.clone(),
        created: entry.created,
        revision: entry.revision,
        extra: EntryCache::for_epoch(custom.epoch, value.clone()),
        value,
    })
}

/// Objects that are sent together.
#[derive(Default)]
struct Batch {
    indexes: Vec<usize>,
    objects: Vec<Value>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, place: usize, object: Value, stored: &Bytes) {
        self.indexes.push(place);
        self.objects.push(object);
        self.bytes += stored.len();
    }

    fn is_full(&self) -> bool {
        self.objects.len() >= MAX_BATCH_OBJECTS || self.bytes >= MAX_BATCH_BYTES
    }
}
