//! Explains how a requester is served: by which path, why by no better one, and what took how long.

use gantry_reconcile::{Kind, Uid, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::actuation_record::ActuationRecord;
use crate::bookkeeping::Bookkeeping;
use crate::labels::{ACCELERATORS_ANNOTATION, STATUS_ANNOTATION};
use crate::timeline::timeline;
use crate::view::{ActuationPod, Variant, bound_to};

/// The section about pods.
pub(super) const REQUESTER_PAGE: ExplainPage = ExplainPage {
    resource: || ActuationPod::RESOURCE,
    kinds: || vec![Kind::of::<ActuationPod>()],
    explain,
};

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    let pod = request.world.store::<ActuationPod>().get(request.key)?;
    match pod.variant() {
        Some(variant) => Some(requester(request, &pod, &variant)),
        None if pod.is_provider() => Some(provider(&pod)),
        None => None,
    }
}

fn requester(
    request: &ExplainRequest<'_>,
    pod: &ActuationPod,
    variant: &Variant<'_>,
) -> Explanation {
    let mut lines = vec![match variant {
        Variant::Launcher(config) => {
            format!("requests an engine of InferenceServerConfig {config} in a launcher")
        }
        Variant::Direct(_) => "requests an engine in a pod made with its server patch".to_owned(),
    }];
    if let Some(accelerators) = pod.annotation(ACCELERATORS_ANNOTATION) {
        lines.push(format!("accelerators: {accelerators}"));
    }
    let is_unread = request.unread.contains(&ActuationPod::RESOURCE);
    let providers = request.world.store::<ActuationPod>().by_index(&bound_to(&pod.metadata.uid));
    let provider = providers.iter().find(|it| pod.dual() == Some(&it.metadata.name));
    let provider = provider.or_else(|| providers.first()).cloned();
    let record = provider.as_ref().and_then(|it| ActuationRecord::read(it, &pod.metadata.uid));
    match &provider {
        Some(provider) => lines.extend(served_by(provider, &pod.metadata.uid)),
        None if is_unread => lines.push("its provider is not known: cannot list pods".to_owned()),
        None => lines.push("has no provider yet".to_owned()),
    }
    if let Some(record) = &record {
        lines.push(path_line(record));
    }
    for problem in problems(pod) {
        lines.push(format!("problem: {problem}"));
    }
    for report in request.reports {
        lines.push(format!("waits: {}: {}", report.reason, report.message));
    }
    let parts = timeline(pod, record.as_ref());
    let shown: Vec<String> =
        parts.iter().map(|it| format!("{} {}", it.event, seconds(it.took))).collect();
    if let (Some(created), Some(last)) = (pod.metadata.creation_timestamp, parts.last()) {
        let total = seconds(last.at.duration_since(created).unsigned_abs());
        lines.push(format!("time line from its creation: {} = {total}", shown.join(" + ")));
        if !pod.is_ready() {
            let waiting = request.now.duration_since(last.at).max(SignedDuration::ZERO);
            let waiting = seconds(waiting.unsigned_abs());
            lines.push(format!("not ready: {waiting} since the last of these"));
        }
    }
    let timeline: Vec<Value> = parts
        .iter()
        .map(|it| {
            json!({
                "event": it.event, "at": it.at.to_string(),
                "milliseconds": u64::try_from(it.took.as_millis()).unwrap_or(u64::MAX),
            })
        })
        .collect();
    let facts = json!({
        "provider": provider.as_ref().map(|it| it.metadata.name.clone()),
        "path": record.as_ref().map(|it| it.path.as_str()),
        "reason": record.as_ref().map(|it| it.reason.clone()),
        "instancesDeleted": record.as_ref().map(|it| it.instances_deleted),
        "ready": pod.is_ready(),
        "timeline": timeline,
    });
    Explanation { title: "actuation", lines, facts }
}

/// What serves a requester, or is going to.
fn served_by(provider: &ActuationPod, requester: &Uid) -> Vec<String> {
    let name = &provider.metadata.name;
    let what = match Bookkeeping::read(provider) {
        Ok(it) => format!("instance {} in launcher {name}, port {}", it.id, it.port),
        Err(_) if provider.engine.is_some() => format!("provider {name}"),
        Err(problem) => format!("launcher {name}, whose bookkeeping is lost: {problem}"),
    };
    let is_own = provider.binding().is_some_and(|it| it.uid == *requester);
    let state = match (provider.unbinding_since(), provider.is_marked_awake()) {
        (Some(_), _) => "its binding ends",
        (None, true) => "it is routed to",
        (None, false) => "it is not routed to yet",
    };
    let mut lines = vec![format!("is bound to {what}: {state}")];
    if let Some(reason) = provider.discard_reason().filter(|_| is_own) {
        lines.push(format!("the engine is discarded: {reason}"));
    }
    lines
}

fn path_line(record: &ActuationRecord) -> String {
    let path = record.path.as_str();
    let deleted = match record.instances_deleted {
        0 => String::new(),
        1 => "; one instance made way".to_owned(),
        count => format!("; {count} instances made way"),
    };
    match record.reason.is_empty() {
        true => format!("path: {path}; there is no better one{deleted}"),
        false => format!("path: {path}{deleted}; not a better one because: {}", record.reason),
    }
}

/// The problems in the status that the controller wrote.
fn problems(pod: &ActuationPod) -> Vec<String> {
    let status: Option<Value> =
        pod.annotation(STATUS_ANNOTATION).and_then(|it| serde_json::from_str(it).ok());
    let errors = status.as_ref().and_then(|it| it["Errors"].as_array()).cloned();
    let errors = errors.unwrap_or_default();
    errors.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

fn provider(pod: &ActuationPod) -> Explanation {
    let kind = if pod.is_launcher() { "launcher" } else { "direct provider" };
    let line = match pod.binding() {
        Some(it) => format!(
            "{kind}, bound to requester {}; see gantry explain pod/{} -n {}",
            it.name, it.name, pod.metadata.namespace
        ),
        None => format!("{kind}, not bound; its engines sleep"),
    };
    let facts = json!({
        "kind": kind,
        "requester": pod.binding().map(|it| it.name),
        "awake": pod.is_marked_awake(),
    });
    Explanation { title: "actuation", lines: vec![line], facts }
}

/// A duration in seconds with as many digits as matter.
fn seconds(length: std::time::Duration) -> String {
    format!("{}.{:03} s", length.as_secs(), length.subsec_millis())
}
