//! Module: a kernel module on a set of nodes, for every kernel they run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Toleration, Volume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::container::PluginContainer;
use super::driver::DriverContainer;
use super::reference::LocalReference;
use super::{normalise, serve};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::object::object;
use gantry_yaml::node::{Node, Path};

/// Most characters of namespace and name together. The name of a node label may have 63, and the
/// longest that Gantry derives from a Module ends in `.device-plugin-ready`, after a dot.
pub const LONGEST_NAMES: usize = 42;

object! {
    /// Module says that a kernel module must be present on a set of nodes, for every kernel they
    /// run. Gantry picks, builds or signs the image for each kernel, runs it, and starts the device
    /// plugin where the module is loaded. A user that may write Modules is root on the nodes they
    /// select.
    pub struct Module {
        /// Which nodes, which module, which device plugin. At least one of `driverContainer` and
        /// `devicePlugin` is set.
        pub spec: ModuleSpec,
        /// How many nodes there are and how many are done.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ModuleStatus>,
    }
    group: "ooto.sigs.k8s.io",
    version: "v1alpha1",
    plural: "modules",
    scope: Namespaced,
    status: true,
    columns: &[
        Column::new("Desired", "integer", ".status.driverContainer.desiredNumberScheduled"),
        Column::new("Ready", "integer", ".status.driverContainer.numberReady"),
        Column::new("Available", "integer", ".status.driverContainer.numberAvailable"),
        Column::new("DP-Ready", "integer", ".status.devicePlugin.numberReady"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    aliases: &normalise::MODULE_ALIASES,
    serve: |schema: &mut Value| serve::module_spec(&mut schema["properties"]["spec"]),
    normalise: |object: &mut Node, findings: &mut Findings| {
        if let Some(spec) = object.get_mut("spec") {
            normalise::module_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// Which nodes, which module, which device plugin. At least one of `driverContainer` and
/// `devicePlugin` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSpec {
    /// Labels that a node must have, all of them. An empty map selects every node.
    pub selector: BTreeMap<String, String>,
    /// What loads the module. Without it there is only a device plugin, for a driver that comes
    /// with the kernel, and it runs on every selected node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_container: Option<DriverContainer>,
    /// What offers the devices to pods, on nodes where the module is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePlugin>,
    /// Taints that every pod of the Module tolerates: those on nodes, those that build and sign,
    /// and those that check images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::kubernetes::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Any change of this number makes Gantry look again for every image, for registries that lose
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_rebuild_trigger_generation: Option<i64>,
}

/// The pods that offer devices to the kubelet: one DaemonSet per Module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePlugin {
    /// The device plugin. Its name is set by Gantry. It is privileged, and the host's
    /// `/var/lib/kubelet/device-plugins` is mounted in it.
    pub container: PluginContainer,
    /// A container that runs before it, for example to wait for a device file. It is privileged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_container: Option<PluginContainer>,
    /// Secrets with registry credentials to pull the images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalReference>,
    /// The service account of the pods. By default Gantry creates one that may run them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Whether the pods get a token of their service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Volumes besides the one that is always there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::kubernetes::volumes")]
    pub volumes: Vec<Volume>,
}

/// Numbers read from the DaemonSets of the Module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// The pods that load the module, over all kernels. Absent without a driver container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_container: Option<DaemonSetCounts>,
    /// The pods of the device plugin. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DaemonSetCounts>,
    /// The generation of the Module that the status is about. Written with the feature gate
    /// `StatusDetails`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes have the labels of `selector`, whether or not a mapping matches their kernel.
    /// Written with the feature gate `StatusDetails`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_matching_selector: Option<i32>,
    /// Where each kernel of these nodes stands. Written with the feature gate `StatusDetails`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"])
    )]
    pub kernels: Vec<KernelStatus>,
    /// The value of `imageRebuildTriggerGeneration` that was acted on last. Written with the
    /// feature gate `StatusDetails`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_rebuild_trigger_generation: Option<i64>,
}

/// Sums over DaemonSets, in the words of their own status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetCounts {
    /// How many nodes should run the pod.
    #[serde(default)]
    pub desired_number_scheduled: i32,
    /// How many nodes should run the pod and have one that is ready.
    #[serde(default)]
    pub number_ready: i32,
    /// How many nodes should run the pod and have one that has been ready for long enough.
    #[serde(default)]
    pub number_available: i32,
}

/// Where one kernel stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelStatus {
    /// The kernel, as nodes report it.
    pub version: String,
    /// The image that nodes with this kernel run or will run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// What is being done about the image, such as `Building`, `SignFailed` or `ImageReady`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}
