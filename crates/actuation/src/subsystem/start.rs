//! Starts the controllers of actuation, their inquiries, and the caller.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_controller::external::{AnyInquiry, Caller, InquiryWithResponder};
use gantry_controller::{Actor, ExternalSystems, Filter, Registration};
use gantry_reconcile::{Observer, StoreId};
use gantry_subsystem::start::{
    BackgroundTask, Host, Identity, Setup, StartError, SubsystemComponents,
};

use super::ACCOUNT;
use super::configuration::Configuration;
use crate::collection::CollectionController;
use crate::effects::metrics::{
    ActuationMetrics, CountedState, LauncherMetrics, PeerMetrics, StateMetrics,
};
use crate::effects::{
    ClaimReader, EventResponder, PeerCaller, PeerClient, PeerOptions, PeerResponder, TokenFile,
    logged,
};
use crate::inquiries::{
    ClaimInquiry, EngineInquiry, EventInquiry, LauncherInquiry, LogInquiry, MemoryInquiry,
    RequesterInquiry,
};
use crate::labels::{GPU_MAP, PAIRING_MANAGER, POPULATION_MANAGER};
use crate::object_status::ObjectStatusController;
use crate::pairing::PairingController;
use crate::population::PopulationController;
use crate::server_config_status::ServerConfigStatusController;
use crate::settings::LiveSettings;
use crate::view::{
    AcceleratorMap, ActuationPod, InferenceServerConfig, LauncherConfig, LauncherPopulationPolicy,
};

/// Starts the subsystem where it is switched on.
pub(super) fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    let configuration = Configuration::read(setup.values)?;
    let is_enabled = |name: &str| match configuration.enabled {
        true => (setup.is_controller_enabled)(name),
        false => false,
    };
    let pairs = is_enabled(PAIRING_MANAGER);
    let collects = is_enabled(CollectionController::NAME);
    let reports_servers = is_enabled(ServerConfigStatusController::NAME);
    let populates = configuration.population.enabled && is_enabled(POPULATION_MANAGER);
    let reports = configuration.population.enabled && is_enabled(ObjectStatusController::NAME);
    let live = LiveSettings::from(configuration.settings());
    let mut registrations = Vec::new();
    let account = Identity::account(ACCOUNT);
    let actor = |name: &str| -> Result<Arc<Actor>, StartError> {
        let actor = setup.actor(&account, name, name)?;
        Ok(logged(&actor, setup.clock, None))
    };
    if pairs {
        let pairing = Arc::new(PairingController::new(live.clone()));
        let launchers = Arc::new(LauncherMetrics::register(setup.metrics)?);
        let actor = setup.actor(&account, PAIRING_MANAGER, PAIRING_MANAGER)?;
        let actor = logged(&actor, setup.clock, Some(launchers));
        registrations.push(Registration::new(pairing, actor));
    }
    if collects {
        let collection = Arc::new(CollectionController);
        registrations.push(Registration::new(collection, actor(PAIRING_MANAGER)?));
    }
    if reports_servers {
        let status = Arc::new(ServerConfigStatusController::new(live.clone()));
        registrations.push(Registration::new(status, actor(PAIRING_MANAGER)?));
    }
    if populates {
        let population = Arc::new(PopulationController::new(live.clone()));
        registrations.push(Registration::new(population, actor(POPULATION_MANAGER)?));
    }
    if reports {
        let status = Arc::new(ObjectStatusController::new(live.clone()));
        registrations.push(Registration::new(status, actor(POPULATION_MANAGER)?));
    }
    if registrations.is_empty() {
        return Ok(SubsystemComponents::default());
    }
    let peer_metrics = Arc::new(PeerMetrics::register(setup.metrics)?);
    let client = PeerClient::new(setup.clock, options(&setup, &configuration), peer_metrics)?;
    let responder = || PeerResponder(client.clone());
    // All controllers read what launchers report.
    let mut inquiries: Vec<Arc<dyn AnyInquiry>> =
        vec![Arc::new(InquiryWithResponder::new(LauncherInquiry(live.clone()), responder()))];
    if pairs {
        let engines = InquiryWithResponder::new(EngineInquiry(live.clone()), responder());
        let requesters = InquiryWithResponder::new(RequesterInquiry, responder());
        let memory = InquiryWithResponder::new(MemoryInquiry(live.clone()), responder());
        let claims = ClaimReader::new(setup.clients.reader(&account)?);
        let waiting = EventResponder::new(client.clone());
        let events = InquiryWithResponder::new(EventInquiry::default(), waiting);
        inquiries.extend([
            Arc::new(engines) as Arc<dyn AnyInquiry>,
            Arc::new(events),
            Arc::new(InquiryWithResponder::new(ClaimInquiry, claims)),
            Arc::new(InquiryWithResponder::new(LogInquiry, responder())),
            Arc::new(requesters),
            Arc::new(memory),
        ]);
    }
    let actuations = Arc::new(ActuationMetrics::register(setup.metrics)?);
    let caller = PeerCaller::new(client.clone(), actuations, setup.clock.clone());
    let role = CountedState { pairs, launchers: populates };
    let state = Arc::new(StateMetrics::register(setup.metrics, live.clone(), role)?);
    let observers = vec![Arc::clone(&state) as Arc<dyn Observer>];
    let callers = vec![Arc::new(caller.clone()) as Arc<dyn Caller>];
    let background: Vec<BackgroundTask> = vec![Box::new(move |tasks, handle| {
        caller.connect(handle);
        state.spawn(tasks, handle);
    })];
    Ok(SubsystemComponents {
        registrations,
        outside: ExternalSystems { observers, inquiries, callers, ..ExternalSystems::default() },
        filters: filters(configuration.namespace.as_deref()),
        background,
        reconfigure: vec![Arc::new(move |values, _| {
            live.set(Configuration::read(values)?.settings());
            Ok(())
        })],
    })
}

/// How pods are called: only simulated ones have addresses of this machine.
fn options(setup: &Setup<'_>, configuration: &Configuration) -> PeerOptions {
    let path = Some(&configuration.token_file).filter(|it| !it.as_os_str().is_empty());
    PeerOptions {
        allows_loopback: setup.host == Host::Embedded || configuration.allow_loopback,
        token: path.map(|it| TokenFile::new(it, setup.clock.clone())),
    }
}

/// The filters of what is cached: the objects of one namespace, and of ConfigMaps only the map of
/// accelerators.
fn filters(namespace: Option<&str>) -> BTreeMap<StoreId, Filter> {
    let namespace = namespace.unwrap_or_default().to_owned();
    let own = || Filter { namespace: namespace.clone(), ..Filter::default() };
    let map = Filter { fields: format!("metadata.name={GPU_MAP}"), ..own() };
    BTreeMap::from([
        (StoreId::of::<ActuationPod>(), own()),
        (StoreId::of::<InferenceServerConfig>(), own()),
        (StoreId::of::<LauncherConfig>(), own()),
        (StoreId::of::<LauncherPopulationPolicy>(), own()),
        (StoreId::of::<AcceleratorMap>(), map),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::{PAIRING_CONTROLLERS, POPULATION_CONTROLLERS};
    use super::*;

    #[test]
    fn only_one_namespace_is_cached_if_one_is_set() {
        let filters = filters(Some("team"));
        assert!(filters.values().all(|it| it.namespace == "team"));
        assert_eq!(filters[&StoreId::of::<AcceleratorMap>()].fields, "metadata.name=gpu-map");
        assert!(super::filters(None).values().all(|it| it.namespace.is_empty()));
    }

    #[test]
    fn every_controller_has_a_switch() {
        let switches = PAIRING_CONTROLLERS.iter().chain(POPULATION_CONTROLLERS);
        let names: Vec<&str> = switches.map(|it| it.name).collect();
        let status = ObjectStatusController::NAME;
        let servers = ServerConfigStatusController::NAME;
        let expected =
            [PAIRING_MANAGER, CollectionController::NAME, servers, POPULATION_MANAGER, status];
        assert_eq!(names, expected);
    }
}
