//! Claims of either kind.

use std::sync::Arc;

use gantry_api::devices::{Consumer, DeviceAllocation, DeviceClaim, DevicePrivilegedClaim};
use gantry_devices::lower::Wanted;
pub(crate) use gantry_pods::devices::{FINALIZER, has_of, holder_of, idle_in, is_hold, used_by};
use gantry_reconcile::{Key, Meta, Part, Reference, Resource, Uid, View, World, Write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::condition::{self, Says, second};
use crate::seen::Seen;

/// Which of its pod's claims a generated claim is.
pub(crate) const ENTRY_ANNOTATION: &str = "devmgmtproto.k8s.io/pod-claim-name";
/// Pods that may share a claim.
pub(crate) const MOST_CONSUMERS: usize = 256;
/// The condition that says whether a claim has devices, and since when.
pub(crate) const ALLOCATED: &str = "Allocated";

/// A claim of either kind.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// One that holds what it gets.
    Plain(Arc<Seen<DeviceClaim>>),
    /// One that looks on.
    Privileged(Arc<Seen<DevicePrivilegedClaim>>),
}

impl Claim {
    /// The claims that have this name, of both kinds.
    pub(crate) fn all(world: &World, key: &Key) -> Vec<Self> {
        let plain = world.shelf::<Seen<DeviceClaim>>().get(key).map(Self::Plain);
        let privileged =
            world.shelf::<Seen<DevicePrivilegedClaim>>().get(key).map(Self::Privileged);
        plain.into_iter().chain(privileged).collect()
    }

    pub(crate) fn meta(&self) -> &Meta {
        match self {
            Self::Plain(claim) => &claim.metadata,
            Self::Privileged(claim) => &claim.metadata,
        }
    }

    pub(crate) fn uid(&self) -> &Uid {
        &self.meta().uid
    }

    pub(crate) fn name(&self) -> &str {
        &self.meta().name
    }

    /// Whether this is the other one, as it was seen at the same time.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => Arc::ptr_eq(one, other),
            (Self::Privileged(one), Self::Privileged(other)) => Arc::ptr_eq(one, other),
            (Self::Plain(_), Self::Privileged(_)) | (Self::Privileged(_), Self::Plain(_)) => false,
        }
    }

    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::Plain(_) => <Seen<DeviceClaim> as View>::RESOURCE,
            Self::Privileged(_) => <Seen<DevicePrivilegedClaim> as View>::RESOURCE,
        }
    }

    pub(crate) fn reference(&self) -> Reference {
        Reference::to(&self.resource(), self.meta())
    }

    pub(crate) fn allocations(&self) -> &[DeviceAllocation] {
        match self {
            Self::Plain(claim) => &claim.status.allocations,
            Self::Privileged(claim) => &claim.status.allocations,
        }
    }

    pub(crate) fn is_allocated(&self) -> bool {
        !self.allocations().is_empty()
    }

    pub(crate) fn node_name(&self) -> Option<&str> {
        match self {
            Self::Plain(claim) => claim.status.node_name.as_deref(),
            Self::Privileged(claim) => claim.status.node_name.as_deref(),
        }
    }

    pub(crate) fn node_selector(&self) -> Option<&NodeSelector> {
        match self {
            Self::Plain(claim) => claim.status.node_selector.as_ref(),
            Self::Privileged(claim) => claim.status.node_selector.as_ref(),
        }
    }

    pub(crate) fn consumers(&self) -> &[Consumer] {
        match self {
            Self::Plain(claim) => &claim.status.reserved_for,
            Self::Privileged(claim) => &claim.status.reserved_for,
        }
    }

    pub(crate) fn is_reserved_for(&self, pod: &Uid) -> bool {
        self.consumers().iter().any(|it| it.uid == pod.as_str())
    }

    pub(crate) fn conditions(&self) -> &[Condition] {
        match self {
            Self::Plain(claim) => &claim.status.conditions,
            Self::Privileged(claim) => &claim.status.conditions,
        }
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.meta().finalizers.iter().any(|it| it == FINALIZER)
    }

    /// When the claim last came to have devices, or to have none. It never goes back.
    pub(crate) fn horizon(&self) -> Option<Timestamp> {
        condition::find(self.conditions(), ALLOCATED).map(|it| it.last_transition_time.0)
    }

    /// What it asks for, or what is wrong with it.
    pub(crate) fn wanted(&self) -> Result<Wanted<'_>, &str> {
        match self {
            Self::Plain(claim) => claim.object.as_ref().map(|it| Wanted::Claim(&it.spec)),
            Self::Privileged(claim) => claim.object.as_ref().map(|it| Wanted::Privileged(&it.spec)),
        }
        .map_err(String::as_str)
    }

    /// What in it should be written differently.
    pub(crate) fn remarks(&self) -> &[String] {
        match self {
            Self::Plain(claim) => &claim.remarks,
            Self::Privileged(claim) => &claim.remarks,
        }
    }

    /// Changes the status, if the claim is as it was seen.
    pub(crate) fn write(&self, status: &Value) -> Write {
        Write::Merge {
            resource: self.resource(),
            key: self.meta().key(),
            part: Part::Status,
            fence: self.meta().fence(),
            body: json!({"status": status}),
        }
    }

    /// Sets or lifts what keeps the claim from going.
    pub(crate) fn protect(&self, protected: bool) -> Write {
        let mut finalizers = self.meta().finalizers.clone();
        finalizers.retain(|it| it != FINALIZER);
        if protected {
            finalizers.push(FINALIZER.to_owned());
        }
        Write::Merge {
            resource: self.resource(),
            key: self.meta().key(),
            part: Part::Main,
            fence: self.meta().fence(),
            body: json!({"metadata": {"finalizers": finalizers}}),
        }
    }

    /// Its conditions when it has devices, or has none, from now on: no entry that was made at one of these
    /// times counts any more.
    pub(crate) fn turned(
        &self,
        says: Says,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let at = entries.into_iter().chain(self.horizon()).fold(second(now), Timestamp::max);
        let (kind, generation) = (says.kind, self.meta().generation);
        let mut conditions = condition::with(self.conditions(), &[says], generation, now);
        for condition in conditions.iter_mut().filter(|it| it.type_ == kind) {
            condition.last_transition_time = Time(second(at));
        }
        conditions
    }

    /// Gives everything back: the claim has no devices and no consumers from now on, and no entry
    /// that is there at this moment counts any more.
    pub(crate) fn clear(
        &self,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Write {
        let says = Says::no(ALLOCATED, "Released", String::new());
        let mut conditions = self.turned(says, entries, now);
        conditions.retain(|it| !matches!(it.type_.as_str(), "DeviceLost" | "Conflict"));
        let mut status = json!({
            "allocations": null, "nodeName": null, "nodeSelector": null, "claimConfigs": null,
            "reservedFor": null, "podNames": null, "conditions": condition::spell(&conditions),
        });
        match self {
            Self::Plain(_) => {
                for field in ["selected", "classConfigs", "deviceStatuses"] {
                    status[field] = Value::Null;
                }
            }
            Self::Privileged(_) => {}
        }
        self.write(&status)
    }

    /// Keeps what the claim has, and no other entry that is there at this moment counts any more.
    pub(crate) fn outlive(
        &self,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Write {
        let conditions = self.turned(Says::yes(ALLOCATED, "Allocated"), entries, now);
        self.write(&json!({"conditions": condition::spell(&conditions)}))
    }

    /// Names the pods that may use the claim.
    pub(crate) fn share(&self, consumers: &[Consumer]) -> Write {
        self.write(&reserved(consumers))
    }
}

/// The consumers of a claim as its status has them.
pub(crate) fn reserved(consumers: &[Consumer]) -> Value {
    let mut names: Vec<&str> = consumers.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    json!({"reservedFor": consumers, "podNames": names})
}
