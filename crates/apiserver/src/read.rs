//! Reading one object and lists.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_kinds::selectable::stored_name;
use gantry_schema::Invalid;
use gantry_store::{Revision, SpaceSnapshot};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::api::{Api, Ask, Entry};
use crate::body::{Body, pieces};
use crate::negotiate::Shape;
use crate::paging::{ListOptions, Moment, Resume};
use crate::query;
use crate::render::{self, Rendering};
use crate::resource::Resource;
use crate::status::Refusal;
use crate::stored::{Known, without_kind};

/// How long a list waits for a revision that has not happened yet.
const PATIENCE: Duration = Duration::from_secs(3);

impl Api {
    /// One object.
    pub(crate) async fn get(&self, ask: &Ask) -> Result<Response<Body>, Refusal> {
        if let Some(text) = ask.query.get("resourceVersion").filter(|it| !it.is_empty()) {
            let revision = query::revision(text).map_err(|detail| {
                let fault = Invalid::value("resourceVersion", &json!(text), &detail);
                Refusal::bad_request(fault.to_string())
            })?;
            self.reach(revision).await?;
        }
        let entry = self.seen(&ask.resource, self.find(ask)?).await?;
        render::object(ask, StatusCode::OK, &Rendering::Entry(&entry))
    }

    /// The stored object a request names.
    pub(crate) fn find(&self, ask: &Ask) -> Result<Arc<Entry>, Refusal> {
        let Ask { resource, target, .. } = ask;
        let found = self.stored(resource, &target.namespace, &target.name);
        found.ok_or_else(|| ask.not_found())
    }

    /// A stored object by name.
    pub(crate) fn stored(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Entry>> {
        let key = resource.key(namespace, name);
        self.0.store.space(&resource.space).get(key.as_bytes()).cloned()
    }

    /// A list.
    pub(crate) async fn list(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
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

    /// The part of a collection that was asked for.
    pub(crate) async fn page(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        options: ListOptions,
    ) -> Result<Page, Refusal> {
        let snapshot = self.moment(resource, &options).await?;
        let scope = if resource.namespaced && !namespace.is_empty() {
            format!("{namespace}/")
        } else {
            String::new()
        };
        let after = options.resume.as_ref().map(|resume| format!("{scope}{}", resume.after));
        let mut page = Page {
            revision: snapshot.revision().get(),
            resource: Arc::clone(resource),
            snapshot,
            scope,
            after,
            limit: options.limit,
            options,
            ready: None,
            resume: None,
            remaining: None,
        };
        if resource.converter().is_some() {
            self.convert_page(&mut page).await?;
        } else {
            page.measure();
        }
        Ok(page)
    }

    /// Waits, for a while, until a revision has happened.
    async fn reach(&self, revision: u64) -> Result<(), Refusal> {
        let store = &self.0.store;
        if revision <= store.revision().get() {
            return Ok(());
        }
        let reached = self.0.clock.timeout(PATIENCE, store.wait_for(Revision::new(revision)));
        match reached.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Refusal::too_new(revision, store.revision().get())),
        }
    }

    /// The state a list is made from.
    pub(crate) async fn moment(
        &self,
        resource: &Resource,
        options: &ListOptions,
    ) -> Result<SpaceSnapshot<Known>, Refusal> {
        let store = &self.0.store;
        let moment = match &options.resume {
            Some(Resume { revision: Some(revision), .. }) => Moment::At(*revision),
            Some(Resume { revision: None, .. }) => Moment::Latest,
            None => options.moment,
        };
        let asked = match moment {
            Moment::Latest | Moment::Any => return Ok(store.space(&resource.space)),
            Moment::NotBefore(revision) | Moment::At(revision) => revision,
        };
        self.reach(asked).await?;
        if matches!(moment, Moment::NotBefore(_)) {
            return Ok(store.space(&resource.space));
        }
        store.snapshot_at(&resource.space, Revision::new(asked)).map_err(|_| {
            match &options.resume {
                Some(resume) => {
                    let token = Resume { revision: None, ..resume.clone() }.token();
                    Refusal::expired(EXPIRED_TOKEN, Some(token))
                }
                None => Refusal::expired(TOO_OLD, None),
            }
        })
    }
}

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
     a new list without the continue parameter, or use the continue token in this response to \
     retrieve the remainder of the results. Continuing with the provided token results in an \
     inconsistent list - objects that were created, modified, or deleted between the time the \
     first chunk was returned and now may show up in the list.";

/// A part of a collection at one revision.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) resource: Arc<Resource>,
    snapshot: SpaceSnapshot<Known>,
    scope: String,
    after: Option<String>,
    limit: usize,
    options: ListOptions,
    /// The selected objects, where a converter had to see them first.
    ready: Option<Vec<Arc<Entry>>>,
    /// The token of the next page.
    pub(crate) resume: Option<String>,
    /// How many come after this page, when that is known.
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// The selected objects, in order; as many as the page has.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let (ready, stored) = match &self.ready {
            Some(ready) => (ready.clone(), None),
            None => (Vec::new(), Some(self.selected().take(limit))),
        };
        ready.into_iter().chain(stored.into_iter().flatten())
    }

    fn selected(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let options = self.options.clone();
        let resource = Arc::clone(&self.resource);
        self.stored().filter(move |entry| selects(&resource, &options, entry))
    }

    /// Everything in scope that comes after what the client has, as it is stored.
    pub(crate) fn stored(&self) -> impl Iterator<Item = Arc<Entry>> + Send + use<> {
        let scope = self.scope.clone();
        let start = match &self.after {
            Some(after) => Bound::Excluded(after.clone().into_bytes()),
            None => Bound::Included(scope.clone().into_bytes()),
        };
        Walk::new(self.snapshot.clone(), start)
            .take_while(move |entry| entry.key.starts_with(scope.as_bytes()))
    }

    /// How many objects are wanted; zero for all.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether there are conditions.
    pub(crate) fn has_conditions(&self) -> bool {
        self.options.selects()
    }

    pub(crate) fn wants(&self, entry: &Entry) -> bool {
        selects(&self.resource, &self.options, entry)
    }

    /// Holds these objects, which are those that were asked for; `more` come after them.
    pub(crate) fn hold(&mut self, ready: Vec<Arc<Entry>>, more: bool) {
        if let Some(last) = ready.last().filter(|_| more) {
            self.continue_after(last);
        }
        self.ready = Some(ready);
    }

    /// Finds out whether there is a next page.
    fn measure(&mut self) {
        if self.limit == 0 {
            return;
        }
        let mut entries = self.selected().skip(self.limit - 1);
        let Some(last) = entries.next() else { return };
        if entries.next().is_some() {
            self.continue_after(&last);
        }
    }

    /// Tells the client how to ask for what comes after an object.
    fn continue_after(&mut self, last: &Entry) {
        let key = String::from_utf8_lossy(&last.key);
        let relative = key.strip_prefix(self.scope.as_str()).unwrap_or(&key);
        // The way Kubernetes writes it: inside a namespace with a slash, elsewhere without.
        let after =
            if self.scope.is_empty() { relative.to_owned() } else { format!("/{relative}") };
        self.resume = Some(Resume { revision: Some(self.revision), after }.token());
        if !self.options.selects() {
            let end = scope_end(&self.scope);
            let beyond = self.snapshot.count(Bound::Excluded(&last.key[..]));
            let other = end.map_or(0, |end| self.snapshot.count(Bound::Included(&end[..])));
            self.remaining = Some(beyond - other);
        }
    }

    /// The metadata of a list of objects; those of custom kinds always have a token.
    pub(crate) fn list_metadata(&self) -> Map<String, Value> {
        let mut metadata = self.metadata();
        if self.resource.custom().is_some() {
            metadata.entry("continue").or_insert_with(|| json!(""));
        }
        metadata
    }

    /// The metadata of a table or a list of metadata.
    pub(crate) fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), json!(self.revision.to_string()));
        if let Some(token) = &self.resume {
            metadata.insert("continue".to_owned(), json!(token));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        metadata
    }
}

/// The first key after all that begin with `scope`.
fn scope_end(scope: &str) -> Option<Vec<u8>> {
    let mut end = scope.as_bytes().to_vec();
    let last = end.last_mut()?;
    // A scope ends with a slash, which has a successor.
    *last += 1;
    Some(end)
}

/// Walks a snapshot that it owns, so that an answer can be written while the client reads it.
struct Walk {
    snapshot: SpaceSnapshot<Known>,
    next: Option<Bound<Vec<u8>>>,
    ready: std::vec::IntoIter<Arc<Entry>>,
}

/// Objects looked up at once: finding the place again costs about as much as a few dozen steps.
const STRIDE: usize = 256;

impl Walk {
    fn new(snapshot: SpaceSnapshot<Known>, start: Bound<Vec<u8>>) -> Self {
        Self { snapshot, next: Some(start), ready: Vec::new().into_iter() }
    }
}

impl Iterator for Walk {
    type Item = Arc<Entry>;

    fn next(&mut self) -> Option<Arc<Entry>> {
        if let Some(entry) = self.ready.next() {
            return Some(entry);
        }
        let start = self.next.take()?;
        let start = start.as_ref().map(Vec::as_slice);
        let more: Vec<_> = self.snapshot.range(start).take(STRIDE).cloned().collect();
        if more.len() == STRIDE {
            self.next = more.last().map(|entry| Bound::Excluded(entry.key.to_vec()));
        }
        self.ready = more.into_iter();
        self.ready.next()
    }
}

/// Whether an object is one that was asked for.
pub(crate) fn selects(resource: &Resource, options: &ListOptions, entry: &Entry) -> bool {
    if !options.labels.is_empty() {
        let metadata = entry.extra.metadata(&entry.value);
        if !options.labels.matches(&metadata.labels) {
            return false;
        }
    }
    options.fields.is_empty() || options.fields.matches(|field| field_value(resource, entry, field))
}

/// The value of a selectable field.
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

/// A list written from stored bytes, while the client reads it.
fn plain_list(resource: &Arc<Resource>, page: &Page) -> Response<Body> {
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
    answer::with_body(StatusCode::OK, "application/json", pieces(whole))
}
