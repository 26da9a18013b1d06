//! Splits a line of an INI inventory into words, as a shell without expansions does.

/// A word and the column it begins at, counted from 0 in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) column: usize,
}

/// A quote that is not closed, by its column; or an escape at the end of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordError {
    OpenQuote(usize),
    EscapedEnd(usize),
}

/// Splits a text into words as a shell does, without expansions; none if a quote is not closed.
#[must_use]
pub fn split_words(text: &str) -> Option<Vec<String>> {
    let words = split(text, false).ok()?;
    Some(words.into_iter().map(|word| word.text).collect())
}

/// Splits at blanks. Quotes group, a backslash escapes, and `#` begins a comment, also inside a
/// word.
pub(crate) fn split(line: &str, with_comments: bool) -> Result<Vec<Word>, WordError> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut chars = line.chars().enumerate();
    while let Some((column, c)) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '#' if with_comments => break,
            _ => {
                let word = word.get_or_insert_with(|| Word { text: String::new(), column });
                match c {
                    '\\' => match chars.next() {
                        Some((_, escaped)) => word.text.push(escaped),
                        None => return Err(WordError::EscapedEnd(column)),
                    },
                    '\'' => loop {
                        match chars.next() {
                            Some((_, '\'')) => break,
                            Some((_, c)) => word.text.push(c),
                            None => return Err(WordError::OpenQuote(column)),
                        }
                    },
                    '"' => quoted(&mut chars, &mut word.text, column)?,
                    c => word.text.push(c),
                }
            }
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(
    chars: &mut impl Iterator<Item = (usize, char)>,
    text: &mut String,
    column: usize,
) -> Result<(), WordError> {
    loop {
        match chars.next() {
            Some((_, '"')) => return Ok(()),
            Some((_, '\\')) => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                Some((_, c)) => text.extend(['\\', c]),
                None => return Err(WordError::OpenQuote(column)),
            },
            Some((_, c)) => text.push(c),
            None => return Err(WordError::OpenQuote(column)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pvs_8_words_are_those_of_a_shell() {
        let table: [(&str, &[&str]); 9] = [
            ("a b=1  c", &["a", "b=1", "c"]),
            ("a b='x y' c=\"p q\"", &["a", "b=x y", "c=p q"]),
            ("a b=\"'1'\"", &["a", "b='1'"]),
            ("a b=1#x y", &["a", "b=1"]),
            ("a # b", &["a"]),
            ("a b=\\#x", &["a", "b=#x"]),
            (r#"a b="x\"y\z" c=x\ y"#, &["a", "b=x\"y\\z", "c=x y"]),
            ("a b=''", &["a", "b="]),
            ("", &[]),
        ];
        for (line, expected) in table {
            let words = split(line, true).unwrap();
            let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(texts, expected, "{line}");
        }
        assert_eq!(split("a b='x", true), Err(WordError::OpenQuote(4)));
        assert_eq!(split("a b=\"x\\", true), Err(WordError::OpenQuote(4)));
        assert_eq!(split("a b\\", true), Err(WordError::EscapedEnd(3)));
        assert_eq!(split("é b", true).unwrap()[1].column, 2);
    }

    proptest! {
        #[test]
        fn quoted_text_is_one_word(text in "[a-z #\"\\\\=]{1,12}") {
            let words = split(&format!("'{text}'"), true).unwrap();
            prop_assert_eq!(words, vec![Word { text, column: 0 }]);
        }

        #[test]
        fn no_line_makes_it_panic(line in "[a '\"\\\\#=é]{0,20}") {
            let _ = split(&line, true);
        }
    }
}
