//! Representations of stored objects: in the version of a request, in tables, for selectors.

use std::collections::BTreeMap;

use bytes::Bytes;
use gantry_builtin::convert;
use gantry_kinds::field_selectors::{check_field, field_value, selectable_fields, stored_fields};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Entry;
use crate::request::selector::FieldSelector;
use crate::resource::custom::CustomResource;
use crate::resource::{KindSource, Resource};
use crate::response::status::StatusError;

impl Resource {
    /// Whether objects are sent just as they are stored.
    pub(crate) fn presents_stored_bytes(&self) -> bool {
        match &self.source {
            KindSource::Builtin(builtin) => builtin.stored_as.is_none(),
            KindSource::Custom(_) => false,
        }
    }

    /// Returns a stored object in this version.
    pub(crate) fn present(&self, entry: &Entry) -> Bytes {
        match &self.source {
            KindSource::Builtin(builtin) if builtin.stored_as.is_none() => entry.value.clone(),
            // Made once and shared: each kind has at most one such version.
            KindSource::Builtin(_) => {
                entry.extra.normalized_bytes(0, || Bytes::from(self.tree(entry).to_string()))
            }
            KindSource::Custom(custom) => custom.present(self, entry),
        }
    }

    /// Returns a stored object in this version, as a tree.
    pub(crate) fn tree(&self, entry: &Entry) -> Value {
        match &self.source {
            KindSource::Builtin(builtin) => {
                let stored: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
                match builtin.stored_as {
                    None => stored,
                    Some(_) => self.decode_stored(stored),
                }
            }
            KindSource::Custom(custom) => {
                serde_json::from_slice(&custom.present(self, entry)).unwrap_or_default()
            }
        }
    }

    /// Converts an object from the stored form to this version.
    pub(crate) fn in_this_version(&self, mut stored: Value) -> Value {
        match &self.source {
            KindSource::Builtin(builtin) if builtin.stored_as.is_none() => stored,
            KindSource::Builtin(_) => self.decode_stored(stored),
            KindSource::Custom(_) => {
                stored["apiVersion"] = json!(self.api_version());
                stored
            }
        }
    }

    /// Converts an object that is stored in another version to this one.
    fn decode_stored(&self, stored: Value) -> Value {
        let converted = match self.group.as_str() {
            "events.k8s.io" => convert::event_from_core(stored.clone()),
            _ => convert::autoscaler_to_v1(stored.clone()),
        };
        converted.unwrap_or_else(|fault| {
            tracing::error!(%fault, kind = self.kind, "could not convert an object");
            stored
        })
    }

    /// Converts an object to the storage version.
    pub(crate) fn to_storage(&self, object: &Value) -> Value {
        match &self.source {
            KindSource::Builtin(builtin) => match builtin.stored_as {
                None => object.clone(),
                Some(_) => {
                    let converted = match self.group.as_str() {
                        "events.k8s.io" => convert::event_to_core(object.clone()),
                        _ => convert::autoscaler_to_v2(object.clone()),
                    };
                    converted.unwrap_or_else(|fault| {
                        tracing::error!(%fault, kind = self.kind, "could not convert an object");
                        object.clone()
                    })
                }
            },
            KindSource::Custom(custom) if custom.is_storage_view => object.clone(),
            KindSource::Custom(custom) => {
                let mut stored = object.clone();
                stored["apiVersion"] = json!(custom.storage_version);
                stored
            }
        }
    }

    /// Returns the object of a bookmark event.
    pub(crate) fn bookmark_object(&self, metadata: Value) -> Value {
        let mut object = self.empty();
        object["kind"] = json!(self.kind);
        object["apiVersion"] = json!(self.api_version());
        let empty = object["metadata"].take();
        object["metadata"] = metadata;
        // Fields that are written even when they are not set.
        for (name, value) in empty.as_object().into_iter().flatten() {
            if object["metadata"].get(name).is_none() {
                object["metadata"][name] = value.clone();
            }
        }
        object
    }

    /// Returns the Go type, as some messages name it.
    pub(crate) fn type_name(&self, suffix: &str) -> String {
        match &self.source {
            KindSource::Builtin(_) => {
                let package = self.group.split('.').next().filter(|it| !it.is_empty());
                format!("*{}.{}{suffix}", package.unwrap_or("core"), self.kind)
            }
            KindSource::Custom(_) if suffix.is_empty() => "*unstructured.Unstructured".to_owned(),
            KindSource::Custom(_) => "*unstructured.UnstructuredList".to_owned(),
        }
    }

    /// Checks whether objects can be selected by these fields.
    pub(crate) fn check_fields(&self, selector: &FieldSelector) -> Result<(), StatusError> {
        for term in &selector.0 {
            let known = match &self.source {
                KindSource::Builtin(_) => {
                    let own = selectable_fields(&self.group, &self.plural);
                    check_field(&term.field, own, false)
                }
                KindSource::Custom(custom) => {
                    let own: Vec<&str> =
                        custom.selectable.iter().map(|it| it.trim_start_matches('.')).collect();
                    check_field(&term.field, &own, true)
                }
            };
            known.map_err(|fault| StatusError::bad_request(fault.to_string()))?;
        }
        Ok(())
    }

    /// Returns the values of the selectable fields of an object.
    pub(crate) fn selectable_values(&self, bytes: &[u8]) -> BTreeMap<String, String> {
        let object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        match &self.source {
            KindSource::Builtin(_) => {
                let fields = stored_fields(&self.group, &self.plural).iter();
                fields.map(|name| ((*name).to_owned(), field_value(&object, name))).collect()
            }
            KindSource::Custom(custom) => custom.selectable_values(&object),
        }
    }

    /// Returns the columns of its table.
    pub(crate) fn columns(&self) -> Value {
        let columns = match &self.source {
            KindSource::Builtin(_) => gantry_kinds::print::columns(&self.group, &self.plural),
            KindSource::Custom(custom) => custom.columns.columns(),
        };
        let columns = columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        });
        columns.collect()
    }

    /// Returns an object's row in its table, and its conditions.
    pub(crate) fn row(&self, object: &Value, now: Timestamp) -> (Vec<Value>, Vec<Value>) {
        let row = match &self.source {
            KindSource::Builtin(builtin) => match builtin.stored_as {
                None => gantry_kinds::print::row(&self.group, &self.plural, object, now),
                Some(_) => {
                    let stored = self.to_storage(object);
                    gantry_kinds::print::row(&self.group, &self.plural, &stored, now)
                }
            },
            KindSource::Custom(custom) => custom.columns.row(object, now),
        };
        (row.cells, row.conditions)
    }
}

impl CustomResource {
    /// Returns a stored object as the current definition has it.
    fn present(&self, resource: &Resource, entry: &Entry) -> Bytes {
        if self.is_storage_view {
            return entry.value.clone();
        }
        // Each version has an epoch of its own: its bytes differ at least in the version.
        let read = || {
            let mut object = self.read_stored(&entry.value);
            let version = json!(resource.api_version());
            if object["apiVersion"] != version {
                object["apiVersion"] = version;
                gantry_schema::prune(&self.schema.schema(), &mut object);
            }
            let halves = crate::resource::stored::encode(&object);
            let revision = entry.revision.get().to_string();
            Bytes::from([&halves.head[..], revision.as_bytes(), &halves.tail[..]].concat())
        };
        entry.extra.normalized_bytes(self.epoch, read)
    }

    /// Returns a stored object as the version it is stored in has it now.
    pub(crate) fn read_stored(&self, bytes: &[u8]) -> Value {
        let mut object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let schema = self.all_schemas.get(version).unwrap_or(&self.storage).schema();
        gantry_schema::prune(&schema, &mut object);
        gantry_schema::default(&schema, &mut object);
        object
    }
}
