//! A controller that copies config maps: enough to test what the manager does for any controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_controller::{
    Actor, ControllerManager, ControllerMetrics, ManagerError, ManagerHandle, ManagerOptions,
    Registration,
};
use gantry_process::clock::Clock;
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, Meta, ObjectReference, Plan, Resource, Step,
    Subresource, View, World, Write,
};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::{Server, tasks};

#[derive(Debug, Deserialize)]
pub(crate) struct Map {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) data: BTreeMap<String, String>,
}

impl View for Map {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The maximum number of copies.
const MAX_COPIES: usize = 50;

/// Gives every map with `copies` in its data that number of copies with `text`.
pub(crate) struct CopyController;

impl Controller for CopyController {
    fn name(&self) -> &'static str {
        "fan"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Map>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let mut keys = Vec::new();
        for map in change.both::<Map>() {
            match map.metadata.controller() {
                Some(owner) => keys.push(map.metadata.key().in_same_namespace(&owner.name)),
                None if map.data.contains_key("copies") => keys.push(map.metadata.key()),
                None => {}
            }
            assert!(map.metadata.name != "poison", "this one panics: {:?}", world.stores().count());
        }
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let maps = world.store::<Map>();
        let Some(map) = maps.get(key) else { return plan };
        assert!(map.metadata.name != "bad", "this one cannot be planned");
        let about = ObjectReference::to(&Map::RESOURCE, &map.metadata);
        let wanted: usize = map.data.get("copies").and_then(|it| it.parse().ok()).unwrap_or(0);
        if wanted > MAX_COPIES {
            let message = format!("{wanted} copies are too many");
            plan.hold(Held { about, reason: "TooMany".into(), message, until: None }, now);
            return plan;
        }
        let text = map.data.get("text").map(String::as_str).unwrap_or_default();
        let mut wanted: BTreeMap<String, Value> =
            (0..wanted).map(|n| (format!("{}-{n}", key.name()), json!({ "text": text }))).collect();
        for copy in maps.owned_by(&map.metadata.uid) {
            let (resource, key) = (Map::RESOURCE, copy.metadata.key());
            match wanted.remove(&copy.metadata.name) {
                None => plan.write(Write::Delete {
                    resource,
                    key,
                    fence: copy.metadata.fence(),
                    grace: None,
                    propagation: None,
                }),
                Some(data)
                    if copy.data.get("text").map(String::as_str) != data["text"].as_str() =>
                {
                    let fence = copy.metadata.fence();
                    let body = json!({ "data": data });
                    plan.write(Write::Merge {
                        resource,
                        key,
                        subresource: Subresource::Main,
                        fence,
                        body,
                    });
                }
                Some(_) => {}
            }
        }
        for (name, data) in wanted {
            let note = |reason, message: &str| {
                Event::normal(about.clone(), reason, format!("{message} {name}"))
            };
            let body = json!({
                "metadata": {
                    "name": name, "namespace": key.namespace(),
                    "ownerReferences": [controller_reference(&Map::RESOURCE, &map.metadata)],
                },
                "data": data,
            });
            let create = Write::Create { resource: Map::RESOURCE, body };
            let (made, failed) = (note("Made", "made"), note("NotMade", "could not make"));
            plan.steps.push(Step::new(create).on_success(made).on_refusal(failed));
        }
        plan
    }
}

/// A running manager with this controller.
pub(crate) struct RunningController {
    pub(crate) handle: ManagerHandle,
    pub(crate) stop: CancellationToken,
    end: JoinSet<Result<(), ManagerError>>,
}

impl RunningController {
    pub(crate) fn start(
        server: &Server,
        client: &Client,
        options: ManagerOptions,
        meters: &ControllerMetrics,
    ) -> Self {
        let actor = Arc::new(Actor::new(client.clone(), "fan-manager", "fan-controller"));
        let seats = vec![Registration::new(Arc::new(CopyController), actor)];
        let jitter = fastrand::Rng::with_seed(3);
        let clock = Clock::system();
        let shell =
            ControllerManager::new(clock, jitter, client.clone(), seats, options, meters.clone())
                .unwrap();
        let (handle, stop) = (shell.handle(), CancellationToken::new());
        let tasks = tasks(&server.counters, &stop);
        let mut end = JoinSet::new();
        end.spawn(shell.run(tasks));
        Self { handle, stop, end }
    }
}

impl RunningController {
    /// Waits until it has stopped.
    pub(crate) async fn wait_for_exit(&mut self) -> Result<(), ManagerError> {
        self.end.join_next().await.unwrap().unwrap()
    }

    pub(crate) async fn stop(mut self) -> Result<(), ManagerError> {
        self.stop.cancel();
        self.wait_for_exit().await
    }
}

/// Returns a map that requests copies.
pub(crate) fn map(name: &str, copies: usize, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default" },
        "data": { "copies": copies.to_string(), "text": text },
    })
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the existing copies: their names and texts.
pub(crate) async fn copies(server: &Server) -> Vec<(String, String)> {
    let (_, list) = server.request("GET", MAPS, &Value::Null).await;
    let items = list["items"].as_array().unwrap();
    let owned = items.iter().filter(|it| it["metadata"]["ownerReferences"].is_array());
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    owned.map(|it| (text(&it["metadata"]["name"]), text(&it["data"]["text"]))).collect()
}

/// Returns the copies that this map requests.
pub(crate) fn expected_copies(name: &str, copies: usize, text: &str) -> Vec<(String, String)> {
    let mut wanted: Vec<_> =
        (0..copies).map(|n| (format!("{name}-{n}"), text.to_owned())).collect();
    wanted.sort();
    wanted
}
