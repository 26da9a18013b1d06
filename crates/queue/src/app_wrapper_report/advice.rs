//! Advises what a user can do about an AppWrapper, in sentences.

use super::{AppWrapperReport, ItemStatus, OnUnreachableNode};
use crate::app_wrapper::{AppWrapper, ORDERED_INSTANCE_LABEL, SHAPES_ANNOTATION};
use crate::queue_report::WaitReason;
use crate::settings::Settings;
use crate::{pod_counts, state, unreachable};

/// Returns what can be done now, the most useful first. Empty where nothing needs to be done.
pub(super) fn advise(
    story: &AppWrapperReport,
    wrapper: &AppWrapper,
    settings: &Settings,
) -> Vec<String> {
    let mut advice = Vec::new();
    let mut say = |text: String| advice.push(text);
    match story.row.waits_for.as_ref().map(|it| it.reason) {
        Some(WaitReason::Unseen) => {
            say("see whether the operator runs, and leads: gantry status".to_owned());
        }
        Some(WaitReason::Resources) => resources(story, wrapper, &mut say),
        Some(WaitReason::Quota) => quota(story, &mut say),
        Some(WaitReason::Backoff) => {
            say("nothing: it is evaluated again when its backoff is over".to_owned());
        }
        Some(WaitReason::HeadOfLine) => {
            let what = "wait until the head of the line is admitted or its time is over; a higher \
                        spec.priority puts it first then";
            say(what.to_owned());
        }
        Some(WaitReason::Victims) => {
            say("wait until the preempted AppWrappers are gone".to_owned());
        }
        Some(WaitReason::Pods) => pods(story, &mut say),
        // Where something can be done, the message says it.
        Some(
            WaitReason::NextCycle
            | WaitReason::Labels
            | WaitReason::Access
            | WaitReason::Items
            | WaitReason::Removal,
        )
        | None => {}
    }
    unreachable_nodes(story, wrapper, &mut say);
    if pod_counts::reports_excess(&wrapper.status) {
        say("scale its objects down to what was admitted, or declare more and create it again"
            .to_owned());
    }
    if story.row.position.is_some() && !wrapper.demand().understated(settings.inference).is_empty()
    {
        say("declare what its templates ask for in custompodresources: it is charged for less"
            .to_owned());
    }
    for item in &story.items {
        match item.standing {
            ItemStatus::Impossible => {
                let fault = item.fault.clone().unwrap_or_default();
                say(format!("correct the item: {fault}"));
            }
            ItemStatus::Foreign => say(format!(
                "rename {} {}, or delete the one that is there: it does not belong to this \
                 AppWrapper",
                item.kind, item.name
            )),
            ItemStatus::Absent | ItemStatus::Made | ItemStatus::Going => {}
        }
    }
    match story.row.state.as_str() {
        "Failed" => say(
            "delete the AppWrapper, correct what failed and apply it again: it is not tried again"
                .to_owned(),
        ),
        "Deleted" => say("delete the AppWrapper and apply it again, with a larger \
             requeuing.maxNumRequeuings or timeInSeconds"
            .to_owned()),
        _ => {}
    }
    advice
}

/// The extended resources that it demands and no node has.
fn unregistered_devices(story: &AppWrapperReport) -> Vec<&str> {
    let Some(room) = &story.room else { return Vec::new() };
    let demanded = story.demand.keys().filter(|name| name.contains('/'));
    demanded.filter(|name| !room.total.contains_key(*name)).map(String::as_str).collect()
}

fn resources(story: &AppWrapperReport, wrapper: &AppWrapper, say: &mut impl FnMut(String)) {
    for name in unregistered_devices(story) {
        say(format!(
            "no node has {name}: its device plugin registers it, and may wait for a kernel module; \
             see kubectl get modules -A, and gantry explain module/NAME"
        ));
    }
    if story.room.as_ref().is_some_and(|it| it.exceeds_cluster) {
        say("ask for less, or add nodes: all nodes together have too little for it".to_owned());
    } else {
        say("wait for others to end, or delete some".to_owned());
        if story.row.position.is_some_and(|it| it > 1) {
            say("raise spec.priority to be evaluated before others".to_owned());
        }
    }
    if let Some(types) = wrapper.metadata.labels.get(ORDERED_INSTANCE_LABEL) {
        say(format!(
            "with scaling switched on, nodes of {} are bought for it: gantry status says how far \
             they are",
            types.replace('_', ", ")
        ));
    } else if let Some(found) = wrapper.metadata.annotations.get(SHAPES_ANNOTATION) {
        say(format!("about more nodes: {found}"));
    }
}

fn quota(story: &AppWrapperReport, say: &mut impl FnMut(String)) {
    for charge in story.quota.iter().filter(|it| it.refused.is_some()) {
        let (tree, node) = (&charge.tree, &charge.node);
        if charge.is_forbidden {
            // The refusal says what to do.
            say(charge.refused.clone().unwrap_or_default());
        } else if charge.leaves.is_empty() {
            say(format!("wait until quota of tree {tree} is released, or ask for more of it"));
        } else {
            let leaves = charge.leaves.join(", ");
            say(format!("label it {tree}=LEAF, {node} is none; leaves are {leaves}"));
        }
    }
}

fn pods(story: &AppWrapperReport, say: &mut impl FnMut(String)) {
    if let Some(pod) = story.pods.unschedulable.first() {
        let namespace = &story.row.namespace;
        say(format!("see why no node takes it: kubectl describe pod {} -n {namespace}", pod.pod));
    }
    if let Some(at) = story.requeuing.next_check {
        say(format!("its pods are checked next at {at}; if too few run then, it is evicted"));
    }
}

/// Advises about pods on unreachable nodes: what happens to them, and what an administrator can do.
fn unreachable_nodes(story: &AppWrapperReport, wrapper: &AppWrapper, say: &mut impl FnMut(String)) {
    let mut nodes: Vec<&OnUnreachableNode> = story.pods.unreachable.iter().collect();
    nodes.dedup_by_key(|it| &it.node);
    for OnUnreachableNode { pod, node, why } in nodes {
        let removed = match state::removal_outcome(wrapper) {
            Some(_) => {
                let limit = unreachable::force_deletion_limit(wrapper, true).as_secs();
                format!("pod {pod} is deleted without grace {limit}s after the removal began")
            }
            None => format!("pod {pod} does not count as running"),
        };
        say(format!(
            "bring node {node} back, {why} (kubectl describe node {node}), or delete it; {removed}"
        ));
    }
}
