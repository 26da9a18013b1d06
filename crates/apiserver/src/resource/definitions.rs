//! CustomResourceDefinitions: accepted, served, and deleted with their instances.
//!
//! A definition takes effect when it is stored: the kind can be used as soon as the create request
//! returns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_openapi::Documents;
use gantry_store::Precondition;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Entry};
use crate::controllers::termination_controller::set_condition_keeping_time;
use crate::resource::custom::schemas::SchemaCache;
use crate::resource::rules::WrittenSubresource;
use crate::resource::{Registry, Resource};
use crate::response::status::StatusError;
use crate::verbs::subresources::resource;
use crate::verbs::write::{format_seconds, meta};
use crate::{discovery::openapi, resource::custom};

/// The space in which definitions are stored.
const SPACE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The finalizer that holds a definition until its instances are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The resources that are served because of definitions.
#[derive(Debug)]
pub(crate) struct Definitions {
    builtin: Vec<Arc<Resource>>,
    served: Mutex<ServedDefinitions>,
    schemas: Arc<SchemaCache>,
}

#[derive(Debug, Default)]
struct ServedDefinitions {
    /// The resources of each definition and the revision they were made from.
    compiled: HashMap<String, CompiledDefinition>,
    /// The definitions and their revisions that the schema of each group version was made of.
    described: BTreeMap<(String, String), Vec<(String, u64)>>,
    epoch: u64,
}

/// The compiled state of a definition.
#[derive(Debug)]
struct CompiledDefinition {
    revision: u64,
    /// The definition as it is stored. Its tree takes several times as much memory, and is needed
    /// only when something changes.
    entry: Arc<Entry>,
    /// The definition without its schemas, which are large and do not matter for names.
    summary: Arc<Value>,
    resources: Vec<Arc<Resource>>,
    /// The server's own view of its instances, if it is not one of its resources.
    storage_view: Option<Arc<Resource>>,
    /// Ends the watches of its kind.
    unserved: CancellationToken,
}

impl CompiledDefinition {
    /// Whether clients can treat a new state of the definition as the same kind as before.
    fn serves_same_kind(&self, object: &Value) -> bool {
        let before: Value = serde_json::from_slice(&self.entry.value).unwrap_or_default();
        let same = |part: &str| before.pointer(part) == object.pointer(part);
        same("/spec") && same("/status/acceptedNames") && same("/metadata/uid")
    }
}

impl Definitions {
    pub(crate) fn new(builtin: Vec<Arc<Resource>>) -> Self {
        Self { builtin, served: Mutex::default(), schemas: Arc::default() }
    }

    /// Starts with the resources that need no definition.
    pub(crate) fn builtin_registry(&self) -> Registry {
        Registry::new(&self.builtin, &[])
    }

    /// Updates the served resources from the stored definitions.
    pub(crate) fn refresh(&self, api: &Api) {
        let mut known = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let space = api.0.store.space(SPACE);
        let mut made = HashMap::new();
        for entry in space.iter() {
            let name = String::from_utf8_lossy(&entry.key).into_owned();
            let revision = entry.revision.get();
            let mut ended = CancellationToken::new();
            let mut object: Value = match known.compiled.remove(&name) {
                Some(before) if before.revision == revision => {
                    made.insert(name, before);
                    continue;
                }
                before => {
                    let object = serde_json::from_slice(&entry.value).unwrap_or_default();
                    match before {
                        Some(before) if before.serves_same_kind(&object) => ended = before.unserved,
                        Some(before) => before.unserved.cancel(),
                        None => {}
                    }
                    object
                }
            };
            // Each version has an epoch of its own.
            let versions = object["spec"]["versions"].as_array().map_or(0, Vec::len);
            let epoch = known.epoch;
            known.epoch += u64::try_from(versions).unwrap_or(0) + 1;
            let custom::ServedResources { versions, storage_view: keeper } =
                if is_established(&object) {
                    let (bytes, since) = (&entry.value, entry.created.get());
                    let made =
                        custom::resources(&object, bytes, since, epoch, &ended, &self.schemas);
                    made.unwrap_or_else(|error| {
                        tracing::error!(definition = name, %error, "a definition is not served");
                        custom::ServedResources::default()
                    })
                } else {
                    custom::ServedResources::default()
                };
            let entry = Arc::clone(entry);
            remove_schemas(&mut object);
            made.insert(
                name,
                CompiledDefinition {
                    revision,
                    entry,
                    summary: Arc::new(object),
                    resources: versions,
                    storage_view: keeper,
                    unserved: ended,
                },
            );
        }
        for gone in known.compiled.values() {
            gone.unserved.cancel();
        }
        known.compiled = made;
        let custom: Vec<Arc<Resource>> =
            known.compiled.values().flat_map(|made| &made.resources).cloned().collect();
        known.update_openapi(&api.0.openapi);
        let keepers = known.compiled.values().filter_map(|made| made.storage_view.clone());
        let registry = Registry::new(&self.builtin, &custom).with_storage_views(keepers);
        api.0.registry.store(Arc::new(registry));
    }

    /// Returns the definition that is stored in an entry without its schemas. Parsing one takes
    /// milliseconds, so those that are served are not parsed again.
    fn summary(&self, entry: &Entry) -> Arc<Value> {
        let name = String::from_utf8_lossy(&entry.key);
        let known = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = known.compiled.get(name.as_ref());
        match compiled.filter(|it| it.revision == entry.revision.get()) {
            Some(compiled) => Arc::clone(&compiled.summary),
            None => {
                let mut object = serde_json::from_slice(&entry.value).unwrap_or_default();
                remove_schemas(&mut object);
                Arc::new(object)
            }
        }
    }

    /// Builds one view of the instances of a definition.
    pub(crate) fn instance_resources(&self, _api: &Api, name: &str) -> Vec<Arc<Resource>> {
        let known = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(made) = known.compiled.get(name) else { return Vec::new() };
        made.storage_view.iter().chain(&made.resources).take(1).cloned().collect()
    }
}

impl ServedDefinitions {
    /// Updates the schemas of group versions from what is served.
    fn update_openapi(&mut self, documents: &Documents) {
        let mut wanted: BTreeMap<(String, String), Vec<(String, u64)>> = BTreeMap::new();
        for (name, made) in &self.compiled {
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
                    .filter_map(|(name, _)| self.compiled.get(name))
                    .map(|made| Arc::clone(&made.entry));
                openapi::describe(documents, &place.0, &place.1, definitions.collect());
            }
        }
        self.described = wanted;
    }
}

/// Removes the schemas and field ownership of a definition.
fn remove_schemas(definition: &mut Value) {
    if definition["spec"].is_object() {
        definition["spec"]["versions"] = json!([]);
    }
    if definition["metadata"].is_object() {
        definition["metadata"]["managedFields"] = json!([]);
    }
}

/// Returns whether a definition belongs to a group, by its name: `<plural>.<group>`.
fn is_of_group(name: &[u8], group: &str) -> bool {
    name.strip_suffix(group.as_bytes()).is_some_and(|it| it.ends_with(b"."))
}

fn is_established(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

impl Api {
    /// Resolves the names of all definitions of a group, and serves the accepted ones.
    pub(crate) async fn reconcile_definitions(&self, group: &str) -> Result<(), StatusError> {
        let plural = "customresourcedefinitions";
        let Some(definitions) = resource(self, "apiextensions.k8s.io", "v1", plural) else {
            return Ok(());
        };
        loop {
            let space = self.0.store.space(SPACE);
            let of_group = space.iter().filter(|entry| is_of_group(&entry.key, group));
            let entries: Vec<(Arc<Entry>, Arc<Value>)> = of_group
                .map(|entry| (Arc::clone(entry), self.0.definitions.summary(entry)))
                .collect();
            let mut overtaken = false;
            for (entry, object) in &entries {
                let others: Vec<&Value> = entries
                    .iter()
                    .map(|(_, other)| other.as_ref())
                    .filter(|other| meta(other, "name") != meta(object, "name"))
                    .collect();
                if self.reconciled_definition(object, &others).is_none() {
                    continue;
                }
                let whole = definitions.tree(entry);
                let Some(settled) = self.reconciled_definition(&whole, &others) else { continue };
                let key = meta(object, "name").to_owned();
                let stored = definitions.to_storage(&settled);
                let expect = Precondition::Revision(entry.revision);
                overtaken |= self.put(&definitions, key, expect, &stored).await?.is_none();
            }
            if !overtaken {
                break;
            }
        }
        self.0.definitions.refresh(self);
        Ok(())
    }

    /// Returns a definition with the names and conditions it should have; `None` when it has them.
    fn reconciled_definition(&self, object: &Value, others: &[&Value]) -> Option<Value> {
        let now = format_seconds(self.now());
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
            set_condition_keeping_time(object, &mut settled, condition, &now);
        }
        if settled["status"] == object["status"] {
            return None;
        }
        let definitions =
            resource(self, "apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
        let metadata = crate::resource::stored::Metadata {
            name: meta(object, "name").to_owned(),
            ..crate::resource::stored::Metadata::default()
        };
        let write = self.server_write(&definitions, &metadata, WrittenSubresource::Status);
        definitions.update_managed_fields(&write, Some(object), &mut settled);
        Some(settled)
    }
}

/// Adds the finalizer by which a deleted definition waits for its instances.
pub(crate) fn mark_terminating(object: &mut Value, now: &str) {
    let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|it| it == CLEANUP_FINALIZER) {
        let mut finalizers = finalizers;
        finalizers.push(json!(CLEANUP_FINALIZER));
        object["metadata"]["finalizers"] = Value::Array(finalizers);
    }
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will \
                    begin soon",
        "lastTransitionTime": now,
    });
    crate::verbs::subresources::set_condition(object, condition);
}

#[cfg(test)]
mod tests {
    use super::is_of_group;

    #[test]
    fn definitions_belong_to_the_group_of_their_name() {
        let table = [
            ("widgets.example.com", "example.com", true),
            ("widgets.sub.example.com", "sub.example.com", true),
            ("widgetsexample.com", "example.com", false),
            ("example.com", "example.com", false),
            ("widgets.example.com", "ample.com", false),
        ];
        for (name, group, expected) in table {
            assert_eq!(is_of_group(name.as_bytes(), group), expected, "{name} {group}");
        }
    }
}
