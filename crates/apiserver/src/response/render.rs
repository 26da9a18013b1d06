//! Renders objects in the requested representation: whole, as metadata, or as rows of a table.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::{Entry, ResourceRequest};
use crate::request::body::Body;
use crate::request::body::rope::Rope;
use crate::request::negotiate::Shape;
use crate::request::query::Query;
use crate::resource::Resource;
use crate::resource::stored::metadata_bytes;
use crate::response;
use crate::response::status::StatusError;
use crate::verbs::read::ListPage;

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

/// Which part of an object a table row contains.
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
    pub(crate) fn read(query: &Query) -> Result<Self, StatusError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let fault =
                    gantry_schema::FieldError::invalid("includeObject", &json!(other), detail);
                let words = format!("Unable to convert to Table as requested: {fault}");
                Err(StatusError::bad_request(words))
            }
        }
    }
}

/// Responds with one object.
pub(crate) fn object(
    ask: &ResourceRequest,
    status: StatusCode,
    object: &Rendering<'_>,
) -> Result<Response<Body>, StatusError> {
    let resource = &ask.resource;
    match (ask.format.shape, object) {
        (Shape::Object, Rendering::Entry(entry)) if ask.style.is_plain() => {
            Ok(response::json_line(status, &resource.present(entry)))
        }
        (Shape::Object, object) => {
            Ok(response::document(status, ask.style, &object.tree(resource)))
        }
        (Shape::Metadata(version), object) => {
            let document = partial(version, &object.tree(resource));
            Ok(response::document(status, ask.style, &document))
        }
        (Shape::MetadataList(_), _) => {
            let words = "you requested PartialObjectMetadataList, but the requested object is not \
                         a list";
            let type_name = resource.type_name("");
            Err(StatusError::not_acceptable(format!("{words} ({type_name})")))
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
            Ok(response::document(status, ask.style, &table))
        }
    }
}

/// Responds with a list in a representation other than the stored bytes.
pub(crate) fn list(ask: &ResourceRequest, page: &ListPage) -> Result<Response<Body>, StatusError> {
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
            return Err(StatusError::not_acceptable(format!("{words} ({type_name})")));
        }
    };
    Ok(response::document(StatusCode::OK, ask.style, &document))
}

/// Renders an item of a list: built-in kinds leave out what the list says.
fn item(mut tree: Value, custom: bool) -> Value {
    if let Some(fields) = tree.as_object_mut().filter(|_| !custom) {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    tree
}

/// Returns an object's metadata as an object of its own.
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
    // Kinds without a printer of their own have `null` rows where others have an empty list.
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

/// The end of a table of one row without its object.
const NO_OBJECT: &str = "null}]}";

/// Returns an object's metadata as an object of its own, which shares the memory of the whole.
fn partial_bytes(version: &str, object: &Bytes) -> Rope {
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":"
    );
    let metadata: Rope = metadata_bytes(object).into();
    metadata.between(Bytes::from(head), Bytes::from_static(b"}"))
}

/// The representation of objects in a watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchFormat {
    shape: Shape,
    include: IncludeObject,
    clock: gantry_process::clock::Clock,
}

impl WatchFormat {
    /// Returns the representation the caller asked for.
    pub(crate) fn of(
        ask: &ResourceRequest,
        clock: gantry_process::clock::Clock,
    ) -> Result<Self, StatusError> {
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

    /// Renders an object, which shares the memory of its bytes. Only the first table of a watch has
    /// columns.
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
                // All but the object, which is inserted at its marker.
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
