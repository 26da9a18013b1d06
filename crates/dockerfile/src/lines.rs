//! Logical lines: directives, comments, continuations and here-documents.

use crate::error::DockerfileError;
use crate::instruction::Heredoc;
use crate::words::{has_json_form, split_words, unquote};
use crate::{MAX_DOCKERFILE_BYTES, MAX_INSTRUCTIONS};

/// The most here-documents of one instruction.
const MAX_HEREDOCS: usize = 32;

/// Instructions that may have here-documents.
const HEREDOC_INSTRUCTIONS: [&str; 3] = ["ADD", "COPY", "RUN"];

/// A Dockerfile as lines.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The character that continues lines and escapes others.
    pub(crate) escape: char,
    /// The value of the directive `syntax`.
    pub(crate) syntax: Option<String>,
    pub(crate) lines: Vec<LogicalLine>,
}

/// An instruction, with its continuations in one line.
#[derive(Debug)]
pub(crate) struct LogicalLine {
    /// The number of its first line, from 1.
    pub(crate) number: usize,
    /// The keyword, in capitals.
    pub(crate) keyword: String,
    /// What follows the keyword.
    pub(crate) rest: String,
    pub(crate) heredocs: Vec<Heredoc>,
}

impl LogicalLine {
    /// The instruction as one text, for messages.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.keyword, self.rest).trim_end().to_owned()
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> DockerfileError {
        DockerfileError::new(self.number, &self.text(), problem)
    }
}

/// Splits a Dockerfile into instructions.
pub(crate) fn read(text: &str) -> Result<Lines, DockerfileError> {
    if text.len() > MAX_DOCKERFILE_BYTES {
        return Err(DockerfileError::of_file(format!(
            "the Dockerfile has {} bytes, and {MAX_DOCKERFILE_BYTES} is the limit",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let physical: Vec<&str> =
        text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let (escape, syntax) = read_directives(&physical)?;
    let mut lines = Vec::new();
    let mut next = 0;
    while next < physical.len() {
        let start = physical[next].trim_start();
        if start.is_empty() || start.starts_with('#') {
            next += 1;
            continue;
        }
        let number = next + 1;
        let joined = join_continuations(&physical, &mut next, escape);
        let line = new_line(number, &joined)?;
        let line = with_heredocs(line, &physical, &mut next, escape)?;
        if lines.len() >= MAX_INSTRUCTIONS {
            let problem = format!("more than {MAX_INSTRUCTIONS} instructions; split the build");
            return Err(line.error(problem));
        }
        lines.push(line);
    }
    Ok(Lines { escape, syntax, lines })
}

fn new_line(number: usize, joined: &str) -> Result<LogicalLine, DockerfileError> {
    let joined = joined.trim();
    let (keyword, rest) = joined.split_once(char::is_whitespace).unwrap_or((joined, ""));
    if joined.contains('\0') {
        let problem = "a zero byte is in this line; save the Dockerfile as text";
        return Err(DockerfileError::new(number, keyword, problem));
    }
    Ok(LogicalLine {
        number,
        keyword: keyword.to_ascii_uppercase(),
        rest: rest.trim_start().to_owned(),
        heredocs: Vec::new(),
    })
}

/// Directives are comments of the form `name=value` before anything else.
fn read_directives(physical: &[&str]) -> Result<(char, Option<String>), DockerfileError> {
    let (mut escape, mut syntax) = (None, None);
    for (index, line) in physical.iter().enumerate() {
        let refuse = |problem: &str| DockerfileError::new(index + 1, line, problem);
        let Some(comment) = line.trim_start().strip_prefix('#') else { break };
        let Some((name, value)) = comment.split_once('=') else { break };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "escape" => {
                if escape.is_some() {
                    return Err(refuse("two directives set escape; remove one"));
                }
                escape = match value {
                    "\\" => Some('\\'),
                    "`" => Some('`'),
                    _ => return Err(refuse("escape must be \\ or `")),
                };
            }
            "syntax" => {
                if syntax.is_some() {
                    return Err(refuse("two directives set syntax; remove one"));
                }
                syntax = Some(value.to_owned());
            }
            "check" => {}
            _ => break,
        }
    }
    Ok((escape.unwrap_or('\\'), syntax))
}

/// Joins lines while they end with the escape character. Comments and empty lines in between are
/// left out, as Docker does.
fn join_continuations(physical: &[&str], next: &mut usize, escape: char) -> String {
    let mut joined = String::new();
    let mut first = true;
    while let Some(line) = physical.get(*next) {
        *next += 1;
        let start = line.trim_start();
        if !first && (start.is_empty() || start.starts_with('#')) {
            continue;
        }
        first = false;
        match without_continuation(line, escape) {
            Some(line) => joined.push_str(line),
            None => {
                joined.push_str(line);
                break;
            }
        }
    }
    joined
}

/// The line without an escape character at its end; none if the instruction ends here.
fn without_continuation(line: &str, escape: char) -> Option<&str> {
    let line = line.trim_end_matches([' ', '\t']);
    let before = line.strip_suffix(escape)?;
    // Two of them are one character, and no continuation.
    if before.ends_with(escape) { None } else { Some(before) }
}

fn with_heredocs(
    mut line: LogicalLine,
    physical: &[&str],
    next: &mut usize,
    escape: char,
) -> Result<LogicalLine, DockerfileError> {
    if !HEREDOC_INSTRUCTIONS.contains(&line.keyword.as_str()) || has_json_form(&line.rest) {
        return Ok(line);
    }
    let words = split_words(&line.rest, escape);
    let starts: Vec<HeredocStart> =
        words.iter().filter_map(|word| heredoc_start(word, escape)).collect();
    if starts.len() > MAX_HEREDOCS {
        return Err(line.error(format!("more than {MAX_HEREDOCS} here-documents")));
    }
    for start in starts {
        let mut content = String::new();
        loop {
            let Some(body) = physical.get(*next) else {
                return Err(line.error(format!(
                    "the here-document has no end; write {} alone in a line",
                    start.name
                )));
            };
            *next += 1;
            let body = if start.strip_tabs { body.trim_start_matches('\t') } else { body };
            if body == start.name {
                break;
            }
            content.push_str(body);
            content.push('\n');
        }
        line.heredocs.push(Heredoc { name: start.name, expand: start.expand, content });
    }
    Ok(line)
}

struct HeredocStart {
    name: String,
    expand: bool,
    strip_tabs: bool,
}

/// Reads a word such as `<<EOF`, `<<-EOF`, `<<"EOF"` or `3<<EOF`.
fn heredoc_start(word: &str, escape: char) -> Option<HeredocStart> {
    let rest = word.trim_start_matches(|it: char| it.is_ascii_digit()).strip_prefix("<<")?;
    let (strip_tabs, raw) = match rest.strip_prefix('-') {
        Some(raw) => (true, raw),
        None => (false, rest),
    };
    let name = unquote(raw, escape);
    let valid = !name.is_empty() && !raw.contains(['<', '>', '|', '&', ';', '(', ')']);
    valid.then(|| HeredocStart { expand: name == raw, name, strip_tabs })
}

/// Whether a word starts a here-document.
pub(crate) fn is_heredoc(word: &str, escape: char) -> bool {
    heredoc_start(word, escape).is_some()
}
