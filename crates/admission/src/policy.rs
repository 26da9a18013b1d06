//! Policies and bindings, decoded and compiled once.

use gantry_cel::{Environment, Type};
use gantry_kinds::admission_policies::{self, ExpressionKind};
use gantry_schema::FieldError;
use serde_json::Value as Json;

use crate::environment::{OptionalVariables, compile, environment};
use crate::match_conditions::MatchConditions;
use crate::matching::Criteria;
use crate::request::ParamKind;
use crate::scope::{Expression, Variable};

/// A policy, ready to be asked.
///
/// An expression that does not compile is kept, and fails when it is asked: policies are checked
/// when they are written, so that this happens only to one that was written by another version.
#[derive(Debug)]
pub struct Policy {
    pub(crate) name: String,
    /// Whether what cannot be decided is refused.
    pub(crate) fails_closed: bool,
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) criteria: Option<Criteria>,
    pub(crate) conditions: MatchConditions,
    pub(crate) variables: Vec<Variable>,
    pub(crate) validations: Vec<Validation>,
    pub(crate) annotations: Vec<Annotation>,
}

#[derive(Debug)]
pub(crate) struct Validation {
    pub(crate) expression: Expression,
    pub(crate) message: String,
    pub(crate) message_expression: Option<Expression>,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) expression: Expression,
}

fn text<'a>(tree: &'a Json, field: &str) -> &'a str {
    tree[field].as_str().unwrap_or_default()
}

fn items<'a>(tree: &'a Json, field: &str) -> impl Iterator<Item = &'a Json> {
    tree[field].as_array().into_iter().flatten()
}

fn expression(environment: &Environment, role: ExpressionKind<'_>, text: &str) -> Expression {
    Expression { text: text.to_owned(), program: compile(environment, role, text) }
}

impl Policy {
    /// Decodes a policy and compiles its expressions.
    #[must_use]
    pub fn compile(object: &Json) -> Self {
        let spec = &object["spec"];
        let param_kind = (!spec["paramKind"].is_null()).then(|| ParamKind {
            api_version: text(&spec["paramKind"], "apiVersion").to_owned(),
            kind: text(&spec["paramKind"], "kind").to_owned(),
        });
        let params = param_kind.is_some();
        let mut types: Vec<(String, Type)> = Vec::new();
        let mut variables = Vec::new();
        for variable in items(spec, "variables") {
            let name = text(variable, "name").to_owned();
            let environment =
                environment(OptionalVariables { params, authorizer: true }, Some(&types));
            let written = text(variable, "expression");
            let expression = expression(&environment, ExpressionKind::Variable(&name), written);
            let ty = expression.program.as_ref().map_or(Type::Dyn, |it| it.result_type().clone());
            types.push((name.clone(), ty));
            variables.push(Variable { name, expression });
        }
        let full = environment(OptionalVariables { params, authorizer: true }, Some(&types));
        let quiet = environment(OptionalVariables { params, authorizer: false }, Some(&types));
        let validations = items(spec, "validations").map(|rule| {
            let worded = text(rule, "messageExpression");
            Validation {
                expression: expression(&full, ExpressionKind::Validation, text(rule, "expression")),
                message: text(rule, "message").trim().to_owned(),
                message_expression: (!worded.is_empty())
                    .then(|| expression(&quiet, ExpressionKind::Message, worded)),
                reason: text(rule, "reason").to_owned(),
            }
        });
        let annotations = items(spec, "auditAnnotations").map(|annotation| Annotation {
            key: text(annotation, "key").to_owned(),
            expression: expression(
                &full,
                ExpressionKind::Annotation,
                text(annotation, "valueExpression"),
            ),
        });
        let constraints = &spec["matchConstraints"];
        Self {
            name: text(&object["metadata"], "name").to_owned(),
            fails_closed: spec["failurePolicy"] != "Ignore",
            param_kind,
            criteria: (!constraints.is_null()).then(|| Criteria::of_policy(constraints)),
            conditions: MatchConditions::read(&spec["matchConditions"], &full),
            variables,
            validations: validations.collect(),
            annotations: annotations.collect(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What a binding does about an objection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// Which parameters a binding gives to its policy.
#[derive(Clone, Debug)]
pub(crate) struct ParamRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) selector: Json,
    /// Whether having none is an objection.
    pub(crate) deny_if_not_found: bool,
}

/// A binding of a policy.
#[derive(Debug)]
pub struct Binding {
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) param_ref: Option<ParamRef>,
    pub(crate) criteria: Option<Criteria>,
    pub(crate) actions: Vec<Action>,
}

impl Binding {
    /// Reads a binding.
    #[must_use]
    pub fn read(object: &Json) -> Self {
        let spec = &object["spec"];
        let reference = &spec["paramRef"];
        let param_ref = (!reference.is_null()).then(|| ParamRef {
            name: text(reference, "name").to_owned(),
            namespace: text(reference, "namespace").to_owned(),
            selector: reference["selector"].clone(),
            deny_if_not_found: reference["parameterNotFoundAction"] == "Deny",
        });
        let actions =
            items(spec, "validationActions").filter_map(|action| match action.as_str()? {
                "Deny" => Some(Action::Deny),
                "Warn" => Some(Action::Warn),
                "Audit" => Some(Action::Audit),
                _ => None,
            });
        let resources = &spec["matchResources"];
        Self {
            name: text(&object["metadata"], "name").to_owned(),
            policy: text(spec, "policyName").to_owned(),
            param_ref,
            criteria: (!resources.is_null()).then(|| Criteria::of_policy(resources)),
            actions: actions.collect(),
        }
    }

    /// The name of the policy it binds.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }
}

/// What is wrong with a policy, in the words and order of a real server; `old` is what it replaces.
#[must_use]
pub fn validate_policy(object: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let params = !spec["paramKind"].is_null();
    let composes = items(spec, "variables").next().is_some();
    let mut types: Vec<(String, Type)> = Vec::new();
    admission_policies::validate_policy(object, old, &mut |role, source| {
        let authorizer = role != ExpressionKind::Message;
        // Conditions are checked as if there were no variables, and yet may use them when they run.
        let variables = (composes && role != ExpressionKind::Condition).then_some(types.as_slice());
        let environment = environment(OptionalVariables { params, authorizer }, variables);
        let compiled = compile(&environment, role, source);
        if let ExpressionKind::Variable(name) = role {
            let ty = compiled.as_ref().map_or(Type::Dyn, |it| it.result_type().clone());
            types.push((name.to_owned(), ty));
        }
        compiled.err()
    })
}
