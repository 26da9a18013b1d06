//! InferenceServerConfigs, LauncherConfigs, policies, and the map of accelerators.

use std::collections::BTreeMap;

use gantry_api::models::{LauncherCount, ModelServer, ObservedStatus};
use gantry_api::quantity::Quantity;
use gantry_reconcile::labels::Selector;
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, Resource, View};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::labels::GPU_MAP;

/// How an engine is started in a launcher.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct InferenceServerConfig {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: ServerConfigSpec,
    /// What was reported about it.
    pub status: ObservedStatus,
}

/// The spec of an [`InferenceServerConfig`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerConfigSpec {
    /// The engine.
    pub model_server_config: ModelServer,
    /// The LauncherConfig whose launchers may run it.
    pub launcher_config_name: String,
}

impl View for InferenceServerConfig {
    const RESOURCE: Resource = Resource::namespaced(
        "fma.llm-d.ai",
        "v1alpha1",
        "inferenceserverconfigs",
        "InferenceServerConfig",
    );

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let name = &self.spec.launcher_config_name;
        vec![Self::of_launcher_config(&self.metadata.namespace, name)]
    }
}

impl InferenceServerConfig {
    /// The index value of the configs that name a LauncherConfig.
    #[must_use]
    pub fn of_launcher_config(namespace: &str, name: &str) -> IndexValue {
        IndexValue { index: "launcher-config", value: format!("{namespace}/{name}") }
    }
}

/// The template of launchers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LauncherConfig {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: LauncherConfigSpec,
    /// What was reported about it.
    pub status: ObservedStatus,
}

/// The spec of a [`LauncherConfig`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LauncherConfigSpec {
    /// The most instances of a launcher.
    pub max_instances: i32,
    /// The pod of a launcher, as it is stored.
    pub pod_template: Value,
}

impl View for LauncherConfig {
    const RESOURCE: Resource =
        Resource::namespaced("fma.llm-d.ai", "v1alpha1", "launcherconfigs", "LauncherConfig");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// How many launchers the nodes have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LauncherPopulationPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state; a policy without one selects nothing.
    pub spec: Option<PopulationSpec>,
    /// What was reported about it.
    pub status: ObservedStatus,
}

/// The spec of a [`LauncherPopulationPolicy`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PopulationSpec {
    /// The nodes.
    pub enhanced_node_selector: NodeSelector,
    /// The counts, by LauncherConfig.
    pub count_for_launcher: Vec<LauncherCount>,
}

/// Selects nodes by labels and resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The labels.
    pub label_selector: Selector,
    /// Bounds of allocatable resources.
    pub allocatable_resources: BTreeMap<String, ResourceBounds>,
}

/// Bounds of a resource, both inclusive.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceBounds {
    /// The least amount.
    pub min: Option<Quantity>,
    /// The greatest amount.
    pub max: Option<Quantity>,
}

impl View for LauncherPopulationPolicy {
    const RESOURCE: Resource = Resource::namespaced(
        "fma.llm-d.ai",
        "v1alpha1",
        "launcherpopulationpolicies",
        "LauncherPopulationPolicy",
    );

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The ConfigMap that maps accelerators to their indices; other ConfigMaps are read without data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcceleratorMap {
    /// Metadata.
    pub metadata: Meta,
    /// The index of each accelerator, by node. Entries that cannot be read are left out.
    pub indices: BTreeMap<String, BTreeMap<String, u32>>,
}

impl<'de> Deserialize<'de> for AcceleratorMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Stored {
            metadata: Meta,
            data: BTreeMap<String, String>,
        }
        let Stored { metadata, data } = Stored::deserialize(from)?;
        let read = |(node, text): (&String, &String)| {
            serde_json::from_str(text).ok().map(|indices| (node.clone(), indices))
        };
        let indices = match metadata.name == GPU_MAP {
            true => data.iter().filter_map(read).collect(),
            false => BTreeMap::new(),
        };
        Ok(Self { metadata, indices })
    }
}

impl View for AcceleratorMap {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
