//! Rows of nodes, namespaces, events, and other cluster-wide kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::age::{age as age_between, age_of, time_of};
use super::fields::{
    NONE, age, condition, count, list, map, name, number, quantity, text, text_or, truth,
};

/// A kind that has no printer of its own.
pub(super) fn name_and_creation_time(object: &Value, _: Timestamp) -> Vec<Value> {
    let created = time_of(&object["metadata"]["creationTimestamp"]);
    let created = created.map_or_else(
        || "0001-01-01T00:00:00Z".to_owned(),
        |it| it.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    );
    vec![name(object), created.into()]
}

pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["status"]["phase"]).into(), age(object, now)]
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = count(&object["data"]) + count(&object["binaryData"]);
    vec![name(object), entries.into(), age(object, now)]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(&object["type"]);
    vec![name(object), kind.into(), count(&object["data"]).into(), age(object, now)]
}

pub(super) fn service_account(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), count(&object["secrets"]).into(), age(object, now)]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["spec"]["holderIdentity"]).into(), age(object, now)]
}

pub(super) fn runtime_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["handler"]).into(), age(object, now)]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        number(&object["value"]).into(),
        truth(&object["globalDefault"]).into(),
        age(object, now),
        text(&object["preemptionPolicy"]).into(),
    ]
}

pub(super) fn component_status(object: &Value, _: Timestamp) -> Vec<Value> {
    let found = condition(&object["conditions"], "Healthy");
    let status = match found.map(|it| text(&it["status"])) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let said = |field| found.map_or("", |it| text(&it[field]));
    vec![name(object), status.into(), said("message").into(), said("error").into()]
}

pub(super) fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = &object["spec"]["service"];
    let service = if service.is_object() {
        format!("{}/{}", text(&service["namespace"]), text(&service["name"]))
    } else {
        "Local".to_owned()
    };
    let available = condition(&object["status"]["conditions"], "Available").map(|it| {
        match (text(&it["status"]), text(&it["reason"])) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        }
    });
    let available = available.unwrap_or_else(|| "Unknown".to_owned());
    vec![name(object), service.into(), available.into(), age(object, now)]
}

pub(super) fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let mut hard: Vec<_> = map(&status["hard"]).into_iter().flatten().collect();
    hard.sort_unstable_by_key(|(resource, _)| *resource);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, most) in hard {
        let used = quantity(&status["used"][resource]);
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{}", quantity(most)));
    }
    vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let ready = list(&status["conditions"]).iter().rfind(|it| text(&it["type"]) == "Ready");
    let mut state = match ready.map(|it| text(&it["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if truth(&spec["unschedulable"]) {
        state += ",SchedulingDisabled";
    }
    let info = &status["nodeInfo"];
    let known = |field| text_or(&info[field], "<unknown>").into();
    let address = |of_type: &str| {
        let found = list(&status["addresses"]).iter().find(|it| text(&it["type"]) == of_type);
        found.map_or(NONE, |it| text(&it["address"])).into()
    };
    vec![
        name(object),
        state.into(),
        roles(object).into(),
        age(object, now),
        text(&info["kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

/// Returns the roles of a node from its labels.
fn roles(node: &Value) -> String {
    let labels = map(&node["metadata"]["labels"]).into_iter().flatten();
    let role = |(key, value)| match (String::as_str(key), text(value)) {
        ("kubernetes.io/role", role) => Some(role),
        (key, _) => key.strip_prefix("node-role.kubernetes.io/"),
    };
    let roles: BTreeSet<&str> = labels.filter_map(role).filter(|it| !it.is_empty()).collect();
    if roles.is_empty() {
        return NONE.to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

/// The row of an event of either group: the newer one renamed the fields it kept.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| match &object[old] {
        Value::Null => &object[new],
        found => found,
    };
    let first = time_of(either("firstTimestamp", "deprecatedFirstTimestamp"))
        .or_else(|| time_of(&object["eventTime"]));
    let last = time_of(either("lastTimestamp", "deprecatedLastTimestamp")).or(first);
    let series = &object["series"];
    let (last, count) = if series.is_object() {
        (age_of(&series["lastObservedTime"], now), number(&series["count"]))
    } else {
        // An event that happened once has no count in the newer group.
        let count = number(either("count", "deprecatedCount"));
        (age_between(last, now), if count == 0 { 1 } else { count })
    };
    let about = either("involvedObject", "regarding");
    let mut target = text(&about["kind"]).to_lowercase();
    if !text(&about["name"]).is_empty() {
        target = format!("{target}/{}", text(&about["name"]));
    }
    let source = either("source", "deprecatedSource");
    let controller = text(either("reportingComponent", "reportingController"));
    let mut from = text_or(&source["component"], controller).to_owned();
    let host = text_or(&source["host"], text(&object["reportingInstance"]));
    if !host.is_empty() {
        from = format!("{from}, {host}");
    }
    vec![
        last.into(),
        text(&object["type"]).into(),
        text(&object["reason"]).into(),
        target.into(),
        text(&about["fieldPath"]).into(),
        from.into(),
        text(either("message", "note")).trim().into(),
        age_between(first, now).into(),
        count.into(),
        name(object),
    ]
}
