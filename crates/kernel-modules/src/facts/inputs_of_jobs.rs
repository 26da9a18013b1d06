//! Answers about the inputs of Jobs that are not newer than the Jobs.
//!
//! A Job is replaced when what it is made from has changed. An answer that is older than the Job
//! may be older than the one the Job was made from: two processes that both believe to lead would
//! replace each other's Jobs until both have asked again. So an answer that is not newer than a Job
//! replaces none, and is asked for again.

use gantry_reconcile::World;
use gantry_reconcile::fact::Fact;
use gantry_reconcile::inquiry::WantedQuestions;
use jiff::Timestamp;

use super::{SecretQuery, SecretState, build_files};
use crate::facts::BuildFilesState;
use crate::kernel_plan::KernelPlan;
use crate::module_kernels::ModuleKernels;
use crate::view::Job;

/// Returns whether an answer is newer than an object. Times of objects have whole seconds.
fn is_newer(observed: Timestamp, created: Option<Timestamp>) -> bool {
    created.is_none_or(|created| observed.as_second() > created.as_second())
}

/// Returns whether all that is known of the Secrets and files that a kernel's images are made from
/// is newer than a Job.
pub(crate) fn are_newer(world: &World, namespace: &str, plan: &KernelPlan, job: &Job) -> bool {
    let created = job.metadata.creation_timestamp;
    let secrets = plan.sign.iter().flat_map(|it| [&it.key_secret, &it.cert_secret]);
    let mut secrets = secrets.filter_map(|name| {
        let query = SecretQuery { namespace: namespace.to_owned(), name: name.clone() };
        world.facts::<SecretState>().observed(&query).map(|it| it.at)
    });
    let files = plan.build.iter().flat_map(|build| build_files(namespace, build));
    let mut files =
        files.filter_map(|it| world.facts::<BuildFilesState>().observed(&it).map(|it| it.at));
    secrets.all(|at| is_newer(at, created)) && files.all(|at| is_newer(at, created))
}

/// Marks the questions whose answers are not newer than the last Job of a Module.
pub(super) fn ask_after_jobs<F: Fact>(
    world: &World,
    module: Option<&ModuleKernels>,
    mut wanted: WantedQuestions<F::Subject>,
    now: Timestamp,
) -> WantedQuestions<F::Subject> {
    let jobs = module.map(|it| world.store::<Job>().owned_by(&it.uid)).unwrap_or_default();
    let Some(last) = jobs.iter().filter_map(|it| it.metadata.creation_timestamp).max() else {
        return wanted;
    };
    let facts = world.facts::<F>();
    let is_stale =
        |it: &&F::Subject| facts.observed(it).is_some_and(|it| !is_newer(it.at, Some(last)));
    wanted.stale = wanted.questions.iter().filter(is_stale).cloned().collect();
    let next = Timestamp::from_second(last.as_second() + 1).ok();
    wanted.requeue_at = next.filter(|at| *at > now);
    wanted
}
