//! Reads objects and lists.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_kinds::field_selectors::stored_name;
use gantry_schema::FieldError;
use gantry_store::{Revision, SpaceSnapshot};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::api::{Api, Entry, ResourceRequest};
use crate::request::body::{Body, pieces};
use crate::request::negotiate::Shape;
use crate::request::query;
use crate::resource::Resource;
use crate::resource::stored::{EntryCache, without_kind};
use crate::response;
use crate::response::pagination::{ContinueFrom, ListOptions, RevisionMatch};
use crate::response::render::{self, Rendering};
use crate::response::status::StatusError;

/// How long a list waits for a revision that has not happened yet.
const REVISION_WAIT_TIMEOUT: Duration = Duration::from_secs(3);

impl Api {
    /// `GET` of one object.
    pub(crate) async fn get(&self, ask: &ResourceRequest) -> Result<Response<Body>, StatusError> {
        if let Some(text) = ask.query.get("resourceVersion").filter(|it| !it.is_empty()) {
            let revision = query::revision(text).map_err(|detail| {
                let fault = FieldError::invalid("resourceVersion", &json!(text), &detail);
                StatusError::bad_request(fault.to_string())
            })?;
            self.wait_for_revision(revision).await?;
        }
        let entry = self.converted_entry(&ask.resource, self.find(ask)?).await?;
        render::object(ask, StatusCode::OK, &Rendering::Entry(&entry))
    }

    /// Returns the stored object a request names.
    pub(crate) fn find(&self, ask: &ResourceRequest) -> Result<Arc<Entry>, StatusError> {
        let ResourceRequest { resource, target, .. } = ask;
        let found = self.stored_entry(resource, &target.namespace, &target.name);
        found.ok_or_else(|| ask.not_found())
    }

    /// Returns a stored object by name.
    pub(crate) fn stored_entry(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Entry>> {
        let key = resource.key(namespace, name);
        self.0.store.space(&resource.space).get(key.as_bytes()).cloned()
    }

    /// `GET` of a collection.
    pub(crate) async fn list(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        let options = ListOptions::read(&ask.query, false)?;
        ask.resource.check_fields(&options.fields)?;
        let page = self.page(&ask.resource, &ask.target.namespace, options).await?;
        match ask.format.shape {
            Shape::Object if ask.style.is_plain() => Ok(plain_list(&ask.resource, &page)),
            Shape::Object | Shape::Table(_) | Shape::Metadata(_) | Shape::MetadataList(_) => {
                render::list(&ask, &page)
            }
        }
    }

    /// Returns the requested part of a collection.
    pub(crate) async fn page(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        options: ListOptions,
    ) -> Result<ListPage, StatusError> {
        let snapshot = self.list_snapshot(resource, &options).await?;
        let scope = if resource.namespaced && !namespace.is_empty() {
            format!("{namespace}/")
        } else {
            String::new()
        };
        let after = options.continue_from.as_ref().map(|resume| format!("{scope}{}", resume.after));
        let mut page = ListPage {
            revision: snapshot.revision().get(),
            resource: Arc::clone(resource),
            snapshot,
            scope,
            after,
            limit: options.limit,
            options,
            converted: None,
            continue_token: None,
            remaining: None,
        };
        if resource.converter().is_some() {
            self.convert_page(&mut page).await?;
        } else {
            page.find_next_page();
        }
        Ok(page)
    }

    /// Waits, for a while, until a revision is reached.
    async fn wait_for_revision(&self, revision: u64) -> Result<(), StatusError> {
        let store = &self.0.store;
        if revision <= store.revision().get() {
            return Ok(());
        }
        let reached =
            self.0.clock.timeout(REVISION_WAIT_TIMEOUT, store.wait_for(Revision::new(revision)));
        match reached.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StatusError::too_new(revision, store.revision().get())),
        }
    }

    /// Returns the snapshot a list is made from.
    pub(crate) async fn list_snapshot(
        &self,
        resource: &Resource,
        options: &ListOptions,
    ) -> Result<SpaceSnapshot<EntryCache>, StatusError> {
        let store = &self.0.store;
        let moment = match &options.continue_from {
            Some(ContinueFrom { revision: Some(revision), .. }) => RevisionMatch::Exact(*revision),
            Some(ContinueFrom { revision: None, .. }) => RevisionMatch::Latest,
            None => options.revision_match,
        };
        let asked = match moment {
            RevisionMatch::Latest | RevisionMatch::Any => return Ok(store.space(&resource.space)),
            RevisionMatch::NotOlderThan(revision) | RevisionMatch::Exact(revision) => revision,
        };
        self.wait_for_revision(asked).await?;
        if matches!(moment, RevisionMatch::NotOlderThan(_)) {
            return Ok(store.space(&resource.space));
        }
        store.snapshot_at(&resource.space, Revision::new(asked)).map_err(|_| {
            match &options.continue_from {
                Some(resume) => {
                    let token = ContinueFrom { revision: None, ..resume.clone() }.token();
                    StatusError::expired(EXPIRED_TOKEN, Some(token))
                }
                None => StatusError::expired(TOO_OLD, None),
            }
        })
    }
}

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent \
                             list result. You can start a new list without the continue parameter, \
                             or use the continue token in this response to retrieve the remainder \
                             of the results. Continuing with the provided token results in an \
                             inconsistent list - objects that were created, modified, or deleted \
                             between the time the first chunk was returned and now may show up in \
                             the list.";

/// A part of a collection at one revision.
#[derive(Debug)]
pub(crate) struct ListPage {
    pub(crate) revision: u64,
    pub(crate) resource: Arc<Resource>,
    snapshot: SpaceSnapshot<EntryCache>,
    scope: String,
    after: Option<String>,
    limit: usize,
    options: ListOptions,
    /// The selected objects, where they had to be converted first.
    converted: Option<Vec<Arc<Entry>>>,
    /// The token of the next page.
    pub(crate) continue_token: Option<String>,
    /// How many objects follow this page, when that is known.
    pub(crate) remaining: Option<usize>,
}

impl ListPage {
    /// Returns the selected objects, in order; as many as the page has.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let (ready, stored) = match &self.converted {
            Some(ready) => (ready.clone(), None),
            None => (Vec::new(), Some(self.selected().take(limit))),
        };
        ready.into_iter().chain(stored.into_iter().flatten())
    }

    fn selected(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let options = self.options.clone();
        let resource = Arc::clone(&self.resource);
        self.entries_in_scope().filter(move |entry| selects(&resource, &options, entry))
    }

    /// Returns everything in scope after the continue position, as it is stored.
    pub(crate) fn entries_in_scope(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let scope = self.scope.clone();
        let start = match &self.after {
            Some(after) => Bound::Excluded(after.clone().into_bytes()),
            None => Bound::Included(scope.clone().into_bytes()),
        };
        SnapshotIter::new(self.snapshot.clone(), start)
            .take_while(move |entry| entry.key.starts_with(scope.as_bytes()))
    }

    /// Returns how many objects are requested; zero for all.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether there are selectors.
    pub(crate) fn has_selectors(&self) -> bool {
        self.options.selects()
    }

    pub(crate) fn is_selected(&self, entry: &Entry) -> bool {
        selects(&self.resource, &self.options, entry)
    }

    /// Sets the objects of the page; `more` come after them.
    pub(crate) fn set_converted(&mut self, ready: Vec<Arc<Entry>>, more: bool) {
        if let Some(last) = ready.last().filter(|_| more) {
            self.set_continue_token(last);
        }
        self.converted = Some(ready);
    }

    /// Determines whether there is a next page.
    fn find_next_page(&mut self) {
        if self.limit == 0 {
            return;
        }
        let mut entries = self.selected().skip(self.limit - 1);
        let Some(last) = entries.next() else { return };
        if entries.next().is_some() {
            self.set_continue_token(&last);
        }
    }

    /// Sets the continue token for what comes after an object.
    fn set_continue_token(&mut self, last: &Entry) {
        let key = String::from_utf8_lossy(&last.key);
        let relative = key.strip_prefix(self.scope.as_str()).unwrap_or(&key);
        // The way Kubernetes writes it: inside a namespace with a slash, elsewhere without.
        let after =
            if self.scope.is_empty() { relative.to_owned() } else { format!("/{relative}") };
        self.continue_token = Some(ContinueFrom { revision: Some(self.revision), after }.token());
        if !self.options.selects() {
            let end = scope_end(&self.scope);
            let beyond = self.snapshot.count(Bound::Excluded(&last.key[..]));
            let other = end.map_or(0, |end| self.snapshot.count(Bound::Included(&end[..])));
            self.remaining = Some(beyond - other);
        }
    }

    /// Returns the metadata of a list of objects; those of custom kinds always have a token.
    pub(crate) fn list_metadata(&self) -> Map<String, Value> {
        let mut metadata = self.metadata();
        if self.resource.custom().is_some() {
            metadata.entry("continue").or_insert_with(|| json!(""));
        }
        metadata
    }

    /// Returns the metadata of a table or a list of metadata.
    pub(crate) fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), json!(self.revision.to_string()));
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        metadata
    }
}

/// Returns the first key after all that begin with `scope`.
fn scope_end(scope: &str) -> Option<Vec<u8>> {
    let mut end = scope.as_bytes().to_vec();
    let last = end.last_mut()?;
    // A scope ends with a slash, which has a successor.
    *last += 1;
    Some(end)
}

/// Iterates over a snapshot that it owns, so that a response can be written while the client reads
/// it.
struct SnapshotIter {
    snapshot: SpaceSnapshot<EntryCache>,
    next: Option<Bound<Vec<u8>>>,
    ready: std::vec::IntoIter<Arc<Entry>>,
}

/// Objects looked up at once: a new lookup costs about as much as a few dozen steps.
const SCAN_BATCH: usize = 256;

impl SnapshotIter {
    fn new(snapshot: SpaceSnapshot<EntryCache>, start: Bound<Vec<u8>>) -> Self {
        Self { snapshot, next: Some(start), ready: Vec::new().into_iter() }
    }
}

impl Iterator for SnapshotIter {
    type Item = Arc<Entry>;

    fn next(&mut self) -> Option<Arc<Entry>> {
        if let Some(entry) = self.ready.next() {
            return Some(entry);
        }
        let start = self.next.take()?;
        let start = start.as_ref().map(Vec::as_slice);
        let more: Vec<_> = self.snapshot.range(start).take(SCAN_BATCH).cloned().collect();
        if more.len() == SCAN_BATCH {
            self.next = more.last().map(|entry| Bound::Excluded(entry.key.to_vec()));
        }
        self.ready = more.into_iter();
        self.ready.next()
    }
}

/// Whether an object is selected.
pub(crate) fn selects(resource: &Resource, options: &ListOptions, entry: &Entry) -> bool {
    if !options.labels.is_empty() {
        let metadata = entry.extra.metadata(&entry.value);
        if !options.labels.matches(&metadata.labels) {
            return false;
        }
    }
    options.fields.is_empty() || options.fields.matches(|field| field_value(resource, entry, field))
}

/// Returns the value of a selectable field.
fn field_value<'a>(resource: &Resource, entry: &'a Entry, field: &str) -> Cow<'a, str> {
    let metadata = entry.extra.metadata(&entry.value);
    match field {
        "metadata.name" => Cow::Borrowed(metadata.name.as_str()),
        "metadata.namespace" => Cow::Borrowed(metadata.namespace.as_str()),
        other => {
            let fields = entry.extra.fields(|| resource.selectable_values(&entry.value));
            Cow::Borrowed(fields.get(&*stored_name(other)).map_or("", String::as_str))
        }
    }
}

/// Writes a list from stored bytes, while the client reads it.
fn plain_list(resource: &Arc<Resource>, page: &ListPage) -> Response<Body> {
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        json!(resource.list_kind),
        json!(resource.api_version()),
        Value::Object(page.list_metadata()),
    );
    let custom = resource.custom().is_some();
    let view = Arc::clone(resource);
    let items = page.entries().enumerate().flat_map(move |(place, entry)| {
        let bytes = view.present(&entry);
        let comma = if place == 0 { "" } else { "," };
        if custom {
            [Bytes::from_static(comma.as_bytes()), bytes]
        } else {
            let opening = if place == 0 { "{" } else { ",{" };
            [Bytes::from_static(opening.as_bytes()), without_kind(&bytes)]
        }
    });
    let whole = std::iter::once(Bytes::from(opening))
        .chain(items)
        .chain(std::iter::once(Bytes::from_static(b"]}\n")));
    response::with_body(StatusCode::OK, "application/json", pieces(whole))
}
