//! ConfigMaps and Secrets that pods reference, read one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use gantry_reconcile::Fact;

/// A ConfigMap or a Secret that a pod references.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceKey {
    /// The kind.
    pub kind: SourceKind,
    /// Its namespace: that of the pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A kind that variables and files are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// ConfigMaps.
    ConfigMap,
    /// Secrets.
    Secret,
}

impl SourceKind {
    /// Returns the kind as messages of kubelets about objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    /// Returns the kind as messages of kubelets about keys spell it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// The result of the last read of a ConfigMap or a Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SourceObject {
    /// The object does not exist.
    Absent,
    /// The values of the object by key.
    Present(Arc<BTreeMap<String, Bytes>>),
}

impl fmt::Debug for SourceObject {
    /// Formats the result without the values: they may be secret.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => to.write_str("Absent"),
            Self::Present(data) => to.debug_set().entries(data.keys()).finish(),
        }
    }
}

impl Fact for SourceObject {
    type Subject = SourceKey;
    const NAME: &'static str = "pod-source";
}
