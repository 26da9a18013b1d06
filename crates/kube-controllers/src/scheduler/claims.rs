//! The requirements of a pod's claims on its node: PersistentVolumeClaims and ResourceClaims.

use std::collections::BTreeSet;

use gantry_pods::NodeRejection;
use gantry_reconcile::World;

use super::devices::DeviceClaims;
use super::volumes::VolumeClaims;
use crate::view::{Node, Pod};

/// The claims of one pod.
#[derive(Debug, Default)]
pub(super) struct PodClaims<'w> {
    pub(super) volumes: VolumeClaims<'w>,
    pub(super) devices: DeviceClaims,
    /// The volumes that were assigned to claims of other pods.
    assigned_volumes: BTreeSet<String>,
}

impl<'w> PodClaims<'w> {
    /// Returns whether a pod has no claims.
    pub(super) fn has_none(pod: &Pod) -> bool {
        pod.spec.resource_claims.is_empty() && pod.volume_claims().next().is_none()
    }

    /// Returns the claims of a pod, or why no node fits as long as they are unchanged. Volumes in
    /// `taken` were assigned to other claims.
    pub(super) fn of(
        world: &'w World,
        pod: &Pod,
        taken: &BTreeSet<String>,
    ) -> Result<Self, String> {
        if Self::has_none(pod) {
            return Ok(Self::default());
        }
        let devices = DeviceClaims::find(world, pod)?;
        let volumes = VolumeClaims::find(world, pod)?;
        devices.check(world, pod)?;
        Ok(Self { volumes, devices, assigned_volumes: taken.clone() })
    }

    /// Returns why a node does not fit. Preempting pods on it changes nothing about that.
    pub(super) fn misfit(&self, node: &Node) -> Option<NodeRejection> {
        let reasons = self.volumes.reasons(node, &self.assigned_volumes);
        let reasons = if reasons.is_empty() { self.devices.reasons(node) } else { reasons };
        (!reasons.is_empty()).then_some(NodeRejection { reasons, unresolvable: true })
    }
}
