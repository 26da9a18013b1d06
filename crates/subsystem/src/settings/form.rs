//! What the value of a key may look like.

use gantry_api::meta::{dns_label_problem, dns_subdomain_problem};
use gantry_api::node::{Content, Node};
use gantry_process::health::BindAddress;
use serde_json::{Number, Value};

use super::duration;

/// The form of a value. Null stands for the default in every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// A whole number of 32 bits within bounds.
    Integer {
        /// The smallest that is accepted.
        least: i32,
        /// The largest that is accepted.
        most: i32,
        /// What zero means.
        zero: Zero,
    },
    /// Any number; zero stands for the default.
    Number,
    /// Any text.
    Text,
    /// A duration in Go's form.
    Duration {
        /// What zero means.
        zero: Zero,
    },
    /// Where to listen.
    Address {
        /// What an empty text means.
        empty: Empty,
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
    /// A map that nothing looks into.
    Opaque,
}

/// What zero means where a number or a duration is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Nothing else than it says.
    Itself,
    /// The default, as if nothing was written.
    Default,
}

/// What an empty text means where an address is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// The default, as if nothing was written.
    Default,
    /// Not to listen.
    Off,
}

/// A value that has the form of its key.
#[derive(Clone, Debug, PartialEq)]
pub enum Fit {
    /// This value, in its one canonical spelling.
    Is(Value),
    /// The default.
    Default,
}

impl Form {
    /// The canonical value.
    ///
    /// # Errors
    /// What is wrong: what was found, and what is expected.
    pub fn fit(self, node: &Node) -> Result<Fit, String> {
        if node.is_null() {
            return Ok(Fit::Default);
        }
        let wrong = || {
            let quotes = if self.fits_unquoted(node) { ", without quotes" } else { "" };
            Err(format!("found {}, expected {}{quotes}", found(node), self.expected()))
        };
        match self {
            Self::Flag => match &node.value {
                Content::Bool(flag) => Ok(Fit::Is(Value::Bool(*flag))),
                _ => wrong(),
            },
            Self::Integer { least, most, zero } => match whole(node) {
                Some(0) if zero == Zero::Default => Ok(Fit::Default),
                Some(number) if (least..=most).contains(&number) => Ok(Fit::Is(number.into())),
                _ => wrong(),
            },
            Self::Number => match &node.value {
                Content::Number(number) if number.as_f64() == Some(0.0) => Ok(Fit::Default),
                Content::Number(number) => Ok(Fit::Is(Value::Number(number.clone()))),
                _ => wrong(),
            },
            Self::Text => node.text().map_or_else(wrong, |text| Ok(Fit::Is(text.into()))),
            Self::Duration { zero } => match node.text().and_then(duration::parse) {
                Some(length) if length.is_zero() && zero == Zero::Default => Ok(Fit::Default),
                Some(length) => Ok(Fit::Is(duration::write(length).into())),
                None => wrong(),
            },
            Self::Address { empty } => match address(node) {
                Some(text) if text.is_empty() && empty == Empty::Default => Ok(Fit::Default),
                Some(text) if text.parse::<BindAddress>().is_ok() => Ok(Fit::Is(text.into())),
                _ => wrong(),
            },
            Self::Word(words) => match node.text() {
                Some("") => Ok(Fit::Default),
                Some(text) => {
                    let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                    known.map_or_else(wrong, |word| Ok(Fit::Is((*word).into())))
                }
                None => wrong(),
            },
            Self::Name | Self::Namespace => match node.text() {
                Some("") => Ok(Fit::Default),
                Some(name) if self.names(name) => Ok(Fit::Is(name.into())),
                _ => wrong(),
            },
            Self::Texts => {
                let texts = node.items().and_then(|items| items.iter().map(Node::text).collect());
                texts.map_or_else(wrong, |texts: Vec<&str>| Ok(Fit::Is(texts.into())))
            }
            Self::Switches => switches(node).map_or_else(wrong, |value| Ok(Fit::Is(value))),
            Self::Opaque => match &node.value {
                Content::Map(_) => Ok(Fit::Is(node.to_json())),
                _ => wrong(),
            },
        }
    }

    /// The value that a word of the command line or of the environment stands for.
    ///
    /// # Errors
    /// As [`Form::fit`].
    pub fn fit_word(self, word: &str) -> Result<Fit, String> {
        let content = match self {
            Self::Flag => match word {
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
                let node = |word: &str| Node::made(Content::String(word.to_owned()));
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
        self.fit(&Node::made(content))
    }

    /// What is expected, as the end of a sentence.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Integer { least, most, .. } => format!("a whole number from {least} to {most}"),
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

    /// What a table of the documentation calls it.
    #[must_use]
    pub fn called(self) -> &'static str {
        match self {
            Self::Flag => "bool",
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

    /// Whether only the quotes are wrong.
    fn fits_unquoted(self, node: &Node) -> bool {
        let Some(text) = node.text() else { return false };
        match self {
            Self::Flag => matches!(text, "true" | "false"),
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

/// A whole number of 32 bits, as the original decoded them: `20.0` is none.
fn whole(node: &Node) -> Option<i32> {
    let Content::Number(number) = &node.value else { return None };
    number.as_i64().and_then(|number| i32::try_from(number).ok())
}

/// The text of an address. A lone zero needs no quotes: it can only mean "off".
fn address(node: &Node) -> Option<&str> {
    match &node.value {
        Content::Number(number) if number.as_u64() == Some(0) => Some("0"),
        _ => node.text(),
    }
}

/// Both ways to choose controllers. A list stands for itself: what it leaves out does not run.
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

/// What was found, short enough for a line.
#[must_use]
pub fn found(node: &Node) -> String {
    /// Characters of a text that are repeated: enough to recognise it.
    const MOST: usize = 40;
    match &node.value {
        Content::Null => "nothing".to_owned(),
        Content::Bool(flag) => flag.to_string(),
        Content::Number(number) => number.to_string(),
        Content::String(text) if text.chars().count() > MOST => {
            format!("{:?}…", text.chars().take(MOST).collect::<String>())
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

    const COUNT: Form = Form::Integer { least: 0, most: i32::MAX, zero: Zero::Itself };
    const LEASE: Form = Form::Duration { zero: Zero::Default };
    const METRICS: Form = Form::Address { empty: Empty::Default };
    const HEALTH: Form = Form::Address { empty: Empty::Off };
    const STRATEGY: Form = Form::Word(&["reuse", "duplicate"]);

    #[test]
    fn values_fit_or_are_refused_with_what_was_expected() {
        let is = |value: Value| Ok(Fit::Is(value));
        let table = [
            (Form::Flag, json!(true), is(json!(true))),
            (Form::Flag, json!(null), Ok(Fit::Default)),
            (
                Form::Flag,
                json!("true"),
                Err("found \"true\", expected true or false, without quotes"),
            ),
            (Form::Flag, json!(1), Err("found 1, expected true or false")),
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
            (Form::Number, json!(0), Ok(Fit::Default)),
            (Form::Number, json!(0.5), is(json!(0.5))),
            (Form::Number, json!("50"), Err("without quotes")),
            (LEASE, json!("0s"), Ok(Fit::Default)),
            (LEASE, json!("90s"), is(json!("1m30s"))),
            (LEASE, json!(15), Err("found 15, expected a duration such as 15s")),
            (METRICS, json!(""), Ok(Fit::Default)),
            (HEALTH, json!(""), is(json!(""))),
            (HEALTH, json!(0), is(json!("0"))),
            (HEALTH, json!("8081"), Err("found \"8081\", expected a port as \":8081\"")),
            (STRATEGY, json!("Reuse"), is(json!("reuse"))),
            (STRATEGY, json!(""), Ok(Fit::Default)),
            (STRATEGY, json!("steal"), Err("found \"steal\", expected reuse or duplicate")),
            (Form::Name, json!("a.b-1"), is(json!("a.b-1"))),
            (Form::Name, json!("A"), Err("found \"A\", expected the name of an object")),
            (Form::Namespace, json!("a.b"), Err("expected the name of a namespace")),
            (Form::Texts, json!(["a", "b"]), is(json!(["a", "b"]))),
            (Form::Texts, json!(["a", 1]), Err("found a list, expected a list of texts")),
            (Form::Switches, json!({"a": false}), is(json!({"a": false}))),
            (Form::Switches, json!(["a"]), is(json!(["a"]))),
            (Form::Switches, json!({"a": "off"}), Err("found a map, expected a map such as")),
            (Form::Opaque, json!({"a": [1]}), is(json!({"a": [1]}))),
            (Form::Opaque, json!("a"), Err("found \"a\", expected a map")),
        ];
        for (form, value, expected) in table {
            let fit = form.fit(&Node::from_json(&value));
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
            (Form::Flag, "T", Ok(Fit::Is(json!(true)))),
            (Form::Flag, "False", Ok(Fit::Is(json!(false)))),
            (Form::Flag, "yes", Err("found \"yes\", expected true or false")),
            (COUNT, "20", Ok(Fit::Is(json!(20)))),
            (COUNT, "2x", Err("found \"2x\", expected a whole number")),
            (Form::Texts, "a:x, b:y,", Ok(Fit::Is(json!(["a:x", "b:y"])))),
            (HEALTH, ":9", Ok(Fit::Is(json!(":9")))),
        ];
        for (form, word, expected) in table {
            match (form.fit_word(word), expected) {
                (Ok(fit), Ok(expected)) => assert_eq!(fit, expected, "{word}"),
                (Err(said), Err(part)) => assert!(said.contains(part), "{word}: {said}"),
                (fit, expected) => panic!("{word}: {fit:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let said = Form::Flag.fit(&Node::from_json(&json!("ä".repeat(500)))).unwrap_err();
        assert!(said.chars().count() < 100, "{said}");
    }
}
