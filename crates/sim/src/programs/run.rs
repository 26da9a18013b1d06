//! One run of a program: from its files and hooks to its termination message.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::action::{ActionRunner, ResolvedAction};
use super::container_files::{mount_volumes, open_image, read_termination_log, shell_context};
use super::files::PodFiles;
use super::probe::{ProbeState, Prober};
use super::program_spec::ProgramSpec;
use super::{
    Binary, DevicePluginSocket, Mounts, ProgramContext, ProgramHost, ProgramRecorder,
    TerminationMessage, truncate,
};
use crate::image::RootFiles;
use crate::kernel::KernelAccess;
use crate::shell;
use crate::view::{
    ContainerKey, FailedHook, Hook, ProbeKey, ProbeKind, ProbeResult, Program, ProgramState,
    RegisteredDevices, TerminationMessagePolicy,
};

/// The exit code of a program that could not be started, as container runtimes have it.
const NOT_STARTED_EXIT_CODE: u8 = 128;
/// The exit code of a program that was killed.
const KILLED_EXIT_CODE: u8 = 137;
/// How long programs may take to stop when this process ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The time a program has at least after its `preStop` hook, as with kubelets.
const MIN_GRACE_AFTER_HOOK: Duration = Duration::from_secs(2);
/// The timeout of a `postStart` hook.
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// How much of the end of a log serves as the termination message: bytes and lines.
const LOG_FALLBACK_LIMITS: (usize, usize) = (2048, 80);

/// The signal to a run. It only ever escalates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunSignal {
    /// The run continues.
    Run,
    /// The program is to stop, and is killed at this time.
    Stop(Moment),
    /// The program is killed immediately.
    Kill,
}

impl RunSignal {
    /// Returns this signal after another one.
    pub(super) fn escalated_from(self, before: Self) -> Self {
        match (before, self) {
            (Self::Kill, _) | (_, Self::Kill) => Self::Kill,
            (Self::Stop(one), Self::Stop(two)) => Self::Stop(one.min(two)),
            (Self::Stop(at), Self::Run) | (Self::Run, Self::Stop(at)) => Self::Stop(at),
            (Self::Run, Self::Run) => Self::Run,
        }
    }
}

/// The inputs of one run.
pub(super) struct ProgramRun {
    pub(super) spec: ProgramSpec,
    pub(super) binary: Arc<dyn Binary>,
    pub(super) host: ProgramHost,
    pub(super) files: Option<Arc<PodFiles>>,
    /// The kernel of the node.
    pub(super) kernel: Option<KernelAccess>,
    pub(super) signal: watch::Receiver<RunSignal>,
    /// Whether nothing is recorded about the run any more.
    pub(super) silent: Arc<Mutex<bool>>,
    /// The number of the next registration of a device plugin.
    pub(super) next_registration: Arc<AtomicU64>,
    /// Makes the files of the container available to commands that are executed in it.
    pub(super) show_files: ShowFiles,
}

/// Called with the volumes and the image of a container.
type ShowFiles = Box<dyn FnOnce(&Mounts, &RootFiles) + Send>;

/// Records the progress of a run.
struct RunRecorder {
    host: ProgramHost,
    spec: ProgramSpec,
    silent: Arc<Mutex<bool>>,
    failed_hook: Mutex<Option<FailedHook>>,
    /// Whether the `postStart` hook has not succeeded yet: until then the container is not ready.
    awaits_hook: AtomicBool,
    state: Mutex<Option<ProgramState>>,
    tail: Mutex<VecDeque<String>>,
}

impl RunRecorder {
    fn key(&self) -> ContainerKey {
        ContainerKey::new(&self.spec.identity.pod, &self.spec.container)
    }

    /// Calls `record` under the lock that guarantees that recording is still allowed.
    fn unless_silent(&self, record: impl FnOnce(&dyn ProgramRecorder)) {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if !*silent {
            record(self.host.facts.as_ref());
        }
    }

    fn record_state(&self, state: ProgramState) {
        let mut last = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(state.clone());
        let failed_hook = self.failed_hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let state = match state {
            ProgramState::Running { .. } if self.awaits_hook.load(Ordering::SeqCst) => {
                ProgramState::Running { ready: false }
            }
            state => state,
        };
        let program =
            Program { uid: self.spec.identity.uid.clone(), run: self.spec.run, state, failed_hook };
        self.unless_silent(|facts| facts.record(self.key(), program));
    }

    /// Records that the `postStart` hook succeeded.
    fn record_started(&self) {
        self.awaits_hook.store(false, Ordering::SeqCst);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(state) = state {
            self.record_state(state);
        }
    }

    fn record_failed_hook(&self, hook: Hook, message: String) {
        let failed = FailedHook { hook, message };
        *self.failed_hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.record_state(state.unwrap_or(ProgramState::Running { ready: false }));
    }

    fn record_probe(&self, probe: ProbeKind, probe_state: &ProbeState) {
        let result = ProbeResult {
            uid: self.spec.identity.uid.clone(),
            run: self.spec.run,
            verdict: probe_state.verdict,
            failure: probe_state.failure.clone(),
            consecutive: probe_state.consecutive,
        };
        let key = ProbeKey { container: self.key(), probe };
        self.unless_silent(|facts| facts.record_probe(key, result));
    }

    fn append_log(&self, clock: &Clock, text: &str) {
        let (uid, container) = (self.spec.identity.uid.as_str(), &self.spec.container);
        self.host.facts.append_log(uid, container, clock.now(), text);
        if self.spec.termination_policy == TerminationMessagePolicy::FallbackToLogsOnError {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            for line in text.lines() {
                tail.push_back(truncate(line, LOG_FALLBACK_LIMITS.0).to_owned());
                if tail.len() > LOG_FALLBACK_LIMITS.1 {
                    tail.pop_front();
                }
            }
        }
    }

    /// Returns the end of the log.
    fn log_tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let mut size = 0;
        let fits = tail.iter().rev().take_while(|it| {
            size += it.len() + 1;
            size <= LOG_FALLBACK_LIMITS.0
        });
        let mut lines: Vec<&str> = fits.map(String::as_str).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl ProgramRun {
    /// Runs the program to its end. `tasks` owns this run.
    pub(super) async fn run(self, mut tasks: Tasks) {
        let clock = tasks.clock().clone();
        let Self { spec: want, binary, host, files, kernel, signal, silent, .. } = self;
        let mut order = signal;
        let recorder = Arc::new(RunRecorder {
            host: host.clone(),
            spec: want.clone(),
            silent,
            failed_hook: Mutex::default(),
            awaits_hook: AtomicBool::new(want.post_start.is_some()),
            state: Mutex::default(),
            tail: Mutex::default(),
        });
        let words = TerminationMessage::default();
        let (uid, container) = (want.identity.uid.as_str(), want.container.as_str());
        host.facts.run_started(uid, container, clock.now());
        let mounted = match open_image(&want, &host, &clock).await {
            Ok(root) => mount_volumes(&want, files.as_deref()).await.map(|it| (root, it)),
            Err(message) => Err(message),
        };
        let end = match mounted {
            Ok((root, (mounts, log))) => {
                (self.show_files)(&mounts, &root);
                let shell = shell_context(&want, &clock, mounts.clone(), root, kernel);
                let own = tasks.child();
                let stop = own.token().clone();
                let directory = files.as_ref().map(|it| it.directory().to_owned());
                let mut context = program_context(&recorder, &clock, &words, &shell, directory);
                context.device_plugins = device_plugin_socket(&recorder, self.next_registration);
                if files.is_none() && !want.mounts.is_empty() {
                    recorder.append_log(
                        &clock,
                        "this program has no files: no directory for them was given",
                    );
                }
                let program = binary.run(context, own);
                let code = supervise(program, stop, &recorder, shell, &mut order, &mut tasks).await;
                read_termination_log(log, &words).await;
                code
            }
            Err(message) => {
                words.set(&message);
                recorder.append_log(&clock, &message);
                NOT_STARTED_EXIT_CODE
            }
        };
        // No task of the run outlives it.
        tasks.token().cancel();
        while tasks.join().await.is_err() {}
        host.facts.run_ended(uid, container);
        let mut message = words.get();
        if message.is_empty()
            && end != 0
            && want.termination_policy == TerminationMessagePolicy::FallbackToLogsOnError
        {
            message = recorder.log_tail();
        }
        recorder.record_state(ProgramState::Exited { code: end.into(), at: clock.now(), message });
        drop(files);
    }
}

fn program_context(
    recorder: &Arc<RunRecorder>,
    clock: &Clock,
    words: &TerminationMessage,
    shell: &shell::ShellContext,
    directory: Option<PathBuf>,
) -> ProgramContext {
    let (want, host) = (&recorder.spec, &recorder.host);
    let ready = Arc::clone(recorder);
    let (says, clock) = (Arc::clone(recorder), clock.clone());
    ProgramContext {
        pod: want.identity.pod.clone(),
        uid: want.identity.uid.to_string(),
        container: want.container.clone(),
        node: want.identity.node.clone(),
        environment: shell.variables.iter().cloned().collect(),
        program: want.program.clone(),
        args: want.args.clone(),
        address: want.address,
        ports: want.ports.clone(),
        devices: want.devices.clone(),
        extended_resources: want.extended_resources.clone(),
        mounts: shell.files.clone(),
        directory,
        network: host.network.clone(),
        api: host.accounts.as_ref().map(|it| it.api(&want.identity)),
        set_ready: Box::new(move |is_ready| {
            ready.record_state(ProgramState::Running { ready: is_ready });
        }),
        log: Box::new(move |text| says.append_log(&clock, text)),
        termination_message: words.clone(),
        shell: Some(shell.clone()),
        device_plugins: None,
    }
}

/// Returns where a program registers devices, if its container mounts that directory of the node.
fn device_plugin_socket(
    recorder: &Arc<RunRecorder>,
    next: Arc<AtomicU64>,
) -> Option<DevicePluginSocket> {
    let (node, host_paths) = (recorder.spec.node.clone()?, &recorder.spec.host_paths);
    let recorder = Arc::clone(recorder);
    let record = move |key, devices: Option<RegisteredDevices>| match devices {
        Some(_) => recorder.unless_silent(|facts| facts.record_devices(key, devices)),
        // Whenever the program ends: a registration that was recorded is removed.
        None => recorder.host.facts.record_devices(key, None),
    };
    DevicePluginSocket::in_container(node, host_paths, next, Arc::new(record))
}

/// Runs a program with its probes and hooks until it ends or is killed, and returns its exit code.
async fn supervise(
    program: Pin<Box<dyn Future<Output = u8> + Send>>,
    stop: CancellationToken,
    recorder: &Arc<RunRecorder>,
    shell: shell::ShellContext,
    order: &mut watch::Receiver<RunSignal>,
    tasks: &mut Tasks,
) -> u8 {
    let clock = tasks.clock().clone();
    let want = &recorder.spec;
    let attempts = Arc::new(ActionRunner {
        network: Arc::new(recorder.host.network.clone()),
        address: want.address,
        shell,
        clock: clock.clone(),
    });
    // Probes end before the program gets the stop signal: its state after that does not count.
    let mut watchers = tasks.child();
    start_probes_and_hook(recorder, &attempts, &mut watchers);
    let mut program = pin!(program);
    let shutdown = tasks.token().clone();
    let deadline = tokio::select! {
        biased;
        // May be dropped then: the program has ended.
        code = program.as_mut() => return code,
        // Either may be dropped: they only wait.
        deadline = wait_for_stop(order) => deadline,
        () = shutdown.cancelled() => Some(clock.moment() + SHUTDOWN_GRACE),
    };
    watchers.token().cancel();
    drop(watchers);
    let Some(mut deadline) = deadline else { return KILLED_EXIT_CODE };
    if let Some(attempt) = want.pre_stop.clone().filter(|_| !shutdown.is_cancelled()) {
        let hook = pre_stop(&attempts, attempt, deadline, &clock);
        let result = tokio::select! {
            biased;
            // May be dropped then: the program has ended.
            code = program.as_mut() => return code,
            // May be dropped: it changes nothing here.
            result = hook => result,
            () = wait_for_kill(order) => return KILLED_EXIT_CODE,
        };
        if let Err(message) = result {
            recorder.record_failed_hook(Hook::PreStop, message);
        }
        deadline = deadline.max(clock.moment() + MIN_GRACE_AFTER_HOOK);
    }
    stop.cancel();
    loop {
        let at = match *order.borrow_and_update() {
            RunSignal::Run => deadline,
            RunSignal::Stop(at) => at.min(deadline),
            RunSignal::Kill => return KILLED_EXIT_CODE,
        };
        tokio::select! {
            biased;
            // May be dropped when the grace period is over: that is how it is killed.
            code = program.as_mut() => return code,
            () = clock.sleep_until(at) => return KILLED_EXIT_CODE,
            // May be dropped: the value is read again above.
            changed = order.changed() => if changed.is_err() {
                // The runner is gone: this process ends.
                deadline = deadline.min(clock.moment() + SHUTDOWN_GRACE);
                tokio::select! {
                    biased;
                    code = program.as_mut() => return code,
                    () = clock.sleep_until(deadline) => return KILLED_EXIT_CODE,
                }
            },
        }
    }
}

async fn pre_stop(
    attempts: &ActionRunner,
    attempt: Result<ResolvedAction, String>,
    deadline: Moment,
    clock: &Clock,
) -> Result<(), String> {
    attempts.run(&attempt?, deadline - clock.moment()).await
}

/// Completes when a run is to stop: with the time at which it is killed, or `None` if immediately.
async fn wait_for_stop(order: &mut watch::Receiver<RunSignal>) -> Option<Moment> {
    match order.wait_for(|it| *it != RunSignal::Run).await.map(|it| *it) {
        Ok(RunSignal::Stop(at)) => Some(at),
        Ok(RunSignal::Kill | RunSignal::Run) => None,
        // The runner is gone: the end of the process stops the run.
        Err(_) => std::future::pending().await,
    }
}

async fn wait_for_kill(order: &mut watch::Receiver<RunSignal>) {
    if order.wait_for(|it| *it == RunSignal::Kill).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Starts the probes of a run and its `postStart` hook.
fn start_probes_and_hook(
    recorder: &Arc<RunRecorder>,
    attempts: &Arc<ActionRunner>,
    tasks: &mut Tasks,
) {
    let want = &recorder.spec;
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
            let run =
                prober.run(&clock, |kind, probe_state| recorder.record_probe(kind, probe_state));
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
                    Ok(attempt) => attempts.run(&attempt, HOOK_TIMEOUT).await,
                    Err(why) => Err(why),
                }
            };
            tokio::select! {
                biased;
                // Either may be dropped: the run ends, and with it the hook.
                () = stop.cancelled() => {}
                result = hook => match result {
                    Ok(()) => recorder.record_started(),
                    Err(message) => recorder.record_failed_hook(Hook::PostStart, message),
                },
            }
            Ok(())
        });
    }
}
