//! The `explain` page of Modules: per kernel which mapping, which image, what is missing.

use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use serde_json::{Value, json};

use super::configuration::Configuration;
use crate::daemon_set::driver_daemon_set;
use crate::job::{JobType, job_name};
use crate::kernel_plan::KernelPlan;
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
    let ExplainRequest { key, world, values, .. } = request;
    let module = world.store::<Module>().get(key)?;
    let mut lines = Vec::new();
    if !values.is_on("modules.enabled") {
        lines.push("the operator's modules.enabled is false: nothing is loaded".to_owned());
    }
    let settings = Configuration::read(values).map(|it| it.settings()).unwrap_or_default();
    if let Err(problems) = &module.spec {
        lines.extend(problems.iter().map(|it| format!("is invalid: {it}")));
        return Some(Explanation { title: "kernels", lines, facts: json!({"kernels": []}) });
    }
    NodeGrouper::group_all(world);
    let mut facts = Vec::new();
    if let Some(kernels) = module_kernels(world, key, &settings) {
        if kernels.kernels.is_empty() {
            lines.push("no node has the labels of spec.selector".to_owned());
        }
        for (kernel, outcome) in &kernels.kernels {
            let nodes = kernels.nodes.get(kernel).map_or(0, |it| it.count);
            let (text, fact) = explain_kernel(request, &module, &kernels, outcome, &settings);
            lines.push(format!("kernel {kernel}, {nodes} nodes: {text}"));
            facts.push(json!({"kernel": kernel, "nodes": nodes, "state": fact}));
        }
    }
    Some(Explanation { title: "kernels", lines, facts: json!({"kernels": facts}) })
}

/// What one kernel has, and what it waits for.
fn explain_kernel(
    request: &ExplainRequest<'_>,
    module: &Module,
    kernels: &ModuleKernels,
    outcome: &KernelOutcome,
    settings: &Settings,
) -> (String, Value) {
    let (label, plan) = match outcome {
        KernelOutcome::Planned { label, plan } => (label, plan),
        KernelOutcome::NoMapping => {
            let text = "no kernel mapping matches; its nodes are left alone".to_owned();
            return (text, json!({"reason": "NoMapping"}));
        }
        KernelOutcome::Error(error) => {
            return (error.to_string(), json!({"reason": error.reason()}));
        }
        KernelOutcome::InvalidKernel(why) => {
            return (why.clone(), json!({"reason": "InvalidKernelVersion"}));
        }
        KernelOutcome::LabelCollision { other, label } => {
            let text = format!("has the same label value {label} as kernel {other}");
            return (text, json!({"reason": "KernelLabelCollision"}));
        }
        KernelOutcome::NoKernelLabel => {
            let text = "its nodes have no label of node feature discovery".to_owned();
            return (text, json!({"reason": "NoKernelLabel"}));
        }
    };
    let image = plan.final_image();
    let mut text = format!("kernelMappings[{}], image {image}", plan.mapping);
    let mut fact = json!({"mapping": plan.mapping, "image": image});
    if let Some(driver) = &kernels.spec.driver_container {
        let desired = driver_daemon_set(kernels, &module.metadata, driver, (label, plan), settings);
        let key = request.key.in_same_namespace(&desired.name);
        if let Some(found) = request.world.store::<DaemonSet>().get(&key) {
            let status = &found.status;
            let (ready, wanted) = (status.number_ready, status.desired_number_scheduled);
            text += &format!("; DaemonSet {}: {ready} of {wanted} pods ready", desired.name);
            fact["daemonSet"] = json!({"name": desired.name, "ready": ready, "desired": wanted});
            return (text, fact);
        }
    }
    for (job_type, name, state) in jobs(request, plan) {
        let state = match state {
            JobState::Active => "runs".to_owned(),
            JobState::Succeeded { .. } => "succeeded".to_owned(),
            JobState::Failed { message } if message.is_empty() => "failed".to_owned(),
            JobState::Failed { message } => format!("failed: {message}"),
        };
        text += &format!("; {} Job {name} {state}", job_type.as_str());
        fact["jobs"][name] = json!(state);
    }
    if fact.get("jobs").is_none() {
        text += "; no DaemonSet yet, see events for what it waits for";
    }
    (text, fact)
}

/// The Jobs of a kernel that exist.
fn jobs(request: &ExplainRequest<'_>, plan: &KernelPlan) -> Vec<(JobType, String, JobState)> {
    let build = plan.build.iter().map(|it| (JobType::Build, &it.output));
    let sign = plan.sign.iter().map(|it| (JobType::Sign, &it.output));
    build
        .chain(sign)
        .filter_map(|(job_type, image)| {
            let name = job_name(job_type, image);
            let job = request.world.store::<Job>().get(&request.key.in_same_namespace(&name))?;
            Some((job_type, name, job.state()))
        })
        .collect()
}
