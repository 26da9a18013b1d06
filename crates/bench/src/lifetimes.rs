//! Not one pod but all of them: a cluster that is filled and emptied again, and a start with everything
//! held. Kubernetes' allocator keeps no inventory between pods, so these are ours alone.

use anyhow::{Context as _, bail, ensure};
use gantry_api::decode;
use gantry_api::devices::DevicePool;
use gantry_api::object::Object;
use gantry_devices::lower::{NodeLabels, Snapshot, Wanted};
use gantry_devices::problem::{Budget, Hold};
use gantry_devices::{Packing, choose};
use gantry_process::clock::Clock;
use serde_json::{Value, json};

use crate::{Case, Line, Problem, catalog, pool_object};

/// Gives every device to a pod of its own, and takes all of them back. What is told is the time for
/// each pod that came and went.
pub(crate) fn drain(mut problem: Problem, clock: &Clock) -> anyhow::Result<Line> {
    let all: usize = problem.offers.len() * problem.devices;
    // The first turn compiles the class's expression.
    let first = problem.find()?.context("an empty cluster has no device")?;
    let start = clock.moment();
    let mut held = Vec::with_capacity(all);
    while let Some(holds) = problem.find()? {
        for hold in &holds {
            problem
                .snapshot
                .inventory
                .hold(hold)
                .context("a device that was chosen is not free")?;
        }
        held.push(holds);
    }
    ensure!(held.len() == all, "{} pods for {all} devices", held.len());
    fastrand::Rng::with_seed(1).shuffle(&mut held);
    for hold in held.iter().flatten() {
        problem.snapshot.inventory.release(hold).context("a device that was held is not")?;
    }
    let took = clock.moment() - start;
    ensure!(problem.find()? == Some(first), "something was not given back");
    line("drained", took.as_secs_f64(), all)
}

impl Problem {
    /// The devices that a pod gets.
    fn find(&mut self) -> anyhow::Result<Option<Vec<Hold>>> {
        let claims = [("c", Wanted::Claim(&self.claim))];
        let lowered = self.snapshot.request(&self.catalog, &self.constraints, &claims)?;
        let inventory = &self.snapshot.inventory;
        let budget = Budget::default();
        let chosen = choose(inventory, &self.offers, &lowered.request, Packing::Tight, &budget);
        ensure!(chosen.undecided.is_empty(), "gave up");
        let terms = chosen.placement.into_iter().flat_map(|it| it.allocation.claims);
        let holds: Vec<Hold> = terms.flat_map(|it| it.terms).flat_map(|it| it.holds).collect();
        Ok((!holds.is_empty()).then_some(holds))
    }
}

/// Reads every pool with its ledger full, and every claim that holds a device, and makes the inventory
/// of them: what a scheduler does before its first decision. What is told is the time for all of it.
pub(crate) fn restart(
    case: &Case,
    nodes: usize,
    devices: usize,
    clock: &Clock,
) -> anyhow::Result<Line> {
    let names: Vec<String> = (0..nodes).map(|at| format!("node-{at:04}")).collect();
    let (mut pools, mut claims) = (Vec::new(), Vec::new());
    for name in &names {
        let mut pool = pool_object(name, devices, case.family);
        let ledger = (0..devices).map(|at| entry(name, at)).collect::<Value>();
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
    ensure!(snapshot.lost.is_empty(), "a hold is lost");
    line("ready", took.as_secs_f64(), 1)
}

fn line(answer: &str, seconds: f64, turns: usize) -> anyhow::Result<Line> {
    let turns = f64::from(u32::try_from(turns)?);
    let seconds_per_turn = seconds / turns;
    Ok(Line { answer: answer.to_owned(), why: None, seconds_per_turn })
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

fn entry(pool: &str, at: usize) -> Value {
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
