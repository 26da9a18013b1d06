//! YAML as text: parsed into nodes, and written from values.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use crate::node::{Content, Key, Node, Position};

/// Why a text is not YAML that Gantry reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct SyntaxError {
    /// Where the parser stopped.
    pub at: Position,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The documents of a YAML (or JSON) text, empty ones left out.
///
/// # Errors
/// The first syntax error: nothing after it can be trusted.
pub fn read(text: &str) -> Result<Vec<Node>, SyntaxError> {
    with_stack(|| parse(text, &mut None))
}

/// A key that stands more than once in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// The line of its later value.
    pub line: u32,
    /// The key; text is in quotes.
    pub key: String,
}

/// Reads the same, but the last value of a duplicate key is used. Also returns the duplicate keys,
/// inner ones first.
///
/// # Errors
/// The first syntax error: nothing after it can be trusted.
pub fn read_last_wins(text: &str) -> Result<(Vec<Node>, Vec<DuplicateKey>), SyntaxError> {
    with_stack(|| {
        let mut duplicates = Some(Vec::new());
        let documents = parse(text, &mut duplicates)?;
        Ok((documents, duplicates.unwrap_or_default()))
    })
}

/// Where duplicate keys are collected; without, they are errors.
type Duplicates = Option<Vec<DuplicateKey>>;

pub(crate) fn with_stack<T: Send>(
    parse: impl FnOnce() -> Result<T, SyntaxError> + Send,
) -> Result<T, SyntaxError> {
    // The parser recurses for every level, and uses up to 40 KB of stack for each. The caller may
    // be deep in a stack of two megabytes already.
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("yaml".to_owned()).stack_size(PARSER_STACK_BYTES);
        let reading = thread.spawn_scoped(scope, parse);
        let reading = reading.map_err(|error| SyntaxError {
            at: Position::default(),
            what: format!("cannot be read now: {error}"),
            remedy: "try again when the system has threads to give",
        })?;
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn parse(text: &str, duplicates: &mut Duplicates) -> Result<Vec<Node>, SyntaxError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: match duplicates {
            Some(_) => DuplicateKeyPolicy::LastWins,
            None => DuplicateKeyPolicy::Error,
        },
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH },
    };
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Raw>>(text, options)
        .map_err(|error| explain(&error))?;
    documents.into_iter().map(|document| plain(document, duplicates)).filter(is_not_empty).collect()
}

/// Levels of a document. The deepest definitions of kinds have about fifty.
pub(crate) const MAX_DEPTH: usize = 100;
/// Bytes of stack for them. The system allocates only what is used.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// Renders a value as one YAML document without a leading `---`.
///
/// Strings that YAML 1.1 readers would take for something else (`yes`, `1_0`) come out quoted.
///
/// # Errors
/// A value that cannot be written, such as a map with keys that are not scalars.
pub fn write(value: &impl Serialize) -> Result<String, WriteError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        empty_as_braces: true,
        prefer_block_scalars: true,
        min_fold_chars: usize::MAX,
    };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, value, options)
        .map_err(|error| WriteError(error.to_string()))?;
    Ok(text)
}

/// Why a value cannot be written as YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write as YAML: {0}")]
pub struct WriteError(String);

fn is_not_empty(document: &Result<Node, SyntaxError>) -> bool {
    !matches!(document, Ok(node) if node.is_null())
}

/// Turns the library's error into one line that says what to do.
fn explain(error: &serde_saphyr::Error) -> SyntaxError {
    let at = error
        .location()
        .map(|place| Position { line: to_u32(place.line()), column: to_u32(place.column()) })
        .unwrap_or_default();
    let text = error.without_snippet().to_string();
    let text = text.split(" at line ").next().unwrap_or(&text).replace('\n', " ");
    let (what, remedy) = if let Some(rest) = text.strip_prefix("duplicate mapping key: ") {
        let key = rest.split(',').next().unwrap_or(rest);
        (format!("duplicate key \"{key}\""), "keep one, or split the document with a line `---`")
    } else if text.contains("tabs disallowed") {
        ("a tab is used for indentation".to_owned(), "indent with spaces")
    } else if text.contains("recursion limit") || text.contains("Depth {") {
        let remedy = "nest less deeply: no Gantry object needs more than 100 levels";
        ("too many levels".to_owned(), remedy)
    } else if text.contains("non-finite") {
        (text, "write a finite number")
    } else if text.contains("budget") || text.contains("limit exceeded") {
        (text, "split the file, or write out what its aliases stand for")
    } else if text.contains("unexpected character") || text.contains("control character") {
        (text, "check that this is a YAML file")
    } else {
        (format!("not valid YAML: {text}"), "check indentation, brackets and quotes on this line")
    };
    SyntaxError { at, what, remedy }
}

fn to_u32(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// A value straight from the parser. Map keys are values too, until [`plain`] requires text.
enum Raw {
    Scalar(Content),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

fn plain(raw: Spanned<Raw>, duplicates: &mut Duplicates) -> Result<Node, SyntaxError> {
    let place = raw.referenced;
    let at = Position { line: to_u32(place.line()), column: to_u32(place.column()) };
    let value = match raw.value {
        Raw::Scalar(content) => content,
        Raw::List(items) => {
            let items = items.into_iter().map(|item| plain(item, duplicates));
            Content::List(items.collect::<Result<_, _>>()?)
        }
        Raw::Map(entries) => {
            let mut map: Vec<(Key, Node)> = Vec::with_capacity(entries.len());
            let mut names = HashMap::with_capacity(entries.len());
            for (key, value) in entries {
                let key = plain(key, duplicates)?;
                let Some(name) = key.scalar_text() else {
                    return Err(SyntaxError {
                        at: key.at,
                        what: "a map key is not a plain value".to_owned(),
                        remedy: "use text as the key; braces around a template need quotes",
                    });
                };
                let line = to_u32(value.referenced.line());
                let value = plain(value, duplicates)?;
                // `1:` and `"1":` differ in YAML and collide in JSON.
                let Some(place) = names.insert(name.clone(), map.len()) else {
                    map.push((Key { at: key.at, name }, value));
                    continue;
                };
                let Some(duplicates) = duplicates else {
                    return Err(SyntaxError {
                        at: key.at,
                        what: format!("duplicate key \"{name}\""),
                        remedy: "keep one, or split the document with a line `---`",
                    });
                };
                let is_text = matches!(key.value, Content::String(_));
                let shown = if is_text { format!("{name:?}") } else { name.clone() };
                duplicates.push(DuplicateKey { line, key: shown });
                names.insert(name, place);
                map[place].1 = value;
            }
            Content::Map(map)
        }
    };
    Ok(Node { at, value })
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::Bool(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::Number(number.into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::Number(number.into())))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Raw, E> {
        Number::from_f64(number)
            .map(|number| Raw::Scalar(Content::Number(number)))
            .ok_or_else(|| E::custom("non-finite number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::String(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::String(text)))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::Null))
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Content::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn reads_what_kubectl_reads() {
        let table = [
            ("old booleans", "a: yes\nb: Off\n", json!({"a": true, "b": false})),
            ("old octal and separators", "a: 0644\nb: 1_000\n", json!({"a": 420, "b": 1000})),
            ("a merge key", "x: &x {b: 2}\nz: {<<: *x}\n", json!({"x": {"b": 2}, "z": {"b": 2}})),
            ("a key that is a boolean", "y: 1\n", json!({"true": 1})),
            ("a number as key", "1: x\n", json!({"1": "x"})),
            ("JSON", "{\"a\": [1, null]}\n", json!({"a": [1, null]})),
            ("document end markers", "a: 1\n...\n", json!({"a": 1})),
        ];
        for (why, text, expected) in table {
            let documents = read(text).unwrap();
            assert_eq!(documents.len(), 1, "{why}");
            assert_eq!(documents[0].to_json(), expected, "{why}");
        }
    }

    /// The deepest document that is read, and deeper ones, called with next to no stack left.
    #[test]
    fn depth_is_bounded_before_the_stack_is() {
        let deep = |depth: usize| {
            [
                format!("{}1{}", "{\"a\": ".repeat(depth), "}".repeat(depth)),
                format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
                (0..depth).fold(String::new(), |text, at| text + &" ".repeat(at) + "a:\n"),
                format!("{}1", "- ".repeat(depth)),
                format!("{}1{}", "? {a: [".repeat(depth / 3), "]}".repeat(depth / 3)),
            ]
        };
        let work = move || {
            for text in deep(MAX_DEPTH - 1) {
                if let Err(error) = read(&text) {
                    assert!(error.what.contains("map key"), "{error}: {text}");
                }
            }
            for text in deep(MAX_DEPTH + 5).into_iter().chain(deep(3 * MAX_DEPTH)) {
                let error = read(&text).unwrap_err();
                assert!(error.to_string().contains("nest less deeply"), "{error}");
            }
        };
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(work).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn empty_documents_do_not_count() {
        assert_eq!(read("---\n# nothing\n---\na: 1\n---\n").unwrap().len(), 1);
        assert_eq!(read("").unwrap(), Vec::new());
    }

    #[test]
    fn every_value_knows_its_line() {
        let documents = read("a: 1\n---\nb:\n  - c: 2\n").unwrap();
        let item = &documents[1].get("b").unwrap().items().unwrap()[0];
        assert_eq!(item.at, Position { line: 4, column: 5 });
    }

    #[test]
    fn each_syntax_error_has_a_line_and_a_remedy() {
        let table = [
            ("a: 1\nb: 2\na: 3\n", 3, "duplicate key \"a\"", "split the document"),
            ("1: a\n'1': b\n", 2, "duplicate key \"1\"", "split the document"),
            ("a:\n\tb: 1\n", 2, "a tab", "indent with spaces"),
            ("a: [1\n", 1, "not valid YAML", "brackets"),
            ("a: .inf\n", 1, "non-finite", "finite number"),
            ("kernelMappings: []\n  - literal: x\n", 2, "not valid YAML", "indentation"),
            ("x: \u{0}", 1, "unexpected character", "YAML file"),
            ("? {a: 1}\n: x\n", 1, "map key", "quotes"),
        ];
        for (text, line, what, remedy) in table {
            let error = read(text).unwrap_err();
            assert_eq!(error.at.line, line, "{text:?}: {error}");
            assert!(error.what.contains(what), "{text:?}: {error}");
            assert!(error.remedy.contains(remedy), "{text:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{text:?}: one line");
        }
    }

    #[test]
    fn the_last_of_duplicate_keys_can_count() {
        let text = "a: 1\nb:\n  c: 1\n  d: [{e: 1, e: 2}]\n  c: 3\nb:\n  f: 1\na: 2\n1: p\n1: q\n";
        assert_eq!(read(text).unwrap_err().what, "duplicate key \"e\"");
        let (documents, duplicates) = read_last_wins(text).unwrap();
        let expected = json!({ "a": 2, "b": { "f": 1 }, "1": "q" });
        assert_eq!(documents[0].to_json(), expected);
        let found: Vec<(u32, &str)> =
            duplicates.iter().map(|it| (it.line, it.key.as_str())).collect();
        // The second `b` begins with its value, on the line after.
        let lines = [(4, "\"e\""), (5, "\"c\""), (7, "\"b\""), (8, "\"a\"")];
        assert_eq!(found[..4], lines, "{found:?}");
        let (documents, duplicates) = read_last_wins("a: {b: 1}\n").unwrap();
        assert_eq!((documents[0].to_json(), duplicates), (json!({ "a": { "b": 1 } }), vec![]));
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut bomb = String::from("a: &b0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..40 {
            let old = level - 1;
            bomb += &format!("k{level}: &b{level} [*b{old}, *b{old}, *b{old}, *b{old}, *b{old}]\n");
        }
        assert!(read(&bomb).is_err());
        assert!(read(&"[".repeat(10_000)).is_err());
    }

    proptest! {
        /// Everything that is written can be read back as the same value by kubectl's dialect.
        #[test]
        fn written_strings_come_back(text in "\\PC{0,12}", word in "(yes|no|on|off|y|n|~|null|1_0|0x1|1e3|0644|-|\\.5|<<|=|true)") {
            let value = json!({"a": text, "b": word, "c": [word], word: ""});
            let written = write(&value).unwrap();
            prop_assert_eq!(read(&written).unwrap()[0].to_json(), value, "{}", written);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-c:{}\\[\\]\\-#&*!|>'\"%@` \n\t]{0,200}") {
            let _ = read(&text);
        }
    }
}
