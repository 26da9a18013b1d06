//! Kills a server again and again under writes, and checks every answer it gave before.
//!
//! One life of the server: it is started on the data of the life before, everything it holds is
//! compared with what was acknowledged, watches resume from where they broke off, many writers load
//! it, and at a random moment it is killed. Requests in flight at that moment are in doubt: each
//! may have been done or not, but not by half. Nothing else may be in doubt.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use crate::embedded::{self, EmbeddedServer};
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
    /// The data directory of the server; it should be empty.
    pub data: PathBuf,
    /// How many lives the server has.
    pub kills: u32,
    /// Determines what is written and when the server is killed, as far as that can be determined.
    pub seed: u64,
}

/// Concurrent writers.
const WRITERS: usize = 32;
/// Watchers of each collection.
const WATCHERS: usize = 2;
/// The most answers after which a server is killed. Most of what can go wrong is in the few
/// milliseconds of one batch of writes; longer lives would only mean fewer kills.
const MAX_WRITES_BEFORE_KILL: u64 = 200;
/// The longest delay of a kill after that, so that it falls anywhere within a batch.
const MAX_KILL_JITTER: Duration = Duration::from_millis(4);
/// A server that does not give so many answers in this time is killed anyway.
const MAX_LOAD_TIME: Duration = Duration::from_secs(5);
/// How long a server may take to stop on request before it is killed.
const MAX_TERMINATION_TIME: Duration = Duration::from_millis(40);

/// The result, when no violation was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills under load.
    pub under_load: u32,
    /// Kills during a graceful shutdown.
    pub while_stopping: u32,
    /// Kills before the server was ready.
    pub while_starting: u32,
    /// Writes the server acknowledged.
    pub acknowledged: u64,
    /// Writes without an answer that were found done.
    pub done_unanswered: u64,
    /// Writes without an answer that were found not done.
    pub not_done: u64,
    /// Writes rejected by a conflict with another writer.
    pub conflicts: u64,
    /// Events received by watchers.
    pub events: u64,
    /// Watchers that had to list again.
    pub expired: u64,
    /// The last revision.
    pub revision: u64,
    /// The longest start.
    pub slowest_start: Duration,
    /// All starts together.
    pub starts: Duration,
    /// The whole run.
    pub took: Duration,
}

/// A violated guarantee.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, life {life}: {what}\n{tails}")]
pub struct CrashFailure {
    /// The seed of the run.
    pub seed: u64,
    /// Which life of the server, from zero.
    pub life: u32,
    /// What was found.
    pub what: String,
    /// The end of the server's log.
    pub tails: String,
}

/// The state that the tasks of one life share.
#[derive(Clone, Debug)]
pub(crate) struct ServerLifetime {
    clock: Clock,
    /// Set before the server is stopped: from then on, a missing answer is not a violation.
    ending: Arc<AtomicBool>,
    /// The highest revision that any client received, in all lives.
    highest: Arc<AtomicU64>,
    /// Answers to wait for before the kill.
    writes_before_kill: Arc<AtomicU64>,
    enough: Arc<Notify>,
}

impl ServerLifetime {
    /// Records an acknowledged write.
    fn count_acknowledged(&self) {
        if self.writes_before_kill.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.enough.notify_one();
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    fn observe_revision(&self, revision: u64) {
        self.highest.fetch_max(revision, Ordering::SeqCst);
    }
}

/// The state that outlives a server.
struct CrashTestState {
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
    /// The first violated guarantee.
    pub async fn run(&self, clock: &Clock) -> Result<Report, CrashFailure> {
        let began = clock.moment();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let writers = (0..WRITERS).map(|number| Writer::new(number, random.fork())).collect();
        let (watchers, highest) = (Vec::new(), Arc::default());
        let mut world =
            CrashTestState { writers, watchers, highest, report: Report::default(), random };
        for life in 0..self.kills {
            let mut tails = String::new();
            self.run_lifetime(life, &mut world, clock, &mut tails)
                .await
                .map_err(|what| CrashFailure { seed: self.seed, life, what, tails })?;
        }
        let mut report = world.report;
        for writer in &world.writers {
            writer.add_to_report(&mut report);
        }
        for watcher in &world.watchers {
            watcher.add_to_report(&mut report);
        }
        report.revision = world.highest.load(Ordering::SeqCst);
        report.took = clock.moment() - began;
        Ok(report)
    }

    /// Runs one life, from start to kill.
    async fn run_lifetime(
        &self,
        life: u32,
        world: &mut CrashTestState,
        clock: &Clock,
        tails: &mut String,
    ) -> Result<(), String> {
        let plan = embedded::Plan::new(&self.program).data(&self.data);
        // Not in the first life: there would be nothing to lose.
        if life > 0 && world.random.u8(..) < 25 {
            let moment = world.random.u64(0..=startup_millis(&world.report, life));
            // A server that is dropped before it is ready is killed.
            let early = clock.timeout(Duration::from_millis(moment), plan.clone().start(clock));
            match early.await {
                Err(_killed) => {
                    world.report.while_starting += 1;
                    return Ok(());
                }
                Ok(Ok(server)) => return self.verify_and_load(world, clock, server, tails).await,
                Ok(Err(error)) => return Err(error.to_string()),
            }
        }
        let server = plan.start(clock).await.map_err(|error| error.to_string())?;
        self.verify_and_load(world, clock, server, tails).await
    }

    /// Runs the part of a life in which the server answers.
    async fn verify_and_load(
        &self,
        world: &mut CrashTestState,
        clock: &Clock,
        server: EmbeddedServer,
        tails: &mut String,
    ) -> Result<(), String> {
        world.report.slowest_start = world.report.slowest_start.max(server.took());
        world.report.starts += server.took();
        let life = ServerLifetime {
            clock: clock.clone(),
            ending: Arc::default(),
            highest: Arc::clone(&world.highest),
            writes_before_kill: Arc::new(AtomicU64::new(
                world.random.u64(1..=MAX_WRITES_BEFORE_KILL),
            )),
            enough: Arc::default(),
        };
        let judged = verify(world, &server, &life).await;
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

/// Returns how long a start takes on average, in milliseconds: the range of kills during a start.
fn startup_millis(report: &Report, life: u32) -> u64 {
    let usual = report.starts / life.max(1);
    u64::try_from(usual.as_millis()).unwrap_or(u64::MAX).clamp(10, 2_000)
}

/// Compares what the server holds with what was acknowledged.
async fn verify(
    world: &mut CrashTestState,
    server: &EmbeddedServer,
    life: &ServerLifetime,
) -> Result<(), String> {
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
            return Err(format!("revision {before} was observed, and now it is {revision}"));
        }
        for writer in &mut world.writers {
            writer.verify(collection, &mut listed.objects)?;
        }
        shared::verify(collection, &mut listed.objects, &mut world.writers)?;
        collection::check_no_unknown_objects(collection, &listed.objects)?;
    }
    for collection in &COLLECTIONS {
        let mark = collection::write_marker(collection, &client, life).await?;
        let listed = collection::list(collection, &client).await?;
        if world.watchers.iter().all(|watcher| watcher.collection != *collection) {
            let new = (0..WATCHERS).map(|_| Watcher::new(*collection, &listed));
            world.watchers.extend(new);
        }
        let ours = world.watchers.iter_mut().filter(|it| it.collection == *collection);
        for watcher in ours {
            watcher.catch_up(&client, mark, life).await?;
            watcher.verify(&listed)?;
        }
    }
    Ok(())
}

/// Loads the server and kills it.
async fn load(
    world: &mut CrashTestState,
    server: &EmbeddedServer,
    life: &ServerLifetime,
) -> Result<(), String> {
    // A few connections that many clients share, and some that one client has alone.
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
    // A slow server is not a violation here.
    let _ = life.clock.timeout(MAX_LOAD_TIME, life.enough.notified()).await;
    let jitter = world.random.u64(0..u64::try_from(MAX_KILL_JITTER.as_micros()).unwrap_or(1));
    life.clock.sleep(Duration::from_micros(jitter)).await;
    let gently = world.random.u8(..) < 25;
    life.ending.store(true, Ordering::SeqCst);
    if gently {
        server.signal(Signal::TERM).map_err(|error| error.to_string())?;
        let span = u64::try_from(MAX_TERMINATION_TIME.as_micros()).unwrap_or(u64::MAX);
        life.clock.sleep(Duration::from_micros(world.random.u64(0..span))).await;
        world.report.while_stopping += 1;
    } else {
        world.report.under_load += 1;
    }
    server.signal(Signal::KILL).map_err(|error| error.to_string())?;
    world.writers = join_in_order(writing).await?;
    world.watchers = join_in_order(watching).await?;
    Ok(())
}

/// Waits for all, and returns them in their order.
async fn join_in_order<T: Numbered + 'static>(
    mut tasks: JoinSet<Result<T, String>>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.push(ended.map_err(|error: JoinError| error.to_string())??);
    }
    all.sort_by_key(Numbered::number);
    Ok(all)
}

/// An item with its number among those of its type.
pub(crate) trait Numbered {
    fn number(&self) -> usize;
}

fn client(
    server: &EmbeddedServer,
    protocol: Protocol,
    life: &ServerLifetime,
) -> Result<Client, String> {
    Client::new(server.target(), protocol, life.clock.clone()).map_err(|error| error.to_string())
}

/// Returns the path of the program beside this one, where cargo puts both.
#[must_use]
pub fn gantry_program(current: &Path) -> PathBuf {
    current.with_file_name("gantry")
}
