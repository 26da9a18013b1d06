//! Starts the simulation of nodes and the programs of their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_controller::{Filter, Outside, Seat};
use gantry_reconcile::{Observer, Place};
use gantry_subsystem::start::{Background, Host, Identity, Parts, Setup, StartError};

use super::NODE_LEASES;
use crate::effects::{PodRuntime, Programs};
use crate::logs::{LogObserver, Logs};
use crate::members::{self, Member};
use crate::view::Lease;
use crate::{kubelet, rights};

/// Starts the nodes where they are switched on.
pub(super) fn start(setup: Setup<'_>) -> Result<Parts, StartError> {
    if !setup.values.is_on("simulation.enabled") {
        return Ok(Parts::default());
    }
    let runtime = setup.offers.get::<PodRuntime>().cloned();
    let runtime =
        runtime.unwrap_or_else(|| PodRuntime::new(kubelet::Profile::default(), Logs::new()));
    let programs = Programs::new(runtime.profile, runtime.api_server.clone());
    // A host starts the simulation once.
    let _ = runtime.observer.set(programs.observer().clone());
    let mut parts = Parts::default();
    for Member { controller, manager, component, workers, .. } in members::nodes(programs.kubelet())
    {
        if (setup.runs)(controller.name()) {
            let actor = setup.actor(&nodes(), manager, component)?;
            parts.seats.push(Seat { controller, actor, workers });
        }
    }
    if (setup.runs)("kubelet-pods") {
        let client = setup.clients.reader(&nodes())?;
        let mut outside = Outside::default();
        programs.follow(&mut outside, client.clone(), setup.clock);
        let logs = LogObserver::new(runtime.logs.clone(), setup.clock.clone());
        outside.observers.push(Arc::new(logs) as Arc<dyn Observer>);
        parts.outside = outside;
        let run: Background =
            Box::new(move |tasks, handle| programs.spawn(tasks, handle, runtime, client));
        parts.background.push(run);
    }
    if setup.host == Host::Cluster {
        let filter = Filter { namespace: NODE_LEASES.to_owned(), ..Filter::default() };
        parts.filters = BTreeMap::from([(Place::of::<Lease>(), filter)]);
    }
    Ok(parts)
}

/// Who the nodes are to the embedded server, together.
fn nodes() -> Identity {
    let user = members::NODES_USER.to_owned();
    let groups = ["system:nodes", rights::NODES].map(str::to_owned).to_vec();
    Identity { user, groups, for_users: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::SUBSYSTEM;

    #[test]
    fn every_controller_can_be_switched() {
        let members = members::nodes(&kubelet::Settings::default());
        let names: Vec<_> = members.iter().map(|it| it.controller.name()).collect();
        let switches = SUBSYSTEM.features.iter().flat_map(|it| it.controllers);
        assert_eq!(names, switches.map(|it| it.name).collect::<Vec<_>>());
    }
}
