//! Parses a path into steps.

use std::str::Chars;

use super::{FilterTest, Literal, Operator, Slice, Step, SyntaxError};

/// Parses the text between braces.
pub(super) fn parse_path(text: &str) -> Result<Vec<Step>, SyntaxError> {
    // A brace in the text ends the action early; the rest is a template of its own that prints
    // beside it, and a column shows the first value only.
    let mut rest = text;
    let mut steps = Vec::new();
    loop {
        let Some(next) = rest.chars().next() else {
            return Ok(steps);
        };
        if rest.starts_with("[?(") {
            rest = filter(&rest[3..], &mut steps)?;
        } else if let Some(tail) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return syntax_error("invalid multiple recursive descent");
            }
            steps.push(Step::Recursive);
            rest = match tail.chars().next() {
                Some(next) if is_word(next) => field(tail, &mut steps)?,
                _ => tail,
            };
        } else {
            rest = match next {
                '}' => return Ok(steps),
                ' ' | '@' | '$' => &rest[1..],
                '\r' | '\n' => return syntax_error("unclosed action"),
                '[' => array(&rest[1..], &mut steps)?,
                '"' | '\'' => quote(rest, next, &mut steps)?,
                '.' => field(&rest[1..], &mut steps)?,
                '+' | '-' | '0'..='9' => number(rest, &mut steps)?,
                _ if is_word(next) => word(rest, &mut steps),
                _ => {
                    let code = u32::from(next);
                    return syntax_error(format!(
                        "unrecognized character in action: U+{code:04X} '{next}'"
                    ));
                }
            };
        }
    }
}

fn syntax_error<T>(text: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError(text.into()))
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

fn ends_word(letter: char) -> bool {
    " \t\r\n.,[]$@{}".contains(letter)
}

/// Parses a field up to the end of a word, unless a backslash escapes it.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, SyntaxError> {
    let mut escaped = false;
    let end = text.find(|letter| {
        let ends = !escaped && ends_word(letter);
        escaped = !escaped && letter == '\\';
        ends
    });
    if escaped {
        return syntax_error("unclosed action");
    }
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    steps.push(match name {
        "*" => Step::Wildcard,
        _ => Step::Field(name.replace('\\', "")),
    });
    Ok(rest)
}

fn word<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (word, rest) = text.split_at(text.find(ends_word).unwrap_or(text.len()));
    steps.push(match word {
        "true" => Step::Literal(Literal::Bool(true)),
        "false" => Step::Literal(Literal::Bool(false)),
        _ => Step::Word,
    });
    rest
}

fn number<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, SyntaxError> {
    let in_number = |(at, letter): (usize, char)| {
        letter == '.' || letter.is_ascii_digit() || (at == 0 && "+-".contains(letter))
    };
    let end = text.char_indices().find(|it| !in_number(*it)).map_or(text.len(), |(at, _)| at);
    let (number, rest) = text.split_at(end);
    let literal = match (number.parse(), number.parse::<f64>()) {
        (Ok(int), _) => Literal::Int(int),
        (Err(_), Ok(float)) if float.is_finite() => Literal::Float(float),
        (Err(_), _) => return syntax_error(format!("cannot parse number {number}")),
    };
    steps.push(Step::Literal(literal));
    Ok(rest)
}

/// Parses a quoted text; `text` starts with the quote.
fn quote<'a>(text: &'a str, quote: char, steps: &mut Vec<Step>) -> Result<&'a str, SyntaxError> {
    let mut before = quote;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == '\n' {
            break;
        }
        if letter == quote && before != '\\' {
            let inner = &text[1..at];
            let Some(unquoted) = unquote(inner, quote) else {
                return syntax_error(format!(
                    "unquote string {} error invalid syntax",
                    &text[..=at]
                ));
            };
            steps.push(Step::Literal(Literal::Text(unquoted)));
            return Ok(&text[at + 1..]);
        }
        before = letter;
    }
    syntax_error("unterminated quoted string")
}

/// Unquotes a text, by the escapes of Go.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        let letter = match letter {
            '\\' => match rest.next()? {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                '\\' => '\\',
                mark @ ('\'' | '"') if mark == quote => mark,
                'u' => char::from_u32(code(&mut rest, 4, 16, 0)?)?,
                'U' => char::from_u32(code(&mut rest, 8, 16, 0)?)?,
                'x' => {
                    out.push(u8::try_from(code(&mut rest, 2, 16, 0)?).ok()?);
                    continue;
                }
                first @ '0'..='7' => {
                    let first = first.to_digit(8)?;
                    out.push(u8::try_from(code(&mut rest, 2, 8, first)?).ok()?);
                    continue;
                }
                _ => return None,
            },
            letter if letter == quote => return None,
            letter => letter,
        };
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Parses `digits` more digits after those that gave `first`.
fn code(letters: &mut Chars<'_>, digits: usize, radix: u32, first: u32) -> Option<u32> {
    let mut code = first;
    for _ in 0..digits {
        code = code.checked_mul(radix)?.checked_add(letters.next()?.to_digit(radix)?)?;
    }
    Some(code)
}

/// Parses the content of brackets; `text` starts behind the opening one.
fn array<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, SyntaxError> {
    let Some(end) = text.find([']', '\n']).filter(|end| text[*end..].starts_with(']')) else {
        return syntax_error("unterminated array");
    };
    let (inner, rest) = (&text[..end], &text[end + 1..]);
    if inner.contains(',') {
        let mut union = Vec::new();
        for part in inner.split(',') {
            union.push(parse_path(&format!("[{}]", part.trim_matches(' ')))?);
        }
        steps.push(Step::Union(union));
        return Ok(rest);
    }
    let key = inner.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
    match key.filter(|key| !key.contains('\'')) {
        // A quoted key is parsed as a field would be: the dots in it need a backslash too.
        Some(key) => steps.extend(parse_path(&format!(".{key}"))?),
        None => steps.push(Step::Slice(slice(inner)?)),
    }
    Ok(rest)
}

fn slice(inner: &str) -> Result<Slice, SyntaxError> {
    let text = if inner == "*" { ":" } else { inner };
    let parts: Vec<&str> = text.split(':').collect();
    let plain = |part: &&str| part.trim_start_matches('-').bytes().all(|it| it.is_ascii_digit());
    let signed_once = |part: &&str| !part.starts_with("--");
    if parts.len() > 3 || !parts.iter().all(|it| plain(it) && signed_once(it)) {
        return syntax_error(format!("invalid array index {inner}"));
    }
    let number = |part: &str| match part {
        "" => Ok(None),
        _ => match part.parse::<i64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => syntax_error(format!("array index {part} is not a number")),
        },
    };
    let from = number(parts[0])?.unwrap_or_default();
    let (to, index) = match parts.get(1) {
        Some(part) => (number(part)?, false),
        None => (Some(from.saturating_add(1)), true),
    };
    let by = parts.get(2).map_or(Ok(None), |part| number(part))?;
    Ok(Slice { from, to, index, by })
}

/// Parses a filter; `text` starts behind `[?(`.
fn filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, SyntaxError> {
    let end = end_of_filter(text)?;
    let (inner, rest) = (&text[..end], &text[end + 1..]);
    let Some(rest) = rest.strip_prefix(']') else {
        return syntax_error("unclosed array expect ]");
    };
    let step = match comparison(inner) {
        None => Step::Filter { left: parse_path(inner)?, test: FilterTest::Exists },
        Some((left, operator, right)) => {
            let operator = match operator {
                "<" => Operator::Less,
                "<=" => Operator::LessOrEqual,
                "==" => Operator::Equal,
                "!=" => Operator::NotEqual,
                ">=" => Operator::GreaterOrEqual,
                ">" => Operator::Greater,
                _ => Operator::Unknown,
            };
            let test = FilterTest::Compare(operator, parse_path(right)?);
            Step::Filter { left: parse_path(left)?, test }
        }
    };
    steps.push(step);
    Ok(rest)
}

/// Finds the closing parenthesis, ignoring one inside a quoted text. There is at most one such
/// text.
fn end_of_filter(text: &str) -> Result<usize, SyntaxError> {
    let mut opened = None;
    let mut closed = false;
    let mut before = '(';
    for (at, letter) in text.char_indices() {
        match letter {
            '\n' => break,
            '"' | '\'' => match opened {
                None => opened = Some(letter),
                Some(quote) => closed |= letter == quote && before != '\\',
            },
            ')' if opened.is_some() == closed => return Ok(at),
            _ => {}
        }
        before = letter;
    }
    syntax_error("unterminated filter")
}

/// Splits a filter at its operator, if it has one with an operand on both sides.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    const SIGNS: [char; 4] = ['!', '<', '>', '='];
    let start = text.find(SIGNS).filter(|start| *start > 0)?;
    let (left, tail) = text.split_at(start);
    let run = tail.find(|letter| !SIGNS.contains(&letter));
    // If nothing else is left, the last character is the operand.
    let length = run.unwrap_or(tail.len() - 1);
    let (operator, right) = tail.split_at(length);
    (!operator.is_empty()).then_some((left, operator, right))
}
