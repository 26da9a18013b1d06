//! What becomes of the containers of a pod that its node has taken on.

use gantry_reconcile::{Note, Reference, View};
use jiff::{SignedDuration, Timestamp};

use super::health::{Condemned, Exit, Health};
use super::stage::{self, Stage, Wishes};
use super::{Settings, Tells, second};
use crate::pod_config::Unresolved;
use crate::view::{
    Container, ContainerState, ContainerStatus, Hook, Pod, RestartPolicy, Running, Terminated,
    Waiting,
};
use crate::{lot, programs};

/// The shortest wait before a container that failed again is started again.
const BACK_OFF: SignedDuration = SignedDuration::from_secs(10);
/// The longest.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_secs(300);
/// The code of a container that is killed.
const KILLED: i64 = 137;
/// A container that ran for so long is not held to have failed again.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(600);

/// Moves the containers of one pod on, as far as the time allows.
pub(super) struct Course<'a> {
    pub(super) settings: &'a Settings,
    pub(super) pod: &'a Pod,
    pub(super) wishes: &'a Wishes,
    /// What the programs of this pod did, and what their probes found.
    pub(super) health: &'a Health,
    /// Whether what a container is configured with is there.
    pub(super) configured: &'a dyn Fn(&Container) -> Result<(), Unresolved>,
    pub(super) now: Timestamp,
    /// When something comes next.
    pub(super) next: Option<Timestamp>,
    /// What is worth telling.
    pub(super) notes: Vec<Note>,
}

/// How far an init container is.
enum Progress {
    /// Whatever comes after it may start, counted from then.
    Past(Timestamp),
    /// It must be waited for.
    Busy,
}

/// Whether a container is started before the others and stays.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy == Some(RestartPolicy::Always)
}

impl Course<'_> {
    /// Moves all containers on. `from` is when the node took the pod on.
    pub(super) fn advance(
        &mut self,
        inits: &mut [ContainerStatus],
        mains: &mut [ContainerStatus],
        mut from: Timestamp,
    ) {
        let pod = self.pod;
        let begun = mains.iter().any(|it| it.started || it.last_state != ContainerState::default());
        for (container, status) in pod.spec.init_containers.iter().zip(inits.iter_mut()) {
            match self.init(container, status, from) {
                Progress::Past(at) => from = at,
                // Sidecars may fall over later: what runs already does not wait for them again.
                Progress::Busy if begun => {}
                Progress::Busy => return,
            }
        }
        let policy = pod.spec.restart_policy;
        for (container, status) in pod.spec.containers.iter().zip(mains.iter_mut()) {
            self.main(container, status, policy, from);
        }
        if mains.iter().all(|it| is_over(it, policy)) {
            let sidecars = pod.spec.init_containers.iter().zip(inits);
            for (_, status) in sidecars.filter(|(container, _)| is_sidecar(container)) {
                self.stop(status, 0);
            }
        }
    }

    fn init(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        from: Timestamp,
    ) -> Progress {
        if is_sidecar(container) {
            self.main(container, status, RestartPolicy::Always, from);
            return match &status.state.running {
                Some(running) if status.started => {
                    Progress::Past(running.started_at.unwrap_or(from))
                }
                Some(_) | None => Progress::Busy,
            };
        }
        let policy = match self.pod.spec.restart_policy {
            RestartPolicy::Never => RestartPolicy::Never,
            // An init container that ended well has done its work.
            RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
        };
        self.start_when_due(container, status, policy, from, Stage::InitRunning);
        if let Some(started) = running_since(status) {
            let end = if self.settings.is_program(container) {
                self.exit_of(status)
            } else {
                let wait = self.delay(Stage::InitCompleted, &container.name);
                self.is_due(started, wait).then(|| self.ends_with(0))
            };
            match end {
                Some(end) => self.end_run(container, status, end),
                None => return Progress::Busy,
            }
        }
        match &status.state.terminated {
            Some(end) if end.exit_code == 0 => {
                status.ready = true;
                Progress::Past(end.finished_at.unwrap_or(from))
            }
            Some(_) | None => Progress::Busy,
        }
    }

    fn main(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        policy: RestartPolicy,
        from: Timestamp,
    ) {
        let ran = running_since(status);
        let stage = if is_sidecar(container) { Stage::InitRunning } else { Stage::Ready };
        self.start_when_due(container, status, policy, from, stage);
        // What starts now is seen running before it is seen to end.
        if let Some(started) = ran
            && let Some(end) = self.end_of(container, status, started)
        {
            self.end_run(container, status, end);
        }
        let (runs, run) = (running_since(status).is_some(), status.restart_count);
        let is_program = self.settings.is_program(container);
        status.started = runs && (!is_program || self.health.is_started(container, run));
        status.ready = runs
            && !self.wishes.never_ready
            && (!is_program || self.health.is_ready(container, run));
        if runs {
            // As often as it is looked at: what is said again is counted, not repeated.
            for words in self.health.unhealthy(&container.name, run) {
                self.tell_trouble(container, "Unhealthy", words);
            }
        }
    }

    fn ends_with(&self, code: i64) -> Exit {
        Exit { code, at: self.now, message: String::new() }
    }

    /// Ends a run of a container, and says what led to it.
    fn end_run(&mut self, container: &Container, status: &mut ContainerStatus, end: Exit) {
        let (name, run) = (&container.name, status.restart_count);
        if let Some(failed) = self.health.failed_hook(name, run).cloned() {
            let (reason, words) = match failed.hook {
                Hook::PostStart => ("FailedPostStartHook", "PostStartHook failed"),
                Hook::PreStop => ("FailedPreStopHook", "PreStopHook failed"),
            };
            self.tell_trouble(container, reason, format!("{words}: {}", failed.message));
        }
        let probe = match self.health.condemned(self.pod, container, run) {
            Some(Condemned::NotStarted) => Some("failed startup probe"),
            Some(Condemned::NotLive) => Some("failed liveness probe"),
            Some(Condemned::PostStart) => {
                self.tell(container, "Killing", "FailedPostStartHook".to_owned());
                None
            }
            Some(Condemned::Killed) | None => None,
        };
        if let Some(why) = probe {
            let restarts = self.pod.spec.restart_policy != RestartPolicy::Never;
            let then = if restarts { ", will be restarted" } else { "" };
            self.tell(container, "Killing", format!("Container {name} {why}{then}"));
        }
        Self::end(status, end);
    }

    /// Whether a main container that runs since `started` has come to its end.
    fn end_of(
        &mut self,
        container: &Container,
        status: &ContainerStatus,
        started: Timestamp,
    ) -> Option<Exit> {
        if self.settings.is_program(container) {
            return self.exit_of(status);
        }
        if self.wishes.kills(status.restart_count) {
            return Some(self.ends_with(KILLED));
        }
        if is_sidecar(container) {
            return None;
        }
        let code = self.wishes.exit_code(status.restart_count);
        let (wait, code) = if let Some(wait) = self.wishes.crash_after {
            (wait, code.unwrap_or(1))
        } else if let Some(wait) = self.wishes.run_for {
            (wait, code.unwrap_or(0))
        } else if code.is_some() || self.has_an_end() {
            let drawn_for = format!("{}{}", container.name, status.restart_count);
            (self.delay(Stage::Complete, &drawn_for), code.unwrap_or(0))
        } else {
            return None;
        };
        self.is_due(started, wait).then(|| self.ends_with(code))
    }

    /// Pods of jobs do their work and end; all others stay.
    fn has_an_end(&self) -> bool {
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
            if !is_over(status, policy) {
                self.restart(container, status, &end);
            }
        } else if let Some(last) = status.last_state.terminated.clone() {
            let wait = back_off(status.restart_count, &last);
            if self.is_due(last.finished_at.unwrap_or(from), wait)
                && self.is_configured(container, status)
            {
                status.restart_count += 1;
                self.start(container, status);
            }
        } else if let Some(why) = self.wishes.pull_error.clone() {
            self.fail_to_pull(container, status, &why, from);
        } else if self.is_due(from, self.delay(stage, &container.name))
            && self.is_configured(container, status)
        {
            self.start(container, status);
        }
    }

    /// Whether a container has what it is configured with; it waits and says why if not.
    fn is_configured(&mut self, container: &Container, status: &mut ContainerStatus) -> bool {
        match (self.configured)(container) {
            Ok(()) => true,
            // It goes on when the objects it names were read.
            Err(Unresolved::Pending) => false,
            Err(Unresolved::Fault(why)) => {
                self.tell_trouble(container, "Failed", format!("Error: {why}"));
                status.state = waiting("CreateContainerConfigError", why);
                false
            }
        }
    }

    /// Starts a container that has ended again, at once or after a wait.
    fn restart(&mut self, container: &Container, status: &mut ContainerStatus, end: &Terminated) {
        let wait = back_off(status.restart_count, end);
        status.last_state = ContainerState { terminated: Some(end.clone()), ..Default::default() };
        if wait.is_zero() {
            status.state = ContainerState::default();
            if self.is_configured(container, status) {
                status.restart_count += 1;
                self.start(container, status);
            } else if status.state == ContainerState::default() {
                status.state = waiting("ContainerCreating", String::new());
            }
            return;
        }
        let meta = &self.pod.metadata;
        let pod = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        let name = &container.name;
        let message = format!("back-off {} restarting failed container={name} pod={pod}", go(wait));
        status.state = waiting("CrashLoopBackOff", message);
        self.tell_trouble(
            container,
            "BackOff",
            format!("Back-off restarting failed container {name} in pod {pod}"),
        );
        // Looks again when the wait is over.
        self.is_due(end.finished_at.unwrap_or(self.now), wait);
    }

    fn start(&mut self, container: &Container, status: &mut ContainerStatus) {
        let run = status.restart_count.to_string();
        let uid = self.pod.metadata.uid.as_str();
        let id = lot::digest(&[uid, &container.name, &run]);
        let repository = programs::repository(&container.image);
        status.image_id = format!("{repository}@sha256:{}", lot::digest(&[&container.image]));
        status.container_id = format!("gantry://{id}");
        let since = Running { started_at: Some(second(self.now)) };
        status.state = ContainerState { running: Some(since), ..Default::default() };
        status.started = true;
        let image = &container.image;
        self.tell(
            container,
            "Pulled",
            format!("Container image {image:?} already present on machine"),
        );
        self.tell(container, "Created", format!("Created container: {}", container.name));
        self.tell(container, "Started", format!("Started container {}", container.name));
    }

    fn end(status: &mut ContainerStatus, end: Exit) {
        let Exit { code, at, message } = end;
        let started_at = running_since(status);
        status.state = ContainerState {
            terminated: Some(Terminated {
                exit_code: code,
                reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
                container_id: status.container_id.clone(),
                started_at,
                finished_at: Some(second(at).max(started_at.unwrap_or(at))),
                message,
            }),
            ..Default::default()
        };
        status.ready = false;
        status.started = false;
    }

    /// Stops a container that runs, with the code of its program if that has ended; one that waits will
    /// not run.
    pub(super) fn stop(&self, status: &mut ContainerStatus, code: i64) {
        if status.state.running.is_some() {
            let end = self.exit_of(status).unwrap_or_else(|| self.ends_with(code));
            Self::end(status, end);
        }
    }

    /// Says which hooks of containers failed before their end.
    pub(super) fn tell_failed_hooks(&mut self) {
        let pod = self.pod;
        let statuses = &pod.status.container_statuses;
        for (container, status) in pod.spec.containers.iter().zip(statuses) {
            let failed = self.health.failed_hook(&container.name, status.restart_count);
            if let Some(message) =
                failed.filter(|it| it.hook == Hook::PreStop).map(|it| &it.message)
            {
                let words = format!("PreStopHook failed: {message}");
                self.tell_trouble(container, "FailedPreStopHook", words);
            }
        }
    }

    fn fail_to_pull(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        why: &str,
        from: Timestamp,
    ) {
        let image = &container.image;
        let reason = status.state.waiting.as_ref().map(|it| it.reason.as_str());
        match reason {
            Some("ImagePullBackOff") => {}
            Some("ErrImagePull") => {
                if self.is_due(from, BACK_OFF) {
                    let message = format!("Back-off pulling image {image:?}: ErrImagePull: {why}");
                    status.state = waiting("ImagePullBackOff", message);
                    let note = self.note(
                        container,
                        "BackOff",
                        format!("Back-off pulling image {image:?}"),
                    );
                    self.notes.push(Note { tone: gantry_reconcile::plan::Tone::Normal, ..note });
                    self.tell_trouble(container, "Failed", "Error: ImagePullBackOff".to_owned());
                }
            }
            Some(_) | None => {
                status.state = waiting("ErrImagePull", why.to_owned());
                self.tell(container, "Pulling", format!("Pulling image {image:?}"));
                let failed = format!("Failed to pull image {image:?}: {why}");
                self.tell_trouble(container, "Failed", failed);
                self.tell_trouble(container, "Failed", "Error: ErrImagePull".to_owned());
                self.is_due(from, BACK_OFF);
            }
        }
    }

    /// Whether `wait` is over since `from`. If not, it is looked at again then.
    pub(super) fn is_due(&mut self, from: Timestamp, wait: SignedDuration) -> bool {
        let at = from.checked_add(wait).unwrap_or(Timestamp::MAX);
        if at > self.now {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
        at <= self.now
    }

    pub(super) fn delay(&self, stage: Stage, drawn_for: &str) -> SignedDuration {
        stage::delay(self.settings.profile, &self.pod.metadata, stage, drawn_for)
    }

    /// How the program of this run of a container ended, if it has.
    fn exit_of(&self, status: &ContainerStatus) -> Option<Exit> {
        self.health.exit(&status.name, status.restart_count)
    }

    fn note(&self, container: &Container, reason: &'static str, message: String) -> Note {
        let init = self.pod.spec.init_containers.iter().any(|it| it.name == container.name);
        let list = if init { "initContainers" } else { "containers" };
        let about = Reference {
            field: format!("spec.{list}{{{}}}", container.name),
            ..Reference::to(&Pod::RESOURCE, &self.pod.metadata)
        };
        Note::warning(about, reason, message)
    }

    fn tell_trouble(&mut self, container: &Container, reason: &'static str, message: String) {
        let note = self.note(container, reason, message);
        self.notes.push(note);
    }

    pub(super) fn tell(&mut self, container: &Container, reason: &'static str, message: String) {
        match self.settings.tells {
            Tells::Trouble => {}
            Tells::All => {
                let note = self.note(container, reason, message);
                self.notes.push(Note { tone: gantry_reconcile::plan::Tone::Normal, ..note });
            }
        }
    }
}

/// Since when a container runs.
pub(super) fn running_since(status: &ContainerStatus) -> Option<Timestamp> {
    status.state.running.as_ref().map(|it| it.started_at.unwrap_or_default())
}

/// Whether a container has ended and is not started again.
pub(super) fn is_over(status: &ContainerStatus, policy: RestartPolicy) -> bool {
    let Some(end) = &status.state.terminated else { return false };
    match policy {
        RestartPolicy::Always => false,
        RestartPolicy::OnFailure => end.exit_code == 0,
        RestartPolicy::Never => true,
    }
}

/// A container that waits.
pub(super) fn waiting(reason: &str, message: String) -> ContainerState {
    let waiting = Waiting { reason: reason.to_owned(), message };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

/// How long a container waits that has ended for the `ends`-th time after the first.
fn back_off(ends: i64, last: &Terminated) -> SignedDuration {
    let ran = match (last.started_at, last.finished_at) {
        (Some(from), Some(to)) => to.duration_since(from),
        (None, _) | (_, None) => SignedDuration::ZERO,
    };
    if ends == 0 || ran >= FORGIVEN {
        return SignedDuration::ZERO;
    }
    // Five doublings exceed the longest wait.
    let doublings = u32::try_from(ends - 1).unwrap_or_default().min(5);
    (BACK_OFF * 2_i32.pow(doublings)).min(LONGEST_BACK_OFF)
}

/// A number of seconds as Go writes durations: `10s`, `2m40s`.
fn go(wait: SignedDuration) -> String {
    match (wait.as_secs() / 60, wait.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
