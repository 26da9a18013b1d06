//! Resolves the command of a container: `$(NAME)` is expanded, and a shell with one line is that
//! line's program.

use std::collections::BTreeMap;

use crate::shell::parser;
use crate::view::Container;

/// The command of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program by name; `None` when it is the image's own.
    pub program: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that its line sets before it.
    pub variables: Vec<(String, String)>,
}

/// Resolves the command of a container with these variables.
#[must_use]
pub fn command(container: &Container, variables: &BTreeMap<String, String>) -> Command {
    let known = |name: &str| variables.get(name).map(String::as_str);
    let fill = |words: &[String]| -> Vec<String> {
        words.iter().map(|word| expand(word, known)).collect()
    };
    let (program, args) = (fill(&container.command), fill(&container.args));
    let mut words = program.into_iter().chain(args);
    if container.command.is_empty() {
        return Command { args: words.collect(), ..Command::default() };
    }
    let program = words.next();
    let args: Vec<String> = words.collect();
    let line = program.as_deref().and_then(|shell| shell_line(shell, &args));
    line.and_then(|line| parse_line(line, variables)).unwrap_or(Command {
        program,
        args,
        variables: Vec::new(),
    })
}

/// Returns the line that a shell is given.
fn shell_line<'a>(shell: &str, args: &'a [String]) -> Option<&'a str> {
    let name = shell.rsplit('/').next().unwrap_or(shell);
    if !matches!(name, "sh" | "bash" | "ash" | "dash") {
        return None;
    }
    let [flags @ .., line] = args else { return None };
    let is_flag = |it: &String| it.len() > 1 && it.starts_with('-') && !it.starts_with("--");
    let given = flags.last().is_some_and(|it| is_flag(it) && it.ends_with('c'));
    (given && flags.iter().all(is_flag)).then_some(line)
}

/// Parses a line with one command, as a shell would. Returns `None` for anything more: that is a
/// script.
fn parse_line(line: &str, variables: &BTreeMap<String, String>) -> Option<Command> {
    let steps = parser::parse(line).ok()?;
    let [step] = steps.as_slice() else { return None };
    let lookup = |name: &str| variables.get(name).map(String::as_str);
    let (variables, fields) = step.expand(lookup).ok()?;
    let mut fields = fields.into_iter().skip_while(|it| it == "exec");
    Some(Command { program: Some(fields.next()?), args: fields.collect(), variables })
}

/// Expands `$(NAME)` as Kubernetes does: `$$` is a dollar sign, and an unknown name stays as it is
/// written.
#[must_use]
pub fn expand<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.chars().next() {
            Some('$') => {
                filled.push('$');
                &after[1..]
            }
            Some('(') => match after.find(')') {
                Some(end) => {
                    let name = &after[1..end];
                    match known(name) {
                        Some(value) => filled.push_str(value),
                        None => filled.extend(["$(", name, ")"]),
                    }
                    &after[end + 1..]
                }
                None => {
                    filled.push_str("$(");
                    &after[1..]
                }
            },
            Some(_) | None => {
                filled.push('$');
                after
            }
        };
    }
    filled.push_str(rest);
    filled
}
