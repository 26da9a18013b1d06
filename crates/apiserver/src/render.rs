//! Objects in the form a caller asked for: whole, as metadata, or as rows of a table.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::answer;
use crate::api::{Ask, Entry};
use crate::body::Body;
use crate::body::rope::Rope;
use crate::negotiate::Shape;
use crate::query::Query;
use crate::read::Page;
use crate::resource::Resource;
use crate::status::Refusal;
use crate::stored::metadata_bytes;

/// An object to be sent.
#[derive(Debug)]
pub(crate) enum Rendering<'a> {
    /// As it is stored.
    Entry(&'a Arc<Entry>),
    /// As a tree, in the version of the request.
    Tree(&'a Value),
}

impl Rendering<'_> {
    fn tree(&self, resource: &Resource) -> Value {
        match self {
            Self::Entry(entry) => resource.tree(entry),
            Self::Tree(tree) => (*tree).clone(),
        }
    }
}

/// What part of an object a row of a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    pub(crate) fn read(query: &Query) -> Result<Self, Refusal> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let fault = gantry_schema::Invalid::value("includeObject", &json!(other), detail);
                let words = format!("Unable to convert to Table as requested: {fault}");
                Err(Refusal::bad_request(words))
            }
        }
    }
}

/// Answers with one object.
pub(crate) fn object(
    ask: &Ask,
    status: StatusCode,
    object: &Rendering<'_>,
) -> Result<Response<Body>, Refusal> {
    let resource = &ask.resource;
    match (ask.format.shape, object) {
        (Shape::Object, Rendering::Entry(entry)) if ask.style.is_plain() => {
            Ok(answer::line(status, &resource.present(entry)))
        }
        (Shape::Object, object) => Ok(answer::document(status, ask.style, &object.tree(resource))),
        (Shape::Metadata(version), object) => {
            let document = partial(version, &object.tree(resource));
            Ok(answer::document(status, ask.style, &document))
        }
        (Shape::MetadataList(_), _) => {
            let words = "you requested PartialObjectMetadataList, but the requested object is not \
                         a list";
            let type_name = resource.type_name("");
            Err(Refusal::not_acceptable(format!("{words} ({type_name})")))
        }
        (Shape::Table(version), object) => {
            let include = IncludeObject::read(&ask.query)?;
            let tree = object.tree(resource);
            let revision = tree["metadata"]["resourceVersion"].clone();
            let mut metadata = Map::new();
            if !revision.is_null() {
                metadata.insert("resourceVersion".to_owned(), revision);
            }
            let rows = vec![row(resource, &tree, version, include, ask.now)];
            let table = table(resource, version, &metadata, true, rows);
            Ok(answer::document(status, ask.style, &table))
        }
    }
}

/// Answers with a list in a form that is not the stored bytes.
pub(crate) fn list(ask: &Ask, page: &Page) -> Result<Response<Body>, Refusal> {
    let resource = &ask.resource;
    let document = match ask.format.shape {
        Shape::Object => {
            let custom = resource.custom().is_some();
            let items: Vec<Value> =
                page.entries().map(|entry| item(resource.tree(&entry), custom)).collect();
            json!({
                "kind": resource.list_kind,
                "apiVersion": resource.api_version(),
                "metadata": page.list_metadata(),
                "items": items,
            })
        }
        Shape::Table(version) => {
            let include = IncludeObject::read(&ask.query)?;
            let rows = page
                .entries()
                .map(|entry| row(resource, &resource.tree(&entry), version, include, ask.now));
            table(resource, version, &page.metadata(), true, rows.collect())
        }
        Shape::MetadataList(version) => {
            let items: Vec<Value> =
                page.entries().map(|entry| partial(version, &resource.tree(&entry))).collect();
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": page.metadata(),
                "items": items,
            })
        }
        Shape::Metadata(_) => {
            let words = "you requested PartialObjectMetadata, but the requested object is a list";
            let type_name = resource.type_name("List");
            return Err(Refusal::not_acceptable(format!("{words} ({type_name})")));
        }
    };
    Ok(answer::document(StatusCode::OK, ask.style, &document))
}

/// An item of a list: built-in kinds leave out what the list says.
fn item(mut tree: Value, custom: bool) -> Value {
    if let Some(fields) = tree.as_object_mut().filter(|_| !custom) {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    tree
}

/// An object's metadata as an object of its own.
pub(crate) fn partial(version: &str, tree: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": tree["metadata"],
    })
}

fn table(
    resource: &Resource,
    version: &str,
    metadata: &Map<String, Value>,
    columns: bool,
    rows: Vec<Value>,
) -> Value {
    let columns = if columns { resource.columns() } else { Value::Null };
    // Kinds without a printer of their own have no rows where others have none of many.
    let rows = match rows {
        rows if rows.is_empty() && resource.has_default_columns() => Value::Null,
        rows => Value::Array(rows),
    };
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(
    resource: &Resource,
    tree: &Value,
    version: &str,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let (cells, conditions) = resource.row(tree, now);
    let object = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(version, tree),
        IncludeObject::Object => tree.clone(),
    };
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    if !conditions.is_empty() {
        row.insert("conditions".to_owned(), Value::Array(conditions));
    }
    row.insert("object".to_owned(), object);
    Value::Object(row)
}

/// How a table of one row without its object ends.
const NO_OBJECT: &str = "null}]}";

/// An object's metadata as an object of its own, which shares the memory of the whole.
fn partial_bytes(version: &str, object: &Bytes) -> Rope {
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":"
    );
    let metadata: Rope = metadata_bytes(object).into();
    metadata.between(Bytes::from(head), Bytes::from_static(b"}"))
}

/// The form in which a watcher gets objects.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    shape: Shape,
    include: IncludeObject,
    clock: gantry_process::clock::Clock,
}

impl Frame {
    /// The form the caller asked for.
    pub(crate) fn of(ask: &Ask, clock: gantry_process::clock::Clock) -> Result<Self, Refusal> {
        let include = IncludeObject::read(&ask.query)?;
        Ok(Self { shape: ask.format.shape, include, clock })
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether watchers of this resource get objects just as they are stored.
    pub(crate) fn is_stored_bytes(&self, resource: &Resource) -> bool {
        self.shape == Shape::Object && resource.presents_stored_bytes()
    }

    /// An object in that form, which shares the memory of its bytes. The first table has columns,
    /// the others refer to them.
    pub(crate) fn wrap(&self, resource: &Resource, bytes: Bytes, first: bool) -> Rope {
        match self.shape {
            Shape::Object => bytes.into(),
            Shape::Metadata(version) | Shape::MetadataList(version) => {
                partial_bytes(version, &bytes)
            }
            Shape::Table(version) => {
                let tree: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let mut metadata = Map::new();
                let revision = tree["metadata"]["resourceVersion"].clone();
                metadata.insert("resourceVersion".to_owned(), revision);
                // All but the object, which comes where its mark is.
                let now = self.clock.now();
                let rows = vec![row(resource, &tree, version, IncludeObject::None, now)];
                let mut table = table(resource, version, &metadata, first, rows).to_string();
                table.truncate(table.len() - NO_OBJECT.len());
                let object: Rope = match self.include {
                    IncludeObject::None => Bytes::from_static(b"null").into(),
                    IncludeObject::Metadata => partial_bytes(version, &bytes),
                    IncludeObject::Object => bytes.into(),
                };
                object.between(Bytes::from(table), Bytes::from_static(b"}]}"))
            }
        }
    }
}
