//! Generates `config/rbac`: the ClusterRoles for users.

use gantry_api::roles;
use gantry_yaml as yaml;

use super::Generated;
use crate::tree::Tree;

/// Makes one file per role.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    roles::roles()
        .iter()
        .map(|role| {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("config/rbac/{name}.yaml");
            Ok(Generated { path, content: format!("---\n{}", yaml::write(role)?) })
        })
        .collect()
}
