//! DaemonSets of a Module: one driver container for each kernel and version, one device plugin for
//! each version.

mod hooks;

use gantry_api::kernel_modules::{
    DEVICE_PLUGIN_MOUNTS, DRIVER_MOUNTS, DevicePlugin, DriverContainer, HostMount, LocalReference,
};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Meta, View as _};
use serde_json::{Map, Value, json};

use crate::job::{NAME_HASH_LENGTH, derived_name, short_hash};
use crate::kernel_plan::KernelPlan;
use crate::labels::{
    HASH_ANNOTATION, KERNEL_ANNOTATION, KERNEL_LABEL, MODULE_LABEL, ModulePart, NFD_KERNEL_LABEL,
    NodeLabelKind, ROLE_LABEL,
};
use crate::module_kernels::ModuleKernels;
use crate::settings::{KernelLabeling, Settings};
use crate::view::{DaemonSet, Module};

/// A DaemonSet that should exist.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredDaemonSet {
    /// The part of the Module that it runs.
    pub part: ModulePart,
    /// Its name.
    pub name: String,
    /// The hash of everything it is made from.
    pub hash: String,
    /// The image of its container.
    pub image: String,
    /// The DaemonSet.
    pub body: Value,
}

impl DesiredDaemonSet {
    /// Whether a DaemonSet is as desired: it was made from the same, and nobody changed what
    /// matters most.
    #[must_use]
    pub fn is_current(&self, found: &DaemonSet) -> bool {
        let pods = &found.spec.template.spec;
        let container = pods.containers.iter().find(|it| it.name == self.part.as_str());
        found.metadata.annotations.get(HASH_ANNOTATION) == Some(&self.hash)
            && container.is_some_and(|it| it.image == self.image)
            && json!(pods.node_selector) == self.body["spec"]["template"]["spec"]["nodeSelector"]
    }
}

/// The label of nodes with their kernel.
#[must_use]
pub fn kernel_label_key(settings: &Settings) -> &'static str {
    match settings.kernel_labeling {
        KernelLabeling::Own => KERNEL_LABEL,
        KernelLabeling::NodeFeatureDiscovery => NFD_KERNEL_LABEL,
    }
}

/// The name of the service account of a part, if the user names none.
#[must_use]
pub fn service_account_name(module: &str, part: ModulePart) -> String {
    format!("{module}-{}", part.as_str())
}

/// The DaemonSet of the driver container for one kernel.
#[must_use]
pub fn driver_daemon_set(
    module: &ModuleKernels,
    metadata: &Meta,
    driver: &DriverContainer,
    (label, plan): (&str, &KernelPlan),
    settings: &Settings,
) -> DesiredDaemonSet {
    let kernel_key = kernel_label_key(settings);
    let version = &driver.container.version;
    let kernel = plan.kernel.as_str();
    // A selector cannot be changed, so whatever is in it is in the name as well.
    let hash = short_hash(&[kernel, version, kernel_key, label], NAME_HASH_LENGTH);
    let name = derived_name(&metadata.name, "driver", &hash);
    let mut labels = part_labels(metadata, ModulePart::DriverContainer);
    labels.insert(kernel_key.to_owned(), json!(label));
    let mut node_selector: Map<String, Value> =
        module.spec.selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    node_selector.insert(kernel_key.to_owned(), json!(label));
    if !version.is_empty() {
        let key = NodeLabelKind::DriverVersion.key(&metadata.namespace, &metadata.name);
        labels.insert(key.clone(), json!(version));
        node_selector.insert(key, json!(version));
    }
    let image = plan.final_image();
    let container = driver.container.fields.container(ModulePart::DriverContainer.as_str(), image);
    let mut container = serde_json::to_value(container).unwrap_or_default();
    if container.get("securityContext").is_none() {
        container["securityContext"] = settings.driver_security_context.clone();
    }
    if container.get("terminationMessagePolicy").is_none() {
        // What a failed command has logged becomes its termination message, which is reported.
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
    let mut volumes = host_volumes(&DRIVER_MOUNTS);
    let mut mounts = host_mounts(&DRIVER_MOUNTS);
    // In-tree dependencies are found at the same path as in builds (MC-4).
    mounts.push(json!({
        "name": DRIVER_MOUNTS[0].volume, "mountPath": HOST_MODULES, "readOnly": true,
    }));
    let mut annotations = Map::new();
    if let Some(modprobe) = &driver.container.modprobe {
        let modules = &plan.in_tree_modules;
        let generated = hooks::generate(modprobe, modules, &settings.firmware_host_path);
        container["command"] = json!(generated.command);
        container["lifecycle"] = generated.lifecycle;
        volumes.extend(generated.volumes);
        mounts.extend(generated.mounts);
        annotations.extend(generated.annotations);
    }
    append_mounts(&mut container, mounts);
    volumes.extend(driver.volumes.iter().map(|it| serde_json::to_value(it).unwrap_or_default()));
    let account =
        account(metadata, ModulePart::DriverContainer, driver.service_account_name.as_ref());
    let mut spec = json!({
        "containers": [container],
        "nodeSelector": node_selector,
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": settings.driver_grace_period.as_secs(),
        "volumes": volumes,
    });
    if driver.container.modprobe.is_some() {
        // The command that Gantry writes does not wait for processes that the hooks leave behind.
        spec["shareProcessNamespace"] = json!(true);
    }
    if !settings.driver_priority_class.is_empty() {
        spec["priorityClassName"] = json!(settings.driver_priority_class);
    }
    add_pull_secrets(&mut spec, &driver.image_repo_secrets);
    let pods = Pods { spec, labels, annotations };
    desired(module, metadata, ModulePart::DriverContainer, (name, image), pods, Some(kernel))
}

/// The DaemonSet of the device plugin.
#[must_use]
pub fn plugin_daemon_set(
    module: &ModuleKernels,
    metadata: &Meta,
    plugin: &DevicePlugin,
    image: &str,
) -> DesiredDaemonSet {
    let part = ModulePart::DevicePlugin;
    let driver = module.spec.driver_container.as_ref();
    let version = driver.map_or("", |it| it.container.version.as_str());
    let name =
        derived_name(&metadata.name, part.as_str(), &short_hash(&[version], NAME_HASH_LENGTH));
    let mut labels = part_labels(metadata, part);
    let mut node_selector = Map::new();
    if driver.is_some() {
        let ready = NodeLabelKind::Ready.key(&metadata.namespace, &metadata.name);
        node_selector.insert(ready, json!(""));
    } else {
        let selected = module.spec.selector.iter();
        node_selector.extend(selected.map(|(key, value)| (key.clone(), json!(value))));
    }
    if !version.is_empty() {
        let key = NodeLabelKind::PluginVersion.key(&metadata.namespace, &metadata.name);
        labels.insert(key.clone(), json!(version));
        node_selector.insert(key, json!(version));
    }
    let container = plugin.container.fields.container(part.as_str(), image);
    let mut container = serde_json::to_value(container).unwrap_or_default();
    container["securityContext"]["privileged"] = json!(true);
    append_mounts(&mut container, host_mounts(&DEVICE_PLUGIN_MOUNTS));
    let mut volumes = host_volumes(&DEVICE_PLUGIN_MOUNTS);
    volumes.extend(plugin.volumes.iter().map(|it| serde_json::to_value(it).unwrap_or_default()));
    let account = account(metadata, part, plugin.service_account_name.as_ref());
    let mut spec = json!({
        "containers": [container],
        "nodeSelector": node_selector,
        "serviceAccountName": account,
        "volumes": volumes,
    });
    if let Some(init) = &plugin.init_container {
        let container = init.fields.container("device-plugin-init", &init.image);
        let mut container = serde_json::to_value(container).unwrap_or_default();
        container["securityContext"]["privileged"] = json!(true);
        spec["initContainers"] = json!([container]);
    }
    if let Some(automount) = plugin.automount_service_account_token {
        spec["automountServiceAccountToken"] = json!(automount);
    }
    add_pull_secrets(&mut spec, &plugin.image_pull_secrets);
    let pods = Pods { spec, labels, annotations: Map::new() };
    desired(module, metadata, part, (name, image), pods, None)
}

/// Where the host's modules are for links of images.
const HOST_MODULES: &str = "/host/lib/modules";

/// The pods of a DaemonSet.
struct Pods {
    spec: Value,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

fn desired(
    module: &ModuleKernels,
    metadata: &Meta,
    part: ModulePart,
    (name, image): (String, &str),
    pods: Pods,
    kernel: Option<&str>,
) -> DesiredDaemonSet {
    let Pods { mut spec, labels, annotations } = pods;
    if !module.spec.tolerations.is_empty() {
        spec["tolerations"] = serde_json::to_value(&module.spec.tolerations).unwrap_or_default();
    }
    let template =
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec});
    let hash = short_hash(&[&template.to_string()], 64);
    let mut own_annotations = Map::from_iter([(HASH_ANNOTATION.to_owned(), json!(hash))]);
    own_annotations.extend(kernel.map(|kernel| (KERNEL_ANNOTATION.to_owned(), json!(kernel))));
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": own_annotations,
            "ownerReferences": [controller_reference(&Module::RESOURCE, metadata)],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": template,
        },
    });
    DesiredDaemonSet { part, name, hash, image: image.to_owned(), body }
}

fn part_labels(metadata: &Meta, part: ModulePart) -> Map<String, Value> {
    Map::from_iter([
        (MODULE_LABEL.to_owned(), json!(metadata.name)),
        (ROLE_LABEL.to_owned(), json!(part.as_str())),
    ])
}

fn account(metadata: &Meta, part: ModulePart, named: Option<&String>) -> String {
    let named = named.filter(|it| !it.is_empty()).cloned();
    named.unwrap_or_else(|| service_account_name(&metadata.name, part))
}

/// Volumes of the host. They have no type: a host without one of the directories still runs the pod
/// (MC-8).
fn host_volumes(mounts: &[HostMount]) -> Vec<Value> {
    let volume = |it: &HostMount| json!({"name": it.volume, "hostPath": {"path": it.path}});
    mounts.iter().map(volume).collect()
}

fn host_mounts(mounts: &[HostMount]) -> Vec<Value> {
    let mount = |it: &HostMount| match it.read_only {
        true => json!({"name": it.volume, "mountPath": it.path, "readOnly": true}),
        false => json!({"name": it.volume, "mountPath": it.path}),
    };
    mounts.iter().map(mount).collect()
}

/// Puts mounts before those of the user.
fn append_mounts(container: &mut Value, mut mounts: Vec<Value>) {
    if let Some(own) = container["volumeMounts"].as_array() {
        mounts.extend(own.iter().cloned());
    }
    container["volumeMounts"] = json!(mounts);
}

fn add_pull_secrets(spec: &mut Value, secrets: &[LocalReference]) {
    if !secrets.is_empty() {
        let secrets: Vec<Value> = secrets.iter().map(|it| json!({"name": it.name})).collect();
        spec["imagePullSecrets"] = json!(secrets);
    }
}

#[cfg(test)]
mod tests;
