//! Answers the admission reviews of an API server about new objects.
//!
//! A pod that claims devices must wait for them: it gets our scheduler's name, or the gate, by
//! [`Mode`]. What its author chose stays. Its claims, and objects of this group, are parsed by the
//! one parser there is (crate `api`): what that rejects is denied, and its warnings are returned to
//! the client. Everything here follows from the request alone; what depends on other objects, a
//! label of the namespace, is part of the webhook configuration ([`AdmissionCheck::AdminAccess`]),
//! because the server can select by it and other objects would have to be read otherwise.
//!
//! Stored objects can always be changed in other ways or deleted: an update that leaves the content
//! unchanged is never denied.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_api::decode;
use gantry_api::devices::{DEVICE_ANNOTATIONS, PodDeviceClaims};
use gantry_api::finding::{Finding, Findings};
use serde_json::{Value, json};

use crate::scheduler::SCHEDULER_NAME;
use crate::scheduler::quota::ADMIN_ACCESS_LABEL;
use crate::scheduling_gate::SCHEDULING_GATE;

mod config_map_access;
mod configuration;
mod protect;

pub use configuration::{CONFIGURATION_NAME, FailurePolicy, configurations};
pub use protect::PROTECTED_ANNOTATIONS;

/// Which scheduler binds pods that claim devices, if their authors do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ours: pods get our scheduler's name.
    #[default]
    Scheduler,
    /// Their own, after their devices are allocated: pods get the gate.
    Gate,
}

/// The check that a webhook performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionCheck {
    /// How a pod must be changed.
    Mutate,
    /// Whether an object is valid.
    Validate,
    /// Whether an object may be in a namespace without the label that allows administrator access.
    AdminAccess,
    /// Whether a user other than the allocator may write what drivers trust.
    Protected,
    /// Whether a user may have ConfigMaps copied without permission to read them.
    ConfigMapAccess,
}

impl AdmissionCheck {
    const ALL: [Self; 5] =
        [Self::Mutate, Self::Validate, Self::AdminAccess, Self::Protected, Self::ConfigMapAccess];

    /// Returns the path of the webhook.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/devices/mutate",
            Self::Validate => "/devices/validate",
            Self::AdminAccess => "/devices/validate-unlabelled",
            Self::Protected => "/devices/validate-protected",
            Self::ConfigMapAccess => "/devices/validate-copied",
        }
    }

    /// Returns the check at a path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.path() == path)
    }
}

/// Answers an AdmissionReview with an AdmissionReview.
#[must_use]
pub fn answer_review(mode: Mode, question: AdmissionCheck, review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"].as_str().unwrap_or_default()});
    let AdmissionResponse { denied: refused, forbidden, warnings, patch } =
        match request.is_object() {
            true => decide(mode, question, request),
            false => AdmissionResponse {
                denied: Some("not an AdmissionReview with a request".to_owned()),
                ..AdmissionResponse::default()
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

/// The response to a request.
#[derive(Debug, Default)]
struct AdmissionResponse {
    denied: Option<String>,
    /// Whether it is denied because of its user, and not because of its content.
    forbidden: bool,
    warnings: Vec<String>,
    patch: Vec<Value>,
}

impl AdmissionResponse {
    /// Creates a response from the findings of the parser. An update is not denied for content that
    /// was stored before.
    fn from_findings(findings: &Findings, request: &Value) -> Self {
        let Findings { errors, warnings, .. } = findings;
        let refused = !errors.is_empty() && changes_content(request);
        let errors: Vec<String> = errors.iter().map(warning_text).collect();
        Self {
            denied: refused.then(|| errors.join("; ")),
            warnings: warnings.iter().map(warning_text).collect(),
            ..Self::default()
        }
    }
}

/// Formats a finding on one line, as a header needs it.
fn warning_text(finding: &Finding) -> String {
    let text = format!("{}: {}", finding.path, finding.text);
    text.replace(char::is_control, " ")
}

fn decide(mode: Mode, question: AdmissionCheck, request: &Value) -> AdmissionResponse {
    let object = &request["object"];
    let is_pod = object["apiVersion"] == "v1" && object["kind"] == "Pod";
    match question {
        _ if object.is_null() => AdmissionResponse::default(),
        AdmissionCheck::Mutate if is_pod => {
            AdmissionResponse { patch: mutate(mode, object), ..AdmissionResponse::default() }
        }
        AdmissionCheck::Mutate => AdmissionResponse::default(),
        AdmissionCheck::Validate if is_pod => validate_pod(object, request),
        AdmissionCheck::Validate => validate(object, request),
        AdmissionCheck::AdminAccess => check_admin_access(object, request),
        AdmissionCheck::Protected => protect::deny(object, request),
        AdmissionCheck::ConfigMapAccess => config_map_access::deny(object, request),
    }
}

/// Whether a request contains anything that is not stored yet. The status is written separately,
/// and metadata does not count as content.
fn changes_content(request: &Value) -> bool {
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

/// Whether a pod claims devices in a form that every server keeps.
fn claims_devices(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    DEVICE_ANNOTATIONS.iter().any(|name| annotations[*name].is_string())
}

/// The scheduler name of pods without one: servers fill it in before they call webhooks.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The scheduler that is responsible for a pod.
enum SchedulerChoice {
    /// Ours.
    Ours,
    /// None, and none was chosen.
    Unset,
    /// Another: the pod has a node, or a scheduler of its own.
    Other,
}

fn scheduler_choice(pod: &Value) -> SchedulerChoice {
    let spec = &pod["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default();
    let gates = spec["schedulingGates"].as_array().into_iter().flatten();
    if text("schedulerName") == SCHEDULER_NAME
        || gates.into_iter().any(|it| it["name"] == SCHEDULING_GATE)
    {
        return SchedulerChoice::Ours;
    }
    match (text("nodeName"), text("schedulerName")) {
        ("", "" | DEFAULT_SCHEDULER) => SchedulerChoice::Unset,
        _ => SchedulerChoice::Other,
    }
}

/// Returns the patch that makes a pod wait for its devices.
fn mutate(mode: Mode, pod: &Value) -> Vec<Value> {
    let add = |path: &str, value: Value| vec![json!({"op": "add", "path": path, "value": value})];
    let bound = !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if !claims_devices(pod) || bound {
        return Vec::new();
    }
    match (mode, scheduler_choice(pod)) {
        (_, SchedulerChoice::Ours) | (Mode::Scheduler, SchedulerChoice::Other) => Vec::new(),
        (Mode::Scheduler, SchedulerChoice::Unset) => {
            add("/spec/schedulerName", json!(SCHEDULER_NAME))
        }
        // Any scheduler respects a gate, so the name of the scheduler may stay.
        (Mode::Gate, SchedulerChoice::Unset | SchedulerChoice::Other) => {
            let gate = json!({"name": SCHEDULING_GATE});
            match pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
                true => add("/spec/schedulingGates/-", gate),
                false => add("/spec/schedulingGates", json!([gate])),
            }
        }
    }
}

fn validate_pod(pod: &Value, request: &Value) -> AdmissionResponse {
    if !claims_devices(pod) {
        return AdmissionResponse::default();
    }
    let (_, findings) = PodDeviceClaims::read_with_findings(pod);
    let mut answer = AdmissionResponse::from_findings(&findings, request);
    match scheduler_choice(pod) {
        SchedulerChoice::Ours => {}
        SchedulerChoice::Unset | SchedulerChoice::Other => answer.warnings.push(format!(
            "spec.schedulerName: no scheduler allocates the pod's devices, and it will run without \
             them; use \"{SCHEDULER_NAME}\", or add the scheduling gate \"{SCHEDULING_GATE}\""
        )),
    }
    answer
}

/// Checks that an object of this group can be parsed.
fn validate(object: &Value, request: &Value) -> AdmissionResponse {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // No schema describes `managedFields`.
        metadata.shift_remove("managedFields");
    }
    match decode::object(&object) {
        Ok((_, findings)) | Err(findings) => AdmissionResponse::from_findings(&findings, request),
    }
}

/// Checks whether an object needs administrator access, for which its namespace lacks the label.
/// What is created for a pod is rejected when it is to be allocated, and the pod shows it.
fn check_admin_access(object: &Value, request: &Value) -> AdmissionResponse {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let of_pod = owners.into_iter().any(|it| it["controller"] == true && it["kind"] == "Pod");
    let path = match object["kind"].as_str() {
        Some("DevicePrivilegedClaim") if !of_pod => "metadata.namespace",
        Some("DeviceClaimTemplate") if object["spec"]["privilegedClaimSpec"].is_object() => {
            "spec.privilegedClaimSpec"
        }
        _ => return AdmissionResponse::default(),
    };
    let refused = changes_content(request).then(|| {
        format!(
            "{path}: Forbidden: administrator access to devices needs the label \
             {ADMIN_ACCESS_LABEL}: \"true\" on the namespace; have it set, or use a DeviceClaim"
        )
    });
    AdmissionResponse { denied: refused, ..AdmissionResponse::default() }
}

#[cfg(test)]
mod tests;
