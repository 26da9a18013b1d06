//! The last step of a pod's way.

use gantry_reconcile::{Note, Step, Write};

use super::NAME;
use super::scene::Scene;
use super::status::Given;
use super::turn::{Case, about};
use crate::carrier;
use crate::gate;
use crate::results::{Got, annotations};

impl Case<'_, '_> {
    /// Gives the pod to a node and tells it in the same write which devices it has: those its claims had,
    /// and those that were given to the open ones. Nothing for a pod that somebody else brings to its
    /// node.
    pub(super) fn bind(&self, scene: &Scene<'_>, node: usize, given: &[Given]) -> Option<Step> {
        let pod = self.pod;
        let ours = pod.spec.node_name.is_empty() && pod.spec.scheduler_name == NAME;
        if !ours || gate::is_gated(pod) {
            return None;
        }
        let mut given = given.iter();
        let got = self.claims.iter().map(|(entry, claim)| {
            let got = Got::already(entry, claim);
            match claim.is_allocated() {
                true => got,
                // In the order of the open ones, which is that of all.
                false => Got { allocations: given.next().map_or(&[], |it| &it.allocations), ..got },
            }
        });
        let got: Vec<Got<'_>> = got.collect();
        let annotations = match carrier::has_carrier(pod) {
            true => annotations(scene.world, self.asked, &got),
            false => std::collections::BTreeMap::new(),
        };
        let (key, uid) = (pod.metadata.key(), pod.metadata.uid.clone());
        let node = scene.sites()[node].node.metadata.name.clone();
        let said = format!("Successfully assigned {key} to {node}");
        let note = Note::normal(about(pod), "Scheduled", said).doing("Binding");
        Some(Step::new(Write::Bind { key, uid, node, annotations }).done(note))
    }
}
