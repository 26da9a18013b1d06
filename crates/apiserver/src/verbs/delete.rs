//! Deletes objects: at once, after a grace period, or when no finalizer holds them any longer.

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use gantry_kinds::behaviour::Propagation;
use gantry_kinds::deletion;
use gantry_schema::FieldError;
use gantry_store::Precondition;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::access::Caller;
use crate::admission::{Operation, Review};
use crate::api::{Api, Entry, ResourceRequest};
use crate::request::body::Body;
use crate::request::decode;
use crate::request::negotiate;
use crate::request::query::{Query, dry_run_list_error};
use crate::resource::Resource;
use crate::response;
use crate::response::pagination::ListOptions;
use crate::response::render::{self, Rendering};
use crate::response::status::{StatusError, success};
use crate::verbs::write::{can_be_removed, format_seconds, meta};

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// The grace period in seconds; `None` uses the object's own.
    pub(crate) grace: Option<i64>,
    /// Only the object with this UID.
    pub(crate) uid: Option<String>,
    /// Only the object at this revision.
    pub(crate) revision: Option<String>,
    /// What happens to dependents; `None` uses the default of the kind.
    pub(crate) policy: Option<Propagation>,
    /// Do everything but delete.
    pub(crate) dry_run: bool,
    /// It is deleted as part of a collection, not by name.
    pub(crate) in_collection: bool,
    /// All of the above as the request gave it, for admission.
    pub(crate) raw: Map<String, Value>,
}

impl DeleteOptions {
    /// Deletes in the background, if it is still this object.
    pub(crate) fn for_uid(uid: &str, policy: Propagation) -> Self {
        Self { uid: Some(uid.to_owned()), policy: Some(policy), ..Self::default() }
    }

    /// Reads the options from the body, or from the parameters if there is none: as in Kubernetes,
    /// parameters are ignored when there is a body.
    fn read(ask: &ResourceRequest) -> Result<Self, StatusError> {
        let body = if ask.body.iter().all(u8::is_ascii_whitespace) {
            Value::Null
        } else {
            let content = negotiate::content(&ask.headers, false)?;
            decode::tree(content, &ask.body, "DeleteOptions")?.0
        };
        Self::from_parts(ask, &body)
    }

    fn from_parts(ask: &ResourceRequest, body: &Value) -> Result<Self, StatusError> {
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
            faults.push(FieldError::invalid("propagationPolicy", &value, why));
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
                faults.push(FieldError::not_supported("propagationPolicy", &value, &supported));
                None
            }
        };
        let values: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        faults.extend(dry_run_list_error(&values));
        if !faults.is_empty() {
            return Err(StatusError::invalid_options("DeleteOptions", &faults));
        }
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self {
            grace,
            uid: precondition("uid"),
            revision: precondition("resourceVersion"),
            policy,
            dry_run: !values.is_empty(),
            in_collection: false,
            raw: raw_options(body, query)?,
        })
    }
}

/// Returns the given options of a deletion as an object, from the body or else from parameters.
fn raw_options(body: &Value, query: &Query) -> Result<Map<String, Value>, StatusError> {
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

/// A deletion: which object, by which caller, and how.
#[derive(Debug)]
pub(crate) struct DeletionRequest<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) options: &'a DeleteOptions,
    /// The caller; `None` if the deletion skips admission.
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) now: Timestamp,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum DeletionOutcome {
    /// It has a deletion timestamp and waits.
    Terminating(Arc<Entry>),
    /// It is deleted; this was its last state.
    Removed(Value),
    /// The dry run of setting a deletion timestamp.
    DryRunMarked(Value),
}

impl Api {
    /// `DELETE` of an object.
    pub(crate) async fn delete(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        let options = DeleteOptions::read(&ask)?;
        let Resource { group, plural, .. } = &*ask.resource;
        let warning = deletion::propagation_warning(group, plural, options.policy);
        let mut removal = DeletionRequest {
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
            DeletionOutcome::Terminating(entry) => {
                render::object(&ask, StatusCode::OK, &Rendering::Entry(&entry))?
            }
            DeletionOutcome::DryRunMarked(tree) => {
                render::object(&ask, StatusCode::OK, &Rendering::Tree(&tree))?
            }
            DeletionOutcome::Removed(tree) if ask.resource.delete_returns_object() => {
                render::object(&ask, StatusCode::OK, &Rendering::Tree(&tree))?
            }
            DeletionOutcome::Removed(tree) => {
                let status = success(group, plural, &ask.target.name, meta(&tree, "uid"));
                response::document(StatusCode::OK, ask.style, &status)
            }
        };
        response::add_warnings(&mut response, &warnings);
        Ok(response)
    }

    /// Deletes one object, or sets its deletion timestamp.
    pub(crate) async fn delete_object(
        &self,
        removal: &mut DeletionRequest<'_>,
    ) -> Result<DeletionOutcome, StatusError> {
        let DeletionRequest { resource, namespace, name, options, now, .. } = *removal;
        loop {
            let Some(entry) = self.stored_entry(resource, namespace, name) else {
                return Err(StatusError::not_found(&resource.group, &resource.plural, name));
            };
            let stored = entry;
            let entry = self.converted_entry(resource, Arc::clone(&stored)).await?;
            let live = resource.tree(&entry);
            check_preconditions(resource, &live, options)?;
            let marked = mark_deleting(resource, &live, options, now);
            if marked.as_ref() == Some(&live) && !can_be_removed(&live) {
                return Ok(DeletionOutcome::Terminating(entry));
            }
            self.admit_deletion(removal, &live).await?;
            let key = resource.key(namespace, name);
            let expect = Precondition::Revision(entry.revision);
            let done = match marked {
                Some(marked) if !can_be_removed(&marked) => {
                    if options.dry_run {
                        return Ok(DeletionOutcome::DryRunMarked(marked));
                    }
                    let stored = self.to_storage_version(resource, &marked).await?;
                    let put = self.put(resource, key, expect, &stored).await?;
                    match put {
                        Some(entry) => {
                            self.after_mark_deleting(resource, &marked, entry.revision);
                            Some(DeletionOutcome::Terminating(
                                self.converted_entry(resource, entry).await?,
                            ))
                        }
                        None => None,
                    }
                }
                gone => {
                    let mut last = gone.unwrap_or_else(|| live.clone());
                    if options.dry_run {
                        return Ok(DeletionOutcome::Removed(last));
                    }
                    let stored = resource.final_stored_state(&stored, &live);
                    let removed = self.remove(resource, key, expect, &stored).await?;
                    removed.map(|entry| {
                        last["metadata"]["resourceVersion"] =
                            json!(entry.revision.get().to_string());
                        DeletionOutcome::Removed(last)
                    })
                }
            };
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// Runs admission for a deletion.
    async fn admit_deletion(
        &self,
        removal: &mut DeletionRequest<'_>,
        live: &Value,
    ) -> Result<(), StatusError> {
        let Some(caller) = removal.caller else { return Ok(()) };
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        for (name, value) in &removal.options.raw {
            options[name] = value.clone();
        }
        let review_namespace = removal.resource.strategy.review_namespace;
        let mut review = Review {
            operation: Operation::Delete,
            resource: removal.resource,
            subresource: "",
            name: if removal.options.in_collection { "" } else { removal.name },
            namespace: review_namespace.of(removal.namespace, removal.name),
            caller,
            dry_run: removal.options.dry_run,
            options: &options,
            old: Some(live),
            warnings: Vec::new(),
            reservation: None,
        };
        let outcome = self.review_deletion(&mut review).await;
        removal.warnings.extend(review.warnings);
        outcome
    }

    /// `DELETE` of a collection.
    pub(crate) async fn delete_collection(
        &self,
        ask: ResourceRequest,
    ) -> Result<Response<Body>, StatusError> {
        let options = DeleteOptions { in_collection: true, ..DeleteOptions::read(&ask)? };
        let list = ListOptions::read(&ask.query, false)?;
        ask.resource.check_fields(&list.fields)?;
        let page = self.page(&ask.resource, &ask.target.namespace, list).await?;
        let custom = ask.resource.custom().is_some();
        let mut items = Vec::new();
        let mut warnings = Vec::new();
        for entry in page.entries() {
            let metadata = entry.extra.metadata(&entry.value);
            let mut removal = DeletionRequest {
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
                // Another caller deleted it first, which is fine.
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
        let mut response = response::document(StatusCode::OK, ask.style, &list);
        response::add_warnings(&mut response, &warnings);
        Ok(response)
    }
}

fn check_preconditions(
    resource: &Resource,
    live: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let Resource { group, kind, .. } = resource;
    let refuse = |why: &str| Err(StatusError::conflict(group, kind, meta(live, "name"), why));
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

/// Returns the object with its deletion timestamp; `None` when it can be deleted at once.
fn mark_deleting(
    resource: &Resource,
    live: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Option<Value> {
    let mut marked = live.clone();
    let policy = deletion::propagation_policy(live, options.policy, resource.behaviour());
    set_finalizers(&mut marked, &deletion::finalizers_for_policy(live, policy));
    let grace = resource.grace_period(live, options.grace);
    let metadata = live["metadata"].as_object()?;
    if let Some(already) = metadata.get("deletionTimestamp").and_then(Value::as_str) {
        let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let before = before.unwrap_or(0);
        // A second request can only shorten the grace period.
        if let Some(grace) = grace.filter(|grace| *grace < before) {
            let base: Timestamp = already.parse().unwrap_or(now);
            let end = base - SignedDuration::from_secs(before) + SignedDuration::from_secs(grace);
            let end = end.max(now);
            marked["metadata"]["deletionTimestamp"] = json!(format_seconds(end));
            marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        return Some(marked);
    }
    let termination = resource.strategy.termination;
    let held = marked["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        || termination.holds(&marked);
    let graceful = grace.is_some();
    let grace = grace.unwrap_or(0);
    if grace == 0 && !held && !graceful {
        return None;
    }
    let end = now + SignedDuration::from_secs(grace);
    let generation = marked["metadata"]["generation"].as_i64().unwrap_or(0);
    let metadata = marked["metadata"].as_object_mut()?;
    metadata.insert("deletionTimestamp".to_owned(), json!(format_seconds(end)));
    if resource.records_grace_period() {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    }
    if generation > 0 && termination.bumps_generation() {
        metadata.insert("generation".to_owned(), json!(generation + 1));
    }
    termination.mark(&mut marked, &format_seconds(now));
    Some(marked)
}

/// Changes the finalizers if they differ; a different order alone is not a change.
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
