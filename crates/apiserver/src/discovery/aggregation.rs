//! API groups that other parts of the process serve, as an aggregated API server would.
//!
//! The server authenticates and authorizes requests, applies selectors and renders the response;
//! the aggregated API only provides the objects.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::discovery;
use crate::request::body::Body;
use crate::request::negotiate::{self, Shape};
use crate::request::query::Query;
use crate::request::route::{RequestInfo, Verb};
use crate::resource::{Registry, group_version};
use crate::response::pagination::ListOptions;
use crate::response::render::{IncludeObject, partial};
use crate::response::status::StatusError;
use crate::response::{self, OutputStyle};

/// The objects of one version of one group, computed per request. They can be read, and neither
/// written nor watched.
pub trait AggregatedApi: Send + Sync {
    /// The group.
    fn group(&self) -> &'static str;

    /// The version.
    fn version(&self) -> &'static str;

    /// The resources.
    fn resources(&self) -> &'static [AggregatedResource];

    /// Returns the objects of a resource in a namespace, or in all namespaces when that is empty.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Value>;

    /// Returns one object.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Returns the table rows of objects.
    fn rows(&self, resource: &str, objects: &[Value]) -> TableRows;
}

/// A resource whose objects are computed per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatedResource {
    /// The name in paths.
    pub plural: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// Whether they are namespaced.
    pub namespaced: bool,
    /// The resource name in "not found" messages.
    pub not_found_kind: &'static str,
}

/// The columns and cells of a table.
#[derive(Clone, Debug, Default)]
pub struct TableRows {
    /// The columns, as tables define them.
    pub columns: Vec<Value>,
    /// The cells of each row.
    pub cells: Vec<Vec<Value>>,
}

/// The verbs of every such resource.
const VERBS: [&str; 2] = ["get", "list"];

/// The registered aggregated APIs.
#[derive(Default)]
pub(crate) struct AggregatedApis {
    apis: RwLock<Vec<Arc<dyn AggregatedApi>>>,
    /// The discovery document that includes them, and what it was made from.
    discovered: Mutex<Option<(Arc<Registry>, Bytes, String)>>,
}

impl fmt::Debug for AggregatedApis {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.all().into_iter().map(|it| group_version(it.group(), it.version()));
        to.debug_set().entries(names).finish()
    }
}

impl AggregatedApis {
    fn all(&self) -> Vec<Arc<dyn AggregatedApi>> {
        self.apis.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the aggregated API of a group, if it is not one of the server's own.
    fn of_group(&self, group: &str) -> Vec<Arc<dyn AggregatedApi>> {
        self.all().into_iter().filter(|it| it.group() == group).collect()
    }
}

impl Api {
    /// Registers another part of the process for a version of a group. Requests are authorized by
    /// RBAC.
    pub fn register_aggregated_api(&self, api: Arc<dyn AggregatedApi>) {
        let aggregations = &self.0.aggregated_apis;
        let mut apis = aggregations.apis.write().unwrap_or_else(PoisonError::into_inner);
        apis.push(api);
        *aggregations.discovered.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the aggregated API of a version of a group.
    pub(crate) fn aggregated_api(
        &self,
        group: &str,
        version: &str,
    ) -> Option<Arc<dyn AggregatedApi>> {
        let mut apis = self.0.aggregated_apis.of_group(group).into_iter();
        apis.find(|it| it.version() == version)
    }

    /// Returns the aggregated groups for the list of groups.
    pub(crate) fn aggregated_groups(&self) -> Vec<Value> {
        self.0.aggregated_apis.all().iter().map(|it| group_entry(it.as_ref())).collect()
    }

    /// `/apis/{group}` of an aggregated group.
    pub(crate) fn aggregated_group(&self, group: &str) -> Option<Value> {
        let api = self.0.aggregated_apis.of_group(group).into_iter().next()?;
        let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
        if let (Some(fields), Value::Object(entry)) =
            (document.as_object_mut(), group_entry(api.as_ref()))
        {
            fields.extend(entry);
        }
        Some(document)
    }

    /// `/apis/{group}/{version}` of an aggregated group.
    pub(crate) fn aggregated_resources(&self, group: &str, version: &str) -> Option<Value> {
        let api = self.aggregated_api(group, version)?;
        let resource = |it: &AggregatedResource| {
            json!({
                "name": it.plural, "singularName": "", "namespaced": it.namespaced,
                "kind": it.kind, "verbs": VERBS,
            })
        };
        let resources: Vec<Value> = api.resources().iter().map(resource).collect();
        Some(json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version(group, version), "resources": resources,
        }))
    }

    /// Returns all groups in one document, aggregated ones included, and its entity tag.
    pub(crate) fn discover_all(&self, core: bool, format: &str) -> (Bytes, String) {
        let registry = self.registry();
        let apis = self.0.aggregated_apis.all();
        if core || apis.is_empty() {
            return discovery::aggregated(&registry, core, format);
        }
        let more = || apis.iter().map(|it| discovery_entry(it.as_ref())).collect();
        if format != "v2" {
            return discovery::aggregated_with(&registry, more(), format);
        }
        let mut known =
            self.0.aggregated_apis.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, bytes, tag)) = known.as_ref().filter(|it| Arc::ptr_eq(&it.0, &registry)) {
            let _ = of;
            return (bytes.clone(), tag.clone());
        }
        let (bytes, tag) = discovery::aggregated_with(&registry, more(), format);
        *known = Some((registry, bytes.clone(), tag.clone()));
        (bytes, tag)
    }
}

fn group_entry(api: &dyn AggregatedApi) -> Value {
    let version = json!({
        "groupVersion": group_version(api.group(), api.version()),
        "version": api.version(),
    });
    json!({"name": api.group(), "preferredVersion": version, "versions": [version]})
}

fn discovery_entry(api: &dyn AggregatedApi) -> Value {
    let resource = |it: &AggregatedResource| {
        json!({
            "resource": it.plural,
            "responseKind": {"group": "", "version": "", "kind": it.kind},
            "scope": if it.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": "",
            "verbs": VERBS,
        })
    };
    let resources: Vec<Value> = api.resources().iter().map(resource).collect();
    let version = json!({"version": api.version(), "resources": resources, "freshness": "Current"});
    json!({"metadata": {"name": api.group()}, "versions": [version]})
}

/// Serves a request for an object or a list of an aggregated group. The request is authorized
/// already.
pub(crate) fn respond(
    api: &dyn AggregatedApi,
    parts: &Parts,
    target: &RequestInfo,
    query: &Query,
    pretty: bool,
) -> Result<Response<Body>, StatusError> {
    let resource = api.resources().iter().find(|it| it.plural == target.resource);
    let resource = resource.filter(|_| target.subresource.is_empty());
    let resource = resource.ok_or_else(StatusError::unknown_resource)?;
    let inside = !target.namespace.is_empty();
    if inside && !resource.namespaced {
        return Err(StatusError::unknown_resource());
    }
    let watch = query.flag("watch").unwrap_or(false);
    let verb = Verb::of(&parts.method, target, watch);
    let verb = verb.filter(|it| VERBS.contains(&it.as_str()));
    let verb = verb.ok_or_else(StatusError::method_not_allowed)?;
    let format = negotiate::format(&parts.headers)?;
    let style = OutputStyle { encoding: format.encoding, pretty };
    let version = group_version(api.group(), api.version());
    if verb == Verb::Get {
        if resource.namespaced && !inside {
            return Err(StatusError::unknown_resource());
        }
        let found = api.get(resource.plural, &target.namespace, &target.name);
        let object = found.ok_or_else(|| {
            let name = match target.namespace.as_str() {
                "" => target.name.clone(),
                namespace => format!("{namespace}/{}", target.name),
            };
            StatusError::not_found(api.group(), resource.not_found_kind, &name)
        })?;
        let document = match format.shape {
            Shape::Object => object,
            Shape::Metadata(version) => partial(version, &object),
            Shape::Table(version) => table(api, resource, version, query, &[object])?,
            Shape::MetadataList(_) => return Err(not_acceptable_metadata(&version, resource.kind)),
        };
        return Ok(response::document(StatusCode::OK, style, &document));
    }
    let options = ListOptions::read(query, false)?;
    let mut objects = api.list(resource.plural, &target.namespace);
    let unknown = RefCell::new(None);
    objects.retain(|object| is_selected(object, &options, &unknown));
    if let Some(field) = unknown.into_inner() {
        let words = format!("field label not supported: {field}");
        return Err(StatusError::bad_request(words));
    }
    let document = match format.shape {
        Shape::Object => {
            for fields in objects.iter_mut().filter_map(Value::as_object_mut) {
                fields.shift_remove("kind");
                fields.shift_remove("apiVersion");
            }
            let kind = format!("{}List", resource.kind);
            json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": objects})
        }
        Shape::MetadataList(version) => {
            let items: Vec<Value> = objects.iter().map(|it| partial(version, it)).collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": {}, "items": items,
            })
        }
        Shape::Table(version) => table(api, resource, version, query, &objects)?,
        Shape::Metadata(_) => {
            return Err(not_acceptable_metadata(&version, &format!("{}List", resource.kind)));
        }
    };
    Ok(response::document(StatusCode::OK, style, &document))
}

fn is_selected(object: &Value, options: &ListOptions, unknown: &RefCell<Option<String>>) -> bool {
    let labels = object["metadata"]["labels"].as_object();
    let labels: BTreeMap<String, String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let text =
        |field: &str| Cow::Owned(object["metadata"][field].as_str().unwrap_or_default().to_owned());
    let fields = options.fields.matches(|field| match field {
        "metadata.name" => text("name"),
        "metadata.namespace" => text("namespace"),
        other => {
            unknown.replace(Some(other.to_owned()));
            Cow::Borrowed("")
        }
    });
    fields && options.labels.matches(&labels)
}

fn table(
    api: &dyn AggregatedApi,
    resource: &AggregatedResource,
    version: &str,
    query: &Query,
    objects: &[Value],
) -> Result<Value, StatusError> {
    let include = IncludeObject::read(query)?;
    let TableRows { columns, cells } = api.rows(resource.plural, objects);
    let row = |(cells, object): (Vec<Value>, &Value)| {
        let object = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => partial(version, object),
            IncludeObject::Object => object.clone(),
        };
        json!({"cells": cells, "object": object})
    };
    let rows: Vec<Value> = cells.into_iter().zip(objects).map(row).collect();
    // As the original, an empty table has no columns.
    let list = |all: Vec<Value>| if rows.is_empty() { Value::Null } else { json!(all) };
    Ok(json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": {},
        "columnDefinitions": list(columns),
        "rows": list(rows.clone()),
    }))
}

fn not_acceptable_metadata(version: &str, kind: &str) -> StatusError {
    let words = "the requested form of metadata does not fit";
    StatusError::not_acceptable(format!("{words} {version}, Kind={kind}"))
}
