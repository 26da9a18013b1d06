//! Checks that everything uses one version of the group that is shared with other programs.

use std::collections::BTreeSet;

use regex::Regex;

use super::Violation;
use crate::published::{FOLDER, Version};
use crate::rust_text::line_of;
use crate::tree::Tree;

/// The group of which installations of different age use different versions at once.
const SHARED: &str = "fma.llm-d.ai";

/// Looks for other versions of the shared group than the one its kinds have.
pub(super) fn check(tree: &Tree, current: &[Version]) -> anyhow::Result<Vec<Violation>> {
    let spoken: BTreeSet<&str> = current
        .iter()
        .filter_map(|version| version.name.strip_prefix(SHARED)?.strip_prefix('/'))
        .collect();
    let used = Regex::new(&format!(r"{}/(v[0-9][0-9a-z]*)", regex::escape(SHARED)))?;
    let mut violations = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| must_use_current_version(path)) {
        for found in used.captures_iter(text).filter(|found| !spoken.contains(&found[1])) {
            let what = format!("`{}` is not the version of this commit", &found[0]);
            let remedy = format!(
                "switch all of it to {}",
                spoken.iter().map(|it| format!("{SHARED}/{it}")).collect::<Vec<_>>().join(", ")
            );
            let line = line_of(text, found.get(0).map_or(0, |all| all.start()));
            violations.push(Violation::new(path, line, what, remedy));
        }
    }
    Ok(violations)
}

/// Returns whether a path is checked: not published copies, and not samples that must be rejected.
fn must_use_current_version(path: &str) -> bool {
    let of_the_past = path.starts_with(FOLDER) || path == "CHANGELOG.md";
    !of_the_past && !path.ends_with("-refused.yaml")
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::published;

    #[test]
    fn cs_17_one_version_is_spoken_everywhere() {
        // Concatenated here, because this file is checked as well.
        let (ours, other) = (format!("{SHARED}/v1alpha1"), format!("{SHARED}/v2"));
        let current = published::current();
        let complaint = |path: &str, line: usize| {
            Some(format!(
                "{path}:{line}: `{other}` is not the version of this commit; switch all \
                          of it to {ours}"
            ))
        };
        let table = [
            ("ours", "examples/a.yaml", format!("apiVersion: {ours}\n"), None),
            ("an example", "examples/a.yaml", format!("a\napiVersion: {other}\n"), Some(2)),
            ("code", "crates/a/src/b.rs", format!("\"/apis/{other}/things\""), Some(1)),
            ("a script", "scripts/a", format!("kubectl get {other}"), Some(1)),
            ("another group", "a.md", "x.test/v2".to_owned(), None),
            ("no version", "a.md", format!("{SHARED}/inferenceserverconfig"), None),
            ("what was", "CHANGELOG.md", other.clone(), None),
            ("what is kept", "config/published/a.yaml", other.clone(), None),
            ("what is refused", "tests/a-refused.yaml", other.clone(), None),
        ];
        for (why, path, text, line) in table {
            let found = lines(&check(&Tree::sample(&[(path, &text)]), &current).unwrap());
            let expected = line.and_then(|line| complaint(path, line));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn cs_16_the_kinds_of_the_group_have_one_version() {
        let all = published::current();
        let spoken: BTreeSet<_> =
            all.iter().map(|it| &*it.name).filter(|name| name.starts_with(SHARED)).collect();
        assert_eq!(spoken.len(), 1, "{spoken:?}");
    }
}
