//! Modules, kernels and nodes for tests.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::kernel_modules::ModuleSpec;
use gantry_kmod::KernelRelease;
use gantry_reconcile::{Key, Meta, Uid};
use serde_json::{Value, json};

use crate::kernel_plan::{KernelError, KernelPlan};
use crate::module_kernels::{KernelOutcome, ModuleKernels};
use crate::selected_nodes::KernelNodes;

/// A kernel of RHEL.
pub(crate) const RHEL: &str = "4.18.0-348.el8.x86_64";
/// A kernel with a plus sign.
pub(crate) const PLUS: &str = "5.10.133+";

/// A desired state in its canonical form; its rules are not checked.
pub(crate) fn spec(value: Value) -> ModuleSpec {
    serde_json::from_value(value).unwrap()
}

/// A Module whose driver container has these fields, and mapping.
pub(crate) fn driver_spec(mut container: Value, mapping: Value) -> ModuleSpec {
    container["kernelMappings"] = json!([mapping]);
    spec(json!({"selector": {"gpu": "yes"}, "driverContainer": {"container": container}}))
}

pub(crate) fn release(kernel: &str) -> KernelRelease {
    kernel.parse().unwrap()
}

/// The Module that tests are about.
pub(crate) fn key() -> Key {
    Key::new("drivers", "hello")
}

/// Its metadata.
pub(crate) fn metadata() -> Meta {
    Meta {
        name: "hello".to_owned(),
        namespace: "drivers".to_owned(),
        uid: Uid::new("uid-hello"),
        ..Meta::default()
    }
}

pub(crate) fn plan(spec: &ModuleSpec, kernel: &str) -> Result<Option<KernelPlan>, KernelError> {
    KernelPlan::of(&key(), spec, &release(kernel))
}

/// The plan for a kernel that has one.
pub(crate) fn planned(spec: &ModuleSpec, kernel: &str) -> KernelPlan {
    plan(spec, kernel).unwrap().unwrap()
}

/// The Module with one node of a kernel.
pub(crate) fn with_kernel(spec: &ModuleSpec, kernel: &str) -> ModuleKernels {
    let nodes = KernelNodes {
        count: 1,
        architectures: ["amd64".to_owned()].into(),
        ..KernelNodes::default()
    };
    let label = release(kernel).label_safe();
    let outcome = KernelOutcome::Planned { label, plan: Box::new(planned(spec, kernel)) };
    let secrets = spec.driver_container.iter().flat_map(|it| &it.image_repo_secrets);
    ModuleKernels {
        key: key(),
        uid: metadata().uid,
        repo_secrets: secrets.map(|it| it.name.clone()).collect(),
        ca_config_map: None,
        nodes: BTreeMap::from([(kernel.to_owned(), nodes)]),
        kernels: BTreeMap::from([(kernel.to_owned(), outcome)]),
        spec: Arc::new(spec.clone()),
    }
}
