//! The parameters of a request.

use crate::response::status::StatusError;
use gantry_schema::FieldError;
use serde_json::{Value, json};

/// Decoded query parameters, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of a URL after `?`. Broken escapes stay as they are.
    #[must_use]
    pub fn read(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// Returns the first value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of `name`, empty when absent.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Reads a Boolean: a parameter that is present is true, unless it is `false` or `0`.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !matches!(value, "false" | "0" | "False" | "FALSE" | "f" | "F"))
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// In the words of Go's parser.
    pub fn number(&self, name: &str) -> Result<Option<i64>, StatusError> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            StatusError::bad_request(number_error("ParseInt", text, digits))
        })
    }
}

/// Parses a resource version.
///
/// # Errors
/// In the words of Go's parser.
pub fn revision(text: &str) -> Result<u64, String> {
    // A sign is not allowed.
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| number_error("ParseUint", text, text))
}

fn number_error(parser: &str, text: &str, digits: &str) -> String {
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if whole { "value out of range" } else { "invalid syntax" };
    format!("strconv.{parser}: parsing {}: {why}", Value::from(text))
}

/// Decodes `%41` and, in queries, `+`.
#[must_use]
pub fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while let Some(&byte) = bytes.get(place) {
        // Digit by digit: a number may also have a sign, and `%+1` is not an escape.
        let digit = |place: usize| {
            let letter = char::from(*bytes.get(place)?);
            letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok())
        };
        let escaped = digit(place + 1).zip(digit(place + 2)).map(|(high, low)| high * 16 + low);
        match (byte, escaped) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                place += 3;
                continue;
            }
            (b'+', _) if plus_is_space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        place += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What to do with fields that a kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them with a warning.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// Options of a write request.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// The field manager, as given by the caller; empty when not given.
    pub manager: String,
    /// What to do with unknown fields.
    pub validation: FieldValidation,
    /// Take fields over from other managers; only for apply.
    pub force: Option<bool>,
    /// The given options, as an options object.
    pub raw: serde_json::Map<String, Value>,
}

impl WriteOptions {
    /// Reads and checks the options; `kind` is their name in messages, as in `CreateOptions`.
    ///
    /// # Errors
    /// 422 with each invalid option.
    pub fn read(query: &Query, kind: &str) -> Result<Self, StatusError> {
        let mut faults = Vec::new();
        if let Some(fault) = dry_run_error(query) {
            faults.push(fault);
        }
        let manager = query.text("fieldManager");
        if manager.len() > 128 {
            faults.push(FieldError::too_long("fieldManager", 128));
        }
        if let Some(letter) = manager.chars().find(|it| !printable(*it)) {
            let detail = format!("should only contain printable characters, found: {letter:?}");
            faults.push(FieldError::invalid("fieldManager", &json!(manager), &detail));
        }
        let validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                faults.push(FieldError::not_supported(
                    "fieldValidation",
                    &json!(other),
                    &supported,
                ));
                FieldValidation::Warn
            }
        };
        if !faults.is_empty() {
            return Err(StatusError::invalid_options(kind, &faults));
        }
        let mut said = serde_json::Map::new();
        let dry_run: Vec<&str> = query.all("dryRun").filter(|it| !it.is_empty()).collect();
        if !dry_run.is_empty() {
            said.insert("dryRun".to_owned(), json!(dry_run));
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(text) = query.get(name).filter(|text| !text.is_empty()) {
                said.insert(name.to_owned(), json!(text));
            }
        }
        Ok(Self {
            dry_run: query.get("dryRun").is_some_and(|value| !value.is_empty()),
            manager: manager.to_owned(),
            validation,
            force: query.flag("force"),
            raw: said,
        })
    }
}

/// Returns what is wrong with `dryRun`, if anything.
#[must_use]
pub fn dry_run_error(query: &Query) -> Option<FieldError> {
    let values: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
    dry_run_list_error(&values)
}

/// As above for a list that came in a body.
#[must_use]
pub fn dry_run_list_error(values: &[&str]) -> Option<FieldError> {
    let wrong = values.iter().any(|value| *value != "All");
    wrong.then(|| FieldError::not_supported("dryRun", &json!(values), &["All"]))
}

fn printable(letter: char) -> bool {
    !letter.is_control() && letter != '\u{feff}'
}

/// Parses a Go duration such as `9m19s` into milliseconds; a negative one counts as absent.
///
/// # Errors
/// In the words of Go's parser.
pub fn duration_millis(text: &str) -> Result<u64, String> {
    let fault = || format!("time: invalid duration {}", Value::from(text));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(fault());
    }
    let mut millis = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| fault())?;
        rest = &rest[digits..];
        let unit = rest.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "ns" => 1e-6,
            "us" | "µs" | "μs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 60e3,
            "h" => 3_600e3,
            "" => return Err(format!("time: missing unit in duration {}", Value::from(text))),
            other => {
                let (unit, text) = (Value::from(other), Value::from(text));
                return Err(format!("time: unknown unit {unit} in duration {text}"));
            }
        };
        millis += number * scale;
        rest = &rest[unit..];
    }
    Ok(if text.starts_with('-') { 0 } else { whole(millis) })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there is no sign left, and a duration beyond u64 saturates"
)]
fn whole(millis: f64) -> u64 {
    millis.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::read(Some("a=1&labelSelector=x%3D1%2Cy+in+(b)&watch&b=%zz"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("labelSelector"), Some("x=1,y in (b)"));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.get("b"), Some("%zz"), "a broken escape stands for itself");
        assert_eq!(decode("%+1%41", false), "%+1A", "a sign is no digit");
        assert_eq!(query.get("none"), None);
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let table = [
            ("9m19s", Ok(559_000)),
            ("1.5s", Ok(1_500)),
            ("300ms", Ok(300)),
            ("1h", Ok(3_600_000)),
            ("0", Ok(0)),
            ("-1s", Ok(0)),
            ("--1s", Err("time: invalid duration \"--1s\"".to_owned())),
            ("abc", Err("time: invalid duration \"abc\"".to_owned())),
            ("5", Err("time: missing unit in duration \"5\"".to_owned())),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"".to_owned())),
            ("", Err("time: invalid duration \"\"".to_owned())),
        ];
        for (text, expected) in table {
            assert_eq!(duration_millis(text), expected, "{text}");
        }
    }

    #[test]
    fn revisions_are_read_as_go_reads_them() {
        let fault =
            |text: &str, why: &str| Err(format!("strconv.ParseUint: parsing \"{text}\": {why}"));
        let table = [
            ("7", Ok(7)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", fault("18446744073709551616", "value out of range")),
            ("abc", fault("abc", "invalid syntax")),
            ("+7", fault("+7", "invalid syntax")),
            ("-1", fault("-1", "invalid syntax")),
            ("", fault("", "invalid syntax")),
        ];
        for (text, expected) in table {
            assert_eq!(revision(text), expected, "{text}");
        }
        let query = Query::read(Some("limit=99999999999999999999"));
        let refusal = query.number("limit").unwrap_err();
        let words = "strconv.ParseInt: parsing \"99999999999999999999\": value out of range";
        assert_eq!(refusal.message, words);
    }

    #[test]
    fn options_are_checked_together() {
        let query = Query::read(Some("fieldValidation=Foo&dryRun=Some"));
        let refusal = WriteOptions::read(&query, "CreateOptions").unwrap_err();
        assert_eq!(
            refusal.message,
            "CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"Some\"]: \
             supported values: \"All\", fieldValidation: Unsupported value: \"Foo\": supported \
             values: \"\", \"Ignore\", \"Strict\", \"Warn\"]"
        );
    }
}
