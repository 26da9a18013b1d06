//! Builds the document of a group version of custom kinds.

use serde_json::{Map, Value, json};

use crate::shared_definitions::{COMMON, LIST_META, SCALE_SCHEMAS, SCHEMAS};
use crate::{routes, schema, swagger};

/// A custom kind in one of its versions, as far as its document needs it.
#[derive(Clone, Debug)]
pub struct CustomKind<'a> {
    /// The name in paths: `widgets`.
    pub plural: &'a str,
    /// The name in objects: `Widget`.
    pub kind: &'a str,
    /// The kind of lists: `WidgetList`.
    pub list_kind: &'a str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Whether the version has the subresource `status`.
    pub has_status: bool,
    /// Whether the version has the subresource `scale`.
    pub has_scale: bool,
    /// The version's `openAPIV3Schema` in the definition; `null` if it has none.
    pub schema: &'a Value,
    /// The paths of the fields that field selectors may use: `.spec.color`.
    pub selectable_fields: Vec<&'a str>,
}

impl<'a> CustomKind<'a> {
    /// Returns the kind that a stored definition (`apiextensions.k8s.io/v1`) serves in `version`.
    ///
    /// Nothing if the definition has no such version, does not serve it, or is incomplete, which
    /// only one can be that was never stored.
    #[must_use]
    pub fn of(definition: &'a Value, version: &str) -> Option<Self> {
        let spec = &definition["spec"];
        let name = |name: &str| spec["names"][name].as_str();
        let versions = spec["versions"].as_array()?;
        let version = versions.iter().find(|it| it["name"] == version && it["served"] == true)?;
        let selectable = version["selectableFields"].as_array().map(Vec::as_slice);
        Some(Self {
            plural: name("plural")?,
            kind: name("kind")?,
            list_kind: name("listKind")?,
            namespaced: spec["scope"] == "Namespaced",
            has_status: version["subresources"]["status"].is_object(),
            has_scale: version["subresources"]["scale"].is_object(),
            schema: &version["schema"]["openAPIV3Schema"],
            selectable_fields: selectable
                .unwrap_or_default()
                .iter()
                .filter_map(|field| field["jsonPath"].as_str())
                .collect(),
        })
    }
}

/// The OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenApiVersion {
    /// Version 2: one document for everything, of which a group version is a fragment.
    V2,
    /// Version 3: a document for each group version.
    V3,
}

/// Builds the document of the custom kinds in one group version, or its fragment.
///
/// The schemas are assumed to be structural, as those of every accepted definition are. The order
/// of `kinds` and of the fields in their schemas makes no difference: fields are sorted, as they
/// are in the built-in documents.
#[must_use]
pub fn custom_document(
    edition: OpenApiVersion,
    group: &str,
    version: &str,
    kinds: &[CustomKind<'_>],
) -> Value {
    let mut schemas = COMMON.schemas.clone();
    if kinds.iter().any(|kind| kind.has_scale) {
        schemas.extend(SCALE_SCHEMAS.clone());
    }
    let mut paths = Map::new();
    for kind in kinds {
        let names = SchemaNames::new(group, version, kind);
        schemas.insert(names.list_schema.clone(), list_schema(&names, kind));
        schemas.insert(names.schema.clone(), object_schema(edition, &names, kind));
        routes::add(&mut paths, &names, kind);
    }
    let mut document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes CRD Swagger", "version": "v0.1.0" },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    document.sort_all_objects();
    match edition {
        OpenApiVersion::V2 => swagger::fragment(document),
        OpenApiVersion::V3 => document,
    }
}

/// The names of a kind and its schemas.
pub(crate) struct SchemaNames<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    /// The name of the schema of one object.
    pub(crate) schema: String,
    /// The name of the schema of a list.
    pub(crate) list_schema: String,
}

impl<'a> SchemaNames<'a> {
    fn new(group: &'a str, version: &'a str, kind: &CustomKind<'_>) -> Self {
        let reversed = group.rsplit('.').collect::<Vec<_>>().join(".");
        Self {
            group,
            version,
            schema: format!("{reversed}.{version}.{}", kind.kind),
            list_schema: format!("{reversed}.{version}.{}", kind.list_kind),
        }
    }

    /// Returns `kind` with its group and version.
    pub(crate) fn qualified(&self, kind: &str) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": kind })
    }
}

fn object_schema(edition: OpenApiVersion, names: &SchemaNames<'_>, kind: &CustomKind<'_>) -> Value {
    let mut schema = schema::object(edition, kind.schema);
    mark(&mut schema, names.qualified(kind.kind), kind);
    Value::Object(schema)
}

fn list_schema(names: &SchemaNames<'_>, kind: &CustomKind<'_>) -> Value {
    let items = format!(
        "List of {}. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        kind.plural
    );
    let properties = json!({
        "apiVersion": COMMON.api_version,
        "items": {
            "description": items,
            "type": "array",
            "items": { "$ref": format!("{SCHEMAS}{}", names.schema) },
        },
        "kind": COMMON.kind,
        "metadata": schema::described_reference(LIST_META, LIST_METADATA),
    });
    let mut schema = Map::from_iter([
        ("description".to_owned(), format!("{} is a list of {}", kind.list_kind, kind.kind).into()),
        ("type".to_owned(), "object".into()),
        ("required".to_owned(), json!(["items"])),
        ("properties".to_owned(), properties),
    ]);
    mark(&mut schema, names.qualified(kind.list_kind), kind);
    Value::Object(schema)
}

/// Adds the kind and the selectable fields to a schema.
fn mark(schema: &mut Map<String, Value>, qualified: Value, kind: &CustomKind<'_>) {
    schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(vec![qualified]));
    if !kind.selectable_fields.is_empty() {
        let paths = kind.selectable_fields.iter();
        let fields =
            paths.map(|path| json!({ "fieldPath": path.strip_prefix('.').unwrap_or(path) }));
        schema.insert("x-kubernetes-selectable-fields".to_owned(), fields.collect());
    }
}

const LIST_METADATA: &str = "Standard list metadata. More info: \
                             https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
