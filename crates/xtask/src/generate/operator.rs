//! Generates `config/operator`, which deploys the operator.

use gantry::manifests::{Manifest, manifests};
use gantry_yaml as yaml;

use super::Generated;
use crate::tree::Tree;

/// Generates the files; those in `optional` grant what is only needed by features that are off by
/// default.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let mut files = Vec::new();
    for Manifest { file, objects } in manifests() {
        let mut content = String::new();
        for object in &objects {
            content.push_str(&format!("---\n{}", yaml::write(object)?));
        }
        files.push(Generated { path: format!("config/operator/{file}"), content });
    }
    Ok(files)
}
