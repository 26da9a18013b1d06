//! Times whole lifetimes instead of one pod: a cluster that is filled and emptied again, and a
//! start with all devices allocated. Kubernetes' allocator keeps no inventory between pods, so
//! these are measured for Gantry alone.

use anyhow::{Context as _, bail, ensure};
use gantry_api::decode;
use gantry_api::devices::DevicePool;
use gantry_api::object::Object;
use gantry_devices::lower::{ClaimSpecRef, NodeLabels, Snapshot};
use gantry_devices::problem::{Budget, Hold};
use gantry_devices::{Packing, choose};
use gantry_process::clock::Clock;
use serde_json::{Value, json};

use crate::{AllocatorResult, Case, Problem, catalog, pool_object};

/// Allocates every device to a pod of its own, and releases all of them. The reported time is per
/// pod that was added and removed.
pub(crate) fn drain(mut problem: Problem, clock: &Clock) -> anyhow::Result<AllocatorResult> {
    let all: usize = problem.offers.len() * problem.devices;
    // The first iteration compiles the class's expression.
    let first = problem.find_devices()?.context("an empty cluster has no device")?;
    let start = clock.moment();
    let mut held = Vec::with_capacity(all);
    while let Some(holds) = problem.find_devices()? {
        for hold in &holds {
            problem.snapshot.inventory.hold(hold).context("a chosen device is not free")?;
        }
        held.push(holds);
    }
    ensure!(held.len() == all, "{} pods for {all} devices", held.len());
    fastrand::Rng::with_seed(1).shuffle(&mut held);
    for hold in held.iter().flatten() {
        problem
            .snapshot
            .inventory
            .release(hold)
            .context("an allocated device cannot be released")?;
    }
    let took = clock.moment() - start;
    ensure!(problem.find_devices()? == Some(first), "a device was not released");
    result("drained", took.as_secs_f64(), all)
}

impl Problem {
    /// The devices that are allocated to a pod.
    fn find_devices(&mut self) -> anyhow::Result<Option<Vec<Hold>>> {
        let claims = [("c", ClaimSpecRef::Claim(&self.claim))];
        let lowered = self.snapshot.request(&self.catalog, &self.constraints, &claims)?;
        let inventory = &self.snapshot.inventory;
        let budget = Budget::default();
        let chosen = choose(inventory, &self.offers, &lowered.request, Packing::BinPack, &budget);
        ensure!(chosen.undecided.is_empty(), "gave up");
        let terms = chosen.placement.into_iter().flat_map(|it| it.allocation.claims);
        let holds: Vec<Hold> = terms.flat_map(|it| it.terms).flat_map(|it| it.holds).collect();
        Ok((!holds.is_empty()).then_some(holds))
    }
}

/// Builds the inventory from every pool with a full ledger and every claim that holds a device:
/// what a scheduler does before its first decision. The reported time is for all of it.
pub(crate) fn restart(
    case: &Case,
    nodes: usize,
    devices: usize,
    clock: &Clock,
) -> anyhow::Result<AllocatorResult> {
    let names: Vec<String> = (0..nodes).map(|at| format!("node-{at:04}")).collect();
    let (mut pools, mut claims) = (Vec::new(), Vec::new());
    for name in &names {
        let mut pool = pool_object(name, devices, case.family);
        let ledger = (0..devices).map(|at| ledger_entry(name, at)).collect::<Value>();
        pool["status"] = json!({"allocations": ledger});
        pools.push(pool.to_string());
        claims.extend((0..devices).map(|at| claim(name, at).to_string()));
    }
    let catalog = catalog()?;
    let start = clock.moment();
    let mut read: Vec<DevicePool> = Vec::with_capacity(nodes);
    for text in &pools {
        match object(text)? {
            Object::DevicePool(pool) => read.push(*pool),
            other => bail!("a pool was read as {}", other.kind().kind),
        }
    }
    let mut allocated = 0_usize;
    for text in &claims {
        match object(text)? {
            Object::DeviceClaim(claim) => {
                allocated += claim.status.as_ref().map_or(0, |it| it.allocations.len());
            }
            other => bail!("a claim was read as {}", other.kind().kind),
        }
    }
    let labels: Vec<NodeLabels> = names
        .iter()
        .map(|name| NodeLabels { name: name.clone(), ..NodeLabels::default() })
        .collect();
    let snapshot = Snapshot::new(&catalog, &labels, &read);
    let took = clock.moment() - start;
    ensure!(allocated == nodes * devices, "{allocated} allocations");
    ensure!(snapshot.lost_holds.is_empty(), "an allocation is missing from the inventory");
    result("ready", took.as_secs_f64(), 1)
}

fn result(answer: &str, seconds: f64, turns: usize) -> anyhow::Result<AllocatorResult> {
    let turns = f64::from(u32::try_from(turns)?);
    let seconds_per_turn = seconds / turns;
    Ok(AllocatorResult { answer: answer.to_owned(), why: None, seconds_per_turn })
}

fn object(text: &str) -> anyhow::Result<Object> {
    let value: Value = serde_json::from_str(text)?;
    match decode::object(&value) {
        Ok((object, _)) => Ok(object),
        Err(findings) => bail!("{:?}", findings.errors),
    }
}

fn claim_name(pool: &str, at: usize) -> String {
    format!("claim-{pool}-{at}")
}

fn ledger_entry(pool: &str, at: usize) -> Value {
    let name = claim_name(pool, at);
    json!({
        "claimRef": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "term": "r0", "deviceName": format!("gpu-{at:04}"), "accessMode": "ReadWriteExclusive",
        "state": "Bound", "since": "2026-01-01T00:00:00Z",
    })
}

fn claim(pool: &str, at: usize) -> Value {
    let name = claim_name(pool, at);
    json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"claims": [{"name": "r0", "deviceClass": "gpu"}]},
        "status": {
            "allocations": [{
                "claimName": "r0", "devicePoolName": pool, "deviceName": format!("gpu-{at:04}"),
                "accessMode": "ReadWriteExclusive",
            }],
            "nodeName": pool,
            "reservedFor": [{"name": name, "uid": format!("pod-{name}")}],
            "podNames": [name],
        },
    })
}
