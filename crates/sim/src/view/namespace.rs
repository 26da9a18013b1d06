//! What each namespace has from the start.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;

/// An account that pods act as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    /// Metadata.
    pub metadata: Meta,
}

impl View for ServiceAccount {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A map of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WholeConfigMap")]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// The texts, where somebody here decides by them: only [`ConfigMap::ROOT_CERTIFICATES`] keeps
    /// its own. Others may hold a megabyte each.
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The map in every namespace that says which certificates the server's is signed by.
    pub const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";
}

impl View for ConfigMap {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WholeConfigMap {
    metadata: Meta,
    data: Option<BTreeMap<String, String>>,
}

impl From<WholeConfigMap> for ConfigMap {
    fn from(whole: WholeConfigMap) -> Self {
        let kept = whole.metadata.name == Self::ROOT_CERTIFICATES;
        let data = whole.data.filter(|_| kept).unwrap_or_default();
        Self { metadata: whole.metadata, data }
    }
}
