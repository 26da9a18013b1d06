//! Evaluates rules on an object.

use std::ops::ControlFlow;

use gantry_cel::cost::PER_CALL_LIMIT;
use gantry_cel::{Binding, Budget, EvalError, EvaluatedValue, Program};
use serde_json::Value;

use super::compiled::{CompiledRule, NodeRules, Rules};
use crate::checks::Rule;
use crate::field_error::FieldError;
use crate::tree::Schema;
use crate::validate::{has_blocking_errors, rules_blocked_error};
use crate::walk::{self, RuleSite};

/// The most bytes of a message that was made by an expression.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// What rules said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleResults {
    /// What is held against the object.
    pub errors: Vec<FieldError>,
    /// Errors that existed before in an unchanged value: reported to the writer, and accepted.
    pub warnings: Vec<String>,
}

impl Rules {
    /// Asks all rules about an object, and about its change if there is an `old` one.
    ///
    /// Rules that mention `oldSelf` are asked only where an old value is known, unless they have
    /// `optionalOldSelf`. The cost of all of them together is bounded; where the bound is reached,
    /// that is a fault and nothing more is asked.
    ///
    /// The object must have the types of its schema; see
    /// [`Self::evaluate_unless_blocked`].
    #[must_use]
    pub fn evaluate(&self, schema: &Schema, object: &Value, old: Option<&Value>) -> RuleResults {
        let mut run = RuleEvaluation::new(Budget::default());
        if !self.is_empty() {
            // Nothing is left to do if the budget is used up.
            let _ = run.sites(self, schema, &walk::rule_sites(schema, object, old));
        }
        run.results
    }

    /// Asks all rules about an object of which `faults` are known, and adds to them; answers the
    /// warnings. Faults in types and sizes keep rules from being asked, which is one more fault.
    #[must_use]
    pub fn evaluate_unless_blocked(
        &self,
        schema: &Schema,
        object: &Value,
        old: Option<&Value>,
        faults: &mut Vec<FieldError>,
    ) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        if has_blocking_errors(faults) {
            faults.push(rules_blocked_error());
            return Vec::new();
        }
        let mut asked = self.evaluate(schema, object, old);
        faults.append(&mut asked.errors);
        asked.warnings
    }

    /// Asks all rules about a default in the `field`: as one that stays and, if that is fine, as
    /// one that is new. Breaks off if that uses up the budget.
    pub(crate) fn evaluate_default(
        &self,
        schema: &Schema,
        default: &Value,
        field: &str,
        budget: &mut Budget,
        faults: &mut Vec<FieldError>,
    ) -> ControlFlow<()> {
        let before = budget.clone();
        let mut flow = ControlFlow::Continue(());
        for old in [Some(default), None] {
            let mut run = RuleEvaluation::new(before.clone());
            let sites = walk::rule_sites_of_part(schema, default, old, field);
            let this = run.sites(self, schema, &sites);
            if run.budget.remaining() < budget.remaining() {
                *budget = run.budget;
            }
            if this.is_break() {
                flow = this;
            }
            let is_fine = run.results.errors.is_empty();
            faults.append(&mut run.results.errors);
            if !is_fine {
                break;
            }
        }
        flow
    }
}

struct RuleEvaluation {
    results: RuleResults,
    budget: Budget,
}

/// What evaluation came to, apart from an answer.
enum EvaluationFailure {
    /// All that may be used for the object is used.
    OutOfBudget,
    /// All that may be used for one expression is used.
    TooCostly(EvalError),
    /// There is no answer.
    Error(EvalError),
}

impl RuleEvaluation {
    fn new(budget: Budget) -> Self {
        Self { results: RuleResults::default(), budget }
    }

    fn sites(&mut self, rules: &Rules, schema: &Schema, sites: &[RuleSite<'_>]) -> ControlFlow<()> {
        for site in sites {
            if let Some(node) = rules.nodes.get(&site.node) {
                self.site(node, schema, site)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn site(&mut self, node: &NodeRules, schema: &Schema, site: &RuleSite<'_>) -> ControlFlow<()> {
        if self.budget.remaining() == 0 {
            return self.out_of_budget(node, site);
        }
        let knows_old = node.rules.iter().any(|compiled| compiled.uses_old_self);
        let old = site.old.filter(|_| knows_old);
        for (rule, compiled) in site.rules.iter().zip(&node.rules) {
            let program = match &compiled.program {
                Ok(Some(program)) => program,
                Ok(None) => continue,
                Err(why) => {
                    self.push_error(node, site, &format!("rule compile error: {why}"));
                    continue;
                }
            };
            let is_optional = rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !is_optional {
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
            let shown = rule_text(rule);
            match self.evaluate(program, &bindings) {
                Ok(EvaluatedValue::Bool(true)) => {}
                Ok(
                    EvaluatedValue::Bool(false)
                    | EvaluatedValue::String(_)
                    | EvaluatedValue::Other(_),
                ) => {
                    self.rule_violation(node, schema, site, rule, compiled)?;
                }
                Err(EvaluationFailure::OutOfBudget) => return self.out_of_budget(node, site),
                Err(EvaluationFailure::TooCostly(error)) => {
                    let detail = format!(
                        "'{error}': no further validation rules will be run due to call cost \
                         exceeds limit for rule: {shown}"
                    );
                    self.push_error(node, site, &detail);
                    return ControlFlow::Break(());
                }
                Err(EvaluationFailure::Error(error)) => {
                    let text = error.to_string();
                    let detail = if text.starts_with("no such overload") {
                        format!(
                            "'{text}': call arguments did not match a supported operator, function \
                             or macro signature for rule: {shown}"
                        )
                    } else {
                        format!("{text} evaluating rule: {shown}")
                    };
                    self.push_error(node, site, &detail);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn evaluate(
        &mut self,
        program: &Program,
        bindings: &[(&str, Binding<'_>)],
    ) -> Result<EvaluatedValue, EvaluationFailure> {
        let before = self.budget.remaining();
        program.evaluate(bindings, &mut self.budget).map_err(|error| match error {
            EvalError::CostExceeded if before <= PER_CALL_LIMIT => EvaluationFailure::OutOfBudget,
            EvalError::CostExceeded => EvaluationFailure::TooCostly(error),
            EvalError::NoSuchKey(_)
            | EvalError::OutOfBounds(_)
            | EvalError::NoSuchOverload
            | EvalError::NoSuchAttribute(_)
            | EvalError::Failed(_)
            | EvalError::Internal(_) => EvaluationFailure::Error(error),
        })
    }

    /// A rule that does not hold.
    fn rule_violation(
        &mut self,
        node: &NodeRules,
        schema: &Schema,
        site: &RuleSite<'_>,
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
                Ok(message) => error_for_reason(rule, field, &kind, &message.unwrap_or_else(plain)),
                Err(EvaluationFailure::Error(_)) => error_for_reason(rule, field, &kind, &plain()),
                Err(
                    failed @ (EvaluationFailure::OutOfBudget | EvaluationFailure::TooCostly(_)),
                ) => {
                    flow = ControlFlow::Break(());
                    let expression = rule.message_expression.as_deref().unwrap_or_default();
                    FieldError::invalid(field, &kind, &message_failure(&failed, expression))
                }
            },
            Some(Err(_)) | None => error_for_reason(rule, field, &kind, &plain()),
        };
        if !compiled.uses_old_self && site.is_unchanged(schema) {
            self.results.warnings.push(fault.to_string());
        } else {
            self.results.errors.push(fault);
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
        site: &RuleSite<'_>,
    ) -> Result<Option<String>, EvaluationFailure> {
        let mut bindings = vec![("self", Binding::Tree(site.value, &node.ty))];
        let knows_old = node.rules.iter().any(|compiled| compiled.uses_old_self);
        if let Some(old) = site.old.filter(|_| knows_old) {
            bindings.push(("oldSelf", Binding::Tree(old, &node.ty)));
        }
        let answer = self.evaluate(program, &bindings)?;
        let message = answer.as_str().map(str::trim).filter(|message| {
            !message.is_empty() && message.len() <= MAX_MESSAGE_BYTES && !message.contains('\n')
        });
        Ok(message.map(ToOwned::to_owned))
    }

    fn push_error(&mut self, node: &NodeRules, site: &RuleSite<'_>, detail: &str) {
        let fault = FieldError::invalid(site.field.as_str(), &Value::from(node.kind), detail);
        self.results.errors.push(fault);
    }

    fn out_of_budget(&mut self, node: &NodeRules, site: &RuleSite<'_>) -> ControlFlow<()> {
        let detail = "validation failed due to running out of cost budget, no further validation \
                      rules will be run";
        self.push_error(node, site, detail);
        ControlFlow::Break(())
    }
}

/// A fault of the sort that the rule asks for.
fn error_for_reason(rule: &Rule, field: String, kind: &Value, message: &str) -> FieldError {
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, message),
        Some("FieldValueRequired") => FieldError::required(field, message),
        Some("FieldValueDuplicate") => FieldError::duplicate(field, kind),
        Some(_) | None => FieldError::invalid(field, kind, message),
    }
}

/// The message in place of one that was too costly to compute.
fn message_failure(failed: &EvaluationFailure, expression: &str) -> String {
    match failed {
        EvaluationFailure::OutOfBudget => {
            "messageExpression evaluation failed due to running out of cost \
                                budget, no further validation rules will be run"
                .to_owned()
        }
        EvaluationFailure::TooCostly(_) | EvaluationFailure::Error(_) => format!(
            "no further validation rules will be run due to call cost exceeds limit for \
             messageExpression: {}",
            crate::go::quote(expression)
        ),
    }
}

/// A rule as faults of its evaluation tell it.
fn rule_text(rule: &Rule) -> &str {
    rule.message.as_deref().unwrap_or(&rule.rule).trim()
}
