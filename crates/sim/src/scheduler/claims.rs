//! What the claims of a pod ask of its node: PersistentVolumeClaims and ResourceClaims.

use std::collections::BTreeSet;

use gantry_pods::Misfit;
use gantry_reconcile::World;

use super::devices::DeviceClaims;
use super::volumes::VolumeClaims;
use crate::view::{Node, Pod};

/// The claims of one pod.
#[derive(Debug, Default)]
pub(super) struct Claims<'w> {
    pub(super) volumes: VolumeClaims<'w>,
    pub(super) devices: DeviceClaims,
    /// The volumes that were given to claims of other pods.
    taken: BTreeSet<String>,
}

impl<'w> Claims<'w> {
    /// Whether a pod has no claims.
    pub(super) fn has_none(pod: &Pod) -> bool {
        pod.spec.resource_claims.is_empty() && pod.used_claims().next().is_none()
    }

    /// The claims of a pod, or why no node will do as long as they are as they are. Volumes in
    /// `taken` were given to other claims.
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
        Ok(Self { volumes, devices, taken: taken.clone() })
    }

    /// Why a node will not do. Pods that leave it change nothing about that.
    pub(super) fn misfit(&self, node: &Node) -> Option<Misfit> {
        let reasons = self.volumes.reasons(node, &self.taken);
        let reasons = if reasons.is_empty() { self.devices.reasons(node) } else { reasons };
        (!reasons.is_empty()).then_some(Misfit { reasons, lasting: true })
    }
}
