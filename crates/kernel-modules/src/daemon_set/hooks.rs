//! Commands that load and unload a module, for Modules with `modprobe`.

use gantry_api::kernel_modules::Modprobe;
use serde_json::{Map, Value, json};

/// The command and hooks of a driver container.
pub(super) struct GeneratedHooks {
    pub command: Vec<&'static str>,
    pub lifecycle: Value,
    pub volumes: Vec<Value>,
    pub mounts: Vec<Value>,
    pub annotations: Map<String, Value>,
}

/// The annotation of pods with the order in which modules are loaded.
const SOFTDEP_ANNOTATION: &str = "ooto.sigs.k8s.io/softdep";
/// Where the host's directory for firmware is in driver containers.
const FIRMWARE_MOUNT: &str = "/var/lib/gantry-firmware";

/// Writes the command and the hooks.
pub(super) fn generate(
    modprobe: &Modprobe,
    in_tree_modules: &[String],
    firmware_host_path: &str,
) -> GeneratedHooks {
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    let mut annotations = Map::new();
    let firmware = modprobe.firmware_path.as_deref().filter(|it| !it.is_empty());
    if firmware.is_some() {
        let path = json!({"path": firmware_host_path, "type": "DirectoryOrCreate"});
        volumes.push(json!({"name": "node-firmware", "hostPath": path}));
        mounts.push(json!({"name": "node-firmware", "mountPath": FIRMWARE_MOUNT}));
    }
    if !modprobe.modules_loading_order.is_empty() {
        annotations.insert(SOFTDEP_ANNOTATION.to_owned(), json!(softdep(modprobe)));
        let field = format!("metadata.annotations['{SOFTDEP_ANNOTATION}']");
        volumes.push(json!({"name": "modules-order", "downwardAPI": {"items": [{
            "path": "softdep.conf", "fieldRef": {"fieldPath": field},
        }]}}));
        mounts.push(json!({
            "name": "modules-order", "mountPath": "/etc/modprobe.d", "readOnly": true,
        }));
    }
    let load = load_commands(modprobe, in_tree_modules, firmware);
    let unload = unload_commands(modprobe, firmware);
    GeneratedHooks {
        command: vec!["sleep", "infinity"],
        lifecycle: json!({
            "postStart": {"exec": {"command": command(load)}},
            "preStop": {"exec": {"command": command(unload)}},
        }),
        volumes,
        mounts,
        annotations,
    }
}

/// A step of a hook: the words of a command, or a line of shell with quoted values.
enum HookStep {
    Exec(Vec<String>),
    Shell(String),
}

/// The steps that load.
fn load_commands(
    modprobe: &Modprobe,
    in_tree_modules: &[String],
    firmware: Option<&str>,
) -> Vec<HookStep> {
    let mut steps = Vec::new();
    for module in in_tree_modules {
        let loaded = format!("/sys/module/{}", module.replace('-', "_"));
        let (loaded, module) = (quoted(&loaded), quoted(module));
        steps.push(HookStep::Shell(format!("if [ -e {loaded} ]; then modprobe -rv {module}; fi")));
    }
    if let Some(path) = firmware {
        let from = quoted(&format!("{}/.", path.trim_end_matches('/')));
        steps.push(HookStep::Shell(format!("cp -r {from} {FIRMWARE_MOUNT}/")));
    }
    let mut words = vec!["modprobe".to_owned()];
    match &modprobe.raw_args {
        Some(raw) => words.extend(raw.load.iter().cloned()),
        None => {
            let given = modprobe.args.as_ref().map(|it| it.load.as_slice()).unwrap_or_default();
            words.extend(options(given, "-v"));
            words.extend(["-d".to_owned(), modprobe.directory().to_owned()]);
            words.extend(modprobe.module_name.clone());
            words.extend(modprobe.parameters.iter().cloned());
        }
    }
    steps.push(HookStep::Exec(words));
    steps
}

/// The steps that unload.
fn unload_commands(modprobe: &Modprobe, firmware: Option<&str>) -> Vec<HookStep> {
    let mut steps = Vec::new();
    if !modprobe.pre_unload.is_empty() {
        steps.push(HookStep::Exec(modprobe.pre_unload.clone()));
    }
    let mut words = vec!["modprobe".to_owned()];
    match &modprobe.raw_args {
        Some(raw) => words.extend(raw.unload.iter().cloned()),
        None => {
            let given = modprobe.args.as_ref().map(|it| it.unload.as_slice()).unwrap_or_default();
            words.extend(options(given, "-rv"));
            words.extend(["-d".to_owned(), modprobe.directory().to_owned()]);
            match modprobe.modules_loading_order.is_empty() {
                true => words.extend(modprobe.module_name.clone()),
                false => words.extend(modprobe.modules_loading_order.iter().cloned()),
            }
        }
    }
    steps.push(HookStep::Exec(words));
    if let Some(path) = firmware {
        // Only files that the image brought; directories and files of others stay.
        let from = quoted(path.trim_end_matches('/'));
        steps.push(HookStep::Shell(format!(
            "cd {from} && find . -type f -exec rm -f {FIRMWARE_MOUNT}/{{}} \\;"
        )));
    }
    steps
}

fn options(given: &[String], default: &str) -> Vec<String> {
    if given.is_empty() { vec![default.to_owned()] } else { given.to_vec() }
}

/// One command is executed without a shell; several are a script that stops at the first failure.
fn command(mut steps: Vec<HookStep>) -> Vec<String> {
    if let [HookStep::Exec(words)] = steps.as_mut_slice() {
        return std::mem::take(words);
    }
    let lines = steps.into_iter().map(|step| match step {
        HookStep::Exec(words) => {
            words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
        }
        HookStep::Shell(line) => line,
    });
    let script = lines.collect::<Vec<_>>().join(" && ");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
}

/// A word in single quotes, unless it needs none.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The file that makes modprobe load modules in their order.
fn softdep(modprobe: &Modprobe) -> String {
    let pairs = modprobe.modules_loading_order.windows(2);
    pairs.map(|pair| format!("softdep {} pre: {}\n", pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted() {
        let table = [
            ("a", "a"),
            ("debug=1", "debug=1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", "'it'\\''s'"),
            ("a;b", "'a;b'"),
        ];
        for (word, expected) in table {
            assert_eq!(quoted(word), expected, "{word}");
        }
    }
}
