//! Starts scaling: which back end, and in whose name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_controller::{Filter, Outside, Seat};
use gantry_queue::Live;
use gantry_queue::subsystem::configuration as queue;
use gantry_reconcile::{Key, Observer, Place};
use gantry_subsystem::start::{Background, Host, Identity, Parts, Setup, StartError};

use super::configuration::{Configuration, MachineSets};
use super::{ACCOUNT, CONTROLLERS, LEDGER};
use crate::effects::{Endpoints, Pools, StockMetrics};
use crate::view::ConfigMap;
use crate::{Backend, Limits, Scaling, Settings, Shapes};

/// Who owns the fields that are written, and whom events come from.
const NAME: &str = "gantry-scaling";
/// How long a simulated node may take to be ready.
const SIMULATED_PROVISION_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Starts scaling where it is switched on.
pub(super) async fn start(setup: Setup<'_>) -> Result<Parts, StartError> {
    let configuration = Configuration::read(setup.values)?;
    if !configuration.enabled || !CONTROLLERS.iter().all(|it| (setup.runs)(it.name)) {
        return Ok(Parts::default());
    }
    let account = Identity::account(ACCOUNT);
    let ledger = Key::new(&(setup.namespace)()?, LEDGER);
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
            MachineSets::Reuse => (Backend::Reuse, None),
            MachineSets::Duplicate => (Backend::Duplicate, None),
        },
    };
    let limits = limits(setup.host, &configuration);
    let scaling = Settings { limits, backend, ledger: ledger.clone() };
    let scaling = Arc::new(Scaling::new(scaling));
    let actor = setup.actor(&account, NAME, NAME)?;
    let mut parts = Parts {
        seats: vec![Seat::new(scaling.clone(), Arc::clone(&actor))],
        outside: Outside {
            inquiries: pools.iter().map(Pools::inquiry).collect(),
            callers: pools.iter().map(Pools::caller).collect(),
            ..Outside::default()
        },
        filters: BTreeMap::from([(Place::of::<ConfigMap>(), filter(setup.host, &ledger))]),
        ..Parts::default()
    };
    let queued = setup.host == Host::Cluster || queue::is_enabled(setup.values);
    if configuration.infer_shapes && queued {
        // Nodes are chosen by what the queue would say. Jobs compete: there is one decision about all of them.
        let live = Live::new(queue_settings(setup.host, setup.values)?);
        let shapes = Shapes::new(Arc::clone(&scaling), live.clone());
        parts.seats.push(Seat::new(Arc::new(shapes), actor).alone());
        let host = setup.host;
        parts.reconfigure.push(Arc::new(move |values, _| {
            live.set(queue_settings(host, values)?);
            Ok(())
        }));
    }
    let stock = Arc::new(StockMetrics::register(setup.metrics, ledger)?);
    parts.outside.observers.push(Arc::clone(&stock) as Arc<dyn Observer>);
    let count: Background = Box::new(move |tasks, handle| stock.spawn(tasks, handle));
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

/// What may change while scaling runs. Simulated nodes cost nothing: how many there may be their groups say.
fn limits(host: Host, configuration: &Configuration) -> Limits {
    match host {
        Host::Cluster => configuration.limits(),
        Host::Embedded => Limits {
            nodes: u32::MAX,
            provision: SIMULATED_PROVISION_TIMEOUT,
            cooldown: Duration::ZERO,
        },
    }
}

/// The ConfigMaps that are cached: the ledger alone, or beside it the groups of simulated nodes.
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
    fn the_ledger_is_the_only_map_that_is_cached_on_a_cluster() {
        let filter = filter(Host::Cluster, &Key::new("gantry-system", LEDGER));
        assert_eq!(filter.namespace, "gantry-system");
        assert_eq!(filter.fields, "metadata.name=gantry-scaling");
    }
}
