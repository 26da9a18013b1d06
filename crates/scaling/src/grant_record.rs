//! The grant record: one ConfigMap with an entry for each job that has nodes or is to get some.
//!
//! Nothing is bought that is not recorded here, and no entry is removed before its nodes are
//! released. Every change is fenced by the revision it was made from, so the sum of all entries is
//! what one process observed when it added to it, and never more than is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Key, Subresource, View as _, World, Write};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::demand::Demand;
use crate::owner_labels::OwnerLabels;
use crate::view::ConfigMap;

/// What was granted to one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The identifier of the grant.
    pub id: String,
    /// The UID of the job.
    pub uid: String,
    /// When it was granted.
    pub since: Timestamp,
    /// What is to be bought, and where.
    pub lots: Vec<NodeAllocation>,
    /// Since when the job is over, while its nodes are kept for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Timestamp>,
    /// The former owner, whose labels the nodes have that were handed over to this job, until they
    /// have its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FormerOwner>,
}

/// A job that handed its nodes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerOwner {
    /// Its namespace and name.
    pub job: String,
    /// The identifier of its grant.
    pub id: String,
}

/// Some nodes of one type from one source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeAllocation {
    /// The type.
    pub instance: String,
    /// How many.
    pub count: u32,
    /// The source: a MachineSet, a pool, a group.
    pub place: String,
}

impl Grant {
    /// Returns the total number of nodes.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.lots.iter().fold(0, |sum, lot| sum.saturating_add(lot.count))
    }

    /// Returns the nodes by type.
    #[must_use]
    pub fn nodes(&self) -> BTreeMap<String, u32> {
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        for lot in &self.lots {
            let sum = nodes.entry(lot.instance.clone()).or_default();
            *sum = sum.saturating_add(lot.count);
        }
        nodes
    }

    /// Returns whether it is exactly what is needed.
    #[must_use]
    pub fn satisfies(&self, demand: &Demand) -> bool {
        Demand::new(self.nodes()).as_ref() == Some(demand)
    }

    /// Returns how many nodes come from a source.
    #[must_use]
    pub fn count_from(&self, place: &str) -> u32 {
        let lots = self.lots.iter().filter(|lot| lot.place == place);
        lots.fold(0, |sum, lot| sum.saturating_add(lot.count))
    }

    /// Returns the job that handed its nodes over.
    #[must_use]
    pub fn former(&self) -> Option<Key> {
        crate::owner_labels::parse_owner(&self.from.as_ref()?.job)
    }
}

/// All grants.
#[derive(Clone, Debug)]
pub struct GrantRecord {
    config_map: Key,
    object: Option<Arc<ConfigMap>>,
    grants: BTreeMap<Key, Grant>,
}

/// Why the grant record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRecordError {
    /// The ConfigMap cannot be read.
    #[error("cannot read ConfigMap {0}")]
    Unreadable(Key),
    /// An entry cannot be read.
    #[error("cannot read entry {entry:?} of ConfigMap {place}: {why}")]
    InvalidEntry {
        /// The ConfigMap.
        place: Key,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
}

impl GrantRecord {
    /// Returns the grant record as last observed; empty if it does not exist yet.
    ///
    /// # Errors
    /// Fails if a part of it cannot be read. Then it is unknown what was granted, and nothing may
    /// be granted.
    pub fn read(world: &World, place: &Key) -> Result<Self, GrantRecordError> {
        let store = world.store::<ConfigMap>();
        if store.is_unreadable(place) {
            return Err(GrantRecordError::Unreadable(place.clone()));
        }
        let object = store.get(place);
        let mut grants = BTreeMap::new();
        for (entry, text) in object.iter().flat_map(|it| &it.data) {
            let wrong = |why: String| GrantRecordError::InvalidEntry {
                place: place.clone(),
                entry: entry.clone(),
                why,
            };
            let job = parse_entry_name(entry).ok_or_else(|| wrong("it names no job".to_owned()))?;
            let grant = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            grants.insert(job, grant);
        }
        Ok(Self { config_map: place.clone(), object, grants })
    }

    /// Returns the key of the ConfigMap.
    #[must_use]
    pub fn config_map_key(&self) -> &Key {
        &self.config_map
    }

    /// Returns what was granted to a job.
    #[must_use]
    pub fn get(&self, job: &Key) -> Option<&Grant> {
        self.grants.get(job)
    }

    /// Returns the jobs that a version of the grant record has entries for; none if it is another
    /// object.
    #[must_use]
    pub fn jobs_in(&self, object: &ConfigMap) -> Vec<Key> {
        let entries = object.data.keys().filter(|_| object.metadata.key() == self.config_map);
        entries.filter_map(|entry| parse_entry_name(entry)).collect()
    }

    /// Returns all grants, in order of the jobs' names.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Grant)> {
        self.grants.iter()
    }

    /// Returns how many nodes were granted in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.grants.values().fold(0, |sum, grant| sum.saturating_add(grant.total()))
    }

    /// Returns how many nodes were granted from one source.
    #[must_use]
    pub fn granted_from(&self, place: &str) -> u32 {
        let all = self.grants.values().map(|grant| grant.count_from(place));
        all.fold(0, u32::saturating_add)
    }

    /// Returns another job that has, or had until just now, the same owner labels as this one:
    /// `a-b` in `c` and `a` in `b-c`.
    #[must_use]
    pub fn conflicting_job(&self, job: &Key) -> Option<Key> {
        let mine = OwnerLabels::of(job).owner_label;
        let holders = self.grants.iter().flat_map(|(holder, grant)| {
            let former = grant.former().filter(|_| holder != job);
            [(holder != job).then(|| holder.clone()), former]
        });
        holders.flatten().find(|holder| OwnerLabels::of(holder).owner_label == mine)
    }

    /// Returns whether the nodes with a job's labels were handed over to another.
    #[must_use]
    pub fn was_handed_over(&self, job: &Key) -> bool {
        self.grants.values().any(|grant| grant.former().as_ref() == Some(job))
    }

    /// Returns the write that sets entries, and removes those that are `None`.
    #[must_use]
    pub fn write(&self, entries: &[(&Key, Option<&Grant>)]) -> Write {
        let text = |grant: &Grant| Value::from(json!(grant).to_string());
        let data =
            entries.iter().map(|(job, grant)| (entry_name(job), grant.map_or(Value::Null, text)));
        let data: serde_json::Map<String, Value> = data.collect();
        match &self.object {
            Some(object) => Write::Merge {
                resource: ConfigMap::RESOURCE,
                key: self.config_map.clone(),
                subresource: Subresource::Main,
                fence: object.metadata.fence(),
                body: json!({ "data": data }),
            },
            None => {
                let kept: serde_json::Map<String, Value> =
                    data.into_iter().filter(|(_, grant)| !grant.is_null()).collect();
                Write::Create {
                    resource: ConfigMap::RESOURCE,
                    body: json!({
                        "metadata": {
                            "namespace": self.config_map.namespace(),
                            "name": self.config_map.name(),
                        },
                        "data": kept,
                    }),
                }
            }
        }
    }
}

/// Returns the name of a job's entry. No namespace has a dot, so it can be parsed again.
fn entry_name(job: &Key) -> String {
    format!("{}.{}", job.namespace(), job.name())
}

fn parse_entry_name(entry: &str) -> Option<Key> {
    let (namespace, name) = entry.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| Key::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::Kind;
    use serde_json::json;

    use super::*;

    fn world(data: &Value) -> World {
        let world = World::new([Kind::of::<ConfigMap>()]);
        let object = json!({
            "metadata": {"namespace": "gantry", "name": "ledger", "uid": "u", "resourceVersion": "3"},
            "data": data,
        });
        let _ = world.single_store_for(&ConfigMap::RESOURCE).unwrap().observe(&object.to_string());
        world
    }

    fn place() -> Key {
        Key::new("gantry", "ledger")
    }

    fn grant(count: u32) -> Grant {
        Grant {
            id: "g".to_owned(),
            uid: "u".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            lots: vec![NodeAllocation { instance: "a".to_owned(), count, place: "p".to_owned() }],
            over: None,
            from: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let empty = GrantRecord::read(&World::new([Kind::of::<ConfigMap>()]), &place()).unwrap();
        assert_eq!(empty.total(), 0);
        let (one, two) = (Key::new("n", "a.b"), Key::new("m", "gone"));
        let Write::Create { body, .. } = empty.write(&[(&one, Some(&grant(2))), (&two, None)])
        else {
            panic!("there is nothing to change yet");
        };
        let ledger = GrantRecord::read(&world(&body["data"]), &place()).unwrap();
        assert_eq!(ledger.get(&one), Some(&grant(2)));
        assert_eq!((ledger.total(), ledger.granted_from("p"), ledger.granted_from("q")), (2, 2, 0));
        let Write::Merge { body, fence, .. } = ledger.write(&[(&one, None)]) else {
            panic!("it is there");
        };
        assert_eq!(body, json!({"data": {"n.a.b": null}}));
        assert_eq!(fence.revision, Some(gantry_reconcile::Revision(3)));
    }

    #[test]
    fn an_unreadable_grant_record_is_not_empty() {
        let table =
            [json!({"n.a": "{"}), json!({"a": "{}"}), json!({"n.a": "{\"id\": 1}"}), json!(7)];
        for data in table {
            assert!(GrantRecord::read(&world(&data), &place()).is_err(), "{data}");
        }
    }

    #[test]
    fn jobs_with_the_same_labels_conflict() {
        let mut handed = grant(1);
        handed.from = Some(FormerOwner { job: "c-d/x".to_owned(), id: "f".to_owned() });
        let data = json!({
            "c.a-b": json!(grant(1)).to_string(),
            "n.other": json!(handed).to_string(),
        });
        let ledger = GrantRecord::read(&world(&data), &place()).unwrap();
        assert_eq!(ledger.conflicting_job(&Key::new("b-c", "a")), Some(Key::new("c", "a-b")));
        assert_eq!(ledger.conflicting_job(&Key::new("c", "a-b")), None, "it is no rival of itself");
        assert_eq!(ledger.conflicting_job(&Key::new("d", "x-c")), Some(Key::new("c-d", "x")));
        assert_eq!(ledger.conflicting_job(&Key::new("n", "free")), None);
        assert!(ledger.was_handed_over(&Key::new("c-d", "x")));
    }
}
