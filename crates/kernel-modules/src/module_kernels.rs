//! A Module and what it means for each kernel of its nodes.

use std::collections::BTreeMap;

use gantry_api::kernel_modules::ModuleSpec;
use gantry_kmod::KernelRelease;
use gantry_reconcile::{Key, Uid, World};

use std::sync::Arc;

use crate::kernel_plan::{KernelError, KernelPlan};
use crate::selected_nodes::{KernelNodes, SelectedNodes};
use crate::settings::{KernelLabeling, Settings};
use crate::view::Module;

/// A Module and what it means for each kernel of its nodes.
#[derive(Clone, Debug)]
pub struct ModuleKernels {
    /// The Module.
    pub key: Key,
    /// Its UID.
    pub uid: Uid,
    /// Its desired state.
    pub spec: Arc<ModuleSpec>,
    /// The Secrets with credentials of registries, in the order they are tried.
    pub repo_secrets: Vec<String>,
    /// The ConfigMap of its namespace with certificates of registries.
    pub ca_config_map: Option<String>,
    /// The nodes that it selects, by kernel.
    pub nodes: BTreeMap<String, KernelNodes>,
    /// What it means for each kernel.
    pub kernels: BTreeMap<String, KernelOutcome>,
}

/// What a Module means for one kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelOutcome {
    /// There is a plan.
    Planned {
        /// The value of the kernel label on nodes.
        label: String,
        /// The plan.
        plan: Box<KernelPlan>,
    },
    /// No mapping matches: its nodes are not targeted.
    NoMapping,
    /// The mapping that matches cannot be used.
    Error(KernelError),
    /// The kernel is none that Gantry can read.
    InvalidKernel(String),
    /// Another kernel has the same label value.
    LabelCollision {
        /// The other kernel, which has the DaemonSet.
        other: String,
        /// The value of both.
        label: String,
    },
    /// Its nodes have no label of node feature discovery yet.
    NoKernelLabel,
}

impl ModuleKernels {
    /// The kernels for which there is a plan.
    pub fn plans(&self) -> impl Iterator<Item = (&str, &KernelPlan)> {
        self.kernels.iter().filter_map(|(kernel, outcome)| match outcome {
            KernelOutcome::Planned { plan, .. } => Some((kernel.as_str(), &**plan)),
            KernelOutcome::NoMapping
            | KernelOutcome::Error(_)
            | KernelOutcome::InvalidKernel(_)
            | KernelOutcome::LabelCollision { .. }
            | KernelOutcome::NoKernelLabel => None,
        })
    }
}

/// Computes what a Module means for the kernels of its nodes; `None` if there is no valid Module,
/// or it is being deleted.
#[must_use]
pub fn module_kernels(world: &World, key: &Key, settings: &Settings) -> Option<ModuleKernels> {
    let module = world.store::<Module>().get(key)?;
    if module.metadata.is_terminating() {
        return None;
    }
    let spec = Arc::clone(module.spec.as_ref().ok()?);
    let nodes = world.derived::<SelectedNodes>().kernels(key);
    let secrets = spec.driver_container.iter().flat_map(|it| &it.image_repo_secrets);
    Some(ModuleKernels {
        key: key.clone(),
        uid: module.metadata.uid.clone(),
        repo_secrets: secrets.map(|it| it.name.clone()).collect(),
        ca_config_map: settings.registry_ca_config_map.clone(),
        kernels: outcomes(key, &spec, &nodes, settings),
        nodes,
        spec,
    })
}

/// Decides about each kernel.
fn outcomes(
    key: &Key,
    spec: &ModuleSpec,
    nodes: &BTreeMap<String, KernelNodes>,
    settings: &Settings,
) -> BTreeMap<String, KernelOutcome> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    // Kernels are sorted, so that of two with one label the first keeps its DaemonSet.
    for (kernel, nodes) in nodes {
        let outcome = match kernel.parse::<KernelRelease>() {
            Err(error) => KernelOutcome::InvalidKernel(error.to_string()),
            Ok(release) => match KernelPlan::of(key, spec, &release) {
                Ok(None) => KernelOutcome::NoMapping,
                Err(error) => KernelOutcome::Error(error),
                Ok(Some(plan)) => match kernel_label(&release, nodes, settings) {
                    None => KernelOutcome::NoKernelLabel,
                    Some(label) => match labels.get(&label) {
                        Some(other) => {
                            KernelOutcome::LabelCollision { other: other.clone(), label }
                        }
                        None => {
                            labels.insert(label.clone(), kernel.clone());
                            let plan = plan.limited_to(settings.stages);
                            KernelOutcome::Planned { label, plan: Box::new(plan) }
                        }
                    },
                },
            },
        };
        outcomes.insert(kernel.clone(), outcome);
    }
    outcomes
}

/// The value of the kernel label of nodes.
fn kernel_label(
    release: &KernelRelease,
    nodes: &KernelNodes,
    settings: &Settings,
) -> Option<String> {
    match settings.kernel_labeling {
        KernelLabeling::Own => Some(release.label_safe()),
        KernelLabeling::NodeFeatureDiscovery => nodes.nfd_labels.first().cloned(),
    }
}
