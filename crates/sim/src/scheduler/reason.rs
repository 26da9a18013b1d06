//! Why nodes will not do, in the words users know.

use std::collections::BTreeMap;

/// Why one node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Every reason of the first rule it breaks.
    pub(super) reasons: Vec<Reason>,
    /// Whether it would not do even if other pods left it.
    pub(super) lasting: bool,
}

impl Misfit {
    pub(super) fn lasting(reason: Reason) -> Self {
        Self { reasons: vec![reason], lasting: true }
    }

    pub(super) fn passing(reason: Reason) -> Self {
        Self { reasons: vec![reason], lasting: false }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It is cordoned.
    Unschedulable,
    /// It has a taint.
    Taints,
    /// It is not one of those wanted.
    NodeAffinity,
    /// It is not one of those the pod names.
    NotNamed,
    /// A port is taken.
    Ports,
    /// It has all the pods it may have.
    TooManyPods,
    /// Too little is left of something.
    Lacking(String),
    /// It lacks the label pods are to spread by.
    SpreadLabel,
    /// Too many are there already.
    Spread,
    /// Those are not there that the pod must be near to.
    Near,
    /// Somebody is there that the pod must be far from.
    Far,
    /// Somebody is there that must be far from the pod.
    Unwelcome,
    /// No pod is there that could be pushed out.
    NoVictims,
    /// Pushing out pods would not change anything.
    NotHelpful,
}

impl Reason {
    fn text(&self) -> String {
        let text = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Taints => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Lacking(name) => return format!("Insufficient {name}"),
            Self::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::Near => "node(s) didn't match pod affinity rules",
            Self::Far => "node(s) didn't match pod anti-affinity rules",
            Self::Unwelcome => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::NoVictims => "No preemption victims found for incoming pod",
            Self::NotHelpful => "Preemption is not helpful for scheduling",
        };
        text.to_owned()
    }
}

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
