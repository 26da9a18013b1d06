//! Rows of workloads, and of kinds that limit them.

use jiff::Timestamp;
use serde_json::Value;

use super::age::{age_of, between, time_of};
use super::fields::{
    NONE, UNSET, age, containers, count, is_deleted, is_true, list, name, number, quantity_or,
    set_or, text,
};
use super::selector::{labels, query, selector};

pub(super) fn pod_template(object: &Value, _: Timestamp) -> Vec<Value> {
    let template = &object["template"];
    let [names, images] = containers(&template["spec"]);
    vec![name(object), names, images, labels(&template["metadata"]["labels"]).into()]
}

pub(super) fn replication_controller(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, labels(&object["spec"]["selector"]))
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, selector(&object["spec"]["selector"]))
}

fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers(&spec["template"]["spec"]);
    vec![
        name(object),
        number(&spec["replicas"]).into(),
        number(&status["replicas"]).into(),
        number(&status["readyReplicas"]).into(),
        age(object, now),
        names,
        images,
        selector.into(),
    ]
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers(&spec["template"]["spec"]);
    vec![
        name(object),
        ready(object),
        number(&status["updatedReplicas"]).into(),
        number(&status["availableReplicas"]).into(),
        age(object, now),
        names,
        images,
        query(&spec["selector"]).unwrap_or_else(|| "<invalid>".to_owned()).into(),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    vec![name(object), ready(object), age(object, now), names, images]
}

fn ready(object: &Value) -> Value {
    let (ready, wanted) = (&object["status"]["readyReplicas"], &object["spec"]["replicas"]);
    format!("{}/{}", number(ready), number(wanted)).into()
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let pod = &spec["template"]["spec"];
    let [names, images] = containers(pod);
    vec![
        name(object),
        number(&status["desiredNumberScheduled"]).into(),
        number(&status["currentNumberScheduled"]).into(),
        number(&status["numberReady"]).into(),
        number(&status["updatedNumberScheduled"]).into(),
        number(&status["numberAvailable"]).into(),
        labels(&pod["nodeSelector"]).into(),
        age(object, now),
        names,
        images,
        selector(&spec["selector"]).into(),
    ]
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = list(&object["metadata"]["ownerReferences"]);
    let controller = owners.iter().find(|it| it["controller"] == true).map(owner_text);
    vec![
        name(object),
        controller.unwrap_or_else(|| NONE.to_owned()).into(),
        number(&object["revision"]).into(),
        age(object, now),
    ]
}

/// An owner as `statefulset.apps/web`.
fn owner_text(owner: &Value) -> String {
    let kind = text(&owner["kind"]).to_lowercase();
    let name = text(&owner["name"]);
    match text(&owner["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None if kind.is_empty() => name.to_owned(),
        None => format!("{kind}/{name}"),
    }
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers(&spec["template"]["spec"]);
    vec![
        name(object),
        job_status(object).into(),
        completions(object).into(),
        job_duration(status, now).into(),
        age(object, now),
        names,
        images,
        selector(&spec["selector"]).into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let holds = |of_type| is_true(&object["status"]["conditions"], of_type);
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if is_deleted(object) {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(object: &Value) -> String {
    let done = number(&object["status"]["succeeded"]);
    let spec = &object["spec"];
    match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn job_duration(status: &Value, now: Timestamp) -> String {
    match (time_of(&status["startTime"]), time_of(&status["completionTime"])) {
        (None, _) => String::new(),
        (Some(start), end) => between(start, end.unwrap_or(now)),
    }
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let [names, images] = containers(&job["template"]["spec"]);
    let suspended = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    };
    let last = &status["lastScheduleTime"];
    let last = if last.is_null() { NONE.to_owned() } else { age_of(last, now) };
    vec![
        name(object),
        text(&spec["schedule"]).into(),
        set_or(&spec["timeZone"], NONE).into(),
        suspended.into(),
        count(&status["active"]).into(),
        last.into(),
        age(object, now),
        names,
        images,
        selector(&job["selector"]).into(),
    ]
}

pub(super) fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        quantity_or(&spec["minAvailable"], "N/A").into(),
        quantity_or(&spec["maxUnavailable"], "N/A").into(),
        number(&object["status"]["disruptionsAllowed"]).into(),
        age(object, now),
    ]
}

pub(super) fn scale(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        number(&object["spec"]["replicas"]).into(),
        number(&object["status"]["replicas"]).into(),
        age(object, now),
    ]
}
