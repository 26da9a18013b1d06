//! Starts scaling: selects the back end and the account.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_controller::{ExternalSystems, Filter, Registration};
use gantry_queue::LiveSettings;
use gantry_queue::subsystem::configuration as queue;
use gantry_reconcile::{Key, Observer, StoreId};
use gantry_subsystem::start::{
    BackgroundTask, Host, Identity, Setup, StartError, SubsystemComponents,
};

use super::configuration::{Configuration, MachineSetsStrategy};
use super::{ACCOUNT, CONTROLLERS, GRANT_RECORD_NAME};
use crate::effects::{Endpoints, GrantedNodeMetrics, Pools};
use crate::view::ConfigMap;
use crate::{Backend, Limits, Scaling, Settings, ShapeInference};

/// The field manager of the fields that scaling writes, and the reporting component of its events.
const FIELD_MANAGER: &str = "gantry-scaling";
/// How long a simulated node may take to be ready.
const SIMULATED_PROVISION_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Starts scaling where it is switched on.
pub(super) async fn start(setup: Setup<'_>) -> Result<SubsystemComponents, StartError> {
    let configuration = Configuration::read(setup.values)?;
    if !configuration.enabled
        || !CONTROLLERS.iter().all(|it| (setup.is_controller_enabled)(it.name))
    {
        return Ok(SubsystemComponents::default());
    }
    let account = Identity::account(ACCOUNT);
    let ledger = Key::new(&(setup.namespace)()?, GRANT_RECORD_NAME);
    let (backend, pools) = match (setup.host, &configuration.ocm_secret_ref) {
        (Host::Embedded, _) => (Backend::Groups, None),
        (Host::Cluster, Some(reference)) => {
            let client = setup.clients.reader(&account)?;
            let (api, tokens) = (&configuration.ocm_url, &configuration.ocm_token_url);
            let endpoints = Endpoints { api: api.clone(), tokens: tokens.clone() };
            let pools = Pools::connect(&client, setup.clock, reference, endpoints).await?;
            (Backend::Pools(pools.kind()), Some(pools))
        }
        (Host::Cluster, None) => match configuration.machine_sets_strategy {
            MachineSetsStrategy::Reuse => (Backend::Reuse, None),
            MachineSetsStrategy::Duplicate => (Backend::Duplicate, None),
        },
    };
    let limits = limits(setup.host, &configuration);
    let scaling = Settings { limits, backend, grant_record: ledger.clone() };
    let scaling = Arc::new(Scaling::new(scaling));
    let actor = setup.actor(&account, FIELD_MANAGER, FIELD_MANAGER)?;
    let mut parts = SubsystemComponents {
        registrations: vec![Registration::new(scaling.clone(), Arc::clone(&actor))],
        outside: ExternalSystems {
            inquiries: pools.iter().map(Pools::inquiry).collect(),
            callers: pools.iter().map(Pools::caller).collect(),
            ..ExternalSystems::default()
        },
        filters: BTreeMap::from([(StoreId::of::<ConfigMap>(), filter(setup.host, &ledger))]),
        ..SubsystemComponents::default()
    };
    let queued = setup.host == Host::Cluster || queue::is_enabled(setup.values);
    if configuration.infer_shapes && queued {
        // Nodes are chosen by evaluations of the queue. Jobs compete, so one worker decides about
        // all of them.
        let live = LiveSettings::new(queue_settings(setup.host, setup.values)?);
        let shapes = ShapeInference::new(Arc::clone(&scaling), live.clone());
        parts.registrations.push(Registration::new(Arc::new(shapes), actor).with_single_worker());
        let host = setup.host;
        parts.reconfigure.push(Arc::new(move |values, _| {
            live.set(queue_settings(host, values)?);
            Ok(())
        }));
    }
    let stock = Arc::new(GrantedNodeMetrics::register(setup.metrics, ledger)?);
    parts.outside.observers.push(Arc::clone(&stock) as Arc<dyn Observer>);
    let count: BackgroundTask = Box::new(move |tasks, handle| stock.spawn(tasks, handle));
    parts.background.push(count);
    let host = setup.host;
    parts.reconfigure.push(Arc::new(move |values, _| {
        scaling.set_limits(self::limits(host, &Configuration::read(values)?));
        Ok(())
    }));
    Ok(parts)
}

fn queue_settings(
    host: Host,
    values: &gantry_subsystem::settings::Values,
) -> Result<gantry_queue::Settings, serde_json::Error> {
    match host {
        Host::Embedded => queue::embedded_settings(values),
        Host::Cluster => queue::settings(values),
    }
}

/// Returns what may change while scaling runs. Simulated nodes cost nothing: their groups limit how
/// many there may be.
fn limits(host: Host, configuration: &Configuration) -> Limits {
    match host {
        Host::Cluster => configuration.limits(),
        Host::Embedded => Limits {
            max_nodes: u32::MAX,
            provision_timeout: SIMULATED_PROVISION_TIMEOUT,
            cooldown: Duration::ZERO,
        },
    }
}

/// Returns the filter of the ConfigMaps that are cached: the grant record alone, or with it the
/// groups of simulated nodes.
fn filter(host: Host, ledger: &Key) -> Filter {
    let namespace = ledger.namespace().to_owned();
    match host {
        Host::Embedded => Filter { namespace, ..Filter::default() },
        Host::Cluster => {
            let fields = format!("metadata.name={}", ledger.name());
            Filter { fields, namespace, ..Filter::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_grant_record_is_cached_on_a_cluster() {
        let filter = filter(Host::Cluster, &Key::new("gantry-system", GRANT_RECORD_NAME));
        assert_eq!(filter.namespace, "gantry-system");
        assert_eq!(filter.fields, "metadata.name=gantry-scaling");
    }
}
