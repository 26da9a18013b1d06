//! Workloads on a real control plane with kwok and on `gantry up`: the same commands, and after
//! each the same answers, objects and events.
//!
//! A flow is a file in `flows/steps`, run in a namespace of its own, a paragraph at a time. After
//! each paragraph both clusters are looked at until they show the same; what still differs when
//! patience ends is a difference. So nothing depends on how fast either of them is.

mod namespace_snapshot;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use gantry_conformance::compare::{Difference, compare};
use gantry_conformance::response::{Body, Response};
use gantry_conformance::transcript::{Caller, Exchange, RecordedRequest, Transcript};
use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Target};

use super::mask::Masks;
use super::say;
use super::shell::{Outcome, Shell};
use namespace_snapshot::NamespaceObserver;

/// How long two clusters may take to look alike. Only a difference takes all of it.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Flows at a time: each keeps two programs busy, and two servers.
const MAX_CONCURRENT_FLOWS: usize = 3;
/// The flow that runs alone: its output has the number of nodes, so no other flow may add one.
const EXCLUSIVE_FLOW: &str = "scheduling";
/// The same nodes on both sides; the simulator of nodes that the real one has knows no other size.
const NODES: &str = "nodes: [{name: node, count: 3, cpu: 1k, memory: 1Ti, pods: 1000000}]\n";

/// One paragraph after the other.
struct Flow {
    name: String,
    steps: Vec<String>,
}

/// A flow on one of the two clusters.
struct FlowRunner {
    shell: Shell,
    observer: NamespaceObserver,
    masks: Masks,
    server: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_look_as_on_a_real_control_plane() {
    let clock = Clock::system();
    let folder = tempfile::tempdir().unwrap();
    let nodes = folder.path().join("nodes.yaml");
    fs::write(&nodes, NODES).unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster().flag("--ephemeral");
    let ours = plan.flag(format!("--nodes={}", nodes.display())).start(&clock).await.unwrap();
    let real = RealCluster::plan().controllers().nodes(Nodes::Simulated(3));
    let real = Box::pin(real.start()).await.unwrap();
    let count = namespace_snapshot::wait_for_ready_nodes(ours.target(), &clock);
    assert_eq!(count.await, 3, "the embedded one is whole when its nodes are there");
    for target in [real.admin().target(), ours.target()] {
        namespace_snapshot::warm_up_schemas(target, &clock).await;
    }
    let began = clock.moment();
    let walk = |flow: Flow| {
        let sides = [
            FlowRunner::new(real.admin().kubeconfig(), real.admin().target(), &flow.name, &clock),
            FlowRunner::new(ours.kubeconfig(), ours.target(), &flow.name, &clock),
        ];
        let clock = clock.clone();
        async move { flow.compare(sides, &clock).await }
    };
    let (alone, together): (Vec<Flow>, Vec<Flow>) =
        flows().into_iter().partition(|flow| flow.name == EXCLUSIVE_FLOW);
    assert!(together.len() >= 5, "the flows are there");
    let mut differences: Vec<Difference> = Vec::new();
    for flows in [together, alone] {
        let found: Vec<Vec<Difference>> = stream::iter(flows.into_iter().map(walk))
            .buffer_unordered(MAX_CONCURRENT_FLOWS)
            .collect()
            .await;
        differences.extend(found.into_iter().flatten());
    }
    say(&format!("the flows of workloads took {:.1?}", clock.moment() - began));
    let listed: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(listed.is_empty(), "{} differences:\n{}", listed.len(), listed.join("\n"));
}

/// Every file, in order.
fn flows() -> Vec<Flow> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder("steps")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| Flow::read(path)).collect()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/flows").join(name)
}

impl Flow {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let paragraph = |it: &str| {
            let lines = it.lines().filter(|line| !line.starts_with('#'));
            lines.collect::<Vec<_>>().join("\n").trim().to_owned()
        };
        let steps = text.split("\n\n").map(paragraph).filter(|step| !step.is_empty()).collect();
        Self { name: path.file_stem().unwrap().to_str().unwrap().to_owned(), steps }
    }

    /// Runs every step on both sides, and reports where they differ.
    async fn compare(
        self,
        [mut real, mut ours]: [FlowRunner; 2],
        clock: &Clock,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        let begin = format!(
            "kubectl create namespace {0} && kubectl config set-context --current --namespace={0} >context \
             && kubectl wait --for=create serviceaccount/default --timeout=60s",
            self.name
        );
        for (index, step) in [begin].iter().chain(&self.steps).enumerate() {
            let ((back, told_real), (again, told_ours)) =
                tokio::join!(real.run(&self.name, step), ours.run(&self.name, step));
            (real, ours) = (back, again);
            let give_up = clock.moment() + CONVERGENCE_TIMEOUT;
            let found = loop {
                let (left, right) = tokio::join!(
                    real.transcript(&self.name, step, &told_real),
                    ours.transcript(&self.name, step, &told_ours)
                );
                let found = compare(&left, &right);
                if found.is_empty() || clock.moment() >= give_up {
                    break found;
                }
                clock.sleep(POLL_INTERVAL).await;
            };
            for difference in found {
                let difference = Difference { exchange: index, ..difference };
                say(&difference.to_string());
                differences.push(difference);
            }
        }
        differences
    }
}

impl FlowRunner {
    fn new(kubeconfig: &Path, target: &Target, namespace: &str, clock: &Clock) -> Self {
        let shell = Shell::new(kubeconfig);
        shell.link("files", "tests/e2e/flows/files");
        let client = Client::new(target, Protocol::Http1, clock.clone()).unwrap();
        let server = target.base.split_once("://").unwrap().1.to_owned();
        Self {
            shell,
            observer: NamespaceObserver::new(client, namespace),
            masks: Masks::new(),
            server,
        }
    }

    /// Runs a step to its end, on a thread of its own.
    async fn run(self, namespace: &str, step: &str) -> (Self, String) {
        let script = format!("NAMESPACE={namespace}\n{step}");
        let run = move || {
            let Outcome { code, out, err } = self.shell.run(&script);
            let code = code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
            (self, format!("{out}{err}\nended with {code}\n"))
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The events, and the current objects.
    async fn transcript(&mut self, flow: &str, step: &str, told: &str) -> Transcript {
        let mut transcript = Transcript::new(flow, flow, &self.server);
        let seen = self.observer.snapshot().await;
        let told = self.observer.names().mask(&self.masks.apply(told, self.shell.home()));
        let line = step.lines().next().unwrap_or_default();
        transcript.exchanges.push(exchange("RUN", line, Body::Text(told)));
        transcript.exchanges.push(exchange("LOOK", line, Body::Json(seen)));
        transcript
    }
}

fn exchange(method: &str, path: &str, body: Body) -> Exchange {
    let (method, path) = (method.to_owned(), path.to_owned());
    let asked = format!("{method} {path}");
    Exchange {
        request: RecordedRequest {
            caller: Caller::Admin,
            method,
            path,
            headers: Vec::new(),
            body: None,
        },
        response: Response { request_line: asked, status: 200, headers: BTreeMap::new(), body },
    }
}
