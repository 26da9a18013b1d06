//! CustomResourceDefinitions: how they are validated, and what happens to them on a write.

mod approval;
mod conversion;
mod dump;
mod names;
mod versions;

use serde_json::{Map, Value, json};

use crate::field_error::{FieldError, FieldErrorReason};
use crate::format::Format;
use crate::go;
use crate::metadata::invalid_value;
use crate::names::{dns1035_label, dns1123_subdomain};
use crate::props::Props;
use crate::structural::subschemas;

pub use approval::approval_condition;
pub use names::{Condition, NamesStatus, accept_names};

/// Gives a definition what its author may leave out: the singular, the kind of lists, no
/// conversion, the port of a webhook's service, and the version it is stored in.
pub fn default_definition(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = text(names, "kind").to_owned();
        if text(names, "singular").is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({ "strategy": "None" }));
    }
    let service = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
        .and_then(Value::as_object_mut);
    if let Some(service) = service {
        service.entry("port").or_insert_with(|| json!(443));
    }
    let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
    if stored.is_none_or(Vec::is_empty) {
        let storage = storage_version(definition).map(ToOwned::to_owned);
        set_stored(definition, storage.into_iter().collect());
    }
}

/// Sets the status of a definition that is about to be created, or updated from `old`: writers of a
/// definition do not decide about it. A new storage version joins those that are stored.
pub fn prepare_definition(definition: &mut Value, old: Option<&Value>) {
    let status = match old {
        Some(old) => old.get("status").cloned().unwrap_or_default(),
        None => json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" } }),
    };
    if let Some(map) = definition.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    let mut stored = stored_versions(definition);
    if let Some(storage) = storage_version(definition).map(ToOwned::to_owned)
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    set_stored(definition, stored);
}

/// Checks a definition that is to be created, or to replace `old`. It is expected to have its
/// [defaults](default_definition) and its [status](prepare_definition).
///
/// Of metadata only the name is looked at; the rest is the same for all kinds. Rules must compile
/// and stay below the limits of cost; those of a schema that did not change, only below that of all
/// rules together.
#[must_use]
pub fn validate_definition(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let empty = Map::new();
    let part = |name: &str| definition.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let (spec, status) = (part("spec"), part("status"));
    if old.is_none() {
        name(part("metadata"), spec, &mut faults);
    }
    self::spec(spec, old, &mut faults);
    if let Some(old) = old {
        immutable(spec, old, &mut faults);
    }
    let accepted = status.get("acceptedNames").and_then(Value::as_object).unwrap_or(&empty);
    names::validate(accepted, "status.acceptedNames", &mut faults);
    stored(definition, &mut faults);
    approval::validate(definition, old, &mut faults);
    let preserved = |definition: &Value| {
        definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true))
    };
    if preserved(definition) && !old.is_some_and(preserved) {
        let message = "Invalid value: true: cannot set to true, set \
                       x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                       instead";
        let field = "spec.preserveUnknownFields";
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message.to_owned()));
    }
    faults
}

/// Warnings for the writer of a definition that is accepted: formats of strings that are not
/// checked. Those of `old` were reported before.
#[must_use]
pub fn definition_warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let told = old.map(unknown_formats).unwrap_or_default();
    let formats = unknown_formats(definition).into_iter().filter(|format| !told.contains(format));
    formats.map(|format| format!("unrecognized format {}", go::quote(format))).collect()
}

fn unknown_formats(definition: &Value) -> Vec<&str> {
    fn node<'schema>(props: Props<'schema>, found: &mut Vec<&'schema str>) {
        let format = props.text("format");
        if props.text("type") == "string"
            && !format.is_empty()
            && Format::from_name(format).is_none()
        {
            found.push(format);
        }
        for part in subschemas(props) {
            node(part, found);
        }
    }
    let mut found = Vec::new();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let mut schemas: Vec<&Value> = Vec::new();
    for version in versions.into_iter().flatten() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { continue };
        // Versions that share a schema share its warnings.
        if schemas.contains(&schema) {
            continue;
        }
        schemas.push(schema);
        if let Some(props) = Props::of(schema) {
            node(props, &mut found);
        }
    }
    found
}

fn text<'map>(map: &'map Map<String, Value>, name: &str) -> &'map str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The name of the version that is stored.
fn storage_version(definition: &Value) -> Option<&str> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let storage = versions.iter().find(|version| version["storage"] == Value::Bool(true))?;
    storage.get("name")?.as_str()
}

fn stored_versions(definition: &Value) -> Vec<String> {
    let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
    let names = stored.into_iter().flatten().filter_map(Value::as_str);
    names.map(ToOwned::to_owned).collect()
}

fn set_stored(definition: &mut Value, stored: Vec<String>) {
    let Some(map) = definition.as_object_mut() else { return };
    let status = map.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        // If nothing is stored there is no list, rather than an empty one.
        let stored = if stored.is_empty() { Value::Null } else { Value::from(stored) };
        status.insert("storedVersions".to_owned(), stored);
    }
}

fn name(metadata: &Map<String, Value>, spec: &Map<String, Value>, faults: &mut Vec<FieldError>) {
    let names = spec.get("names").and_then(Value::as_object);
    let plural = names.map(|names| text(names, "plural")).unwrap_or_default();
    let required = format!("{plural}.{}", text(spec, "group"));
    let name = text(metadata, "name");
    if name.is_empty() {
        let detail = "name or generateName is required";
        faults.push(FieldError::required("metadata.name", detail));
        return;
    }
    let wrong = dns1123_subdomain(name);
    faults.extend(wrong.iter().map(|detail| invalid_value("metadata.name", name, detail)));
    if name != required {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        faults.push(invalid_value("metadata.name", name, detail));
    }
}

fn spec(spec: &Map<String, Value>, old: Option<&Value>, faults: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let wrong = dns1123_subdomain(group);
    if group.is_empty() {
        faults.push(FieldError::required("spec.group", ""));
    } else if !wrong.is_empty() {
        faults.push(invalid_value("spec.group", group, &wrong.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        faults.push(invalid_value("spec.group", group, detail));
    }
    choice(text(spec, "scope"), &["Cluster", "Namespaced"], "spec.scope", faults);
    let empty = Vec::new();
    let list = spec.get("versions").and_then(Value::as_array).unwrap_or(&empty);
    let versions = versions::Versions::of(list);
    versions.require_schemas(faults);
    let preserves = spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
    if preserves && versions.have_defaults() {
        let message = "Invalid value: true: must be false in order to use defaults in the schema";
        let field = "spec.preserveUnknownFields";
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message.to_owned()));
    }
    versions.validate_each(old, faults);
    storage(list, &versions, faults);
    let no_names = Map::new();
    let names = spec.get("names").and_then(Value::as_object).unwrap_or(&no_names);
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(names, name).is_empty() {
            faults.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    names::validate(names, "spec.names", faults);
    versions.validate_shared(old, faults);
    if let Some(conversion) = spec.get("conversion").and_then(Props::of) {
        conversion::validate(conversion, preserves, faults);
    }
}

fn storage(list: &[Value], versions: &versions::Versions<'_>, faults: &mut Vec<FieldError>) {
    let names: Vec<&str> = list.iter().filter_map(|version| version["name"].as_str()).collect();
    let is_repeated = |(index, name): (usize, &&str)| names[..index].contains(name);
    let mut told = |detail: &str| {
        let message = format!("Invalid value: {}: {detail}", dump::versions(list, versions));
        faults.push(FieldError::new("spec.versions", FieldErrorReason::Invalid, message));
    };
    if names.iter().enumerate().any(is_repeated) {
        told("must contain unique version names");
    }
    let stored = list.iter().filter(|version| version["storage"] == Value::Bool(true)).count();
    if stored != 1 {
        told("must have exactly one version marked as storage version");
    }
    // The first version is also reported by the name of the field that had it before there were
    // many.
    if let Some(first) = names.first() {
        let wrong = dns1035_label(first);
        if !wrong.is_empty() {
            faults.push(invalid_value("spec.version", first, &wrong.join(",")));
        }
    }
}

fn choice(value: &str, choices: &[&str], field: &str, faults: &mut Vec<FieldError>) {
    if value.is_empty() {
        faults.push(FieldError::required(field, ""));
    } else if !choices.contains(&value) {
        faults.push(FieldError::not_supported(field, &Value::from(value), choices));
    }
}

/// What must stay. Names and scope may change until they are in use.
fn immutable(spec: &Map<String, Value>, old: &Value, faults: &mut Vec<FieldError>) {
    let empty = Map::new();
    let old_spec = old.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let is_established = condition_status(old, "Established") == Some("True");
    let fields =
        [("scope", None), ("kind", Some("names")), ("group", None), ("plural", Some("names"))];
    for (name, within) in fields {
        if matches!(name, "scope" | "kind") && !is_established {
            continue;
        }
        let value = |spec: &Map<String, Value>| match within {
            Some(part) => spec.get(part).and_then(|part| part.get(name)).cloned(),
            None => spec.get(name).cloned(),
        };
        let (new, old) = (value(spec).unwrap_or_default(), value(old_spec).unwrap_or_default());
        if new != old {
            let field = match within {
                Some(part) => format!("spec.{part}.{name}"),
                None => format!("spec.{name}"),
            };
            let new = new.as_str().unwrap_or_default();
            faults.push(invalid_value(&field, new, "field is immutable"));
        }
    }
}

/// The status of a condition of a definition.
fn condition_status<'definition>(
    definition: &'definition Value,
    kind: &str,
) -> Option<&'definition str> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    condition.get("status")?.as_str()
}

fn stored(definition: &Value, faults: &mut Vec<FieldError>) {
    let field = "status.storedVersions";
    let stored = stored_versions(definition);
    if stored.is_empty() {
        let message = "Invalid value: null: must have at least one stored version".to_owned();
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
        return;
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.map(Vec::as_slice).unwrap_or_default();
    let declared: Vec<&str> = versions.iter().filter_map(|it| it["name"].as_str()).collect();
    for version in versions.iter().filter(|version| version["storage"] == Value::Bool(true)) {
        let name = version["name"].as_str().unwrap_or_default();
        if !stored.iter().any(|stored| stored == name) {
            let message = format!(
                "Invalid value: {}: must have the storage version {name}",
                go::json(&Value::from(stored.clone()))
            );
            faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !declared.contains(&name.as_str()) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            faults.push(invalid_value(&format!("{field}[{index}]"), name, &detail));
        }
    }
}

#[cfg(test)]
mod tests;
