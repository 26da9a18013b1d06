//! The module to load and unload, for containers that leave the commands to Gantry.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Findings;
use gantry_yaml::node::Path;

/// The module to load, and with which arguments. Either `moduleName` or both lists of `rawArgs` are
/// set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Modprobe {
    /// Name of the module, without `.ko`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// The directory of the image that holds `lib/modules/<kernel>`; `/opt` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir_name: Option<String>,
    /// Parameters of the module, such as `debug=1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// Options for modprobe, instead of `-v` and `-rv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<ModprobeArgs>,
    /// Everything that follows `modprobe` on its command line, instead of what Gantry would write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_args: Option<ModprobeArgs>,
    /// A directory of the image whose files are copied to the host's firmware directory before
    /// loading and removed after unloading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_path: Option<String>,
    /// Modules that need one another without saying so: each needs the next. The first is
    /// `moduleName`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_loading_order: Vec<String>,
    /// A command that runs in the container before the module is unloaded, to let go of its
    /// devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre_unload: Vec<String>,
}

/// Arguments for the two things modprobe does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModprobeArgs {
    /// Arguments to load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<String>,
    /// Arguments to unload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unload: Vec<String>,
}

impl Modprobe {
    /// The default directory of the module.
    pub const DIRECTORY: &'static str = "/opt";

    /// Returns the directory of the module.
    #[must_use]
    pub fn directory(&self) -> &str {
        self.dir_name.as_deref().unwrap_or(Self::DIRECTORY)
    }

    fn name(&self) -> Option<&str> {
        self.module_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Rules W-18 and W-19, as far as they are about this object alone.
    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        let raw = self.raw_args.as_ref();
        let complete = raw.is_some_and(|raw| !raw.load.is_empty() && !raw.unload.is_empty());
        match (self.name(), raw) {
            (Some(_), Some(_)) => {
                findings.error(&path.key("rawArgs"), "rawArgs exclude moduleName");
            }
            (None, _) if !complete => findings.error(
                &path.key("rawArgs"),
                "load and unload rawArgs are both needed without moduleName",
            ),
            (Some(_), None) | (None, Some(_) | None) => {}
        }
        self.check_loading_order(&path.key("modulesLoadingOrder"), findings);
    }

    fn check_loading_order(&self, path: &Path, findings: &mut Findings) {
        let [first, others @ ..] = self.modules_loading_order.as_slice() else { return };
        if others.is_empty() {
            findings.error(path, "needs at least two modules; remove it if there is only one");
        }
        let name = self.name().unwrap_or_default();
        if kernel_name(first) != kernel_name(name) {
            findings.error(&path.index(0), format!("must start with moduleName \"{name}\""));
        }
        check_duplicates(&self.modules_loading_order, path, findings);
    }
}

/// Rule W-20 for one list of modules to remove, at one level.
pub(super) fn check_in_tree_modules(
    modules: &[String],
    modprobe: Option<&Modprobe>,
    path: &Path,
    findings: &mut Findings,
) {
    if modules.is_empty() {
        return;
    }
    let Some(modprobe) = modprobe else {
        findings.error(path, "needs modprobe: without it the container unloads modules itself");
        return;
    };
    let loaded: BTreeSet<String> =
        modprobe.modules_loading_order.iter().skip(1).map(|name| kernel_name(name)).collect();
    for (index, module) in modules.iter().enumerate() {
        if !is_module_name(module) {
            let text = format!("\"{module}\" is not a module name: letters, digits, `-` and `_`");
            findings.error(&path.index(index), text);
        } else if loaded.contains(&kernel_name(module)) {
            let text = format!("\"{module}\" is loaded by modulesLoadingOrder");
            findings.error(&path.index(index), text);
        }
    }
    check_duplicates(modules, path, findings);
}

fn check_duplicates(modules: &[String], path: &Path, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, module) in modules.iter().enumerate() {
        if !seen.insert(kernel_name(module)) {
            findings.error(&path.index(index), format!("duplicate module \"{module}\""));
        }
    }
}

fn is_module_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Normalises a module name as the kernel does: it treats `-` and `_` as equal.
fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}
