//! Values with their sources, merged layer by layer.

use std::collections::BTreeMap;
use std::fmt;

use gantry_yaml::node::Position;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::key::Key;

/// The source of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Not set.
    #[default]
    Default,
    /// A position in a text.
    Text(TextPosition),
    /// The environment variable of this name.
    Variable(&'static str),
    /// The flag of this name on the command line.
    Flag(&'static str),
    /// An object that is not a configuration text, such as a Secret that exists.
    Object(String),
}

/// A position in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The name of the text in messages.
    pub source: String,
    /// The position in the text.
    pub at: Position,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Text(TextPosition { source, at }) => write!(f, "{source}:{at}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Object(name) => f.write_str(name),
        }
    }
}

/// A finding about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMessage {
    /// The source of the value.
    pub origin: Origin,
    /// The key; empty for the whole text.
    pub key: String,
    /// What is wrong, and what to do about it.
    pub text: String,
}

impl fmt::Display for ConfigMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, text } = self;
        match &**key {
            "" => write!(f, "{origin}: {text}"),
            key => write!(f, "{origin}: {key}: {text}"),
        }
    }
}

/// All findings about a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigReport {
    /// The errors because of which it cannot be used.
    pub errors: Vec<ConfigMessage>,
    /// Warnings about values that may be mistakes.
    pub warnings: Vec<ConfigMessage>,
    /// The unknown keys; each also has a warning.
    pub unknown_keys: Vec<String>,
}

impl ConfigReport {
    /// Adds the findings of another report.
    pub fn append(&mut self, other: Self) {
        let Self { errors, warnings, unknown_keys: unknown } = other;
        self.errors.extend(errors);
        self.warnings.extend(warnings);
        self.unknown_keys.extend(unknown);
    }

    /// Rejects the value of a key, with what to do about it.
    pub fn refuse(&mut self, values: &Values, key: &str, text: String) {
        self.errors.push(ConfigMessage { origin: values.origin(key), key: key.to_owned(), text });
    }

    /// Warns about the value of a key that is accepted.
    pub fn warn(&mut self, values: &Values, key: &str, text: String) {
        self.warnings.push(ConfigMessage { origin: values.origin(key), key: key.to_owned(), text });
    }

    /// Returns whether one of these keys has an error already, so that rules that span them are not
    /// checked.
    #[must_use]
    pub fn has_error_for(&self, keys: &[&str]) -> bool {
        self.errors.iter().any(|error| keys.contains(&&*error.key))
    }
}

/// The values of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer(BTreeMap<&'static str, (Value, Origin)>);

impl Layer {
    /// Sets the value of a key, in its canonical form.
    pub fn set(&mut self, path: &'static str, value: Value, origin: Origin) {
        self.0.insert(path, (value, origin));
    }

    /// Returns the value of a key, if this source has one.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.0.get(path).map(|(value, _)| value)
    }

    /// Returns whether the source has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The value of every key.
#[derive(Clone, Debug)]
pub struct Values {
    keys: &'static [Key],
    values: Layer,
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Values {
    /// Merges the layers over the defaults of these keys; later layers override earlier ones.
    #[must_use]
    pub fn from_layers<'a>(
        keys: &'static [Key],
        layers: impl IntoIterator<Item = &'a Layer>,
    ) -> Self {
        let defaults = keys.iter().map(|key| (key.path, (key.default.value(), Origin::Default)));
        let mut values: BTreeMap<_, _> = defaults.collect();
        for Layer(layer) in layers {
            values.extend(layer.iter().map(|(path, set)| (*path, set.clone())));
        }
        Self { keys, values: Layer(values) }
    }

    /// Returns every key with its value and source, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Value, &Origin)> {
        self.keys.iter().filter_map(|key| {
            let (value, origin) = self.values.0.get(key.path)?;
            Some((key, value, origin))
        })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, path: &str) -> &Value {
        self.values.get(path).unwrap_or(&Value::Null)
    }

    /// Returns the source of a key's value.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        self.values.0.get(path).map(|(_, origin)| origin.clone()).unwrap_or_default()
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn is_on(&self, path: &str) -> bool {
        self.get(path) == true
    }

    /// Returns the text of a key; empty if it has none.
    #[must_use]
    pub fn text(&self, path: &str) -> &str {
        self.get(path).as_str().unwrap_or_default()
    }

    /// Reads one section, such as `devices`, into the type of the subsystem that it belongs to.
    ///
    /// # Errors
    /// The keys of the section and the fields of the type disagree, or a value that no
    /// [`ValueType`] can describe is wrong; the rules of the subsystem reject those first.
    ///
    /// [`ValueType`]: super::value_type::ValueType
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, serde_json::Error> {
        let mut tree = self.tree();
        serde_json::from_value(tree[name].take())
    }

    /// Copies the value of a key from another configuration.
    pub fn copy_from(&mut self, path: &'static str, from: &Self) {
        self.values.set(path, from.get(path).clone(), from.origin(path));
    }

    /// Resets a key to its default.
    pub fn reset(&mut self, path: &str) {
        if let Some(key) = self.keys.iter().find(|key| key.path == path) {
            self.values.set(key.path, key.default.value(), Origin::Default);
        }
    }

    /// Returns the values as the tree of a document with all of them.
    #[must_use]
    pub fn tree(&self) -> Value {
        let mut root = Map::new();
        for (key, value, _) in self.iter() {
            let mut section = &mut root;
            let mut names = key.path.split('.').peekable();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    section.insert(name.to_owned(), value.clone());
                    break;
                }
                let below = section.entry(name).or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(below) = below else { break };
                section = below;
            }
        }
        Value::Object(root)
    }
}
