//! Removing objects: at once, after a grace period, or when nothing holds them any longer.

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use gantry_kinds::behaviour::Propagation;
use gantry_kinds::deletion;
use gantry_schema::Invalid;
use gantry_store::Expect;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::access::Caller;
use crate::admission::{Operation, Review};
use crate::answer;
use crate::api::{Api, Ask, Entry};
use crate::body::Body;
use crate::decode;
use crate::negotiate;
use crate::paging::ListOptions;
use crate::query::{Query, dry_run_list_fault};
use crate::render::{self, Rendering};
use crate::resource::Resource;
use crate::status::{Refusal, success};
use crate::write::{goes_away, meta, seconds};

/// How an object is to be removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Seconds to wait; `None` leaves it to the object.
    pub(crate) grace: Option<i64>,
    /// Only the object with this identity.
    pub(crate) uid: Option<String>,
    /// Only the object at this revision.
    pub(crate) revision: Option<String>,
    /// What becomes of dependents; `None` leaves it to the kind.
    pub(crate) policy: Option<Propagation>,
    /// Do everything but remove.
    pub(crate) dry_run: bool,
    /// It goes with others, and nobody has called it by its name.
    pub(crate) unnamed: bool,
    /// All of the above as it was said, as admission shows it.
    pub(crate) said: Map<String, Value>,
}

impl DeleteOptions {
    /// Removes in the background, if it is still this object.
    pub(crate) fn exactly(uid: &str, policy: Propagation) -> Self {
        Self { uid: Some(uid.to_owned()), policy: Some(policy), ..Self::default() }
    }

    /// Reads the body, or the parameters if there is none: as with Kubernetes, who sends a body has
    /// said everything there.
    fn read(ask: &Ask) -> Result<Self, Refusal> {
        let body = if ask.body.iter().all(u8::is_ascii_whitespace) {
            Value::Null
        } else {
            let content = negotiate::content(&ask.headers, false)?;
            decode::tree(content, &ask.body, "DeleteOptions")?.0
        };
        Self::from_parts(ask, &body)
    }

    fn from_parts(ask: &Ask, body: &Value) -> Result<Self, Refusal> {
        let nothing = Query::default();
        let query = if body.is_null() { &ask.query } else { &nothing };
        let said = |name: &str| body.get(name).filter(|value| !value.is_null());
        let policy = said("propagationPolicy").and_then(Value::as_str).map(str::to_owned);
        let policy = policy.or_else(|| query.get("propagationPolicy").map(str::to_owned));
        let orphan = said("orphanDependents").and_then(Value::as_bool);
        let orphan = orphan.or_else(|| query.flag("orphanDependents"));
        let grace = said("gracePeriodSeconds").and_then(Value::as_i64);
        let grace = match grace {
            Some(grace) => Some(grace),
            None => query.number("gracePeriodSeconds")?,
        };
        let dry_run: Vec<String> = match said("dryRun").and_then(Value::as_array) {
            Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => query.all("dryRun").filter(|it| !it.is_empty()).map(str::to_owned).collect(),
        };
        let mut faults = Vec::new();
        if orphan.is_some() && policy.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let value = json!(policy);
            faults.push(Invalid::value("propagationPolicy", &value, why));
        }
        let policy = match policy.as_deref() {
            None | Some("") => orphan
                .map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let value = json!(other);
                faults.push(Invalid::not_supported("propagationPolicy", &value, &supported));
                None
            }
        };
        let values: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        faults.extend(dry_run_list_fault(&values));
        if !faults.is_empty() {
            return Err(Refusal::invalid_options("DeleteOptions", &faults));
        }
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self {
            grace,
            uid: precondition("uid"),
            revision: precondition("resourceVersion"),
            policy,
            dry_run: !values.is_empty(),
            unnamed: false,
            said: said_options(body, query)?,
        })
    }
}

/// The options of a deletion that were said, in the body or else in parameters.
fn said_options(body: &Value, query: &Query) -> Result<Map<String, Value>, Refusal> {
    let mut said = Map::new();
    if let Some(grace) = query.number("gracePeriodSeconds")? {
        said.insert("gracePeriodSeconds".to_owned(), json!(grace));
    }
    if let Some(orphan) = query.flag("orphanDependents") {
        said.insert("orphanDependents".to_owned(), json!(orphan));
    }
    if let Some(policy) = query.get("propagationPolicy") {
        said.insert("propagationPolicy".to_owned(), json!(policy));
    }
    let dry_run: Vec<&str> = query.all("dryRun").filter(|it| !it.is_empty()).collect();
    if !dry_run.is_empty() {
        said.insert("dryRun".to_owned(), json!(dry_run));
    }
    for name in
        ["gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy", "dryRun"]
    {
        if let Some(value) = body.get(name).filter(|it| !it.is_null()) {
            said.insert(name.to_owned(), value.clone());
        }
    }
    Ok(said)
}

/// Who asks which object to go, and how.
#[derive(Debug)]
pub(crate) struct Removal<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) options: &'a DeleteOptions,
    /// Who asks; nobody if nobody may object any more.
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) now: Timestamp,
    /// What the caller is told besides the answer.
    pub(crate) warnings: Vec<String>,
}

/// What a deletion left behind.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is marked and waits.
    Waiting(Arc<Entry>),
    /// It is gone; this was its last state.
    Gone(Value),
    /// A dry run of marking.
    Marked(Value),
}

impl Api {
    /// `DELETE` of an object.
    pub(crate) async fn delete(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        let options = DeleteOptions::read(&ask)?;
        let Resource { group, plural, .. } = &*ask.resource;
        let warning = deletion::warning(group, plural, options.policy);
        let mut removal = Removal {
            resource: &ask.resource,
            namespace: &ask.target.namespace,
            name: &ask.target.name,
            options: &options,
            caller: Some(&ask.caller),
            now: ask.now,
            warnings: warning.into_iter().map(str::to_owned).collect(),
        };
        let deleted = self.delete_object(&mut removal).await;
        let warnings = removal.warnings;
        let deleted = deleted.map_err(|mut refusal| {
            refusal.warnings.extend(warnings.iter().cloned());
            refusal
        })?;
        let mut response = match deleted {
            Deleted::Waiting(entry) => {
                render::object(&ask, StatusCode::OK, &Rendering::Entry(&entry))?
            }
            Deleted::Marked(tree) => render::object(&ask, StatusCode::OK, &Rendering::Tree(&tree))?,
            Deleted::Gone(tree) if ask.resource.delete_returns_object() => {
                render::object(&ask, StatusCode::OK, &Rendering::Tree(&tree))?
            }
            Deleted::Gone(tree) => {
                let status = success(group, plural, &ask.target.name, meta(&tree, "uid"));
                answer::document(StatusCode::OK, ask.style, &status)
            }
        };
        answer::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Removes one object, or marks it.
    pub(crate) async fn delete_object(
        &self,
        removal: &mut Removal<'_>,
    ) -> Result<Deleted, Refusal> {
        let Removal { resource, namespace, name, options, now, .. } = *removal;
        loop {
            let Some(entry) = self.stored(resource, namespace, name) else {
                return Err(Refusal::not_found(&resource.group, &resource.plural, name));
            };
            let stored = entry;
            let entry = self.seen(resource, Arc::clone(&stored)).await?;
            let live = resource.tree(&entry);
            check_preconditions(resource, &live, options)?;
            let marked = mark(resource, &live, options, now);
            if marked.as_ref() == Some(&live) && !goes_away(&live) {
                return Ok(Deleted::Waiting(entry));
            }
            self.review_removal(removal, &live).await?;
            let key = resource.key(namespace, name);
            let expect = Expect::Revision(entry.revision);
            let done = match marked {
                Some(marked) if !goes_away(&marked) => {
                    if options.dry_run {
                        return Ok(Deleted::Marked(marked));
                    }
                    let stored = self.storable(resource, &marked).await?;
                    let put = self.put(resource, key, expect, &stored).await?;
                    match put {
                        Some(entry) => {
                            self.after_mark(resource, &marked);
                            Some(Deleted::Waiting(self.seen(resource, entry).await?))
                        }
                        None => None,
                    }
                }
                gone => {
                    let mut last = gone.unwrap_or_else(|| live.clone());
                    if options.dry_run {
                        return Ok(Deleted::Gone(last));
                    }
                    let stored = resource.last_state(&stored, &live);
                    let removed = self.remove(resource, key, expect, &stored).await?;
                    removed.map(|entry| {
                        last["metadata"]["resourceVersion"] =
                            json!(entry.revision.get().to_string());
                        Deleted::Gone(last)
                    })
                }
            };
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// Asks whether an object may go.
    async fn review_removal(&self, removal: &mut Removal<'_>, live: &Value) -> Result<(), Refusal> {
        let Some(caller) = removal.caller else { return Ok(()) };
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        for (name, value) in &removal.options.said {
            options[name] = value.clone();
        }
        let is_namespace = removal.resource.space == "namespaces";
        let mut review = Review {
            operation: Operation::Delete,
            resource: removal.resource,
            subresource: "",
            name: if removal.options.unnamed { "" } else { removal.name },
            namespace: if is_namespace { removal.name } else { removal.namespace },
            caller,
            dry_run: removal.options.dry_run,
            options: &options,
            old: Some(live),
            warnings: Vec::new(),
            reserved: None,
        };
        let outcome = self.review_deletion(&mut review).await;
        removal.warnings.extend(review.warnings);
        outcome
    }

    /// `DELETE` of a collection.
    pub(crate) async fn delete_collection(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        let options = DeleteOptions { unnamed: true, ..DeleteOptions::read(&ask)? };
        let list = ListOptions::read(&ask.query, false)?;
        ask.resource.check_fields(&list.fields)?;
        let page = self.page(&ask.resource, &ask.target.namespace, list).await?;
        let custom = ask.resource.custom().is_some();
        let mut items = Vec::new();
        let mut warnings = Vec::new();
        for entry in page.entries() {
            let metadata = entry.extra.metadata(&entry.value);
            let mut removal = Removal {
                resource: &ask.resource,
                namespace: &metadata.namespace,
                name: &metadata.name,
                options: &options,
                caller: Some(&ask.caller),
                now: ask.now,
                warnings: Vec::new(),
            };
            let deleted = self.delete_object(&mut removal).await;
            for warning in removal.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            match deleted {
                Ok(_) => {}
                // Someone else was quicker; gone is gone.
                Err(refusal) if refusal.reason == "NotFound" => {}
                Err(mut refusal) => {
                    refusal.warnings.extend(warnings);
                    return Err(refusal);
                }
            }
            let mut tree = ask.resource.tree(&entry);
            if let Some(fields) = tree.as_object_mut().filter(|_| !custom) {
                fields.shift_remove("kind");
                fields.shift_remove("apiVersion");
            }
            items.push(tree);
        }
        let list = json!({
            "kind": ask.resource.list_kind,
            "apiVersion": ask.resource.api_version(),
            "metadata": page.list_metadata(),
            "items": items,
        });
        let mut response = answer::document(StatusCode::OK, ask.style, &list);
        answer::warn(&mut response, &warnings);
        Ok(response)
    }
}

fn check_preconditions(
    resource: &Resource,
    live: &Value,
    options: &DeleteOptions,
) -> Result<(), Refusal> {
    let Resource { group, kind, .. } = resource;
    let refuse = |why: &str| Err(Refusal::conflict(group, kind, meta(live, "name"), why));
    let (uid, revision) = (meta(live, "uid"), meta(live, "resourceVersion"));
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != uid) {
        return refuse(&format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The \
             object might have been deleted and then recreated"
        ));
    }
    if let Some(asked) = options.revision.as_deref().filter(|asked| *asked != revision) {
        return refuse(&format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion \
             in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}

/// The object as it waits for its end; `None` when it need not wait.
fn mark(
    resource: &Resource,
    live: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Option<Value> {
    let mut marked = live.clone();
    let policy = deletion::policy(live, options.policy, resource.behaviour());
    set_finalizers(&mut marked, &deletion::finalizers(live, policy));
    let grace = resource.grace(live, options.grace);
    let metadata = live["metadata"].as_object()?;
    if let Some(already) = metadata.get("deletionTimestamp").and_then(Value::as_str) {
        let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let before = before.unwrap_or(0);
        // A second request can only shorten the wait.
        if let Some(grace) = grace.filter(|grace| *grace < before) {
            let base: Timestamp = already.parse().unwrap_or(now);
            let end = base - SignedDuration::from_secs(before) + SignedDuration::from_secs(grace);
            let end = end.max(now);
            marked["metadata"]["deletionTimestamp"] = json!(seconds(end));
            marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        return Some(marked);
    }
    let held = marked["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        || resource.is_held_by_spec(&marked);
    let graceful = grace.is_some();
    let grace = grace.unwrap_or(0);
    if grace == 0 && !held && !graceful {
        return None;
    }
    let end = now + SignedDuration::from_secs(grace);
    let generation = marked["metadata"]["generation"].as_i64().unwrap_or(0);
    let metadata = marked["metadata"].as_object_mut()?;
    metadata.insert("deletionTimestamp".to_owned(), json!(seconds(end)));
    if resource.marks_grace() {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    }
    if generation > 0 && resource.marking_is_a_generation() {
        metadata.insert("generation".to_owned(), json!(generation + 1));
    }
    resource.mark_status(&mut marked, &seconds(now));
    Some(marked)
}

/// Changes the finalizers if they are others; their order alone is no change.
fn set_finalizers(object: &mut Value, wanted: &[String]) {
    let present = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let present: BTreeSet<&str> = present.filter_map(Value::as_str).collect();
    if present == wanted.iter().map(String::as_str).collect() {
        return;
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if wanted.is_empty() {
        metadata.shift_remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(wanted));
    }
}
