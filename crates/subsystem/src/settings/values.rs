//! Values with where they came from, layer upon layer.

use std::collections::BTreeMap;
use std::fmt;

use gantry_api::node::Position;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::key::Key;

/// Where a value was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    #[default]
    Default,
    /// In a text.
    Text(Place),
    /// In the environment, under this name.
    Variable(&'static str),
    /// On the command line, by this flag.
    Flag(&'static str),
    /// In an object that is no configuration text, such as a Secret that exists.
    Object(String),
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the text is called.
    pub source: String,
    /// Where in it.
    pub at: Position,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Text(Place { source, at }) => write!(f, "{source}:{at}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Object(name) => f.write_str(name),
        }
    }
}

/// Something to say about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it was written.
    pub origin: Origin,
    /// The key; empty for the whole text.
    pub key: String,
    /// What is the matter, and what to do about it.
    pub text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, text } = self;
        match &**key {
            "" => write!(f, "{origin}: {text}"),
            key => write!(f, "{origin}: {key}: {text}"),
        }
    }
}

/// Everything there is to say about a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Why it cannot be used.
    pub errors: Vec<Remark>,
    /// What was accepted and may not be meant.
    pub warnings: Vec<Remark>,
    /// The keys that nobody knows; each is also warned about.
    pub unknown: Vec<String>,
}

impl Report {
    /// Adds what another one says.
    pub fn append(&mut self, other: Self) {
        let Self { errors, warnings, unknown } = other;
        self.errors.extend(errors);
        self.warnings.extend(warnings);
        self.unknown.extend(unknown);
    }

    /// Refuses the value of a key, with what to do about it.
    pub fn refuse(&mut self, values: &Values, key: &str, text: String) {
        self.errors.push(Remark { origin: values.origin(key), key: key.to_owned(), text });
    }

    /// Warns about the value of a key that is accepted.
    pub fn warn(&mut self, values: &Values, key: &str, text: String) {
        self.warnings.push(Remark { origin: values.origin(key), key: key.to_owned(), text });
    }

    /// Whether one of these keys is wrong already, so that nothing can be said about all of them.
    #[must_use]
    pub fn blames(&self, keys: &[&str]) -> bool {
        self.errors.iter().any(|error| keys.contains(&&*error.key))
    }
}

/// Values that one source gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer(BTreeMap<&'static str, (Value, Origin)>);

impl Layer {
    /// Sets the value of a key, in its canonical form.
    pub fn set(&mut self, path: &'static str, value: Value, origin: Origin) {
        self.0.insert(path, (value, origin));
    }

    /// The value of a key, if this source gives one.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.0.get(path).map(|(value, _)| value)
    }

    /// Whether nothing is given.
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
    /// What stands when the layers are put on the defaults of these keys; later ones win.
    #[must_use]
    pub fn stack<'a>(keys: &'static [Key], layers: impl IntoIterator<Item = &'a Layer>) -> Self {
        let defaults = keys.iter().map(|key| (key.path, (key.default.value(), Origin::Default)));
        let mut values: BTreeMap<_, _> = defaults.collect();
        for Layer(layer) in layers {
            values.extend(layer.iter().map(|(path, set)| (*path, set.clone())));
        }
        Self { keys, values: Layer(values) }
    }

    /// Every key with its value and origin, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Value, &Origin)> {
        self.keys.iter().filter_map(|key| {
            let (value, origin) = self.values.0.get(key.path)?;
            Some((key, value, origin))
        })
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, path: &str) -> &Value {
        self.values.get(path).unwrap_or(&Value::Null)
    }

    /// Where the value of a key was written.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        self.values.0.get(path).map(|(_, origin)| origin.clone()).unwrap_or_default()
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, path: &str) -> bool {
        self.get(path) == true
    }

    /// The text of a key; empty where it has none.
    #[must_use]
    pub fn text(&self, path: &str) -> &str {
        self.get(path).as_str().unwrap_or_default()
    }

    /// Reads one section, such as `devices`, into the type of the subsystem that it belongs to.
    ///
    /// # Errors
    /// The keys of the section and the fields of the type disagree, or a value that no [`Form`] can describe
    /// is wrong; the rules of the subsystem refuse those first.
    ///
    /// [`Form`]: super::form::Form
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, serde_json::Error> {
        let mut tree = self.tree();
        serde_json::from_value(tree[name].take())
    }

    /// Takes the value of a key from another configuration.
    pub fn put(&mut self, path: &'static str, from: &Self) {
        self.values.set(path, from.get(path).clone(), from.origin(path));
    }

    /// Puts a key back to its default.
    pub fn reset(&mut self, path: &str) {
        if let Some(key) = self.keys.iter().find(|key| key.path == path) {
            self.values.set(key.path, key.default.value(), Origin::Default);
        }
    }

    /// The values as the tree that a document with all of them would be.
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
