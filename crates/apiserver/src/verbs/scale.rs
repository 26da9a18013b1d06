//! The scale subresource: one small object for the replicas of many kinds.

use gantry_patch::ownership::scale::Parent;
use gantry_patch::ownership::{self, Context, SingleVersion};
use gantry_patch::{FieldSet, Path};
use gantry_schema::FieldError;
use serde_json::{Map, Value, json};

use crate::request::negotiate::PatchType;
use crate::request::query::Query;
use crate::resource::{KindSource, Resource};
use crate::response::status::StatusError;
use crate::verbs::write::{ModifiedObject, Write, meta};

/// The paths of a kind's replicas and selector.
struct ScalePaths<'a> {
    spec_replicas: &'a str,
    status_replicas: &'a str,
    selector: Option<&'a str>,
}

impl Resource {
    fn scale_paths(&self) -> ScalePaths<'_> {
        match &self.source {
            KindSource::Builtin(_) => ScalePaths {
                spec_replicas: ".spec.replicas",
                status_replicas: ".status.replicas",
                selector: None,
            },
            KindSource::Custom(custom) => {
                let scale = custom.scale.as_ref();
                ScalePaths {
                    spec_replicas: scale.map_or("", |it| &it.spec_path),
                    status_replicas: scale.map_or("", |it| &it.status_path),
                    selector: scale.and_then(|it| it.selector_path.as_deref()),
                }
            }
        }
    }

    /// Returns the scale of an object.
    pub(crate) fn scale_of(&self, object: &Value) -> Result<Value, StatusError> {
        let paths = self.scale_paths();
        let count = |path: &str| -> Result<Option<i64>, StatusError> {
            match value_at(object, path) {
                None | Some(Value::Null) => Ok(None),
                Some(value) => value.as_i64().map(Some).ok_or_else(|| {
                    let found = Value::to_string(value);
                    let words = format!(
                        "{path} accessor error: {found} is of the type {}, expected int64",
                        go_type(value)
                    );
                    StatusError::failure(words)
                }),
            }
        };
        let wanted = count(paths.spec_replicas)?;
        if wanted.is_none() && self.custom().is_some() {
            let words = format!("the spec replicas field {:?} does not exist", paths.spec_replicas);
            return Err(StatusError::internal(&words));
        }
        let present = count(paths.status_replicas)?.unwrap_or(0);
        let selector = match (&self.source, paths.selector) {
            (KindSource::Custom(_), Some(path)) => {
                value_at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned()
            }
            (KindSource::Custom(_), None) => String::new(),
            (KindSource::Builtin(_), _) => selector_text(&object["spec"]["selector"]),
        };
        let mut metadata = Map::new();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(name) {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        let mut spec = Map::new();
        if let Some(wanted) = wanted.filter(|it| *it != 0) {
            spec.insert("replicas".to_owned(), json!(wanted));
        }
        let mut status = Map::new();
        status.insert("replicas".to_owned(), json!(present));
        if !selector.is_empty() {
            status.insert("selector".to_owned(), json!(selector));
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": metadata, "spec": spec, "status": status,
        }))
    }

    /// Returns the object with the replicas of a scale.
    pub(crate) fn update_scale(
        &self,
        write: &Write,
        live: &Value,
        current: &Value,
        kind: Option<PatchType>,
        body: &Value,
        query: &Query,
    ) -> Result<ModifiedObject, StatusError> {
        let patched = match kind {
            None => body.clone(),
            Some(PatchType::Json) => {
                gantry_patch::json_patch(current, body).map_err(|_| StatusError::unprocessable())?
            }
            Some(PatchType::Merge | PatchType::Strategic) => {
                gantry_patch::merge_patch(current, body)
                    .map_err(|_| StatusError::unprocessable())?
            }
            Some(PatchType::Apply) => {
                let force = query.flag("force").unwrap_or(false);
                return self.apply_scale(write, live, current, body, force);
            }
        };
        let name = meta(&patched, "name");
        if !name.is_empty() && name != write.name {
            let wanted = &write.name;
            return Err(StatusError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({wanted})"
            )));
        }
        let revision = meta(&patched, "resourceVersion");
        if !revision.is_empty() && revision != meta(live, "resourceVersion") {
            return Err(StatusError::modified(&self.group, &self.plural, &write.name));
        }
        let replicas = match &patched["spec"]["replicas"] {
            Value::Null => 0,
            value => value.as_i64().ok_or_else(|| {
                StatusError::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal \
                     {} into Go struct field ScaleSpec.spec.replicas of type int32",
                    gantry_schema::json_kind(value)
                ))
            })?,
        };
        if replicas < 0 {
            let fault = FieldError::invalid(
                "spec.replicas",
                &json!(replicas),
                "must be greater than or equal to 0",
            );
            return Err(StatusError::invalid("autoscaling", "Scale", &write.name, &[fault]));
        }
        let mut scale = current.clone();
        scale["spec"]["replicas"] = json!(replicas);
        self.set_scale_ownership(write, live, |context, entries| {
            let mut old = current.clone();
            set_managed_fields(&mut old, entries);
            set_managed_fields(&mut scale, None);
            let _ = ownership::update(context, Some(&old), &mut scale);
            Ok(scale["metadata"]["managedFields"].take())
        })
        .map(|mut object| {
            set_value_at(&mut object, self.scale_paths().spec_replicas, json!(replicas));
            ModifiedObject::new(object)
        })
    }

    /// Changes the replicas of an object.
    pub(crate) fn set_scale(&self, object: &mut Value, replicas: i64) {
        set_value_at(object, self.scale_paths().spec_replicas, json!(replicas));
    }

    /// As above by server-side apply: the scale's field maps to the object's.
    fn apply_scale(
        &self,
        write: &Write,
        live: &Value,
        current: &Value,
        body: &Value,
        force: bool,
    ) -> Result<ModifiedObject, StatusError> {
        let mut applied = Value::Null;
        let mut object = self.set_scale_ownership(write, live, |context, entries| {
            let mut old = current.clone();
            set_managed_fields(&mut old, entries);
            applied = ownership::apply(context, Some(&old), body, force)
                .map_err(|fault| crate::verbs::change::apply_error(&fault))?;
            Ok(applied["metadata"]["managedFields"].take())
        })?;
        if let Some(replicas) = applied["spec"]["replicas"].as_i64() {
            set_value_at(&mut object, self.scale_paths().spec_replicas, json!(replicas));
        }
        Ok(ModifiedObject::new(object))
    }

    /// Returns the object with the field owners that a write to its scale leaves.
    ///
    /// A scale is not stored: its field owners are those of the object's replicas, and vice versa.
    fn set_scale_ownership(
        &self,
        write: &Write,
        live: &Value,
        change: impl FnOnce(&Context<'_>, Option<Value>) -> Result<Value, StatusError>,
    ) -> Result<Value, StatusError> {
        let failed = |fault: ownership::ManagedFieldsError| StatusError::failure(fault.to_string());
        let names: Vec<&str> =
            self.scale_paths().spec_replicas.split('.').filter(|name| !name.is_empty()).collect();
        let version = self.api_version();
        let path = Some(Path::fields(&names));
        let replicas: Vec<(&str, Option<Path>)> = match self.custom() {
            Some(custom) => {
                custom.served_schemas.keys().map(|it| (it.as_str(), path.clone())).collect()
            }
            None => vec![(version.as_str(), path)],
        };
        let parent = Parent { api_version: &version, replicas: &replicas };
        let entries = &live["metadata"]["managedFields"];
        let Some(kind) = gantry_builtin::kind_type("autoscaling", "v1", "Scale") else {
            return Ok(live.clone());
        };
        let schema = gantry_builtin::schema(kind);
        let (now, nothing) = (write.timestamp(), FieldSet::new());
        let empty = json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {},
            "spec": {}, "status": { "replicas": 0 } });
        let context = Context {
            schema: &schema,
            api_version: ownership::scale::API_VERSION,
            manager: &write.manager,
            subresource: "scale",
            now: &now,
            reset_fields: &nothing,
            empty: &empty,
            versions: &SingleVersion,
        };
        let owned = change(&context, parent.to_scale(entries).map_err(failed)?)?;
        let mut object = live.clone();
        set_managed_fields(&mut object, parent.to_parent(entries, &owned).map_err(failed)?);
        Ok(object)
    }
}

fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match entries {
        Some(entries) => drop(metadata.insert("managedFields".to_owned(), entries)),
        None => drop(metadata.shift_remove("managedFields")),
    }
}

/// Returns the value at a path such as `.spec.replicas`.
pub(crate) fn value_at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        value = value.get(name)?;
    }
    Some(value)
}

fn set_value_at(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if !place[name].is_object() && !place[name].is_null() && place[name] == value {
            return;
        }
        place = &mut place[name];
    }
    *place = value;
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a label selector as a string; it may be a plain map, as in old kinds.
pub(crate) fn selector_text(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else { return String::new() };
    let modern = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
    let mut terms: Vec<(String, String)> = Vec::new();
    let labels = if modern { selector["matchLabels"].as_object() } else { Some(fields) };
    for (key, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        terms.push((key.clone(), format!("{key}={value}")));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort_by(|left, right| left.0.cmp(&right.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_as_text() {
        let table = [
            (json!({ "matchLabels": { "b": "2", "a": "1" } }), "a=1,b=2"),
            (json!({ "a": "1" }), "a=1"),
            (
                json!({ "matchLabels": { "z": "1" }, "matchExpressions": [
                    { "key": "k", "operator": "In", "values": ["y", "x"] },
                    { "key": "e", "operator": "Exists" },
                    { "key": "d", "operator": "DoesNotExist" },
                    { "key": "n", "operator": "NotIn", "values": ["q"] },
                ] }),
                "!d,e,k in (x,y),n notin (q),z=1",
            ),
            (json!(null), ""),
        ];
        for (selector, expected) in table {
            assert_eq!(selector_text(&selector), expected, "{selector}");
        }
    }
}
