//! Advances the containers of a pod that its node has admitted.

use gantry_kube_controllers::deterministic_random;
use gantry_kube_controllers::status::truncate_to_seconds;
use gantry_reconcile::{Event, ObjectReference, View};
use jiff::{SignedDuration, Timestamp};

use super::health::{PodHealth, ProgramExit, StopReason};
use super::image_pull::ImageState;
use super::stage::{self, SimulationAnnotations, Stage};
use super::{EventPolicy, Settings};
use crate::pod_config::Unresolved;
use crate::view::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Hook, Pod, RestartPolicy,
};

/// The shortest restart backoff.
pub(super) const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// The longest restart backoff.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);
/// The exit code of a container that is killed.
const KILLED_EXIT_CODE: i64 = 137;
/// A container that ran for this long restarts without backoff.
const BACKOFF_RESET_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// Advances the containers of one pod, as far as the time allows.
pub(super) struct PodSync<'a> {
    pub(super) settings: &'a Settings,
    pub(super) pod: &'a Pod,
    pub(super) annotations: &'a SimulationAnnotations,
    /// The state of the pod's programs, and their probe results.
    pub(super) health: &'a PodHealth,
    /// Whether the configuration of a container is available.
    pub(super) configured: &'a dyn Fn(&Container) -> Result<(), Unresolved>,
    /// Whether the image of a container is available.
    pub(super) pulled: &'a dyn Fn(&Container) -> ImageState,
    /// When the node was rebooted, if it ever was.
    pub(super) booted_at: Option<Timestamp>,
    pub(super) now: Timestamp,
    /// When the pod is requeued.
    pub(super) requeue_at: Option<Timestamp>,
    /// The events to record.
    pub(super) notes: Vec<Event>,
}

/// The progress of an init container.
enum InitProgress {
    /// The init container is done; the next one may start, counted from this time.
    Completed(Timestamp),
    /// The init container is not done; the next one waits.
    InProgress,
}

/// Returns whether an init container is a sidecar: it starts before the others and keeps running.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy == Some(RestartPolicy::Always)
}

impl PodSync<'_> {
    /// Advances all containers. `from` is when the node admitted the pod.
    pub(super) fn advance(
        &mut self,
        inits: &mut [ContainerStatus],
        mains: &mut [ContainerStatus],
        mut from: Timestamp,
    ) {
        let pod = self.pod;
        for status in inits.iter_mut().chain(mains.iter_mut()) {
            self.end_before_boot(status);
        }
        let begun = mains.iter().any(|it| it.started || it.last_state != ContainerState::default());
        for (container, status) in pod.spec.init_containers.iter().zip(inits.iter_mut()) {
            match self.advance_init_containers(container, status, from) {
                InitProgress::Completed(at) => from = at,
                // Sidecars may fail later: started containers do not wait for them again.
                InitProgress::InProgress if begun => {}
                InitProgress::InProgress => return,
            }
        }
        let policy = pod.spec.restart_policy;
        for (container, status) in pod.spec.containers.iter().zip(mains.iter_mut()) {
            self.advance_main_containers(container, status, policy, from);
        }
        if mains.iter().all(|it| is_finished(it, policy)) {
            let sidecars = pod.spec.init_containers.iter().zip(inits);
            for (_, status) in sidecars.filter(|(container, _)| is_sidecar(container)) {
                self.stop(status, 0);
            }
        }
    }

    fn advance_init_containers(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        from: Timestamp,
    ) -> InitProgress {
        if is_sidecar(container) {
            self.advance_main_containers(container, status, RestartPolicy::Always, from);
            return match &status.state.running {
                Some(running) if status.started => {
                    InitProgress::Completed(running.started_at.unwrap_or(from))
                }
                Some(_) | None => InitProgress::InProgress,
            };
        }
        let policy = match self.pod.spec.restart_policy {
            RestartPolicy::Never => RestartPolicy::Never,
            // An init container that succeeded is not restarted.
            RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
        };
        self.start_when_due(container, status, policy, from, Stage::InitRunning);
        if let Some(started) = running_since(status) {
            let end = if self.settings.is_program(container) {
                self.exit_of(status)
            } else {
                let wait = self.delay(Stage::InitCompleted, &container.name);
                self.is_due(started, wait).then(|| self.exit_with(0))
            };
            match end {
                Some(end) => self.end_run(container, status, end),
                None => return InitProgress::InProgress,
            }
        }
        match &status.state.terminated {
            Some(end) if end.exit_code == 0 => {
                status.ready = true;
                InitProgress::Completed(end.finished_at.unwrap_or(from))
            }
            Some(_) | None => InitProgress::InProgress,
        }
    }

    fn advance_main_containers(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        policy: RestartPolicy,
        from: Timestamp,
    ) {
        let ran = running_since(status);
        let stage = if is_sidecar(container) { Stage::InitRunning } else { Stage::Ready };
        self.start_when_due(container, status, policy, from, stage);
        // A run that starts now is observed running before it is observed to end.
        if let Some(started) = ran
            && let Some(end) = self.due_exit(container, status, started)
        {
            self.end_run(container, status, end);
        }
        let (runs, run) = (running_since(status).is_some(), status.restart_count);
        let is_program = self.settings.is_program(container);
        status.started = runs && (!is_program || self.health.is_started(container, run));
        status.ready = runs
            && !self.annotations.never_ready
            && (!is_program || self.health.is_ready(container, run));
        if runs {
            // As often as the pod is synced: repeated events are counted, not repeated.
            for words in self.health.probe_failures(&container.name, run) {
                self.record_warning(container, "Unhealthy", words);
            }
        }
    }

    fn exit_with(&self, code: i64) -> ProgramExit {
        ProgramExit { code, at: self.now, message: String::new() }
    }

    /// Ends a run of a container, and records the event that led to it.
    fn end_run(&mut self, container: &Container, status: &mut ContainerStatus, end: ProgramExit) {
        let (name, run) = (&container.name, status.restart_count);
        if let Some(failed) = self.health.failed_hook(name, run).cloned() {
            let (reason, words) = match failed.hook {
                Hook::PostStart => ("FailedPostStartHook", "PostStartHook failed"),
                Hook::PreStop => ("FailedPreStopHook", "PreStopHook failed"),
            };
            self.record_warning(container, reason, format!("{words}: {}", failed.message));
        }
        let probe = match self.health.stop_reason(self.pod, container, run) {
            Some(StopReason::StartupProbeFailed) => Some("failed startup probe"),
            Some(StopReason::LivenessProbeFailed) => Some("failed liveness probe"),
            Some(StopReason::PostStartHookFailed) => {
                self.record_event(container, "Killing", "FailedPostStartHook".to_owned());
                None
            }
            Some(StopReason::Killed) | None => None,
        };
        if let Some(why) = probe {
            let restarts = self.pod.spec.restart_policy != RestartPolicy::Never;
            let then = if restarts { ", will be restarted" } else { "" };
            self.record_event(container, "Killing", format!("Container {name} {why}{then}"));
        }
        Self::end(status, end);
    }

    /// Returns the exit that is due for a main container that has run since `started`, if one is.
    fn due_exit(
        &mut self,
        container: &Container,
        status: &ContainerStatus,
        started: Timestamp,
    ) -> Option<ProgramExit> {
        if self.settings.is_program(container) {
            return self.exit_of(status);
        }
        if self.annotations.kills_run(status.restart_count) {
            return Some(self.exit_with(KILLED_EXIT_CODE));
        }
        if is_sidecar(container) {
            return None;
        }
        let code = self.annotations.exit_code(status.restart_count);
        let (wait, code) = if let Some(wait) = self.annotations.crash_after {
            (wait, code.unwrap_or(1))
        } else if let Some(wait) = self.annotations.run_for {
            (wait, code.unwrap_or(0))
        } else if code.is_some() || self.runs_to_completion() {
            let drawn_for = format!("{}{}", container.name, status.restart_count);
            (self.delay(Stage::Complete, &drawn_for), code.unwrap_or(0))
        } else {
            return None;
        };
        self.is_due(started, wait).then(|| self.exit_with(code))
    }

    /// Returns whether the containers complete by themselves, as those of jobs do.
    fn runs_to_completion(&self) -> bool {
        self.pod.metadata.owner_references.iter().any(|it| it.kind == "Job")
    }

    fn start_when_due(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        policy: RestartPolicy,
        from: Timestamp,
        stage: Stage,
    ) {
        let state = &status.state;
        if state.running.is_some() {
        } else if let Some(end) = state.terminated.clone() {
            if !is_finished(status, policy) {
                self.restart(container, status, &end);
            }
        } else if let Some(last) = status.last_state.terminated.clone() {
            let wait = restart_backoff(status.restart_count, &last);
            if self.is_due(last.finished_at.unwrap_or(from), wait)
                && let Some(image_id) = self.pull(container, status, from)
                && self.is_configured(container, status)
            {
                status.restart_count += 1;
                self.start(container, status, image_id);
            }
        } else if let Some(why) = self.annotations.pull_error.clone() {
            self.fail_to_pull(container, status, &why, from);
        } else if self.is_due(from, self.delay(stage, &container.name))
            && let Some(image_id) = self.pull(container, status, from)
            && self.is_configured(container, status)
        {
            self.start(container, status, image_id);
        }
    }

    /// Returns whether the configuration of a container is available; if not, the container waits.
    fn is_configured(&mut self, container: &Container, status: &mut ContainerStatus) -> bool {
        match (self.configured)(container) {
            Ok(()) => true,
            // The container starts when the objects it references were read.
            Err(Unresolved::Pending) => false,
            Err(Unresolved::Invalid(why)) => {
                self.record_warning(container, "Failed", format!("Error: {why}"));
                status.state = waiting("CreateContainerConfigError", why);
                false
            }
        }
    }

    /// Restarts a container that has ended, immediately or after a backoff.
    fn restart(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        end: &ContainerStateTerminated,
    ) {
        let wait = restart_backoff(status.restart_count, end);
        status.last_state = ContainerState { terminated: Some(end.clone()), ..Default::default() };
        if wait.is_zero() {
            status.state = ContainerState::default();
            let image_id = self.pull(container, status, self.now);
            if let Some(image_id) = image_id
                && self.is_configured(container, status)
            {
                status.restart_count += 1;
                self.start(container, status, image_id);
            } else if status.state == ContainerState::default() {
                status.state = waiting("ContainerCreating", String::new());
            }
            return;
        }
        let meta = &self.pod.metadata;
        let pod = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        let name = &container.name;
        let message =
            format!("back-off {} restarting failed container={name} pod={pod}", go_duration(wait));
        status.state = waiting("CrashLoopBackOff", message);
        self.record_warning(
            container,
            "BackOff",
            format!("Back-off restarting failed container {name} in pod {pod}"),
        );
        // Requeues the pod when the backoff is over.
        self.is_due(end.finished_at.unwrap_or(self.now), wait);
    }

    fn start(&mut self, container: &Container, status: &mut ContainerStatus, image_id: String) {
        let run = status.restart_count.to_string();
        let uid = self.pod.metadata.uid.as_str();
        let id = deterministic_random::digest(&[uid, &container.name, &run]);
        status.image_id = image_id;
        status.container_id = format!("gantry://{id}");
        let since = ContainerStateRunning { started_at: Some(truncate_to_seconds(self.now)) };
        status.state = ContainerState { running: Some(since), ..Default::default() };
        status.started = true;
        self.record_pulled(container);
        self.record_event(container, "Created", format!("Created container: {}", container.name));
        self.record_event(container, "Started", format!("Started container {}", container.name));
    }

    pub(super) fn end(status: &mut ContainerStatus, end: ProgramExit) {
        let ProgramExit { code, at, message } = end;
        let started_at = running_since(status);
        status.state = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: code,
                reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
                container_id: status.container_id.clone(),
                started_at,
                finished_at: Some(truncate_to_seconds(at).max(started_at.unwrap_or(at))),
                message,
            }),
            ..Default::default()
        };
        status.ready = false;
        status.started = false;
    }

    /// Stops a running container, with the exit code of its program if that has ended; a waiting
    /// one does not start any more.
    pub(super) fn stop(&self, status: &mut ContainerStatus, code: i64) {
        if status.state.running.is_some() {
            let end = self.exit_of(status).unwrap_or_else(|| self.exit_with(code));
            Self::end(status, end);
        }
    }

    /// Records events about failed `preStop` hooks of containers.
    pub(super) fn report_failed_hooks(&mut self) {
        let pod = self.pod;
        let statuses = &pod.status.container_statuses;
        for (container, status) in pod.spec.containers.iter().zip(statuses) {
            let failed = self.health.failed_hook(&container.name, status.restart_count);
            if let Some(message) =
                failed.filter(|it| it.hook == Hook::PreStop).map(|it| &it.message)
            {
                let words = format!("PreStopHook failed: {message}");
                self.record_warning(container, "FailedPreStopHook", words);
            }
        }
    }

    /// Returns whether `wait` is over since `from`. If not, the pod is requeued then.
    pub(super) fn is_due(&mut self, from: Timestamp, wait: SignedDuration) -> bool {
        let at = from.checked_add(wait).unwrap_or(Timestamp::MAX);
        if at > self.now {
            self.requeue_at = Some(self.requeue_at.map_or(at, |next| next.min(at)));
        }
        at <= self.now
    }

    pub(super) fn delay(&self, stage: Stage, drawn_for: &str) -> SignedDuration {
        stage::delay(self.settings.profile, &self.pod.metadata, stage, drawn_for)
    }

    /// Returns how the program of this run of a container exited, if it has.
    fn exit_of(&self, status: &ContainerStatus) -> Option<ProgramExit> {
        self.health.exit(&status.name, status.restart_count)
    }

    pub(super) fn container_event(
        &self,
        container: &Container,
        reason: &'static str,
        message: String,
    ) -> Event {
        let init = self.pod.spec.init_containers.iter().any(|it| it.name == container.name);
        let list = if init { "initContainers" } else { "containers" };
        let about = ObjectReference {
            field: format!("spec.{list}{{{}}}", container.name),
            ..ObjectReference::to(&Pod::RESOURCE, &self.pod.metadata)
        };
        Event::warning(about, reason, message)
    }

    pub(super) fn record_warning(
        &mut self,
        container: &Container,
        reason: &'static str,
        message: String,
    ) {
        let note = self.container_event(container, reason, message);
        self.notes.push(note);
    }

    pub(super) fn record_event(
        &mut self,
        container: &Container,
        reason: &'static str,
        message: String,
    ) {
        match self.settings.events {
            EventPolicy::WarningsOnly => {}
            EventPolicy::All => {
                let note = self.container_event(container, reason, message);
                self.notes
                    .push(Event { event_type: gantry_reconcile::plan::EventType::Normal, ..note });
            }
        }
    }
}

/// Returns since when a container runs.
pub(super) fn running_since(status: &ContainerStatus) -> Option<Timestamp> {
    status.state.running.as_ref().map(|it| it.started_at.unwrap_or_default())
}

/// Returns whether a container has ended and is not restarted.
pub(super) fn is_finished(status: &ContainerStatus, policy: RestartPolicy) -> bool {
    let Some(end) = &status.state.terminated else { return false };
    match policy {
        RestartPolicy::Always => false,
        RestartPolicy::OnFailure => end.exit_code == 0,
        RestartPolicy::Never => true,
    }
}

/// Returns the state of a waiting container.
pub(super) fn waiting(reason: &str, message: String) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: reason.to_owned(), message };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

/// Returns the restart backoff of a container after the `ends`-th end following the first.
fn restart_backoff(ends: i64, last: &ContainerStateTerminated) -> SignedDuration {
    let ran = match (last.started_at, last.finished_at) {
        (Some(from), Some(to)) => to.duration_since(from),
        (None, _) | (_, None) => SignedDuration::ZERO,
    };
    if ends == 0 || ran >= BACKOFF_RESET_AFTER {
        return SignedDuration::ZERO;
    }
    // Five doublings exceed the longest backoff.
    let doublings = u32::try_from(ends - 1).unwrap_or_default().min(5);
    (INITIAL_BACKOFF * 2_i32.pow(doublings)).min(MAX_BACKOFF)
}

/// Formats seconds as Go formats durations: `10s`, `2m40s`.
fn go_duration(wait: SignedDuration) -> String {
    match (wait.as_secs() / 60, wait.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
