//! Counts Modules, their nodes, and the stages that are done, for metrics.

use std::collections::BTreeMap;

use gantry_reconcile::{Key, World};
use serde::Deserialize;

use crate::facts::{ImageQuery, ImageState, final_query};
use crate::kernel_plan::KernelPlan;
use crate::labels::{JOB_TYPE_LABEL, KERNEL_ANNOTATION, ModulePart};
use crate::module_kernels::{ModuleKernels, module_kernels};
use crate::settings::Settings;
use crate::view::{DaemonSet, Job, JobState, Module, ModulePod};

/// The current state of all Modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleCounts {
    /// How many Modules there are.
    pub modules: i64,
    /// How many of them build images.
    pub with_build: i64,
    /// How many of them sign images.
    pub with_sign: i64,
    /// How many of them have a device plugin.
    pub with_device_plugin: i64,
    /// Desired and ready nodes of each Module and part.
    pub nodes: BTreeMap<(Key, &'static str), (i64, i64)>,
    /// Whether a stage is done, by Module, kernel (none for device plugins) and stage.
    pub stages: BTreeMap<(Key, String, &'static str), bool>,
}

impl ModuleCounts {
    /// Counts what is in a world.
    #[must_use]
    pub fn of(world: &World, settings: &Settings) -> Self {
        let mut counts = Self::default();
        for module in world.store::<Module>().list() {
            counts.add(world, &module, settings);
        }
        counts
    }

    fn add(&mut self, world: &World, module: &Module, settings: &Settings) {
        self.modules += 1;
        let Ok(spec) = &module.spec else { return };
        let container = spec.driver_container.as_ref().map(|it| &it.container);
        let mappings = || container.into_iter().flat_map(|it| &it.kernel_mappings);
        let builds = container.is_some_and(|it| it.build.is_some());
        let signs = container.is_some_and(|it| it.sign.is_some());
        self.with_build += i64::from(builds || mappings().any(|it| it.build.is_some()));
        self.with_sign += i64::from(signs || mappings().any(|it| it.sign.is_some()));
        self.with_device_plugin += i64::from(spec.device_plugin.is_some());
        let key = module.metadata.key();
        let parts = [
            (ModulePart::DriverContainer, spec.driver_container.is_some()),
            (ModulePart::DevicePlugin, spec.device_plugin.is_some()),
        ];
        let mut sums: BTreeMap<(ModulePart, &str), (i64, i64)> = BTreeMap::new();
        let owned = world.store::<DaemonSet>().owned_by(&module.metadata.uid);
        for set in &owned {
            let Some(part) = set.part() else { continue };
            let kernel = set.metadata.annotations.get(KERNEL_ANNOTATION).map_or("", |it| it);
            let sum = sums.entry((part, kernel)).or_default();
            sum.0 += i64::from(set.status.desired_number_scheduled);
            sum.1 += i64::from(set.status.number_ready);
        }
        for (part, _) in parts.into_iter().filter(|(_, is_there)| *is_there) {
            let of_part = sums.iter().filter(|((it, _), _)| *it == part);
            let nodes = of_part.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1));
            self.nodes.insert((key.clone(), part.as_str()), nodes);
        }
        let is_ready = |part: ModulePart, kernel: &str| {
            sums.get(&(part, kernel)).is_some_and(|(desired, ready)| ready >= desired)
        };
        if spec.device_plugin.is_some() {
            let part = ModulePart::DevicePlugin;
            let stage = (key.clone(), String::new(), part.as_str());
            self.stages.insert(stage, is_ready(part, ""));
        }
        let Some(kernels) = module_kernels(world, &key, settings) else { return };
        for (kernel, plan) in kernels.plans() {
            let part = ModulePart::DriverContainer;
            let images = image_stages(world, &kernels, kernel, plan);
            for (stage, done) in images.chain([(part.as_str(), is_ready(part, kernel))]) {
                self.stages.insert((key.clone(), kernel.to_owned(), stage), done);
            }
        }
    }
}

/// Whether the images of a kernel are there.
fn image_stages(
    world: &World,
    kernels: &ModuleKernels,
    kernel: &str,
    plan: &KernelPlan,
) -> impl Iterator<Item = (&'static str, bool)> + use<> {
    let facts = world.facts::<ImageState>();
    let is_present = |query: &ImageQuery| {
        let observed = facts.observed(query);
        observed.is_some_and(|it| matches!(it.value, ImageState::Present { .. }))
    };
    let is_final = is_present(&final_query(kernels, kernel, plan));
    let build = plan.build.as_ref().map(|build| {
        let query = ImageQuery::new(kernels, &build.output, build.push, kernel, true);
        // A signed image was built, whatever became of the unsigned one.
        ("build", is_final || is_present(&query))
    });
    let sign = plan.sign.as_ref().map(|_| ("sign", is_final));
    build.into_iter().chain(sign)
}

/// A Job that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedJob {
    /// What it did.
    pub job_type: String,
    /// How it ended.
    pub result: &'static str,
    /// How long it took, if that is known.
    pub seconds: Option<f64>,
}

/// The end of a Job, if that is what changed.
#[must_use]
pub fn ended_job(before: &Job, after: &Job) -> Option<EndedJob> {
    if !before.is_active() {
        return None;
    }
    let (result, at) = match after.state() {
        JobState::Active => return None,
        JobState::Succeeded { at } => ("succeeded", at),
        JobState::Failed { .. } => {
            let failed = after.status.conditions.iter().find(|it| it.kind == "Failed");
            ("failed", failed.and_then(|it| it.last_transition_time))
        }
    };
    let created = after.metadata.creation_timestamp;
    let seconds = created.zip(at).map(|(from, to)| to.duration_since(from).as_secs_f64());
    // The clocks of server and controllers may disagree.
    let seconds = seconds.map(|it| it.max(0.0));
    let job_type = after.metadata.labels.get(JOB_TYPE_LABEL).cloned().unwrap_or_default();
    Some(EndedJob { job_type, result, seconds })
}

/// What a signing Job writes as its termination message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SignResult {
    files: Vec<FileResult>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileResult {
    result: String,
}

/// The results of the files that a pod signed, if it has just ended. A message that was cut counts
/// for nothing.
#[must_use]
pub fn signed_files(before: &ModulePod, after: &ModulePod) -> Vec<String> {
    if after.metadata.labels.get(JOB_TYPE_LABEL).is_none_or(|it| it != "sign") {
        return Vec::new();
    }
    let message = |pod: &ModulePod| {
        let containers = pod.status.container_statuses.iter();
        let mut ended = containers.filter_map(|it| it.state.terminated.as_ref());
        ended.find(|it| it.exit_code == 0).map(|it| it.message.clone())
    };
    match (message(before), message(after)) {
        (None, Some(text)) => {
            let result: SignResult = serde_json::from_str(&text).unwrap_or_default();
            result.files.into_iter().map(|it| it.result).collect()
        }
        (Some(_), _) | (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
