//! The types of the values of keys.

use gantry_api::meta::{dns_label_problem, dns_subdomain_problem};
use gantry_process::health::BindAddress;
use gantry_yaml::node::{Content, Node};
use serde_json::{Number, Value};

use super::duration;

/// The type of a value. Null stands for the default in every type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer within bounds.
    Integer {
        /// The minimum.
        min: i32,
        /// The maximum.
        max: i32,
        /// What zero means.
        zero: ZeroMeaning,
    },
    /// Any number; zero stands for the default.
    Number,
    /// Any text.
    Text,
    /// A duration in Go's format.
    Duration {
        /// What zero means.
        zero: ZeroMeaning,
    },
    /// An address to listen on.
    Address {
        /// What an empty text means.
        empty: EmptyMeaning,
    },
    /// One of these words, in any letter case; an empty text stands for the default.
    Word(&'static [&'static str]),
    /// The name of an object; an empty text stands for the default.
    Name,
    /// The name of a namespace; an empty text stands for the default.
    Namespace,
    /// A list of texts.
    Texts,
    /// Controllers: a map from names to `true` or `false`, or a list of those to run.
    Switches,
    /// A map that is not interpreted.
    Opaque,
}

/// The meaning of zero for a number or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroMeaning {
    /// Zero itself.
    Literal,
    /// The default, as if the key was not set.
    Default,
}

/// The meaning of an empty text for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyMeaning {
    /// The default, as if the key was not set.
    Default,
    /// Do not listen.
    Off,
}

/// A value that has the type of its key.
#[derive(Clone, Debug, PartialEq)]
pub enum ParsedValue {
    /// This value, in its one canonical spelling.
    Set(Value),
    /// The default.
    Default,
}

impl ValueType {
    /// Parses a value into its canonical form.
    ///
    /// # Errors
    /// The value found, and what is expected.
    pub fn parse_node(self, node: &Node) -> Result<ParsedValue, String> {
        if node.is_null() {
            return Ok(ParsedValue::Default);
        }
        let wrong = || {
            let quotes = if self.matches_unquoted(node) { ", without quotes" } else { "" };
            Err(format!("found {}, expected {}{quotes}", describe_found(node), self.expected()))
        };
        match self {
            Self::Bool => match &node.value {
                Content::Bool(flag) => Ok(ParsedValue::Set(Value::Bool(*flag))),
                _ => wrong(),
            },
            Self::Integer { min: least, max: most, zero } => match whole(node) {
                Some(0) if zero == ZeroMeaning::Default => Ok(ParsedValue::Default),
                Some(number) if (least..=most).contains(&number) => {
                    Ok(ParsedValue::Set(number.into()))
                }
                _ => wrong(),
            },
            Self::Number => match &node.value {
                Content::Number(number) if number.as_f64() == Some(0.0) => Ok(ParsedValue::Default),
                Content::Number(number) => Ok(ParsedValue::Set(Value::Number(number.clone()))),
                _ => wrong(),
            },
            Self::Text => node.text().map_or_else(wrong, |text| Ok(ParsedValue::Set(text.into()))),
            Self::Duration { zero } => match node.text().and_then(duration::parse) {
                Some(length) if length.is_zero() && zero == ZeroMeaning::Default => {
                    Ok(ParsedValue::Default)
                }
                Some(length) => Ok(ParsedValue::Set(duration::write(length).into())),
                None => wrong(),
            },
            Self::Address { empty } => match address(node) {
                Some(text) if text.is_empty() && empty == EmptyMeaning::Default => {
                    Ok(ParsedValue::Default)
                }
                Some(text) if text.parse::<BindAddress>().is_ok() => {
                    Ok(ParsedValue::Set(text.into()))
                }
                _ => wrong(),
            },
            Self::Word(words) => match node.text() {
                Some("") => Ok(ParsedValue::Default),
                Some(text) => {
                    let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                    known.map_or_else(wrong, |word| Ok(ParsedValue::Set((*word).into())))
                }
                None => wrong(),
            },
            Self::Name | Self::Namespace => match node.text() {
                Some("") => Ok(ParsedValue::Default),
                Some(name) if self.names(name) => Ok(ParsedValue::Set(name.into())),
                _ => wrong(),
            },
            Self::Texts => {
                let texts = node.items().and_then(|items| items.iter().map(Node::text).collect());
                texts.map_or_else(wrong, |texts: Vec<&str>| Ok(ParsedValue::Set(texts.into())))
            }
            Self::Switches => {
                switches(node).map_or_else(wrong, |value| Ok(ParsedValue::Set(value)))
            }
            Self::Opaque => match &node.value {
                Content::Map(_) => Ok(ParsedValue::Set(node.to_json())),
                _ => wrong(),
            },
        }
    }

    /// Parses a word of the command line or of the environment.
    ///
    /// # Errors
    /// As [`ValueType::parse_node`].
    pub fn parse_str(self, word: &str) -> Result<ParsedValue, String> {
        let content = match self {
            Self::Bool => match word {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Content::Bool(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Content::Bool(false),
                _ => Content::String(word.to_owned()),
            },
            Self::Integer { .. } | Self::Number => match word.parse::<Number>() {
                Ok(number) => Content::Number(number),
                Err(_) => Content::String(word.to_owned()),
            },
            Self::Texts => {
                let words = word.split(',').map(str::trim).filter(|word| !word.is_empty());
                let node = |word: &str| Node::without_position(Content::String(word.to_owned()));
                Content::List(words.map(node).collect())
            }
            Self::Text
            | Self::Duration { .. }
            | Self::Address { .. }
            | Self::Word(_)
            | Self::Name
            | Self::Namespace
            | Self::Switches
            | Self::Opaque => Content::String(word.to_owned()),
        };
        self.parse_node(&Node::without_position(content))
    }

    /// Describes what is expected, as the end of a sentence.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Integer { min: least, max: most, .. } => {
                format!("a whole number from {least} to {most}")
            }
            Self::Number => "a number".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Duration { .. } => "a duration such as 15s, 1m30s or 0s".to_owned(),
            Self::Address { .. } => {
                "a port as \":8081\", an address and a port as \"127.0.0.1:8081\", or \"0\" to \
                 switch it off"
                    .to_owned()
            }
            Self::Word(words) => match words {
                [only] => format!("{only}, the only one there is"),
                _ => words.join(" or "),
            },
            Self::Name => "the name of an object: lower case letters, digits, `-` and `.`".into(),
            Self::Namespace => "the name of a namespace: lower case letters, digits and `-`".into(),
            Self::Texts => "a list of texts".to_owned(),
            Self::Switches => {
                "a map such as {NAME: true, NAME: false}, or a list of those to run".to_owned()
            }
            Self::Opaque => "a map".to_owned(),
        }
    }

    /// Returns the name of the type in the documentation.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Integer { .. } => "int32",
            Self::Number => "number",
            Self::Text => "string",
            Self::Duration { .. } => "duration",
            Self::Address { .. } => "address",
            Self::Word(_) => "word",
            Self::Name | Self::Namespace => "name",
            Self::Texts => "list of strings",
            Self::Switches => "map or list",
            Self::Opaque => "map",
        }
    }

    /// Returns whether only the quotes are wrong.
    fn matches_unquoted(self, node: &Node) -> bool {
        let Some(text) = node.text() else { return false };
        match self {
            Self::Bool => matches!(text, "true" | "false"),
            Self::Integer { .. } | Self::Number => text.parse::<Number>().is_ok(),
            Self::Text
            | Self::Duration { .. }
            | Self::Address { .. }
            | Self::Word(_)
            | Self::Name
            | Self::Namespace
            | Self::Texts
            | Self::Switches
            | Self::Opaque => false,
        }
    }

    fn names(self, name: &str) -> bool {
        let problem = if self == Self::Namespace {
            dns_label_problem(name)
        } else {
            dns_subdomain_problem(name)
        };
        problem.is_none()
    }
}

/// Parses a 32-bit integer, as the original decoded them: `20.0` is not an integer.
fn whole(node: &Node) -> Option<i32> {
    let Content::Number(number) = &node.value else { return None };
    number.as_i64().and_then(|number| i32::try_from(number).ok())
}

/// Returns the text of an address. A lone zero needs no quotes: it can only mean "off".
fn address(node: &Node) -> Option<&str> {
    match &node.value {
        Content::Number(number) if number.as_u64() == Some(0) => Some("0"),
        _ => node.text(),
    }
}

/// Parses both ways to choose controllers. A list is exhaustive: controllers that are not in it do
/// not run.
fn switches(node: &Node) -> Option<Value> {
    let fits = match &node.value {
        Content::Map(entries) => {
            entries.iter().all(|(_, on)| matches!(on.value, Content::Bool(_) | Content::Null))
        }
        Content::List(items) => items.iter().all(|item| item.text().is_some()),
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => false,
    };
    fits.then(|| node.to_json())
}

/// Describes a value that was found, short enough for one line.
#[must_use]
pub fn describe_found(node: &Node) -> String {
    /// The maximum number of characters of a text that are repeated: enough to recognise it.
    const MAX_SHOWN_CHARS: usize = 40;
    match &node.value {
        Content::Null => "nothing".to_owned(),
        Content::Bool(flag) => flag.to_string(),
        Content::Number(number) => number.to_string(),
        Content::String(text) if text.chars().count() > MAX_SHOWN_CHARS => {
            format!("{:?}…", text.chars().take(MAX_SHOWN_CHARS).collect::<String>())
        }
        Content::String(text) => format!("{text:?}"),
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COUNT: ValueType =
        ValueType::Integer { min: 0, max: i32::MAX, zero: ZeroMeaning::Literal };
    const LEASE: ValueType = ValueType::Duration { zero: ZeroMeaning::Default };
    const METRICS: ValueType = ValueType::Address { empty: EmptyMeaning::Default };
    const HEALTH: ValueType = ValueType::Address { empty: EmptyMeaning::Off };
    const STRATEGY: ValueType = ValueType::Word(&["reuse", "duplicate"]);

    #[test]
    fn values_fit_or_are_refused_with_what_was_expected() {
        let is = |value: Value| Ok(ParsedValue::Set(value));
        let table = [
            (ValueType::Bool, json!(true), is(json!(true))),
            (ValueType::Bool, json!(null), Ok(ParsedValue::Default)),
            (
                ValueType::Bool,
                json!("true"),
                Err("found \"true\", expected true or false, without quotes"),
            ),
            (ValueType::Bool, json!(1), Err("found 1, expected true or false")),
            (COUNT, json!(0), is(json!(0))),
            (COUNT, json!(2147483647), is(json!(2147483647))),
            (COUNT, json!(2147483648_i64), Err("found 2147483648, expected a whole number from 0")),
            (COUNT, json!(-1), Err("found -1, expected a whole number from 0 to 2147483647")),
            (COUNT, json!(1.5), Err("found 1.5, expected a whole")),
            (
                COUNT,
                json!("20"),
                Err("found \"20\", expected a whole number from 0 to 2147483647, without quotes"),
            ),
            (ValueType::Number, json!(0), Ok(ParsedValue::Default)),
            (ValueType::Number, json!(0.5), is(json!(0.5))),
            (ValueType::Number, json!("50"), Err("without quotes")),
            (LEASE, json!("0s"), Ok(ParsedValue::Default)),
            (LEASE, json!("90s"), is(json!("1m30s"))),
            (LEASE, json!(15), Err("found 15, expected a duration such as 15s")),
            (METRICS, json!(""), Ok(ParsedValue::Default)),
            (HEALTH, json!(""), is(json!(""))),
            (HEALTH, json!(0), is(json!("0"))),
            (HEALTH, json!("8081"), Err("found \"8081\", expected a port as \":8081\"")),
            (STRATEGY, json!("Reuse"), is(json!("reuse"))),
            (STRATEGY, json!(""), Ok(ParsedValue::Default)),
            (STRATEGY, json!("steal"), Err("found \"steal\", expected reuse or duplicate")),
            (ValueType::Name, json!("a.b-1"), is(json!("a.b-1"))),
            (ValueType::Name, json!("A"), Err("found \"A\", expected the name of an object")),
            (ValueType::Namespace, json!("a.b"), Err("expected the name of a namespace")),
            (ValueType::Texts, json!(["a", "b"]), is(json!(["a", "b"]))),
            (ValueType::Texts, json!(["a", 1]), Err("found a list, expected a list of texts")),
            (ValueType::Switches, json!({"a": false}), is(json!({"a": false}))),
            (ValueType::Switches, json!(["a"]), is(json!(["a"]))),
            (ValueType::Switches, json!({"a": "off"}), Err("found a map, expected a map such as")),
            (ValueType::Opaque, json!({"a": [1]}), is(json!({"a": [1]}))),
            (ValueType::Opaque, json!("a"), Err("found \"a\", expected a map")),
        ];
        for (form, value, expected) in table {
            let fit = form.parse_node(&Node::from_json(&value));
            match (&fit, expected) {
                (Ok(fit), Ok(expected)) => assert_eq!(*fit, expected, "{form:?} {value}"),
                (Err(said), Err(part)) => assert!(said.contains(part), "{form:?} {value}: {said}"),
                (fit, expected) => panic!("{form:?} {value}: {fit:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn words_of_the_command_line_are_read_as_go_reads_them() {
        let table = [
            (ValueType::Bool, "T", Ok(ParsedValue::Set(json!(true)))),
            (ValueType::Bool, "False", Ok(ParsedValue::Set(json!(false)))),
            (ValueType::Bool, "yes", Err("found \"yes\", expected true or false")),
            (COUNT, "20", Ok(ParsedValue::Set(json!(20)))),
            (COUNT, "2x", Err("found \"2x\", expected a whole number")),
            (ValueType::Texts, "a:x, b:y,", Ok(ParsedValue::Set(json!(["a:x", "b:y"])))),
            (HEALTH, ":9", Ok(ParsedValue::Set(json!(":9")))),
        ];
        for (form, word, expected) in table {
            match (form.parse_str(word), expected) {
                (Ok(fit), Ok(expected)) => assert_eq!(fit, expected, "{word}"),
                (Err(said), Err(part)) => assert!(said.contains(part), "{word}: {said}"),
                (fit, expected) => panic!("{word}: {fit:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let said =
            ValueType::Bool.parse_node(&Node::from_json(&json!("ä".repeat(500)))).unwrap_err();
        assert!(said.chars().count() < 100, "{said}");
    }
}
