//! What every object has: a kind, a name, an identity, a revision, owners.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::api_path::{ApiPath, InvalidPath};

/// A kind of objects as the API addresses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version that is read and written.
    pub version: Cow<'static, str>,
    /// The name in paths, such as `pods`.
    pub plural: Cow<'static, str>,
    /// The name in objects, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// Whether the status is written apart from the rest.
    pub status: bool,
}

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// Beside them.
    Cluster,
}

impl Resource {
    /// A kind whose objects live in namespaces and have a status.
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
            status: true,
        }
    }

    /// The same kind beside namespaces.
    #[must_use]
    pub const fn cluster_wide(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }

    /// The same kind without a status of its own.
    #[must_use]
    pub const fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    /// Group and version as objects spell them: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_ref() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of all objects of this kind, or of those in one namespace.
    ///
    /// # Errors
    /// The namespace, or the kind itself, cannot be in a path: both may come from what users write.
    pub fn collection(&self, namespace: &str) -> Result<ApiPath, InvalidPath> {
        ApiPath::of_version(&self.group, &self.version)?.within(namespace, &self.plural)
    }

    /// The path of one object.
    ///
    /// # Errors
    /// As for [`collection`](Self::collection), or no object can have this name.
    pub fn path(&self, key: &Key) -> Result<ApiPath, InvalidPath> {
        self.collection(key.namespace())?.item(key.name())
    }
}

impl fmt::Display for Resource {
    /// `pods`, `deployments.apps`: as `kubectl` takes it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_ref() {
            "" => to.write_str(&self.plural),
            group => write!(to, "{}.{group}", self.plural),
        }
    }
}

/// Where an object of a known kind is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl Key {
    /// An object in a namespace, or beside them when that is empty.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// An object beside namespaces.
    #[must_use]
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }

    /// The namespace; empty for an object beside them.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another object in the same place.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
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

/// Which of all objects that ever had a name this one is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(from).map(|text| Self::new(&text))
    }
}

impl Uid {
    /// The identity as the server spells it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The identity as the server spells it.
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

/// When an object was last written, on the server's own scale.
///
/// Kubernetes 1.35 promises what every server has always done: revisions of one resource are numbers
/// that grow. That lets a cache tell the newer of two copies.
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
                Err(serde::de::Error::custom(format_args!("{text:?} is no resource version")))
            }
        }
    }
}

/// What controllers read of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The name.
    pub name: String,
    /// The namespace; empty for an object beside them.
    pub namespace: String,
    /// Which of all objects with this name it is.
    pub uid: Uid,
    /// When it was last written.
    pub resource_version: Revision,
    /// How often what is wanted was changed.
    pub generation: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whom it belongs to.
    pub owner_references: Vec<Owner>,
    /// Who must agree before it goes.
    pub finalizers: Vec<String>,
    /// When it was made.
    pub creation_timestamp: Option<Timestamp>,
    /// Since when, or from when on, it is to go.
    pub deletion_timestamp: Option<Timestamp>,
    /// How long it may take to go.
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// Where the object is.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// What a write must find.
    #[must_use]
    pub fn fence(&self) -> crate::Fence {
        crate::Fence { uid: self.uid.clone(), revision: Some(self.resource_version) }
    }

    /// Whether somebody asked for it to go.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that controls it; there is at most one.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether the object with this identity controls it.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &Uid) -> bool {
        self.controller().is_some_and(|owner| owner.uid == *uid)
    }
}

/// One of those an object belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// Which of all objects with that name.
    pub uid: Uid,
    /// Whether the owner is the one that controls it.
    pub controller: bool,
    /// Whether the owner stays until this object is gone, when asked to go in the foreground.
    pub block_owner_deletion: bool,
}

/// An object that something is said about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub resource: Resource,
    /// Where it is.
    pub key: Key,
    /// Which of all objects with that name.
    pub uid: Uid,
    /// Which part of it, such as `spec.containers{main}`; empty for the whole.
    pub field: String,
}

impl Reference {
    /// The whole of an object.
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

/// The reference by which `meta`, an object of `resource`, controls what it makes, as objects spell
/// it.
#[must_use]
pub fn controlled_by(resource: &Resource, meta: &Meta) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": meta.name,
        "uid": meta.uid.as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
