//! Wires scaling: which back end, with which rights, and what it is told of pools.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gantry_controller::transport::in_process;
use gantry_controller::{Actor, Filter, Handle, Options, Seat};
use gantry_process::clock::Clock;
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::OnLoss;
use gantry_queue::Live;
use gantry_reconcile::{Key, Place, Resource, View as _};
use gantry_scaling::effects::{Endpoints, Listing, Ocm, Pools, Secret};
use gantry_scaling::pool::{Polled, Pool};
use gantry_scaling::subsystem::configuration::{Configuration, MachineSets, SecretReference};
use gantry_scaling::subsystem::{LEDGER, SUBSYSTEM};
use gantry_scaling::view::ConfigMap;
use gantry_scaling::{Backend, Limits, Scaling, Settings, Shapes};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::client::Body;

use super::cluster::{Asked, call};
use super::stock::StockMetrics;
use super::{Shell, Start};

/// How often the service is asked which pools there are. What the operator itself does it knows at
/// once; this is for what others do, and each time is one request.
const EVERY: Duration = Duration::from_secs(30);

/// Scaling, ready to be started.
#[derive(Clone, Debug)]
pub(super) struct Part {
    controller: Arc<Scaling>,
    pools: Option<Arc<Pools>>,
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
            Some(Arc::new(find_pools(&client, clock, reference, endpoints).await?))
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
    Ok(Pools::new(ocm, cluster))
}

impl Part {
    /// The controllers and in whose name they act. What is about pools goes to the service that has them.
    /// Nodes are chosen by what the queue would say.
    pub(super) fn seats(&self, client: &kube::Client, queue: Live) -> Vec<Seat> {
        let client = match &self.pools {
            None => client.clone(),
            Some(pools) => {
                let (pools, client) = (Arc::clone(pools), client.clone());
                in_process(move |request| route(Arc::clone(&pools), client.clone(), request))
            }
        };
        let actor = Arc::new(Actor::new(client, "gantry-scaling", "gantry-scaling"));
        let mut seats = vec![Seat::new(self.controller.clone(), Arc::clone(&actor))];
        if self.infers_shapes {
            let shapes = Shapes::new(Arc::clone(&self.controller), queue);
            // Jobs compete: there is one decision about all of them.
            seats.push(Seat::new(Arc::new(shapes), actor).alone());
        }
        seats
    }

    /// Caches the ledger and no other ConfigMap, and says which kinds no server has.
    pub(super) fn settle(&self, options: &mut Options) {
        let filter = Filter {
            fields: format!("metadata.name={}", self.ledger.name()),
            namespace: self.ledger.namespace().to_owned(),
            ..Filter::default()
        };
        options.filters.insert(Place::of::<ConfigMap>(), filter);
        options.facts.extend([Pool::RESOURCE, Polled::RESOURCE]);
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

    /// Keeps the shelf of pools as the service has them.
    pub(super) fn follow(&self, handle: &Handle, shell: &mut Shell) {
        let Some(pools) = self.pools.clone() else { return };
        let (handle, clock) = (handle.clone(), shell.tasks.clock().clone());
        shell.tasks.spawn("pools", OnLoss::EndOwner, move |stop| async move {
            pools.follow(&clock, EVERY, |listing| tell(&handle, &listing), &stop).await;
            Ok(())
        });
    }
}

fn tell(handle: &Handle, listing: &Listing) {
    let put = |resource: &Resource, texts: &[&str]| {
        handle.make(resource, |shelf| {
            let (changes, unreadable) = shelf.replace(texts, listing.revision);
            for fault in unreadable {
                tracing::error!(%fault, "a pool cannot be read");
            }
            (changes, ())
        });
    };
    let pools: Vec<&str> = listing.pools.iter().map(String::as_str).collect();
    put(&Pool::RESOURCE, &pools);
    // After the pools: whoever sees it may rely on them.
    put(&Polled::RESOURCE, &[&listing.polled]);
}

type Answer = Response<Either<Full<Bytes>, Body>>;

/// Carries out what is about pools here, and hands on everything else.
async fn route(pools: Arc<Pools>, client: kube::Client, request: Request<Bytes>) -> Answer {
    if let Some(reply) = pools.serve(&request).await {
        return reply.map(Either::Left);
    }
    match client.send(request.map(Body::from)).await {
        Ok(answer) => answer.map(Either::Right),
        Err(error) => {
            // Nobody knows what became of it: the same as no answer.
            let words = Full::new(Bytes::from(error.to_string()));
            let mut answer = Response::new(Either::Left(words));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

#[cfg(test)]
mod tests {
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
