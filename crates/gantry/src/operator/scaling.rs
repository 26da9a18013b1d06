//! Wires scaling: which back end, with which rights, and what it is told of pools.

use std::sync::Arc;

use anyhow::Context as _;
use gantry_controller::{Actor, Filter, Options, Seat};
use gantry_process::clock::Clock;
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_queue::Live;
use gantry_reconcile::{Key, Place};
use gantry_scaling::effects::{Endpoints, Ocm, Pools, Secret};
use gantry_scaling::subsystem::configuration::{Configuration, MachineSets, SecretReference};
use gantry_scaling::subsystem::{LEDGER, SUBSYSTEM};
use gantry_scaling::view::ConfigMap;
use gantry_scaling::{Backend, Limits, Scaling, Settings, Shapes};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

use super::Start;
use super::cluster::{Asked, call};
use super::stock::StockMetrics;

/// Scaling, ready to be started.
#[derive(Clone, Debug)]
pub(super) struct Part {
    controller: Arc<Scaling>,
    pools: Option<Pools>,
    ledger: Key,
    /// Whether nodes are chosen for jobs that name no types.
    infers_shapes: bool,
}

/// Finds out where nodes come from; nothing if scaling is off.
///
/// # Errors
/// The Secret is missing or has no token, or the cluster is none that the service manages: scaling
/// could never work then.
pub(super) async fn prepare(start: &Start, clock: &Clock) -> anyhow::Result<Option<Part>> {
    let settings = &start.checked.settings;
    let scaling = &Configuration::read(&start.checked.values)?;
    let mut controllers = SUBSYSTEM.features.iter().flat_map(|it| it.controllers);
    if !scaling.enabled || !controllers.all(|it| settings.runs(*it)) {
        return Ok(None);
    }
    let namespace = start.follow.sources.own_namespace()?;
    let ledger = Key::new(&namespace, LEDGER);
    let pools = match &scaling.ocm_secret_ref {
        None => None,
        Some(reference) => {
            let client = super::cluster::client(&start.config)?;
            let (api, tokens) = (scaling.ocm_url.clone(), scaling.ocm_token_url.clone());
            let endpoints = Endpoints { api, tokens };
            Some(find_pools(&client, clock, reference, endpoints).await?)
        }
    };
    let backend = match (&pools, scaling.machine_sets_strategy) {
        (Some(pools), _) => Backend::Pools(pools.kind()),
        (None, MachineSets::Reuse) => Backend::Reuse,
        (None, MachineSets::Duplicate) => Backend::Duplicate,
    };
    let told = Settings { limits: scaling.limits(), backend, ledger: ledger.clone() };
    let infers_shapes = scaling.infer_shapes;
    Ok(Some(Part { controller: Arc::new(Scaling::new(told)), pools, ledger, infers_shapes }))
}

/// The pools of this cluster, by the token in a Secret.
async fn find_pools(
    client: &kube::Client,
    clock: &Clock,
    reference: &SecretReference,
    endpoints: Endpoints,
) -> anyhow::Result<Pools> {
    let SecretReference { namespace, name } = reference;
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::namespaced(client.clone(), namespace);
    let asked = || Asked {
        verb: "get",
        resource: "secrets",
        name: name.clone(),
        namespace: Some(namespace.clone()),
    };
    let secret = call(clock, asked, secrets.get(name)).await?;
    let token = secret.data.as_ref().and_then(|data| data.get("token"));
    let token = token.and_then(|it| Secret::new(&String::from_utf8_lossy(&it.0)));
    let token = token.with_context(|| {
        format!("cannot scale pools: Secret {namespace}/{name} has no token; put one under `token`")
    })?;
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion");
    let versions = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let asked = || Asked {
        verb: "get",
        resource: "clusterversions.config.openshift.io",
        name: "version".to_owned(),
        namespace: None,
    };
    let version = call(clock, asked, versions.get("version")).await?;
    let external = version.data["spec"]["clusterID"].as_str().unwrap_or_default();
    let ocm = Ocm::new(clock.clone(), endpoints, token)?;
    let cluster = ocm.cluster(external).await?;
    tracing::info!(cluster = cluster.id, kind = ?cluster.kind, "scaling the pools of this cluster");
    Ok(Pools::new(ocm, cluster, clock.clone()))
}

impl Part {
    /// The controllers and in whose name they act. Nodes are chosen by what the queue would say.
    pub(super) fn seats(&self, client: &kube::Client, queue: Live) -> Vec<Seat> {
        let actor = Arc::new(Actor::new(client.clone(), "gantry-scaling", "gantry-scaling"));
        let mut seats = vec![Seat::new(self.controller.clone(), Arc::clone(&actor))];
        if self.infers_shapes {
            let shapes = Shapes::new(Arc::clone(&self.controller), queue);
            // Jobs compete: there is one decision about all of them.
            seats.push(Seat::new(Arc::new(shapes), actor).alone());
        }
        seats
    }

    /// Caches the ledger and no other ConfigMap; has pools listed, and calls about them carried out.
    pub(super) fn settle(&self, options: &mut Options) {
        let filter = Filter {
            fields: format!("metadata.name={}", self.ledger.name()),
            namespace: self.ledger.namespace().to_owned(),
            ..Filter::default()
        };
        options.filters.insert(Place::of::<ConfigMap>(), filter);
        options.outside.inquiries.extend(self.pools.iter().map(Pools::inquiry));
        options.outside.callers.extend(self.pools.iter().map(Pools::caller));
    }

    /// What counts the nodes that jobs were granted.
    ///
    /// # Errors
    /// They are counted already.
    pub(super) fn stock(&self, metrics: &Metrics) -> Result<Arc<StockMetrics>, RegisterError> {
        Ok(Arc::new(StockMetrics::register(metrics, self.ledger.clone())?))
    }

    /// Lets other limits apply.
    pub(super) fn set_limits(&self, limits: Limits) {
        self.controller.set_limits(limits);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_ledger_is_the_only_map_that_is_cached() {
        let ledger = Key::new("gantry-system", LEDGER);
        let limits = Limits { nodes: 1, provision: Duration::ZERO, cooldown: Duration::ZERO };
        let told = Settings { limits, backend: Backend::Reuse, ledger: ledger.clone() };
        let controller = Arc::new(Scaling::new(told));
        let part = Part { controller, pools: None, ledger, infers_shapes: false };
        let mut options = Options::default();
        part.settle(&mut options);
        let filter = &options.filters[&Place::of::<ConfigMap>()];
        assert_eq!(filter.namespace, "gantry-system");
        assert_eq!(filter.fields, "metadata.name=gantry-scaling");
    }
}
