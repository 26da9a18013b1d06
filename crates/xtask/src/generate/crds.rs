//! `config/crd`: one CustomResourceDefinition per kind.
//!
//! Scripts written for the original of `fma.llm-d.ai` apply and delete the folder `config/crd` and
//! the file `config/crds.yaml`, and mean its three kinds. The other groups are in folders below it,
//! which kubectl ignores without `--recursive`.

use gantry_api::kind::Kind;
use gantry_api::object;
use gantry_yaml as yaml;

use super::Generated;
use crate::tree::Tree;

/// The group whose scripts know these paths.
const PUBLISHED: &str = "fma.llm-d.ai";

/// Makes one file per kind, and the published group once more in one file.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let mut files = Vec::new();
    let mut together = String::new();
    for kind in object::KINDS {
        let content = yaml::write(&kind.crd())?;
        if kind.group == PUBLISHED {
            together.push_str(&format!("---\n{content}...\n"));
        }
        files.push(Generated { path: path(kind), content: format!("---\n{content}") });
    }
    files.push(Generated { path: "config/crds.yaml".to_owned(), content: together });
    Ok(files)
}

fn path(kind: &Kind) -> String {
    let Kind { group, plural, .. } = kind;
    if *group == PUBLISHED {
        format!("config/crd/{group}_{plural}.yaml")
    } else {
        format!("config/crd/{group}/{group}_{plural}.yaml")
    }
}
