//! Definitions of custom kinds: accepted, served, and gone with their instances.
//!
//! A definition takes effect when it is stored: whoever gets the answer to its creation can use the
//! kind at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_openapi::Documents;
use gantry_store::Expect;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Entry};
use crate::custom::schemas::Schemas;
use crate::janitor::keep_transition;
use crate::parts::resource;
use crate::resource::{Registry, Resource};
use crate::rules::Part;
use crate::status::Refusal;
use crate::write::{meta, seconds};
use crate::{custom, openapi};

/// Where definitions are stored.
pub(crate) const SPACE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Holds a definition until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What is served because of definitions.
#[derive(Debug)]
pub(crate) struct Definitions {
    builtin: Vec<Arc<Resource>>,
    known: Mutex<Known>,
    schemas: Arc<Schemas>,
}

#[derive(Debug, Default)]
struct Known {
    /// The resources of each definition and the revision they were made from.
    made: HashMap<String, Made>,
    /// Which definitions, at which revisions, each described group version was made of.
    described: BTreeMap<(String, String), Vec<(String, u64)>>,
    epoch: u64,
}

/// What was made of a definition.
#[derive(Debug)]
struct Made {
    revision: u64,
    /// The definition as it is stored. Its tree takes several times as much memory, and is needed
    /// only when something changes.
    entry: Arc<Entry>,
    resources: Vec<Arc<Resource>>,
    /// How the server itself sees its instances, if not as one of its resources.
    keeper: Option<Arc<Resource>>,
    /// Ends the watches of its kind.
    ended: CancellationToken,
}

impl Made {
    /// Whether a new state of the definition is for clients the same kind as before.
    fn serves_like(&self, object: &Value) -> bool {
        let before: Value = serde_json::from_slice(&self.entry.value).unwrap_or_default();
        let same = |part: &str| before.pointer(part) == object.pointer(part);
        same("/spec") && same("/status/acceptedNames") && same("/metadata/uid")
    }
}

impl Definitions {
    pub(crate) fn new(builtin: Vec<Arc<Resource>>) -> Self {
        Self { builtin, known: Mutex::default(), schemas: Arc::default() }
    }

    /// What is served without any definition.
    pub(crate) fn base(&self) -> Registry {
        Registry::new(&self.builtin, &[])
    }

    /// Brings what is served in line with the stored definitions.
    pub(crate) fn refresh(&self, api: &Api) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let space = api.0.store.space(SPACE);
        let mut made = HashMap::new();
        for entry in space.iter() {
            let name = String::from_utf8_lossy(&entry.key).into_owned();
            let revision = entry.revision.get();
            let mut ended = CancellationToken::new();
            let object: Value = match known.made.remove(&name) {
                Some(before) if before.revision == revision => {
                    made.insert(name, before);
                    continue;
                }
                before => {
                    let object = serde_json::from_slice(&entry.value).unwrap_or_default();
                    match before {
                        Some(before) if before.serves_like(&object) => ended = before.ended,
                        Some(before) => before.ended.cancel(),
                        None => {}
                    }
                    object
                }
            };
            // Each version has an epoch of its own.
            let versions = object["spec"]["versions"].as_array().map_or(0, Vec::len);
            let epoch = known.epoch;
            known.epoch += u64::try_from(versions).unwrap_or(0) + 1;
            let custom::Served { versions, keeper } = if is_established(&object) {
                let (bytes, since) = (&entry.value, entry.created.get());
                let made = custom::resources(&object, bytes, since, epoch, &ended, &self.schemas);
                made.unwrap_or_else(|error| {
                    tracing::error!(definition = name, %error, "a definition is not served");
                    custom::Served::default()
                })
            } else {
                custom::Served::default()
            };
            let entry = Arc::clone(entry);
            made.insert(name, Made { revision, entry, resources: versions, keeper, ended });
        }
        for gone in known.made.values() {
            gone.ended.cancel();
        }
        known.made = made;
        let custom: Vec<Arc<Resource>> =
            known.made.values().flat_map(|made| &made.resources).cloned().collect();
        known.describe(&api.0.openapi);
        let keepers = known.made.values().filter_map(|made| made.keeper.clone());
        let registry = Registry::new(&self.builtin, &custom).with_keepers(keepers);
        api.0.registry.store(Arc::new(registry));
    }

    /// One view of the instances of a definition.
    pub(crate) fn instances_of(&self, _api: &Api, name: &str) -> Vec<Arc<Resource>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(made) = known.made.get(name) else { return Vec::new() };
        made.keeper.iter().chain(&made.resources).take(1).cloned().collect()
    }
}

impl Known {
    /// Brings the schemas of group versions in line with what is served.
    fn describe(&mut self, documents: &Documents) {
        let mut wanted: BTreeMap<(String, String), Vec<(String, u64)>> = BTreeMap::new();
        for (name, made) in &self.made {
            for resource in &made.resources {
                let place = (resource.group.clone(), resource.version.clone());
                wanted.entry(place).or_default().push((name.clone(), made.revision));
            }
        }
        wanted.values_mut().for_each(|sources| sources.sort());
        for (group, version) in self.described.keys().filter(|it| !wanted.contains_key(*it)) {
            documents.remove_custom(group, version);
        }
        for (place, sources) in &wanted {
            if self.described.get(place) != Some(sources) {
                let definitions = sources
                    .iter()
                    .filter_map(|(name, _)| self.made.get(name))
                    .map(|made| Arc::clone(&made.entry));
                openapi::describe(documents, &place.0, &place.1, definitions.collect());
            }
        }
        self.described = wanted;
    }
}

fn is_established(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

impl Api {
    /// Settles the names of all definitions of a group, and serves what is accepted.
    pub(crate) async fn settle_definitions(&self, group: &str) -> Result<(), Refusal> {
        let plural = "customresourcedefinitions";
        let Some(definitions) = resource(self, "apiextensions.k8s.io", "v1", plural) else {
            return Ok(());
        };
        loop {
            // All but their schemas, which are large and have nothing to do with names.
            let without_versions = |entry: &Arc<Entry>| {
                let mut object = definitions.tree(entry);
                object["spec"]["versions"] = json!([]);
                object["metadata"]["managedFields"] = json!([]);
                object
            };
            let entries: Vec<(Arc<Entry>, Value)> = self
                .0
                .store
                .space(SPACE)
                .iter()
                .map(|entry| (Arc::clone(entry), without_versions(entry)))
                .filter(|(_, object)| object["spec"]["group"] == group)
                .collect();
            let mut overtaken = false;
            for (entry, object) in &entries {
                let others: Vec<&Value> = entries
                    .iter()
                    .map(|(_, other)| other)
                    .filter(|other| meta(other, "name") != meta(object, "name"))
                    .collect();
                if self.settled(object, &others).is_none() {
                    continue;
                }
                let whole = definitions.tree(entry);
                let Some(settled) = self.settled(&whole, &others) else { continue };
                let key = meta(object, "name").to_owned();
                let stored = definitions.to_storage(&settled);
                let expect = Expect::Revision(entry.revision);
                overtaken |= self.put(&definitions, key, expect, &stored).await?.is_none();
            }
            if !overtaken {
                break;
            }
        }
        self.0.definitions.refresh(self);
        Ok(())
    }

    /// A definition with the names and conditions it should have; `None` when it has them.
    fn settled(&self, object: &Value, others: &[&Value]) -> Option<Value> {
        let now = seconds(self.now());
        let names = gantry_schema::accept_names(object, others.iter().copied());
        let mut settled = object.clone();
        settled["status"]["acceptedNames"] = names.accepted;
        let approval = gantry_schema::approval_condition(object);
        for condition in [Some(names.names_accepted), Some(names.established), approval] {
            let Some(condition) = condition else { continue };
            let status = if condition.status { "True" } else { "False" };
            let condition = json!({
                "type": condition.kind, "status": status,
                "reason": condition.reason, "message": condition.message,
            });
            keep_transition(object, &mut settled, condition, &now);
        }
        if settled["status"] == object["status"] {
            return None;
        }
        let definitions =
            resource(self, "apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
        let metadata = crate::stored::Metadata {
            name: meta(object, "name").to_owned(),
            ..crate::stored::Metadata::default()
        };
        let write = self.own_write(&definitions, &metadata, Part::Status);
        definitions.own(&write, Some(object), &mut settled);
        Some(settled)
    }
}

/// A definition that is asked to go waits for its instances.
pub(crate) fn mark(object: &mut Value, now: &str) {
    let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|it| it == CLEANUP) {
        let mut finalizers = finalizers;
        finalizers.push(json!(CLEANUP));
        object["metadata"]["finalizers"] = Value::Array(finalizers);
    }
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will \
                    begin soon",
        "lastTransitionTime": now,
    });
    crate::parts::set_condition(object, condition);
}
