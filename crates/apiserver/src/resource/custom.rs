//! Custom kinds: a CustomResourceDefinition compiled for serving.

pub mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gantry_kinds::print::CustomColumns;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::discovery::storage_version_hash;
use crate::resource::convert::Converter;
use crate::resource::custom::schemas::{LazySchema, SchemaCache};
use crate::resource::strategy::strategy;
use crate::resource::{KindSource, Resource, Subresource};
use crate::verbs::scale;

/// One served version of a custom kind.
#[derive(Debug)]
pub struct CustomResource {
    /// The name of its definition.
    pub definition: String,
    /// Identifies this state of the definition and this version of it; objects that were decoded
    /// under it need not be decoded again.
    pub epoch: u64,
    /// The schema of this version.
    pub schema: LazySchema,
    /// The schema of the version that is stored.
    pub storage: LazySchema,
    /// The schemas of all served versions, by `group/version`.
    pub served_schemas: Arc<BTreeMap<String, LazySchema>>,
    /// The revision at which its definition was created: no object of the kind is older.
    pub created_revision: u64,
    /// The version that is stored, as `group/version`.
    pub storage_version: String,
    /// Its printer columns.
    pub columns: CustomColumns,
    /// Whether it has the status subresource.
    pub has_status: bool,
    /// The paths of its scale subresource.
    pub scale: Option<ScaleSubresource>,
    /// The selectable fields: dotted paths.
    pub selectable: Vec<String>,
    /// The deprecation warning of this version.
    pub deprecation: Option<String>,
    /// The definition is being deleted, so no objects can be created.
    pub terminating: bool,
    /// The schemas of all versions, served or not, by `group/version`: objects may be stored in
    /// any.
    pub all_schemas: Arc<BTreeMap<String, LazySchema>>,
    /// The converter for objects of other versions; `None` if only the version's name differs.
    pub converter: Option<Arc<Converter>>,
    /// The first bytes of an object in this version.
    pub json_prefix: Bytes,
    /// This is the view of the server's own controllers: objects as they are stored, in whatever
    /// version that is, and never converted.
    pub is_storage_view: bool,
    /// Cancelled when the kind is no longer served like this: its watches have to be restarted.
    pub unserved: CancellationToken,
}

/// The paths of the scale subresource of a custom kind.
#[derive(Clone, Debug)]
pub struct ScaleSubresource {
    /// The desired number of replicas.
    pub spec_path: String,
    /// The current number of replicas.
    pub status_path: String,
    /// The label selector, as a string.
    pub selector_path: Option<String>,
}

impl CustomResource {
    /// Returns the values of the selectable fields of an object.
    #[must_use]
    pub fn selectable_values(&self, object: &Value) -> BTreeMap<String, String> {
        let values = self.selectable.iter().map(|path| {
            let value =
                scale::value_at(object, path).map_or_else(String::new, |value| match value {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                });
            (path.trim_start_matches('.').to_owned(), value)
        });
        values.collect()
    }
}

/// Why a definition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// A schema cannot be compiled.
    #[error("the schema of version {version} cannot be used")]
    Schema {
        /// The version.
        version: String,
        /// What is wrong with it.
        #[source]
        source: gantry_schema::CompileError,
    },
    /// There is no storage version.
    #[error("no version has storage: true")]
    NoStorage,
}

/// The resources of a definition.
#[derive(Debug, Default)]
pub struct ServedResources {
    /// Its served versions.
    pub versions: Vec<Arc<Resource>>,
    /// The view for the server's own controllers, where a served version may need a converter.
    pub storage_view: Option<Arc<Resource>>,
}

/// Builds the served versions of a definition, which is stored as `stored_bytes`. Their schemas are
/// cached in `schemas`.
///
/// # Errors
/// A schema cannot be compiled; definitions are validated when they are written, so this means that
/// an older program accepted what this one does not.
pub fn resources(
    definition: &Value,
    stored_bytes: &Bytes,
    since: u64,
    epoch: u64,
    ended: &CancellationToken,
    schemas: &Arc<SchemaCache>,
) -> Result<ServedResources, DefinitionError> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let group = text(&spec["group"]);
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let stored =
        versions.iter().find(|it| it["storage"] == true).ok_or(DefinitionError::NoStorage)?;
    let storage_version = format!("{group}/{}", text(&stored["name"]));
    let terminating = definition["metadata"]["deletionTimestamp"].is_string();
    let (mut siblings, mut all) = (BTreeMap::new(), BTreeMap::new());
    for version in &versions {
        let name = format!("{group}/{}", text(&version["name"]));
        let version_name = text(&version["name"]);
        let schema = schemas
            .add(stored_bytes, definition, &version_name)
            .map_err(|source| DefinitionError::Schema { version: version_name, source })?;
        if version["served"] == true {
            siblings.insert(name.clone(), schema.clone());
        }
        all.insert(name, schema);
    }
    let storage = all.get(&storage_version).cloned().ok_or(DefinitionError::NoStorage)?;
    let (siblings, all) = (Arc::new(siblings), Arc::new(all));
    let converter = Converter::of(definition).map(Arc::new);
    // The server's own view comes last; it is the storage version in all but name.
    let own = converter.is_some().then_some((*stored, true));
    let served = versions.iter().filter(|it| it["served"] == true).map(|it| (*it, false));
    let mut made = ServedResources::default();
    for (epoch, (version, keeps)) in (epoch..).zip(served.chain(own)) {
        let name = text(&version["name"]);
        let kind = text(&names["kind"]);
        let schema = siblings.get(&format!("{group}/{name}"));
        let schema = schema.unwrap_or(&storage).clone();
        let parts = &version["subresources"];
        let custom = CustomResource {
            definition: text(&definition["metadata"]["name"]),
            epoch,
            schema,
            storage: storage.clone(),
            served_schemas: Arc::clone(&siblings),
            created_revision: since,
            unserved: ended.clone(),
            storage_version: storage_version.clone(),
            columns: columns(version),
            has_status: parts.get("status").is_some(),
            scale: parts.get("scale").map(|scale| ScaleSubresource {
                spec_path: text(&scale["specReplicasPath"]),
                status_path: text(&scale["statusReplicasPath"]),
                selector_path: scale["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            selectable: list(&version["selectableFields"], "jsonPath"),
            deprecation: deprecation(version, &group, &name, &kind),
            terminating,
            all_schemas: Arc::clone(&all),
            converter: converter.clone().filter(|_| !keeps),
            json_prefix: json_prefix(&kind, &format!("{group}/{name}")),
            is_storage_view: keeps,
        };
        let resource = Arc::new(Resource {
            space: format!("{}.{group}", text(&names["plural"])),
            strategy: strategy(&group, &text(&names["plural"])),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            list_kind: text(&names["listKind"]),
            namespaced: spec["scope"] == "Namespaced",
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            verbs: verbs(),
            subresources: subresources(&custom, &kind),
            storage_version_hash: storage_version_hash(&group, &text(&stored["name"]), &kind),
            group: group.clone(),
            version: name,
            kind,
            source: KindSource::Custom(Arc::new(custom)),
        });
        if keeps {
            made.storage_view = Some(resource);
        } else {
            made.versions.push(resource);
        }
    }
    Ok(made)
}

/// Returns the first bytes of a stored object, see [`crate::resource::stored::encode`].
fn json_prefix(kind: &str, api_version: &str) -> Bytes {
    format!("{{\"kind\":{},\"apiVersion\":{},", json!(kind), json!(api_version)).into()
}

fn columns(version: &Value) -> CustomColumns {
    let declared = &version["additionalPrinterColumns"];
    // A path that cannot be parsed ends the columns there, as upstream.
    CustomColumns::compile(declared).unwrap_or_else(|fault| fault.usable)
}

fn verbs() -> Vec<String> {
    let all = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    all.map(str::to_owned).to_vec()
}

fn subresources(custom: &CustomResource, kind: &str) -> Vec<Subresource> {
    let verbs = || ["get", "patch", "update"].map(str::to_owned).to_vec();
    let mut parts = Vec::new();
    if custom.has_status {
        parts.push(Subresource {
            name: "status".to_owned(),
            group: String::new(),
            version: String::new(),
            kind: kind.to_owned(),
            verbs: verbs(),
        });
    }
    if custom.scale.is_some() {
        parts.push(Subresource {
            name: "scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            verbs: verbs(),
        });
    }
    parts
}

fn deprecation(version: &Value, group: &str, name: &str, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    let own = version["deprecationWarning"].as_str().map(str::to_owned);
    Some(own.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated")))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn list(value: &Value, name: &str) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|it| text(&it[name])).collect()
}
