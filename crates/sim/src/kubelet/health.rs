//! The state of programs, their probes and their hooks. Pure.

use std::sync::Arc;

use gantry_reconcile::{Observed, Uid, World};
use jiff::Timestamp;

use super::Settings;
use super::stage::SimulationAnnotations;
use crate::view::{
    Container, FailedHook, Hook, Pod, ProbeKind, ProbeResult, ProbeVerdict, Program, ProgramState,
    probes_of, programs_of,
};

/// The state of the programs of one pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodHealth {
    uid: Uid,
    programs: Vec<(String, Arc<Observed<Program>>)>,
    probes: Vec<(String, ProbeKind, Arc<Observed<ProbeResult>>)>,
}

/// Why a program is stopped though its container should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The startup probe failed too often.
    StartupProbeFailed,
    /// The liveness probe failed too often.
    LivenessProbeFailed,
    /// The `postStart` hook failed.
    PostStartHookFailed,
    /// The pod's annotation asks for the container to be killed.
    Killed,
}

/// The exit of a program's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramExit {
    pub(crate) code: i64,
    pub(crate) at: Timestamp,
    pub(crate) message: String,
}

impl PodHealth {
    pub(crate) fn of(world: &World, pod: &Pod) -> Self {
        let key = pod.metadata.key();
        Self {
            uid: pod.metadata.uid.clone(),
            programs: programs_of(world, &key),
            probes: probes_of(world, &key),
        }
    }

    /// Returns the state of one run of a container.
    pub(crate) fn program(&self, container: &str, run: i64) -> Option<&Program> {
        let (_, program) = self.programs.iter().find(|(name, _)| name == container)?;
        let program = &program.value;
        (program.uid == self.uid && program.run == run).then_some(program)
    }

    pub(crate) fn exit(&self, container: &str, run: i64) -> Option<ProgramExit> {
        match &self.program(container, run)?.state {
            ProgramState::Running { .. } => None,
            ProgramState::Exited { code, at, message } => {
                Some(ProgramExit { code: *code, at: *at, message: message.clone() })
            }
        }
    }

    fn probe(&self, container: &str, run: i64, probe: ProbeKind) -> Option<&ProbeResult> {
        let mut all = self.probes.iter();
        let (_, _, found) = all.find(|(name, kind, _)| name == container && *kind == probe)?;
        let found = &found.value;
        (found.uid == self.uid && found.run == run).then_some(found)
    }

    fn verdict(&self, container: &str, run: i64, probe: ProbeKind) -> ProbeVerdict {
        self.probe(container, run, probe).map_or(ProbeVerdict::Undecided, |it| it.verdict)
    }

    /// Returns whether a run of a program has started, by its startup probe.
    pub(crate) fn is_started(&self, container: &Container, run: i64) -> bool {
        container.startup_probe.is_none()
            || self.verdict(&container.name, run, ProbeKind::Startup) == ProbeVerdict::Passing
    }

    /// Returns whether a run of a program is ready, by the program itself and its readiness probe.
    pub(crate) fn is_ready(&self, container: &Container, run: i64) -> bool {
        let program = self.program(&container.name, run);
        let says = program.is_some_and(|it| it.state == ProgramState::Running { ready: true });
        let probed = container.readiness_probe.is_none()
            || self.verdict(&container.name, run, ProbeKind::Readiness) == ProbeVerdict::Passing;
        says && probed && self.is_started(container, run)
    }

    /// Returns why a run of a program must be stopped, if it must.
    pub(crate) fn stop_reason(
        &self,
        pod: &Pod,
        container: &Container,
        run: i64,
    ) -> Option<StopReason> {
        let failing = |probe| self.verdict(&container.name, run, probe) == ProbeVerdict::Failing;
        if SimulationAnnotations::parse(&pod.metadata.annotations).kills_run(run) {
            return Some(StopReason::Killed);
        }
        if self.failed_hook(&container.name, run).is_some_and(|it| it.hook == Hook::PostStart) {
            return Some(StopReason::PostStartHookFailed);
        }
        if container.startup_probe.is_some() && failing(ProbeKind::Startup) {
            return Some(StopReason::StartupProbeFailed);
        }
        (container.liveness_probe.is_some() && failing(ProbeKind::Liveness))
            .then_some(StopReason::LivenessProbeFailed)
    }

    pub(crate) fn failed_hook(&self, container: &str, run: i64) -> Option<&FailedHook> {
        self.program(container, run)?.failed_hook.as_ref()
    }

    /// Returns the failures of the last attempts of a run's probes.
    pub(crate) fn probe_failures(&self, container: &str, run: i64) -> Vec<String> {
        let all = ProbeKind::ALL.into_iter().filter_map(|kind| {
            let failure = self.probe(container, run, kind)?.failure.as_ref()?;
            Some(format!("{} probe failed: {failure}", kind.as_str()))
        });
        all.collect()
    }

    /// Returns whether a program of the pod still runs that must be waited for.
    pub(crate) fn has_running_programs(&self, settings: &Settings, pod: &Pod) -> bool {
        let status = &pod.status;
        let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
        let statuses: Vec<_> = statuses.collect();
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.any(|container| {
            let status = statuses.iter().find(|it| it.name == container.name);
            settings.is_program(container)
                && status.is_some_and(|it| {
                    it.state.running.is_some()
                        && self.exit(&container.name, it.restart_count).is_none()
                })
        })
    }
}
