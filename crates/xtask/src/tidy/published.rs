//! Checks that published versions do not change or disappear.

use super::Violation;
use crate::published::{FOLDER, Version, difference};
use crate::tree::Tree;

/// Compares the frozen copies with the versions that the kinds have now. A version without a copy
/// is not published yet, and may change.
pub(super) fn check(tree: &Tree, current: &[Version]) -> Vec<Violation> {
    let inside = |path: &&str| path.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
    tree.paths()
        .filter(inside)
        .filter_map(|path| check_copy(path, tree.text(path), current))
        .collect()
}

fn check_copy(path: &str, copy: Option<&str>, current: &[Version]) -> Option<Violation> {
    let violation = |what: String, remedy: &str| Some(Violation::new(path, 1, what, remedy));
    let Some(version) = current.iter().find(|version| version.path == path) else {
        return violation(
            "no kind has this published version any more".to_owned(),
            "keep it; once it is unused, remove the version and this copy in one commit",
        );
    };
    let name = &version.name;
    match difference(copy.unwrap_or_default(), version) {
        Ok(None) => None,
        Ok(Some(how)) => violation(
            format!("{name} is published and never changes, and {how}"),
            "revert that and add a version; others in the cluster use this one",
        ),
        Err(error) => {
            violation(format!("the copy of {name} is invalid: {error:#}"), "restore the copy")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::published::tests::{copy, definition};
    use crate::published::{current, versions};

    #[test]
    fn cs_12_published_versions_stay() {
        let (path, text) = copy(&[("v1", 1)]);
        let at = |what: &str| vec![format!("{path}:1: {what}")];
        let changed = at("x.test/v1 is published and never changes, and version.schema.\
             openAPIV3Schema.properties.port.maximum was 1 and is 2; revert that and add a \
             version; others in the cluster use this one");
        let gone = at("no kind has this published version any more; keep it; once it is unused, \
             remove the version and this copy in one commit");
        let table = [
            ("as it was", vec![("v1", 1)], vec![]),
            ("changed", vec![("v1", 2)], changed),
            ("removed", vec![("v2", 1)], gone),
            ("a version is added", vec![("v2", 2), ("v1", 1)], vec![]),
            ("and may change while it is new", vec![("v2", 3), ("v1", 1)], vec![]),
        ];
        for (why, now, expected) in table {
            let tree = Tree::sample(&[(&path, &text)]);
            assert_eq!(lines(&check(&tree, &versions(&definition(&now)))), expected, "{why}");
        }
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_found() {
        let (path, _) = copy(&[("v1", 1)]);
        let now = versions(&definition(&[("v1", 1)]));
        for text in ["", "a: [", "a: 1\n---\na: 1\n"] {
            let found = lines(&check(&Tree::sample(&[(&path, text)]), &now)).join("\n");
            assert!(found.contains("the copy of x.test/v1 is invalid"), "{found}");
        }
        let elsewhere = Tree::sample(&[("config/published-not/a.yaml", ""), ("a.yaml", "")]);
        assert_eq!(check(&elsewhere, &now), []);
    }

    /// The kinds that other programs use are frozen, all of them.
    #[test]
    fn cs_12_the_shared_group_is_published() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let shared: Vec<_> =
            current().into_iter().filter(|it| it.name == "fma.llm-d.ai/v1alpha1").collect();
        assert_eq!(shared.len(), 3);
        for version in shared {
            assert!(root.join(&version.path).exists(), "{} is missing", version.path);
        }
    }
}
