//! How stored objects are seen: in the version of a request, in tables, by selectors.

use std::collections::BTreeMap;

use bytes::Bytes;
use gantry_builtin::convert;
use gantry_kinds::selectable::{check_field, field_value, selectable, stored_fields};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Entry;
use crate::custom::Custom;
use crate::resource::{Nature, Resource};
use crate::selector::FieldSelector;
use crate::status::Refusal;

impl Resource {
    /// Whether objects are sent just as they are stored.
    pub(crate) fn presents_stored_bytes(&self) -> bool {
        match &self.nature {
            Nature::Builtin(builtin) => builtin.stored_as.is_none(),
            Nature::Custom(_) => false,
        }
    }

    /// A stored object in this version.
    pub(crate) fn present(&self, entry: &Entry) -> Bytes {
        match &self.nature {
            Nature::Builtin(builtin) if builtin.stored_as.is_none() => entry.value.clone(),
            // Made once and shared: there is one such version of each kind that has any.
            Nature::Builtin(_) => {
                entry.extra.fresh(0, || Bytes::from(self.tree(entry).to_string()))
            }
            Nature::Custom(custom) => custom.present(self, entry),
        }
    }

    /// A stored object in this version, as a tree.
    pub(crate) fn tree(&self, entry: &Entry) -> Value {
        match &self.nature {
            Nature::Builtin(builtin) => {
                let stored: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
                match builtin.stored_as {
                    None => stored,
                    Some(_) => self.viewed(stored),
                }
            }
            Nature::Custom(custom) => {
                serde_json::from_slice(&custom.present(self, entry)).unwrap_or_default()
            }
        }
    }

    /// An object as it is stored, in this version.
    pub(crate) fn in_this_version(&self, mut stored: Value) -> Value {
        match &self.nature {
            Nature::Builtin(builtin) if builtin.stored_as.is_none() => stored,
            Nature::Builtin(_) => self.viewed(stored),
            Nature::Custom(_) => {
                stored["apiVersion"] = json!(self.api_version());
                stored
            }
        }
    }

    /// An object that is stored in another version, in this one.
    fn viewed(&self, stored: Value) -> Value {
        let converted = match self.group.as_str() {
            "events.k8s.io" => convert::event_from_core(stored.clone()),
            _ => convert::autoscaler_to_v1(stored.clone()),
        };
        converted.unwrap_or_else(|fault| {
            tracing::error!(%fault, kind = self.kind, "an object was not converted");
            stored
        })
    }

    /// An object in the version that is stored.
    pub(crate) fn to_storage(&self, object: &Value) -> Value {
        match &self.nature {
            Nature::Builtin(builtin) => match builtin.stored_as {
                None => object.clone(),
                Some(_) => {
                    let converted = match self.group.as_str() {
                        "events.k8s.io" => convert::event_to_core(object.clone()),
                        _ => convert::autoscaler_to_v2(object.clone()),
                    };
                    converted.unwrap_or_else(|fault| {
                        tracing::error!(%fault, kind = self.kind, "an object was not converted");
                        object.clone()
                    })
                }
            },
            Nature::Custom(custom) if custom.keeps => object.clone(),
            Nature::Custom(custom) => {
                let mut stored = object.clone();
                stored["apiVersion"] = json!(custom.storage_version);
                stored
            }
        }
    }

    /// What a watcher is sent to know how far it is.
    pub(crate) fn bookmark(&self, metadata: Value) -> Value {
        let mut object = self.empty();
        object["kind"] = json!(self.kind);
        object["apiVersion"] = json!(self.api_version());
        let empty = object["metadata"].take();
        object["metadata"] = metadata;
        // What is written even when it is not set.
        for (name, value) in empty.as_object().into_iter().flatten() {
            if object["metadata"].get(name).is_none() {
                object["metadata"][name] = value.clone();
            }
        }
        object
    }

    /// The Go type, as some refusals name it.
    pub(crate) fn type_name(&self, suffix: &str) -> String {
        match &self.nature {
            Nature::Builtin(_) => {
                let package = self.group.split('.').next().filter(|it| !it.is_empty());
                format!("*{}.{}{suffix}", package.unwrap_or("core"), self.kind)
            }
            Nature::Custom(_) if suffix.is_empty() => "*unstructured.Unstructured".to_owned(),
            Nature::Custom(_) => "*unstructured.UnstructuredList".to_owned(),
        }
    }

    /// Whether objects can be selected by these fields.
    pub(crate) fn check_fields(&self, selector: &FieldSelector) -> Result<(), Refusal> {
        for term in &selector.0 {
            let known = match &self.nature {
                Nature::Builtin(_) => {
                    let own = selectable(&self.group, &self.plural);
                    check_field(&term.field, own, false)
                }
                Nature::Custom(custom) => {
                    let own: Vec<&str> =
                        custom.selectable.iter().map(|it| it.trim_start_matches('.')).collect();
                    check_field(&term.field, &own, true)
                }
            };
            known.map_err(|fault| Refusal::bad_request(fault.to_string()))?;
        }
        Ok(())
    }

    /// The values of fields by which an object can be selected.
    pub(crate) fn selectable_values(&self, bytes: &[u8]) -> BTreeMap<String, String> {
        let object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        match &self.nature {
            Nature::Builtin(_) => {
                let fields = stored_fields(&self.group, &self.plural).iter();
                fields.map(|name| ((*name).to_owned(), field_value(&object, name))).collect()
            }
            Nature::Custom(custom) => custom.selectable_values(&object),
        }
    }

    /// The columns of its table.
    pub(crate) fn columns(&self) -> Value {
        let columns = match &self.nature {
            Nature::Builtin(_) => gantry_kinds::print::columns(&self.group, &self.plural),
            Nature::Custom(custom) => custom.columns.columns(),
        };
        let columns = columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        });
        columns.collect()
    }

    /// An object's row in its table, and what is said about it.
    pub(crate) fn row(&self, object: &Value, now: Timestamp) -> (Vec<Value>, Vec<Value>) {
        let row = match &self.nature {
            Nature::Builtin(builtin) => match builtin.stored_as {
                None => gantry_kinds::print::row(&self.group, &self.plural, object, now),
                Some(_) => {
                    let stored = self.to_storage(object);
                    gantry_kinds::print::row(&self.group, &self.plural, &stored, now)
                }
            },
            Nature::Custom(custom) => custom.columns.row(object, now),
        };
        (row.cells, row.conditions)
    }
}

impl Custom {
    /// A stored object as the current definition has it.
    fn present(&self, resource: &Resource, entry: &Entry) -> Bytes {
        if self.keeps {
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
            let halves = crate::stored::encode(&object);
            let revision = entry.revision.get().to_string();
            Bytes::from([&halves.head[..], revision.as_bytes(), &halves.tail[..]].concat())
        };
        entry.extra.fresh(self.epoch, read)
    }

    /// A stored object as the version it is stored in has it now.
    pub(crate) fn read_stored(&self, bytes: &[u8]) -> Value {
        let mut object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let schema = self.versions.get(version).unwrap_or(&self.storage).schema();
        gantry_schema::prune(&schema, &mut object);
        gantry_schema::default(&schema, &mut object);
        object
    }
}
