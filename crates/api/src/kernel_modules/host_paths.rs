//! Rule W-17: which directories of the host a Module may mount.

use k8s_openapi::api::core::v1::Volume;

use super::container::{clean_path, is_below};
use super::module::ModuleSpec;
use crate::finding::Findings;
use gantry_yaml::node::Path;

/// Checks that the `hostPath` volumes of a Module are in the directories that an administrator
/// allows, or below them. Paths are compared in their shortest spelling.
///
/// Nothing calls this unless it is configured: a user that may write Modules is root on the nodes
/// anyway.
#[must_use]
pub fn check_host_paths(spec: &ModuleSpec, allowed: &[String]) -> Findings {
    let mut findings = Findings::default();
    let allowed: Vec<String> = allowed.iter().map(|directory| clean_path(directory)).collect();
    let mut check = |volumes: &[Volume], part: &str| {
        let path = Path::of("spec").key(part).key("volumes");
        for (index, volume) in volumes.iter().enumerate() {
            let Some(host) = &volume.host_path else { continue };
            if !is_allowed(&host.path, &allowed) {
                let list = match allowed.as_slice() {
                    [] => "remove the volume".to_owned(),
                    allowed => format!("use a path below {}", allowed.join(", ")),
                };
                let text = format!("hostPath \"{}\" is not allowed; {list}", host.path);
                findings.error(&path.index(index).join("hostPath.path"), text);
            }
        }
    };
    if let Some(driver) = &spec.driver_container {
        check(&driver.volumes, "driverContainer");
    }
    if let Some(plugin) = &spec.device_plugin {
        check(&plugin.volumes, "devicePlugin");
    }
    findings
}

fn is_allowed(path: &str, allowed: &[String]) -> bool {
    let clean = clean_path(path);
    let within = |directory: &String| clean == *directory || is_below(&clean, directory);
    path.starts_with('/') && allowed.iter().any(within)
}
