//! Reads JSON and reports duplicate fields.

mod go_json;

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::path::Path;

pub use go_json::go_json_error;

/// The maximum number of duplicate fields that are reported.
const MAX_REPORTED_DUPLICATES: usize = 100;

/// The largest number up to which all whole numbers have a float of their own.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// JSON that cannot be read, in Go's words where they are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    message: String,
}

/// Reads JSON. Of a field that is written twice the last value counts; the paths of such fields are
/// answered in the order they are met, as warnings name them.
///
/// Numbers with a fraction of zero are whole numbers, as far as floats can tell. Values may be
/// nested 128 deep.
///
/// # Errors
/// If the bytes are no JSON, or nested too deep.
pub fn read_json(bytes: &[u8]) -> Result<(Value, Vec<String>), ReadError> {
    let repeated = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = DuplicateTrackingSeed { path: Path::ROOT, repeated: &repeated };
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match value {
        Ok(value) => Ok((value, repeated.into_inner())),
        Err(error) => {
            let message = go_json_error(bytes).unwrap_or_else(|| error.to_string());
            Err(ReadError { message })
        }
    }
}

#[derive(Clone, Copy)]
struct DuplicateTrackingSeed<'walk> {
    path: Path<'walk>,
    repeated: &'walk RefCell<Vec<String>>,
}

impl DuplicateTrackingSeed<'_> {
    fn report_duplicate(self) {
        let mut repeated = self.repeated.borrow_mut();
        let path = self.path.in_warning();
        if repeated.len() < MAX_REPORTED_DUPLICATES && !repeated.contains(&path) {
            repeated.push(path);
        }
    }
}

impl<'de> DeserializeSeed<'de> for DuplicateTrackingSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateTrackingSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&value) {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
            let whole = value as i64;
            return Ok(Value::from(whole));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let seed = DuplicateTrackingSeed {
                path: self.path.index(items.len()),
                repeated: self.repeated,
            };
            match list.next_element_seed(seed)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let seed =
                DuplicateTrackingSeed { path: self.path.field(&key), repeated: self.repeated };
            if map.contains_key(&key) {
                seed.report_duplicate();
            }
            let value = entries.next_value_seed(seed)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn last_duplicate_wins() {
        let text = br#"{"data":{"a":"x","a":"y"},"spec":{"list":[{"x":1,"x":2,"x":3}]},"data":1}"#;
        let (value, repeated) = read_json(text).unwrap();
        assert_eq!(value, json!({ "data": 1, "spec": { "list": [{ "x": 3 }] } }));
        assert_eq!(repeated, ["data.a", "spec.list[0].x", "data"]);
    }

    #[test]
    fn whole_floats_become_whole_numbers_and_whole_numbers_stay() {
        let (value, _) = read_json(b"[1.0, 1e3, 1.5, 9007199254740993, 1e300, -0.0]").unwrap();
        assert_eq!(value, json!([1, 1000, 1.5, 9_007_199_254_740_993_i64, 1e300, 0]));
        assert_eq!(read_json(b"18446744073709551615").unwrap().0, json!(u64::MAX));
    }

    /// A reader that is off by the last digit changes a stored number with every update.
    #[test]
    fn floats_are_read_as_they_were_written() {
        for text in ["-6.770541110820074e+280", "0.10000000149011612", "2.2250738585072014e-308"] {
            let (value, _) = read_json(text.as_bytes()).unwrap();
            let written: f64 = text.parse().unwrap();
            assert_eq!(value.as_f64().map(f64::to_bits), Some(written.to_bits()), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(read_json(&nested(127)).is_ok());
        assert!(read_json(&nested(200_000)).is_err());
    }

    #[test]
    fn errors_are_worded_like_go() {
        let table = [
            ("{", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 2}"#, "invalid character '2' after object key:value pair"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("nul", "unexpected end of JSON input"),
            ("nux", "invalid character 'x' in literal null (expecting 'l')"),
            ("tRue", "invalid character 'R' in literal true (expecting 'r')"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.a", "invalid character 'a' after decimal point in numeric literal"),
            ("1ea", "invalid character 'a' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00g0""#, "invalid character 'g' in \\u hexadecimal character escape"),
            ("'", "invalid character '\\'' looking for beginning of value"),
        ];
        for (text, message) in table {
            let error = read_json(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
    }

    proptest! {
        /// Whatever `serde_json` writes is read back as it was.
        #[test]
        fn written_json_is_read_back(text in "[a-z\"\\\\\u{0}-\u{7f}ä]{0,20}", number in any::<i64>()) {
            let value = json!({ &text: [number, &text, null, true], "n": { "m": -1.5 } });
            let (read, repeated) = read_json(value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(read, value);
            prop_assert!(repeated.is_empty());
        }

        /// The scanner finds a fault exactly where the reader does, on texts near JSON.
        #[test]
        fn the_scanner_agrees_with_the_reader(text in r#"[\[\]{}",:0-9.eE+\-a truefalsn\\]{0,12}"#) {
            let reads = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(go_json_error(text.as_bytes()).is_none(), reads, "{}", text);
        }
    }
}
