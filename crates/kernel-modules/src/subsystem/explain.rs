//! The `explain` page of Modules: per kernel which mapping, which image, what is missing, and what
//! to do next.

use gantry_api::kernel_modules::KernelMapping;
use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation, Report};
use gantry_subsystem::settings::Values;
use serde::Serialize;
use serde_json::json;

use super::configuration::Configuration;
use crate::daemon_set::driver_daemon_set;
use crate::job::{JobType, job_name};
use crate::kernel_plan::KernelPlan;
use crate::labels::ModulePart;
use crate::module_kernels::{KernelOutcome, ModuleKernels, module_kernels};
use crate::selected_nodes::NodeGrouper;
use crate::settings::Settings;
use crate::view::{DaemonSet, Job, JobState, Module, Node};

/// The page about Modules.
pub(super) const MODULE_PAGE: ExplainPage = ExplainPage {
    resource: || Module::RESOURCE,
    kinds: || {
        vec![Kind::of::<Module>(), Kind::of::<Node>(), Kind::of::<DaemonSet>(), Kind::of::<Job>()]
    },
    explain,
};

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    explain_in(request, &settings(request.values))
}

/// The settings in effect; the defaults if they cannot be read.
fn settings(values: &Values) -> Settings {
    Configuration::read(values).map(|it| it.settings()).unwrap_or_default()
}

fn explain_in(request: &ExplainRequest<'_>, settings: &Settings) -> Option<Explanation> {
    let ExplainRequest { key, world, values, .. } = request;
    let module = world.store::<Module>().get(key)?;
    let mut lines = Vec::new();
    if !values.is_on("modules.enabled") {
        lines.push("the operator's modules.enabled is false: nothing is loaded".to_owned());
    }
    if let Err(problems) = &module.spec {
        lines.extend(problems.iter().map(|it| format!("is invalid: {it}")));
        lines.push("what runs is left alone; correct the Module to go on".to_owned());
        let facts = json!({"problems": problems, "kernels": []});
        return Some(Explanation { title: "kernels", lines, facts });
    }
    if module.metadata.is_terminating() {
        lines.push("is being deleted: its pods end, then the finalizer goes".to_owned());
        return Some(Explanation { title: "kernels", lines, facts: json!({"kernels": []}) });
    }
    NodeGrouper::group_all(world);
    let kernels = module_kernels(world, key, settings)?;
    let is_driver = kernels.spec.driver_container.is_some();
    let mut facts = Vec::new();
    if kernels.kernels.is_empty() {
        lines.push("no node has the labels of spec.selector".to_owned());
    }
    for (kernel, outcome) in kernels.kernels.iter().filter(|_| is_driver) {
        let fact = explain_kernel(request, &module, &kernels, (kernel, outcome), settings);
        lines.extend(fact.lines());
        facts.push(fact);
    }
    let plugin = device_plugin(request, &module, &kernels);
    lines.extend(plugin.iter().map(|it| format!("device plugin: {}", it.line())));
    let facts = json!({"kernels": facts, "devicePlugin": plugin});
    Some(Explanation { title: "kernels", lines, facts })
}

/// What is known about one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct KernelFacts {
    kernel: String,
    nodes: usize,
    /// The mapping that is used; absent if there is none.
    mapping: Option<MappingFact>,
    /// The image that driver containers run in the end.
    image: Option<String>,
    /// How it comes to be.
    stages: Vec<StageFact>,
    daemon_set: Option<DaemonSetFact>,
    /// What is missing, and what to do next.
    missing: Vec<MissingFact>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct MappingFact {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    literal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regexp: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct StageFact {
    /// `build` or `sign`.
    stage: &'static str,
    /// The image that it pushes.
    image: String,
    /// Its Job, while there is one.
    job: Option<String>,
    /// How it stands.
    state: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DaemonSetFact {
    name: String,
    ready: i32,
    desired: i32,
    image: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct MissingFact {
    reason: String,
    message: String,
}

impl DaemonSetFact {
    fn of(set: &DaemonSet) -> Self {
        let image = set.spec.template.spec.containers.first().map(|it| it.image.clone());
        Self {
            name: set.metadata.name.clone(),
            ready: set.status.number_ready,
            desired: set.status.desired_number_scheduled,
            image: image.unwrap_or_default(),
        }
    }

    fn line(&self) -> String {
        let Self { name, ready, desired, .. } = self;
        format!("DaemonSet {name}: {ready} of {desired} pods ready")
    }
}

impl KernelFacts {
    /// A headline, and one indented line for each thing below it.
    fn lines(&self) -> Vec<String> {
        let Self { kernel, nodes, mapping, image, stages, daemon_set, missing } = self;
        let mapping = match mapping {
            Some(MappingFact { index, literal: Some(text), .. }) => {
                format!("kernelMappings[{index}], literal {text}")
            }
            Some(MappingFact { index, regexp, .. }) => {
                format!("kernelMappings[{index}], regexp {}", regexp.as_deref().unwrap_or(""))
            }
            None => "no mapping in use".to_owned(),
        };
        let count = if *nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        let mut lines = vec![format!("kernel {kernel}, {count}: {mapping}")];
        lines.extend(image.iter().map(|it| format!("  image {it}")));
        for StageFact { stage, image: output, job, state } in stages {
            let pushes = match image {
                Some(image) if image == output => String::new(),
                _ => format!(" of {output}"),
            };
            let job = job.as_ref().map(|it| format!("Job {it} ")).unwrap_or_default();
            lines.push(format!("  {stage}{pushes}: {job}{state}"));
        }
        if let Some(set) = daemon_set {
            let other = image.as_ref().filter(|it| **it != set.image);
            let other = other.map(|_| format!("; runs {} until then", set.image));
            lines.push(format!("  {}{}", set.line(), other.unwrap_or_default()));
        }
        lines.extend(missing.iter().map(|it| format!("  {}: {}", it.reason, it.message)));
        lines
    }
}

/// What one kernel has, and what it waits for.
fn explain_kernel(
    request: &ExplainRequest<'_>,
    module: &Module,
    kernels: &ModuleKernels,
    (kernel, outcome): (&str, &KernelOutcome),
    settings: &Settings,
) -> KernelFacts {
    let mut facts = KernelFacts {
        kernel: kernel.to_owned(),
        nodes: kernels.nodes.get(kernel).map_or(0, |it| it.count),
        mapping: None,
        image: None,
        stages: Vec::new(),
        daemon_set: None,
        missing: Vec::new(),
    };
    let (label, plan) = match outcome {
        KernelOutcome::Planned { label, plan } => (label, plan),
        other => {
            facts.missing.extend(why_unplanned(other));
            return facts;
        }
    };
    let driver = kernels.spec.driver_container.as_ref();
    let mapping = driver.and_then(|it| it.container.kernel_mappings.get(plan.mapping));
    facts.mapping = mapping.map(|it| MappingFact::of(plan.mapping, it));
    facts.image = Some(plan.final_image().to_owned());
    facts.daemon_set = driver.and_then(|driver| {
        let desired = driver_daemon_set(kernels, &module.metadata, driver, (label, plan), settings);
        let key = request.key.in_same_namespace(&desired.name);
        request.world.store::<DaemonSet>().get(&key).map(|it| DaemonSetFact::of(&it))
    });
    let is_done = facts.daemon_set.as_ref().is_some_and(|it| it.image == plan.final_image());
    facts.stages = stages(request, plan, is_done);
    facts.missing = reports_about(request.reports, kernel);
    for missing in failed_jobs(request, plan) {
        if !facts.missing.iter().any(|it| it.reason == missing.reason) {
            facts.missing.push(missing);
        }
    }
    let has_job = facts.stages.iter().any(|it| it.job.is_some());
    if facts.daemon_set.is_none() && facts.missing.is_empty() && !has_job {
        let message = match request.values.is_on("modules.enabled") {
            true => "there is no DaemonSet yet; the events of the Module say what it waits for",
            false => "set modules.enabled in the operator's configuration",
        };
        facts.missing.push(MissingFact::new("NoDaemonSet", message));
    }
    facts
}

impl MappingFact {
    fn of(index: usize, mapping: &KernelMapping) -> Self {
        // An empty text counts as not set.
        let set = |text: &Option<String>| text.clone().filter(|it| !it.is_empty());
        Self { index, literal: set(&mapping.literal), regexp: set(&mapping.regexp) }
    }
}

impl MissingFact {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }
}

/// Why a kernel has no plan, and what to do about it.
fn why_unplanned(outcome: &KernelOutcome) -> Option<MissingFact> {
    Some(match outcome {
        KernelOutcome::Planned { .. } => return None,
        KernelOutcome::NoMapping => MissingFact::new(
            "NoMapping",
            "no kernel mapping matches, so its nodes are left alone; add one to kernelMappings if \
             they need the module",
        ),
        KernelOutcome::Error(error) => MissingFact::new(error.reason(), error.to_string()),
        KernelOutcome::InvalidKernel(why) => MissingFact::new("InvalidKernelVersion", why.clone()),
        KernelOutcome::LabelCollision { other, label } => MissingFact::new(
            "KernelLabelCollision",
            format!(
                "has the same label value {label} as kernel {other}, which is served; give the \
                 nodes of one of them another kernel"
            ),
        ),
        KernelOutcome::NoKernelLabel => MissingFact::new(
            "NoKernelLabel",
            "its nodes have no label of node feature discovery; install that, or set \
             modules.kernelLabeling to ooto",
        ),
    })
}

/// What controllers have reported about a kernel; of several reports with one reason the first.
fn reports_about(reports: &[Report], kernel: &str) -> Vec<MissingFact> {
    let mut found: Vec<MissingFact> = Vec::new();
    for Report { reason, message } in reports {
        if names_kernel(message, kernel) && !found.iter().any(|it| it.reason == *reason) {
            let prefix = format!("kernel {kernel}: ");
            let message = message.strip_prefix(&prefix).unwrap_or(message);
            found.push(MissingFact::new(reason, message));
        }
    }
    found
}

/// Whether a message names a kernel, and not one whose name starts with it.
fn names_kernel(message: &str, kernel: &str) -> bool {
    let phrase = format!("kernel {kernel}");
    message.match_indices(&phrase).any(|(at, _)| {
        let rest = message[at + phrase.len()..].chars().next();
        rest.is_none_or(|it| matches!(it, ':' | ',' | ';' | ' '))
    })
}

/// The stages of a kernel and their Jobs, as far as those are there.
fn stages(request: &ExplainRequest<'_>, plan: &KernelPlan, is_done: bool) -> Vec<StageFact> {
    let build = plan.build.iter().map(|it| (JobType::Build, &it.output));
    let sign = plan.sign.iter().map(|it| (JobType::Sign, &it.output));
    let stage = |(job_type, image): (JobType, &String)| {
        let name = job_name(job_type, image);
        let key = request.key.in_same_namespace(&name);
        let job = request.world.store::<Job>().get(&key);
        let state = match job.as_ref().map(|it| it.state()) {
            None if is_done => "done".to_owned(),
            None => "no Job".to_owned(),
            Some(JobState::Active) => "runs".to_owned(),
            Some(JobState::Succeeded { .. }) => "succeeded".to_owned(),
            Some(JobState::Failed { .. }) => "failed".to_owned(),
        };
        let job = job.map(|it| it.metadata.name.clone());
        StageFact { stage: job_type.as_str(), image: image.clone(), job, state }
    };
    build.chain(sign).map(stage).collect()
}

/// The Jobs that failed: where nothing is reported about them, they tell themselves.
fn failed_jobs(request: &ExplainRequest<'_>, plan: &KernelPlan) -> Vec<MissingFact> {
    let build = plan.build.iter().map(|it| (JobType::Build, "BuildFailed", &it.output));
    let sign = plan.sign.iter().map(|it| (JobType::Sign, "SignFailed", &it.output));
    let failed = build.chain(sign).filter_map(|(job_type, reason, image)| {
        let name = job_name(job_type, image);
        let job = request.world.store::<Job>().get(&request.key.in_same_namespace(&name))?;
        let JobState::Failed { message } = job.state() else { return None };
        let why = if message.is_empty() { message } else { format!(": {message}") };
        let namespace = request.key.namespace();
        let message = format!(
            "Job {name} failed{why}; see `kubectl logs -n {namespace} job/{name}`, then change \
             the Module, or delete the Job to try again"
        );
        Some(MissingFact::new(reason, message))
    });
    failed.collect()
}

/// The DaemonSet of the device plugin.
fn device_plugin(
    request: &ExplainRequest<'_>,
    module: &Module,
    kernels: &ModuleKernels,
) -> Option<DaemonSetFact> {
    kernels.spec.device_plugin.as_ref()?;
    let owned = request.world.store::<DaemonSet>().owned_by(&module.metadata.uid);
    let plugin = owned.iter().find(|it| it.part() == Some(ModulePart::DevicePlugin));
    plugin.map(|it| DaemonSetFact::of(it))
}

#[cfg(test)]
mod tests;
