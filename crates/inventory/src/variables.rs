//! The variables that Gantry knows: types, defaults and documentation, and the check of values.

use crate::expression::{Evaluation, contains_expression};
use crate::finding::{Finding, suggest};
use crate::inventory::Inventory;
use crate::tree::Assignment;
use crate::value::{Node, Value};

mod connection;
mod shape;
mod table;

pub use connection::{CONNECTION_VARIABLES, ConnectionVariable};
pub(crate) use shape::network;
pub use shape::{Field, Shape};
pub use table::VARIABLES;

/// A variable of Gantry.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// The name.
    pub name: &'static str,
    /// Which values it has.
    pub shape: Shape,
    /// Whether all hosts of a cluster have the same value.
    pub per_cluster: bool,
    /// The default, in words.
    pub default: &'static str,
    /// What it decides.
    pub about: &'static str,
}

/// The prefix of all variables of Gantry.
pub const PREFIX: &str = "gantry_";

/// Returns the variable with this name.
#[must_use]
pub fn variable(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

fn shape_of(name: &str) -> Option<Shape> {
    let connection = || connection::find(name).map(|it| it.shape);
    variable(name).map(|it| it.shape).or_else(connection)
}

/// Checks the names and values of all variables that Gantry knows.
pub(crate) fn check_all(inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for assignment in inventory.assignments() {
        check_assignment(inventory, assignment, &mut findings);
    }
    for (host, _) in inventory.tree.hosts() {
        let variables = inventory.variables(host);
        let evaluation = Evaluation::new(inventory, host, &variables);
        for (name, candidates) in &variables {
            let (Some(shape), Some(winner)) = (shape_of(name), candidates.last()) else {
                continue;
            };
            if !has_expression(winner.value) {
                continue;
            }
            match evaluation.value(winner.value) {
                Ok(value) => shape::check(name, &shape, &value, &mut findings),
                Err(error) => {
                    let width = winner.value.width();
                    findings.push(Finding::error(error.at, width, error.message, error.remedy));
                }
            }
        }
    }
    findings
}

fn check_assignment(inventory: &Inventory, assignment: &Assignment, into: &mut Vec<Finding>) {
    let Assignment { name, at, value } = assignment;
    let width = name.chars().count();
    match shape_of(name) {
        Some(shape) if !has_expression(value) => shape::check(name, &shape, value, into),
        Some(_) => {}
        None if name.starts_with(PREFIX) => {
            let hint = hint(name, PREFIX);
            let remedy = format!("expected a variable of docs/provision.md{hint}");
            into.push(Finding::error(*at, width, format!("unknown variable `{name}`"), remedy));
        }
        None if connection::is_ignored(name) => {}
        None => {
            let hint = hint(name, "ansible_");
            if !hint.is_empty() {
                let message = format!("`{name}` has no effect");
                let remedy = format!("expected the name of a variable{hint}");
                into.push(Finding::warning(*at, width, message, remedy));
            }
        }
    }
    connection::check_secret(inventory, assignment, into);
}

/// Suggests a name with the same prefix, which does not count as similarity.
fn hint(name: &str, prefix: &str) -> String {
    let Some(wrong) = name.strip_prefix(prefix) else { return String::new() };
    let known = VARIABLES.iter().map(|it| it.name);
    let known = known.chain(CONNECTION_VARIABLES.iter().map(|it| it.name));
    let hint = suggest(wrong, known.filter_map(|name| name.strip_prefix(prefix)));
    hint.map(|rest| format!(" (did you mean `{prefix}{rest}`?)")).unwrap_or_default()
}

fn has_expression(node: &Node) -> bool {
    let mut found = false;
    node.each_text(&mut |_, text| found |= contains_expression(text));
    found
}

impl Inventory {
    /// The names of variables of the original that have no effect here.
    #[must_use]
    pub fn ignored_variables(&self) -> std::collections::BTreeSet<&str> {
        let names = self.assignments().map(|it| it.name.as_str());
        names.filter(|it| it.starts_with("ansible_") && connection::find(it).is_none()).collect()
    }

    /// The value of a variable of a host, with its expressions replaced.
    ///
    /// # Errors
    /// An expression stands for nothing.
    pub fn value(
        &self,
        host: crate::tree::HostId,
        name: &str,
    ) -> Result<Option<Node>, crate::expression::EvaluationError> {
        let variables = self.variables(host);
        let Some(winner) = variables.get(name).and_then(|candidates| candidates.last()) else {
            return Ok(None);
        };
        let value = Evaluation::new(self, host, &variables).value(winner.value)?;
        Ok(Some(value).filter(|value| value.value != Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn prv_3_every_variable_is_documented() {
        let names: BTreeSet<&str> = VARIABLES.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), VARIABLES.len(), "each name once");
        for variable in VARIABLES {
            assert!(variable.name.starts_with(PREFIX), "{}", variable.name);
            assert!(variable.about.ends_with('.'), "{}", variable.name);
            assert!(!variable.default.is_empty(), "{}", variable.name);
        }
    }

    #[test]
    fn prv_3_the_page_has_every_variable() {
        let page = include_str!("../../../docs/provision.md");
        let row = |variable: &Variable| {
            let Variable { name, shape, per_cluster, default, about } = variable;
            let scope = if *per_cluster { "cluster" } else { "host" };
            format!("| `{name}` | {shape} | {scope} | {default} | {about} |\n")
        };
        let connection = |variable: &ConnectionVariable| {
            let ConnectionVariable { name, shape, default, about } = variable;
            format!("| `{name}` | {shape} | {default} | {about} |\n")
        };
        let rows = CONNECTION_VARIABLES.iter().map(connection).chain(VARIABLES.iter().map(row));
        let missing: String = rows.filter(|row| !page.contains(row)).collect();
        assert!(missing.is_empty(), "docs/provision.md has not these rows:\n{missing}");
    }
}
