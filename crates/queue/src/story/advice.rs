//! What can be done about one, in sentences.

use super::{Found, Story};
use crate::app_wrapper::{AppWrapper, ORDERED_INSTANCE, SHAPES};
use crate::outlook::Reason;

/// What can be done now, the most useful first. Nothing where all is well.
pub(super) fn about(story: &Story, wrapper: &AppWrapper) -> Vec<String> {
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
        if charge.leaves.is_empty() {
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
