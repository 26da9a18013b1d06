//! Computes the phase and conditions of a pod from its containers, and serializes its status.

use gantry_kube_controllers::status::{condition_body, truncate_to_seconds};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::container::is_sidecar;
use crate::view::{
    Condition, ConditionStatus, ContainerState, ContainerStateTerminated, ContainerStatus, Phase,
    Pod, PodStatus, RestartPolicy,
};

/// Returns the phase of a pod by its containers.
pub(super) fn phase(pod: &Pod, status: &PodStatus) -> Phase {
    let never = pod.spec.restart_policy == RestartPolicy::Never;
    let begun = status.container_statuses.iter().any(has_started);
    let (mut pending, mut running, mut waiting) = (false, 0, 0);
    for container in &pod.spec.init_containers {
        let Some(init) = find_status(&status.init_container_statuses, &container.name) else {
            pending = true;
            continue;
        };
        if is_sidecar(container) {
            running += usize::from(init.state.running.is_some());
            pending |= !has_started(init) && !begun;
            continue;
        }
        let end = init.state.terminated.as_ref().or(init.last_state.terminated.as_ref());
        match end {
            Some(end) if end.exit_code != 0 && never => return Phase::Failed,
            Some(end) if end.exit_code != 0 => {}
            Some(_) => pending |= init.state.terminated.is_none(),
            None => pending = true,
        }
    }
    let (mut stopped, mut succeeded) = (0, 0);
    for container in &pod.spec.containers {
        let main = find_status(&status.container_statuses, &container.name);
        let state = main.map(|it| (&it.state, &it.last_state));
        match state {
            Some((ContainerState { running: Some(_), .. }, _)) => running += 1,
            Some((ContainerState { terminated: Some(end), .. }, _)) => {
                stopped += 1;
                succeeded += usize::from(end.exit_code == 0);
            }
            Some((_, ContainerState { terminated: Some(_), .. })) => stopped += 1,
            Some(_) | None => waiting += 1,
        }
    }
    if pending || waiting > 0 {
        Phase::Pending
    } else if running > 0 {
        Phase::Running
    } else if stopped == 0 {
        Phase::Pending
    } else if pod.spec.restart_policy == RestartPolicy::Always {
        Phase::Running
    } else if stopped == succeeded {
        Phase::Succeeded
    } else if never {
        Phase::Failed
    } else {
        Phase::Running
    }
}

/// Returns whether a container runs or has run.
fn has_started(status: &ContainerStatus) -> bool {
    let (now, before) = (&status.state, &status.last_state);
    now.running.is_some() || now.terminated.is_some() || before.terminated.is_some()
}

fn find_status<'a>(statuses: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|it| it.name == name)
}

/// Updates the conditions of a pod whose phase and containers are computed.
pub(super) fn update_conditions(pod: &Pod, status: &mut PodStatus, now: Timestamp) {
    let generation = Some(pod.metadata.generation);
    status.observed_generation = generation;
    let containers = containers_ready(pod, status);
    let ready = pod_ready(pod, status, &containers);
    // A sandbox is created when volumes and devices are available, and has an address from then on.
    let has_sandbox = match status.phase {
        Phase::Pending | Phase::Running | Phase::Unknown if !status.pod_ip.is_empty() => {
            ConditionStatus::True
        }
        Phase::Succeeded | Phase::Failed | Phase::Pending | Phase::Running | Phase::Unknown => {
            ConditionStatus::False
        }
    };
    let wanted = [
        ("PodReadyToStartContainers", ComputedCondition::without_reason(has_sandbox)),
        ("Initialized", initialized(pod, status)),
        ("Ready", ready),
        ("ContainersReady", containers),
    ];
    let mut conditions = Vec::with_capacity(wanted.len() + 1);
    for (kind, verdict) in wanted {
        let before = status.conditions.iter().find(|it| it.kind == kind);
        let since = before.filter(|it| it.status == verdict.status);
        conditions.push(Condition {
            kind: kind.to_owned(),
            status: verdict.status,
            reason: verdict.reason.to_owned(),
            message: verdict.message,
            last_transition_time: since
                .and_then(|it| it.last_transition_time)
                .or_else(|| Some(truncate_to_seconds(now))),
            last_update_time: None,
            observed_generation: generation,
        });
    }
    let ours = |it: &Condition| condition_kinds().contains(&it.kind.as_str());
    conditions.extend(status.conditions.iter().filter(|it| !ours(it)).cloned());
    status.conditions = conditions;
}

fn condition_kinds() -> [&'static str; 4] {
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]
}

/// The computed value of a condition.
struct ComputedCondition {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

impl ComputedCondition {
    fn without_reason(status: ConditionStatus) -> Self {
        Self { status, reason: "", message: String::new() }
    }

    fn not_met(reason: &'static str, message: String) -> Self {
        Self { status: ConditionStatus::False, reason, message }
    }
}

fn initialized(pod: &Pod, status: &PodStatus) -> ComputedCondition {
    if status.phase == Phase::Succeeded {
        return ComputedCondition {
            status: ConditionStatus::True,
            reason: "PodCompleted",
            message: String::new(),
        };
    }
    if status.container_statuses.iter().any(has_started) {
        return ComputedCondition::without_reason(ConditionStatus::True);
    }
    let done = |name: &str, sidecar: bool| {
        let found = find_status(&status.init_container_statuses, name);
        found.is_some_and(|it| match sidecar {
            true => it.started,
            false => it.state.terminated.as_ref().is_some_and(|end| end.exit_code == 0),
        })
    };
    let inits = pod.spec.init_containers.iter();
    let incomplete = inits.filter(|it| !done(&it.name, is_sidecar(it)));
    let incomplete: Vec<&str> = incomplete.map(|it| it.name.as_str()).collect();
    if incomplete.is_empty() {
        return ComputedCondition::without_reason(ConditionStatus::True);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    ComputedCondition::not_met("ContainersNotInitialized", message)
}

fn containers_ready(pod: &Pod, status: &PodStatus) -> ComputedCondition {
    match status.phase {
        Phase::Succeeded => return ComputedCondition::not_met("PodCompleted", String::new()),
        Phase::Failed => return ComputedCondition::not_met("PodFailed", String::new()),
        Phase::Pending | Phase::Running | Phase::Unknown => {}
    }
    let sidecars = pod.spec.init_containers.iter().filter(|it| is_sidecar(it));
    let ready = |name: &str| {
        let all = [&status.init_container_statuses, &status.container_statuses];
        all.into_iter().find_map(|it| find_status(it, name)).is_some_and(|it| it.ready)
    };
    let all = sidecars.chain(&pod.spec.containers).map(|it| it.name.as_str());
    let unready: Vec<&str> = all.filter(|it| !ready(it)).collect();
    if unready.is_empty() {
        return ComputedCondition::without_reason(ConditionStatus::True);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    ComputedCondition::not_met("ContainersNotReady", message)
}

fn pod_ready(pod: &Pod, status: &PodStatus, containers: &ComputedCondition) -> ComputedCondition {
    if containers.status != ConditionStatus::True {
        return ComputedCondition {
            status: containers.status,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let open = pod.spec.readiness_gates.iter().filter_map(|gate| {
        let gate = &gate.condition_type;
        match status.conditions.iter().find(|it| it.kind == *gate) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
            Some(it) if it.status != ConditionStatus::True => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                it.status.as_str()
            )),
            Some(_) => None,
        }
    });
    let open: Vec<String> = open.collect();
    if open.is_empty() {
        return ComputedCondition::without_reason(ConditionStatus::True);
    }
    ComputedCondition::not_met("ReadinessGatesNotReady", open.join(", "))
}

/// Returns the fields of a pod's status that its node writes.
pub(super) fn render(status: &PodStatus) -> Value {
    let mut body = json!({
        "phase": status.phase.as_str(),
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions.iter().map(condition_body).collect::<Vec<_>>(),
    });
    for (name, text) in [("reason", &status.reason), ("message", &status.message)] {
        if !text.is_empty() {
            body[name] = json!(text);
        }
    }
    for (one, many, address) in
        [("hostIP", "hostIPs", &status.host_ip), ("podIP", "podIPs", &status.pod_ip)]
    {
        if !address.is_empty() {
            body[one] = json!(address);
            body[many] = json!([{"ip": address}]);
        }
    }
    if let Some(start) = status.start_time {
        body["startTime"] = json!(start.to_string());
    }
    for (name, statuses) in [
        ("initContainerStatuses", &status.init_container_statuses),
        ("containerStatuses", &status.container_statuses),
    ] {
        if !statuses.is_empty() {
            body[name] = statuses.iter().map(container).collect();
        }
    }
    body
}

fn container(status: &ContainerStatus) -> Value {
    let mut body = json!({
        "name": status.name,
        "image": status.image,
        "imageID": status.image_id,
        "ready": status.ready,
        "started": status.started,
        "restartCount": status.restart_count,
        "state": state(&status.state),
        "lastState": state(&status.last_state),
    });
    if !status.container_id.is_empty() {
        body["containerID"] = json!(status.container_id);
    }
    body
}

fn state(state: &ContainerState) -> Value {
    let mut body = Map::new();
    if let Some(waiting) = &state.waiting {
        let mut why = json!({"reason": waiting.reason});
        if !waiting.message.is_empty() {
            why["message"] = json!(waiting.message);
        }
        body.insert("waiting".to_owned(), why);
    }
    if let Some(running) = &state.running {
        let since = running.started_at.map(|it| it.to_string());
        body.insert("running".to_owned(), json!({"startedAt": since}));
    }
    if let Some(end) = &state.terminated {
        body.insert("terminated".to_owned(), terminated(end));
    }
    Value::Object(body)
}

fn terminated(end: &ContainerStateTerminated) -> Value {
    let mut body = json!({
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedAt": end.started_at.map(|it| it.to_string()),
        "finishedAt": end.finished_at.map(|it| it.to_string()),
        "containerID": end.container_id,
    });
    if !end.message.is_empty() {
        body["message"] = json!(end.message);
    }
    body
}
