//! One run of a program: from its files and hooks to its last words.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::action::{Attempt, Attempts};
use super::files::{PodFiles, make_directory};
use super::mounts::read_bounded;
use super::probe::{Prober, Tally};
use super::wanted::Wanted;
use super::{Binary, Facts, LastWords, Mounts, Setting, Site, cut};
use crate::shell;
use crate::view::{
    ContainerKey, FailedHook, Hook, ProbeKey, ProbeKind, ProbeResult, Program, ProgramState,
    TerminationMessagePolicy,
};

/// The code of a program that could not be started, as container runtimes have it.
const NOT_STARTED: u8 = 128;
/// The code of a program that was ended.
const KILLED: u8 = 137;
/// How long programs may take to end when this process does.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// What a program has left at least after the hook before its end, as kubelets give it.
const AFTER_HOOK: Duration = Duration::from_secs(2);
/// The longest a hook after a start may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// How much of the end of a log serves as last words.
const FALLBACK: (usize, usize) = (2048, 80);

/// What is to become of a run. It only ever gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It goes on.
    Run,
    /// It is told to stop, and ended at this moment.
    Stop(Moment),
    /// It is ended at once.
    Kill,
}

impl Order {
    /// This after another one.
    pub(super) fn after(self, before: Self) -> Self {
        match (before, self) {
            (Self::Kill, _) | (_, Self::Kill) => Self::Kill,
            (Self::Stop(one), Self::Stop(two)) => Self::Stop(one.min(two)),
            (Self::Stop(at), Self::Run) | (Self::Run, Self::Stop(at)) => Self::Stop(at),
            (Self::Run, Self::Run) => Self::Run,
        }
    }
}

/// What one run needs.
pub(super) struct Run {
    pub(super) want: Wanted,
    pub(super) binary: Arc<dyn Binary>,
    pub(super) site: Site,
    pub(super) files: Option<Arc<PodFiles>>,
    pub(super) order: watch::Receiver<Order>,
    /// Whether nothing is recorded about it any more.
    pub(super) silent: Arc<Mutex<bool>>,
    /// Shows the volumes of the container to commands that are run in it.
    pub(super) show_files: Box<dyn FnOnce(&Mounts) + Send>,
}

/// How far a run is, as it is recorded.
struct Recorder {
    site: Site,
    want: Wanted,
    silent: Arc<Mutex<bool>>,
    failed_hook: Mutex<Option<FailedHook>>,
    state: Mutex<Option<ProgramState>>,
    tail: Mutex<VecDeque<String>>,
}

impl Recorder {
    fn key(&self) -> ContainerKey {
        ContainerKey::new(&self.want.identity.pod, &self.want.container)
    }

    /// Runs while it is certain that something may be recorded.
    fn unless_silent(&self, record: impl FnOnce(&dyn Facts)) {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if !*silent {
            record(self.site.facts.as_ref());
        }
    }

    fn tell(&self, state: ProgramState) {
        let mut last = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(state.clone());
        let failed_hook = self.failed_hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let program =
            Program { uid: self.want.identity.uid.clone(), run: self.want.run, state, failed_hook };
        self.unless_silent(|facts| facts.record(self.key(), program));
    }

    fn hook_failed(&self, hook: Hook, message: String) {
        let failed = FailedHook { hook, message };
        *self.failed_hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tell(state.unwrap_or(ProgramState::Running { ready: false }));
    }

    fn probed(&self, probe: ProbeKind, tally: &Tally) {
        let result = ProbeResult {
            uid: self.want.identity.uid.clone(),
            run: self.want.run,
            verdict: tally.verdict,
            failure: tally.failure.clone(),
            in_a_row: tally.in_a_row,
        };
        let key = ProbeKey { container: self.key(), probe };
        self.unless_silent(|facts| facts.record_probe(key, result));
    }

    fn say(&self, clock: &Clock, text: &str) {
        let (uid, container) = (self.want.identity.uid.as_str(), &self.want.container);
        self.site.facts.says(uid, container, clock.now(), text);
        if self.want.termination_policy == TerminationMessagePolicy::FallbackToLogsOnError {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            for line in text.lines() {
                tail.push_back(cut(line, FALLBACK.0).to_owned());
                if tail.len() > FALLBACK.1 {
                    tail.pop_front();
                }
            }
        }
    }

    /// The end of what was said.
    fn tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let mut size = 0;
        let fits = tail.iter().rev().take_while(|it| {
            size += it.len() + 1;
            size <= FALLBACK.0
        });
        let mut lines: Vec<&str> = fits.map(String::as_str).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl Run {
    /// Runs the program to its end. `tasks` is the owner of this run.
    pub(super) async fn run(self, mut tasks: Tasks) {
        let clock = tasks.clock().clone();
        let Self { want, binary, site, files, mut order, silent, show_files } = self;
        let recorder = Arc::new(Recorder {
            site: site.clone(),
            want: want.clone(),
            silent,
            failed_hook: Mutex::default(),
            state: Mutex::default(),
            tail: Mutex::default(),
        });
        let words = LastWords::default();
        let (uid, container) = (want.identity.uid.as_str(), want.container.as_str());
        site.facts.begins(uid, container, clock.now());
        let end = match surroundings(&want, files.as_deref()).await {
            Ok((mounts, log)) => {
                show_files(&mounts);
                let own = tasks.child();
                let stop = own.token().clone();
                let directory = files.as_ref().map(|it| it.directory().to_owned());
                let setting = setting(&recorder, &clock, &words, mounts.clone(), directory);
                if files.is_none() && !want.mounts.is_empty() {
                    recorder
                        .say(&clock, "this program has no files: no directory for them was given");
                }
                let program = binary.run(setting, own);
                let code = conduct(program, stop, &recorder, mounts, &mut order, &mut tasks).await;
                read_log(log, &words).await;
                code
            }
            Err(message) => {
                words.set(&message);
                recorder.say(&clock, &message);
                NOT_STARTED
            }
        };
        // Nothing of the run outlives it.
        tasks.token().cancel();
        while tasks.join().await.is_err() {}
        site.facts.ends(uid, container);
        let mut message = words.get();
        if message.is_empty()
            && end != 0
            && want.termination_policy == TerminationMessagePolicy::FallbackToLogsOnError
        {
            message = recorder.tail();
        }
        recorder.tell(ProgramState::Exited { code: end.into(), at: clock.now(), message });
        drop(files);
    }
}

/// Where the volumes of a container are, and the file of its last words, if there is one.
async fn surroundings(
    want: &Wanted,
    files: Option<&PodFiles>,
) -> Result<(Mounts, Option<PathBuf>), String> {
    let Some(files) = files else { return Ok((Mounts::default(), None)) };
    files.written().await?;
    let own = files.directory().join("containers").join(&want.container);
    let log = own.join("termination-log");
    let empty = {
        let log = log.clone();
        move || make_directory(&own).and_then(|()| std::fs::write(&log, ""))
    };
    let made = tokio::task::spawn_blocking(empty).await.map_err(|it| it.to_string())?;
    made.map_err(|error| format!("could not make the file of last words: {error}"))?;
    let mut mounts = Mounts::below(files.directory()).with(&want.termination_log, &log, "")?;
    for mount in &want.mounts {
        mounts = mounts.with(&mount.path, &files.volume(&mount.volume), &mount.sub_path)?;
    }
    Ok((mounts, Some(log)))
}

/// What a program wrote to the file of last words counts unless it set others.
async fn read_log(log: Option<PathBuf>, words: &LastWords) {
    let Some(log) = log.filter(|_| words.get().is_empty()) else { return };
    // More than that is cut off anyway; the file may be any size.
    let read = tokio::task::spawn_blocking(move || read_bounded(&log, 16 * LastWords::MOST_BYTES));
    if let Ok(Ok(bytes)) = read.await {
        words.set(&String::from_utf8_lossy(&bytes));
    }
}

fn setting(
    recorder: &Arc<Recorder>,
    clock: &Clock,
    words: &LastWords,
    mounts: Mounts,
    directory: Option<PathBuf>,
) -> Setting {
    let (want, site) = (&recorder.want, &recorder.site);
    let ready = Arc::clone(recorder);
    let (says, clock) = (Arc::clone(recorder), clock.clone());
    Setting {
        pod: want.identity.pod.clone(),
        uid: want.identity.uid.to_string(),
        container: want.container.clone(),
        node: want.identity.node.clone(),
        environment: want.environment.clone(),
        program: want.program.clone(),
        args: want.args.clone(),
        address: want.address,
        ports: want.ports.clone(),
        devices: want.devices.clone(),
        mounts,
        directory,
        network: site.network.clone(),
        api: site.accounts.as_ref().map(|it| it.api(&want.identity)),
        set_ready: Box::new(move |is_ready| ready.tell(ProgramState::Running { ready: is_ready })),
        say: Box::new(move |text| says.say(&clock, text)),
        last_words: words.clone(),
    }
}

/// Runs a program with its probes and hooks until it ends or is ended, and answers with its code.
async fn conduct(
    program: Pin<Box<dyn Future<Output = u8> + Send>>,
    stop: CancellationToken,
    recorder: &Arc<Recorder>,
    files: Mounts,
    order: &mut watch::Receiver<Order>,
    tasks: &mut Tasks,
) -> u8 {
    let clock = tasks.clock().clone();
    let want = &recorder.want;
    let attempts = Arc::new(Attempts {
        network: Arc::new(recorder.site.network.clone()),
        address: want.address,
        shell: shell::Setting {
            hostname: want.hostname.clone(),
            variables: want.environment.clone().into_iter().collect(),
            tty: false,
            clock: clock.clone(),
            files,
        },
        clock: clock.clone(),
    });
    // Those that watch the program end before it is told to stop: what it does then is no news.
    let mut watchers = tasks.child();
    watch_over(recorder, &attempts, &mut watchers);
    let mut program = pin!(program);
    let shutdown = tasks.token().clone();
    let deadline = tokio::select! {
        biased;
        // May be dropped then: it has ended.
        code = program.as_mut() => return code,
        // Either may be dropped: they only wait.
        deadline = stopped(order) => deadline,
        () = shutdown.cancelled() => Some(clock.moment() + SHUTDOWN_GRACE),
    };
    watchers.token().cancel();
    drop(watchers);
    let Some(mut deadline) = deadline else { return KILLED };
    if let Some(attempt) = want.pre_stop.clone().filter(|_| !shutdown.is_cancelled()) {
        let hook = pre_stop(&attempts, attempt, deadline, &clock);
        let result = tokio::select! {
            biased;
            // May be dropped then: it has ended.
            code = program.as_mut() => return code,
            // May be dropped: it changes nothing here.
            result = hook => result,
            () = killed(order) => return KILLED,
        };
        if let Err(message) = result {
            recorder.hook_failed(Hook::PreStop, message);
        }
        deadline = deadline.max(clock.moment() + AFTER_HOOK);
    }
    stop.cancel();
    loop {
        let at = match *order.borrow_and_update() {
            Order::Run => deadline,
            Order::Stop(at) => at.min(deadline),
            Order::Kill => return KILLED,
        };
        tokio::select! {
            biased;
            // May be dropped when its time is over: that is how it is ended.
            code = program.as_mut() => return code,
            () = clock.sleep_until(at) => return KILLED,
            // May be dropped: the value is read again above.
            changed = order.changed() => if changed.is_err() {
                // Nobody gives orders any more: this process ends.
                deadline = deadline.min(clock.moment() + SHUTDOWN_GRACE);
                tokio::select! {
                    biased;
                    code = program.as_mut() => return code,
                    () = clock.sleep_until(deadline) => return KILLED,
                }
            },
        }
    }
}

async fn pre_stop(
    attempts: &Attempts,
    attempt: Result<Attempt, String>,
    deadline: Moment,
    clock: &Clock,
) -> Result<(), String> {
    attempts.make(&attempt?, deadline - clock.moment()).await
}

/// Returns when a run is to stop: at which moment it is ended, or nothing if at once.
async fn stopped(order: &mut watch::Receiver<Order>) -> Option<Moment> {
    match order.wait_for(|it| *it != Order::Run).await.map(|it| *it) {
        Ok(Order::Stop(at)) => Some(at),
        Ok(Order::Kill | Order::Run) => None,
        // Nobody gives orders any more: the end of the process does.
        Err(_) => std::future::pending().await,
    }
}

async fn killed(order: &mut watch::Receiver<Order>) {
    if order.wait_for(|it| *it == Order::Kill).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Starts the probes of a run and the hook after its start.
fn watch_over(recorder: &Arc<Recorder>, attempts: &Arc<Attempts>, tasks: &mut Tasks) {
    let want = &recorder.want;
    let started = CancellationToken::new();
    if !want.has_startup_probe {
        started.cancel();
    }
    for (kind, probe, attempt) in &want.probes {
        let prober = Prober {
            kind: *kind,
            probe: probe.clone(),
            attempt: attempt.clone(),
            attempts: Arc::clone(attempts),
            started: started.clone(),
        };
        let (recorder, clock) = (Arc::clone(recorder), tasks.clock().clone());
        tasks.spawn("probe", OnLoss::CarryOn, |stop| async move {
            let run = prober.run(&clock, |kind, tally| recorder.probed(kind, tally));
            tokio::select! {
                biased;
                // Either may be dropped: a probe changes nothing here.
                () = stop.cancelled() => {}
                () = run => {}
            }
            Ok(())
        });
    }
    if let Some(attempt) = want.post_start.clone() {
        let (recorder, attempts) = (Arc::clone(recorder), Arc::clone(attempts));
        tasks.spawn("post-start hook", OnLoss::CarryOn, |stop| async move {
            let hook = async {
                match attempt {
                    Ok(attempt) => attempts.make(&attempt, HOOK_TIMEOUT).await,
                    Err(why) => Err(why),
                }
            };
            tokio::select! {
                biased;
                // Either may be dropped: the run ends, and with it the hook.
                () = stop.cancelled() => {}
                result = hook => if let Err(message) = result {
                    recorder.hook_failed(Hook::PostStart, message);
                },
            }
            Ok(())
        });
    }
}
