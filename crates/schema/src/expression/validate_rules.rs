//! Validates the rules of a definition.

use gantry_cel::cost::{ESTIMATED_COST_LIMIT, ESTIMATED_CRD_COST_LIMIT};
use serde_json::Value;

use super::compiled::{ChildStep, CompiledRule, children};
use super::types::Types;
use crate::checks::{Checks, Rule};
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::tree::{ListType, NodeId, Schema, Shape};
use crate::walk::has_rules;

/// The largest request: no value occurs more often than it fits in there.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// What a rule may cost by its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleCost {
    /// No more than the limit.
    Limited,
    /// What it was accepted with.
    Accepted,
}

/// The faults in the rules of a schema that stands at `field`. Nodes with other faults in them are
/// left out: their types may be wrong too.
pub(crate) fn rule_errors(
    schema: &Schema,
    field: &str,
    others: &[FieldError],
    cost: RuleCost,
) -> Vec<FieldError> {
    if !has_rules(schema) {
        return Vec::new();
    }
    let mut types = Types::new(schema);
    types.of(schema.root(), true, "self");
    let mut check = RuleChecker {
        schema,
        other_errors: others,
        cost,
        types,
        errors: Vec::new(),
        total: TotalCost::default(),
    };
    check.node(
        schema.root(),
        field,
        NodeContext { max_occurrences: Some(1), ..NodeContext::default() },
    );
    let RuleChecker { errors: mut faults, total, .. } = check;
    total.report(field, &mut faults);
    faults
}

struct RuleChecker<'schema> {
    schema: &'schema Schema,
    other_errors: &'schema [FieldError],
    cost: RuleCost,
    types: Types<'schema>,
    errors: Vec<FieldError>,
    total: TotalCost,
}

/// Where a node stands.
#[derive(Clone, Copy, Default)]
struct NodeContext<'up> {
    /// How often its value can occur, as far as limits of lists and maps around it say.
    max_occurrences: Option<u64>,
    /// The outermost list around it whose elements have no identity.
    uncorrelatable: Option<&'up str>,
    /// Whether there are rules around it.
    in_scope: bool,
    /// Whether the types of what is around it, in that scope, are unknown.
    unknown: bool,
}

impl RuleChecker<'_> {
    fn node(&mut self, id: NodeId, field: &str, place: NodeContext<'_>) {
        let schema = self.schema;
        let Some(checks) = schema.checks(id).filter(|checks| checks.has_rules) else { return };
        let in_scope = place.in_scope || !checks.rules.is_empty();
        let is_untyped = self.types.of(id, false, "self").is_none();
        let most = place.max_occurrences.zip(max_children(checks, &schema.node(id).shape));
        let is_uncorrelatable = match &schema.node(id).shape {
            Shape::List { list_type: ListType::Atomic | ListType::Set, .. } => true,
            Shape::List { list_type: ListType::Map(_), .. }
            | Shape::Map { .. }
            | Shape::Struct { .. }
            | Shape::Scalar(_)
            | Shape::Any => false,
        };
        let inside = NodeContext {
            max_occurrences: most.map(|(around, here)| around.saturating_mul(here)),
            uncorrelatable: place.uncorrelatable.or_else(|| is_uncorrelatable.then_some(field)),
            in_scope,
            unknown: place.unknown || (in_scope && is_untyped),
        };
        for (way, part) in children(schema, id) {
            let field = match way {
                ChildStep::Field(name) => format!("{field}.properties[{name}]"),
                ChildStep::Values => format!("{field}.additionalProperties"),
                ChildStep::Items => format!("{field}.items"),
            };
            self.node(part, &field, inside);
        }
        // A fault further in is named by a longer path.
        if !checks.rules.is_empty()
            && !self.other_errors.iter().any(|it| it.field.starts_with(field))
        {
            self.rules(id, checks, &format!("{field}.x-kubernetes-validations"), place);
        }
    }

    fn rules(&mut self, id: NodeId, checks: &Checks, field: &str, place: NodeContext<'_>) {
        let ty = self.types.of(id, false, "self").filter(|_| !place.unknown);
        let Some(ty) = ty else {
            let detail = "internal error: failed to construct type information for \
                          x-kubernetes-validations rules: unable to convert structural schema to \
                          CEL declarations";
            self.errors.push(FieldError::internal(field, detail));
            return;
        };
        let most = place
            .max_occurrences
            .unwrap_or_else(|| MAX_REQUEST_BYTES / ty.min_serialized().saturating_add(1));
        for (index, rule) in checks.rules.iter().enumerate() {
            let compiled = CompiledRule::new(rule, &ty);
            self.rule(rule, &compiled, &format!("{field}[{index}]"), most, place);
        }
    }

    fn rule(
        &mut self,
        rule: &Rule,
        compiled: &CompiledRule,
        field: &str,
        most: u64,
        place: NodeContext<'_>,
    ) {
        let rule_field = format!("{field}.rule");
        let message_field = format!("{field}.messageExpression");
        match &compiled.program {
            Ok(Some(program)) => {
                let cost = program.estimate().saturating_mul(most);
                self.estimated(&rule_field, "estimated rule cost", cost);
            }
            Ok(None) => {}
            Err(why) => self.errors.push(invalid(&rule_field, &dump(rule), why)),
        }
        match &compiled.message {
            Some(Ok(program)) => {
                let name = "estimated messageExpression cost";
                self.estimated(&message_field, name, program.estimate());
            }
            Some(Err(why)) => self.errors.push(invalid(&message_field, &dump(rule), why)),
            None => {}
        }
        match (compiled.uses_old_self, place.uncorrelatable, rule.optional_old_self) {
            (true, Some(within), _) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {within}"
                );
                self.errors.push(invalid(&rule_field, &go::quote(&rule.rule), &detail));
            }
            (false, _, Some(flag)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                let field = format!("{field}.optionalOldSelf");
                self.errors.push(invalid(&field, &flag.to_string(), detail));
            }
            (true, None, _) | (false, _, None) => {}
        }
    }

    fn estimated(&mut self, field: &str, name: &str, cost: u64) {
        if self.cost == RuleCost::Limited && cost > ESTIMATED_COST_LIMIT {
            let detail = exceeded(name, cost, ESTIMATED_COST_LIMIT);
            self.errors.push(FieldError::forbidden(field, &detail));
        }
        self.total.add(field, cost);
    }
}

/// How many of its parts a value can have; none if nothing limits them.
fn max_children(checks: &Checks, shape: &Shape) -> Option<u64> {
    let limit = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
    match shape {
        Shape::List { .. } => limit(checks.max_items),
        Shape::Map { .. } => limit(checks.max_properties),
        Shape::Struct { .. } if checks.additional.is_some() => limit(checks.max_properties),
        Shape::Struct { .. } | Shape::Scalar(_) | Shape::Any => Some(1),
    }
}

/// What all rules together cost.
#[derive(Default)]
struct TotalCost {
    cost: u64,
    /// Those that cost most, in this order.
    costliest: Vec<(u64, String)>,
}

/// How many of the most expensive rules are reported.
const MAX_REPORTED_RULES: usize = 4;

impl TotalCost {
    fn add(&mut self, field: &str, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        if cost >= ESTIMATED_CRD_COST_LIMIT / 100 {
            let place = self.costliest.partition_point(|(other, _)| *other >= cost);
            self.costliest.insert(place, (cost, field.to_owned()));
            self.costliest.truncate(MAX_REPORTED_RULES);
        }
    }

    fn report(self, field: &str, faults: &mut Vec<FieldError>) {
        if self.cost <= ESTIMATED_CRD_COST_LIMIT {
            return;
        }
        for (_, field) in self.costliest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire \
                          OpenAPIv3 schema";
            faults.push(FieldError::forbidden(field, detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = exceeded(name, self.cost, ESTIMATED_CRD_COST_LIMIT);
        faults.push(FieldError::forbidden(field, &detail));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor is told with few digits")]
fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding \
         maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

fn invalid(field: &str, shown: &str, detail: &str) -> FieldError {
    FieldError::new(field, FieldErrorReason::Invalid, format!("Invalid value: {shown}: {detail}"))
}

/// A rule as upstream shows it.
fn dump(rule: &Rule) -> String {
    let optional = |text: Option<&str>| go::json(&text.map_or(Value::Null, Value::from));
    let text = |text: Option<&str>| go::json(&Value::from(text.unwrap_or_default()));
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text(Some(&rule.rule)),
        text(rule.message.as_deref()),
        text(rule.message_expression.as_deref()),
        optional(rule.reason.as_deref()),
        text(rule.field_path.as_deref()),
        go::json(&rule.optional_old_self.map_or(Value::Null, Value::from)),
    )
}
