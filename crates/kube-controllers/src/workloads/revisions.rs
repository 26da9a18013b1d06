//! Former templates, kept for rollbacks.

use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Meta, Plan, Selector, View, World, Write};
use serde_json::{Map, Value, json};

use super::claim::ClaimedObjects;
use super::{template, writes};
use crate::view::ControllerRevision;

/// The revisions of one owner, the latest last.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    pub(super) claim: ClaimedObjects<ControllerRevision>,
}

/// The revision of the current template.
#[derive(Debug)]
pub(super) enum CurrentRevision<'a> {
    /// The latest one.
    Latest(&'a Arc<ControllerRevision>),
    /// An earlier one, which becomes the latest.
    Earlier(&'a Arc<ControllerRevision>),
    /// None yet.
    None,
}

impl Revisions {
    /// Returns the revisions that belong to `owner`.
    pub(super) fn of<O: View>(world: &World, owner: &Meta, selector: &Selector) -> Self {
        let shelf = world.store::<ControllerRevision>();
        let mut orphans = shelf.in_namespace(&owner.namespace);
        orphans.retain(|it| it.metadata.controller().is_none());
        let means =
            |it: &ControllerRevision| !selector.is_empty() && selector.matches(&it.metadata.labels);
        let mut claim = ClaimedObjects::of::<O>(owner, means, shelf.owned_by(&owner.uid), orphans);
        claim.owned.sort_by_cached_key(|it| {
            (it.revision, it.metadata.creation_timestamp, it.metadata.name.clone())
        });
        Self { claim }
    }

    /// Returns all revisions, the latest last.
    pub(super) fn all(&self) -> &[Arc<ControllerRevision>] {
        &self.claim.owned
    }

    /// Returns the revision of a template.
    pub(super) fn current(&self, template: &Value) -> CurrentRevision<'_> {
        let all = self.all();
        let same = |it: &&Arc<ControllerRevision>| {
            template::is_same_template(&restored_template(it), template)
        };
        match all.iter().rfind(same) {
            None => CurrentRevision::None,
            Some(found) if all.last().is_some_and(|last| Arc::ptr_eq(last, found)) => {
                CurrentRevision::Latest(found)
            }
            Some(found) => CurrentRevision::Earlier(found),
        }
    }

    /// Returns the number of the next revision.
    pub(super) fn next_revision(&self) -> i64 {
        self.all().last().map_or(0, |it| it.revision).saturating_add(1)
    }

    /// Makes an earlier revision the latest.
    pub(super) fn promote(&self, revision: &ControllerRevision) -> Write {
        let body = json!({"revision": self.next_revision()});
        writes::patch::<ControllerRevision>(&revision.metadata, body)
    }

    /// Deletes revisions beyond the limit, the earliest first, but none of those that are `live`.
    pub(super) fn delete_excess(
        &self,
        limit: Option<i64>,
        live: impl Fn(&ControllerRevision) -> bool,
        plan: &mut Plan,
    ) {
        let Some(limit) = limit.and_then(|it| usize::try_from(it).ok()) else { return };
        let old = self.all().iter().filter(|it| !live(it) && !it.metadata.is_terminating());
        let old: Vec<&Arc<ControllerRevision>> = old.collect();
        for revision in old.iter().take(old.len().saturating_sub(limit)) {
            plan.write(writes::delete::<ControllerRevision>(&revision.metadata));
        }
    }
}

/// Returns the template of a revision.
pub(super) fn restored_template(revision: &ControllerRevision) -> Value {
    let mut template = revision.data["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// Creates a revision of the current template, with the labels of the template and `label`.
pub(super) fn create_revision<O: View>(
    owner: &Meta,
    template: &Value,
    (label, hash): (&str, &str),
    revision: i64,
) -> Write {
    let labels = template::with_label(template["metadata"].get("labels"), label, hash);
    let mut metadata = json!({
        "name": revision_name(owner, hash),
        "namespace": owner.namespace,
        "labels": labels,
        "ownerReferences": [controller_reference(&O::RESOURCE, owner)],
    });
    if !owner.annotations.is_empty() {
        metadata["annotations"] = json!(owner.annotations);
    }
    let mut kept = Map::new();
    kept.insert("$patch".to_owned(), json!("replace"));
    kept.extend(template.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    // Clients compare this byte by byte with their own, in order of names.
    let data = template::sorted(&json!({"spec": {"template": kept}}));
    writes::create::<ControllerRevision>(json!({
        "apiVersion": ControllerRevision::RESOURCE.api_version(),
        "kind": ControllerRevision::RESOURCE.kind,
        "metadata": metadata,
        "data": data,
        "revision": revision,
    }))
}

/// Returns the name of an owner's revision with this hash.
pub(super) fn revision_name(owner: &Meta, hash: &str) -> String {
    /// The most characters of the owner's name in that of a revision.
    const MAX_OWNER_NAME_LENGTH: usize = 223;
    let base = owner.name.get(..MAX_OWNER_NAME_LENGTH).unwrap_or(&owner.name);
    format!("{base}-{hash}")
}
