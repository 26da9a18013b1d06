//! The reasons why nodes are rejected, in the words of kube-scheduler.

/// Why one node is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRejection {
    /// Every reason of the first rule it breaks.
    pub reasons: Vec<RejectionReason>,
    /// Whether it would be rejected even if other pods left it.
    pub unresolvable: bool,
}

impl NodeRejection {
    /// Creates the rejection of a node that stays infeasible even if other pods leave it.
    #[must_use]
    pub fn unresolvable(reason: RejectionReason) -> Self {
        Self { reasons: vec![reason], unresolvable: true }
    }

    /// Creates the rejection of a node that may become feasible when other pods leave it.
    #[must_use]
    pub fn resolvable(reason: RejectionReason) -> Self {
        Self { reasons: vec![reason], unresolvable: false }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionReason {
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the pod's node affinity or selector.
    NodeAffinity,
    /// The node is not one of those the pod names.
    NodeNameNotRequired,
    /// A host port is in use.
    Ports,
    /// The node runs as many pods as it may.
    TooManyPods,
    /// Too little of this resource is left.
    Insufficient(String),
    /// The node lacks the topology label that pods spread by.
    MissingTopologyLabel,
    /// The node's domain has too many of the pods already.
    TopologySpread,
    /// No pods are there that the pod's affinity requires.
    PodAffinity,
    /// A pod is there that the pod's anti-affinity excludes.
    PodAntiAffinity,
    /// A pod is there whose anti-affinity excludes the pod.
    ExistingPodAntiAffinity,
    /// A volume of the pod is not reachable from the node.
    VolumeAffinity,
    /// No volume is available on the node for a claim of the pod.
    NoVolumeAvailable,
    /// The volume that a claim of the pod is bound to does not exist.
    VolumeMissing,
    /// A claim of the pod may be used by one pod at a time, and another uses it.
    ClaimInUse,
    /// A ResourceClaim of the pod is not allocated.
    ClaimNotAllocated,
    /// What was allocated for a ResourceClaim of the pod is not reachable from the node.
    ClaimNotOnNode,
    /// No pod is there that could be preempted.
    NoPreemptionVictims,
    /// Preemption would not help.
    PreemptionNotHelpful,
}

impl RejectionReason {
    /// Returns the message of kube-scheduler for this reason.
    #[must_use]
    pub fn text(&self) -> String {
        let text = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Taints => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::NodeNameNotRequired => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(name) => return format!("Insufficient {name}"),
            Self::MissingTopologyLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::TopologySpread => "node(s) didn't match pod topology spread constraints",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingPodAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolumeAvailable => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            Self::ClaimInUse => {
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod \
                 access mode"
            }
            Self::ClaimNotAllocated => "cannot allocate all claims",
            Self::ClaimNotOnNode => "resourceclaim not available on the node",
            Self::NoPreemptionVictims => "No preemption victims found for incoming pod",
            Self::PreemptionNotHelpful => "Preemption is not helpful for scheduling",
        };
        text.to_owned()
    }
}
