//! Preconditions that must hold before anything is decided about an AppWrapper.

use std::collections::BTreeMap;

use gantry_reconcile::{Held, Plan, Subresource, View as _, Write};
use serde_json::json;

use super::ITEM_RETRY_DELAY;
use crate::access::AuthorizationProblem;
use crate::app_wrapper::AppWrapper;
use crate::item_objects::ItemError;

/// Waits until the kind of an item is discovered. The state of items that cannot be observed is
/// unknown, and nothing is decided from it.
pub(super) fn await_kind_discovery(wrapper: &AppWrapper, open: &ItemError) -> Plan {
    held_plan(wrapper, "KindUnsettled", open.to_string())
}

/// Waits until it is known whether the author of an AppWrapper may create its items.
pub(super) fn await_access(wrapper: &AppWrapper, open: &AuthorizationProblem) -> Plan {
    held_plan(wrapper, open.reason(), open.to_string())
}

fn held_plan(wrapper: &AppWrapper, reason: &'static str, message: String) -> Plan {
    let mut plan = Plan::default();
    plan.held.push(Held {
        about: wrapper.reference(),
        reason: reason.into(),
        message,
        until: None,
    });
    plan.requeue_after(ITEM_RETRY_DELAY);
    plan
}

/// Labels an AppWrapper with a node in every quota tree for which it has no label.
pub(super) fn add_quota_labels(wrapper: &AppWrapper, labels: &BTreeMap<String, String>) -> Plan {
    let mut plan = Plan::default();
    plan.write(Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: wrapper.metadata.key(),
        subresource: Subresource::Main,
        fence: wrapper.metadata.fence(),
        body: json!({"metadata": {"labels": labels}}),
    });
    plan
}
