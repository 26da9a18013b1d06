//! Every key of the unified configuration, as data.
//!
//! Reading, defaults, legacy names, `--print-config`, the comparison of two configurations and the
//! page `docs/operator-configuration.md` are all generated from this one list, to which each
//! subsystem adds its keys.

use std::sync::LazyLock;

pub use gantry_subsystem::settings::{Alias, DefaultValue, Effect, Key};

use crate::subsystems::SUBSYSTEMS;

mod table;

/// All keys: those of the process, then those of each subsystem.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let subsystems = SUBSYSTEMS.iter().flat_map(|it| it.settings.keys);
    table::PROCESS.iter().chain(subsystems).copied().collect()
});

/// Paths of the originals that have a new name now. Both names at once are accepted if their values
/// are equal.
fn aliases() -> impl Iterator<Item = &'static Alias> {
    SUBSYSTEMS.iter().flat_map(|it| it.settings.aliases)
}

/// Returns whether a path is a section, that is a map of keys.
#[must_use]
pub fn is_section(path: &str) -> bool {
    let below = |key: &Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    path.is_empty() || KEYS.iter().any(below)
}

/// Returns the key of this path, or the key that this path is an alias of.
#[must_use]
pub fn key(path: &str) -> Option<&'static Key> {
    let alias = aliases().find(|alias| alias.path == path);
    let path = alias.map_or(path, |alias| alias.key);
    KEYS.iter().find(|key| key.path == path)
}

/// Returns every path of a key.
#[must_use]
pub fn paths(key: &Key) -> Vec<&'static str> {
    let others = aliases().filter(|alias| alias.key == key.path);
    std::iter::once(key.path).chain(others.map(|alias| alias.path)).collect()
}

/// Returns the names in a section, each once.
#[must_use]
pub fn names_in(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let others = aliases().map(|alias| alias.path);
    for path in KEYS.iter().map(|key| key.path).chain(others) {
        let rest = match section {
            "" => Some(path),
            _ => path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')),
        };
        let name = rest.and_then(|rest| rest.split('.').next());
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value_type::ParsedValue;
    use gantry_yaml::node::Node;

    #[test]
    fn every_default_is_a_canonical_value_of_its_form() {
        for key in KEYS.iter() {
            let fit = key.value_type.parse_node(&Node::from_json(&key.default.value())).unwrap();
            match fit {
                ParsedValue::Set(value) => assert_eq!(value, key.default.value(), "{}", key.path),
                // Zero and the empty text stand for a default that has exactly this value.
                ParsedValue::Default => {
                    assert_eq!(key.default, DefaultValue::Unset, "{}", key.path);
                }
            }
        }
    }

    #[test]
    fn paths_are_unique_and_no_key_is_a_section() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(!is_section(key.path), "{}", key.path);
            assert!(KEYS[index + 1..].iter().all(|other| other.path != key.path), "{}", key.path);
            assert!(key.about.ends_with('.'), "{}", key.path);
        }
        assert_eq!(names_in("instascale.ocmSecretRef"), ["name", "namespace"]);
        assert_eq!(names_in("simulation"), ["enabled"]);
        for Alias { path, key: of } in aliases() {
            assert!(KEYS.iter().all(|key| key.path != *path), "{path} is a key of its own");
            assert_eq!(key(path).unwrap().path, *of);
        }
        assert!(names_in("mcad").contains(&"enabled"));
        assert!(names_in("").contains(&"mcadEnabled") && names_in("").contains(&"mcad"));
    }
}
