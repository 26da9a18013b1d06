//! Every key of the unified configuration, as data.
//!
//! Reading, defaults, the legacy names, `--print-config`, the comparison of two configurations and
//! the page `docs/operator-configuration.md` are all made from this one list.

use serde_json::Value;

use super::form::Form;

mod table;

pub use table::KEYS;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its way from the root, with dots.
    pub path: &'static str,
    /// What its value may look like.
    pub form: Form,
    /// What it is when nothing is said.
    pub default: Usual,
    /// When a change of it is noticed.
    pub effect: Effect,
    /// What it means.
    pub about: &'static str,
}

/// The value of a key when nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// None.
    Unset,
    /// A switch.
    Flag(bool),
    /// A number.
    Count(i32),
    /// A text.
    Text(&'static str),
    /// A list without elements.
    Empty,
}

impl Usual {
    /// The same as JSON; null if there is none.
    #[must_use]
    pub fn value(self) -> Value {
        match self {
            Self::Unset => Value::Null,
            Self::Flag(flag) => flag.into(),
            Self::Count(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::Empty => Value::Array(Vec::new()),
        }
    }
}

/// When a change of a key is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is taken over while the operator runs: the next decision uses it, none is undone.
    Live,
    /// The operator has to start again, and says so.
    Restart,
    /// Never: it is read because older configurations have it. The text says so.
    Never(&'static str),
}

/// Where a key that is known begins: sections are maps of keys.
#[must_use]
pub fn is_section(path: &str) -> bool {
    let below = |key: &Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    path.is_empty() || KEYS.iter().any(below)
}

/// Another path by which versions of the original had a key.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other path.
    pub path: &'static str,
    /// The path of the key.
    pub key: &'static str,
}

/// Paths of the original that have another name now. Both names at once are accepted while they say
/// the same.
pub const ALIASES: &[Alias] = &[Alias { path: "mcad.enabled", key: "mcadEnabled" }];

/// The key of this path, or the one of which it is another name.
#[must_use]
pub fn key(path: &str) -> Option<&'static Key> {
    let alias = ALIASES.iter().find(|alias| alias.path == path);
    let path = alias.map_or(path, |alias| alias.key);
    KEYS.iter().find(|key| key.path == path)
}

/// Every path of a key.
#[must_use]
pub fn paths(key: &Key) -> Vec<&'static str> {
    let others = ALIASES.iter().filter(|alias| alias.key == key.path);
    std::iter::once(key.path).chain(others.map(|alias| alias.path)).collect()
}

/// The names that may stand in a section, each once.
#[must_use]
pub fn names_in(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let aliases = ALIASES.iter().map(|alias| alias.path);
    for path in KEYS.iter().map(|key| key.path).chain(aliases) {
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
    use crate::config::form::Fit;
    use gantry_api::node::Node;

    #[test]
    fn every_default_is_a_canonical_value_of_its_form() {
        for key in KEYS {
            let fit = key.form.fit(&Node::from_json(&key.default.value())).unwrap();
            match fit {
                Fit::Is(value) => assert_eq!(value, key.default.value(), "{}", key.path),
                // Zero and the empty text stand for a default that is just that.
                Fit::Default => assert_eq!(key.default, Usual::Unset, "{}", key.path),
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
        for Alias { path, key: of } in ALIASES {
            assert!(KEYS.iter().all(|key| key.path != *path), "{path} is a key of its own");
            assert_eq!(key(path).unwrap().path, *of);
        }
        assert!(names_in("mcad").contains(&"enabled"));
        assert!(names_in("").contains(&"mcadEnabled") && names_in("").contains(&"mcad"));
    }
}
