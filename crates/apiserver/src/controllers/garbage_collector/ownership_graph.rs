//! Which objects name which owners, and which of them have to be processed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use gantry_store::Revision;
use serde_json::Value;
use tokio::sync::Notify;

use crate::resource::stored::Metadata;

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) space: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The ownership graph, and the objects that have to be processed.
#[derive(Debug, Default)]
pub(crate) struct OwnershipGraph {
    state: Mutex<State>,
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    dependents: HashMap<String, BTreeSet<ObjectKey>>,
    owners: HashMap<ObjectKey, KnownOwners>,
    pending: BTreeSet<ObjectKey>,
}

/// The owners of an object, and the revision of the object that named them.
#[derive(Debug)]
struct KnownOwners {
    revision: Revision,
    uids: Vec<String>,
}

impl OwnershipGraph {
    /// Observes the state of an object at a revision.
    ///
    /// Requests and the first pass over the store observe concurrently, so an older state may come
    /// later. It must not remove the edges of a newer one: a dependent that is not found neither
    /// blocks the deletion of its owner nor is deleted after it.
    pub(crate) fn observe(&self, space: &str, metadata: &Metadata, revision: Revision) {
        let place = ObjectKey {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let owned = !metadata.owner_references.is_empty();
        let policy = ["foregroundDeletion", "orphan"];
        let waits = metadata.deletion_timestamp.is_some()
            && metadata.finalizers.iter().any(|it| policy.contains(&it.as_str()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.owners.get(&place);
        if !owned && !waits && known.is_none() {
            return;
        }
        if known.is_some_and(|it| it.revision > revision) {
            return;
        }
        state.remove(&place);
        if owned {
            let uids: Vec<String> =
                metadata.owner_references.iter().map(|owner| owner.uid.clone()).collect();
            for uid in &uids {
                state.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            state.owners.insert(place.clone(), KnownOwners { revision, uids });
        }
        state.pending.insert(place);
        drop(state);
        self.wake.notify_one();
    }

    /// Whether an object is relevant here: it has owners, had some, or is being deleted.
    pub(crate) fn is_relevant(&self, space: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if metadata["ownerReferences"].is_array() || metadata["deletionTimestamp"].is_string() {
            return true;
        }
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let place = ObjectKey { space: space.to_owned(), namespace, name };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).owners.contains_key(&place)
    }

    /// Observes that an object is deleted; enqueues its dependents and owners that waited for it.
    pub(crate) fn observe_deleted(&self, space: &str, metadata: &Metadata) {
        let place = ObjectKey {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_owners = state.owners.contains_key(&place);
        state.remove(&place);
        let dependents = state.dependents.get(&metadata.uid).cloned().unwrap_or_default();
        if dependents.is_empty() && !has_owners {
            return;
        }
        state.pending.extend(dependents);
        // Owners that wait for it are found by the owner references of the deleted object.
        for owner in &metadata.owner_references {
            state.pending.insert(ObjectKey {
                space: format!("?{}/{}", owner.api_version, owner.kind),
                namespace: metadata.namespace.clone(),
                name: owner.name.clone(),
            });
        }
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.dependents.get(uid).map(|it| it.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn pop(&self) -> Option<ObjectKey> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.pop_first()
    }

    pub(super) fn requeue(&self, place: ObjectKey) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.insert(place);
    }
}

impl State {
    fn remove(&mut self, place: &ObjectKey) {
        for uid in self.owners.remove(place).map(|it| it.uids).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_older_state_that_is_observed_later_removes_no_edge() {
        let map = |owners: Value| {
            let object = json!({"metadata": {"name": "c", "uid": "c", "ownerReferences": owners}});
            Metadata::of(&object)
        };
        let owned = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "b"}]);
        let (created, owned) = (map(json!([])), map(owned));
        let graph = OwnershipGraph::default();
        graph.observe("configmaps", &owned, Revision::new(5));
        graph.observe("configmaps", &created, Revision::new(4));
        assert_eq!(graph.dependents("b").len(), 1);
        graph.observe("configmaps", &created, Revision::new(6));
        assert_eq!(graph.dependents("b").len(), 0);
    }
}
