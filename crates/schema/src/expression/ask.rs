//! What rules say about an object.

use std::ops::ControlFlow;

use gantry_cel::cost::PER_EXPRESSION;
use gantry_cel::{Answer, Binding, Budget, EvalError, Program};
use serde_json::Value;

use super::compiled::{CompiledRule, NodeRules, Rules};
use crate::checks::Rule;
use crate::invalid::Invalid;
use crate::tree::Schema;
use crate::validate::{blocked, blocks_rules};
use crate::walk::{self, Site};

/// The most bytes of a message that was made by an expression.
const MESSAGE: usize = 5 * 1024;

/// What rules said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What is held against the object.
    pub faults: Vec<Invalid>,
    /// What was wrong before and has not changed: told to the writer, and accepted.
    pub warnings: Vec<String>,
}

impl Rules {
    /// Asks all rules about an object, and about its change if there is an `old` one.
    ///
    /// Rules that mention `oldSelf` are asked only where an old value is known, unless they have
    /// `optionalOldSelf`. The cost of all of them together is bounded; where the bound is reached,
    /// that is a fault and nothing more is asked.
    ///
    /// The object must have the types of its schema; see [`ask_after`](Self::ask_after).
    #[must_use]
    pub fn ask(&self, schema: &Schema, object: &Value, old: Option<&Value>) -> Asked {
        let mut run = Run::new(Budget::default());
        if !self.is_empty() {
            // Nothing is left to do if the budget is used up.
            let _ = run.sites(self, schema, &walk::rules(schema, object, old));
        }
        run.asked
    }

    /// Asks all rules about an object of which `faults` are known, and adds to them; answers the
    /// warnings. Faults in types and sizes keep rules from being asked, which is one more fault.
    #[must_use]
    pub fn ask_after(
        &self,
        schema: &Schema,
        object: &Value,
        old: Option<&Value>,
        faults: &mut Vec<Invalid>,
    ) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        if blocks_rules(faults) {
            faults.push(blocked());
            return Vec::new();
        }
        let mut asked = self.ask(schema, object, old);
        faults.append(&mut asked.faults);
        asked.warnings
    }

    /// Asks all rules about a default in the `field`: as one that stays and, if that is fine, as one
    /// that is new. Breaks off if that uses up the budget.
    pub(crate) fn ask_default(
        &self,
        schema: &Schema,
        default: &Value,
        field: &str,
        budget: &mut Budget,
        faults: &mut Vec<Invalid>,
    ) -> ControlFlow<()> {
        let before = budget.clone();
        let mut flow = ControlFlow::Continue(());
        for old in [Some(default), None] {
            let mut run = Run::new(before.clone());
            let sites = walk::rules_of_part(schema, default, old, field);
            let this = run.sites(self, schema, &sites);
            if run.budget.remaining() < budget.remaining() {
                *budget = run.budget;
            }
            if this.is_break() {
                flow = this;
            }
            let is_fine = run.asked.faults.is_empty();
            faults.append(&mut run.asked.faults);
            if !is_fine {
                break;
            }
        }
        flow
    }
}

struct Run {
    asked: Asked,
    budget: Budget,
}

/// What evaluation came to, apart from an answer.
enum Failed {
    /// All that may be used for the object is used.
    OutOfBudget,
    /// All that may be used for one expression is used.
    TooCostly(EvalError),
    /// There is no answer.
    NoAnswer(EvalError),
}

impl Run {
    fn new(budget: Budget) -> Self {
        Self { asked: Asked::default(), budget }
    }

    fn sites(&mut self, rules: &Rules, schema: &Schema, sites: &[Site<'_>]) -> ControlFlow<()> {
        for site in sites {
            if let Some(node) = rules.nodes.get(&site.node) {
                self.site(node, schema, site)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn site(&mut self, node: &NodeRules, schema: &Schema, site: &Site<'_>) -> ControlFlow<()> {
        if self.budget.remaining() == 0 {
            return self.out_of_budget(node, site);
        }
        let knows_old = node.rules.iter().any(|compiled| compiled.uses_old);
        let old = site.old.filter(|_| knows_old);
        for (rule, compiled) in site.rules.iter().zip(&node.rules) {
            let program = match &compiled.program {
                Ok(Some(program)) => program,
                Ok(None) => continue,
                Err(why) => {
                    self.fault(node, site, &format!("rule compile error: {why}"));
                    continue;
                }
            };
            let is_optional = rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !is_optional {
                continue;
            }
            let mut bindings = vec![("self", Binding::Tree(site.value, &node.ty))];
            match old {
                _ if is_optional && knows_old => {
                    bindings.push(("oldSelf", Binding::OptionalTree(old, &node.ty)));
                }
                Some(old) => bindings.push(("oldSelf", Binding::Tree(old, &node.ty))),
                None => {}
            }
            let shown = shown(rule);
            match self.evaluate(program, &bindings) {
                Ok(Answer::Bool(true)) => {}
                Ok(Answer::Bool(false) | Answer::String(_) | Answer::Other(_)) => {
                    self.broken(node, schema, site, rule, compiled)?;
                }
                Err(Failed::OutOfBudget) => return self.out_of_budget(node, site),
                Err(Failed::TooCostly(error)) => {
                    let detail = format!(
                        "'{error}': no further validation rules will be run due to call cost \
                         exceeds limit for rule: {shown}"
                    );
                    self.fault(node, site, &detail);
                    return ControlFlow::Break(());
                }
                Err(Failed::NoAnswer(error)) => {
                    let text = error.to_string();
                    let detail = if text.starts_with("no such overload") {
                        format!(
                            "'{text}': call arguments did not match a supported operator, function \
                             or macro signature for rule: {shown}"
                        )
                    } else {
                        format!("{text} evaluating rule: {shown}")
                    };
                    self.fault(node, site, &detail);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn evaluate(
        &mut self,
        program: &Program,
        bindings: &[(&str, Binding<'_>)],
    ) -> Result<Answer, Failed> {
        let before = self.budget.remaining();
        program.evaluate(bindings, &mut self.budget).map_err(|error| match error {
            EvalError::CostExceeded if before <= PER_EXPRESSION => Failed::OutOfBudget,
            EvalError::CostExceeded => Failed::TooCostly(error),
            EvalError::NoSuchKey(_)
            | EvalError::OutOfBounds(_)
            | EvalError::NoSuchOverload
            | EvalError::NoSuchAttribute(_)
            | EvalError::Failed(_)
            | EvalError::Internal(_) => Failed::NoAnswer(error),
        })
    }

    /// A rule that does not hold.
    fn broken(
        &mut self,
        node: &NodeRules,
        schema: &Schema,
        site: &Site<'_>,
        rule: &Rule,
        compiled: &CompiledRule,
    ) -> ControlFlow<()> {
        let field = match (&rule.field, site.field.as_str()) {
            (None, field) => field.to_owned(),
            (Some(inside), "<nil>") => inside.clone(),
            (Some(inside), field) => format!("{field}.{inside}"),
        };
        let mut flow = ControlFlow::Continue(());
        let plain = || match &rule.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.trim()),
        };
        let kind = Value::from(node.kind);
        let fault = match &compiled.message {
            Some(Ok(program)) => match self.message(program, node, site) {
                Ok(message) => reasoned(rule, field, &kind, &message.unwrap_or_else(plain)),
                Err(Failed::NoAnswer(_)) => reasoned(rule, field, &kind, &plain()),
                Err(failed @ (Failed::OutOfBudget | Failed::TooCostly(_))) => {
                    flow = ControlFlow::Break(());
                    let expression = rule.message_expression.as_deref().unwrap_or_default();
                    Invalid::value(field, &kind, &unsaid(&failed, expression))
                }
            },
            Some(Err(_)) | None => reasoned(rule, field, &kind, &plain()),
        };
        if !compiled.uses_old && site.is_unchanged(schema) {
            self.asked.warnings.push(fault.to_string());
        } else {
            self.asked.faults.push(fault);
        }
        flow
    }

    /// The message that an expression makes; none if it cannot be shown.
    ///
    /// `oldSelf` is the old value itself even if it is an optional to the rule, and is known only
    /// if a rule of the node mentions it: as on a server, where the message of such a rule has no
    /// use for it.
    fn message(
        &mut self,
        program: &Program,
        node: &NodeRules,
        site: &Site<'_>,
    ) -> Result<Option<String>, Failed> {
        let mut bindings = vec![("self", Binding::Tree(site.value, &node.ty))];
        let knows_old = node.rules.iter().any(|compiled| compiled.uses_old);
        if let Some(old) = site.old.filter(|_| knows_old) {
            bindings.push(("oldSelf", Binding::Tree(old, &node.ty)));
        }
        let answer = self.evaluate(program, &bindings)?;
        let message = answer.as_str().map(str::trim).filter(|message| {
            !message.is_empty() && message.len() <= MESSAGE && !message.contains('\n')
        });
        Ok(message.map(ToOwned::to_owned))
    }

    fn fault(&mut self, node: &NodeRules, site: &Site<'_>, detail: &str) {
        let fault = Invalid::value(site.field.as_str(), &Value::from(node.kind), detail);
        self.asked.faults.push(fault);
    }

    fn out_of_budget(&mut self, node: &NodeRules, site: &Site<'_>) -> ControlFlow<()> {
        let detail = "validation failed due to running out of cost budget, no further validation \
                      rules will be run";
        self.fault(node, site, detail);
        ControlFlow::Break(())
    }
}

/// A fault of the sort that the rule asks for.
fn reasoned(rule: &Rule, field: String, kind: &Value, message: &str) -> Invalid {
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Invalid::forbidden(field, message),
        Some("FieldValueRequired") => Invalid::required(field, message),
        Some("FieldValueDuplicate") => Invalid::duplicate(field, kind),
        Some(_) | None => Invalid::value(field, kind, message),
    }
}

/// What is told of a message that was too costly to make.
fn unsaid(failed: &Failed, expression: &str) -> String {
    match failed {
        Failed::OutOfBudget => "messageExpression evaluation failed due to running out of cost \
                                budget, no further validation rules will be run"
            .to_owned(),
        Failed::TooCostly(_) | Failed::NoAnswer(_) => format!(
            "no further validation rules will be run due to call cost exceeds limit for \
             messageExpression: {}",
            crate::go::quote(expression)
        ),
    }
}

/// A rule as faults of its evaluation tell it.
fn shown(rule: &Rule) -> &str {
    rule.message.as_deref().unwrap_or(&rule.rule).trim()
}
