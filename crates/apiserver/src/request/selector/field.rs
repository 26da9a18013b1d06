//! Field selectors: their grammar, and whether field values match.

/// Terms that fields must all meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub Vec<Term>);

/// One field and the value it must, or must not, have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field, as in `status.phase`.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must have the value.
    pub equal: bool,
}

impl FieldSelector {
    /// Parses a selector; an empty string selects everything.
    ///
    /// # Errors
    /// In the words of Kubernetes.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        // In this order the first term that names an object decides the authorization.
        let mut parts = split(text);
        parts.sort_unstable();
        for term in parts {
            if term.is_empty() {
                continue;
            }
            let (field, equal, value) = operator(term)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            terms.push(Term { field: field.to_owned(), value: unescape(value)?, equal });
        }
        Ok(Self(terms))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name that every selected object has, if the selector has one.
    #[must_use]
    pub fn only_name(&self) -> Option<&str> {
        let named = self.0.iter().find(|term| term.field == "metadata.name" && term.equal);
        named.map(|term| term.value.as_str())
    }

    /// Whether fields, looked up by `value`, meet every term.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> std::borrow::Cow<'a, str>) -> bool {
        self.0.iter().all(|term| (value(&term.field) == term.value) == term.equal)
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (place, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Splits a term at its first operator.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    for (place, _) in term.char_indices() {
        let rest = &term[place..];
        for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(sign) {
                return Some((&term[..place], equal, value));
            }
        }
    }
    None
}

/// Removes escapes; an operator or a lone backslash must have one.
fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{next}"
                    ));
                }
                None => {
                    return Err("invalid field selector: invalid escape sequence: \\".to_owned());
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {letter}"
                ));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(text: &str) -> Vec<(String, bool, String)> {
        let selector = FieldSelector::read(text).unwrap();
        selector.0.into_iter().map(|it| (it.field, it.equal, it.value)).collect()
    }

    #[test]
    fn selectors_are_read() {
        let term = |field: &str, equal, value: &str| (field.to_owned(), equal, value.to_owned());
        assert_eq!(terms(""), []);
        assert_eq!(terms("a=1"), [term("a", true, "1")]);
        assert_eq!(terms("a==1,b!=2"), [term("a", true, "1"), term("b", false, "2")]);
        assert_eq!(terms("a="), [term("a", true, "")]);
        assert_eq!(terms("a=x\\,y\\=z\\\\"), [term("a", true, "x,y=z\\")]);
    }

    #[test]
    fn errors_are_reported() {
        let fault = FieldSelector::read("metadata.name").unwrap_err();
        assert_eq!(fault, "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
        assert!(FieldSelector::read("a=b=c").is_err());
        assert!(FieldSelector::read("a=b\\c").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(text in "[a-z!=,.\\\\ ]{0,30}") {
            let _ = FieldSelector::read(&text);
        }
    }
}
