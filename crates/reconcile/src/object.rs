//! The parts every object has: a kind, a name, a UID, a resource version, owners.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::api_path::{ApiPath, InvalidPath};

/// A resource as the API addresses it: group, version, plural name and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version in which objects are read and written.
    pub version: Cow<'static, str>,
    /// The name in paths, such as `pods`.
    pub plural: Cow<'static, str>,
    /// The name in objects, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// Whether its objects are namespaced.
    pub scope: Scope,
    /// Whether it has a `status` subresource.
    pub has_status: bool,
}

/// The scope of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Its objects are in namespaces.
    Namespaced,
    /// Its objects are cluster-scoped.
    Cluster,
}

impl Resource {
    /// A namespaced resource with a `status` subresource.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            scope: Scope::Namespaced,
            has_status: true,
        }
    }

    /// The same resource, cluster-scoped.
    #[must_use]
    pub const fn cluster_scoped(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }

    /// The same resource without a `status` subresource.
    #[must_use]
    pub const fn without_status(mut self) -> Self {
        self.has_status = false;
        self
    }

    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_ref() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of all objects of this resource, or of those in one namespace.
    ///
    /// # Errors
    /// The namespace, or the resource itself, is not valid in a path: both may come from what users
    /// write.
    pub fn collection(&self, namespace: &str) -> Result<ApiPath, InvalidPath> {
        ApiPath::of_version(&self.group, &self.version)?.within(namespace, &self.plural)
    }

    /// The path of one object.
    ///
    /// # Errors
    /// As for [`collection`](Self::collection), or the name is not valid.
    pub fn path(&self, key: &Key) -> Result<ApiPath, InvalidPath> {
        self.collection(key.namespace())?.item(key.name())
    }
}

impl fmt::Display for Resource {
    /// Formats the resource as `kubectl` accepts it: `pods`, `deployments.apps`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_ref() {
            "" => to.write_str(&self.plural),
            group => write!(to, "{}.{group}", self.plural),
        }
    }
}

/// The namespace and name of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl Key {
    /// The key of an object; an empty namespace means a cluster-scoped object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }

    /// The namespace; empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of another object in the same namespace.
    #[must_use]
    pub fn in_same_namespace(&self, name: &str) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => to.write_str(&self.name),
            namespace => write!(to, "{namespace}/{}", self.name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// The UID of an object, which tells it from every other object that ever had its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(from).map(|text| Self::new(&text))
    }
}

impl Uid {
    /// A UID as the server sends it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The UID as the server sends it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The `resourceVersion` of an object.
///
/// Kubernetes 1.35 promises what every server has always done: resource versions of one resource
/// are numbers that grow. That lets a cache tell which of two copies is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        match text.parse() {
            Ok(number) => Ok(Self(number)),
            Err(_) => {
                Err(serde::de::Error::custom(format_args!("{text:?} is not a resource version")))
            }
        }
    }
}

/// The part of an object's metadata that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The name.
    pub name: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The UID.
    pub uid: Uid,
    /// The resource version of the last write.
    pub resource_version: Revision,
    /// How often the spec was changed.
    pub generation: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The owners.
    pub owner_references: Vec<OwnerReference>,
    /// The finalizers that must be removed before the object is deleted.
    pub finalizers: Vec<String>,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was requested, plus the grace period; absent unless it is terminating.
    pub deletion_timestamp: Option<Timestamp>,
    /// The grace period of its deletion.
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// The namespace and name of the object.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// The fence that makes a write fail with a conflict if the object has changed since.
    #[must_use]
    pub fn fence(&self) -> crate::Fence {
        crate::Fence { uid: self.uid.clone(), revision: Some(self.resource_version) }
    }

    /// Whether deletion was requested.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that is its controller; there is at most one.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether the object with this UID is its controller.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &Uid) -> bool {
        self.controller().is_some_and(|owner| owner.uid == *uid)
    }
}

/// An entry of an object's `ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: Uid,
    /// Whether the owner is the controller of this object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits until this object is gone.
    pub block_owner_deletion: bool,
}

/// A reference to an object, for events and held reasons.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectReference {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID.
    pub uid: Uid,
    /// The field within it, such as `spec.containers{main}`; empty for the whole object.
    pub field: String,
}

impl ObjectReference {
    /// A reference to a whole object.
    #[must_use]
    pub fn to(resource: &Resource, meta: &Meta) -> Self {
        Self {
            resource: resource.clone(),
            key: meta.key(),
            uid: meta.uid.clone(),
            field: String::new(),
        }
    }
}

/// The controller reference, in JSON, that `meta`, an object of `resource`, puts on the objects it
/// creates.
#[must_use]
pub fn controller_reference(resource: &Resource, meta: &Meta) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": meta.name,
        "uid": meta.uid.as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
