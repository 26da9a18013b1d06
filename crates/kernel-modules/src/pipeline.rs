//! How an image comes to be: it exists, is built, is signed.
//!
//! The state of a pipeline is derived and never stored: from what registries answer and from Jobs.
//! [`advance`] decides about one kernel of one Module: whether its image is ready, what it waits
//! for, and which Job should run. A stage that failed is repeated only when what it is made from
//! changes, and no failure of one stage starts another.

mod inputs;
mod job_pods;
mod states;

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_reconcile::{Meta, World};
use jiff::Timestamp;

use crate::facts::{are_newer, final_query};
use crate::job::{DesiredJob, JobContext, JobType, build_job, image_hash, job_name, sign_job};
use crate::job_failure;
use crate::kernel_plan::{BuildStage, KernelPlan, SignStage};
use crate::labels::{HASH_ANNOTATION, KERNEL_ANNOTATION, REBUILD_ANNOTATION};
use crate::view::{Job, JobState};
use job_pods::pods_of;
use states::{FoundImage, StageState};

/// What is decided about the image of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineDecision {
    /// Whether the image is ready.
    pub progress: Progress,
    /// What a Job should do now.
    pub job: Option<JobAction>,
    /// The names of all Jobs of this kernel, whether they exist or not.
    pub kept_jobs: Vec<String>,
    /// The names of those Jobs that exist and are no longer needed.
    pub collected_jobs: Vec<String>,
    /// When to decide again even if nothing changes.
    pub requeue_after: Option<Duration>,
    /// Whether the forced rebuild of this kernel is done, or there is none.
    pub is_rebuilt: bool,
}

/// What a Job should do.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAction {
    /// It should be created.
    Create(Box<DesiredJob>),
    /// An old one of that name should be deleted first.
    Replace {
        /// Its name.
        name: String,
    },
}

/// How far an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It can be run.
    Ready {
        /// Whether it was made from other inputs than those of the Module.
        outdated: Option<String>,
    },
    /// It will be ready without a user's help, as far as is known.
    Pending(Wait),
    /// A user has to do something.
    Failed {
        /// The reason in CamelCase.
        reason: &'static str,
        /// What happened, and what to do.
        message: String,
    },
}

/// What an image waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// What it waits for.
    pub message: String,
}

impl Progress {
    fn pending(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Pending(Wait { reason, message: message.into() })
    }

    fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }
}

/// How long a pushed image may take to be visible in its registry.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(120);

/// The inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct PipelineContext<'a> {
    /// The world.
    pub world: &'a World,
    /// What Jobs are made for.
    pub job: JobContext<'a>,
    /// The plan of the kernel.
    pub plan: &'a KernelPlan,
    /// Whether another Job may be started now.
    pub has_capacity: bool,
    /// The names of Jobs that the same plan creates for other kernels.
    pub planned_jobs: &'a BTreeSet<String>,
    /// Whether an outdated image is rebuilt.
    pub rebuild_outdated: bool,
    /// The current time.
    pub now: Timestamp,
}

/// Decides about the image of one kernel.
#[must_use]
pub fn advance(context: &PipelineContext<'_>) -> PipelineDecision {
    let mut decision = PipelineDecision {
        progress: Progress::Ready { outdated: None },
        job: None,
        kept_jobs: Vec::new(),
        collected_jobs: Vec::new(),
        requeue_after: None,
        is_rebuilt: true,
    };
    decision.progress = context.decide(&mut decision);
    decision
}

impl PipelineContext<'_> {
    fn decide(&self, decision: &mut PipelineDecision) -> Progress {
        let (build, sign) = (self.plan.build.as_ref(), self.plan.sign.as_ref());
        if build.is_none() && sign.is_none() {
            return Progress::Ready { outdated: None };
        }
        // Whatever is not known yet, such as after a restart: no Job is repeated for that.
        decision.kept_jobs = self.job_names();
        let is_forced = self.job.rebuild_trigger.is_some();
        decision.is_rebuilt = !is_forced;
        if let Some(mixed) = self.mixed_architectures() {
            return mixed;
        }
        let query = final_query(self.job.module, self.job.kernel, self.plan);
        let expected = self.expected_hash();
        let state = match self.image(&query) {
            Ok(state) => state,
            Err(progress) => return progress,
        };
        if let (FoundImage::Present { input_hash, at }, false) = (&state, is_forced) {
            let outdated = match (input_hash, &expected) {
                (Some(found), Ok(Some(expected))) => found != expected,
                _ => false,
            };
            if !outdated || !self.rebuild_outdated {
                self.collect_jobs(self.job_names(), *at, decision);
                let message = "its Dockerfile, build arguments, keys or files differ from those \
                               that it was made from; set build.rebuild to onChange, or \
                               increase imageRebuildTriggerGeneration";
                return Progress::Ready { outdated: outdated.then(|| message.to_owned()) };
            }
        }
        let progress = match (build, sign) {
            (_, Some(sign)) => self.sign(sign, &state, decision),
            (Some(build), None) => self.build(build, &state, decision),
            (None, None) => Progress::Ready { outdated: None },
        };
        if matches!(progress, Progress::Ready { .. }) && self.is_visible(&state) {
            decision.is_rebuilt = true;
        }
        progress
    }

    /// Whether a registry has shown the final image since the Job that pushed it ended: until then
    /// the Job alone says that the image was made again.
    fn is_visible(&self, state: &FoundImage) -> bool {
        let FoundImage::Present { at: observed, .. } = state else { return false };
        let (_, name) = self.final_job();
        let key = self.job.module.key.in_same_namespace(&name);
        let job = self.world.store::<Job>().get(&key);
        match job.map(|it| it.state()) {
            // Times of Jobs have whole seconds.
            Some(JobState::Succeeded { at: Some(at) }) => observed.as_second() > at.as_second(),
            Some(JobState::Succeeded { at: None }) => true,
            Some(JobState::Active | JobState::Failed { .. }) | None => false,
        }
    }

    /// Signs the image once there is an unsigned one.
    fn sign(
        &self,
        stage: &SignStage,
        state: &FoundImage,
        decision: &mut PipelineDecision,
    ) -> Progress {
        let expected = match self.expected_hash() {
            Ok(Some(hash)) => hash,
            Ok(None) => return Progress::pending("Checking", "reading its Secrets"),
            Err(progress) => return progress,
        };
        let desired = sign_job(&self.job, stage, &expected);
        let job = self.stage_state(&desired);
        let is_forced = self.job.rebuild_trigger.is_some();
        if let Some(build) = self.plan.build.as_ref().filter(|_| !is_forced)
            && let Ok(FoundImage::Present { at, .. }) = self.image(&self.unsigned_query(build))
        {
            self.collect_jobs(vec![job_name(JobType::Build, &build.output)], at, decision);
        }
        if !matches!(job, StageState::NoJob | StageState::Replaced) {
            return self.stage_progress(&desired, job, state, decision);
        }
        if let Some(missing) = self.missing_secret(stage.push_secret.as_slice()) {
            return missing;
        }
        // The input must be there before it is signed.
        if let Some(build) = &self.plan.build {
            let query = self.unsigned_query(build);
            let unsigned = match self.image(&query) {
                Ok(state) => state,
                Err(progress) => return progress,
            };
            let is_current = match (&unsigned, self.build_hash(build)) {
                (FoundImage::Present { input_hash: Some(found), .. }, Ok(Some(expected))) => {
                    *found == expected || !self.rebuild_outdated
                }
                (FoundImage::Present { .. }, _) => true,
                (FoundImage::Missing, _) => false,
            };
            if !is_current || is_forced {
                match self.build(build, &unsigned, decision) {
                    Progress::Ready { .. } => {}
                    progress => {
                        if matches!(job, StageState::Replaced) {
                            // It would sign what is about to be replaced.
                            decision.collected_jobs.push(desired.name);
                        }
                        return progress;
                    }
                }
            }
        }
        self.stage_progress(&desired, job, state, decision)
    }

    /// Builds an image.
    fn build(
        &self,
        stage: &BuildStage,
        state: &FoundImage,
        decision: &mut PipelineDecision,
    ) -> Progress {
        let digest = match self.source_digest(stage) {
            Ok(digest) => digest,
            Err(progress) => return progress,
        };
        if let Some(missing) = self.missing_secret(&stage.secrets) {
            return missing;
        }
        let desired = build_job(&self.job, stage, &digest);
        let job = self.stage_state(&desired);
        self.stage_progress(&desired, job, state, decision)
    }

    /// What follows from the Job of a stage.
    fn stage_progress(
        &self,
        desired: &DesiredJob,
        job: StageState,
        image: &FoundImage,
        decision: &mut PipelineDecision,
    ) -> Progress {
        let DesiredJob { job_type, name, image: output, .. } = desired;
        let (doing, failed) = match job_type {
            JobType::Build => ("Building", "BuildFailed"),
            JobType::Sign => ("Signing", "SignFailed"),
        };
        match job {
            StageState::NoJob => {
                let planned = self.planned_jobs.contains(name).then(|| name.clone());
                if let Some(other) = planned.or_else(|| self.other_job(output)) {
                    let message = format!("Job {other} pushes {output} as well");
                    return Progress::pending("Queued", message);
                }
                if !self.has_capacity {
                    let most = self.job.settings.jobs.max_concurrent;
                    let message = format!("{most} Jobs run already (modules.job.maxConcurrent)");
                    return Progress::pending("Queued", message);
                }
                decision.job = Some(JobAction::Create(Box::new(desired.clone())));
                Progress::pending(doing, format!("Job {name} is created"))
            }
            StageState::Replaced => {
                decision.job = Some(JobAction::Replace { name: name.clone() });
                let message = format!("Job {name} is replaced: what it is made from has changed");
                Progress::pending(doing, message)
            }
            StageState::Unconfirmed => {
                Progress::pending("Checking", format!("reading what Job {name} was made from"))
            }
            StageState::Active => {
                let job = self.job.module.key.in_same_namespace(name);
                let message = match pods_of(self.world, &job).is_empty() {
                    // A quota or a policy may refuse it, which events of the Job say.
                    true => format!(
                        "Job {name} has no pod yet; if it stays so, see `kubectl describe job -n \
                         {} {name}`",
                        self.job.metadata.namespace
                    ),
                    false => format!("Job {name} runs"),
                };
                Progress::pending(doing, message)
            }
            StageState::Other(job) => self.other_progress(&job, output, failed),
            StageState::Failed { message } => {
                let why = if message.is_empty() { message } else { format!(": {message}") };
                let message = format!(
                    "Job {name} failed{why}; see `kubectl logs -n {} job/{name}`, then change the \
                     Module, or delete the Job to try again",
                    self.job.metadata.namespace
                );
                Progress::failed(failed, message)
            }
            StageState::Succeeded { at } => {
                let since = at.unwrap_or(self.now);
                let waited = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
                match image {
                    // A registry that does not have it a while after the push never will.
                    FoundImage::Missing if waited >= VISIBILITY_TIMEOUT => {
                        let message = format!(
                            "Job {name} succeeded, but the registry does not have {output}; look \
                             at its log, then delete the Job to try again"
                        );
                        Progress::failed("ImageMissing", message)
                    }
                    FoundImage::Missing => {
                        decision.requeue_after = Some(VISIBILITY_TIMEOUT - waited);
                        Progress::Ready { outdated: None }
                    }
                    FoundImage::Present { .. } => Progress::Ready { outdated: None },
                }
            }
        }
    }

    /// What follows from a Job of another Module, or for another kernel, that pushes the image.
    fn other_progress(&self, job: &Job, output: &str, failed: &'static str) -> Progress {
        let Meta { name, annotations, .. } = &job.metadata;
        let owner = job.metadata.controller();
        let owner = owner.map(|it| format!("{} {}", it.kind, it.name)).unwrap_or_default();
        let kernel = annotations.get(KERNEL_ANNOTATION).map_or("", String::as_str);
        let whose = format!("of {owner} for kernel {kernel}");
        let trigger = self.job.rebuild_trigger.map(|it| it.to_string());
        match job.state() {
            JobState::Failed { message } => {
                let message = self.failure_reason(job, &message);
                let why = if message.is_empty() { message } else { format!(": {message}") };
                let message = format!(
                    "Job {name} {whose} pushes {output} as well, and failed{why}; name another \
                     image, or delete the Job to try again"
                );
                Progress::failed(failed, message)
            }
            // It has made the image again for all kernels of the Module.
            JobState::Succeeded { .. }
                if job.metadata.is_controlled_by(&self.job.module.uid)
                    && trigger.is_some()
                    && annotations.get(REBUILD_ANNOTATION) == trigger.as_ref() =>
            {
                Progress::Ready { outdated: None }
            }
            JobState::Active | JobState::Succeeded { .. } => {
                Progress::pending("Queued", format!("Job {name} {whose} pushes {output} as well"))
            }
        }
    }

    /// How the Job of a stage stands.
    fn stage_state(&self, desired: &DesiredJob) -> StageState {
        let key = self.job.module.key.in_same_namespace(&desired.name);
        let Some(job) = self.world.store::<Job>().get(&key) else { return StageState::NoJob };
        let JobContext { module, kernel, .. } = self.job;
        if !job.metadata.is_controlled_by(&module.uid) {
            return StageState::Other(job);
        }
        let made_for = job.metadata.annotations.get(KERNEL_ANNOTATION).map_or("", String::as_str);
        if made_for != kernel && module.plans().any(|(it, _)| it == made_for) {
            return StageState::Other(job);
        }
        let hash = job.metadata.annotations.get(HASH_ANNOTATION);
        if job.metadata.is_terminating() {
            return StageState::Replaced;
        }
        if hash != Some(&desired.hash) {
            return match are_newer(self.world, key.namespace(), self.plan, &job) {
                true => StageState::Replaced,
                false => StageState::Unconfirmed,
            };
        }
        match job.state() {
            JobState::Active => StageState::Active,
            JobState::Succeeded { at } => StageState::Succeeded { at },
            JobState::Failed { message } => {
                StageState::Failed { message: self.failure_reason(&job, &message) }
            }
        }
    }

    /// Why a Job failed.
    fn failure_reason(&self, job: &Job, message: &str) -> String {
        let isolation = self.job.settings.builder.isolation;
        job_failure::reason(self.world, job, message, isolation)
    }

    /// An active Job of another owner or kernel that pushes an image.
    fn other_job(&self, image: &str) -> Option<String> {
        let jobs = self.world.store::<Job>().by_index(&Job::image_index(&image_hash(image)));
        let active = jobs.iter().find(|job| job.is_active());
        active.map(|job| job.metadata.key().to_string())
    }

    /// A build gives an image for one architecture.
    fn mixed_architectures(&self) -> Option<Progress> {
        let nodes = self.job.module.nodes.get(self.job.kernel)?;
        if self.plan.build.is_none() || nodes.architectures.len() < 2 {
            return None;
        }
        let architectures: Vec<&str> = nodes.architectures.iter().map(String::as_str).collect();
        let message = format!(
            "nodes with this kernel have several architectures ({}), and a build makes one; use a \
             Module for each, with kubernetes.io/arch in its selector",
            architectures.join(", ")
        );
        Some(Progress::failed("MixedArchitectures", message))
    }

    /// The names of the Jobs of this kernel.
    fn job_names(&self) -> Vec<String> {
        let build = self.plan.build.iter().map(|it| job_name(JobType::Build, &it.output));
        let sign = self.plan.sign.iter().map(|it| job_name(JobType::Sign, &it.output));
        build.chain(sign).collect()
    }

    /// The type and the name of the Job that pushes the final image.
    fn final_job(&self) -> (JobType, String) {
        let last = if self.plan.sign.is_some() { JobType::Sign } else { JobType::Build };
        (last, job_name(last, self.plan.final_image()))
    }

    /// Decides which Jobs of an image that exists are deleted: not those that run, those that
    /// succeeded less than the configured time ago, and those whose image was not asked for since.
    fn collect_jobs(
        &self,
        names: Vec<String>,
        observed: Timestamp,
        decision: &mut PipelineDecision,
    ) {
        let delay = self.job.settings.jobs.collection_delay;
        for name in names {
            let key = self.job.module.key.in_same_namespace(&name);
            let job = self.world.store::<Job>().get(&key);
            let job = job.filter(|it| it.metadata.is_controlled_by(&self.job.module.uid));
            let at = match job.map(|it| it.state()) {
                None | Some(JobState::Active) => continue,
                // Nothing needs it any more: the image is there.
                Some(JobState::Failed { .. }) => {
                    decision.collected_jobs.push(name);
                    continue;
                }
                Some(JobState::Succeeded { at }) => at.unwrap_or(self.now),
            };
            let passed = Duration::try_from(self.now.duration_since(at)).unwrap_or_default();
            // Times of Jobs have whole seconds.
            if observed.as_second() <= at.as_second() {
                continue;
            }
            if passed < delay {
                decision.requeue_after = Some(delay - passed);
            } else {
                decision.collected_jobs.push(name);
            }
        }
    }
}
