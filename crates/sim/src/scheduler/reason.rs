//! What is said of a pod that no node will do for.

use std::collections::BTreeMap;

use gantry_pods::Reason;

/// What is said when there are no nodes at all.
pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

/// The message with why nothing can be done about it: no device can be taken from a claim that does not
/// use it, and no pod pushed out.
pub(super) fn with_way_out(message: &str, preemption: &str) -> String {
    format!("{message} no new claims to deallocate, preemption: {preemption}")
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.`
pub(super) fn message<'a>(nodes: usize, reasons: impl IntoIterator<Item = &'a Reason>) -> String {
    let mut counts = BTreeMap::<&Reason, usize>::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let texts = counts.into_iter().map(|(reason, count)| format!("{count} {}", reason.text()));
    // Sorted as texts, numbers and all: that is the order everybody is used to.
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    let mut message = format!("0/{nodes} nodes are available:");
    if !texts.is_empty() {
        message.push_str(&format!(" {}.", texts.join(", ")));
    }
    message
}
