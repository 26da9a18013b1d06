//! Parses text into commands, and words into fields. Pure.

use std::iter::Peekable;
use std::str::Chars;

use super::condition::ReservedWord;

/// A command of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShellCommand {
    /// When it is run.
    pub(crate) when: RunCondition,
    words: Vec<Word>,
}

/// When a command of a list is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunCondition {
    /// Always.
    Always,
    /// After `&&`.
    AfterSuccess,
    /// After `||`.
    AfterFailure,
}

/// A word before its variables are expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word(Vec<WordPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum WordPart {
    Text { text: String, quoted: bool },
    Variable { name: String, quoted: bool },
}

/// The most bytes of the fields of one command: a tenth of what a real system allows. Variables
/// made of variables would otherwise double with every command.
const MAX_FIELD_BYTES: usize = 128 * 1024;

type Characters<'a> = Peekable<Chars<'a>>;

/// Parses a text.
///
/// # Errors
/// What is wrong with it, with the text of a shell, or what is not supported.
pub(crate) fn parse(text: &str) -> Result<Vec<ShellCommand>, String> {
    let mut letters = text.chars().peekable();
    let (mut steps, mut words, mut when) = (Vec::new(), Vec::new(), RunCondition::Always);
    let unexpected = |what: &str| format!("syntax error: unexpected {what}");
    loop {
        let letter = letters.peek().copied();
        let (symbol, next) = match letter {
            Some(' ' | '\t') => {
                letters.next();
                continue;
            }
            Some('#') => {
                while letters.next_if(|it| *it != '\n').is_some() {}
                continue;
            }
            Some(letter @ ('&' | '|')) => {
                letters.next();
                match (letter, letters.next_if_eq(&letter)) {
                    ('&', Some(_)) => ("&&", RunCondition::AfterSuccess),
                    (_, Some(_)) => ("||", RunCondition::AfterFailure),
                    (_, None) => return Err(not_simulated(letter)),
                }
            }
            Some(';') => (";", RunCondition::Always),
            Some('\n') => ("newline", RunCondition::Always),
            None => ("end of file", RunCondition::Always),
            Some(_) => {
                words.push(word(&mut letters)?);
                continue;
            }
        };
        if matches!(letter, Some(';' | '\n')) {
            letters.next();
        }
        match (words.is_empty(), letter) {
            (false, _) => {
                steps.push(ShellCommand { when, words: std::mem::take(&mut words) });
                when = next;
            }
            // Lines may be empty, and a list continues in the next line.
            (true, Some('\n')) => {}
            (true, None) if when == RunCondition::Always => {}
            (true, Some(_) | None) => return Err(unexpected(&format!("\"{symbol}\""))),
        }
        if letter.is_none() {
            return Ok(steps);
        }
    }
}

fn not_simulated(letter: char) -> String {
    format!("\"{letter}\" is not simulated")
}

fn word(letters: &mut Characters<'_>) -> Result<Word, String> {
    let mut word = Word::default();
    while let Some(&letter) = letters.peek() {
        match letter {
            ' ' | '\t' | '\n' | ';' | '&' | '|' => break,
            '(' | ')' | '<' | '>' | '`' => return Err(not_simulated(letter)),
            _ => {
                letters.next();
            }
        }
        match letter {
            '\'' => {
                let mut text = String::new();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => text.push(letter),
                        None => return Err(unterminated()),
                    }
                }
                word.push(&text, true);
            }
            '"' => quoted(&mut word, letters)?,
            '\\' => match letters.next() {
                Some('\n') => {}
                Some(letter) => word.push(letter.encode_utf8(&mut [0; 4]), true),
                None => word.push("\\", false),
            },
            '$' => variable(&mut word, letters, false)?,
            letter => word.push(letter.encode_utf8(&mut [0; 4]), false),
        }
    }
    Ok(word)
}

/// Parses the rest of a text in double quotes.
fn quoted(word: &mut Word, letters: &mut Characters<'_>) -> Result<(), String> {
    // Also when there is nothing between them: that is a field, too.
    word.push("", true);
    loop {
        match letters.next().ok_or_else(unterminated)? {
            '"' => return Ok(()),
            '$' => variable(word, letters, true)?,
            '`' => return Err(not_simulated('`')),
            '\\' => match letters.next().ok_or_else(unterminated)? {
                '\n' => {}
                letter @ ('"' | '\\' | '$' | '`') => {
                    word.push(letter.encode_utf8(&mut [0; 4]), true);
                }
                letter => word.push(&format!("\\{letter}"), true),
            },
            letter => word.push(letter.encode_utf8(&mut [0; 4]), true),
        }
    }
}

/// Parses what follows a dollar sign.
fn variable(word: &mut Word, letters: &mut Characters<'_>, quoted: bool) -> Result<(), String> {
    let name = match letters.peek().copied() {
        Some('(') => return Err("\"$(\" is not simulated".to_owned()),
        Some('{') => {
            letters.next();
            let name = name(letters);
            if letters.next() != Some('}') || name.is_empty() {
                return Err("syntax error: bad substitution".to_owned());
            }
            name
        }
        Some(letter @ ('?' | '$' | '#' | '0'..='9')) => {
            letters.next();
            letter.to_string()
        }
        Some(_) | None => name(letters),
    };
    match name.is_empty() {
        true => word.push("$", quoted),
        false => word.0.push(WordPart::Variable { name, quoted }),
    }
    Ok(())
}

fn name(letters: &mut Characters<'_>) -> String {
    let mut name = String::new();
    while let Some(letter) = letters.next_if(|it| it.is_ascii_alphanumeric() || *it == '_') {
        if name.is_empty() && letter.is_ascii_digit() {
            break;
        }
        name.push(letter);
    }
    name
}

fn unterminated() -> String {
    "syntax error: unterminated quoted string".to_owned()
}

impl Word {
    fn push(&mut self, more: &str, now_quoted: bool) {
        match self.0.last_mut() {
            Some(WordPart::Text { text, quoted }) if *quoted == now_quoted => text.push_str(more),
            Some(_) | None => {
                self.0.push(WordPart::Text { text: more.to_owned(), quoted: now_quoted });
            }
        }
    }

    /// Returns the name of the variable that this word sets, and the rest of it as its value.
    fn assignment(&self) -> Option<(String, Self)> {
        let [WordPart::Text { text, quoted: false }, rest @ ..] = self.0.as_slice() else {
            return None;
        };
        let (named, value) = text.split_once('=')?;
        let mut letters = named.chars().peekable();
        if named.is_empty() || name(&mut letters) != named {
            return None;
        }
        let mut parts = vec![WordPart::Text { text: value.to_owned(), quoted: true }];
        parts.extend_from_slice(rest);
        Some((named.to_owned(), Self(parts)))
    }

    /// Returns the fields of the word. Only the value of a variable without quotes can be none or
    /// many.
    fn fields<'a>(&self, lookup: &impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
        let mut fields = Vec::new();
        let mut open: Option<String> = None;
        for part in &self.0 {
            match part {
                WordPart::Text { text, .. } => open.get_or_insert_default().push_str(text),
                WordPart::Variable { name, quoted: true } => {
                    open.get_or_insert_default().push_str(lookup(name).unwrap_or_default());
                }
                WordPart::Variable { name, quoted: false } => {
                    for letter in lookup(name).unwrap_or_default().chars() {
                        match letter {
                            ' ' | '\t' | '\n' => fields.extend(open.take()),
                            letter => open.get_or_insert_default().push(letter),
                        }
                    }
                }
            }
        }
        fields.extend(open);
        fields
    }

    /// Returns the word as one field, whatever is in its variables.
    fn value<'a>(&self, lookup: &impl Fn(&str) -> Option<&'a str>) -> String {
        let parts = self.0.iter().map(|part| match part {
            WordPart::Text { text, .. } => text.as_str(),
            WordPart::Variable { name, .. } => lookup(name).unwrap_or_default(),
        });
        parts.collect()
    }
}

/// The variables that are set, by name, and the fields of the command.
type Expanded = (Vec<(String, String)>, Vec<String>);

impl RunCondition {
    /// Whether a command is run after one with this exit code.
    pub(crate) fn is_met(self, code: u8) -> bool {
        match self {
            Self::Always => true,
            Self::AfterSuccess => code == 0,
            Self::AfterFailure => code != 0,
        }
    }
}

impl ShellCommand {
    /// Whether there is nothing to run.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Takes the first word, if it is reserved and not quoted.
    pub(super) fn take_reserved_word(&mut self) -> Option<ReservedWord> {
        let first = self.words.first().map(|word| word.0.as_slice());
        let Some([WordPart::Text { text, quoted: false }]) = first else { return None };
        let reserved = ReservedWord::parse(text)?;
        self.words.remove(0);
        Some(reserved)
    }

    /// Expands the variables.
    ///
    /// # Errors
    /// The result would be too long.
    pub(crate) fn expand<'a>(
        &self,
        lookup: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Expanded, String> {
        let (mut assignments, mut fields, mut size) = (Vec::new(), Vec::new(), 0);
        for word in &self.words {
            // Before anything is concatenated: the sum is what could be too long.
            size += word.0.iter().fold(0, |sum, part| {
                sum + match part {
                    WordPart::Text { text, .. } => text.len(),
                    WordPart::Variable { name, .. } => lookup(name).map_or(0, str::len),
                }
            });
            if size > MAX_FIELD_BYTES {
                return Err("argument list too long".to_owned());
            }
            match word.assignment().filter(|_| fields.is_empty()) {
                Some((name, value)) => assignments.push((name, value.value(&lookup))),
                None => fields.extend(word.fields(&lookup)),
            }
        }
        Ok((assignments, fields))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the fields of each command of a text.
    fn split(text: &str) -> Result<Vec<(RunCondition, Vec<String>)>, String> {
        let lookup = |name: &str| match name {
            "A" => Some("one"),
            "SP" => Some(" a  b "),
            "?" => Some("7"),
            _ => None,
        };
        parse(text)?.into_iter().map(|step| Ok((step.when, step.expand(lookup)?.1))).collect()
    }

    #[test]
    fn words_become_fields() {
        let table: [(&str, &[&str]); 21] = [
            ("echo a  b", &["echo", "a", "b"]),
            ("echo 'a  b'", &["echo", "a  b"]),
            ("echo 'a'\"b\"c\\ d", &["echo", "abc d"]),
            ("echo '' \"\"", &["echo", "", ""]),
            ("echo $A ${A}s $As", &["echo", "one", "ones"]),
            ("echo '$A' \"$A\" \\$A", &["echo", "$A", "one", "$A"]),
            ("echo x${SP}y", &["echo", "x", "a", "b", "y"]),
            ("echo \"x${SP}y\"", &["echo", "x a  b y"]),
            ("echo $SP", &["echo", "a", "b"]),
            ("echo $NONE", &["echo"]),
            ("echo \"$NONE\"", &["echo", ""]),
            ("echo $? a$ $", &["echo", "7", "a$", "$"]),
            ("echo \"a\\\"b\\n\"", &["echo", "a\"b\\n"]),
            ("echo a#b # c", &["echo", "a#b"]),
            ("echo a\\\nb", &["echo", "ab"]),
            ("echo ä€", &["echo", "ä€"]),
            ("echo \\", &["echo", "\\"]),
            ("  \t echo", &["echo"]),
            ("\n\n echo;", &["echo"]),
            ("echo X=1", &["echo", "X=1"]),
            ("X=1 Y=\"a b\"", &[]),
        ];
        for (text, expected) in table {
            let expected = expected.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(split(text), Ok(vec![(RunCondition::Always, expected)]), "{text}");
        }
    }

    #[test]
    fn lists_say_when() {
        use RunCondition::{AfterFailure, AfterSuccess, Always};
        let table: [(&str, &[RunCondition]); 6] = [
            ("a; b;c", &[Always, Always, Always]),
            ("a && b || c; d", &[Always, AfterSuccess, AfterFailure, Always]),
            ("a&&b||c", &[Always, AfterSuccess, AfterFailure]),
            ("a &&\n b\nc", &[Always, AfterSuccess, Always]),
            ("", &[]),
            ("# nothing", &[]),
        ];
        for (text, expected) in table {
            let whens: Vec<RunCondition> =
                parse(text).unwrap().iter().map(|step| step.when).collect();
            assert_eq!(whens, expected, "{text}");
        }
    }

    #[test]
    fn syntax_errors_are_reported() {
        let table = [
            ("echo 'a", "syntax error: unterminated quoted string"),
            ("echo \"a", "syntax error: unterminated quoted string"),
            ("echo \"a\\", "syntax error: unterminated quoted string"),
            ("&& a", "syntax error: unexpected \"&&\""),
            ("a && ; b", "syntax error: unexpected \";\""),
            ("a ||", "syntax error: unexpected \"end of file\""),
            ("; a", "syntax error: unexpected \";\""),
            ("a | b", "\"|\" is not simulated"),
            ("a & b", "\"&\" is not simulated"),
            ("a > b", "\">\" is not simulated"),
            ("(a)", "\"(\" is not simulated"),
            ("echo $(a)", "\"$(\" is not simulated"),
            ("echo `a`", "\"`\" is not simulated"),
            ("echo ${A:-b}", "syntax error: bad substitution"),
            ("echo ${}", "syntax error: bad substitution"),
            ("echo ${A", "syntax error: bad substitution"),
        ];
        for (text, words) in table {
            assert_eq!(split(text), Err(words.to_owned()), "{text}");
        }
    }

    #[test]
    fn variables_are_set_only_before_a_command() {
        let lookup = |name: &str| (name == "A").then_some("a b");
        let steps = parse("X=1 Y=$A'c' =2 1Z=3 Z=4").unwrap();
        let (assignments, fields) = steps[0].expand(lookup).unwrap();
        let expected = [("X".to_owned(), "1".to_owned()), ("Y".to_owned(), "a bc".to_owned())];
        assert_eq!(assignments, expected);
        assert_eq!(fields, ["=2", "1Z=3", "Z=4"]);
    }

    #[test]
    fn oversized_expansions_are_rejected() {
        let long = "x".repeat(MAX_FIELD_BYTES / 2 + 1);
        let step = &parse("A=$A$A").unwrap()[0];
        let expanded = step.expand(|_| Some(long.as_str()));
        assert_eq!(expanded, Err("argument list too long".to_owned()));
    }

    proptest! {
        /// Quoted text is kept unchanged.
        #[test]
        fn quotes_keep_everything(text in "[^']*") {
            let expected = vec![(RunCondition::Always, vec!["echo".to_owned(), text.clone()])];
            prop_assert_eq!(split(&format!("echo '{text}'")), Ok(expected));
        }

        /// No text causes a panic.
        #[test]
        fn any_text_is_parsed_without_panic(text in ".*") {
            let _ = split(&text);
        }
    }
}
