//! Words of an instruction: quotes, flags, and lists in JSON.

/// Splits at white space that is neither quoted nor escaped. Quotes and escapes stay.
pub(crate) fn split_words(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, quote) {
            (char, None) if char.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            ('\'' | '"', None) => quote = Some(char),
            (char, Some(open)) if char == open => quote = None,
            // Nothing is escaped between single quotes.
            (char, quote) if char == escape && quote != Some('\'') => {
                word.push(char);
                word.extend(chars.next());
                continue;
            }
            _ => {}
        }
        word.push(char);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Removes quotes and escapes.
pub(crate) fn unquote(word: &str, escape: char) -> String {
    let mut text = String::new();
    let mut quote = None;
    let mut chars = word.chars();
    while let Some(char) = chars.next() {
        match (char, quote) {
            ('\'' | '"', None) => quote = Some(char),
            (char, Some(open)) if char == open => quote = None,
            (char, quote) if char == escape && quote != Some('\'') => text.extend(chars.next()),
            _ => text.push(char),
        }
    }
    text
}

/// A flag such as `--from=build`, without its hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// Takes the flags from the start of an instruction's text.
pub(crate) fn take_flags(text: &str, escape: char) -> (Vec<Flag>, &str) {
    let mut flags = Vec::new();
    let mut rest = text.trim_start();
    while rest.starts_with("--") {
        let end = word_end(rest, escape);
        let word = &rest[..end];
        rest = rest[end..].trim_start();
        if word == "--" {
            break;
        }
        let word = unquote(&word[2..], escape);
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        flags.push(Flag { name: name.to_owned(), value });
    }
    (flags, rest)
}

/// Where the first word ends.
fn word_end(text: &str, escape: char) -> usize {
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((index, char)) = chars.next() {
        match (char, quote) {
            (char, None) if char.is_whitespace() => return index,
            ('\'' | '"', None) => quote = Some(char),
            (char, Some(open)) if char == open => quote = None,
            (char, quote) if char == escape && quote != Some('\'') => {
                chars.next();
            }
            _ => {}
        }
    }
    text.len()
}

/// Whether a text is a list in JSON, of whatever.
pub(crate) fn has_json_form(text: &str) -> bool {
    let (_, text) = take_flags(text, '\\');
    text.starts_with('[') && serde_json::from_str::<Vec<serde_json::Value>>(text).is_ok()
}

/// Reads a list of texts in JSON; none if it is no list, so that it is a command for the shell.
pub(crate) fn json_list(text: &str) -> Result<Option<Vec<String>>, &'static str> {
    if !text.trim_start().starts_with('[') {
        return Ok(None);
    }
    let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(text.trim()) else {
        return Ok(None);
    };
    let texts = values.into_iter().map(|value| match value {
        serde_json::Value::String(text) => Ok(text),
        _ => Err("every item of the list must be a text in double quotes"),
    });
    texts.collect::<Result<_, _>>().map(Some)
}
