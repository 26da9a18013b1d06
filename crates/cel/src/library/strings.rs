//! Text.

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::{Text, Value};

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "startsWith",
        signatures: &["string.(string) bool"],
        charge: CostRule::Affix,
        run: starts_with,
    },
    LibraryFunction {
        name: "endsWith",
        signatures: &["string.(string) bool"],
        charge: CostRule::Affix,
        run: ends_with,
    },
    LibraryFunction {
        name: "contains",
        signatures: &["string.(string) bool"],
        charge: CostRule::Search,
        run: contains,
    },
    LibraryFunction {
        name: "charAt",
        signatures: &["string.(int) string"],
        charge: CostRule::Nominal,
        run: char_at,
    },
    LibraryFunction {
        name: "lowerAscii",
        signatures: &["string.() string"],
        charge: CostRule::Text,
        run: lower_ascii,
    },
    LibraryFunction {
        name: "upperAscii",
        signatures: &["string.() string"],
        charge: CostRule::Text,
        run: upper_ascii,
    },
    LibraryFunction {
        name: "trim",
        signatures: &["string.() string"],
        charge: CostRule::Text,
        run: trim,
    },
    LibraryFunction {
        name: "substring",
        signatures: &["string.(int) string", "string.(int,int) string"],
        charge: CostRule::Text,
        run: substring,
    },
    LibraryFunction {
        name: "replace",
        signatures: &["string.(string,string) string", "string.(string,string,int) string"],
        charge: CostRule::TextTwice,
        run: replace,
    },
    LibraryFunction {
        name: "split",
        signatures: &["string.(string) list(string)", "string.(string,int) list(string)"],
        charge: CostRule::TextTwice,
        run: split,
    },
    LibraryFunction {
        name: "join",
        signatures: &["list(string).() string", "list(string).(string) string"],
        charge: CostRule::Joined,
        run: join,
    },
    LibraryFunction {
        name: "strings.quote",
        signatures: &["(string) string"],
        charge: CostRule::Text,
        run: quote,
    },
    LibraryFunction {
        name: "jsonpatch.escapeKey",
        signatures: &["(string) string"],
        charge: CostRule::Text,
        run: escape_key,
    },
];

fn starts_with<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text), Value::String(head)] => Ok(Value::Bool(text.starts_with(&**head))),
        _ => no_overload(),
    }
}

fn ends_with<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text), Value::String(tail)] => Ok(Value::Bool(text.ends_with(&**tail))),
        _ => no_overload(),
    }
}

fn contains<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(&**part))),
        _ => no_overload(),
    }
}

fn out_of_range(place: i64) -> EvalError {
    EvalError::failed(format!("index out of range: {place}"))
}

/// A part of borrowed text is borrowed too.
fn part<'v>(text: &Text<'v>, start: usize, end: usize) -> Value<'v> {
    match text {
        Text::Borrowed(text) => Value::String(Text::Borrowed(&text[start..end])),
        Text::Shared(text) => Value::text(&text[start..end]),
    }
}

/// The byte at which a character starts; one past the last character is the end.
pub(super) fn byte_at(text: &str, place: i64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(place)
}

fn char_at<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text), Value::Int(place)] = args else { return no_overload() };
    let start = byte_at(text, *place).ok_or_else(|| out_of_range(*place))?;
    let length = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start, start + length))
}

fn lower_ascii<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.to_ascii_lowercase())),
        _ => no_overload(),
    }
}

fn upper_ascii<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.to_ascii_uppercase())),
        _ => no_overload(),
    }
}

fn trim<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    let start = text.len() - text.trim_start().len();
    let length = text.trim().len();
    Ok(part(text, start, start + length))
}

fn substring<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return no_overload(),
    };
    if let Some(end) = end.filter(|end| *end < start) {
        return Err(EvalError::failed(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let from = byte_at(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_at(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(part(text, from, to))
}

fn replace<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (text, old, new, most) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(most)] => {
            (text, old, new, *most)
        }
        _ => return no_overload(),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(most).count();
    // Replacing may lengthen the text beyond what its own length was charged for.
    let longer = count.saturating_mul(new.len().saturating_sub(old.len()));
    work.charge(u64::try_from(longer / 10).unwrap_or(u64::MAX))?;
    Ok(Value::text(text.replacen(&**old, new, most)))
}

fn split<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (text, separator, most) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(most)] => {
            (text, separator, *most)
        }
        _ => return no_overload(),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let mut parts = Vec::new();
    let mut start = 0;
    while parts.len() + 1 < most {
        let (end, next) = if separator.is_empty() {
            // Without a separator every character is a part.
            match text[start..].chars().next() {
                Some(letter) if start + letter.len_utf8() < text.len() => {
                    (start + letter.len_utf8(), start + letter.len_utf8())
                }
                _ => break,
            }
        } else {
            match text[start..].find(&**separator) {
                Some(at) => (start + at, start + at + separator.len()),
                None => break,
            }
        };
        parts.push(part(text, start, end));
        start = next;
    }
    if !(separator.is_empty() && text.is_empty()) {
        parts.push(part(text, start, text.len()));
    }
    Ok(Value::list(parts))
}

fn join<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_overload(),
    };
    let mut joined = String::new();
    let (mut letters, mut charged) = (0, 0);
    for (place, item) in list.iter().enumerate() {
        let Value::String(text) = item? else { return no_overload() };
        if place > 0 {
            joined.push_str(separator);
            letters += separator.chars().count();
        }
        joined.push_str(&text);
        letters += text.chars().count();
        let owed = u64::try_from(letters.div_ceil(5)).unwrap_or(u64::MAX);
        work.charge(owed - charged)?;
        charged = owed;
    }
    Ok(Value::text(joined))
}

fn quote<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}

fn escape_key<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.replace('~', "~0").replace('/', "~1"))),
        _ => no_overload(),
    }
}
