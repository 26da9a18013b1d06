//! The compiled rules of a schema.

use std::collections::HashMap;

use gantry_cel::{CompileError, Environment, Limits, Program, Type};

use super::types::Types;
use crate::checks::{Kind, Rule};
use crate::tree::{NodeId, Schema, Shape};

/// How large a rule may be. That of a definition is bounded by the request it comes in and by what
/// a parser takes.
const LIMITS: Limits = Limits { max_bytes: 100_000, max_depth: 250 };

/// The rules of a schema, compiled once.
///
/// A rule that does not compile is kept, and fails every object it is evaluated on: definitions are
/// validated when they are written, so that this happens only to one that was written by another
/// server.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) nodes: HashMap<NodeId, NodeRules>,
    has_rules: bool,
}

/// The rules of one node.
#[derive(Debug)]
pub(super) struct NodeRules {
    /// What `self` and `oldSelf` are.
    pub(super) ty: Type,
    /// The text that errors show instead of the value.
    pub(super) kind: &'static str,
    /// In the order they were written.
    pub(super) rules: Vec<CompiledRule>,
}

/// A rule and the programs of its expressions.
#[derive(Debug)]
pub(super) struct CompiledRule {
    /// The rule; none if it is empty, or why it did not compile.
    pub(super) program: Result<Option<Program>, String>,
    /// What makes the message, or why it did not compile; none if there is none.
    pub(super) message: Option<Result<Program, String>>,
    /// Whether the rule mentions `oldSelf`. That a message does has no meaning.
    pub(super) uses_old_self: bool,
}

impl Rules {
    /// Compiles the rules of a schema.
    #[must_use]
    pub fn compile(schema: &Schema) -> Self {
        Self::compile_part(schema, true)
    }

    /// Compiles the rules of the schema of a part; with `is_object` it is a whole object.
    pub(crate) fn compile_part(schema: &Schema, is_object: bool) -> Self {
        let mut rules = Self { nodes: HashMap::new(), has_rules: crate::walk::has_rules(schema) };
        if rules.has_rules {
            // Types are made from the outside in, so that they have the names of all that is
            // around.
            let mut types = Types::new(schema);
            types.of(schema.root(), is_object, "self");
            rules.add(schema, schema.root(), &mut types);
        }
        rules
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_rules
    }

    /// Values that expressions cannot see have no rules, whatever the schema says.
    fn add(&mut self, schema: &Schema, id: NodeId, types: &mut Types<'_>) {
        let Some(checks) = schema.checks(id).filter(|checks| checks.has_rules) else { return };
        let Some(ty) = types.of(id, false, "self") else { return };
        if !checks.rules.is_empty() {
            let rules = checks.rules.iter().map(|rule| CompiledRule::new(rule, &ty)).collect();
            self.nodes.insert(id, NodeRules { ty, kind: kind_name(checks.kind), rules });
        }
        for (_, part) in children(schema, id) {
            self.add(schema, part, types);
        }
    }
}

/// The name of a type in faults. Numbers that may be text have none.
fn kind_name(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::IntegerOrString) | None => "",
        Some(
            kind @ (Kind::Object
            | Kind::Array
            | Kind::String
            | Kind::Integer
            | Kind::Number
            | Kind::Boolean),
        ) => kind.name(),
    }
}

/// The way from a node to one inside it.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChildStep<'schema> {
    Field(&'schema str),
    Values,
    Items,
}

/// The nodes directly inside a node.
pub(super) fn children(schema: &Schema, id: NodeId) -> Vec<(ChildStep<'_>, NodeId)> {
    match &schema.node(id).shape {
        Shape::Any | Shape::Scalar(_) => Vec::new(),
        Shape::List { items, .. } => vec![(ChildStep::Items, *items)],
        Shape::Map { values, .. } => vec![(ChildStep::Values, *values)],
        Shape::Struct { fields, .. } => {
            fields.iter().map(|(name, field)| (ChildStep::Field(name), field.node)).collect()
        }
    }
}

impl CompiledRule {
    /// Compiles a rule about values of a type.
    pub(super) fn new(rule: &Rule, ty: &Type) -> Self {
        if rule.rule.trim().is_empty() {
            return Self { program: Ok(None), message: None, uses_old_self: false };
        }
        let old = match rule.optional_old_self {
            Some(true) => Type::optional(ty.clone()),
            Some(false) | None => ty.clone(),
        };
        let environment = Environment::new()
            .with_limits(LIMITS)
            .with_variable("self", ty.clone())
            .with_variable("oldSelf", old);
        match compile(&environment, &rule.rule, &Type::Bool) {
            Err(CompileFailure::Type) => {
                Self::with_error("cel expression must evaluate to a bool".into())
            }
            Err(CompileFailure::Text(text)) => Self::with_error(text),
            Ok(program) => {
                let message = rule.message_expression.as_ref().map(|expression| {
                    compile(&environment, expression, &Type::string()).map_err(|why| match why {
                        CompileFailure::Type => {
                            "messageExpression must evaluate to a string".into()
                        }
                        CompileFailure::Text(text) => format!("messageExpression {text}"),
                    })
                });
                let uses_old = program.mentions("oldSelf");
                Self { program: Ok(Some(program)), message, uses_old_self: uses_old }
            }
        }
    }

    fn with_error(why: String) -> Self {
        Self { program: Err(why), message: None, uses_old_self: false }
    }
}

enum CompileFailure {
    /// The answer is of another type.
    Type,
    /// It is no expression.
    Text(String),
}

fn compile(
    environment: &Environment,
    expression: &str,
    expected: &Type,
) -> Result<Program, CompileFailure> {
    match environment.compile(expression, Some(expected)) {
        // The type of a value that may be a number or text is unknown on purpose.
        Ok(program) if matches!(program.result_type(), Type::IntOrString { .. }) => {
            Err(CompileFailure::Type)
        }
        Ok(program) => Ok(program),
        Err(CompileError::WrongResult { .. }) => Err(CompileFailure::Type),
        Err(error @ CompileError::Invalid(_)) => Err(CompileFailure::Text(error.to_string())),
        Err(
            error @ (CompileError::TooLong { .. }
            | CompileError::TooDeep { .. }
            | CompileError::Internal(_)),
        ) => Err(CompileFailure::Text(format!("compilation failed: {error}"))),
    }
}
