//! Why nodes will not do, in the words users know.

/// Why one node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Every reason of the first rule it breaks.
    pub reasons: Vec<Reason>,
    /// Whether it would not do even if other pods left it.
    pub lasting: bool,
}

impl Misfit {
    /// A node that would not do even if other pods left it.
    #[must_use]
    pub fn lasting(reason: Reason) -> Self {
        Self { reasons: vec![reason], lasting: true }
    }

    /// A node that may do when other pods leave it.
    #[must_use]
    pub fn passing(reason: Reason) -> Self {
        Self { reasons: vec![reason], lasting: false }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
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
    /// A volume of the pod is not reached from it.
    VolumeAffinity,
    /// No volume can be had there for a claim of the pod.
    NoVolume,
    /// The volume that a claim of the pod is bound to does not exist.
    VolumeMissing,
    /// A claim of the pod may be used by one pod at a time, and another uses it.
    ClaimInUse,
    /// A ResourceClaim of the pod is not allocated.
    NotAllocated,
    /// What was allocated for a ResourceClaim of the pod is not reached from it.
    AllocationElsewhere,
    /// No pod is there that could be pushed out.
    NoVictims,
    /// Pushing out pods would not change anything.
    NotHelpful,
}

impl Reason {
    /// In the words users know.
    #[must_use]
    pub fn text(&self) -> String {
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
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            Self::ClaimInUse => {
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            }
            Self::NotAllocated => "cannot allocate all claims",
            Self::AllocationElsewhere => "resourceclaim not available on the node",
            Self::NoVictims => "No preemption victims found for incoming pod",
            Self::NotHelpful => "Preemption is not helpful for scheduling",
        };
        text.to_owned()
    }
}
