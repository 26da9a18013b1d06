//! Rows of devices and of the claims on them.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{age, is_deleted, list, name, text};

/// The row of a DeviceClass or a ResourceClaimTemplate, which has only name and age.
pub(super) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let allocated = status["allocation"].is_object();
    let states = [
        ("deleted", is_deleted(object)),
        ("pending", !allocated && !is_deleted(object)),
        ("allocated", allocated),
        ("reserved", allocated && !list(&status["reservedFor"]).is_empty()),
    ];
    let states: Vec<&str> = states.iter().filter(|(_, is)| *is).map(|(state, _)| *state).collect();
    vec![name(object), states.join(",").into(), age(object, now)]
}

pub(super) fn slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        text(&spec["nodeName"]).into(),
        text(&spec["driver"]).into(),
        text(&spec["pool"]["name"]).into(),
        age(object, now),
    ]
}
