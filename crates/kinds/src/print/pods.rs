//! The row of a pod, whose status summarises all of its containers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{age, time_of};
use super::fields::{self, NONE, is_deleted, is_true, list, number, text, text_or, truth};

/// Returns the cells of a pod.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let story = PodSummary::of(pod);
    let (spec, status) = (&pod["spec"], &pod["status"]);
    // Old kubelets write one address only; where both are set and differ, it is the right one.
    let first = list(&status["podIPs"]).first().map_or(NONE, |it| text_or(&it["ip"], NONE));
    vec![
        fields::name(pod),
        format!("{}/{}", story.ready, story.total).into(),
        story.reason.into(),
        story.restarts.to_text(now).into(),
        fields::age(pod, now),
        text_or(&status["podIP"], first).into(),
        text_or(&spec["nodeName"], NONE).into(),
        text_or(&status["nominatedNodeName"], NONE).into(),
        readiness_gates(pod).into(),
    ]
}

/// Returns the row's conditions: that a pod has completed.
pub(super) fn conditions(pod: &Value) -> Vec<Value> {
    let message = match text(&pod["status"]["phase"]) {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    let reason = &pod["status"]["phase"];
    vec![json!({ "type": "Completed", "status": "True", "reason": reason, "message": message })]
}

/// The summary of a pod's containers.
struct PodSummary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(&container["restartCount"]));
        let finished = time_of(&container["lastState"]["terminated"]["finishedAt"]);
        self.last = self.last.max(finished);
    }

    fn to_text(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, age(Some(last), now))
            }
            _ => self.count.to_string(),
        }
    }
}

impl PodSummary {
    fn of(pod: &Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let sidecars = list(&spec["initContainers"]).iter().filter(|it| is_sidecar(it)).count();
        let mut reason = text_or(&status["reason"], text(&status["phase"])).to_owned();
        let gated = list(&status["conditions"]).iter().any(|it| {
            text(&it["type"]) == "PodScheduled" && text(&it["reason"]) == "SchedulingGated"
        });
        if gated {
            "SchedulingGated".clone_into(&mut reason);
        }
        let mut story = Self {
            ready: 0,
            total: list(&spec["containers"]).len() + sidecars,
            reason,
            restarts: Restarts::default(),
        };
        if let Some(of_sidecars) = story.add_init_containers(pod) {
            story.restarts = of_sidecars;
            story.add_containers(status);
        }
        if is_deleted(pod) {
            if text(&status["reason"]) == "NodeLost" {
                "Unknown".clone_into(&mut story.reason);
            } else if !matches!(text(&status["phase"]), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut story.reason);
            }
        }
        story
    }

    /// Summarises the init containers up to the first that is not done.
    ///
    /// Returns the restarts of the sidecars if the other containers are to be summarised as well:
    /// those of plain init containers count only until they are done.
    fn add_init_containers(&mut self, pod: &Value) -> Option<Restarts> {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let mut of_sidecars = Restarts::default();
        let mut initialising = false;
        for (place, container) in list(&status["initContainerStatuses"]).iter().enumerate() {
            let name = text(&container["name"]);
            let declared = list(&spec["initContainers"]).iter();
            let sidecar =
                declared.rev().find(|it| text(&it["name"]) == name).is_some_and(is_sidecar);
            self.restarts.add(container);
            if sidecar {
                of_sidecars.add(container);
            }
            let (waiting, terminated) =
                (&container["state"]["waiting"], &container["state"]["terminated"]);
            if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
                continue;
            }
            if sidecar && truth(&container["started"]) {
                self.ready += usize::from(truth(&container["ready"]));
                continue;
            }
            self.reason = if terminated.is_object() {
                format!("Init:{}", termination_reason(terminated))
            } else {
                match text(&waiting["reason"]) {
                    "" | "PodInitializing" => {
                        format!("Init:{place}/{}", list(&spec["initContainers"]).len())
                    }
                    reason => format!("Init:{reason}"),
                }
            };
            initialising = true;
            break;
        }
        let through = !initialising || is_true(&status["conditions"], "Initialized");
        through.then_some(of_sidecars)
    }

    /// Summarises the regular containers, last to first, so that the first one decides.
    fn add_containers(&mut self, status: &Value) {
        let mut some_run = false;
        for container in list(&status["containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if state["terminated"].is_object() {
                self.reason = termination_reason(&state["terminated"]);
            } else if truth(&container["ready"]) && state["running"].is_object() {
                some_run = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && some_run {
            let ready = list(&status["conditions"])
                .iter()
                .any(|it| text(&it["type"]) == "Ready" && text(&it["status"]) == "True");
            if ready { "Running" } else { "NotReady" }.clone_into(&mut self.reason);
        }
    }
}

/// Returns why a container terminated, in a word.
fn termination_reason(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Returns whether an init container keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    text(&container["restartPolicy"]) == "Always"
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let conditions = &pod["status"]["conditions"];
    let open = |gate: &&Value| is_true(conditions, text(&gate["conditionType"]));
    format!("{}/{}", gates.iter().filter(open).count(), gates.len())
}
