//! Starts the simulation of nodes and the programs of their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_controller::{ExternalSystems, Filter, Registration};
use gantry_kube_controllers::ClusterController;
use gantry_reconcile::{Observer, StoreId};
use gantry_subsystem::start::{
    BackgroundTask, Host, Identity, Setup, StartError, SubsystemComponents,
};

use super::NODE_LEASES;
use crate::controller_set;
use crate::device_driver::DevicePluginPools;
use crate::effects::{PodPrograms, PodRuntime};
use crate::logs::{LogObserver, Logs};
use crate::view::Lease;
use crate::{kubelet, rbac};

/// Starts the simulation of nodes where it is enabled.
pub(super) fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    if !setup.values.is_on("simulation.enabled") {
        return Ok(SubsystemComponents::default());
    }
    let runtime = setup.extensions.get::<PodRuntime>().cloned();
    let runtime =
        runtime.unwrap_or_else(|| PodRuntime::new(kubelet::Profile::default(), Logs::new()));
    let programs = PodPrograms::new(&runtime);
    // A host starts the simulation once.
    let _ = runtime.observer.set(programs.observer().clone());
    let mut parts = SubsystemComponents::default();
    for ClusterController { controller, manager, component, workers, .. } in
        controller_set::node_controllers(programs.kubelet())
    {
        if (setup.is_controller_enabled)(controller.name()) {
            let actor = setup.actor(&nodes(), manager, component)?;
            parts.registrations.push(Registration { controller, actor, workers });
        }
    }
    if (setup.is_controller_enabled)("kubelet-pods") {
        let client = setup.clients.reader(&nodes())?;
        let mut outside = ExternalSystems::default();
        let images = runtime.images.as_ref();
        programs.register_observers(&mut outside, client.clone(), setup.clock, images);
        let logs = LogObserver::new(runtime.logs.clone(), setup.clock.clone());
        outside.observers.push(Arc::new(logs) as Arc<dyn Observer>);
        parts.outside = outside;
        let run: BackgroundTask =
            Box::new(move |tasks, handle| programs.spawn(tasks, handle, runtime, client));
        parts.background.push(run);
        // A cluster need not have the kinds of devices, and its operator no access to them.
        if setup.host == Host::Embedded {
            let name = "gantry-device-plugins";
            let actor = setup.actor(&nodes(), name, name)?;
            let pools = Arc::new(DevicePluginPools::default());
            parts.registrations.push(Registration::new(pools, actor));
        }
    }
    if setup.host == Host::Cluster {
        let filter = Filter { namespace: NODE_LEASES.to_owned(), ..Filter::default() };
        parts.filters = BTreeMap::from([(StoreId::of::<Lease>(), filter)]);
    }
    Ok(parts)
}

/// The identity of all simulated nodes towards the embedded server.
fn nodes() -> Identity {
    let user = controller_set::NODES_USER.to_owned();
    let groups = ["system:nodes", rbac::NODES_GROUP].map(str::to_owned).to_vec();
    Identity { user, groups, impersonates_users: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::SUBSYSTEM;

    #[test]
    fn every_controller_can_be_switched() {
        let members = controller_set::node_controllers(&kubelet::Settings::default());
        let names: Vec<_> = members.iter().map(|it| it.controller.name()).collect();
        let switches = SUBSYSTEM.features.iter().flat_map(|it| it.controllers);
        assert_eq!(names, switches.map(|it| it.name).collect::<Vec<_>>());
    }
}
