//! Which accelerators a requester has: from the vendor tool, its claims, or ConfigMaps.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use http::Method;
use serde_json::{Map, Value, json};

use super::Arguments;
use crate::allocation::{self, ALLOCATIONS_NAME, Claimant, MAP_NAME, Visible};
use crate::executable;
use crate::host::Host;
use crate::kubernetes::{ApiError, KubernetesApi, request};
use crate::{ledger, vendor_tool};

/// The wait before ConfigMaps are read again.
const ALLOCATION_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Where accelerators are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AcceleratorSource {
    /// Ask the tool of the vendor, once.
    VendorTool,
    /// Allocate them by the ConfigMaps `gpu-map` and `gpu-allocs`.
    ConfigMaps,
    /// What the claims of the pod were given.
    Claims,
}

/// The accelerators of a requester.
#[derive(Clone, Default)]
pub(super) struct Accelerators(Arc<Mutex<AcceleratorState>>);

#[derive(Default)]
struct AcceleratorState {
    uuids: Vec<String>,
    why_none: String,
}

impl Accelerators {
    /// Starts to find them.
    pub(super) fn prepare(
        arguments: &Arguments,
        host: &Host,
        tasks: &mut Tasks,
    ) -> Result<Self, String> {
        let found = Self::default();
        found.record(Err("accelerators are not known yet".to_owned()));
        let default = match (&host.pod.claimed, host.pod.requested) {
            (Some(_), _) => AcceleratorSource::Claims,
            (None, Some(_)) => AcceleratorSource::ConfigMaps,
            (None, None) => AcceleratorSource::VendorTool,
        };
        match arguments.accelerators.unwrap_or(default) {
            AcceleratorSource::Claims => {
                found.record(Ok(host.pod.claimed.clone().unwrap_or_default()));
            }
            AcceleratorSource::VendorTool => {
                let (host, clock, shelf) = (host.clone(), tasks.clock().clone(), found.clone());
                tasks.spawn("accelerators", OnLoss::CarryOn, move |stop| async move {
                    let run = run_vendor_tool(
                        &host,
                        &clock,
                        &["--query-gpu=uuid", "--format=csv,noheader"],
                    );
                    let result = tokio::select! {
                        biased;
                        // Either may be dropped: the tool is killed with its group.
                        () = stop.cancelled() => return Ok(()),
                        result = run => result,
                    };
                    if let Err(message) = &result {
                        host.log(&format!("could not find accelerators: {message}"));
                    }
                    let lines = |text: String| {
                        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
                        lines.map(str::to_owned).collect()
                    };
                    shelf.record(result.map(lines));
                    Ok(())
                });
            }
            AcceleratorSource::ConfigMaps => {
                let wanted = Wanted::resolve(arguments, host)?;
                let (host, clock, shelf) = (host.clone(), tasks.clock().clone(), found.clone());
                tasks.spawn("accelerators", OnLoss::CarryOn, move |stop| async move {
                    tokio::select! {
                        biased;
                        // Either may be dropped: an allocation that was stored is found again.
                        () = stop.cancelled() => {}
                        () = wanted.allocate(&host, &clock, &shelf) => {}
                    }
                    Ok(())
                });
            }
        }
        Ok(found)
    }

    fn record(&self, result: Result<Vec<String>, String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(uuids) => {
                "no accelerators were found".clone_into(&mut known.why_none);
                known.uuids = uuids;
            }
            Err(message) => known.why_none = message,
        }
    }

    pub(super) fn known(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).uuids.clone()
    }

    pub(super) fn why_none(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).why_none.clone()
    }

    /// Asks how much memory is used, in MiB, by UUID.
    pub(super) async fn memory_usage(&self, host: &Host) -> Result<Value, String> {
        let query = ["--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"];
        let text = run_vendor_tool(host, &Clock::system(), &query).await?;
        let own: BTreeSet<String> = self.known().into_iter().collect();
        let mut usage = Map::new();
        for line in text.lines().filter(|it| !it.trim().is_empty()) {
            let pair = line.split_once(',').map(|(uuid, used)| (uuid.trim(), used.trim().parse()));
            let Some((uuid, Ok(used))) = pair else {
                return Err(format!("the vendor tool printed {line:?}"));
            };
            let used: u64 = used;
            // The stand-in shows all accelerators of the node.
            if own.is_empty() || own.contains(uuid) || host.ledgers().is_none() {
                usage.insert(uuid.to_owned(), json!(used));
            }
        }
        Ok(Value::Object(usage))
    }
}

/// Runs the vendor tool, or its stand-in where memory is accounted in ledgers.
async fn run_vendor_tool(host: &Host, clock: &Clock, words: &[&str]) -> Result<String, String> {
    let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
    if let Some(directory) = host.ledgers() {
        let visible = host.variable("NVIDIA_VISIBLE_DEVICES");
        let printed = vendor_tool::run(&words, Some(&directory), visible);
        return printed.map_err(|error| error.to_string());
    }
    match executable::run_vendor_tool(host, clock, &words).await {
        Ok((0, printed)) => Ok(printed),
        Ok((code, printed)) => {
            Err(format!("nvidia-smi failed with code {code}: {}", printed.trim()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// What is to be allocated by ConfigMaps.
struct Wanted {
    api: Arc<dyn KubernetesApi>,
    namespace: String,
    node: String,
    uid: String,
    count: usize,
    visible: Visible,
}

impl Wanted {
    fn resolve(arguments: &Arguments, host: &Host) -> Result<Self, String> {
        let named = |given: &Option<String>, known: &Option<String>, option: &str| {
            let found = given.clone().or_else(|| known.clone()).filter(|it| !it.is_empty());
            found.ok_or_else(|| format!("--{option} is required to allocate by ConfigMaps"))
        };
        let api = host.kubernetes.clone().ok_or(
            "the API server cannot be reached: accelerators are allocated by ConfigMaps only \
             inside a cluster",
        )?;
        Ok(Self {
            api,
            namespace: named(&arguments.namespace, &host.pod.namespace, "namespace")?,
            node: named(&arguments.node, &host.pod.node, "node")?,
            uid: named(&arguments.pod_uid, &host.pod.uid, "pod-uid")?,
            count: arguments.num_gpus.or(host.pod.requested).unwrap_or(1),
            visible: Visible::parse(host.variable("NVIDIA_VISIBLE_DEVICES")),
        })
    }

    /// Tries until it has them.
    async fn allocate(&self, host: &Host, clock: &Clock, shelf: &Accelerators) {
        let mut told = String::new();
        loop {
            match self.try_allocate(host).await {
                Ok(uuids) => {
                    host.log(&format!("allocated accelerators {}", uuids.join(",")));
                    shelf.record(Ok(uuids));
                    return;
                }
                Err(message) => {
                    if message != told {
                        host.log(&format!("waiting for accelerators: {message}"));
                        told.clone_from(&message);
                    }
                    shelf.record(Err(message));
                }
            }
            clock.sleep(ALLOCATION_RETRY_INTERVAL).await;
        }
    }

    async fn try_allocate(&self, host: &Host) -> Result<Vec<String>, String> {
        let folder = format!("/api/v1/namespaces/{}", self.namespace);
        let get = async |path: String| {
            request(&*self.api, Method::GET, &path, "application/json", None).await
        };
        let map = get(format!("{folder}/configmaps/{MAP_NAME}")).await;
        let map = map.map_err(|error| error.to_string())?;
        let path = format!("{folder}/configmaps/{ALLOCATIONS_NAME}");
        let stored = match get(path.clone()).await {
            Ok(stored) => Some(stored),
            Err(ApiError::NotFound(_)) => None,
            Err(error) => return Err(error.to_string()),
        };
        let pods = get(format!("{folder}/pods")).await.map_err(|error| error.to_string())?;
        let pods = pods["items"].as_array();
        let alive = pods.into_iter().flatten().filter_map(|it| it["metadata"]["uid"].as_str());
        let mut alive: BTreeSet<String> = alive.map(str::to_owned).collect();
        alive.insert(self.uid.clone());
        let accelerators = allocation::accelerators_of(&map, &self.node);
        let current = stored.as_ref().map(allocation::allocations_of).unwrap_or_default();
        let claimant = Claimant {
            uid: &self.uid,
            node: &self.node,
            count: self.count,
            visible: &self.visible,
        };
        // What was stored before its answer was lost is kept.
        let own = current
            .iter()
            .filter(|(uuid, it)| it.pod_uid == self.uid && accelerators.contains_key(*uuid));
        let own: Vec<String> = own.map(|(uuid, _)| uuid.clone()).collect();
        if own.len() == self.count && self.count > 0 {
            return Ok(own);
        }
        let random = &mut fastrand::Rng::new();
        let chosen = allocation::allocate(&accelerators, &current, &alive, &claimant, random);
        let (uuids, allocations) = chosen.map_err(|error| error.to_string())?;
        let data = allocation::data_of(&allocations);
        let (method, path, object) = match stored {
            Some(mut object) => {
                object["data"] = data;
                (Method::PUT, path, object)
            }
            None => {
                let object = json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": ALLOCATIONS_NAME, "namespace": self.namespace},
                    "data": data,
                });
                (Method::POST, format!("{folder}/configmaps"), object)
            }
        };
        let written = request(&*self.api, method, &path, "application/json", Some(&object)).await;
        written.map_err(|error| error.to_string())?;
        if let Some(directory) = host.ledgers() {
            for (uuid, index) in &accelerators {
                let described = ledger::Ledger::of(&directory, uuid)
                    .and_then(|it| it.describe(*index, host.default_capacity()));
                described.map_err(|error| gantry_process::error_chain(&error))?;
            }
        }
        Ok(uuids)
    }
}
