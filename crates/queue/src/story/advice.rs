//! What can be done about one, in sentences.

use super::{Found, OnUnreachableNode, Story};
use crate::app_wrapper::{AppWrapper, ORDERED_INSTANCE, SHAPES};
use crate::outlook::Reason;
use crate::settings::Settings;
use crate::{count, state, unreachable};

/// What can be done now, the most useful first. Nothing where all is well.
pub(super) fn about(story: &Story, wrapper: &AppWrapper, settings: &Settings) -> Vec<String> {
    let mut advice = Vec::new();
    let mut say = |text: String| advice.push(text);
    match story.row.waits_for.as_ref().map(|it| it.reason) {
        Some(Reason::Unseen) => {
            say("see whether the operator runs, and leads: gantry status".to_owned());
        }
        Some(Reason::Resources) => resources(story, wrapper, &mut say),
        Some(Reason::Quota) => quota(story, &mut say),
        Some(Reason::Backoff) => {
            say("nothing: it is looked at again when its pause is over".to_owned());
        }
        Some(Reason::HeadOfLine) => {
            let what = "wait until the head of the line has passed or its time is over; a higher \
                        spec.priority puts it first then";
            say(what.to_owned());
        }
        Some(Reason::Victims) => {
            say("wait until those that make room are gone".to_owned());
        }
        Some(Reason::Pods) => pods(story, &mut say),
        // Where there is something to be done, the message says it.
        Some(Reason::Turn | Reason::Labels | Reason::Access | Reason::Items | Reason::Removal)
        | None => {}
    }
    unreachable_nodes(story, wrapper, &mut say);
    if count::is_said_to_exceed(&wrapper.status) {
        say("scale its objects down to what was admitted, or declare more and create it anew"
            .to_owned());
    }
    if story.row.position.is_some() && !wrapper.demand().understated(settings.inference).is_empty()
    {
        say("declare what its templates ask for in custompodresources: it is charged for less"
            .to_owned());
    }
    for item in &story.items {
        match item.standing {
            Found::Impossible => {
                let fault = item.fault.clone().unwrap_or_default();
                say(format!("correct the item: {fault}"));
            }
            Found::Foreign => say(format!(
                "rename {} {}, or delete the one that is there: it does not belong to this AppWrapper",
                item.kind, item.name
            )),
            Found::Absent | Found::Made | Found::Going => {}
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

fn resources(story: &Story, wrapper: &AppWrapper, say: &mut impl FnMut(String)) {
    if story.room.as_ref().is_some_and(|it| it.exceeds_cluster) {
        say("ask for less, or add nodes: all nodes together have too little for it".to_owned());
    } else {
        say("wait for others to end, or delete some".to_owned());
        if story.row.position.is_some_and(|it| it > 1) {
            say("raise spec.priority to be looked at before others".to_owned());
        }
    }
    if let Some(types) = wrapper.metadata.labels.get(ORDERED_INSTANCE) {
        say(format!(
            "with scaling switched on, nodes of {} are bought for it: gantry status says how far \
             they are",
            types.replace('_', ", ")
        ));
    } else if let Some(found) = wrapper.metadata.annotations.get(SHAPES) {
        say(format!("about more nodes: {found}"));
    }
}

fn quota(story: &Story, say: &mut impl FnMut(String)) {
    for charge in story.quota.iter().filter(|it| it.refused.is_some()) {
        let (tree, node) = (&charge.tree, &charge.node);
        if charge.is_forbidden {
            // What is in the way says what to do.
            say(charge.refused.clone().unwrap_or_default());
        } else if charge.leaves.is_empty() {
            say(format!("wait until quota of tree {tree} is released, or ask for more of it"));
        } else {
            let leaves = charge.leaves.join(", ");
            say(format!("label it {tree}=LEAF, {node} is none; leaves are {leaves}"));
        }
    }
}

fn pods(story: &Story, say: &mut impl FnMut(String)) {
    if let Some(pod) = story.pods.unschedulable.first() {
        let namespace = &story.row.namespace;
        say(format!("see why no node takes it: kubectl describe pod {} -n {namespace}", pod.pod));
    }
    if let Some(at) = story.requeuing.next_check {
        say(format!("its pods are looked at next at {at}; if too few run then, it is taken back"));
    }
}

/// What becomes of pods on nodes that do not answer, and who can do something about the nodes.
fn unreachable_nodes(story: &Story, wrapper: &AppWrapper, say: &mut impl FnMut(String)) {
    let mut nodes: Vec<&OnUnreachableNode> = story.pods.unreachable.iter().collect();
    nodes.dedup_by_key(|it| &it.node);
    for OnUnreachableNode { pod, node, why } in nodes {
        let removed = match state::leaving(wrapper) {
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
