//! Expansion of variables, as Docker does it.

/// The longest text that an expansion may give. `ENV A=$A$A` doubles a value each time.
pub(crate) const MAX_EXPANDED_BYTES: usize = 256 << 10;

/// How deep `${a:-${b:-…}}` may be.
const MAX_DEPTH: usize = 16;

/// Why a text cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    #[error("a variable has no closing brace; write ${{NAME}}")]
    Unterminated,
    #[error("{0:?} is not a variable; write $NAME, ${{NAME}}, ${{NAME:-default}} or \\$")]
    Name(String),
    #[error("the modifier of ${{{0}}} is not supported; use :-, :+ or :?")]
    Modifier(String),
    #[error("variable {name} is not set: {message}")]
    Required { name: String, message: String },
    #[error("a quote {0} is not closed")]
    Quote(char),
    #[error("variables are nested more than {MAX_DEPTH} deep")]
    Depth,
    #[error("the text has more than {MAX_EXPANDED_BYTES} bytes after expansion")]
    Length,
}

/// Looks a variable up.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Expands the variables of a word, and removes its quotes and escapes.
pub(crate) fn expand(word: &str, escape: char, lookup: &Lookup<'_>) -> Result<String, ExpandError> {
    let mut expansion = Expansion { chars: word.chars().collect(), at: 0, escape, lookup };
    expansion.word(None, 0)
}

/// Expands variables of a here-document, in which quotes are characters as others.
pub(crate) fn expand_heredoc(
    text: &str,
    escape: char,
    lookup: &Lookup<'_>,
) -> Result<String, ExpandError> {
    let mut expansion = Expansion { chars: text.chars().collect(), at: 0, escape, lookup };
    let mut out = String::new();
    while let Some(char) = expansion.take() {
        match char {
            '$' => out.push_str(&expansion.variable(0)?),
            char if char == escape => match expansion.peek() {
                Some(next) if next == '$' || next == escape => {
                    out.push(next);
                    expansion.at += 1;
                }
                _ => out.push(char),
            },
            char => out.push(char),
        }
        bounded(&out)?;
    }
    Ok(out)
}

fn bounded(text: &str) -> Result<(), ExpandError> {
    if text.len() > MAX_EXPANDED_BYTES { Err(ExpandError::Length) } else { Ok(()) }
}

struct Expansion<'a> {
    chars: Vec<char>,
    at: usize,
    escape: char,
    lookup: &'a Lookup<'a>,
}

impl Expansion<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    /// Reads to the end, or past the character that ends this word.
    fn word(&mut self, end: Option<char>, depth: usize) -> Result<String, ExpandError> {
        if depth > MAX_DEPTH {
            return Err(ExpandError::Depth);
        }
        let mut out = String::new();
        loop {
            let Some(char) = self.take() else {
                return if end.is_some() { Err(ExpandError::Unterminated) } else { Ok(out) };
            };
            match char {
                char if Some(char) == end => return Ok(out),
                '\'' => self.single_quoted(&mut out)?,
                '"' => self.double_quoted(&mut out, depth)?,
                '$' => out.push_str(&self.variable(depth)?),
                // An escape at the very end is dropped.
                char if char == self.escape => out.extend(self.take()),
                char => out.push(char),
            }
            bounded(&out)?;
        }
    }

    fn single_quoted(&mut self, out: &mut String) -> Result<(), ExpandError> {
        loop {
            match self.take() {
                Some('\'') => return Ok(()),
                Some(char) => out.push(char),
                None => return Err(ExpandError::Quote('\'')),
            }
        }
    }

    fn double_quoted(&mut self, out: &mut String, depth: usize) -> Result<(), ExpandError> {
        loop {
            match self.take() {
                Some('"') => return Ok(()),
                Some('$') => out.push_str(&self.variable(depth)?),
                Some(char) if char == self.escape => match self.take() {
                    // Others keep the escape between double quotes.
                    Some(next) if next == '"' || next == '$' || next == self.escape => {
                        out.push(next);
                    }
                    Some(next) => out.extend([char, next]),
                    None => return Err(ExpandError::Quote('"')),
                },
                Some(char) => out.push(char),
                None => return Err(ExpandError::Quote('"')),
            }
            bounded(out)?;
        }
    }

    /// Reads what follows a dollar sign.
    fn variable(&mut self, depth: usize) -> Result<String, ExpandError> {
        match self.peek() {
            Some('{') => {
                self.at += 1;
                self.braced(depth)
            }
            Some(char) if is_name_start(char) => {
                let name = self.name();
                Ok(self.value(&name).unwrap_or_default())
            }
            // Parameters of a shell have no value here.
            Some('0'..='9' | '@' | '*' | '#' | '?' | '-' | '!' | '$') => {
                self.at += 1;
                Ok(String::new())
            }
            _ => Ok("$".to_owned()),
        }
    }

    fn braced(&mut self, depth: usize) -> Result<String, ExpandError> {
        if depth >= MAX_DEPTH {
            return Err(ExpandError::Depth);
        }
        let name = self.name();
        if name.is_empty() {
            let rest: String = self.chars[self.at..].iter().take(20).collect();
            return match self.peek() {
                None => Err(ExpandError::Unterminated),
                Some(_) => Err(ExpandError::Name(format!("${{{rest}"))),
            };
        }
        let modifier = self.take().ok_or(ExpandError::Unterminated)?;
        if modifier == '}' {
            return Ok(self.value(&name).unwrap_or_default());
        }
        let (modifier, empty_counts) = match modifier {
            ':' => (self.take().ok_or(ExpandError::Unterminated)?, true),
            other => (other, false),
        };
        if !matches!(modifier, '-' | '+' | '?') {
            return Err(ExpandError::Modifier(format!("{name}{modifier}")));
        }
        let word = self.word(Some('}'), depth + 1)?;
        let value = self.value(&name).filter(|value| !(empty_counts && value.is_empty()));
        match (modifier, value) {
            ('-', value) => Ok(value.unwrap_or(word)),
            ('+', value) => Ok(value.map_or_else(String::new, |_| word)),
            (_, Some(value)) => Ok(value),
            (_, None) => Err(ExpandError::Required { name, message: word }),
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(char) = self.peek()
            && (char.is_ascii_digit() && !name.is_empty() || is_name_start(char))
        {
            name.push(char);
            self.at += 1;
        }
        name
    }

    fn value(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }
}

/// Whether a name of a variable may start with this character.
pub(crate) const fn is_name_start(char: char) -> bool {
    char.is_ascii_alphabetic() || char == '_'
}

#[cfg(test)]
mod tests;
