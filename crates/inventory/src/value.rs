//! Values of variables with the place each of them was written at.

use serde_json::{Map, Number, Value as Json};
use zeroize::Zeroizing;

use crate::finding::Place;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where the value begins.
    pub at: Place,
    /// The value itself.
    pub value: Value,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text, which may contain expressions.
    Text(String),
    /// Text that was encrypted by itself.
    Vault(VaultText),
    /// A list.
    List(Vec<Node>),
    /// A map with unique keys, in order.
    Map(Vec<(Key, Node)>),
}

/// The key of a map and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where the key begins.
    pub at: Place,
    /// The key as text.
    pub name: String,
    /// Whether the key was written as text, and not as a number, a boolean or nothing.
    pub is_text: bool,
}

/// A text that is encrypted in the inventory, and its content if a password was given.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultText {
    pub(crate) envelope: String,
    pub(crate) content: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for VaultText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.content.is_some() { "decrypted" } else { "encrypted" };
        write!(f, "VaultText({state})")
    }
}

impl VaultText {
    /// The encrypted text as it stands in the inventory.
    #[must_use]
    pub fn envelope(&self) -> &str {
        &self.envelope
    }

    /// The secret, if a password was given that decrypts it.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        self.content.as_deref().map(String::as_str)
    }
}

impl Node {
    /// The entries, if this is a map.
    #[must_use]
    pub fn entries(&self) -> Option<&[(Key, Self)]> {
        if let Value::Map(entries) = &self.value { Some(entries) } else { None }
    }

    /// The elements, if this is a list.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    /// The text, if this is text that was not encrypted.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The value of an entry.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.entries()?.iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// The word for the type of the value, for messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::Vault(_) => "an encrypted text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value as JSON. An encrypted text stays encrypted, in the form that `ansible-inventory`
    /// gives it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Number(number) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::Vault(vault) => {
                let envelope = Json::String(vault.envelope.clone());
                Json::Object(Map::from_iter([("__ansible_vault".to_owned(), envelope)]))
            }
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|(key, value)| (key.name.clone(), value.to_json())).collect(),
            ),
        }
    }

    /// How many characters the value has on its line, at least one.
    pub(crate) fn width(&self) -> usize {
        match &self.value {
            Value::Null | Value::Vault(_) | Value::List(_) | Value::Map(_) => 1,
            Value::Bool(flag) => flag.to_string().len(),
            Value::Number(number) => number.to_string().len(),
            Value::Text(text) => text.lines().next().unwrap_or_default().chars().count().max(1),
        }
    }

    /// Calls a function with every text below this value.
    pub(crate) fn each_text<'a>(&'a self, visit: &mut impl FnMut(&'a Self, &'a str)) {
        match &self.value {
            Value::Text(text) => visit(self, text),
            Value::List(items) => items.iter().for_each(|item| item.each_text(visit)),
            Value::Map(entries) => entries.iter().for_each(|(_, value)| value.each_text(visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Vault(_) => {}
        }
    }
}
