//! A write as admission sees it, and the interface to what a decision may ask the server for.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::authorizer::Authorizer;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes it.
    Create,
    /// Changes it.
    Update,
    /// Asks it to go.
    Delete,
    /// Opens a stream to it.
    Connect,
}

impl Operation {
    /// The word for it in rules and requests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One version of a resource, and what its objects are. Equivalent resources are views of the same
/// objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in paths.
    pub resource: String,
    /// The group of the objects, which a subresource may have of its own.
    pub kind_group: String,
    /// The version of the objects.
    pub kind_version: String,
    /// The kind of the objects.
    pub kind: String,
}

impl ResourceView {
    fn resource_json(&self) -> Value {
        json!({ "group": self.group, "version": self.version, "resource": self.resource })
    }

    fn kind_json(&self) -> Value {
        json!({ "group": self.kind_group, "version": self.kind_version, "kind": self.kind })
    }
}

/// A write, or a stream that is opened.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What it does.
    pub operation: Operation,
    /// The resource it was sent to.
    pub view: &'a ResourceView,
    /// The part of the object; empty for all of it.
    pub subresource: &'a str,
    /// The name, if it is known.
    pub name: &'a str,
    /// The namespace; that of a namespace is its own name.
    pub namespace: &'a str,
    /// Who asks, as a `UserInfo`.
    pub user: &'a Value,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The options of the request, or null.
    pub options: &'a Value,
    /// The object as it will be; nothing for a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is; nothing for a creation.
    pub old: Option<&'a Value>,
}

impl Request<'_> {
    /// Whether it is about a namespace itself.
    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.view.group.is_empty() && self.view.resource == "namespaces"
    }

    /// The request as expressions and webhooks read it, for those who asked for `view`; without the
    /// objects, and without what is empty.
    #[must_use]
    pub fn to_json(&self, view: &ResourceView) -> Value {
        let mut request = Map::new();
        let mut put = |name: &str, value: Value| drop(request.insert(name.to_owned(), value));
        put("kind", view.kind_json());
        put("resource", view.resource_json());
        if !self.subresource.is_empty() {
            put("subResource", json!(self.subresource));
        }
        put("requestKind", self.view.kind_json());
        put("requestResource", self.view.resource_json());
        if !self.subresource.is_empty() {
            put("requestSubResource", json!(self.subresource));
        }
        if !self.name.is_empty() {
            put("name", json!(self.name));
        }
        if !self.namespace.is_empty() {
            put("namespace", json!(self.namespace));
        }
        put("operation", json!(self.operation.as_str()));
        put("userInfo", self.user.clone());
        put("dryRun", json!(self.dry_run));
        put("options", self.options.clone());
        Value::Object(request)
    }
}

/// The kind of a policy's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// `apps/v1`, or `v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.api_version.contains('/') { "" } else { "/" };
        write!(f, "{slash}{}, Kind={}", self.api_version, self.kind)
    }
}

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamScope {
    /// In the cluster.
    Cluster,
    /// In namespaces.
    Namespaced,
}

/// What a decision may ask the server for. All answers are of one moment.
pub trait AdmissionContext: fmt::Debug {
    /// A namespace, if there is one of that name.
    fn namespace(&self, name: &str) -> Option<Value>;
    /// The other views of the resource of the request that is decided about.
    fn equivalents(&self) -> Vec<ResourceView>;
    /// An object of the request as it is in another view.
    fn convert(&self, object: &Value, view: &ResourceView) -> Option<Value>;
    /// Where parameters of a kind live; nothing if the kind is not served.
    fn param_scope(&self, kind: &ParamKind) -> Option<ParamScope>;
    /// Parameters of a kind by name, or all of them; the namespace is empty in the cluster.
    fn params(&self, kind: &ParamKind, namespace: &str, name: Option<&str>) -> Vec<Value>;
    /// Who knows what callers may do.
    fn authorizer(&self) -> Arc<dyn Authorizer>;
}
