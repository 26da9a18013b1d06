//! What an API server is told that asks about new objects before it keeps them.
//!
//! A pod that claims devices is to wait for them: it is given our scheduler's name, or the gate, by
//! [`Mode`]. What its author chose stays. What it says about devices, and what objects of this group
//! say, is read by the one reader there is (crate `api`): what that refuses is refused, what it warns of
//! is told to who writes it. Everything here follows from the question alone; what depends on other
//! objects, a label of the namespace, is part of who asks ([`Question::Unlabelled`]), because the server
//! can select by it and would otherwise have to be asked.
//!
//! Nothing that is stored already is kept from changing in other ways or from going: an object whose
//! content stays as it was is never refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_api::decode;
use gantry_api::devices::{CARRIER_ANNOTATIONS, Carried};
use gantry_api::finding::{Finding, Findings};
use serde_json::{Value, json};

use crate::gate::GATE;
use crate::scheduler::NAME;
use crate::scheduler::quota::ADMIN_LABEL;

mod configuration;
mod copied;
mod protect;

pub use configuration::{CONFIGURATION, Failure, configurations};
pub use protect::PROTECTED_ANNOTATIONS;

/// Who gives pods that claim devices to nodes, if their authors do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We do: pods get our scheduler's name.
    #[default]
    Scheduler,
    /// Their own scheduler does, after their devices are settled: pods get the gate.
    Gate,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// How a pod is to be changed.
    Mutate,
    /// Whether an object is as it should be.
    Validate,
    /// Whether an object may be in a namespace without the label that lets it look at devices of
    /// others.
    Unlabelled,
    /// Whether somebody other than the allocator may write what drivers trust.
    Protected,
    /// Whether somebody may have ConfigMaps copied that they may not read.
    Copied,
}

impl Question {
    const ALL: [Self; 5] =
        [Self::Mutate, Self::Validate, Self::Unlabelled, Self::Protected, Self::Copied];

    /// Where it is asked.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/devices/mutate",
            Self::Validate => "/devices/validate",
            Self::Unlabelled => "/devices/validate-unlabelled",
            Self::Protected => "/devices/validate-protected",
            Self::Copied => "/devices/validate-copied",
        }
    }

    /// What is asked at a path.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.path() == path)
    }
}

/// Answers an AdmissionReview with an AdmissionReview.
#[must_use]
pub fn answer(mode: Mode, question: Question, review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"].as_str().unwrap_or_default()});
    let Answer { refused, forbidden, warnings, patch } = match request.is_object() {
        true => decide(mode, question, request),
        false => Answer {
            refused: Some("this is no AdmissionReview with a request".to_owned()),
            ..Answer::default()
        },
    };
    response["allowed"] = json!(refused.is_none());
    if let Some(message) = refused {
        let (code, reason) = if forbidden { (403, "Forbidden") } else { (422, "Invalid") };
        response["status"] = json!({"code": code, "reason": reason, "message": message});
    }
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(Value::Array(patch).to_string()));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// What is said to a request.
#[derive(Debug, Default)]
struct Answer {
    refused: Option<String>,
    /// Whether it is refused because of who asks, and not because of what it says.
    forbidden: bool,
    warnings: Vec<String>,
    patch: Vec<Value>,
}

impl Answer {
    /// What the reader found. What was stored before it was asked is not refused for it.
    fn of(findings: &Findings, request: &Value) -> Self {
        let Findings { errors, warnings, .. } = findings;
        let refused = !errors.is_empty() && is_news(request);
        let errors: Vec<String> = errors.iter().map(spell).collect();
        Self {
            refused: refused.then(|| errors.join("; ")),
            warnings: warnings.iter().map(spell).collect(),
            ..Self::default()
        }
    }
}

/// A finding on one line, as a header is.
fn spell(finding: &Finding) -> String {
    let text = format!("{}: {}", finding.path, finding.text);
    text.replace(char::is_control, " ")
}

fn decide(mode: Mode, question: Question, request: &Value) -> Answer {
    let object = &request["object"];
    let is_pod = object["apiVersion"] == "v1" && object["kind"] == "Pod";
    match question {
        _ if object.is_null() => Answer::default(),
        Question::Mutate if is_pod => Answer { patch: mutate(mode, object), ..Answer::default() },
        Question::Mutate => Answer::default(),
        Question::Validate if is_pod => validate_pod(object, request),
        Question::Validate => validate(object, request),
        Question::Unlabelled => unlabelled(object, request),
        Question::Protected => protect::refuse(object, request),
        Question::Copied => copied::refuse(object, request),
    }
}

/// Whether a request says anything that is not stored yet. The status is written by others than the
/// rest, and metadata is nobody's content.
fn is_news(request: &Value) -> bool {
    let content = |object: &Value| {
        let mut content = object.clone();
        if let Some(fields) = content.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "metadata" | "status"));
        }
        content
    };
    let (object, old) = (&request["object"], &request["oldObject"]);
    let going = object["metadata"]["deletionTimestamp"].is_string();
    !going && (old.is_null() || content(object) != content(old))
}

/// Whether a pod says anything about devices in a way that every server keeps.
fn has_carrier(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    CARRIER_ANNOTATIONS.iter().any(|name| annotations[*name].is_string())
}

/// The name of a scheduler that nobody chose: servers fill it in before they ask.
const USUAL: &str = "default-scheduler";

/// Who looks after the devices of a pod.
enum Care {
    /// We do.
    Ours,
    /// Nobody, and nobody was chosen.
    Open,
    /// Nobody: it has a node, or a scheduler of its own.
    Theirs,
}

fn care(pod: &Value) -> Care {
    let spec = &pod["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default();
    let gates = spec["schedulingGates"].as_array().into_iter().flatten();
    if text("schedulerName") == NAME || gates.into_iter().any(|it| it["name"] == GATE) {
        return Care::Ours;
    }
    match (text("nodeName"), text("schedulerName")) {
        ("", "" | USUAL) => Care::Open,
        _ => Care::Theirs,
    }
}

/// How a pod is changed so that it waits for its devices.
fn mutate(mode: Mode, pod: &Value) -> Vec<Value> {
    let add = |path: &str, value: Value| vec![json!({"op": "add", "path": path, "value": value})];
    let bound = !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if !has_carrier(pod) || bound {
        return Vec::new();
    }
    match (mode, care(pod)) {
        (_, Care::Ours) | (Mode::Scheduler, Care::Theirs) => Vec::new(),
        (Mode::Scheduler, Care::Open) => add("/spec/schedulerName", json!(NAME)),
        // Any scheduler waits behind a gate, so its name may stay whatever it is.
        (Mode::Gate, Care::Open | Care::Theirs) => {
            let gate = json!({"name": GATE});
            match pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
                true => add("/spec/schedulingGates/-", gate),
                false => add("/spec/schedulingGates", json!([gate])),
            }
        }
    }
}

fn validate_pod(pod: &Value, request: &Value) -> Answer {
    if !has_carrier(pod) {
        return Answer::default();
    }
    let (_, findings) = Carried::remarked(pod);
    let mut answer = Answer::of(&findings, request);
    match care(pod) {
        Care::Ours => {}
        Care::Open | Care::Theirs => answer.warnings.push(format!(
            "spec.schedulerName: nobody gives the pod its devices, and it will run without them; \
             use \"{NAME}\", or add the scheduling gate \"{GATE}\""
        )),
    }
    answer
}

/// Whether an object of this group can be understood.
fn validate(object: &Value, request: &Value) -> Answer {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // Whose field is whose is a tree of names that no schema describes.
        metadata.shift_remove("managedFields");
    }
    match decode::object(&object) {
        Ok((_, findings)) | Err(findings) => Answer::of(&findings, request),
    }
}

/// Whether an object looks at devices of others, which needs a label that its namespace does not have.
/// What is made for a pod is refused when it is to be allocated, and the pod says so.
fn unlabelled(object: &Value, request: &Value) -> Answer {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let of_pod = owners.into_iter().any(|it| it["controller"] == true && it["kind"] == "Pod");
    let path = match object["kind"].as_str() {
        Some("DevicePrivilegedClaim") if !of_pod => "metadata.namespace",
        Some("DeviceClaimTemplate") if object["spec"]["privilegedClaimSpec"].is_object() => {
            "spec.privilegedClaimSpec"
        }
        _ => return Answer::default(),
    };
    let refused = is_news(request).then(|| {
        format!(
            "{path}: Forbidden: it looks at devices of others, which needs the label \
             {ADMIN_LABEL}: \"true\" on the namespace; have it set, or use a DeviceClaim"
        )
    });
    Answer { refused, ..Answer::default() }
}

#[cfg(test)]
mod tests;
