//! Expressions in values: `{{ … }}` in five forms, and nothing else.
//!
//! A variable, `inventory_hostname`, `groups['g']`, `lookup('env', 'X')`, each perhaps followed by
//! `| default(x)`. A value that is one expression alone keeps the type of what it stands for.

use std::cell::Cell;

use crate::finding::{Files, Finding, Place};
use crate::inventory::{HostVariables, Inventory};
use crate::tree::HostId;
use crate::value::{Key, Node, Value};

mod parse;

use parse::{Expression, Part, Term};
pub(crate) use parse::{ExpressionError, contains_expression};

/// Checks the form of every expression of an inventory.
pub(crate) fn check_all(inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for assignment in inventory.assignments() {
        assignment.value.each_text(&mut |node, text| {
            if let Err(error) = parse::parse(text) {
                findings.push(refuse(&inventory.files, node.at, text, &error));
            }
        });
    }
    findings
}

fn refuse(files: &Files, at: Place, text: &str, error: &ExpressionError) -> Finding {
    let place = locate(files, at, text, error.offset);
    Finding::error(place, error.width, error.message.clone(), FORMS)
}

const FORMS: &str = "expected a variable, inventory_hostname, groups['…'] or lookup('env', '…'), \
                     with or without `| default(…)`";

/// The place of a character of a value: the text from an opening brace on stands in the file as it
/// does in the value, but for escapes.
fn locate(files: &Files, at: Place, text: &str, offset: usize) -> Place {
    let before: String = text.chars().take(offset + 2).collect();
    let Some(opening) = ["{{", "{%", "{#"].iter().filter_map(|it| before.rfind(it)).max() else {
        return at;
    };
    let braces = &before[opening..opening + 2];
    let index = before[..opening].matches(braces).count();
    let inside = offset.saturating_sub(before[..opening].chars().count());
    let mut remaining = index;
    let file = at.file;
    let mut line = at.at.line;
    let mut skip = at.at.column.saturating_sub(1) as usize;
    while let Some(source) = files.line(at.file, line) {
        let start = source.char_indices().nth(skip).map_or(source.len(), |(byte, _)| byte);
        for (byte, _) in source[start..].match_indices(braces) {
            if remaining == 0 {
                let column = source[..start + byte].chars().count() + inside + 1;
                let column = u32::try_from(column).unwrap_or(u32::MAX);
                let at = gantry_yaml::node::Position { line, column };
                return Place { file, at };
            }
            remaining -= 1;
        }
        line += 1;
        skip = 0;
    }
    at
}

/// What an expression of a host stands for could not be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationError {
    /// The value with the expression.
    pub at: Place,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Evaluates the expressions in values of a host.
pub(crate) struct Evaluation<'i> {
    pub(crate) inventory: &'i Inventory,
    pub(crate) host: HostId,
    pub(crate) variables: &'i HostVariables<'i>,
    /// How many expressions were evaluated: variables that name one another twice double it.
    steps: Cell<usize>,
}

/// Levels of variables that stand for one another.
const MAX_REFERENCES: usize = 50;
/// Expressions that one value may need.
const MAX_STEPS: usize = 10_000;
/// Bytes of one value.
const MAX_VALUE_BYTES: usize = 1 << 20;

type Evaluated<T> = Result<T, EvaluationError>;

impl<'i> Evaluation<'i> {
    pub(crate) fn new(
        inventory: &'i Inventory,
        host: HostId,
        variables: &'i HostVariables<'i>,
    ) -> Self {
        Self { inventory, host, variables, steps: Cell::new(0) }
    }

    /// Replaces every expression below a value.
    pub(crate) fn value(&self, node: &Node) -> Evaluated<Node> {
        self.steps.set(0);
        self.node(node, &mut Vec::new())
    }

    fn node(&self, node: &Node, names: &mut Vec<String>) -> Evaluated<Node> {
        let value = match &node.value {
            Value::Text(text) => self.text(node, text, names)?,
            Value::List(items) => {
                let items = items.iter().map(|item| self.node(item, names));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => {
                let entry = |(key, value): &(Key, Node)| {
                    self.node(value, &mut names.clone()).map(|value| (key.clone(), value))
                };
                Value::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Vault(_) => node.value.clone(),
        };
        Ok(Node { at: node.at, value })
    }

    fn text(&self, node: &Node, text: &str, names: &mut Vec<String>) -> Evaluated<Value> {
        let error = |message: String, remedy: &str| EvaluationError {
            at: node.at,
            message,
            remedy: remedy.to_owned(),
        };
        let parts = parse::parse(text).map_err(|it| error(it.message, FORMS))?;
        if let [Part::Expression(expression)] = parts.as_slice() {
            return self.expression(node, expression, names);
        }
        let mut whole = String::new();
        for part in &parts {
            match part {
                Part::Text(text) => whole.push_str(text),
                Part::Expression(expression) => match self.expression(node, expression, names)? {
                    Value::Null => {}
                    Value::Bool(true) => whole.push_str("True"),
                    Value::Bool(false) => whole.push_str("False"),
                    Value::Number(number) => whole += &number.to_string(),
                    Value::Text(text) => whole += &text,
                    Value::Vault(_) | Value::List(_) | Value::Map(_) => {
                        let message = "a list, a map or a secret inside of a text".to_owned();
                        return Err(error(message, "expected the expression alone"));
                    }
                },
            }
            if whole.len() > MAX_VALUE_BYTES {
                return Err(error("a value of more than 1 MiB".to_owned(), "shorten it"));
            }
        }
        Ok(Value::Text(whole))
    }

    fn expression(
        &self,
        node: &Node,
        expression: &Expression,
        names: &mut Vec<String>,
    ) -> Evaluated<Value> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS {
            return Err(EvaluationError {
                at: node.at,
                message: format!("a value needs more than {MAX_STEPS} expressions"),
                remedy: "write the value itself".to_owned(),
            });
        }
        let value = self.term(node, &expression.term, names)?;
        let value = match (value, &expression.default) {
            (Some(value), _) => Some(value),
            (None, Some(default)) => self.term(node, default, names)?,
            (None, None) => None,
        };
        value.ok_or_else(|| {
            let missing = expression.default.as_ref().unwrap_or(&expression.term);
            let host = &self.inventory.tree.host(self.host).name;
            EvaluationError {
                at: node.at,
                message: format!("{missing} is not set for host `{host}`"),
                remedy: "set it, or write `| default(…)`".to_owned(),
            }
        })
    }

    /// Returns nothing for a variable or a group that does not exist.
    fn term(&self, node: &Node, term: &Term, names: &mut Vec<String>) -> Evaluated<Option<Value>> {
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        Ok(match term {
            Term::Literal(value) => Some(value.clone()),
            Term::Environment(name) => text(self.inventory.environment(name).unwrap_or_default()),
            Term::Group(name) => self.inventory.tree.group_named(name).map(|group| {
                let hosts = self.inventory.tree.members(group).into_iter();
                let name = |host| Value::Text(self.inventory.tree.host(host).name.clone());
                Value::List(hosts.map(|it| Node { at: node.at, value: name(it) }).collect())
            }),
            Term::Variable(name) if name == "inventory_hostname" => {
                text(&self.inventory.tree.host(self.host).name)
            }
            Term::Variable(name) => {
                let Some(value) =
                    self.variables.get(name.as_str()).and_then(|candidates| candidates.last())
                else {
                    return Ok(None);
                };
                if names.contains(name) || names.len() >= MAX_REFERENCES {
                    names.push(name.clone());
                    return Err(EvaluationError {
                        at: node.at,
                        message: format!("variables stand for one another: {}", names.join(" > ")),
                        remedy: "give one of them a value".to_owned(),
                    });
                }
                names.push(name.clone());
                let value = self.node(value.value, names)?.value;
                names.pop();
                Some(value)
            }
        })
    }
}
