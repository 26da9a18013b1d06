//! Values in INI inventories: Python literals, and everything else is text.

use serde_json::Number;

use crate::finding::Place;
use crate::scalar;
use crate::value::{Key, Node, Value};

/// Why a value that is a Python literal is not read.
pub(crate) type LiteralError = &'static str;

/// Reads a value of an INI inventory. What is no literal of Python is text.
///
/// # Errors
/// The value is a literal that has no counterpart in YAML or JSON.
pub(crate) fn read(text: &str, at: Place) -> Result<Node, LiteralError> {
    let mut reader = Reader { rest: text.trim_start_matches([' ', '\t']), at, depth: 0 };
    match reader.whole() {
        Ok(value) => Ok(Node { at, value }),
        Err(Failure::NoLiteral) => Ok(Node { at, value: Value::Text(text.to_owned()) }),
        Err(Failure::Refused(reason)) => Err(reason),
    }
}

/// Levels of lists and maps in a value.
const MAX_DEPTH: usize = 50;

enum Failure {
    NoLiteral,
    Refused(LiteralError),
}

struct Reader<'a> {
    rest: &'a str,
    at: Place,
    depth: usize,
}

type Read<T> = Result<T, Failure>;

impl Reader<'_> {
    fn whole(&mut self) -> Read<Value> {
        if self.rest.trim_end().is_empty() {
            return Err(Failure::NoLiteral);
        }
        let first = self.value()?;
        self.blanks();
        let value = if self.eat(',') {
            let mut items = vec![first];
            self.items(&mut items, None)?;
            self.list(items)
        } else {
            first
        };
        self.blanks();
        // A comment of Python.
        if self.rest.is_empty() || self.rest.starts_with('#') {
            Ok(value)
        } else {
            Err(Failure::NoLiteral)
        }
    }

    fn value(&mut self) -> Read<Value> {
        self.blanks();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::Refused("nest less deeply: at most 50 levels are read"));
        }
        let value = match self.rest.chars().next() {
            Some('[') => self.bracketed(']'),
            Some('(') => self.bracketed(')'),
            Some('{') => self.map(),
            Some('\'' | '"') => self.strings(),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(false),
            Some(sign @ ('-' | '+')) => {
                self.skip(1);
                self.blanks();
                // Only numbers have signs, and one sign each is what people write.
                if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                    self.number(sign == '-')
                } else {
                    Err(Failure::NoLiteral)
                }
            }
            Some(_) => self.word(),
            None => Err(Failure::NoLiteral),
        };
        self.depth -= 1;
        value
    }

    fn bracketed(&mut self, end: char) -> Read<Value> {
        self.skip(1);
        let mut items = Vec::new();
        let was_separated = self.items(&mut items, Some(end))?;
        if end == ')' && items.len() == 1 && !was_separated {
            return items.pop().ok_or(Failure::NoLiteral);
        }
        Ok(self.list(items))
    }

    /// Reads values until the end, and returns whether a comma was read.
    fn items(&mut self, items: &mut Vec<Value>, end: Option<char>) -> Read<bool> {
        let mut was_separated = false;
        loop {
            self.blanks();
            let is_end = match end {
                Some(end) => self.eat(end),
                None => self.rest.is_empty() || self.rest.starts_with('#'),
            };
            if is_end {
                return Ok(was_separated);
            }
            items.push(self.value()?);
            self.blanks();
            if self.eat(',') {
                was_separated = true;
            } else if end.is_some_and(|end| self.eat(end)) {
                return Ok(was_separated);
            } else if end.is_some() || !(self.rest.is_empty() || self.rest.starts_with('#')) {
                return Err(Failure::NoLiteral);
            }
        }
    }

    fn map(&mut self) -> Read<Value> {
        self.skip(1);
        let mut entries: Vec<(Key, Node)> = Vec::new();
        loop {
            self.blanks();
            if self.eat('}') {
                return Ok(Value::Map(entries));
            }
            let key = self.value()?;
            self.blanks();
            if !self.eat(':') {
                let is_set = matches!(self.rest.chars().next(), Some(',' | '}'));
                return Err(if is_set {
                    Failure::Refused("a set has no order; write a list in square brackets")
                } else {
                    Failure::NoLiteral
                });
            }
            let (name, is_text) = match key {
                Value::Text(text) => (text, true),
                Value::Number(number) => (number.to_string(), false),
                Value::Bool(flag) => (flag.to_string(), false),
                Value::Null => ("null".to_owned(), false),
                Value::List(_) | Value::Map(_) | Value::Vault(_) => {
                    return Err(Failure::NoLiteral);
                }
            };
            let value = Node { at: self.at, value: self.value()? };
            match entries.iter_mut().find(|(key, _)| key.name == name) {
                Some((_, old)) => *old = value,
                None => entries.push((Key { at: self.at, name, is_text }, value)),
            }
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with('}') {
                return Err(Failure::NoLiteral);
            }
        }
    }

    /// Neighbouring strings are one.
    fn strings(&mut self) -> Read<Value> {
        let mut text = String::new();
        loop {
            let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
                return Ok(Value::Text(text));
            };
            self.string(quote, &mut text)?;
            self.blanks();
        }
    }

    fn string(&mut self, quote: char, text: &mut String) -> Read<()> {
        self.skip(1);
        loop {
            let c = self.next().ok_or(Failure::NoLiteral)?;
            if c == quote {
                return Ok(());
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            match self.next().ok_or(Failure::NoLiteral)? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '0'..='7' | 'a' | 'b' | 'f' | 'v' | 'N' => {
                    return Err(Failure::Refused("write the character itself, or use YAML"));
                }
                c @ ('\\' | '\'' | '"') => text.push(c),
                'x' => text.push(self.code(2)?),
                'u' => text.push(self.code(4)?),
                'U' => text.push(self.code(8)?),
                c => text.extend(['\\', c]),
            }
        }
    }

    fn code(&mut self, digits: usize) -> Read<char> {
        let code = self.rest.get(..digits).ok_or(Failure::NoLiteral)?;
        let code = u32::from_str_radix(code, 16).map_err(|_| Failure::NoLiteral)?;
        self.skip(digits);
        char::from_u32(code).ok_or(Failure::NoLiteral)
    }

    fn word(&mut self) -> Read<Value> {
        for (word, value) in
            [("True", Value::Bool(true)), ("False", Value::Bool(false)), ("None", Value::Null)]
        {
            let ends = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
            if self.rest.strip_prefix(word).is_some_and(ends) {
                self.skip(word.len());
                return Ok(value);
            }
        }
        let prefix = self.rest.find(['\'', '"']).map(|at| self.rest[..at].to_ascii_lowercase());
        match prefix.as_deref() {
            Some("r" | "u" | "b" | "br" | "rb") => {
                Err(Failure::Refused("write the text in quotes without a letter before them"))
            }
            _ => Err(Failure::NoLiteral),
        }
    }

    fn number(&mut self, negative: bool) -> Read<Value> {
        let is_part = |c: char| c == '_' || c == '.' || c.is_ascii_alphanumeric();
        let mut end = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        // The sign of an exponent.
        let body = &self.rest[..end];
        if body.ends_with(['e', 'E'])
            && !body.starts_with("0x")
            && self.rest[end..].starts_with(['-', '+'])
        {
            let rest = &self.rest[end + 1..];
            end += 1 + rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        }
        let body = &self.rest[..end];
        let has_lone_underscore = body.contains("__") || body.ends_with('_') || body.contains("_.");
        if has_lone_underscore || body.contains("._") {
            return Err(Failure::NoLiteral);
        }
        if body.ends_with(['j', 'J']) {
            return Err(Failure::Refused("a complex number is not a value; put it in quotes"));
        }
        let value = integer(body, negative).unwrap_or_else(|| real(body, negative))?;
        self.skip(end);
        Ok(Value::Number(value))
    }

    fn list(&self, items: Vec<Value>) -> Value {
        Value::List(items.into_iter().map(|value| Node { at: self.at, value }).collect())
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\u{c}']);
    }

    fn eat(&mut self, expected: char) -> bool {
        let found = self.rest.starts_with(expected);
        if found {
            self.skip(expected.len_utf8());
        }
        found
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }
}

/// Returns nothing if the text is no integer at all.
fn integer(body: &str, negative: bool) -> Option<Read<Number>> {
    let lower = body.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ => (10, lower.as_str()),
    };
    let plain = digits.replace('_', "");
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    // Python has no decimal integers that begin with zero, but for zero itself.
    if radix == 10 && plain.starts_with('0') && plain.contains(|c| c != '0') {
        return Some(Err(Failure::NoLiteral));
    }
    let amount = u128::from_str_radix(&plain, radix).ok();
    let number = scalar::number(negative, amount);
    Some(number.map_err(|_| Failure::Refused("a number of more than 64 bits needs quotes")))
}

fn real(body: &str, negative: bool) -> Read<Number> {
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+' | '_');
    if !body.chars().all(digits) || !body.contains(['.', 'e', 'E']) {
        return Err(Failure::NoLiteral);
    }
    let number: f64 = body.replace('_', "").parse().map_err(|_| Failure::NoLiteral)?;
    let number = if negative { -number } else { number };
    Number::from_f64(number).ok_or(Failure::Refused("a number that is not finite needs quotes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn json(text: &str) -> Json {
        read(text, Place::default()).unwrap().to_json()
    }

    #[test]
    fn pvs_8_values_of_ini_files_are_literals_of_python() {
        let table = [
            ("1", json!(1)),
            ("-1", json!(-1)),
            ("+ 1", json!(1)),
            ("1_000", json!(1000)),
            ("010", json!("010")),
            ("00", json!(0)),
            ("0x1f", json!(31)),
            ("0o17", json!(15)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("1e-3", json!(0.001)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("True", json!(true)),
            ("true", json!("true")),
            ("Trueish", json!("Trueish")),
            ("yes", json!("yes")),
            ("None", Json::Null),
            ("", json!("")),
            ("abc # no comment", json!("abc # no comment")),
            ("5 # a comment", json!(5)),
            ("'a' # a comment", json!("a")),
            ("'a' 'b'", json!("ab")),
            ("'a\\'b\\n\\x41\\q'", json!("a'b\nA\\q")),
            ("[1, 'a', [True], {'k': None}]", json!([1, "a", [true], {"k": null}])),
            ("(1)", json!(1)),
            ("(1,)", json!([1])),
            ("()", json!([])),
            ("1, 2", json!([1, 2])),
            ("{'a': 1, 2: 'b', 'a': 3}", json!({"a": 3, "2": "b"})),
            ("[1, x]", json!("[1, x]")),
            ("[1", json!("[1")),
            ("{{ other }}", json!("{{ other }}")),
            ("1 + 2", json!("1 + 2")),
            ("-o Proxy=x", json!("-o Proxy=x")),
            ("'open", json!("'open")),
            ("it's", json!("it's")),
        ];
        for (text, expected) in table {
            assert_eq!(json(text), expected, "{text:?}");
        }
        for text in ["{1, 2}", "b'x'", "2j", "'\\N{DASH}'", "99999999999999999999", "1e999"] {
            assert!(read(text, Place::default()).is_err(), "{text:?}");
        }
        assert!(read(&"[".repeat(100), Place::default()).is_err());
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(text in "[a01.eE_xjb'\"\\\\\\[\\](){},:# é-]{0,20}") {
            let _ = read(&text, Place::default());
        }
    }
}
