//! A document as the user wrote it: values with the place they came from.
//!
//! Legacy spellings are rewritten on this tree, so that a finding about a field that was moved or
//! renamed still names the line the user has to edit.

use std::fmt;

use serde_json::{Map, Number, Value};

/// A line and a column in a file, both counted from 1; zero when a value has no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One value of a document and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where the value begins.
    pub at: Position,
    /// The value itself.
    pub value: Content,
}

/// What a [`Node`] holds. Maps keep the order of the document.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// `null`, `~` or nothing at all.
    Null,
    /// A boolean, also when written `yes` or `off`.
    Bool(bool),
    /// A number, kept as text-exact as JSON allows.
    Number(Number),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping with string keys, each unique.
    Map(Vec<(Key, Node)>),
}

/// The key of a map entry and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where the key begins.
    pub at: Position,
    /// The key itself.
    pub name: String,
}

impl Node {
    /// Creates a node without a place, for values that Gantry creates (defaults, conversions).
    #[must_use]
    pub fn without_position(value: Content) -> Self {
        Self { at: Position::default(), value }
    }

    /// A string at the place of `like`.
    #[must_use]
    pub fn string_at(like: Position, text: impl Into<String>) -> Self {
        Self { at: like, value: Content::String(text.into()) }
    }

    /// An empty map at `at`.
    #[must_use]
    pub fn empty_map(at: Position) -> Self {
        Self { at, value: Content::Map(Vec::new()) }
    }

    /// The tree of a JSON value; no node of it has a place.
    #[must_use]
    pub fn from_json(value: &Value) -> Self {
        Self::without_position(match value {
            Value::Null => Content::Null,
            Value::Bool(flag) => Content::Bool(*flag),
            Value::Number(number) => Content::Number(number.clone()),
            Value::String(text) => Content::String(text.clone()),
            Value::Array(items) => Content::List(items.iter().map(Self::from_json).collect()),
            Value::Object(entries) => Content::Map(
                entries
                    .iter()
                    .map(|(name, value)| {
                        let key = Key { at: Position::default(), name: name.clone() };
                        (key, Self::from_json(value))
                    })
                    .collect(),
            ),
        })
    }

    /// The same tree without places.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.value {
            Content::Null => Value::Null,
            Content::Bool(flag) => Value::Bool(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::String(text) => Value::String(text.clone()),
            Content::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Content::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.name.clone(), value.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// The entries, if this is a map.
    #[must_use]
    pub fn entries(&self) -> Option<&[(Key, Self)]> {
        if let Content::Map(inside) = &self.value { Some(inside) } else { None }
    }

    /// The entries, if this is a map.
    pub fn entries_mut(&mut self) -> Option<&mut Vec<(Key, Self)>> {
        if let Content::Map(inside) = &mut self.value { Some(inside) } else { None }
    }

    /// The elements, if this is a list.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        if let Content::List(inside) = &self.value { Some(inside) } else { None }
    }

    /// The elements, if this is a list.
    pub fn items_mut(&mut self) -> Option<&mut Vec<Self>> {
        if let Content::List(inside) = &mut self.value { Some(inside) } else { None }
    }

    /// The text, if this is a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Content::String(inside) = &self.value { Some(inside) } else { None }
    }

    /// The text a scalar stands for (`true`, `1`, `abc`); nothing for null, lists and maps.
    #[must_use]
    pub fn scalar_text(&self) -> Option<String> {
        match &self.value {
            Content::Bool(flag) => Some(flag.to_string()),
            Content::Number(number) => Some(number.to_string()),
            Content::String(text) => Some(text.clone()),
            Content::Null | Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.value, Content::Null)
    }

    /// The value of map entry `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.entries()?.iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// The value of map entry `name`.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.entries_mut()?.iter_mut().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// Whether this is a map with an entry `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Removes map entry `name` and returns it.
    pub fn take(&mut self, name: &str) -> Option<(Key, Self)> {
        let entries = self.entries_mut()?;
        let index = entries.iter().position(|(key, _)| key.name == name)?;
        Some(entries.remove(index))
    }

    /// Sets map entry `name`, keeping its place in the order if it was there. Does nothing on
    /// anything but a map.
    pub fn set(&mut self, name: &str, value: Self) {
        let at = value.at;
        let Some(entries) = self.entries_mut() else { return };
        match entries.iter_mut().find(|(key, _)| key.name == name) {
            Some((_, old)) => *old = value,
            None => entries.push((Key { at, name: name.to_owned() }, value)),
        }
    }

    /// Compares values, ignoring their places.
    #[must_use]
    pub fn same_value(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }

    /// Returns the place of the value at `path`, or of the deepest part of `path` that exists.
    #[must_use]
    pub fn position_of(&self, path: &Path) -> Position {
        let mut node = self;
        let mut at = self.at;
        for step in &path.0 {
            let next = match step {
                Step::Field(name) => node.entries().and_then(|entries| {
                    entries.iter().find(|(key, _)| key.name == *name).map(|(k, v)| (k.at, v))
                }),
                Step::Index(index) => {
                    node.items().and_then(|items| items.get(*index)).map(|item| (item.at, item))
                }
            };
            let Some((place, child)) = next else { break };
            if place != Position::default() {
                at = place;
            }
            node = child;
        }
        at
    }
}

/// The way from the root of an object to one of its values, printed as Kubernetes prints it:
/// `spec.claims[0].name`, `metadata.labels[app/x]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Field(String),
    Index(usize),
}

impl Path {
    /// The object itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of a dotted text such as `spec.driverContainer`; no brackets.
    #[must_use]
    pub fn of(dotted: &str) -> Self {
        dotted.split('.').filter(|part| !part.is_empty()).fold(Self::root(), |p, part| p.key(part))
    }

    /// The path of entry `name` below this one.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Field(name.to_owned()));
        Self(steps)
    }

    /// The path of a dotted text below this one.
    #[must_use]
    pub fn join(&self, dotted: &str) -> Self {
        self.append(&Self::of(dotted))
    }

    /// The path that leads on from this one as `rest` does from the root.
    #[must_use]
    pub fn append(&self, rest: &Self) -> Self {
        Self(self.0.iter().chain(&rest.0).cloned().collect())
    }

    /// The path of element `index` below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }

    /// Whether this is the object itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if name.contains(['.', '/']) => write!(f, "[{name}]")?,
                Step::Field(name) if place == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_kubernetes_prints_them() {
        let table = [
            (Path::root(), ""),
            (Path::of("spec.claims").index(2).key("name"), "spec.claims[2].name"),
            (Path::of("metadata.labels").key("a.b/c"), "metadata.labels[a.b/c]"),
        ];
        for (path, text) in table {
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn missing_values_have_parent_position() {
        let inner = Node { at: Position { line: 3, column: 5 }, value: Content::Map(Vec::new()) };
        let key = Key { at: Position { line: 2, column: 1 }, name: "spec".to_owned() };
        let node =
            Node { at: Position { line: 1, column: 1 }, value: Content::Map(vec![(key, inner)]) };
        assert_eq!(node.position_of(&Path::of("spec.claims")).line, 2);
        assert_eq!(node.position_of(&Path::of("status")).line, 1);
    }
}
