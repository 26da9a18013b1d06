//! Starts the controllers of devices.

use std::sync::Arc;

use gantry_controller::{Outside, Seat};
use gantry_reconcile::Controller;
use gantry_subsystem::start::{Identity, Parts, Setup, StartError};

use super::configuration::Configuration;
use super::{ACCOUNT, MANAGER};
use crate::effects::config_inquiry;
use crate::{
    AdminQuota, Books, ClassStanding, DriverStanding, Gate, NAME, Release, Results, Scheduler,
};

/// Starts the controllers where they are switched on.
pub(super) fn start(setup: Setup<'_>) -> Result<Parts, StartError> {
    let configuration = Configuration::read(setup.values)?;
    if !configuration.enabled {
        return Ok(Parts::default());
    }
    let account = Identity::account(ACCOUNT);
    let actor = setup.actor(&account, MANAGER, NAME)?;
    let seat = |(controller, workers)| Seat { controller, actor: Arc::clone(&actor), workers };
    let reader = setup.clients.reader(&account)?;
    let seats = controllers(configuration.admin_quota()).into_iter();
    Ok(Parts {
        seats: seats.filter(|(it, _)| (setup.runs)(it.name())).map(seat).collect(),
        outside: Outside {
            inquiries: vec![config_inquiry(reader, setup.clock.clone())],
            ..Outside::default()
        },
        ..Parts::default()
    })
}

/// The controllers, which ask for quotas in this way, and how many keys each plans at once.
fn controllers(quota: AdminQuota) -> Vec<(Arc<dyn Controller>, usize)> {
    vec![
        (Arc::new(Scheduler::new(quota)), 1),
        (Arc::new(Release), 4),
        (Arc::new(Books), 4),
        (Arc::new(Results), 4),
        (Arc::new(Gate), 1),
        (Arc::new(ClassStanding::default()), 1),
        (Arc::new(DriverStanding), 1),
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
