//! The objects each namespace has from the start.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;

/// A ServiceAccount.
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

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WholeConfigMap")]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// The data, where a controller here decides by it: only [`ConfigMap::ROOT_CA_CONFIG_MAP`]
    /// keeps its own. Others may hold a megabyte each.
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The ConfigMap in every namespace with the CA certificates of the API server.
    pub const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
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
        let kept = whole.metadata.name == Self::ROOT_CA_CONFIG_MAP;
        let data = whole.data.filter(|_| kept).unwrap_or_default();
        Self { metadata: whole.metadata, data }
    }
}
