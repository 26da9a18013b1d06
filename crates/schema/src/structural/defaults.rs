//! Validates that defaults are values of the fields they are for.

use std::ops::ControlFlow;

use gantry_cel::Budget;
use serde_json::{Map, Value, json};

use super::invalid_value;
use crate::compile::compile_node;
use crate::expression::Rules;
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::props::Props;
use crate::prune::prune_part;
use crate::validate::{validate_embedded_part, validate_embedded_resource, validate_part};
use crate::walk::has_rules;

/// The faults in the defaults of a structural schema.
pub(super) fn field_errors(props: Props<'_>, field: &str) -> Vec<FieldError> {
    let mut check = DefaultsChecker { errors: Vec::new(), budget: Budget::default() };
    // A default that uses up what rules may cost is the last one that is looked at.
    let _ = check.node(props, field, &ParentContext::Object { is_root: true });
    check.errors
}

/// What is around a node.
#[derive(Clone)]
enum ParentContext {
    /// The node is an object, or a part of one that is not its metadata.
    Object { is_root: bool },
    /// The node is in the metadata of an object, this far in.
    Metadata(Vec<Step>),
}

#[derive(Clone)]
enum Step {
    Field(String),
    Item,
}

impl ParentContext {
    fn child(&self, step: Step) -> Self {
        match self {
            Self::Object { .. } => Self::Object { is_root: false },
            Self::Metadata(steps) => Self::Metadata(steps.iter().cloned().chain([step]).collect()),
        }
    }
}

struct DefaultsChecker {
    errors: Vec<FieldError>,
    /// What the rules about all defaults may still cost.
    budget: Budget,
}

impl DefaultsChecker {
    fn node(&mut self, props: Props<'_>, field: &str, around: &ParentContext) -> ControlFlow<()> {
        let is_root = matches!(around, ParentContext::Object { is_root: true });
        let is_resource = is_root || props.is_embedded();
        let around = if is_resource { &ParentContext::Object { is_root } } else { around };
        if let Some(default) = props.default_value() {
            self.value(props, default, &format!("{field}.default"), around)?;
        }
        if let Some(item) = props.item() {
            self.node(item, &format!("{field}.items"), &around.child(Step::Item))?;
        }
        for (name, schema) in props.properties() {
            let around = match name {
                "metadata" | "apiVersion" | "kind" if is_resource => {
                    ParentContext::Metadata(vec![Step::Field(name.to_owned())])
                }
                _ => around.child(Step::Field(name.to_owned())),
            };
            self.node(schema, &format!("{field}.properties[{name}]"), &around)?;
        }
        ControlFlow::Continue(())
    }

    fn value(
        &mut self,
        props: Props<'_>,
        default: &Value,
        field: &str,
        around: &ParentContext,
    ) -> ControlFlow<()> {
        // Patterns were looked at with the structure, so that this does not fail.
        let Ok(schema) = compile_node(props, false) else { return ControlFlow::Continue(()) };
        let mut found = match around {
            ParentContext::Metadata(steps) => in_metadata(default, steps, field),
            ParentContext::Object { .. } => {
                let mut pruned = default.clone();
                if prune_part(&schema, &mut pruned) {
                    let detail = "must not have unknown fields";
                    self.errors.push(invalid_value(field.to_owned(), default, detail));
                }
                validate_embedded_part(&schema, default, field)
            }
        };
        if found.is_empty() {
            found = validate_part(&schema, schema.root(), default, None, field);
        }
        if found.is_empty() && has_rules(&schema) {
            let is_object = matches!(around, ParentContext::Object { is_root: true });
            let rules = Rules::compile_part(&schema, is_object);
            return rules.evaluate_default(
                &schema,
                default,
                field,
                &mut self.budget,
                &mut self.errors,
            );
        }
        self.errors.append(&mut found);
        ControlFlow::Continue(())
    }
}

/// Checks a default inside metadata by the object that it would make.
fn in_metadata(default: &Value, steps: &[Step], field: &str) -> Vec<FieldError> {
    let object = steps.iter().rev().fold(default.clone(), |value, step| match step {
        Step::Field(name) => Map::from_iter([(name.clone(), value)]).into(),
        Step::Item => json!([value]),
    });
    let mut object = object.as_object().cloned().unwrap_or_default();
    for (name, value) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
        object.entry(name).or_insert_with(|| value.into());
    }
    let mut wrong = Vec::new();
    validate_embedded_resource(&object, "", &mut wrong);
    let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let text = match texts.as_slice() {
        [] => return Vec::new(),
        [text] => text.clone(),
        texts => format!("[{}]", texts.join(", ")),
    };
    let message =
        format!("Invalid value: {}: must result in valid metadata: {text}", go::print(default));
    vec![FieldError::new(field, FieldErrorReason::Invalid, message)]
}
