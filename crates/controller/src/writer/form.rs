//! What a write looks like on the wire.

use gantry_reconcile::{ApiPath, Fence, InvalidPath, Key, Parameter, Part, Resource, Write};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::ask::{self, NoAnswer};

/// A request that is not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// The HTTP method.
    pub method: Method,
    /// The path with its query.
    pub path: ApiPath,
    /// The type of the body.
    pub content: &'static str,
    /// The body.
    pub body: Value,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The request that carries out a write in the name of a field manager.
///
/// # Errors
/// The object cannot be addressed: its kind, namespace or name is not valid.
pub fn form(write: &Write, manager: &str) -> Result<Form, InvalidPath> {
    let manager = Parameter::FieldManager(manager);
    Ok(match write {
        Write::Create { resource, body } => {
            let collection = resource.collection(write.key().namespace())?;
            Form {
                method: Method::POST,
                path: collection.with(manager),
                content: JSON,
                body: typed(resource, body),
            }
        }
        Write::Merge { resource, key, part, fence, body } => {
            let mut body = body.clone();
            put_fence(&mut body, fence);
            let path = path(resource, key, *part)?.with(manager);
            Form { method: Method::PATCH, path, content: MERGE, body }
        }
        Write::Apply { resource, key, part, fence, body } => {
            let mut body = typed(resource, body);
            let metadata = metadata(&mut body);
            metadata.insert("name".to_owned(), key.name().into());
            if !key.namespace().is_empty() {
                metadata.insert("namespace".to_owned(), key.namespace().into());
            }
            if let Some(fence) = fence {
                put_fence(&mut body, fence);
            }
            let path = path(resource, key, *part)?.with(manager).with(Parameter::Force);
            Form { method: Method::PATCH, path, content: APPLY, body }
        }
        Write::Delete { resource, key, fence, grace, propagation } => {
            let mut preconditions = json!({ "uid": fence.uid.as_str() });
            if let Some(revision) = fence.revision {
                preconditions["resourceVersion"] = revision.to_string().into();
            }
            let mut body = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions,
            });
            if let Some(grace) = grace {
                body["gracePeriodSeconds"] = (*grace).into();
            }
            if let Some(propagation) = propagation {
                body["propagationPolicy"] = propagation.as_str().into();
            }
            let path = resource.path(key)?;
            Form { method: Method::DELETE, path, content: JSON, body }
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
            Form { method: Method::POST, path, content: JSON, body }
        }
    })
}

/// The path of the part of an object. Kinds whose status is not apart have it in the whole.
fn path(resource: &Resource, key: &Key, part: Part) -> Result<ApiPath, InvalidPath> {
    let path = resource.path(key)?;
    Ok(match part {
        Part::Status if resource.status => path.subresource("status"),
        Part::Scale => path.subresource("scale"),
        Part::Status | Part::Main => path,
    })
}

/// An object that says what it is: the server wants to be told, plans need not.
fn typed(resource: &Resource, body: &Value) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), resource.api_version().into());
    object.insert("kind".to_owned(), resource.kind.as_ref().into());
    if let Value::Object(fields) = body {
        object.extend(fields.clone());
    }
    Value::Object(object)
}

/// The metadata of an object, made if there is none.
fn metadata(body: &mut Value) -> &mut Map<String, Value> {
    if !body.is_object() {
        *body = Value::Object(Map::new());
    }
    if !body["metadata"].is_object() {
        body["metadata"] = Value::Object(Map::new());
    }
    body["metadata"].as_object_mut().expect("it was just made one")
}

/// Identity and revision in the body make the server refuse when it finds others.
fn put_fence(body: &mut Value, fence: &Fence) {
    let metadata = metadata(body);
    metadata.insert("uid".to_owned(), fence.uid.as_str().into());
    if let Some(revision) = fence.revision {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

impl Form {
    pub(crate) fn request(&self) -> Result<Request<Body>, NoAnswer> {
        let Self { method, path, content, body } = self;
        ask::request(method.clone(), path, content, body.to_string().into_bytes())
    }
}
