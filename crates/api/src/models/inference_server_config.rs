//! InferenceServerConfig: how to start one engine.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObservedStatus;
use crate::finding::Findings;
use crate::kind::Trust;
use crate::meta::{label_key_problem, label_value_problem};
use crate::object::object;
use gantry_yaml::node::Path;

object! {
    /// InferenceServerConfig says how an engine is started in a launcher, and which labels and
    /// annotations the launcher carries while that engine serves.
    pub struct InferenceServerConfig {
        /// The engine and its launcher.
        pub spec: InferenceServerConfigSpec,
        /// What the controllers have to say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ObservedStatus>,
    }
    group: "fma.llm-d.ai",
    version: "v1alpha1",
    plural: "inferenceserverconfigs",
    scope: Namespaced,
    short_names: &["isc"],
    status: true,
    trust: Trust::Tenant,
}

/// The engine and its launcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServerConfigSpec {
    /// How the engine is started and reached.
    pub model_server_config: ModelServer,
    /// Name of the LauncherConfig, in the same namespace, whose launchers may run the engine.
    pub launcher_config_name: String,
}

/// How the engine is started and reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelServer {
    /// Port the engine listens on, also for sleeping and waking.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Command-line options of the engine, without the port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Environment of the engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    /// Labels the launcher carries while this engine serves, so that selectors find it only then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations the launcher carries while this engine serves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Key prefixes that belong to the controllers and to Kubernetes.
const RESERVED: [&str; 3] = ["dual-pods.llm-d.ai/", "kubernetes.io/", "k8s.io/"];

impl InferenceServerConfig {
    /// Checks what the schema does not. The server accepts all of it, so these are warnings: the
    /// controller will refuse to bind such a configuration.
    pub fn validate(&self, findings: &mut Findings) {
        let server = &self.spec.model_server_config;
        let path = Path::of("spec.modelServerConfig");
        for (key, value) in &server.labels {
            if let Some(problem) = label_value_problem(value) {
                findings.warn(&path.key("labels").key(key), format!("\"{value}\" {problem}"));
            }
        }
        for (name, map) in [("labels", &server.labels), ("annotations", &server.annotations)] {
            for key in map.keys() {
                if let Some(problem) = label_key_problem(key) {
                    findings.warn(&path.key(name).key(key), problem);
                }
                if let Some(prefix) = RESERVED.into_iter().find(|prefix| key.starts_with(prefix)) {
                    findings.warn(
                        &path.key(name).key(key),
                        format!(
                            "keys that start with \"{prefix}\" are reserved; binding will be \
                             refused"
                        ),
                    );
                }
            }
        }
        if self.spec.launcher_config_name.is_empty() {
            findings.warn(&Path::of("spec.launcherConfigName"), "empty: no launcher will match");
        }
    }
}
