//! Group `fma.llm-d.ai`: the models that accelerators serve, and the launchers that switch them.
//!
//! The schemas are exactly those of the original: no defaults of our own, no rules in the schema,
//! no columns. Controllers report errors about an object in `status.errors`.

mod inference_server_config;
mod launcher_config;
mod launcher_population_policy;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use inference_server_config::{InferenceServerConfig, InferenceServerConfigSpec, ModelServer};
pub use launcher_config::{
    INFERENCE_SERVER, LauncherConfig, LauncherConfigSpec, PodTemplate, PodTemplateMetadata,
};
pub use launcher_population_policy::{
    LauncherCount, LauncherPopulationPolicy, LauncherPopulationPolicySpec, NodeSelector,
    ResourceRange,
};

/// What the controllers have to say about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedStatus {
    /// The generation of the object that the errors are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is wrong with the object; empty when nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}
