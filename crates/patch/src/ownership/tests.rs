//! What the conformance suite asks of ownership, without a server.

mod applies;
mod golden;
mod properties;
mod writes;

use gantry_schema::Schema;
use serde_json::{Value, json};

use super::*;

pub(super) const NOW: &str = "2026-01-02T03:04:05Z";

/// A stored object and the managers that write to it.
pub(super) struct OwnershipFixture {
    pub(super) schema: &'static Schema,
    pub(super) api_version: &'static str,
    pub(super) empty: Value,
    pub(super) reset: FieldSet,
    pub(super) subresource: &'static str,
    pub(super) now: String,
    pub(super) live: Option<Value>,
}

impl OwnershipFixture {
    pub(super) fn new(schema: &'static Schema, api_version: &'static str) -> Self {
        Self {
            schema,
            api_version,
            empty: json!({}),
            reset: FieldSet::new(),
            subresource: "",
            now: NOW.to_owned(),
            live: None,
        }
    }

    pub(super) fn context<'a>(&'a self, manager: &'a str) -> Context<'a> {
        Context {
            schema: self.schema,
            api_version: self.api_version,
            manager,
            subresource: self.subresource,
            now: &self.now,
            reset_fields: &self.reset,
            empty: &self.empty,
            versions: &SingleVersion,
        }
    }

    pub(super) fn update(&mut self, manager: &str, object: &Value) -> Value {
        let mut stored = object.clone();
        update(&self.context(manager), self.live.as_ref(), &mut stored).unwrap();
        self.store(stored)
    }

    /// Merges a change into the stored object.
    pub(super) fn patch(&mut self, manager: &str, change: &Value) -> Value {
        let live = self.live.clone().unwrap_or_default();
        let object = crate::merge_patch(&live, change).unwrap();
        self.update(manager, &object)
    }

    pub(super) fn apply(&mut self, manager: &str, config: &Value) -> Result<Value, ApplyError> {
        self.apply_with(manager, config, false)
    }

    pub(super) fn apply_with(
        &mut self,
        manager: &str,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let stored = apply(&self.context(manager), self.live.as_ref(), config, force)?;
        Ok(self.store(stored))
    }

    /// What a server does after the fact: nulls go away, and a stored object has an identity.
    fn store(&mut self, object: Value) -> Value {
        let mut object = without_nulls(object);
        object["metadata"]["uid"] = json!("u");
        if let Some(live) = &self.live
            && is_unchanged(live, &object)
        {
            return live.clone();
        }
        self.live = Some(object.clone());
        object
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => entries
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// The fields that a manager owns.
pub(super) fn owned(object: &Value, manager: &str) -> Value {
    entry(object, manager)["fieldsV1"].clone()
}

pub(super) fn entry(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.into_iter().find(|entry| entry["manager"] == manager).unwrap_or_default()
}

pub(super) fn config_map(data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

pub(super) fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "d" } },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
            },
        },
    })
}
