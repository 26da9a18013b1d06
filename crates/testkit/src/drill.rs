//! Runs a drill of the queue: many AppWrappers on a cluster that loses nodes, its operator and its
//! server.
//!
//! `gantry up` provides the API server, the nodes and the controllers of Kubernetes; the queue is
//! left to a `gantry operator` beside it. Both are killed without warning. Nodes lose power, are
//! removed and are added. An observer uses nothing but watches, and checks the guarantees of the
//! queue all the time: no node and no quota is overcommitted, nothing is created twice, completed
//! AppWrappers stay completed. In the end everything is completed, and nothing is left over.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use tokio::task::JoinSet;

use crate::http::{Client, Protocol, Request};

mod amounts;
mod observer;
mod processes;
mod script;
mod summary;
mod watch;
mod workload;

pub use processes::Kills;
pub use script::{Act, Step, When};
pub use summary::Report;

use observer::{Kind, Observer};
use processes::Processes;
use script::Script;
use workload::Workload;

/// The parameters of a drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, which is `gantry`.
    pub program: PathBuf,
    /// The folder of files and of the server's data; it should be empty.
    pub folder: PathBuf,
    /// The size of the drill.
    pub size: Size,
    /// Determines what is submitted.
    pub seed: u64,
}

/// The size of a drill.
#[derive(Clone, Debug)]
pub struct Size {
    /// AppWrappers.
    pub jobs: u32,
    /// Nodes without accelerators, `plain-0` and so on.
    pub plain: u32,
    /// Nodes with accelerators, `gpu-0` and so on.
    pub gpu: u32,
    /// The shortest and the longest runtime of pods, in milliseconds.
    pub run_for: (u64, u64),
    /// The pause between two submissions.
    pub pause: Duration,
    /// Whether operators compete for a lease, which a killed one leaves behind.
    pub lease: bool,
    /// What happens meanwhile, one step after the other.
    pub script: Vec<Step>,
}

impl Size {
    /// The full drill.
    #[must_use]
    pub fn full() -> Self {
        Self {
            jobs: 500,
            plain: 14,
            gpu: 6,
            run_for: (2_000, 8_000),
            pause: Duration::from_millis(50),
            lease: true,
            script: script::full(),
        }
    }

    /// A small drill that takes seconds.
    #[must_use]
    pub fn small() -> Self {
        Self {
            jobs: 40,
            plain: 3,
            gpu: 1,
            run_for: (200, 1_000),
            pause: Duration::ZERO,
            lease: false,
            script: script::small(),
        }
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

/// How long no AppWrapper may complete before the drill fails: the longest delays without a fault
/// are the 50 seconds until a silent node is noticed, and the 40 until its pods are collected.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(180);
/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a status line is printed.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) const APP_WRAPPERS_PATH: &str =
    "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";

/// The state that the script, the watches and the printer share.
struct DrillContext {
    clock: Clock,
    began: Moment,
    client: Client,
    observer: Mutex<Observer>,
    print: Mutex<PrintLine>,
}

impl fmt::Debug for DrillContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrillContext").field("began", &self.began).finish_non_exhaustive()
    }
}

impl DrillContext {
    /// Both locks are held briefly, and the state they guard is consistent after every call.
    fn observer(&self) -> MutexGuard<'_, Observer> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the drill has been running.
    fn elapsed(&self) -> Duration {
        self.clock.moment() - self.began
    }

    fn print(&self, line: &str) {
        (self.print.lock().unwrap_or_else(PoisonError::into_inner))(line);
    }

    /// Prints an event with its time.
    fn print_event(&self, what: &str) {
        self.print(&format!("{:>5}s * {what}", self.elapsed().as_secs()));
    }

    /// Polls until a condition holds.
    async fn wait_until(
        &self,
        processes: &mut Processes,
        what: &str,
        come: impl Fn(&Observer) -> bool,
    ) -> Result<(), String> {
        let asked = self.elapsed();
        loop {
            {
                let observer = self.observer();
                if let Some(fault) = observer.violations().first() {
                    return Err(fault.clone());
                }
                if come(&observer) {
                    return Ok(());
                }
                let idle = self.elapsed().saturating_sub(observer.last_progress().max(asked));
                if idle > PROGRESS_TIMEOUT {
                    let seconds = PROGRESS_TIMEOUT.as_secs();
                    let open = observer.incomplete().join("\n  ");
                    return Err(format!(
                        "{what}: no progress in {seconds} s; not completed:\n  {open}"
                    ));
                }
            }
            processes.restart_exited_operator(self).await?;
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }
}

impl Plan {
    /// Runs the drill.
    ///
    /// # Errors
    /// The first violated guarantee.
    pub async fn run(&self, clock: &Clock, tell: PrintLine) -> Result<Report, DrillFailure> {
        let fault = |what: String, tails: String| DrillFailure { seed: self.seed, what, tails };
        let mut processes = match Processes::start(self, clock).await {
            Ok(processes) => processes,
            Err(what) => return Err(fault(what, String::new())),
        };
        let held = Box::pin(self.run_drill(clock, tell, &mut processes)).await;
        held.map_err(|what| fault(what, processes.tails()))
    }

    async fn run_drill(
        &self,
        clock: &Clock,
        tell: PrintLine,
        processes: &mut Processes,
    ) -> Result<Report, String> {
        let workload = Workload::new(&self.size, &mut fastrand::Rng::with_seed(self.seed));
        let client = Client::new(processes.target(), Protocol::Http2, clock.clone());
        let client = client.map_err(|error| error.to_string())?;
        for (path, object) in workload.prerequisites() {
            create(&client, &path, &object).await?;
        }
        let context = Arc::new(DrillContext {
            clock: clock.clone(),
            began: clock.moment(),
            client,
            observer: Mutex::new(Observer::new(&workload)),
            print: Mutex::new(tell),
        });
        let nodes = self.size.plain + self.size.gpu;
        let jobs = self.size.jobs;
        context.print(&format!("{jobs} AppWrappers on {nodes} nodes, seed {}", self.seed));
        context.print(observer::STATUS_HEADER);
        let mut tasks = JoinSet::new();
        for kind in Kind::ALL {
            tasks.spawn(watch::follow(kind, Arc::clone(&context)));
        }
        context
            .wait_until(processes, "waiting for the watches", Observer::has_listed_all_kinds)
            .await?;
        processes.start_operator(&context).await?;
        tasks.spawn(print_lines(Arc::clone(&context)));
        tasks.spawn(submit(Arc::clone(&context), workload, self.size.pause));
        let script = Script::new(&self.size);
        script.run(&context, processes).await?;
        context
            .wait_until(processes, "waiting for completion of all AppWrappers", |it| {
                it.completed() == jobs
            })
            .await?;
        let took = context.elapsed();
        context.print_event("all AppWrappers are completed");
        let settled = |it: &Observer| it.leftovers().is_empty();
        let gone = context
            .wait_until(processes, "waiting for pods and quota to be released", settled)
            .await;
        gone.map_err(|what| {
            let left = context.observer().leftovers().join("\n  ");
            format!("{what}\nleft over:\n  {left}")
        })?;
        let ended = {
            let mut observer = context.observer();
            observer.expect_deletion();
            observer.final_app_wrappers()
        };
        delete_all(&context.client).await?;
        context
            .wait_until(processes, "waiting for deletion of all objects", Observer::is_empty)
            .await?;
        context.print_event("all AppWrappers and their objects are deleted");
        processes.stop_operator(&context).await?;
        tasks.abort_all();
        let report = context.observer().report(took, processes.kills(), &ended);
        Ok(report)
    }
}

/// Creates an object.
async fn create(client: &Client, path: &str, object: &serde_json::Value) -> Result<(), String> {
    let answer = client.send(Request::post(path, object)).await;
    let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("{path}: {}", answer.text())),
    }
}

/// Submits everything, even while the server and the operator are killed.
async fn submit(context: Arc<DrillContext>, workload: Workload, pause: Duration) {
    for planned in workload.app_wrappers() {
        let object = planned.object();
        loop {
            // A submission whose answer was lost exists, and its repetition is rejected.
            let sent = context.client.send(Request::post(APP_WRAPPERS_PATH, &object)).await;
            let status = sent.map(|answer| answer.status.as_u16());
            match status {
                Ok(201 | 409) => break,
                Ok(400..=499) => {
                    let what = format!("{} was rejected: {status:?}", planned.name);
                    context.observer().add_violation(what);
                    return;
                }
                Ok(_) | Err(_) => context.clock.sleep(POLL_INTERVAL).await,
            }
        }
        context.observer().submitted(&planned.name, context.elapsed());
        context.clock.sleep(pause).await;
    }
    context.print_event("all AppWrappers are submitted");
}

/// Prints a status line again and again.
async fn print_lines(context: Arc<DrillContext>) {
    loop {
        context.clock.sleep(PRINT_INTERVAL).await;
        let (news, line) = {
            let mut observer = context.observer();
            (observer.take_preemption_summary(), observer.status_line())
        };
        if let Some(news) = news {
            context.print_event(&news);
        }
        context.print(&format!("{:>5}s {line}", context.elapsed().as_secs()));
    }
}

async fn delete_all(client: &Client) -> Result<(), String> {
    let answer = client.send(Request::delete(APP_WRAPPERS_PATH)).await;
    let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("could not delete the AppWrappers: {}", answer.text())),
    }
}
