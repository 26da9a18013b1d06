//! Rewrites spellings of a Module that differ from the canonical one and mean the same.
//!
//! The document that defines the kind shows several fields in two places or two shapes; all of them
//! are read. [`super::serve`] declares each spelling to a server.

use crate::alias::{self, Alias, AliasNotice};
use crate::finding::Findings;
use gantry_yaml::node::{Content, Key, Node, Path, Position};

/// The warning for a union of another shape (W-15).
const NAMED: &str = "expected a string or an object with name";

/// The fields of `driverContainer.container` that are not Kubernetes' may also stand one level
/// above.
macro_rules! driver_aliases {
    ($spec:literal) => {
        driver_aliases!($spec: "kernelMappings" "containerImage" "build" "sign" "version" "modprobe"
            "inTreeModulesToRemove" "registryTLS")
    };
    ($spec:literal: $($field:literal)*) => {
        [$(Alias {
            within: concat!($spec, ".driverContainer"),
            old: $field,
            new: concat!("container.", $field),
            notice: AliasNotice::Silent,
        }),*]
    };
}

/// Other places of fields in a Module.
pub(super) const MODULE_ALIASES: [Alias; 8] = driver_aliases!("spec");

/// Other places of fields in a ManagedClusterModule.
pub(super) const HUB_ALIASES: [Alias; 8] = driver_aliases!("spec.moduleSpec");

/// Fields of a Container may also stand in the part of the Module itself.
macro_rules! container_aliases {
    ($($field:literal)*) => {
        [$(Alias {
            within: "",
            old: $field,
            new: concat!("container.", $field),
            notice: AliasNotice::Move,
        }),*]
    };
}

/// Fields of `container` that `driverContainer` and `devicePlugin` may have, and that belong below
/// `container`. The last one is for `devicePlugin` alone.
pub(super) const CONTAINER_ALIASES: [Alias; 24] = container_aliases!("args" "command" "env"
    "envFrom" "imagePullPolicy" "lifecycle" "livenessProbe" "ports" "readinessProbe"
    "resizePolicy" "resources" "restartPolicy" "restartPolicyRules" "securityContext"
    "startupProbe" "stdin" "stdinOnce" "terminationMessagePath" "terminationMessagePolicy" "tty"
    "volumeDevices" "volumeMounts" "workingDir" "image");

/// The fields of [`CONTAINER_ALIASES`] that `driverContainer` may have.
pub(super) fn driver_container_aliases() -> &'static [Alias] {
    const LAST: usize = CONTAINER_ALIASES.len() - 1;
    const ALIASES: [Alias; 24] = CONTAINER_ALIASES;
    &ALIASES[..LAST]
}

/// Rewrites the specification of a Module at `path`.
pub(super) fn module_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    labels(spec, "selector", path, findings);
    let repo_secret = take_repo_secret(spec, path, findings);
    if let Some(driver) = spec.get_mut("driverContainer") {
        let path = path.key("driverContainer");
        driver_container(driver, &path, findings);
        if let Some(secret) = &repo_secret {
            secret.move_to(driver, &path, findings);
        }
    }
    if let Some(plugin) = spec.get_mut("devicePlugin") {
        device_plugin(plugin, &path.key("devicePlugin"), findings);
        // At this level the secret was used for both parts; a plugin with its own keeps them.
        if let Some(secret) = repo_secret
            && !plugin.has("imagePullSecrets")
        {
            plugin.set("imagePullSecrets", secret.list);
        }
    }
}

/// Turns every scalar in a map of labels to text.
pub(super) fn labels(holder: &mut Node, field: &str, path: &Path, findings: &mut Findings) {
    let Some(entries) = holder.get_mut(field).and_then(Node::entries_mut) else { return };
    entries.retain_mut(|(key, value)| match value.scalar_text() {
        Some(text) => {
            value.value = Content::String(text);
            true
        }
        // Null too: a label that is silently dropped selects more nodes, not fewer.
        None => {
            findings.error_at(
                &path.key(field).key(&key.name),
                key.at,
                "expected a string, a number or a boolean; write \"\" for an empty value",
            );
            false
        }
    });
}

fn driver_container(driver: &mut Node, path: &Path, findings: &mut Findings) {
    secrets(driver, "imageRepoSecrets", path, findings);
    if let Some(secret) = take_repo_secret(driver, path, findings) {
        secret.move_to(driver, path, findings);
    }
    alias::rewrite_at(driver_container_aliases(), driver, path, findings);
    let path = path.key("container");
    let Some(container) = driver.get_mut("container") else { return };
    drop_name(container, "driver-container", &path, findings);
    if let Some((key, _)) = container.take("image") {
        let text = "ignored: Gantry sets it from the kernel mapping; use \"containerImage\"";
        findings.warn_at(&path.key("image"), key.at, text);
    }
    build_and_sign(container, &path, findings);
    let path = path.key("kernelMappings");
    let mappings = container.get_mut("kernelMappings").and_then(Node::items_mut);
    for (index, mapping) in mappings.into_iter().flatten().enumerate() {
        build_and_sign(mapping, &path.index(index), findings);
    }
}

fn device_plugin(plugin: &mut Node, path: &Path, findings: &mut Findings) {
    secrets(plugin, "imagePullSecrets", path, findings);
    alias::rewrite_at(&CONTAINER_ALIASES, plugin, path, findings);
    for (field, name) in [("container", "device-plugin"), ("initContainer", "device-plugin-init")] {
        if let Some(container) = plugin.get_mut(field) {
            drop_name(container, name, &path.key(field), findings);
        }
    }
}

fn drop_name(container: &mut Node, name: &str, path: &Path, findings: &mut Findings) {
    if let Some((key, _)) = container.take("name") {
        let text = format!("ignored: Gantry sets it to \"{name}\"; remove it");
        findings.warn_at(&path.key("name"), key.at, text);
    }
}

fn build_and_sign(holder: &mut Node, path: &Path, findings: &mut Findings) {
    if let Some(build) = holder.get_mut("build") {
        labels(build, "selector", &path.key("build"), findings);
    }
    if let Some(sign) = holder.get_mut("sign") {
        let path = path.key("sign");
        for field in ["unsignedImage", "signedImage", "keySecret", "certSecret"] {
            named(sign, field, &path, findings);
        }
        if let Some(image) = sign.get_mut("signedImage") {
            named(image, "pushSecretRef", &path.key("signedImage"), findings);
        }
    }
}

/// Rewrites a field that is an object with a name, or just the name.
fn named(holder: &mut Node, field: &str, path: &Path, findings: &mut Findings) {
    let Some(value) = holder.get_mut(field) else { return };
    let at = value.at;
    if value.is_null() {
        holder.take(field);
    } else if !into_named(value) {
        findings.error_at(&path.key(field), at, NAMED);
        holder.take(field);
    }
}

fn into_named(value: &mut Node) -> bool {
    match &mut value.value {
        Content::String(text) => {
            let name = Node::string_at(value.at, std::mem::take(text));
            let key = Key { at: value.at, name: "name".to_owned() };
            value.value = Content::Map(vec![(key, name)]);
            true
        }
        Content::Map(entries) => {
            entries.retain(|(_, value)| !value.is_null());
            entries.iter().any(|(key, _)| key.name == "name")
        }
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::List(_) => false,
    }
}

/// Rewrites a field that is a list of objects with names, or of names, or only one of either.
fn secrets(holder: &mut Node, field: &str, path: &Path, findings: &mut Findings) {
    let Some(value) = holder.get_mut(field) else { return };
    if value.is_null() {
        holder.take(field);
        return;
    }
    let path = path.key(field);
    if value.items().is_none() {
        let only = value.clone();
        value.value = Content::List(vec![only]);
    }
    let Some(items) = value.items_mut() else { return };
    for (index, item) in items.iter_mut().enumerate() {
        if !into_named(item) {
            findings.error_at(&path.index(index), item.at, NAMED);
        }
    }
    // What was rejected above need not be rejected by the schema as well.
    items.retain(|item| item.has("name"));
}

/// A secret under the old, singular name.
struct RepoSecret {
    path: Path,
    at: Position,
    list: Node,
}

fn take_repo_secret(holder: &mut Node, path: &Path, findings: &mut Findings) -> Option<RepoSecret> {
    const OLD: &str = "imageRepoSecret";
    secrets(holder, OLD, path, findings);
    let (key, list) = holder.take(OLD)?;
    let path = path.key(OLD);
    findings.warn_at(&path, key.at, "deprecated name; use \"imageRepoSecrets\", a list");
    Some(RepoSecret { path, at: key.at, list })
}

impl RepoSecret {
    fn move_to(&self, driver: &mut Node, path: &Path, findings: &mut Findings) {
        const NEW: &str = "imageRepoSecrets";
        match driver.get(NEW) {
            Some(present) if !present.same_value(&self.list) => {
                let new = path.key(NEW);
                let text = format!("set here and at {new} with different values; keep {new}");
                findings.error_at(&self.path, self.at, text);
            }
            Some(_) => {}
            None => driver.set(NEW, self.list.clone()),
        }
    }
}
