//! Custom kinds: what a definition says, ready for use.

pub mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gantry_kinds::print::CustomColumns;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::convert::Converter;
use crate::custom::schemas::{LazySchema, Schemas};
use crate::discovery::storage_version_hash;
use crate::resource::{Nature, Resource, Subresource};
use crate::scale;

/// One served version of a custom kind.
#[derive(Debug)]
pub struct Custom {
    /// The name of its definition.
    pub definition: String,
    /// Names this state of the definition and this version of it; objects that were read under it
    /// need not be again.
    pub epoch: u64,
    /// The schema of this version.
    pub schema: LazySchema,
    /// The schema of the version that is stored.
    pub storage: LazySchema,
    /// The schemas of all served versions, by `group/version`.
    pub siblings: Arc<BTreeMap<String, LazySchema>>,
    /// The revision at which its definition was made: nothing of the kind is older.
    pub since: u64,
    /// The version that is stored, as `group/version`.
    pub storage_version: String,
    /// Its columns.
    pub columns: CustomColumns,
    /// Whether its status is a part of its own.
    pub has_status: bool,
    /// Where it keeps its size.
    pub scale: Option<Scale>,
    /// The fields by which it can be selected: dotted paths.
    pub selectable: Vec<String>,
    /// What is said to everyone who uses this version.
    pub deprecation: Option<String>,
    /// The definition is going, so nothing new is taken.
    pub terminating: bool,
    /// The schemas of all versions, served or not, by `group/version`: objects may be stored in any.
    pub versions: Arc<BTreeMap<String, LazySchema>>,
    /// Who converts objects of other versions; nobody if only the version's name differs.
    pub converter: Option<Arc<Converter>>,
    /// How the bytes of an object in this version begin.
    pub opening: Bytes,
    /// This is the server's own view for its collectors: objects as they are stored, in whatever
    /// version that is, and never converted.
    pub keeps: bool,
    /// Cancelled when the kind is no longer served like this: whoever watches it has to begin anew.
    pub ended: CancellationToken,
}

/// Where a custom kind keeps its size.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The wanted number.
    pub spec_path: String,
    /// The present number.
    pub status_path: String,
    /// The selector, as text.
    pub selector_path: Option<String>,
}

impl Custom {
    /// The values of the fields by which an object can be selected.
    #[must_use]
    pub fn selectable_values(&self, object: &Value) -> BTreeMap<String, String> {
        let values = self.selectable.iter().map(|path| {
            let value = scale::at(object, path).map_or_else(String::new, |value| match value {
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
    /// There is no stored version.
    #[error("no version is stored")]
    NoStorage,
}

/// What is made of a definition.
#[derive(Debug, Default)]
pub struct Served {
    /// Its served versions.
    pub versions: Vec<Arc<Resource>>,
    /// The view of the server's own collectors, where a served version may need a converter.
    pub keeper: Option<Arc<Resource>>,
}

/// The served versions of a definition, which is stored as `stored_bytes`. Their schemas are kept in
/// `schemas`.
///
/// # Errors
/// A schema that cannot be compiled; definitions are checked when they are written, so this means
/// that an older program took what this one does not.
pub fn resources(
    definition: &Value,
    stored_bytes: &Bytes,
    since: u64,
    epoch: u64,
    ended: &CancellationToken,
    schemas: &Arc<Schemas>,
) -> Result<Served, DefinitionError> {
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
    // The server's own view comes last; it is the stored version in all but name.
    let own = converter.is_some().then_some((*stored, true));
    let served = versions.iter().filter(|it| it["served"] == true).map(|it| (*it, false));
    let mut made = Served::default();
    for (epoch, (version, keeps)) in (epoch..).zip(served.chain(own)) {
        let name = text(&version["name"]);
        let kind = text(&names["kind"]);
        let schema = siblings.get(&format!("{group}/{name}"));
        let schema = schema.unwrap_or(&storage).clone();
        let parts = &version["subresources"];
        let custom = Custom {
            definition: text(&definition["metadata"]["name"]),
            epoch,
            schema,
            storage: storage.clone(),
            siblings: Arc::clone(&siblings),
            since,
            ended: ended.clone(),
            storage_version: storage_version.clone(),
            columns: columns(version),
            has_status: parts.get("status").is_some(),
            scale: parts.get("scale").map(|scale| Scale {
                spec_path: text(&scale["specReplicasPath"]),
                status_path: text(&scale["statusReplicasPath"]),
                selector_path: scale["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            selectable: list(&version["selectableFields"], "jsonPath"),
            deprecation: deprecation(version, &group, &name, &kind),
            terminating,
            versions: Arc::clone(&all),
            converter: converter.clone().filter(|_| !keeps),
            opening: opening(&kind, &format!("{group}/{name}")),
            keeps,
        };
        let resource = Arc::new(Resource {
            space: format!("{}.{group}", text(&names["plural"])),
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
            nature: Nature::Custom(Arc::new(custom)),
        });
        if keeps {
            made.keeper = Some(resource);
        } else {
            made.versions.push(resource);
        }
    }
    Ok(made)
}

/// How the stored bytes of an object begin, see [`crate::stored::encode`].
fn opening(kind: &str, api_version: &str) -> Bytes {
    format!("{{\"kind\":{},\"apiVersion\":{},", json!(kind), json!(api_version)).into()
}

fn columns(version: &Value) -> CustomColumns {
    let declared = &version["additionalPrinterColumns"];
    // A path that cannot be read ends the columns there, as clients know it.
    CustomColumns::compile(declared).unwrap_or_else(|fault| fault.usable)
}

fn verbs() -> Vec<String> {
    let all = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    all.map(str::to_owned).to_vec()
}

fn subresources(custom: &Custom, kind: &str) -> Vec<Subresource> {
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
