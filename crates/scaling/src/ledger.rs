//! What was granted: one ConfigMap, an entry for each job that has nodes or is to get some.
//!
//! Nothing is bought that is not in here, and nothing leaves it before it is given back. Every change
//! is fenced by the revision it was made from, so the sum of all entries is what one process saw when
//! it added to it, and never more than is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Key, Part, View as _, World, Write};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::demand::Demand;
use crate::marks::Marks;
use crate::view::ConfigMap;

/// What was granted to one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What the grant is known by.
    pub id: String,
    /// Which of all jobs with that name.
    pub uid: String,
    /// When it was granted.
    pub since: Timestamp,
    /// What is to be bought, and where.
    pub lots: Vec<Lot>,
    /// Since when the job is over, while its nodes are kept for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Timestamp>,
    /// Whose marks the nodes bear that were handed over to this job, until they bear its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Former>,
}

/// A job that handed its nodes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Its namespace and name.
    pub job: String,
    /// What its grant was known by.
    pub id: String,
}

/// Some nodes of one type from one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lot {
    /// The type.
    pub instance: String,
    /// How many.
    pub count: u32,
    /// Where they come from: a MachineSet, a pool, a group.
    pub place: String,
}

impl Grant {
    /// How many nodes in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.lots.iter().fold(0, |sum, lot| sum.saturating_add(lot.count))
    }

    /// The nodes by type.
    #[must_use]
    pub fn nodes(&self) -> BTreeMap<String, u32> {
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        for lot in &self.lots {
            let sum = nodes.entry(lot.instance.clone()).or_default();
            *sum = sum.saturating_add(lot.count);
        }
        nodes
    }

    /// Whether it is exactly what is needed.
    #[must_use]
    pub fn meets(&self, demand: &Demand) -> bool {
        Demand::new(self.nodes()).as_ref() == Some(demand)
    }

    /// How many nodes come from a place.
    #[must_use]
    pub fn at(&self, place: &str) -> u32 {
        let lots = self.lots.iter().filter(|lot| lot.place == place);
        lots.fold(0, |sum, lot| sum.saturating_add(lot.count))
    }

    /// The job that handed its nodes over.
    #[must_use]
    pub fn former(&self) -> Option<Key> {
        crate::marks::owner(&self.from.as_ref()?.job)
    }
}

/// All grants.
#[derive(Clone, Debug)]
pub struct Ledger {
    place: Key,
    object: Option<Arc<ConfigMap>>,
    grants: BTreeMap<Key, Grant>,
}

/// Why the ledger cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It is no ConfigMap that can be read.
    #[error("cannot read ConfigMap {0}")]
    Unreadable(Key),
    /// An entry cannot be read.
    #[error("cannot read entry {entry:?} of ConfigMap {place}: {why}")]
    Entry {
        /// The ConfigMap.
        place: Key,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Ledger {
    /// The ledger as it was last seen; empty if there is none yet.
    ///
    /// # Errors
    /// Some of it cannot be read. Then nothing is known about what was granted, and nothing may be.
    pub fn read(world: &World, place: &Key) -> Result<Self, LedgerError> {
        let shelf = world.shelf::<ConfigMap>();
        if shelf.is_unreadable(place) {
            return Err(LedgerError::Unreadable(place.clone()));
        }
        let object = shelf.get(place);
        let mut grants = BTreeMap::new();
        for (entry, text) in object.iter().flat_map(|it| &it.data) {
            let wrong = |why: String| LedgerError::Entry {
                place: place.clone(),
                entry: entry.clone(),
                why,
            };
            let job = job_of(entry).ok_or_else(|| wrong("it names no job".to_owned()))?;
            let grant = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            grants.insert(job, grant);
        }
        Ok(Self { place: place.clone(), object, grants })
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &Key {
        &self.place
    }

    /// What was granted to a job.
    #[must_use]
    pub fn get(&self, job: &Key) -> Option<&Grant> {
        self.grants.get(job)
    }

    /// The jobs that a copy of the ledger has entries for; none if it is another object.
    #[must_use]
    pub fn jobs_in(&self, object: &ConfigMap) -> Vec<Key> {
        let entries = object.data.keys().filter(|_| object.metadata.key() == self.place);
        entries.filter_map(|entry| job_of(entry)).collect()
    }

    /// All grants, in order of the jobs' names.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Grant)> {
        self.grants.iter()
    }

    /// How many nodes were granted in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.grants.values().fold(0, |sum, grant| sum.saturating_add(grant.total()))
    }

    /// How many nodes were granted from one place.
    #[must_use]
    pub fn at(&self, place: &str) -> u32 {
        let all = self.grants.values().map(|grant| grant.at(place));
        all.fold(0, u32::saturating_add)
    }

    /// Another job that has, or had until just now, the same marks as this one: `a-b` in `c` and `a` in
    /// `b-c`.
    #[must_use]
    pub fn rival(&self, job: &Key) -> Option<Key> {
        let mine = Marks::of(job).mine;
        let holders = self.grants.iter().flat_map(|(holder, grant)| {
            let former = grant.former().filter(|_| holder != job);
            [(holder != job).then(|| holder.clone()), former]
        });
        holders.flatten().find(|holder| Marks::of(holder).mine == mine)
    }

    /// Whether what bears a job's marks was handed over to another.
    #[must_use]
    pub fn handed_over(&self, job: &Key) -> bool {
        self.grants.values().any(|grant| grant.former().as_ref() == Some(job))
    }

    /// Writes entries, and takes away those that are `None`.
    #[must_use]
    pub fn write(&self, entries: &[(&Key, Option<&Grant>)]) -> Write {
        let text = |grant: &Grant| Value::from(json!(grant).to_string());
        let data =
            entries.iter().map(|(job, grant)| (entry_of(job), grant.map_or(Value::Null, text)));
        let data: serde_json::Map<String, Value> = data.collect();
        match &self.object {
            Some(object) => Write::Merge {
                resource: ConfigMap::RESOURCE,
                key: self.place.clone(),
                part: Part::Main,
                fence: object.metadata.fence(),
                body: json!({ "data": data }),
            },
            None => {
                let kept: serde_json::Map<String, Value> =
                    data.into_iter().filter(|(_, grant)| !grant.is_null()).collect();
                Write::Create {
                    resource: ConfigMap::RESOURCE,
                    body: json!({
                        "metadata": {"namespace": self.place.namespace(), "name": self.place.name()},
                        "data": kept,
                    }),
                }
            }
        }
    }
}

/// The name of a job's entry. No namespace has a dot, so it can be taken apart again.
fn entry_of(job: &Key) -> String {
    format!("{}.{}", job.namespace(), job.name())
}

fn job_of(entry: &str) -> Option<Key> {
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
        let _ = world.find(&ConfigMap::RESOURCE).unwrap().saw(&object.to_string());
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
            lots: vec![Lot { instance: "a".to_owned(), count, place: "p".to_owned() }],
            over: None,
            from: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let empty = Ledger::read(&World::new([Kind::of::<ConfigMap>()]), &place()).unwrap();
        assert_eq!(empty.total(), 0);
        let (one, two) = (Key::new("n", "a.b"), Key::new("m", "gone"));
        let Write::Create { body, .. } = empty.write(&[(&one, Some(&grant(2))), (&two, None)])
        else {
            panic!("there is nothing to change yet");
        };
        let ledger = Ledger::read(&world(&body["data"]), &place()).unwrap();
        assert_eq!(ledger.get(&one), Some(&grant(2)));
        assert_eq!((ledger.total(), ledger.at("p"), ledger.at("q")), (2, 2, 0));
        let Write::Merge { body, fence, .. } = ledger.write(&[(&one, None)]) else {
            panic!("it is there");
        };
        assert_eq!(body, json!({"data": {"n.a.b": null}}));
        assert_eq!(fence.revision, Some(gantry_reconcile::Revision(3)));
    }

    #[test]
    fn a_ledger_that_cannot_be_read_is_not_taken_for_empty() {
        let table =
            [json!({"n.a": "{"}), json!({"a": "{}"}), json!({"n.a": "{\"id\": 1}"}), json!(7)];
        for data in table {
            assert!(Ledger::read(&world(&data), &place()).is_err(), "{data}");
        }
    }

    #[test]
    fn jobs_with_the_same_marks_are_rivals() {
        let mut handed = grant(1);
        handed.from = Some(Former { job: "c-d/x".to_owned(), id: "f".to_owned() });
        let data = json!({
            "c.a-b": json!(grant(1)).to_string(),
            "n.other": json!(handed).to_string(),
        });
        let ledger = Ledger::read(&world(&data), &place()).unwrap();
        assert_eq!(ledger.rival(&Key::new("b-c", "a")), Some(Key::new("c", "a-b")));
        assert_eq!(ledger.rival(&Key::new("c", "a-b")), None, "it is no rival of itself");
        assert_eq!(ledger.rival(&Key::new("d", "x-c")), Some(Key::new("c-d", "x")));
        assert_eq!(ledger.rival(&Key::new("n", "free")), None);
        assert!(ledger.handed_over(&Key::new("c-d", "x")));
    }
}
