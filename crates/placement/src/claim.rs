//! Claims of either kind: DeviceClaims and DevicePrivilegedClaims.

use std::sync::Arc;

use gantry_api::devices::{Consumer, DeviceAllocation, DeviceClaim, DevicePrivilegedClaim};
use gantry_devices::lower::ClaimSpecRef;
pub(crate) use gantry_pods::devices::{
    FINALIZER, allocated_from_pool_tag, holds_device_tag, is_hold, reserved_for_pod_tag,
    unallocated_claims_tag,
};
use gantry_reconcile::{
    Key, Meta, ObjectReference, Resource, Subresource, Uid, View, World, Write,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::condition::{self, ConditionUpdate, truncate_to_second};
use crate::views::DeviceObject;

/// The annotation that names the pod's entry that a generated claim was created for.
pub(crate) const POD_CLAIM_NAME_ANNOTATION: &str = "devmgmtproto.k8s.io/pod-claim-name";
/// How many pods may share a claim.
pub(crate) const MAX_CONSUMERS: usize = 256;
/// The condition that says whether a claim has devices, and since when.
pub(crate) const ALLOCATED_CONDITION: &str = "Allocated";

/// A claim of either kind.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// A DeviceClaim, which holds its devices.
    Plain(Arc<DeviceObject<DeviceClaim>>),
    /// A DevicePrivilegedClaim, which observes devices without holding them.
    Privileged(Arc<DeviceObject<DevicePrivilegedClaim>>),
}

impl Claim {
    /// Returns the claims that have this name, of both kinds.
    pub(crate) fn by_key(world: &World, key: &Key) -> Vec<Self> {
        let plain = world.store::<DeviceObject<DeviceClaim>>().get(key).map(Self::Plain);
        let privileged =
            world.store::<DeviceObject<DevicePrivilegedClaim>>().get(key).map(Self::Privileged);
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

    /// Whether both are the same object at the same resource version.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => Arc::ptr_eq(one, other),
            (Self::Privileged(one), Self::Privileged(other)) => Arc::ptr_eq(one, other),
            (Self::Plain(_), Self::Privileged(_)) | (Self::Privileged(_), Self::Plain(_)) => false,
        }
    }

    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::Plain(_) => <DeviceObject<DeviceClaim> as View>::RESOURCE,
            Self::Privileged(_) => <DeviceObject<DevicePrivilegedClaim> as View>::RESOURCE,
        }
    }

    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference::to(&self.resource(), self.meta())
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

    pub(crate) fn has_finalizer(&self) -> bool {
        self.meta().finalizers.iter().any(|it| it == FINALIZER)
    }

    /// Returns when the claim last gained or lost its devices. It never goes back.
    pub(crate) fn allocation_changed_at(&self) -> Option<Timestamp> {
        condition::find(self.conditions(), ALLOCATED_CONDITION).map(|it| it.last_transition_time.0)
    }

    /// Returns its spec, or the error.
    pub(crate) fn spec(&self) -> Result<ClaimSpecRef<'_>, &str> {
        match self {
            Self::Plain(claim) => claim.object.as_ref().map(|it| ClaimSpecRef::Claim(&it.spec)),
            Self::Privileged(claim) => {
                claim.object.as_ref().map(|it| ClaimSpecRef::Privileged(&it.spec))
            }
        }
        .map_err(String::as_str)
    }

    /// Returns the warnings about its spec.
    pub(crate) fn warnings(&self) -> &[String] {
        match self {
            Self::Plain(claim) => &claim.warnings,
            Self::Privileged(claim) => &claim.warnings,
        }
    }

    /// Updates the status, if the claim is unchanged.
    pub(crate) fn update_status(&self, status: &Value) -> Write {
        Write::Merge {
            resource: self.resource(),
            key: self.meta().key(),
            subresource: Subresource::Status,
            fence: self.meta().fence(),
            body: json!({"status": status}),
        }
    }

    /// Adds or removes the finalizer.
    pub(crate) fn set_finalizer(&self, protected: bool) -> Write {
        let mut finalizers = self.meta().finalizers.clone();
        finalizers.retain(|it| it != FINALIZER);
        if protected {
            finalizers.push(FINALIZER.to_owned());
        }
        Write::Merge {
            resource: self.resource(),
            key: self.meta().key(),
            subresource: Subresource::Main,
            fence: self.meta().fence(),
            body: json!({"metadata": {"finalizers": finalizers}}),
        }
    }

    /// Returns its conditions when it has devices, or has none, from now on: no entry that was
    /// written at one of these times counts any more.
    pub(crate) fn with_allocated_condition(
        &self,
        says: ConditionUpdate,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let at = entries
            .into_iter()
            .chain(self.allocation_changed_at())
            .fold(truncate_to_second(now), Timestamp::max);
        let (kind, generation) = (says.kind, self.meta().generation);
        let mut conditions = condition::merge(self.conditions(), &[says], generation, now);
        for condition in conditions.iter_mut().filter(|it| it.type_ == kind) {
            condition.last_transition_time = Time(truncate_to_second(at));
        }
        conditions
    }

    /// Releases everything: the claim has no devices and no consumers from now on, and no entry
    /// that exists at this moment counts any more.
    pub(crate) fn deallocate(
        &self,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Write {
        let says = ConditionUpdate::new_false(ALLOCATED_CONDITION, "Released", String::new());
        let mut conditions = self.with_allocated_condition(says, entries, now);
        conditions.retain(|it| !matches!(it.type_.as_str(), "DeviceLost" | "Conflict"));
        let mut status = json!({
            "allocations": null, "nodeName": null, "nodeSelector": null, "claimConfigs": null,
            "reservedFor": null, "podNames": null, "conditions": condition::to_json(&conditions),
        });
        match self {
            Self::Plain(_) => {
                for field in ["selected", "classConfigs", "deviceStatuses"] {
                    status[field] = Value::Null;
                }
            }
            Self::Privileged(_) => {}
        }
        self.update_status(&status)
    }

    /// Keeps what the claim has, and voids every other entry that exists at this moment.
    pub(crate) fn void_other_entries(
        &self,
        entries: impl IntoIterator<Item = Timestamp>,
        now: Timestamp,
    ) -> Write {
        let conditions = self.with_allocated_condition(
            ConditionUpdate::new_true(ALLOCATED_CONDITION, "Allocated"),
            entries,
            now,
        );
        self.update_status(&json!({"conditions": condition::to_json(&conditions)}))
    }

    /// Writes the pods that may use the claim.
    pub(crate) fn reserve_for(&self, consumers: &[Consumer]) -> Write {
        self.update_status(&reserved_for_json(consumers))
    }
}

/// Serializes the consumers of a claim as its status stores them.
pub(crate) fn reserved_for_json(consumers: &[Consumer]) -> Value {
    let mut names: Vec<&str> = consumers.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    json!({"reservedFor": consumers, "podNames": names})
}
