//! The last step: binding a pod to its node.

use gantry_reconcile::{Event, Step, Write};

use super::SCHEDULER_NAME;
use super::claim_status::ClaimGrant;
use super::cycle_state::CycleState;
use super::scheduling_cycle::PodWithClaims;
use crate::pod_annotations::{PodClaimAllocations, annotations};
use crate::pod_claims;
use crate::scheduling_gate;
use crate::scheduling_gate::pod_reference;

impl PodWithClaims<'_, '_> {
    /// Binds the pod to a node and annotates it in the same write with its devices: those its
    /// claims had, and those that were allocated to the open ones. Returns `None` for a pod that
    /// another scheduler binds.
    pub(super) fn bind_step(
        &self,
        scene: &CycleState<'_>,
        node: usize,
        given: &[ClaimGrant],
    ) -> Option<Step> {
        let pod = self.pod;
        let ours = pod.spec.node_name.is_empty() && pod.spec.scheduler_name == SCHEDULER_NAME;
        if !ours || scheduling_gate::is_gated(pod) {
            return None;
        }
        let mut given = given.iter();
        let got = self.claims.iter().map(|(entry, claim)| {
            let got = PodClaimAllocations::from_status(entry, claim);
            match claim.is_allocated() {
                true => got,
                // In the order of the open claims, which is that of all.
                false => PodClaimAllocations {
                    allocations: given.next().map_or(&[], |it| &it.allocations),
                    ..got
                },
            }
        });
        let got: Vec<PodClaimAllocations<'_>> = got.collect();
        let annotations = match pod_claims::claims_devices(pod) {
            true => annotations(scene.world, self.pod_claims, &got),
            false => std::collections::BTreeMap::new(),
        };
        let (key, uid) = (pod.metadata.key(), pod.metadata.uid.clone());
        let node = scene.nodes()[node].node.metadata.name.clone();
        let said = format!("Successfully assigned {key} to {node}");
        let note = Event::normal(pod_reference(pod), "Scheduled", said).with_action("Binding");
        Some(Step::new(Write::Bind { key, uid, node, annotations }).on_success(note))
    }
}
