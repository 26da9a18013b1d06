//! Reads the commands of a shell, as far as their effects are simulated.
//!
//! Lists of simple commands are understood, with `&&`, `||`, `;`, `|`, assignments and redirected
//! output. A text with anything else (conditions, loops, functions, here-documents) is opaque: none
//! of it is simulated, since a part of it would be wrong as often as right.

use crate::words::unquote;

/// The most commands of one text.
const MAX_COMMANDS: usize = 1000;

/// Words that begin what is not simulated.
const COMPOUND_KEYWORDS: [&str; 14] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "function", "select",
];

/// How a pipeline is connected with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connector {
    /// It runs whatever the one before returned.
    Always,
    /// It runs if the one before succeeded.
    And,
    /// It runs if the one before failed.
    Or,
}

/// Commands that are connected with `|`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    pub(crate) connector: Connector,
    pub(crate) commands: Vec<SimpleCommand>,
}

/// A command with its words as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    pub(crate) words: Vec<String>,
    /// Where the output goes, if it is redirected.
    pub(crate) output: Option<Redirect>,
}

/// A file that gets the output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) append: bool,
    pub(crate) target: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(&'static str),
}

/// Reads a list of commands; none if it is opaque.
pub(crate) fn parse_list(text: &str) -> Option<Vec<Pipeline>> {
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut commands = vec![SimpleCommand::default()];
    let mut connector = Connector::Always;
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut count = 0;
    while let Some(token) = tokens.next() {
        let command = commands.last_mut()?;
        match token {
            Token::Word(word) => {
                let compound = matches!(word.as_str(), "!" | "{" | "}" | "[[")
                    || COMPOUND_KEYWORDS.contains(&word.as_str());
                if command.words.is_empty() && compound {
                    return None;
                }
                command.words.push(word);
            }
            Token::Operator(operator @ (">" | ">>" | "2>" | "<")) => {
                let Some(Token::Word(target)) = tokens.next() else { return None };
                if operator.starts_with('>') {
                    command.output = Some(Redirect { append: operator == ">>", target });
                }
            }
            // Where the errors go does not matter.
            Token::Operator("2>&1") => {}
            Token::Operator("|") => {
                if command.words.is_empty() {
                    return None;
                }
                commands.push(SimpleCommand::default());
            }
            Token::Operator(operator) => {
                let empty = command.words.is_empty();
                if !empty {
                    count += commands.len();
                    let commands = std::mem::take(&mut commands);
                    pipelines.push(Pipeline { connector, commands });
                    if count > MAX_COMMANDS {
                        return None;
                    }
                } else if commands.len() > 1 || operator == "&&" || operator == "||" {
                    return None;
                }
                commands = vec![SimpleCommand::default()];
                connector = match operator {
                    "&&" => Connector::And,
                    "||" => Connector::Or,
                    // A line may end after `&&`.
                    "\n" if empty => connector,
                    _ => Connector::Always,
                };
            }
        }
    }
    match commands.last()?.words.is_empty() {
        false => pipelines.push(Pipeline { connector, commands }),
        true if commands.len() > 1 || connector != Connector::Always => return None,
        true => {}
    }
    Some(pipelines)
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut word, mut at) = (Vec::new(), String::new(), 0);
    let flush = |word: &mut String, tokens: &mut Vec<Token>| {
        if !word.is_empty() {
            tokens.push(Token::Word(std::mem::take(word)));
        }
    };
    while let Some(&char) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let (operator, length) = match (char, next) {
            ('\\', Some('\n')) => {
                at += 2;
                continue;
            }
            ('\\', Some(next)) => {
                word.extend([char, next]);
                at += 2;
                continue;
            }
            ('\'' | '"', _) => {
                let end = quote_end(&chars, at)?;
                word.extend(&chars[at..=end]);
                at = end + 1;
                continue;
            }
            ('$', Some('(')) | ('`', _) => {
                let end = substitution_end(&chars, at)?;
                word.extend(&chars[at..=end]);
                at = end + 1;
                continue;
            }
            ('$', Some('{')) => {
                let end = at + chars[at..].iter().position(|it| *it == '}')?;
                word.extend(&chars[at..=end]);
                at = end + 1;
                continue;
            }
            ('#', _) if word.is_empty() => {
                at += chars[at..].iter().position(|it| *it == '\n').unwrap_or(chars.len() - at);
                continue;
            }
            ('\n', _) => ("\n", 1),
            (char, _) if char.is_whitespace() => {
                flush(&mut word, &mut tokens);
                at += 1;
                continue;
            }
            ('&', Some('&')) => ("&&", 2),
            ('|', Some('|')) => ("||", 2),
            ('>', Some('&')) if word == "2" && chars.get(at + 2) == Some(&'1') => {
                word.clear();
                ("2>&1", 3)
            }
            ('(' | ')', _)
            | ('<', Some('<'))
            | (';', Some(';'))
            | ('&', Some('>'))
            | ('>', Some('&')) => return None,
            ('>', _) if word == "2" => {
                word.clear();
                ("2>", if next == Some('>') { 2 } else { 1 })
            }
            ('>', Some('>')) => (">>", 2),
            ('>', _) => (">", 1),
            ('<', _) => ("<", 1),
            ('|', _) => ("|", 1),
            ('&', _) => ("&", 1),
            (';', _) => (";", 1),
            _ => {
                word.push(char);
                at += 1;
                continue;
            }
        };
        flush(&mut word, &mut tokens);
        tokens.push(Token::Operator(operator));
        at += length;
    }
    flush(&mut word, &mut tokens);
    Some(tokens)
}

/// Where the quote that starts at `start` ends.
fn quote_end(chars: &[char], start: usize) -> Option<usize> {
    let quote = chars[start];
    let mut at = start + 1;
    loop {
        match chars.get(at)? {
            '\\' if quote == '"' => at += 1,
            '`' if quote == '"' => at = substitution_end(chars, at)?,
            '$' if quote == '"' && chars.get(at + 1) == Some(&'(') => {
                at = substitution_end(chars, at)?;
            }
            char if *char == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

/// Where the command that starts at `start`, with `$(` or a backtick, ends. Quotes in it are not
/// understood; its text is not used.
fn substitution_end(chars: &[char], start: usize) -> Option<usize> {
    if chars[start] == '`' {
        return Some(start + 1 + chars[start + 1..].iter().position(|it| *it == '`')?);
    }
    let mut depth = 0_usize;
    for (offset, char) in chars[start + 1..].iter().enumerate() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(start + 1 + offset);
        }
    }
    None
}

/// Whether a word has the output of a command or a parameter of the shell, so that its value is
/// not known.
pub(crate) fn has_substitution(word: &str) -> bool {
    let mut quoted = false;
    let mut chars = word.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\'' => quoted = !quoted,
            '\\' if !quoted => {
                chars.next();
            }
            '`' if !quoted => return true,
            '$' if !quoted => {
                let next = chars.peek().copied();
                if next.is_some_and(|it| it.is_ascii_digit() || "(@*#?$!-".contains(it)) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// Whether a word is an assignment, and of what.
pub(crate) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let mut chars = name.chars();
    let valid = chars.next().is_some_and(crate::expand::is_name_start)
        && chars.all(|it| it.is_ascii_digit() || crate::expand::is_name_start(it));
    valid.then_some((name, value))
}

/// Whether a word has quotes or escapes, so that its value is not split again.
pub(crate) fn is_quoted(word: &str) -> bool {
    word.contains(['"', '\'']) || unquote(word, '\\') != word
}

#[cfg(test)]
mod tests;
