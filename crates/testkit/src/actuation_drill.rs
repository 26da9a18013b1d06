//! Runs a drill of actuation: models share accelerators, sets are scaled up and down, and the
//! controllers are killed again and again.
//!
//! `gantry up` provides the API server, the nodes, and the programs in pods; the controllers are a
//! `gantry operator` beside it. It is killed without warning. Accelerators of pods whose containers
//! have ended are given to the next requester at once, whether or not an engine is still awake on
//! them. The verdict comes from the ledgers of the accelerators, in which the engines themselves
//! record when they take and give back memory: at no time are two awake on one accelerator. In the
//! end every model that is wanted is served, and nothing is left when none is.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use serde_json::{Value, json};

use crate::embedded::{self, EmbeddedServer};
use crate::http::{Client, Protocol, Request};
use crate::run::Run;

mod record;
mod workload;

use record::AwakeRecord;
use workload::{Workload, is_ready, names, set_of};

/// The parameters of a drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, which is `gantry`.
    pub program: PathBuf,
    /// The folder of files and of the server's data; it should be empty.
    pub folder: PathBuf,
    /// The size of the drill.
    pub size: Size,
    /// Determines which sets are scaled, and when.
    pub seed: u64,
}

/// The size of a drill.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How often the controllers are killed.
    pub kills: u32,
    /// How long sets are scaled; the kills are spread over it.
    pub time: Duration,
    /// Accelerators, of one node.
    pub accelerators: u32,
    /// Models on each accelerator.
    pub models: u32,
}

impl Size {
    /// The full drill.
    #[must_use]
    pub fn full() -> Self {
        Self { kills: 100, time: Duration::from_secs(600), accelerators: 3, models: 3 }
    }

    /// A drill that takes half a minute.
    #[must_use]
    pub fn small() -> Self {
        Self { kills: 5, time: Duration::from_secs(20), accelerators: 2, models: 2 }
    }
}

/// The result of a drill without violations.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How often the controllers were killed.
    pub kills: u32,
    /// How often a set was scaled up.
    pub scaled_up: u32,
    /// How often a set was scaled down.
    pub scaled_down: u32,
    /// How often an engine began to be awake: it was started or woken.
    pub began: usize,
    /// How many of these were wakes.
    pub woken: usize,
    /// How long the end took: until every model that was wanted was served, and then until nothing
    /// was left.
    pub settled: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, scaled_up, scaled_down, began, woken, settled } = self;
        writeln!(
            f,
            "the controllers were killed {kills} times; sets were scaled up {scaled_up} times and \
             down {scaled_down} times"
        )?;
        writeln!(f, "engines were started or woken {began} times, of which {woken} were wakes")?;
        write!(
            f,
            "no two were awake on one accelerator; nothing was stuck {:.1} s after the last change",
            settled.as_secs_f64()
        )
    }
}

/// A violated guarantee, or a timeout.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: {what}\n{tails}")]
pub struct DrillFailure {
    /// The seed of the run.
    pub seed: u64,
    /// What was found.
    pub what: String,
    /// The ends of the logs.
    pub tails: String,
}

/// Receives the output, line by line.
pub type PrintLine = Box<dyn FnMut(&str) + Send>;

/// How long the end may take. An engine that does not sleep is deleted after 60 seconds.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
/// How long the cluster may take to have its nodes.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PRINT_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two changes, in milliseconds.
const PAUSES: (u64, u64) = (50, 1500);

const CONFIG: &str = "mcadEnabled: false
actuation: {enabled: true, allowLoopback: true, drainLimit: 0s}
clientConnection: {qps: -1}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";

impl Plan {
    /// Runs the drill.
    ///
    /// # Errors
    /// The first violated guarantee.
    pub async fn run(&self, clock: &Clock, print: PrintLine) -> Result<Report, DrillFailure> {
        let failure = |what: String, tails: String| DrillFailure { seed: self.seed, what, tails };
        let mut drill = match Drill::start(self, clock, print).await {
            Ok(drill) => drill,
            Err(what) => return Err(failure(what, String::new())),
        };
        let result = Box::pin(drill.run()).await;
        result.map_err(|what| failure(what, drill.tails()))
    }
}

/// A drill that runs.
struct Drill {
    plan: Plan,
    clock: Clock,
    print: PrintLine,
    began: Moment,
    random: fastrand::Rng,
    server: EmbeddedServer,
    client: Client,
    controllers: Option<Run>,
    workload: Workload,
    report: Report,
}

impl Drill {
    async fn start(plan: &Plan, clock: &Clock, print: PrintLine) -> Result<Self, String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        std::fs::create_dir_all(&plan.folder).map_err(|error| text(&error))?;
        let config = plan.folder.join("operator.yaml");
        std::fs::write(config, CONFIG).map_err(|error| text(&error))?;
        let server = embedded::Plan::new(&plan.program).whole_cluster();
        let server = server.data(plan.folder.join("data")).flag("--no-actuation");
        let server = server.start(clock).await.map_err(|error| text(&error))?;
        let client = Client::new(server.target(), Protocol::Http2, clock.clone());
        let client = client.map_err(|error| text(&error))?;
        let (began, workload) = (clock.moment(), Workload::new(&plan.size));
        let report = Report {
            kills: 0,
            scaled_up: 0,
            scaled_down: 0,
            began: 0,
            woken: 0,
            settled: Duration::ZERO,
        };
        let random = fastrand::Rng::with_seed(plan.seed);
        Ok(Self {
            plan: plan.clone(),
            clock: clock.clone(),
            print,
            began,
            random,
            server,
            client,
            controllers: None,
            workload,
            report,
        })
    }

    fn tails(&self) -> String {
        let controllers = self.controllers.as_ref().map(Run::tails).unwrap_or_default();
        format!("{}{controllers}", self.server.tails())
    }

    fn say(&mut self, what: &str) {
        let seconds = (self.clock.moment() - self.began).as_secs();
        (self.print)(&format!("{seconds:>5}s {what}"));
    }

    async fn run(&mut self) -> Result<Report, String> {
        let Size { kills, time, accelerators, models } = self.plan.size;
        let node = self.prepare().await?;
        self.say(&format!(
            "{accelerators} accelerators, {models} models on each, {kills} kills in {} s, seed {}",
            time.as_secs(),
            self.plan.seed
        ));
        self.start_controllers().await?;
        let mut printed = self.began;
        while self.clock.moment() - self.began < time {
            let elapsed = self.clock.moment() - self.began;
            let due = time * self.report.kills / kills.max(1) + time / kills.max(1) / 2;
            if self.report.kills < kills && elapsed >= due {
                self.kill_controllers().await?;
            }
            self.change().await?;
            self.free_accelerators().await?;
            let record = self.check(&node)?;
            if self.clock.moment() - printed >= PRINT_INTERVAL {
                printed = self.clock.moment();
                let (up, down) = (self.report.scaled_up, self.report.scaled_down);
                self.say(&format!(
                    "{} kills, {up} up, {down} down, {} starts, {} wakes, awake now: {}",
                    self.report.kills, record.started, record.woken, record.awake
                ));
            }
            let (least, most) = PAUSES;
            let pause = Duration::from_millis(self.random.u64(least..=most));
            self.clock.sleep(pause).await;
        }
        while self.report.kills < kills {
            self.kill_controllers().await?;
        }
        self.settle(&node).await?;
        Ok(self.report)
    }

    /// Creates what the models need, and returns the node with the accelerators.
    async fn prepare(&mut self) -> Result<String, String> {
        let began = self.clock.moment();
        let node = loop {
            let nodes = self.get("/api/v1/nodes").await?;
            let mut nodes = nodes["items"].as_array().into_iter().flatten();
            let found = nodes.find(|it| {
                it["status"]["allocatable"]["nvidia.com/gpu"].is_string() && is_ready(it)
            });
            if let Some(node) = found.and_then(|it| it["metadata"]["name"].as_str()) {
                break node.to_owned();
            }
            if self.clock.moment() - began > START_TIMEOUT {
                return Err("no node with accelerators became ready".to_owned());
            }
            self.clock.sleep(POLL_INTERVAL).await;
        };
        for (path, object) in self.workload.objects(&node) {
            self.send(Request::post(&path, &object)).await?;
        }
        Ok(node)
    }

    async fn start_controllers(&mut self) -> Result<(), String> {
        let runs = std::env::temp_dir().join("gantry-embedded");
        let mut run = Run::begin(&runs, &self.clock).await.map_err(|error| error.to_string())?;
        let config = self.plan.folder.join("operator.yaml").display().to_string();
        let kubeconfig = self.server.kubeconfig().display().to_string();
        let words = ["operator", "--config-file", &config, "--kubeconfig", &kubeconfig];
        let words = words.map(str::to_owned);
        let started = run.start("operator", &self.plan.program, &words);
        started.map_err(|error| error.to_string())?;
        self.controllers = Some(run);
        Ok(())
    }

    /// Kills the controllers, and starts others.
    async fn kill_controllers(&mut self) -> Result<(), String> {
        if let Some(run) = self.controllers.as_mut()
            && let Some((_, status)) = run.exited_process()
        {
            return Err(format!("the controllers exited by themselves: {status}\n{}", run.tails()));
        }
        // Dropped, its process gets SIGKILL.
        drop(self.controllers.take());
        self.report.kills += 1;
        self.start_controllers().await
    }

    /// Scales one set.
    async fn change(&mut self) -> Result<(), String> {
        let model = self.random.usize(..self.workload.models.len());
        let wanted = !self.workload.models[model].wanted;
        self.scale(model, wanted).await
    }

    async fn scale(&mut self, model: usize, wanted: bool) -> Result<(), String> {
        if self.workload.models[model].wanted == wanted {
            return Ok(());
        }
        let path = set_of(&self.workload.models[model].name);
        let body = json!({"spec": {"replicas": u32::from(wanted)}});
        self.send(Request::patch(path, "application/merge-patch+json", &body)).await?;
        self.workload.models[model].wanted = wanted;
        match wanted {
            true => self.report.scaled_up += 1,
            false => self.report.scaled_down += 1,
        }
        Ok(())
    }

    /// Gives others the accelerators of pods whose containers have ended: such a pod may still
    /// exist, held by its finalizer until its engine sleeps.
    async fn free_accelerators(&self) -> Result<(), String> {
        let pods = self.get(workload::PODS).await?;
        let ended =
            pods["items"].as_array().into_iter().flatten().filter(|it| {
                it["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
            });
        let ended: Vec<&str> = ended.filter_map(|it| it["metadata"]["uid"].as_str()).collect();
        let map = self.get(workload::ALLOCATIONS).await?;
        for (uuid, item) in map["data"].as_object().into_iter().flatten() {
            let item = item.as_str().unwrap_or_default();
            if ended.iter().any(|uid| item.contains(uid)) {
                let revision = &map["metadata"]["resourceVersion"];
                let body = json!({"metadata": {"resourceVersion": revision}, "data": {uuid: null}});
                let request =
                    Request::patch(workload::ALLOCATIONS, "application/merge-patch+json", &body);
                // Refused if a requester has allocated since; then the next attempt decides.
                let answer = self.client.send(request).await;
                answer.map_err(|error| format!("{error}: {}", error.cause))?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Checks the ledgers.
    fn check(&self, node: &str) -> Result<AwakeRecord, String> {
        AwakeRecord::read(&self.plan.folder.join("data/accelerators").join(node))
    }

    /// Ends with one model served on each accelerator, and then with none.
    async fn settle(&mut self, node: &str) -> Result<(), String> {
        let began = self.clock.moment();
        for model in 0..self.workload.models.len() {
            let is_first = self.workload.models[model].is_first;
            self.scale(model, is_first).await?;
        }
        self.say("the last change: one model is wanted on each accelerator");
        self.wait_until(node, "every model that is wanted to be served, and no other", true)
            .await?;
        for model in 0..self.workload.models.len() {
            self.scale(model, false).await?;
        }
        self.say("each of them is served; now none is wanted");
        self.wait_until(node, "nothing to be bound or awake", false).await?;
        let record = self.check(node)?;
        self.report.began = record.started + record.woken;
        self.report.woken = record.woken;
        self.report.settled = self.clock.moment() - began;
        Ok(())
    }

    async fn wait_until(&self, node: &str, what: &str, serves: bool) -> Result<(), String> {
        let began = self.clock.moment();
        loop {
            self.free_accelerators().await?;
            let pods = self.get(workload::PODS).await?;
            let record = self.check(node)?;
            let open = self.workload.unsettled(&pods, &record, serves);
            if open.is_empty() {
                return Ok(());
            }
            if self.clock.moment() - began > SETTLE_TIMEOUT {
                let seconds = SETTLE_TIMEOUT.as_secs();
                let pods = names(&pods).join(", ");
                let open = open.join("\n  ");
                return Err(format!("{seconds} s for {what} were not enough:\n  {open}\n{pods}"));
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = self.client.send(Request::get(path)).await;
        let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
        answer.json().map_err(|error| format!("{path}: {error}"))
    }

    async fn send(&self, request: Request) -> Result<(), String> {
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
        match answer.status.is_success() {
            true => Ok(()),
            false => Err(format!("the server refused a change: {}", answer.text())),
        }
    }
}
