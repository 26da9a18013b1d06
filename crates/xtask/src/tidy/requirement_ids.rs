//! Checks that tests cite existing requirements.

use regex::Regex;

use super::Violation;
use crate::generate::{INDEX, RequirementIndex};
use crate::rust_text::{RustFile, attributes, line_of};

/// Compares the ids in names of tests (`fn as_24_…` cites `AS-24`) with the index.
pub(super) fn check(
    sources: &[RustFile],
    known: &RequirementIndex,
) -> anyhow::Result<Vec<Violation>> {
    let cited = Regex::new(r"^([a-z]{1,4})_(\d+)(?:_|$)")?;
    let function = Regex::new(r"\bfn\s+([A-Za-z0-9_]+)")?;
    let mut violations = Vec::new();
    for file in sources {
        let mut last = None;
        for attribute in attributes(&file.code).iter().filter(|it| is_test_attribute(it.body)) {
            let after = &file.code[attribute.end..];
            let Some(name) = function.captures(after).and_then(|found| found.get(1)) else {
                continue;
            };
            let place = attribute.end + name.start();
            // A function may carry several such attributes.
            if last.replace(place) == Some(place) {
                continue;
            }
            let Some(found) = cited.captures(name.as_str()) else { continue };
            let prefix = found[1].to_uppercase();
            let exists = found[2].parse().is_ok_and(|number| known.has(&prefix, number));
            if known.has_prefix(&prefix) && !exists {
                let what = format!("test cites {prefix}-{}, which no specification has", &found[2]);
                let remedy = format!("cite an id of {INDEX}, or rename the test");
                let line = line_of(&file.code, place);
                violations.push(Violation::new(&file.path, line, what, remedy));
            }
        }
    }
    Ok(violations)
}

/// `test`, `tokio::test`, `rstest`, `test_case(…)`, but not `cfg(test)`.
fn is_test_attribute(attribute: &str) -> bool {
    let path = attribute.split('(').next().unwrap_or_default().trim();
    path.rsplit("::").next().is_some_and(|name| name.contains("test"))
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn cited_ids_exist() {
        let known = RequirementIndex::parse("actuation AS-24 text\nprovision D-01 text\n");
        let unknown = |line: usize, id: &str| {
            Some(format!(
                "a.rs:{line}: test cites {id}, which no specification has; \
                 cite an id of docs/specs/index.txt, or rename the test"
            ))
        };
        let table = [
            // why                                source                                 expected
            ("a known id", "#[test]\nfn as_24_hot() {}", None),
            ("zeros do not matter", "#[test]\nfn d_1_reachable() {}", None),
            ("an unknown number", "#[test]\nfn as_25_warm() {}", unknown(2, "AS-25")),
            ("no text after the number", "#[test]\nfn as_25() {}", unknown(2, "AS-25")),
            (
                "a number too large",
                "#[test]\nfn as_99999999999_x() {}",
                unknown(2, "AS-99999999999"),
            ),
            ("an async test", "#[tokio::test]\nasync fn as_25_x() {}", unknown(2, "AS-25")),
            ("with arguments", "#[tokio::test(a = 1)]\nasync fn as_25_x() {}", unknown(2, "AS-25")),
            ("more attributes", "#[test]\n#[a]\n/// b\nfn as_25_x() {}", unknown(4, "AS-25")),
            ("two marks, one line", "#[test]\n#[test_log]\nfn as_25_x() {}", unknown(3, "AS-25")),
            (
                "inside a macro",
                "proptest! {\n#[test]\nfn as_25_x(a in b()) {}\n}",
                unknown(3, "AS-25"),
            ),
            ("an unknown prefix", "#[test]\nfn v_25_x() {}", None),
            ("no id", "#[test]\nfn as_soon_as_25() {}", None),
            ("no test", "fn as_25_x() {}", None),
            ("a test module's first line", "#[cfg(test)]\nmod a {\nfn as_25_x() {}\n}", None),
        ];
        for (why, source, expected) in table {
            let found = lines(&check(&[RustFile::new("a.rs", source)], &known).unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }
}
