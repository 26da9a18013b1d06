//! The instance that an InferenceServerConfig describes, and its ID.

use std::collections::BTreeMap;

use gantry_api::models::ModelServer;
use serde::{Deserialize, Serialize};

use crate::canonical_json::canonical_text;
use crate::digest::url_base64_sha256;
use crate::labels::{INSTANCE_CONFIG_KEY, INSTANCE_PORT_KEY};
use crate::routing::RoutingMetadata;

/// The body of the request that creates an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceConfig {
    /// The command-line options of the engine.
    pub options: String,
    /// The UUIDs of its accelerators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_uuids: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    /// Texts that identify the instance in later answers of the launcher.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An instance that should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredInstance {
    /// Its ID.
    pub id: String,
    /// Its port.
    pub port: u16,
    /// How it is created.
    pub config: InstanceConfig,
    /// What its launcher has while it serves.
    pub routing: RoutingMetadata,
}

impl DesiredInstance {
    /// The instance of a config on these accelerators.
    ///
    /// # Errors
    /// The port is not a port.
    pub fn new(
        config_name: &str,
        server: &ModelServer,
        accelerators: &[String],
    ) -> Result<Self, String> {
        let port = u16::try_from(server.port).ok().filter(|it| *it > 0).ok_or_else(|| {
            format!(
                "InferenceServerConfig {config_name}: spec.modelServerConfig.port: {} is no port; \
                 use 1 to 65535",
                server.port
            )
        })?;
        let options = format!("{} --port {port}", server.options);
        let annotations = BTreeMap::from([
            (INSTANCE_CONFIG_KEY.to_owned(), config_name.to_owned()),
            (INSTANCE_PORT_KEY.to_owned(), port.to_string()),
        ]);
        Ok(Self {
            id: instance_id(server, accelerators),
            port,
            config: InstanceConfig {
                options,
                gpu_uuids: accelerators.to_vec(),
                env_vars: server.env_vars.clone(),
                annotations,
            },
            routing: RoutingMetadata::of(server),
        })
    }
}

/// The ID of the instance of a config on these accelerators, in the order reported.
#[must_use]
pub fn instance_id(server: &ModelServer, accelerators: &[String]) -> String {
    // A config of strings and numbers always has a JSON form.
    let config = serde_json::to_value(server).unwrap_or_default();
    let parts = [&canonical_text(&config), ";gpus=", &accelerators.join(",")];
    format!("I{}i", url_base64_sha256(&parts))
}

/// Whether two lists have an accelerator in common, in whatever order.
#[must_use]
pub fn overlaps(one: &[String], other: &[String]) -> bool {
    one.iter().any(|it| other.contains(it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server() -> ModelServer {
        serde_json::from_value(json!({"port": 8005, "options": "--model m", "labels": {"a": "b"}}))
            .unwrap()
    }

    #[test]
    fn ids_are_safe_in_urls_and_labels_and_depend_on_the_whole_config() {
        let gpus = ["GPU-0".to_owned(), "GPU-1".to_owned()];
        let id = instance_id(&server(), &gpus);
        // SHA-256 of {"labels":{"a":"b"},"options":"--model m","port":8005};gpus=GPU-0,GPU-1
        assert_eq!(id, "Idi_QkIPItVbNzvn4M8XJtzfItgqcd55XbIWRmEylj2Ai");
        assert_eq!(id.len(), 45);
        assert_eq!(gantry_api::meta::label_value_problem(&id), None);
        let others = [
            instance_id(&server(), &gpus[..1]),
            instance_id(&server(), &["GPU-1".to_owned(), "GPU-0".to_owned()]),
            instance_id(&ModelServer { port: 8006, ..server() }, &gpus),
            instance_id(&ModelServer { labels: BTreeMap::new(), ..server() }, &gpus),
        ];
        assert!(others.iter().all(|it| *it != id && it.len() == 45));
    }

    #[test]
    fn the_request_has_the_port_and_the_name() {
        let gpus = ["GPU-0".to_owned()];
        let desired = DesiredInstance::new("isc", &server(), &gpus).unwrap();
        let expected = json!({
            "options": "--model m --port 8005",
            "gpu_uuids": ["GPU-0"],
            "annotations": {"inference-port": "8005", "isc-name": "isc"},
        });
        assert_eq!(serde_json::to_value(&desired.config).unwrap(), expected);
        let error = DesiredInstance::new("isc", &ModelServer { port: 0, ..server() }, &gpus);
        assert!(error.unwrap_err().contains("modelServerConfig.port: 0 is no port"));
    }
}
