//! The two formats of a log line. Whatever is in a message or a value, a line stays one line.

use std::fmt;
use std::path::Path;
use std::process;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use crate::error_chain;

/// One event with everything its line shows.
pub(super) struct LogLine<'event> {
    pub(super) at: Timestamp,
    pub(super) metadata: &'event Metadata<'static>,
    pub(super) verbosity: u8,
    pub(super) message: String,
    pub(super) fields: Fields,
}

impl LogLine<'_> {
    pub(super) fn text(&self) -> String {
        let (letter, _) = severity(*self.metadata.level());
        let at = self.at.strftime("%m%d %H:%M:%S%.6f");
        let (process, caller) = (process::id(), self.caller());
        let mut line = format!("{letter}{at} {process:>7} {caller}] ");
        quote(&mut line, &self.message);
        for (name, value) in &self.fields.0 {
            line += " ";
            line += name;
            line += "=";
            match value {
                Value::String(text) => quote(&mut line, text),
                other => line += &other.to_string(),
            }
        }
        line + "\n"
    }

    pub(super) fn json(self) -> String {
        let at = self.at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let (_, level) = severity(*self.metadata.level());
        let head = [
            ("ts", Value::from(at)),
            ("level", level.into()),
            ("v", self.verbosity.into()),
            ("msg", self.message.as_str().into()),
            ("caller", self.caller().into()),
        ];
        let head = head.map(|(key, value)| (key.to_owned(), value));
        let mut object = Map::from_iter(head);
        for (name, value) in self.fields.0 {
            // A field must not be mistaken for the line's own time or message.
            let taken = matches!(name, "ts" | "level" | "v" | "msg" | "caller");
            object.insert(if taken { format!("{name}_") } else { name.to_owned() }, value);
        }
        Value::Object(object).to_string() + "\n"
    }

    /// Without directories, as klog.
    fn caller(&self) -> String {
        let file = self.metadata.file().map(Path::new).and_then(Path::file_name);
        let file = file.and_then(|name| name.to_str()).unwrap_or("unknown");
        format!("{file}:{}", self.metadata.line().unwrap_or(0))
    }
}

/// Verbosity is given by `v`, so everything below a warning is information.
fn severity(level: Level) -> (char, &'static str) {
    match level {
        Level::ERROR => ('E', "error"),
        Level::WARN => ('W', "warn"),
        Level::INFO | Level::DEBUG | Level::TRACE => ('I', "info"),
    }
}

/// As Go quotes, which is what readers of klog's form expect. Escapes every control character and
/// the two Unicode line breaks: a message must not end its line or move the terminal's cursor.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => *line += "\\\"",
            '\\' => *line += "\\\\",
            '\n' => *line += "\\n",
            '\r' => *line += "\\r",
            '\t' => *line += "\\t",
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                *line += &format!("\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

/// Named values in the order they came; the last value of a name counts.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn set(&mut self, name: &'static str, value: Value) {
        self.take(name);
        self.0.push((name, value));
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(have, _)| *have == name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn extend(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            self.set(name, value.clone());
        }
    }
}

/// A value as bare text.
pub(super) fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON cannot represent infinity.
        let finite = value.is_finite();
        let value = if finite { value.into() } else { value.to_string().into() };
        self.set(field.name(), value);
    }

    /// With its causes: the text of an error of ours names only what was attempted.
    fn record_error(&mut self, field: &Field, error: &(dyn std::error::Error + 'static)) {
        self.set(field.name(), error_chain(error).into());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quoted(text: &str) -> String {
        let mut line = String::new();
        quote(&mut line, text);
        line
    }

    #[test]
    fn quoting() {
        let table = [
            ("plain", r#""plain""#),
            ("", r#""""#),
            ("say \"hi\"", r#""say \"hi\"""#),
            ("C:\\n", r#""C:\\n""#),
            ("a\nb\r\tc", r#""a\nb\r\tc""#),
            ("\u{1b}[31mred", r#""\u001b[31mred""#),
            ("a\u{2028}\u{2029}b\u{85}", r#""a\u2028\u2029b\u0085""#),
            ("naïve 日本", r#""naïve 日本""#),
        ];
        for (text, expected) in table {
            assert_eq!(quoted(text), expected);
        }
    }

    proptest! {
        /// Nothing is lost: the quoted text is also a JSON string, and reads back as what it was.
        #[test]
        fn quoting_can_be_undone(text: String) {
            let line = quoted(&text);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }
}
