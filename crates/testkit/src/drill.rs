//! A drill of the queue: many AppWrappers on a cluster that loses nodes, its operator and its server.
//!
//! `gantry up` plays the API server, the nodes and the controllers of Kubernetes; the queue is left to a
//! `gantry operator` beside it. Both are killed without warning. Nodes lose their power, vanish and come.
//! Whoever looks on sees nothing but what watches tell, and holds the queue to its promises all along:
//! no node and no quota gives more than it has, nothing is made twice, what has ended stays so. In the
//! end everything is completed, and nothing is left over.

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

/// What is done, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, which is `gantry`.
    pub program: PathBuf,
    /// Where files and the data of the server are kept; it should be empty.
    pub folder: PathBuf,
    /// How much of everything.
    pub size: Size,
    /// Decides what is submitted.
    pub seed: u64,
}

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Size {
    /// AppWrappers.
    pub jobs: u32,
    /// Nodes without accelerators, `plain-0` and so on.
    pub plain: u32,
    /// Nodes with accelerators, `gpu-0` and so on.
    pub gpu: u32,
    /// How long pods run, at least and at most, in milliseconds.
    pub run_for: (u64, u64),
    /// The pause between two that are submitted.
    pub pause: Duration,
    /// Whether operators compete for a lease, which a killed one leaves behind.
    pub lease: bool,
    /// What happens meanwhile, one after the other.
    pub script: Vec<Step>,
}

impl Size {
    /// The drill itself.
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

    /// A rehearsal that takes seconds.
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

/// A promise that was broken, or an end that did not come.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: {what}\n{tails}")]
pub struct Fault {
    /// The seed of the run.
    pub seed: u64,
    /// What was found.
    pub what: String,
    /// The ends of the logs.
    pub tails: String,
}

/// Who is told what happens, line by line.
pub type Tell = Box<dyn FnMut(&str) + Send>;

/// AppWrappers that nobody completes in this time never will be: the longest that anything takes by
/// itself are the 50 seconds until a silent node is noticed, and the 40 until its pods are collected.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is looked whether something has come about.
const LOOK: Duration = Duration::from_millis(20);
/// How often a line is printed.
const LINE: Duration = Duration::from_secs(1);

pub(crate) const WRAPPERS: &str =
    "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";

/// What those who act, look and print share.
struct Stage {
    clock: Clock,
    began: Moment,
    client: Client,
    observer: Mutex<Observer>,
    tell: Mutex<Tell>,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Stage {
    /// Both locks are held for moments, and what they guard is whole after every call.
    fn observer(&self) -> MutexGuard<'_, Observer> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it has been going on.
    fn at(&self) -> Duration {
        self.clock.moment() - self.began
    }

    fn tell(&self, line: &str) {
        (self.tell.lock().unwrap_or_else(PoisonError::into_inner))(line);
    }

    /// Tells of something that happens, with the time.
    fn event(&self, what: &str) {
        self.tell(&format!("{:>5}s * {what}", self.at().as_secs()));
    }

    /// Looks until something has come about.
    async fn until(
        &self,
        processes: &mut Processes,
        what: &str,
        come: impl Fn(&Observer) -> bool,
    ) -> Result<(), String> {
        let asked = self.at();
        loop {
            {
                let observer = self.observer();
                if let Some(fault) = observer.faults().first() {
                    return Err(fault.clone());
                }
                if come(&observer) {
                    return Ok(());
                }
                let idle = self.at().saturating_sub(observer.last_progress().max(asked));
                if idle > PATIENCE {
                    let seconds = PATIENCE.as_secs();
                    let open = observer.open().join("\n  ");
                    return Err(format!("{what}: nothing came in {seconds} s; open:\n  {open}"));
                }
            }
            processes.look(self).await?;
            self.clock.sleep(LOOK).await;
        }
    }
}

impl Plan {
    /// Holds the drill.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub async fn run(&self, clock: &Clock, tell: Tell) -> Result<Report, Fault> {
        let fault = |what: String, tails: String| Fault { seed: self.seed, what, tails };
        let mut processes = match Processes::start(self, clock).await {
            Ok(processes) => processes,
            Err(what) => return Err(fault(what, String::new())),
        };
        let held = Box::pin(self.hold(clock, tell, &mut processes)).await;
        held.map_err(|what| fault(what, processes.tails()))
    }

    async fn hold(
        &self,
        clock: &Clock,
        tell: Tell,
        processes: &mut Processes,
    ) -> Result<Report, String> {
        let workload = Workload::new(&self.size, &mut fastrand::Rng::with_seed(self.seed));
        let client = Client::new(processes.target(), Protocol::Http2, clock.clone());
        let client = client.map_err(|error| error.to_string())?;
        for (path, object) in workload.surroundings() {
            create(&client, &path, &object).await?;
        }
        let stage = Arc::new(Stage {
            clock: clock.clone(),
            began: clock.moment(),
            client,
            observer: Mutex::new(Observer::new(&workload)),
            tell: Mutex::new(tell),
        });
        let nodes = self.size.plain + self.size.gpu;
        let jobs = self.size.jobs;
        stage.tell(&format!("{jobs} AppWrappers on {nodes} nodes, seed {}", self.seed));
        stage.tell(observer::HEAD);
        let mut tasks = JoinSet::new();
        for kind in Kind::ALL {
            tasks.spawn(watch::follow(kind, Arc::clone(&stage)));
        }
        stage.until(processes, "the watches", Observer::is_complete).await?;
        processes.start_operator(&stage).await?;
        tasks.spawn(lines(Arc::clone(&stage)));
        tasks.spawn(submit(Arc::clone(&stage), workload, self.size.pause));
        let script = Script::new(&self.size);
        script.play(&stage, processes).await?;
        stage.until(processes, "all are to complete", |it| it.done() == jobs).await?;
        let took = stage.at();
        stage.event("all are completed");
        let settled = |it: &Observer| it.leftovers().is_empty();
        let gone = stage.until(processes, "what is left is to go", settled).await;
        gone.map_err(|what| {
            let left = stage.observer().leftovers().join("\n  ");
            format!("{what}\nleft over:\n  {left}")
        })?;
        let ended = {
            let mut observer = stage.observer();
            observer.expect_deletion();
            observer.ended()
        };
        delete_all(&stage.client).await?;
        stage.until(processes, "what was made is to go with it", Observer::is_empty).await?;
        stage.event("all are deleted, and what they had made is gone");
        processes.stop_operator(&stage).await?;
        tasks.abort_all();
        let report = stage.observer().report(took, processes.kills(), &ended);
        Ok(report)
    }
}

/// Makes an object.
async fn create(client: &Client, path: &str, object: &serde_json::Value) -> Result<(), String> {
    let answer = client.send(Request::post(path, object)).await;
    let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("{path}: {}", answer.text())),
    }
}

/// Submits everything, whoever dies meanwhile.
async fn submit(stage: Arc<Stage>, workload: Workload, pause: Duration) {
    for wish in workload.wishes() {
        let object = wish.object();
        loop {
            // One whose answer was lost is there, and refused when it comes again.
            let sent = stage.client.send(Request::post(WRAPPERS, &object)).await;
            let status = sent.map(|answer| answer.status.as_u16());
            match status {
                Ok(201 | 409) => break,
                Ok(400..=499) => {
                    let what = format!("{} was refused: {status:?}", wish.name);
                    stage.observer().blame(what);
                    return;
                }
                Ok(_) | Err(_) => stage.clock.sleep(LOOK).await,
            }
        }
        stage.observer().submitted(&wish.name, stage.at());
        stage.clock.sleep(pause).await;
    }
    stage.event("all are submitted");
}

/// A line about everything, again and again.
async fn lines(stage: Arc<Stage>) {
    loop {
        stage.clock.sleep(LINE).await;
        let (news, line) = {
            let mut observer = stage.observer();
            (observer.news(), observer.line())
        };
        if let Some(news) = news {
            stage.event(&news);
        }
        stage.tell(&format!("{:>5}s {line}", stage.at().as_secs()));
    }
}

async fn delete_all(client: &Client) -> Result<(), String> {
    let answer = client.send(Request::delete(WRAPPERS)).await;
    let answer = answer.map_err(|error| format!("{error}: {}", error.cause))?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("could not delete the AppWrappers: {}", answer.text())),
    }
}
