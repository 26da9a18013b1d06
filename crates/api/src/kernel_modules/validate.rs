//! The rules of a Module that span fields (W-n), except those that are defined with one field's
//! type.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Toleration, Volume, VolumeMount};

use super::build::Build;
use super::container::{
    DEVICE_PLUGIN_MOUNTS, DRIVER_MOUNTS, HostMount, PluginContainer, clean_path,
};
use super::driver::{DriverContainer, LoaderContainer};
use super::images::{self, ImageUse};
use super::mapping::{self, KernelMapping, Matcher};
use super::modprobe;
use super::module::{DevicePlugin, LONGEST_NAMES, Module, ModuleSpec};
use super::sign::Sign;
use crate::finding::{Finding, Findings};
use crate::meta::{ObjectMeta, label_key_problem, label_value_problem};
use gantry_yaml::node::Path;

impl Module {
    /// Checks the rules that the schema cannot state.
    pub fn validate(&self, findings: &mut Findings) {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        check_names(&self.metadata, namespace, findings);
        self.spec.validate(&Path::of("spec"), findings);
    }
}

impl ModuleSpec {
    /// Checks the rules that the schema cannot state, for a specification at `path`.
    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        if self.driver_container.is_none() && self.device_plugin.is_none() {
            findings.error(path, "at least one of driverContainer, devicePlugin");
        }
        check_labels(&self.selector, &path.key("selector"), findings);
        for (index, toleration) in self.tolerations.iter().enumerate() {
            check_toleration(toleration, &path.key("tolerations").index(index), findings);
        }
        if let Some(driver) = &self.driver_container {
            check_driver(driver, &path.key("driverContainer"), findings);
        }
        if let Some(plugin) = &self.device_plugin {
            check_plugin(plugin, &path.key("devicePlugin"), findings);
        }
    }
}

/// Rule W-13. A name that the server has yet to complete gets five more characters.
pub(super) fn check_names(metadata: &ObjectMeta, namespace: &str, findings: &mut Findings) {
    let name = match (&metadata.name, &metadata.generate_name) {
        (Some(name), _) => name.len(),
        (None, Some(prefix)) => prefix.len() + 5,
        (None, None) => 0,
    };
    let length = namespace.len() + name;
    if length > LONGEST_NAMES {
        findings.error(
            &Path::of("metadata.name"),
            format!("namespace and name together exceed {LONGEST_NAMES} characters ({length})"),
        );
    }
}

/// The syntax of labels, wherever nodes or clusters are selected by them.
pub(super) fn check_labels(
    labels: &BTreeMap<String, String>,
    path: &Path,
    findings: &mut Findings,
) {
    for (key, value) in labels {
        let path = path.key(key);
        if let Some(problem) = label_key_problem(key) {
            findings.error(&path, format!("Invalid value: \"{key}\": {problem}"));
        }
        if let Some(problem) = label_value_problem(value) {
            findings.error(&path, format!("Invalid value: \"{value}\": {problem}"));
        }
    }
}

fn check_driver(driver: &DriverContainer, path: &Path, findings: &mut Findings) {
    let container = &driver.container;
    check_volumes(&driver.volumes, &DRIVER_MOUNTS, path, findings);
    let path = path.key("container");
    check_mounts(container.fields.volume_mounts.as_ref(), &DRIVER_MOUNTS, &path, findings);
    if container.fields.security_context.as_ref().is_some_and(|it| it.privileged == Some(true)) {
        findings.warn(
            &path.join("securityContext.privileged"),
            "a privileged container can do anything to the node; the capability SYS_MODULE is \
             usually enough",
        );
    }
    if let Some(problem) = label_value_problem(&container.version) {
        let text = format!("Invalid value: \"{}\": {problem}", container.version);
        findings.error(&path.key("version"), text);
    }
    check_level(container, container.build.as_ref(), container.sign.as_ref(), &path, findings);
    let image = container.container_image.as_deref();
    images::check_level(image, container.build.as_ref(), container.sign.as_ref(), &path, findings);
    check_modprobe(container, &path, findings);
    check_mappings(container, &path, findings);
}

/// Rules that each level has to keep for itself.
fn check_level(
    container: &LoaderContainer,
    build: Option<&Build>,
    sign: Option<&Sign>,
    path: &Path,
    findings: &mut Findings,
) {
    if let Some(build) = build {
        let path = path.key("build");
        build.check_dockerfile(&path, findings);
        build.check_args(&path, findings);
        check_labels(&build.selector, &path.key("selector"), findings);
    }
    if let Some(sign) = sign {
        let directory = container.modprobe.as_ref().and_then(|it| it.dir_name.as_deref());
        sign.check_files(directory, &path.key("sign"), findings);
    }
}

fn check_modprobe(container: &LoaderContainer, path: &Path, findings: &mut Findings) {
    let fields = &container.fields;
    if let Some(modprobe) = &container.modprobe {
        let path = path.key("modprobe");
        if fields.command.is_some() || fields.args.is_some() || fields.lifecycle.is_some() {
            findings.error(&path, "modprobe excludes command, args and lifecycle");
        }
        modprobe.validate(&path, findings);
    }
    modprobe::check_in_tree_modules(
        &container.in_tree_modules_to_remove,
        container.modprobe.as_ref(),
        &path.key("inTreeModulesToRemove"),
        findings,
    );
}

fn check_mappings(container: &LoaderContainer, path: &Path, findings: &mut Findings) {
    let mappings = path.key("kernelMappings");
    if container.kernel_mappings.is_empty() {
        findings.error(&mappings, "at least one kernel mapping");
    }
    for (index, mapping) in container.kernel_mappings.iter().enumerate() {
        check_mapping(container, mapping, path, &mappings.index(index), findings);
    }
    for (index, earlier) in mapping::unreachable(&container.kernel_mappings) {
        findings.warn(
            &mappings.index(index),
            format!(
                "never used: kernelMappings[{earlier}] comes first and matches the same kernels"
            ),
        );
    }
}

fn check_mapping(
    container: &LoaderContainer,
    mapping: &KernelMapping,
    container_path: &Path,
    path: &Path,
    findings: &mut Findings,
) {
    match mapping.matcher() {
        Ok(Matcher::Literal(_)) => {}
        Ok(Matcher::Regexp(expression)) => {
            if let Err(error) = mapping::compile(expression) {
                findings.error(&path.key("regexp"), format!("invalid regexp: {error}"));
            }
        }
        Err(problem) => findings.error(path, problem),
    }
    if container.image_of(mapping).is_none() {
        let text = "no containerImage here and none at container level";
        findings.error(&path.key("containerImage"), text);
    }
    check_level(container, mapping.build.as_ref(), mapping.sign.as_ref(), path, findings);
    let image = mapping.container_image.as_deref();
    images::check_level(image, mapping.build.as_ref(), mapping.sign.as_ref(), path, findings);
    images::check_outputs(container, mapping, container_path, path, findings);
    modprobe::check_in_tree_modules(
        mapping.in_tree_modules_to_remove.as_deref().unwrap_or_default(),
        container.modprobe.as_ref(),
        &path.key("inTreeModulesToRemove"),
        findings,
    );
    // Errors of the merged settings are reported where the user can fix them: on the mapping if it
    // has any such settings, else on the container, and there only once.
    if let Some(Err(problem)) = container.build_of(mapping).as_ref().map(Build::source) {
        let level = if mapping.build.is_some() { path } else { container_path };
        error_once(&level.key("build"), problem.to_owned(), findings);
    }
    for field in container.sign_of(mapping).iter().flat_map(Sign::missing) {
        let level = if mapping.sign.is_some() { path } else { container_path };
        let text = format!("{field} is required when sign is used");
        error_once(&level.key("sign").key(field), text, findings);
    }
}

pub(super) fn error_once(path: &Path, text: String, findings: &mut Findings) {
    let known = |finding: &Finding| finding.path == *path && finding.text == text;
    if !findings.errors.iter().any(known) {
        findings.error(path, text);
    }
}

fn check_plugin(plugin: &DevicePlugin, path: &Path, findings: &mut Findings) {
    check_volumes(&plugin.volumes, &DEVICE_PLUGIN_MOUNTS, path, findings);
    let mut check = |container: &PluginContainer, path: &Path| {
        if container.image.is_empty() {
            findings.error(&path.key("image"), "image is required");
        } else {
            let path = path.key("image");
            images::check_image(&container.image, ImageUse::DevicePlugin, &path, findings);
        }
        let mounts = container.fields.volume_mounts.as_ref();
        check_mounts(mounts, &DEVICE_PLUGIN_MOUNTS, path, findings);
    };
    check(&plugin.container, &path.key("container"));
    if let Some(container) = &plugin.init_container {
        check(container, &path.key("initContainer"));
    }
}

/// Rule W-16, for volumes.
fn check_volumes(volumes: &[Volume], taken: &[HostMount], path: &Path, findings: &mut Findings) {
    for (index, volume) in volumes.iter().enumerate() {
        if taken.iter().any(|mount| mount.volume == volume.name) {
            let path = path.key("volumes").index(index).key("name");
            findings.error(&path, format!("\"{}\" is reserved", volume.name));
        }
    }
}

/// Rule W-16, for mounts.
fn check_mounts(
    mounts: Option<&Vec<VolumeMount>>,
    taken: &[HostMount],
    path: &Path,
    findings: &mut Findings,
) {
    for (index, mount) in mounts.into_iter().flatten().enumerate() {
        let path = path.key("volumeMounts").index(index);
        if taken.iter().any(|default| default.volume == mount.name) {
            findings.error(&path.key("name"), format!("\"{}\" is reserved", mount.name));
        }
        if taken.iter().any(|default| default.path == clean_path(&mount.mount_path)) {
            let text = format!("mountPath \"{}\" is reserved", mount.mount_path);
            findings.error(&path.key("mountPath"), text);
        }
    }
}

/// Rule W-21: validates the pods as a server would, and reports errors about the Module.
fn check_toleration(toleration: &Toleration, path: &Path, findings: &mut Findings) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    if key.is_empty() {
        if operator != "Exists" {
            findings.error(&path.key("operator"), "must be Exists when key is empty");
        }
    } else if let Some(problem) = label_key_problem(key) {
        findings.error(&path.key("key"), format!("Invalid value: \"{key}\": {problem}"));
    }
    match operator {
        "Exists" if !value.is_empty() => {
            findings.error(&path.key("value"), "must be empty when operator is Exists");
        }
        "Exists" => {}
        "" | "Equal" => {
            if let Some(problem) = label_value_problem(value) {
                let text = format!("Invalid value: \"{value}\": {problem}");
                findings.error(&path.key("value"), text);
            }
        }
        other => {
            let text = format!("unknown operator \"{other}\"; use Equal or Exists");
            findings.error(&path.key("operator"), text);
        }
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let text =
            format!("unknown effect \"{effect}\"; use NoSchedule, PreferNoSchedule or NoExecute");
        findings.error(&path.key("effect"), text);
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        findings.error(&path.key("tolerationSeconds"), "effect must be NoExecute");
    }
}
