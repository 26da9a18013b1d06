//! Times Kubernetes' device allocator and Gantry's on the same problems, side by side.
//!
//! The measured time is what a scheduler spends on one pod. Gantry reads the claim, evaluates its
//! constraints and scores every node; Kubernetes' allocator takes the first node that fits. State
//! that schedulers keep between pods is kept here as well: the inventory, and compiled expressions.

mod lifetimes;
mod selectors;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Parser;
use serde::Deserialize;
use serde_json::{Value, json};

use gantry_api::devices::{ClaimSpec, DeviceAllocation, DeviceClass, DeviceDriver, DevicePool};
use gantry_api::finding::Source;
use gantry_devices::constraint::Constraints;
use gantry_devices::lower::{Catalog, ClaimSpecRef, NodeLabels, Snapshot};
use gantry_devices::problem::Budget;
use gantry_devices::{FeasibleNode, Packing, choose};
use gantry_process::clock::Clock;

const DRIVER: &str = "gpu.example.com";

/// Measure Kubernetes' device allocator and Gantry's on the same problems.
#[derive(Debug, Parser)]
#[command(after_help = "Families of problems, and what their sizes mean:
  empty/NODESxDEVICES   one device, all are free
  full/NODESxDEVICES    one device, all are allocated but one on the last node
  match/NODES           five of ten devices with the same root, of which there are two
  backtrack/DEVICES     all devices but one, of which the first uses the share of two
  refuse/DEVICES        one device more than there are, in one request
  refuse-each/DEVICES   one device more than there are, each in a request of its own
  drain/NODESxDEVICES   allocates every device to its own pod and releases it; time per pod
  restart/NODESxDEVICES reads all pools and claims again with all devices allocated; total time
  cel/compile           compiles each expression of Kubernetes' own benchmark; NAME selects one:
  cel/compile/NAME
  cel/evaluate          evaluates each of them for a device; NAME selects one:
  cel/evaluate/NAME
drain and restart are measured for Gantry alone. What Kubernetes does not support, such as a claim
for more than 32 devices, is \"not possible\" in its column, and its error message is below the \
table.

Examples:
  make bench-devices
  make bench-devices ARGS='full/500x10 refuse/8'")]
struct Arguments {
    /// The program that times Kubernetes' allocator; without it only Gantry's is timed.
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,

    /// Seconds spent on each problem.
    #[arg(long, default_value_t = 2)]
    seconds: u64,

    /// The problems, in the order in which they are measured.
    // Expressions come first: compiling one was observed to take many times as long after the large
    // problems, because of the state in which they leave the heap.
    #[arg(default_values = [
        "cel/compile", "cel/evaluate",
        "empty/100x8", "empty/1000x8", "empty/5000x8", "full/100x8", "full/500x10", "full/1000x8",
        "full/2000x8", "full/5000x8", "match/500", "backtrack/8", "refuse/8", "refuse/9",
        "refuse/16", "refuse/31", "refuse/32", "refuse/64", "refuse-each/8", "refuse-each/9",
        "refuse-each/16", "refuse-each/31", "refuse-each/32", "refuse-each/64", "drain/5000x8",
        "restart/5000x8",
    ])]
    problems: Vec<Cases>,
}

/// A group of problems with one name on the command line.
#[derive(Clone, Debug)]
struct Cases(Vec<Case>);

/// A single problem, by its name.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    family: Family,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    Empty {
        nodes: usize,
        devices: usize,
    },
    Full {
        nodes: usize,
        devices: usize,
    },
    Match {
        nodes: usize,
    },
    Backtrack {
        devices: usize,
    },
    Refuse {
        devices: usize,
    },
    RefuseEach {
        devices: usize,
    },
    Drain {
        nodes: usize,
        devices: usize,
    },
    Restart {
        nodes: usize,
        devices: usize,
    },
    /// The CEL expression to time; its name is the last part of the problem's name.
    Selector(selectors::Work),
}

impl Family {
    /// Whether Kubernetes' allocator is timed as well.
    fn has_peer(self) -> bool {
        match self {
            Self::Drain { .. } | Self::Restart { .. } => false,
            Self::Empty { .. }
            | Self::Full { .. }
            | Self::Match { .. }
            | Self::Backtrack { .. }
            | Self::Refuse { .. }
            | Self::RefuseEach { .. }
            | Self::Selector(_) => true,
        }
    }
}

impl FromStr for Cases {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let Some(what) = name.strip_prefix("cel/") else { return Ok(Self(vec![name.parse()?])) };
        let (what, only) = match what.split_once('/') {
            Some((what, only)) => (what, Some(only)),
            None => (what, None),
        };
        let work = match what {
            "compile" => selectors::Work::Compile,
            "evaluate" => selectors::Work::Evaluate,
            _ => bail!("unknown operation on an expression; use cel/compile or cel/evaluate"),
        };
        let names = selectors::names()?.into_iter();
        let names = names.filter(|name| only.is_none_or(|only| only == name));
        let family = Family::Selector(work);
        let cases: Vec<_> =
            names.map(|name| Case { name: format!("cel/{what}/{name}"), family }).collect();
        ensure!(!cases.is_empty(), "no such expression in selectors.json");
        Ok(Self(cases))
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("no such problem; use for instance full/500x10, see --help");
        let (family, size) = name.split_once('/').ok_or_else(wrong)?;
        let size: Vec<usize> =
            size.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        ensure!(size.iter().all(|it| (1..=100_000).contains(it)), "sizes must be from 1 to 100000");
        let family = match (family, size.as_slice()) {
            ("empty", &[nodes, devices]) => Family::Empty { nodes, devices },
            ("full", &[nodes, devices]) => Family::Full { nodes, devices },
            ("match", &[nodes]) => Family::Match { nodes },
            ("backtrack", &[devices]) => Family::Backtrack { devices },
            ("refuse", &[devices]) => Family::Refuse { devices },
            ("refuse-each", &[devices]) => Family::RefuseEach { devices },
            ("drain", &[nodes, devices]) => Family::Drain { nodes, devices },
            ("restart", &[nodes, devices]) => Family::Restart { nodes, devices },
            _ => return Err(wrong()),
        };
        Ok(Self { name: name.to_owned(), family })
    }
}

/// The result of one program for one problem.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocatorResult {
    answer: String,
    /// Why there is no time, if there is none.
    #[serde(default)]
    why: Option<String>,
    seconds_per_turn: f64,
}

impl AllocatorResult {
    /// A problem that a program does not support.
    fn failed(why: String) -> Self {
        Self { answer: NOT_POSSIBLE.to_owned(), why: Some(why), seconds_per_turn: f64::NAN }
    }
}

/// The answer that the table shows for a problem that Kubernetes' allocator does not support.
const NOT_POSSIBLE: &str = "not possible";

/// A cluster, and the devices that one pod requests from it.
struct Problem {
    catalog: Catalog,
    constraints: Constraints,
    snapshot: Snapshot,
    offers: Vec<FeasibleNode>,
    claim: ClaimSpec,
    /// Devices of each node.
    devices: usize,
}

impl Problem {
    fn new(family: Family) -> anyhow::Result<Self> {
        let (nodes, devices) = match family {
            Family::Empty { nodes, devices }
            | Family::Full { nodes, devices }
            | Family::Drain { nodes, devices }
            | Family::Restart { nodes, devices } => (nodes, devices),
            Family::Match { nodes } => (nodes, 10),
            Family::Backtrack { devices }
            | Family::Refuse { devices }
            | Family::RefuseEach { devices } => (1, devices),
            Family::Selector(_) => bail!("an expression has no cluster"),
        };
        let catalog = catalog()?;
        let names: Vec<_> = (0..nodes).map(|n| format!("node-{n:04}")).collect();
        let pools = names.iter().map(|name| pool(name, devices, family));
        let pools = pools.collect::<anyhow::Result<Vec<_>>>()?;
        let labels: Vec<_> = names
            .iter()
            .map(|name| NodeLabels { name: name.clone(), ..NodeLabels::default() })
            .collect();
        let mut snapshot = Snapshot::new(&catalog, &labels, &pools);
        if let Family::Full { .. } = family {
            for held in 0..nodes * devices - 1 {
                let (node, device) = (held / devices, held % devices);
                let held: DeviceAllocation = serde_json::from_value(json!({
                    "devicePoolName": names[node], "deviceName": format!("gpu-{device:04}"),
                    "accessMode": "ReadWriteExclusive",
                }))?;
                snapshot.hold_allocation(&held);
            }
            ensure!(snapshot.lost_holds.is_empty(), "an allocation is missing from the inventory");
        }
        let offers = (0..nodes).map(|node| FeasibleNode { node, load: 0 }).collect();
        let constraints = Constraints::default();
        let claim = claim(family, devices)?;
        Ok(Self { catalog, constraints, snapshot, offers, claim, devices })
    }

    /// Does what a scheduler does for one pod.
    fn allocate_once(&mut self) -> anyhow::Result<&'static str> {
        let claims = [("c", ClaimSpecRef::Claim(&self.claim))];
        let lowered = self.snapshot.request(&self.catalog, &self.constraints, &claims)?;
        let inventory = &self.snapshot.inventory;
        let budget = Budget::default();
        let chosen = choose(inventory, &self.offers, &lowered.request, Packing::BinPack, &budget);
        Ok(match (chosen.placement, chosen.undecided.is_empty()) {
            (Some(_), _) => "allocated",
            (None, true) => "unsatisfiable",
            (None, false) => "gave up",
        })
    }
}

fn catalog() -> anyhow::Result<Catalog> {
    let driver: DeviceDriver = object("DeviceDriver", DRIVER, json!({"deviceTypes": ["gpu"]}))?;
    let constraints = format!("device.driver == '{DRIVER}'");
    let spec = json!({"spec": {"deviceType": "gpu", "constraints": constraints}});
    let class: DeviceClass = object("DeviceClass", "gpu", spec)?;
    Ok(Catalog::new(Source::Server, [&driver], [&class]))
}

fn object<T: serde::de::DeserializeOwned>(
    kind: &str,
    name: &str,
    rest: Value,
) -> anyhow::Result<T> {
    serde_json::from_value(tree(kind, name, rest)).with_context(|| format!("{kind} {name}"))
}

fn tree(kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name},
    });
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

fn pool(node: &str, count: usize, family: Family) -> anyhow::Result<DevicePool> {
    serde_json::from_value(pool_object(node, count, family)).with_context(|| format!("pool {node}"))
}

fn pool_object(node: &str, count: usize, family: Family) -> Value {
    let devices: Vec<_> = (0..count)
        .map(|at| {
            let mut device = json!({
                "name": format!("gpu-{at:04}"),
                "attributes": [
                    {"name": "model", "stringValue": "A100"},
                    {"name": "family", "stringValue": "GPU"},
                    {"name": "driverVersion", "semVerValue": "1.2.3"},
                    {"name": "numa", "intValue": at},
                ],
                "resources": [{"name": "memory", "capacity": "1Gi"}],
            });
            match family {
                Family::Match { .. } => {
                    let root = json!({"name": "root", "stringValue": format!("root-{}", at % 2)});
                    if let Some(all) = device["attributes"].as_array_mut() {
                        all.push(root);
                    }
                }
                Family::Backtrack { .. } => {
                    device["requests"] = json!({"memory": if at == 0 { "20Gi" } else { "10Gi" }});
                }
                Family::Empty { .. }
                | Family::Full { .. }
                | Family::Refuse { .. }
                | Family::RefuseEach { .. }
                | Family::Drain { .. }
                | Family::Restart { .. }
                | Family::Selector(_) => {}
            }
            device
        })
        .collect();
    let mut spec = json!({
        "nodeName": node, "driver": DRIVER, "deviceType": "gpu", "devices": devices,
    });
    if let Family::Backtrack { .. } = family {
        let capacity = format!("{}Gi", 10 * (count - 1));
        spec["resources"] = json!([{"name": "memory", "capacity": capacity}]);
    }
    tree("DevicePool", node, json!({"spec": spec}))
}

fn claim(family: Family, devices: usize) -> anyhow::Result<ClaimSpec> {
    let term = |name: String, count: usize| {
        json!({"name": name, "deviceClass": "gpu", "requests": {"count": count.to_string()},
               "limits": {"count": count.to_string()}})
    };
    let each = |count| (0..count).map(|at| term(format!("r{at}"), 1)).collect::<Vec<_>>();
    let spec = match family {
        Family::Empty { .. }
        | Family::Full { .. }
        | Family::Drain { .. }
        | Family::Restart { .. }
        | Family::Selector(_) => json!({"claims": each(1)}),
        Family::Match { .. } => json!({"claims": each(5), "matchAttributes": ["root"]}),
        Family::Backtrack { .. } => json!({"claims": [term("r".to_owned(), devices - 1)]}),
        Family::Refuse { .. } => json!({"claims": [term("r".to_owned(), devices + 1)]}),
        Family::RefuseEach { .. } => json!({"claims": each(devices + 1)}),
    };
    serde_json::from_value(spec).context("claim")
}

fn measure_gantry(case: &Case, time: Duration, clock: &Clock) -> anyhow::Result<AllocatorResult> {
    if let Family::Selector(work) = case.family {
        let name = case.name.rsplit('/').next().unwrap_or_default();
        // There are many of them, and each is short.
        return selectors::measure(work, name, time / 8, clock);
    }
    if let Family::Restart { nodes, devices } = case.family {
        return lifetimes::restart(case, nodes, devices, clock);
    }
    let mut problem = Problem::new(case.family)?;
    if let Family::Drain { .. } = case.family {
        return lifetimes::drain(problem, clock);
    }
    // The first iteration compiles the class's expression.
    let answer = problem.allocate_once()?;
    let start = clock.moment();
    let mut turns = 0_u32;
    let took = loop {
        ensure!(
            problem.allocate_once()? == answer,
            "{}: the allocator gave two different answers to one problem",
            case.name
        );
        turns += 1;
        let took = clock.moment() - start;
        if took >= time {
            break took;
        }
    };
    let seconds_per_turn = took.as_secs_f64() / f64::from(turns);
    Ok(AllocatorResult { answer: answer.to_owned(), why: None, seconds_per_turn })
}

/// Runs the peer program on one problem. Each problem has a process of its own, so that a crash
/// affects no other problem.
fn measure_kubernetes(peer: &PathBuf, case: &Case) -> anyhow::Result<AllocatorResult> {
    let output = Command::new(peer).arg(&case.name).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("could not run {}", peer.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().next().unwrap_or("no output");
        return Ok(AllocatorResult::failed(format!("{}: {first}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        AllocatorResult::failed(format!("cannot parse its output: {error}"))
    }))
}

/// The columns of Kubernetes: its time, and its ratio to Gantry's time.
fn columns(ours: &AllocatorResult, theirs: Option<&AllocatorResult>) -> (String, String) {
    let none = || "-".to_owned();
    let Some(theirs) = theirs else { return (none(), none()) };
    let ratio = theirs.seconds_per_turn / ours.seconds_per_turn;
    match theirs.answer.as_str() {
        "gave up" => ("gave up".to_owned(), format!("> {ratio:.0}")),
        answer if answer != ours.answer => (answer.to_owned(), none()),
        _ => (format!("{:.1}", theirs.seconds_per_turn * 1e6), format!("{ratio:.0}")),
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let clock = Clock::system();
    let mut out = std::io::stdout();
    let head = ("problem", "answer", "kubernetes us", "gantry us", "ratio");
    let cases: Vec<_> = arguments.problems.iter().flat_map(|Cases(cases)| cases).collect();
    let wide = cases.iter().map(|case| case.name.len()).max().unwrap_or(0).max(16);
    writeln!(out, "{:<wide$} {:<14} {:>14} {:>10} {:>8}", head.0, head.1, head.2, head.3, head.4)?;
    let (mut notes, mut differ) = (Vec::new(), Vec::new());
    for case in cases {
        let peer = arguments.peer.as_ref().filter(|_| case.family.has_peer());
        let peer = peer.map(|peer| measure_kubernetes(peer, case)).transpose()?;
        let line = measure_gantry(case, Duration::from_secs(arguments.seconds), &clock)?;
        let us = line.seconds_per_turn * 1e6;
        let (theirs, ratio) = columns(&line, peer.as_ref());
        let us = if us < 10.0 { format!("{us:.2}") } else { format!("{us:.1}") };
        writeln!(out, "{:<wide$} {:<14} {theirs:>14} {us:>10} {ratio:>8}", case.name, line.answer)?;
        match peer {
            Some(AllocatorResult { why: Some(why), .. }) => {
                notes.push(format!("{}: {why}", case.name));
            }
            Some(other) if other.answer != "gave up" && other.answer != line.answer => {
                differ.push(format!("{}: {} here", case.name, line.answer));
            }
            Some(_) | None => {}
        }
    }
    if !notes.is_empty() {
        writeln!(out, "\nnot possible for Kubernetes:")?;
        notes.iter().try_for_each(|note| writeln!(out, "  {note}"))?;
    }
    ensure!(differ.is_empty(), "the allocators disagree: {}", differ.join(", "));
    Ok(())
}
