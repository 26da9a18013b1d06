//! AdmissionReview: the requests to admission webhooks, and the checks of their responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_admission::{Request, ResourceView};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::WebhookFailure;
use crate::admission::webhook_response;
use crate::response::status::StatusError;

/// The versions of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The type of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WebhookType {
    Mutating,
    Validating,
}

/// Builds the request to a webhook. The objects of the request are in the version it asked for.
pub(super) fn admission_review(
    version: ReviewVersion,
    uid: &str,
    request: &Request<'_>,
    view: &ResourceView,
) -> Value {
    let mut asked = Map::new();
    asked.insert("uid".to_owned(), json!(uid));
    if let Value::Object(known) = request.to_json(view) {
        asked.extend(known);
    }
    // In the usual position, which matters only to readers.
    let (dry_run, options) = (asked.shift_remove("dryRun"), asked.shift_remove("options"));
    asked.insert("object".to_owned(), request.object.cloned().unwrap_or_default());
    asked.insert("oldObject".to_owned(), request.old.cloned().unwrap_or_default());
    asked.insert("dryRun".to_owned(), dry_run.unwrap_or_default());
    asked.insert("options".to_owned(), options.unwrap_or_default());
    json!({ "kind": "AdmissionReview", "apiVersion": version.api_version(), "request": asked })
}

/// The response of a webhook.
#[derive(Debug, PartialEq)]
pub(super) struct WebhookResponse {
    pub(super) verdict: AdmissionVerdict,
    pub(super) warnings: Vec<String>,
    /// The patch of the object.
    pub(super) patch: Option<Value>,
}

/// Whether a write may go on.
#[derive(Debug, PartialEq)]
pub(super) enum AdmissionVerdict {
    Allowed,
    /// With the status in the response, or null.
    Denied(Value),
}

/// Decodes the document of a response.
pub(super) fn read_response(version: ReviewVersion, bytes: &[u8]) -> Result<Value, String> {
    let kinds = [ReviewVersion::V1, ReviewVersion::V1Beta1].map(ReviewVersion::api_version);
    let document =
        webhook_response::read_review(bytes, "AdmissionReview", version.api_version(), &kinds)?;
    check_types(&document["response"])?;
    Ok(document)
}

/// Checks that the fields of a response have the right types, as far as they matter here.
fn check_types(response: &Value) -> Result<(), String> {
    let wrong = |field: &str, value: &Value, wanted: &str| {
        let found = gantry_schema::json_kind(value);
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field \
             AdmissionResponse.response.{field} of type {wanted}"
        ))
    };
    if !(response.is_object() || response.is_null()) {
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field AdmissionReview.response of type \
             v1.AdmissionResponse",
            gantry_schema::json_kind(response)
        ));
    }
    let of = |field: &str| response.get(field).filter(|it| !it.is_null());
    match of("uid") {
        Some(value) if !value.is_string() => return wrong("uid", value, "types.UID"),
        _ => {}
    }
    match of("allowed") {
        Some(value) if !value.is_boolean() => return wrong("allowed", value, "bool"),
        _ => {}
    }
    match of("patchType") {
        Some(value) if !value.is_string() => return wrong("patchType", value, "v1.PatchType"),
        _ => {}
    }
    match of("patch") {
        Some(Value::String(text)) => STANDARD.decode(text).map(drop).map_err(|fault| {
            format!("illegal base64 data at input byte {}", invalid_base64_offset(&fault))
        }),
        Some(value) => wrong("patch", value, "[]uint8"),
        None => Ok(()),
    }
}

/// Returns the position of the first invalid character of base64.
fn invalid_base64_offset(fault: &base64::DecodeError) -> usize {
    match fault {
        base64::DecodeError::InvalidByte(place, _)
        | base64::DecodeError::InvalidLastSymbol(place, _) => *place,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(length % 4),
        base64::DecodeError::InvalidPadding => 0,
    }
}

/// Interprets a response, or returns why it is invalid.
pub(super) fn verify_response(
    version: ReviewVersion,
    side: WebhookType,
    uid: &str,
    mut document: Value,
) -> Result<WebhookResponse, String> {
    let kind = crate::resource::convert::kind_of(&document);
    let response = &mut document["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if version == ReviewVersion::V1 {
        let said = text(&response["uid"]);
        if said != uid {
            let (uid, said) = (json!(uid), json!(said));
            return Err(format!("expected response.uid={uid}, got {said}"));
        }
        let expected = format!("{}, Kind=AdmissionReview", version.api_version());
        if kind != expected {
            return Err(format!("expected webhook response of {expected}, got {kind}"));
        }
    }
    let patch = patch_of(version, side, response)?;
    let warnings = response["warnings"].as_array().into_iter().flatten();
    // Warnings that cannot be in a header are dropped.
    let sayable = |text: &&str| !text.is_empty() && !text.contains(char::is_control);
    let warnings = warnings.filter_map(Value::as_str).filter(sayable);
    let warnings = warnings.map(str::to_owned).collect();
    let verdict = if response["allowed"] == true {
        AdmissionVerdict::Allowed
    } else {
        AdmissionVerdict::Denied(response["status"].take())
    };
    Ok(WebhookResponse { verdict, warnings, patch })
}

/// Returns the patch of a response: its type and its text.
fn patch_of(
    version: ReviewVersion,
    side: WebhookType,
    response: &Value,
) -> Result<Option<Value>, String> {
    let kind = response["patchType"].as_str();
    let text = response["patch"].as_str().filter(|text| !text.is_empty());
    match (side, version) {
        (WebhookType::Validating, ReviewVersion::V1Beta1) => return Ok(None),
        (WebhookType::Validating, ReviewVersion::V1) if text.is_some() => {
            return Err("validating webhook may not return response.patch".to_owned());
        }
        (WebhookType::Validating, ReviewVersion::V1) if kind.is_some() => {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
        (WebhookType::Mutating, ReviewVersion::V1) if text.is_some() && kind.is_none() => {
            return Err("webhook returned response.patch but not response.patchType".to_owned());
        }
        (WebhookType::Mutating, ReviewVersion::V1) if text.is_none() && kind.is_some() => {
            return Err("webhook returned response.patchType but not response.patch".to_owned());
        }
        (WebhookType::Mutating, ReviewVersion::V1) if kind == Some("") => {
            return Err("webhook returned invalid response.patchType of \"\"".to_owned());
        }
        (WebhookType::Validating | WebhookType::Mutating, ReviewVersion::V1)
        | (WebhookType::Mutating, ReviewVersion::V1Beta1) => {}
    }
    let kind = match version {
        ReviewVersion::V1 => kind.unwrap_or_default(),
        ReviewVersion::V1Beta1 => "JSONPatch",
    };
    Ok(text.map(|text| json!({ "type": kind, "text": text })))
}

/// Returns the refusal for a webhook that denies a write.
pub(super) fn denial_error(webhook: &str, verdict: AdmissionVerdict) -> Option<StatusError> {
    let status = match verdict {
        AdmissionVerdict::Allowed => return None,
        AdmissionVerdict::Denied(status) => status,
    };
    let text = |name: &str| status[name].as_str().unwrap_or_default();
    let denied = format!("admission webhook {} denied the request", json!(webhook));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..1000).contains(code)).unwrap_or(400);
    let result = match text("status") {
        "" | "Success" => "Failure",
        other => other,
    };
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
    put("kind", json!("Status"));
    put("apiVersion", json!("v1"));
    put("metadata", status["metadata"].as_object().map_or_else(|| json!({}), |it| json!(it)));
    put("status", json!(result));
    put("message", json!(message));
    if !text("reason").is_empty() {
        put("reason", json!(text("reason")));
    }
    if status["details"].is_object() {
        put("details", status["details"].clone());
    }
    put("code", json!(code));
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    Some(StatusError::from_document(code, Value::Object(document)))
}

/// Applies a patch to the object of a request; `None` if there is no object and the patch is empty.
pub(super) fn apply_patch(
    webhook: &str,
    request: &Request<'_>,
    patch: &Value,
) -> Result<Option<Value>, WebhookFailure> {
    let text = STANDARD.decode(patch["text"].as_str().unwrap_or_default()).unwrap_or_default();
    let undecodable = |why: &str| {
        WebhookFailure::Call(format!("received undecodable patch in webhook response: {why}"))
    };
    let operations =
        gantry_schema::read_json(&text).map_err(|fault| undecodable(&fault.to_string()))?.0;
    match &operations {
        Value::Array(operations) if operations.is_empty() => return Ok(request.object.cloned()),
        Value::Array(_) => {}
        other => {
            let kind = gantry_schema::json_kind(other);
            let into = "Go value of type jsonpatch.Patch";
            return Err(undecodable(&format!("json: cannot unmarshal {kind} into {into}")));
        }
    }
    let Some(object) = request.object else { return Err(nothing_to_change(webhook)) };
    let kind = patch["type"].as_str().unwrap_or_default();
    if kind != "JSONPatch" {
        return Err(WebhookFailure::Call(format!("unsupported patch type {}", json!(kind))));
    }
    gantry_patch::json_patch(object, &operations).map(Some).map_err(|fault| match fault {
        gantry_patch::PatchError::Decode(why) => undecodable(&why),
        gantry_patch::PatchError::Rejected(why) => WebhookFailure::Internal(why),
        gantry_patch::PatchError::TooManyOperations(_) => {
            WebhookFailure::Internal(fault.to_string())
        }
    })
}

fn nothing_to_change(webhook: &str) -> WebhookFailure {
    WebhookFailure::Internal(format!(
        "admission webhook {} attempted to modify the object, which is not supported for this \
         operation",
        json!(webhook)
    ))
}

#[cfg(test)]
mod tests;
