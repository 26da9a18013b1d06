//! Kills a server again and again while it is written to, and holds it to every word it said.
//!
//! One life of the server: it is started on the data of the life before, everything it holds is
//! compared with what was acknowledged, watches go on from where they broke off, many writers load
//! it, and at a random moment it is killed. What was being asked at that moment is in doubt: it may
//! have been done or not, but not by half. Nothing else may be in doubt.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use crate::embedded::{self, Embedded};
use crate::http::{Client, Protocol};

mod collection;
mod shared;
mod watcher;
mod writer;

use collection::COLLECTIONS;
use watcher::Watcher;
use writer::Writer;

/// How often a server is killed, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, which is `gantry`.
    pub program: PathBuf,
    /// Where the server keeps its data; it should be empty.
    pub data: PathBuf,
    /// How many lives the server has.
    pub kills: u32,
    /// Decides what is written and when the server is killed, as far as that can be decided.
    pub seed: u64,
}

/// Writers at one time.
const WRITERS: usize = 32;
/// Watchers of each collection.
const WATCHERS: usize = 2;
/// Answers after which a server is killed, at most. Most of what can go wrong is in the few
/// milliseconds of one batch of writes; longer lives would only mean fewer deaths.
const ANSWERS: u64 = 200;
/// The most a kill comes after that, so that it falls anywhere within a batch.
const JITTER: Duration = Duration::from_millis(4);
/// A server that is not able to give so many answers in this time is killed as it is.
const LONGEST: Duration = Duration::from_secs(5);
/// How long a server that was told to stop has before it is killed all the same.
const LAST_WORDS: Duration = Duration::from_millis(40);

/// What came of it, when nothing was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills under load.
    pub under_load: u32,
    /// Kills while the server was stopping in order.
    pub while_stopping: u32,
    /// Kills before the server was ready.
    pub while_starting: u32,
    /// Writes the server acknowledged.
    pub acknowledged: u64,
    /// Writes without an answer that were found done.
    pub done_unanswered: u64,
    /// Writes without an answer that were found not done.
    pub not_done: u64,
    /// Refused because another writer was faster.
    pub conflicts: u64,
    /// Events seen by watchers.
    pub events: u64,
    /// Watchers that had to start over.
    pub expired: u64,
    /// The last revision.
    pub revision: u64,
    /// The longest start.
    pub slowest_start: Duration,
    /// All starts together.
    pub starts: Duration,
    /// All of it.
    pub took: Duration,
}

/// A promise that was broken.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, life {life}: {what}\n{tails}")]
pub struct Fault {
    /// The seed of the run.
    pub seed: u64,
    /// Which life of the server, from zero.
    pub life: u32,
    /// What was found.
    pub what: String,
    /// The end of the server's log.
    pub tails: String,
}

/// What the tasks of one life share.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    clock: Clock,
    /// Set before the server is told to end: from then on, no answer is no fault.
    ending: Arc<AtomicBool>,
    /// The highest revision anybody was told of, in all lives.
    highest: Arc<AtomicU64>,
    /// Answers to wait for before the kill.
    awaited: Arc<AtomicU64>,
    enough: Arc<Notify>,
}

impl Life {
    /// Takes note of an acknowledged write.
    fn answered(&self) {
        if self.awaited.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.enough.notify_one();
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    fn saw(&self, revision: u64) {
        self.highest.fetch_max(revision, Ordering::SeqCst);
    }
}

/// Everything that outlives a server.
struct World {
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
    highest: Arc<AtomicU64>,
    report: Report,
    random: fastrand::Rng,
}

impl Plan {
    /// Kills the server as often as planned.
    ///
    /// # Errors
    /// The first broken promise.
    pub async fn run(&self, clock: &Clock) -> Result<Report, Fault> {
        let began = clock.moment();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let writers = (0..WRITERS).map(|number| Writer::new(number, random.fork())).collect();
        let (watchers, highest) = (Vec::new(), Arc::default());
        let mut world = World { writers, watchers, highest, report: Report::default(), random };
        for life in 0..self.kills {
            let mut tails = String::new();
            self.live(life, &mut world, clock, &mut tails).await.map_err(|what| Fault {
                seed: self.seed,
                life,
                what,
                tails,
            })?;
        }
        let mut report = world.report;
        for writer in &world.writers {
            writer.tell(&mut report);
        }
        for watcher in &world.watchers {
            watcher.tell(&mut report);
        }
        report.revision = world.highest.load(Ordering::SeqCst);
        report.took = clock.moment() - began;
        Ok(report)
    }

    /// One life, from start to kill.
    async fn live(
        &self,
        life: u32,
        world: &mut World,
        clock: &Clock,
        tails: &mut String,
    ) -> Result<(), String> {
        let plan = embedded::Plan::new(&self.program).data(&self.data);
        // Not the first: there would be nothing to lose.
        if life > 0 && world.random.u8(..) < 25 {
            let moment = world.random.u64(0..=starting(&world.report, life));
            // Dropped before it is ready, the server is killed.
            let early = clock.timeout(Duration::from_millis(moment), plan.clone().start(clock));
            match early.await {
                Err(_killed) => {
                    world.report.while_starting += 1;
                    return Ok(());
                }
                Ok(Ok(server)) => return self.lead(world, clock, server, tails).await,
                Ok(Err(error)) => return Err(error.to_string()),
            }
        }
        let server = plan.start(clock).await.map_err(|error| error.to_string())?;
        self.lead(world, clock, server, tails).await
    }

    /// The part of a life in which the server answers.
    async fn lead(
        &self,
        world: &mut World,
        clock: &Clock,
        server: Embedded,
        tails: &mut String,
    ) -> Result<(), String> {
        world.report.slowest_start = world.report.slowest_start.max(server.took());
        world.report.starts += server.took();
        let life = Life {
            clock: clock.clone(),
            ending: Arc::default(),
            highest: Arc::clone(&world.highest),
            awaited: Arc::new(AtomicU64::new(world.random.u64(1..=ANSWERS))),
            enough: Arc::default(),
        };
        let judged = judge(world, &server, &life).await;
        let lived = match judged {
            Ok(()) => load(world, &server, &life).await,
            Err(what) => Err(what),
        };
        if lived.is_err() {
            *tails = server.tails();
        }
        lived
    }
}

/// When, in milliseconds, a server that is being started is somewhere in the middle of it.
fn starting(report: &Report, life: u32) -> u64 {
    let usual = report.starts / life.max(1);
    u64::try_from(usual.as_millis()).unwrap_or(u64::MAX).clamp(10, 2_000)
}

/// Compares what the server holds with what was said.
async fn judge(world: &mut World, server: &Embedded, life: &Life) -> Result<(), String> {
    let client = client(server, Protocol::Http2, life)?;
    if world.watchers.is_empty() {
        collection::prepare(&client, life).await?;
        shared::prepare(&client).await?;
    }
    let before = life.highest.load(Ordering::SeqCst);
    for collection in &COLLECTIONS {
        let mut listed = collection::list(collection, &client).await?;
        if listed.revision < before {
            let revision = listed.revision;
            return Err(format!("revision {before} was seen, and now it is {revision}"));
        }
        for writer in &mut world.writers {
            writer.judge(collection, &mut listed.objects)?;
        }
        shared::judge(collection, &mut listed.objects, &mut world.writers)?;
        collection::nothing_else(collection, &listed.objects)?;
    }
    for collection in &COLLECTIONS {
        let mark = collection::mark(collection, &client, life).await?;
        let listed = collection::list(collection, &client).await?;
        if world.watchers.iter().all(|watcher| watcher.collection != *collection) {
            let new = (0..WATCHERS).map(|_| Watcher::new(*collection, &listed));
            world.watchers.extend(new);
        }
        let ours = world.watchers.iter_mut().filter(|it| it.collection == *collection);
        for watcher in ours {
            watcher.catch_up(&client, mark, life).await?;
            watcher.judge(&listed)?;
        }
    }
    Ok(())
}

/// Loads the server and kills it.
async fn load(world: &mut World, server: &Embedded, life: &Life) -> Result<(), String> {
    // A few connections that many share and some that are shared by none.
    let shared: Vec<Client> =
        (0..2).map(|_| client(server, Protocol::Http2, life)).collect::<Result<_, _>>()?;
    let mut writing = JoinSet::new();
    for (place, writer) in world.writers.drain(..).enumerate() {
        let client = match place % 16 {
            0 => client(server, Protocol::Http1, life)?,
            other => shared[other % shared.len()].clone(),
        };
        writing.spawn(writer.run(client, life.clone()));
    }
    let mut watching = JoinSet::new();
    for (place, watcher) in world.watchers.drain(..).enumerate() {
        let client = match place % WATCHERS {
            0 => client(server, Protocol::Http1, life)?,
            _ => shared[place % shared.len()].clone(),
        };
        watching.spawn(watcher.run(client, life.clone()));
    }
    // A slow server is no fault here.
    let _ = life.clock.timeout(LONGEST, life.enough.notified()).await;
    let jitter = world.random.u64(0..u64::try_from(JITTER.as_micros()).unwrap_or(1));
    life.clock.sleep(Duration::from_micros(jitter)).await;
    let gently = world.random.u8(..) < 25;
    life.ending.store(true, Ordering::SeqCst);
    if gently {
        server.signal(Signal::TERM).map_err(|error| error.to_string())?;
        let span = u64::try_from(LAST_WORDS.as_micros()).unwrap_or(u64::MAX);
        life.clock.sleep(Duration::from_micros(world.random.u64(0..span))).await;
        world.report.while_stopping += 1;
    } else {
        world.report.under_load += 1;
    }
    server.signal(Signal::KILL).map_err(|error| error.to_string())?;
    world.writers = gather(writing).await?;
    world.watchers = gather(watching).await?;
    Ok(())
}

/// Waits for all, and gives them back in their order.
async fn gather<T: Numbered + 'static>(
    mut tasks: JoinSet<Result<T, String>>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.push(ended.map_err(|error: JoinError| error.to_string())??);
    }
    all.sort_by_key(Numbered::number);
    Ok(all)
}

/// Something with a place among its like.
pub(crate) trait Numbered {
    fn number(&self) -> usize;
}

fn client(server: &Embedded, protocol: Protocol, life: &Life) -> Result<Client, String> {
    Client::new(server.target(), protocol, life.clock.clone()).map_err(|error| error.to_string())
}

/// The program beside this one, where cargo puts both.
#[must_use]
pub fn beside(current: &Path) -> PathBuf {
    current.with_file_name("gantry")
}
