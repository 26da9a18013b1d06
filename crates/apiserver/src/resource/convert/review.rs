//! ConversionReview: the requests to conversion webhooks, and the checks of their responses.

use gantry_schema::FieldError;
use serde_json::{Map, Value, json};

use crate::admission::webhook_response;
use crate::verbs::write::meta;

/// The versions of ConversionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// Returns version and kind of an object, as messages name them.
pub(crate) fn kind_of(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    format!("{version}, Kind={}", text("kind"))
}

/// Builds the request to a webhook.
pub(super) fn conversion_review(
    version: ReviewVersion,
    uid: &str,
    api_version: &str,
    objects: &[Value],
) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": version.api_version(),
        "request": { "uid": uid, "desiredAPIVersion": api_version, "objects": objects },
        "response": { "uid": "", "convertedObjects": null, "result": { "metadata": {} } },
    })
}

/// Reads the objects of a response, or returns why there are none.
pub(super) fn read_response(
    version: ReviewVersion,
    uid: &str,
    bytes: &[u8],
) -> Result<Vec<Value>, String> {
    let kinds = [ReviewVersion::V1, ReviewVersion::V1Beta1].map(ReviewVersion::api_version);
    let mut answer =
        webhook_response::read_review(bytes, "ConversionReview", version.api_version(), &kinds)?;
    if version == ReviewVersion::V1 {
        let expected = json!({ "kind": "ConversionReview", "apiVersion": version.api_version() });
        let (expected, found) = (kind_of(&expected), kind_of(&answer));
        if expected != found {
            return Err(format!("expected webhook response of {expected}, got {found}"));
        }
    }
    let response = &mut answer["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = text(&response["uid"]);
    if version == ReviewVersion::V1 && said != uid {
        let (uid, said) = (json!(uid), json!(said));
        return Err(format!("expected response.uid={uid}, got {said}"));
    }
    let status = text(&response["result"]["status"]);
    if status != "Success" {
        let message = text(&response["result"]["message"]);
        return Err(if message.is_empty() {
            format!("response.result.status was '{status}', not 'Success'")
        } else {
            message
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Returns the converted objects with all metadata of the originals except labels and annotations;
/// or what is wrong if they are not what was requested.
pub(super) fn check_converted(
    originals: &[Value],
    converted: Vec<Value>,
    api_version: &str,
) -> Result<Vec<Value>, String> {
    if converted.len() != originals.len() {
        let (found, expected) = (converted.len(), originals.len());
        return Err(format!("returned {found} objects, expected {expected}"));
    }
    originals
        .iter()
        .zip(converted)
        .map(|(original, converted)| check_converted_object(original, converted, api_version))
        .collect()
}

fn check_converted_object(
    original: &Value,
    mut converted: Value,
    wanted: &str,
) -> Result<Value, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&converted["apiVersion"]), text(&converted["kind"]));
    if version != wanted {
        return Err(format!(
            "returned invalid object at index 0: invalid groupVersion (expected {wanted}, received \
             {version})"
        ));
    }
    let expected = text(&original["kind"]);
    if kind != expected {
        return Err(format!(
            "returned invalid object at index 0: invalid kind (expected {expected}, received \
             {kind})"
        ));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, found) = (meta(original, field), meta(&converted, field));
        if expected != found {
            return Err(format!(
                "returned invalid object: must have the same {word}: {expected} != {found}"
            ));
        }
    }
    restore_metadata(original, &mut converted)
        .map_err(|why| format!("returned invalid metadata: {why}"))?;
    Ok(converted)
}

/// Restores the original's metadata, except for labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) -> Result<(), String> {
    let said = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(said)) => said,
        Some(other) => {
            let kind = gantry_schema::go_type(&other);
            return Err(format!("invalid metadata of type {kind} in converted object"));
        }
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let value = match said.get(field) {
            None | Some(Value::Null) => {
                metadata.shift_remove(field);
                continue;
            }
            Some(Value::Object(value)) => value,
            Some(other) => {
                let kind = gantry_schema::go_type(other);
                return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
            }
        };
        if let Some((key, value)) = value.iter().find(|(_, value)| !value.is_string()) {
            let kind = gantry_schema::go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
            ));
        }
        if metadata.get(field).and_then(Value::as_object) != Some(value) {
            check_string_map(field, value)?;
        }
        metadata.insert(field.to_owned(), Value::Object(value.clone()));
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

/// Returns what is wrong with changed labels or annotations.
fn check_string_map(field: &str, texts: &Map<String, Value>) -> Result<(), String> {
    let mut object = json!({ "metadata": { "name": "x" } });
    object["metadata"][field] = Value::Object(texts.clone());
    let behaviour = gantry_kinds::behaviour::custom(false);
    let (faults, _) = gantry_kinds::validate_metadata(&object, None, false, behaviour);
    let mut words: Vec<String> = Vec::new();
    for fault in faults.iter().filter(|fault| fault.field.starts_with("metadata.")) {
        // Upstream uses another name for annotations here.
        let FieldError { field, message, .. } = fault;
        let field = field.strip_suffix('s').filter(|it| it.ends_with("annotation"));
        let fault = format!("{}: {message}", field.unwrap_or(&fault.field));
        // Several layers repeat the message.
        if !words.contains(&fault) {
            words.push(fault);
        }
    }
    match words.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests;
