//! Rows of access control and admission: roles, certificates, webhooks, priority and fairness.

use jiff::Timestamp;
use serde_json::Value;

use super::age::duration;
use super::fields::{NONE, UNSET, age, condition, count, list, name, number, text, text_or};
use super::selector::struct_text;

pub(super) fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = &object["roleRef"];
    let (mut users, mut groups, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
    for subject in list(&object["subjects"]) {
        let of_name = text(&subject["name"]);
        match text(&subject["kind"]) {
            "User" => users.push(of_name),
            "Group" => groups.push(of_name),
            "ServiceAccount" => {
                accounts.push(format!("{}/{of_name}", text(&subject["namespace"])));
            }
            _ => {}
        }
    }
    vec![
        name(object),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        age(object, now),
        users.join(", ").into(),
        groups.join(", ").into(),
        accounts.join(", ").into(),
    ]
}

pub(super) fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let is = |of_type| condition(&status["conditions"], of_type).is_some();
    let mut state = if is("Denied") {
        "Denied"
    } else if is("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if is("Failed") {
        state += ",Failed";
    }
    if !text(&status["certificate"]).is_empty() {
        state += ",Issued";
    }
    let wanted = spec["expirationSeconds"].as_i64();
    vec![
        name(object),
        age(object, now),
        text_or(&spec["signerName"], NONE).into(),
        text(&spec["username"]).into(),
        wanted.map_or_else(|| NONE.to_owned(), duration).into(),
        state.into(),
    ]
}

/// A webhook configuration of either kind.
pub(super) fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), count(&object["webhooks"]).into(), age(object, now)]
}

pub(super) fn policy(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let kind = &spec["paramKind"];
    let kind = if kind.is_object() {
        format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
    } else {
        UNSET.to_owned()
    };
    vec![name(object), count(&spec["validations"]).into(), kind.into(), age(object, now)]
}

pub(super) fn policy_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let parameters = &spec["paramRef"];
    // Without a namespace, parameters of the cluster and of each namespace cannot be distinguished.
    let cell = match (text(&parameters["name"]), text_or(&parameters["namespace"], "*")) {
        ("", _) if parameters["selector"].is_object() => struct_text(&parameters["selector"]),
        ("", _) => UNSET.to_owned(),
        (of_name, namespace) => format!("{namespace}/{of_name}"),
    };
    vec![name(object), text(&spec["policyName"]).into(), cell.into(), age(object, now)]
}

pub(super) fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let method = &spec["distinguisherMethod"];
    let method = if method.is_object() { text(&method["type"]) } else { NONE };
    let dangling = condition(&status["conditions"], "Dangling");
    vec![
        name(object),
        text(&spec["priorityLevelConfiguration"]["name"]).into(),
        number(&spec["matchingPrecedence"]).into(),
        method.into(),
        age(object, now),
        dangling.map_or("?", |it| text(&it["status"])).into(),
    ]
}

pub(super) fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let limited = &spec["limited"];
    let queuing = &limited["limitResponse"]["queuing"];
    let cell = |part: &Value, field: &str| match part {
        Value::Object(part) => part.get(field).map_or(0, number).into(),
        _ => NONE.into(),
    };
    vec![
        name(object),
        text(&spec["type"]).into(),
        cell(limited, "nominalConcurrencyShares"),
        cell(queuing, "queues"),
        cell(queuing, "handSize"),
        cell(queuing, "queueLengthLimit"),
        age(object, now),
    ]
}
