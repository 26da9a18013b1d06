//! What comes before anything else is decided about an AppWrapper.

use std::collections::BTreeMap;

use gantry_reconcile::{Held, Part, Plan, View as _, Write};
use serde_json::json;

use super::AGAIN;
use crate::access::KeptBack;
use crate::app_wrapper::AppWrapper;
use crate::dispatch::Fault;

/// Waits until somebody has asked the server for the kind of an item. What became of items that cannot
/// be seen is not known, and nothing is decided by that.
pub(super) fn ask(wrapper: &AppWrapper, open: &Fault) -> Plan {
    wait(wrapper, "KindUnsettled", open.to_string())
}

/// Waits until it is known whether the author of an AppWrapper may create its items.
pub(super) fn await_access(wrapper: &AppWrapper, open: &KeptBack) -> Plan {
    wait(wrapper, open.reason(), open.to_string())
}

fn wait(wrapper: &AppWrapper, reason: &'static str, message: String) -> Plan {
    let mut plan = Plan::default();
    plan.held.push(Held { about: wrapper.about(), reason: reason.into(), message, until: None });
    plan.look_within(AGAIN);
    plan
}

/// Names a node for an AppWrapper in every quota tree where it names none itself.
pub(super) fn label(wrapper: &AppWrapper, labels: &BTreeMap<String, String>) -> Plan {
    let mut plan = Plan::default();
    plan.write(Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: wrapper.metadata.key(),
        part: Part::Main,
        fence: wrapper.metadata.fence(),
        body: json!({"metadata": {"labels": labels}}),
    });
    plan
}
