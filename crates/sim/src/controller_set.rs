//! The controllers that simulate nodes, and the user they act as.

use std::sync::Arc;

use gantry_kube_controllers::ClusterController;
use gantry_kube_controllers::controller_set::DEFAULT_WORKERS;
use gantry_reconcile::Controller;

use crate::kubelet;
use crate::rbac;

/// The user that all simulated nodes act as: they trust each other.
pub const NODES_USER: &str = "system:node:gantry";

/// The controllers that simulate nodes.
#[must_use]
pub fn node_controllers(settings: &kubelet::Settings) -> Vec<ClusterController> {
    let node = |controller: Arc<dyn Controller>, workers| ClusterController {
        controller,
        user: NODES_USER.to_owned(),
        groups: vec!["system:nodes", rbac::NODES_GROUP],
        manager: "kubelet",
        component: "kubelet",
        workers,
    };
    vec![
        node(Arc::new(kubelet::SimulatedNodes::new(settings.clone())), DEFAULT_WORKERS),
        node(Arc::new(kubelet::PodCidrAllocator::new(settings.clone())), 1),
        node(Arc::new(kubelet::SimulatedPods::new(settings.clone())), 2 * DEFAULT_WORKERS),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gantry_kube_controllers::{ControlPlaneSettings, control_plane_controllers};
    use jiff::Timestamp;
    use jiff::tz::TimeZoneDatabase;

    use super::*;
    use crate::usage::Sampling;

    #[test]
    fn controllers_have_unique_names_and_identities() {
        let sampling = Sampling::of_profile(kubelet::Profile::Fast);
        let mut members = control_plane_controllers(&ControlPlaneSettings {
            metrics: Arc::new(sampling),
            certificates: String::new(),
            started: Timestamp::UNIX_EPOCH,
            zones: TimeZoneDatabase::none(),
            authority: None,
        });
        members.extend(node_controllers(&kubelet::Settings::default()));
        let names: BTreeSet<&str> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names.len(), members.len());
        for member in &members {
            assert!(!member.user.ends_with(':') && !member.component.is_empty(), "{member:?}");
            assert!(member.workers > 0, "{member:?}");
        }
        let component = |name: &str| {
            let member = members.iter().find(|it| it.controller.name() == name);
            member.map(|it| it.component)
        };
        let two_names = [
            ("daemonset", "daemonset-controller"),
            ("deployment", "deployment-controller"),
            ("disruption", "controllermanager"),
            ("endpoint-slice", "endpoint-slice-controller"),
            ("taint-eviction", "taint-eviction-controller"),
        ];
        for (name, expected) in two_names {
            assert_eq!(component(name), Some(expected), "{name}");
        }
    }
}
