//! Turns writes into API requests.

use gantry_reconcile::{ApiPath, Fence, InvalidPath, Key, Parameter, Resource, Subresource, Write};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::api_request::{self, NoResponse};

/// A request that is not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRequest {
    /// The HTTP method.
    pub method: Method,
    /// The path with its query.
    pub path: ApiPath,
    /// The content type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Value,
}

const JSON_CONTENT: &str = "application/json";
const MERGE_PATCH_CONTENT: &str = "application/merge-patch+json";
const APPLY_PATCH_CONTENT: &str = "application/apply-patch+yaml";

/// The request for a write with this field manager.
///
/// # Errors
/// The path is invalid: the resource, namespace or name is.
pub fn write_request(write: &Write, manager: &str) -> Result<WriteRequest, InvalidPath> {
    let manager = Parameter::FieldManager(manager);
    Ok(match write {
        Write::Create { resource, body } => {
            let collection = resource.collection(write.key().namespace())?;
            WriteRequest {
                method: Method::POST,
                path: collection.with(manager),
                content_type: JSON_CONTENT,
                body: with_type_meta(resource, body),
            }
        }
        Write::Merge { resource, key, subresource: part, fence, body } => {
            let mut body = body.clone();
            set_fence(&mut body, fence);
            let path = path(resource, key, *part)?.with(manager);
            WriteRequest { method: Method::PATCH, path, content_type: MERGE_PATCH_CONTENT, body }
        }
        Write::Apply { resource, key, subresource: part, fence, body } => {
            let mut body = with_type_meta(resource, body);
            let metadata = metadata(&mut body);
            metadata.insert("name".to_owned(), key.name().into());
            if !key.namespace().is_empty() {
                metadata.insert("namespace".to_owned(), key.namespace().into());
            }
            if let Some(fence) = fence {
                set_fence(&mut body, fence);
            }
            let path = path(resource, key, *part)?.with(manager).with(Parameter::Force);
            WriteRequest { method: Method::PATCH, path, content_type: APPLY_PATCH_CONTENT, body }
        }
        Write::Delete { resource, key, fence, grace, propagation } => {
            let mut body = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions(fence),
            });
            if let Some(grace) = grace {
                body["gracePeriodSeconds"] = (*grace).into();
            }
            if let Some(propagation) = propagation {
                body["propagationPolicy"] = propagation.as_str().into();
            }
            let path = resource.path(key)?;
            WriteRequest { method: Method::DELETE, path, content_type: JSON_CONTENT, body }
        }
        Write::Bind { key, uid, node, annotations } => {
            let path = write.resource().path(key)?.subresource("binding").with(manager);
            let mut metadata = json!({
                "name": key.name(), "namespace": key.namespace(), "uid": uid.as_str(),
            });
            if !annotations.is_empty() {
                metadata["annotations"] = json!(annotations);
            }
            let target = json!({ "apiVersion": "v1", "kind": "Node", "name": node });
            let body = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target,
            });
            WriteRequest { method: Method::POST, path, content_type: JSON_CONTENT, body }
        }
        Write::Evict { key, fence } => {
            let path = write.resource().path(key)?.subresource("eviction").with(manager);
            let body = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": key.name(), "namespace": key.namespace() },
                "deleteOptions": { "preconditions": preconditions(fence) },
            });
            WriteRequest { method: Method::POST, path, content_type: JSON_CONTENT, body }
        }
    })
}

/// The path of a subresource. The status of kinds without a `status` subresource is written with
/// the object.
fn path(resource: &Resource, key: &Key, part: Subresource) -> Result<ApiPath, InvalidPath> {
    let path = resource.path(key)?;
    Ok(match part {
        Subresource::Status if resource.has_status => path.subresource("status"),
        Subresource::Scale => path.subresource("scale"),
        Subresource::Status | Subresource::Main => path,
    })
}

/// The body with `apiVersion` and `kind`: the server requires them, plans need not set them.
fn with_type_meta(resource: &Resource, body: &Value) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), resource.api_version().into());
    object.insert("kind".to_owned(), resource.kind.as_ref().into());
    if let Value::Object(fields) = body {
        object.extend(fields.clone());
    }
    Value::Object(object)
}

/// The metadata of an object, created if there is none.
fn metadata(body: &mut Value) -> &mut Map<String, Value> {
    if !body.is_object() {
        *body = Value::Object(Map::new());
    }
    if !body["metadata"].is_object() {
        body["metadata"] = Value::Object(Map::new());
    }
    body["metadata"].as_object_mut().expect("it was just made one")
}

/// The preconditions of a deletion.
fn preconditions(fence: &Fence) -> Value {
    let mut preconditions = json!({ "uid": fence.uid.as_str() });
    if let Some(revision) = fence.revision {
        preconditions["resourceVersion"] = revision.to_string().into();
    }
    preconditions
}

/// Sets UID and resource version in the body: the server refuses the write if they differ.
fn set_fence(body: &mut Value, fence: &Fence) {
    let metadata = metadata(body);
    metadata.insert("uid".to_owned(), fence.uid.as_str().into());
    if let Some(revision) = fence.revision {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

impl WriteRequest {
    pub(crate) fn request(&self) -> Result<Request<Body>, NoResponse> {
        let Self { method, path, content_type: content, body } = self;
        api_request::build_request(method.clone(), path, content, body.to_string().into_bytes())
    }
}
