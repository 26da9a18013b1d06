//! Former templates, kept for going back to them.

use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Meta, Plan, Selector, View, World, Write};
use serde_json::{Map, Value, json};

use super::claim::Claim;
use super::{template, writes};
use crate::view::ControllerRevision;

/// The templates of one owner, the latest last.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    pub(super) claim: Claim<ControllerRevision>,
}

/// Which revision stands for the present template.
#[derive(Debug)]
pub(super) enum Present<'a> {
    /// The latest one.
    Latest(&'a Arc<ControllerRevision>),
    /// An earlier one, which becomes the latest.
    Earlier(&'a Arc<ControllerRevision>),
    /// None yet.
    None,
}

impl Revisions {
    /// The revisions that belong to `owner`.
    pub(super) fn of<O: View>(world: &World, owner: &Meta, selector: &Selector) -> Self {
        let shelf = world.shelf::<ControllerRevision>();
        let mut orphans = shelf.within(&owner.namespace);
        orphans.retain(|it| it.metadata.controller().is_none());
        let means =
            |it: &ControllerRevision| !selector.is_empty() && selector.matches(&it.metadata.labels);
        let mut claim = Claim::of::<O>(owner, means, shelf.owned_by(&owner.uid), orphans);
        claim.mine.sort_by_cached_key(|it| {
            (it.revision, it.metadata.creation_timestamp, it.metadata.name.clone())
        });
        Self { claim }
    }

    /// All of them, the latest last.
    pub(super) fn all(&self) -> &[Arc<ControllerRevision>] {
        &self.claim.mine
    }

    /// The revision of a template.
    pub(super) fn present(&self, template: &Value) -> Present<'_> {
        let all = self.all();
        let same = |it: &&Arc<ControllerRevision>| template::same(&restored(it), template);
        match all.iter().rfind(same) {
            None => Present::None,
            Some(found) if all.last().is_some_and(|last| Arc::ptr_eq(last, found)) => {
                Present::Latest(found)
            }
            Some(found) => Present::Earlier(found),
        }
    }

    /// The number of the next template.
    pub(super) fn next(&self) -> i64 {
        self.all().last().map_or(0, |it| it.revision).saturating_add(1)
    }

    /// Makes an earlier revision the latest.
    pub(super) fn renew(&self, revision: &ControllerRevision) -> Write {
        let body = json!({"revision": self.next()});
        writes::change::<ControllerRevision>(&revision.metadata, body)
    }

    /// Removes what is over the limit, the earliest first, but none of those that are `live`.
    pub(super) fn forget(
        &self,
        limit: Option<i64>,
        live: impl Fn(&ControllerRevision) -> bool,
        plan: &mut Plan,
    ) {
        let Some(limit) = limit.and_then(|it| usize::try_from(it).ok()) else { return };
        let old = self.all().iter().filter(|it| !live(it) && !it.metadata.is_going());
        let old: Vec<&Arc<ControllerRevision>> = old.collect();
        for revision in old.iter().take(old.len().saturating_sub(limit)) {
            plan.write(writes::delete::<ControllerRevision>(&revision.metadata));
        }
    }
}

/// The template a revision keeps.
pub(super) fn restored(revision: &ControllerRevision) -> Value {
    let mut template = revision.data["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// Makes a revision of the present template, which is labelled as the template is, and with `label`.
pub(super) fn make<O: View>(
    owner: &Meta,
    template: &Value,
    (label, hash): (&str, &str),
    revision: i64,
) -> Write {
    let labels = template::with_label(template["metadata"].get("labels"), label, hash);
    let mut metadata = json!({
        "name": name(owner, hash),
        "namespace": owner.namespace,
        "labels": labels,
        "ownerReferences": [controlled_by(&O::RESOURCE, owner)],
    });
    if !owner.annotations.is_empty() {
        metadata["annotations"] = json!(owner.annotations);
    }
    let mut kept = Map::new();
    kept.insert("$patch".to_owned(), json!("replace"));
    kept.extend(template.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    // Clients compare this byte by byte with what they write themselves, in order of names.
    let data = template::sorted(&json!({"spec": {"template": kept}}));
    writes::create::<ControllerRevision>(json!({
        "apiVersion": ControllerRevision::RESOURCE.api_version(),
        "kind": ControllerRevision::RESOURCE.kind,
        "metadata": metadata,
        "data": data,
        "revision": revision,
    }))
}

/// The name of an owner's revision with this hash.
pub(super) fn name(owner: &Meta, hash: &str) -> String {
    /// What is left of the longest name for the owner's.
    const ROOM: usize = 223;
    let base = owner.name.get(..ROOM).unwrap_or(&owner.name);
    format!("{base}-{hash}")
}
