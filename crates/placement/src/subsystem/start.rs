//! Starts the device controllers.

use std::sync::Arc;

use gantry_controller::{ExternalSystems, Registration};
use gantry_reconcile::Controller;
use gantry_subsystem::start::{Identity, Setup, StartError, SubsystemComponents};

use super::configuration::Configuration;
use super::{ALLOCATOR_USER, FIELD_MANAGER};
use crate::effects::config_inquiry;
use crate::{
    AdminQuota, ClassStatusController, DriverStatusController, GateController, LedgerReconciler,
    PodAnnotator, ReleaseController, SCHEDULER_NAME, Scheduler,
};

/// Starts the controllers if they are enabled.
pub(super) fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    let configuration = Configuration::read(setup.values)?;
    if !configuration.enabled {
        return Ok(SubsystemComponents::default());
    }
    let account = Identity::account(ALLOCATOR_USER);
    let actor = setup.actor(&account, FIELD_MANAGER, SCHEDULER_NAME)?;
    let register =
        |(controller, workers)| Registration { controller, actor: Arc::clone(&actor), workers };
    let reader = setup.clients.reader(&account)?;
    let candidates = controllers(configuration.admin_quota()).into_iter();
    Ok(SubsystemComponents {
        registrations: candidates
            .filter(|(it, _)| (setup.is_controller_enabled)(it.name()))
            .map(register)
            .collect(),
        outside: ExternalSystems {
            inquiries: vec![config_inquiry(reader, setup.clock.clone())],
            ..ExternalSystems::default()
        },
        ..SubsystemComponents::default()
    })
}

/// Returns the controllers, with this enforcement of quotas, and how many keys each plans at once.
fn controllers(quota: AdminQuota) -> Vec<(Arc<dyn Controller>, usize)> {
    vec![
        (Arc::new(Scheduler::new(quota)), 1),
        (Arc::new(ReleaseController), 4),
        (Arc::new(LedgerReconciler), 4),
        (Arc::new(PodAnnotator), 4),
        (Arc::new(GateController), 1),
        (Arc::new(ClassStatusController::default()), 1),
        (Arc::new(DriverStatusController), 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::SUBSYSTEM;

    #[test]
    fn every_controller_can_be_switched() {
        let names: Vec<_> =
            controllers(AdminQuota::Optional).iter().map(|(it, _)| it.name()).collect();
        let switches = SUBSYSTEM.features.iter().flat_map(|it| it.controllers);
        assert_eq!(names, switches.map(|it| it.name).collect::<Vec<_>>());
    }
}
