//! The ClusterRoles that an administrator of a shared cluster binds once, in their published files.

use gantry_sharing::admin_roles::admin_roles;
use gantry_yaml as yaml;

use super::Generated;
use crate::tree::Tree;

/// Makes one file per role.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    admin_roles()
        .iter()
        .map(|role| {
            let content = format!("---\n{}", yaml::write(&role.object)?);
            Ok(Generated { path: role.file.to_owned(), content })
        })
        .collect()
}
