//! What a bound launcher records about the instance it is bound for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::instance::{DesiredInstance, InstanceConfig};
use crate::labels::{
    INSTANCE_CONFIG_ANNOTATION, INSTANCE_CONFIG_KEY, INSTANCE_ID_ANNOTATION,
    INSTANCE_USE_ANNOTATION, ROUTING_ANNOTATION, SERVER_PORT_ANNOTATION,
};
use crate::routing::RoutingMetadata;
use crate::view::ActuationPod;

/// The annotations that are removed when a launcher is unbound.
pub const BOOKKEEPING: [&str; 4] = [
    INSTANCE_ID_ANNOTATION,
    SERVER_PORT_ANNOTATION,
    INSTANCE_CONFIG_ANNOTATION,
    ROUTING_ANNOTATION,
];

/// What a bound launcher records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookkeeping {
    /// The ID of the instance.
    pub id: String,
    /// Its port.
    pub port: u16,
    /// How it is created.
    pub config: InstanceConfig,
    /// What the launcher has while it serves.
    pub routing: RoutingMetadata,
}

impl Bookkeeping {
    /// Reads the annotations of a bound launcher.
    ///
    /// # Errors
    /// An annotation is missing or cannot be read.
    pub fn read(launcher: &ActuationPod) -> Result<Self, String> {
        let text = |key: &str| {
            launcher.annotation(key).ok_or_else(|| format!("annotation {key} is missing"))
        };
        let bad = |key: &str, error: &dyn std::fmt::Display| {
            format!("annotation {key} cannot be read: {error}")
        };
        let config = text(INSTANCE_CONFIG_ANNOTATION)?;
        let routing = text(ROUTING_ANNOTATION)?;
        Ok(Self {
            id: text(INSTANCE_ID_ANNOTATION)?.to_owned(),
            port: text(SERVER_PORT_ANNOTATION)?
                .parse()
                .map_err(|error| bad(SERVER_PORT_ANNOTATION, &error))?,
            config: serde_json::from_str(config)
                .map_err(|error| bad(INSTANCE_CONFIG_ANNOTATION, &error))?,
            routing: serde_json::from_str(routing)
                .map_err(|error| bad(ROUTING_ANNOTATION, &error))?,
        })
    }

    /// The name of the InferenceServerConfig; empty if it is not recorded.
    #[must_use]
    pub fn config_name(&self) -> &str {
        self.config.annotations.get(INSTANCE_CONFIG_KEY).map_or("", String::as_str)
    }

    /// The annotations of a launcher that is bound for this instance.
    #[must_use]
    pub fn annotations(instance: &DesiredInstance) -> Map<String, Value> {
        // Texts and maps of texts always have a JSON form.
        let config = serde_json::to_string(&instance.config).unwrap_or_default();
        let routing = serde_json::to_string(&instance.routing).unwrap_or_default();
        let entries = [
            (INSTANCE_ID_ANNOTATION, instance.id.clone()),
            (SERVER_PORT_ANNOTATION, instance.port.to_string()),
            (INSTANCE_CONFIG_ANNOTATION, config),
            (ROUTING_ANNOTATION, routing),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
    }
}

/// When each instance of a launcher was last used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceUse(BTreeMap<String, Timestamp>);

impl InstanceUse {
    /// How many instances are recorded at most, the ones used last.
    const MAX_ENTRIES: usize = 64;

    /// Reads the record of a launcher. One that cannot be read is empty: it is only a preference.
    #[must_use]
    pub fn read(launcher: &ActuationPod) -> Self {
        let text = launcher.annotation(INSTANCE_USE_ANNOTATION).unwrap_or("{}");
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// When an instance was last used; the creation of its launcher if it is not recorded.
    #[must_use]
    pub fn of(&self, launcher: &ActuationPod, id: &str) -> Timestamp {
        let recorded = self.0.get(id).copied();
        recorded.or(launcher.metadata.creation_timestamp).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The annotation's text after an instance was used.
    #[must_use]
    pub fn after(mut self, id: &str, now: Timestamp) -> String {
        self.0.insert(id.to_owned(), now);
        while self.0.len() > Self::MAX_ENTRIES {
            let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at) else { break };
            let oldest = oldest.0.clone();
            self.0.remove(&oldest);
        }
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}
