//! The variables of expressions about one request, and their total cost.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use gantry_cel::{Binding, Budget, EvalError, Map, Program, Resolver, Type, Value};
use serde_json::Value as Json;

use crate::authorizer::{self, Authorizer};
use crate::request::Request;

/// What one expression may cost, with the variables it comes to not counted.
const PER_CALL_LIMIT: u64 = gantry_cel::cost::PER_CALL_LIMIT;

/// An expression, and its program or why it has none.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    pub(crate) program: Result<Program, String>,
}

/// A variable of a policy.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) expression: Expression,
}

/// The values of what expressions may mention. Whatever is declared about them, values are seen as
/// they are, as on a real server.
#[derive(Debug)]
pub(crate) struct Values<'v> {
    pub(crate) object: &'v Json,
    pub(crate) old: &'v Json,
    pub(crate) request: &'v Json,
    pub(crate) namespace: &'v Json,
    pub(crate) params: &'v Json,
}

/// What expressions about one request see; variables are computed once, when one comes to them.
pub(crate) struct ExpressionScope<'v> {
    bindings: Vec<(&'static str, Binding<'v>)>,
    variables: &'v [Variable],
    computed: Vec<OnceCell<Result<Value<'v>, EvalError>>>,
    /// What variables have cost since the last expression ended.
    spent: Cell<u64>,
}

/// Why an expression has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpressionError {
    /// It failed; others may be asked.
    Failed(String),
    /// There is nothing left to ask others with.
    BudgetExhausted,
}

/// The words for having nothing left.
pub(crate) const BUDGET_EXHAUSTED_MESSAGE: &str = "validation failed due to running out of cost \
                                                   budget, no further validation rules will be run";

impl<'v> ExpressionScope<'v> {
    pub(crate) fn new(values: &Values<'v>, variables: &'v [Variable]) -> Self {
        let tree = |json: &'v Json| Binding::Tree(json, &Type::Dyn);
        let bindings = vec![
            ("object", tree(values.object)),
            ("oldObject", tree(values.old)),
            ("request", tree(values.request)),
            ("namespaceObject", tree(values.namespace)),
            ("params", tree(values.params)),
        ];
        let computed = variables.iter().map(|_| OnceCell::new()).collect();
        Self { bindings, variables, computed, spent: Cell::new(0) }
    }

    /// The same with the right to ask about rights.
    pub(crate) fn with_authorizer(
        mut self,
        authorizer: Arc<dyn Authorizer>,
        request: &Request<'_>,
    ) -> Self {
        let [whole, resource] = authorizer::values(authorizer, request.user, request);
        self.bindings.push(("authorizer", Binding::Value(whole)));
        self.bindings.push(("authorizer.requestResource", Binding::Value(resource)));
        self
    }

    /// The answer of an expression; what it and its variables cost is taken from what is left.
    pub(crate) fn evaluate(
        &self,
        expression: &'v Expression,
        left: &mut u64,
    ) -> Result<Value<'v>, ExpressionError> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Err(ExpressionError::Failed(format!("compilation error: {why}"))),
        };
        let mut budget = Budget::new(PER_CALL_LIMIT, PER_CALL_LIMIT);
        let answer = program.evaluate_with(&self.bindings, Some(self), &mut budget);
        for cost in [self.spent.take(), PER_CALL_LIMIT - budget.remaining()] {
            *left = left.checked_sub(cost).ok_or(ExpressionError::BudgetExhausted)?;
        }
        answer.map_err(|error| {
            let text = &expression.text;
            ExpressionError::Failed(format!("expression '{text}' resulted in error: {error}"))
        })
    }

    fn variable(&self, place: usize) -> Result<Value<'v>, EvalError> {
        let Variable { name, expression } = &self.variables[place];
        let compute = || {
            let program = expression.program.as_ref().map_err(|why| {
                EvalError::Failed(format!("composited variable {name:?} fails to compile: {why}"))
            })?;
            let mut budget = Budget::new(PER_CALL_LIMIT, PER_CALL_LIMIT);
            let answer = program.evaluate_with(&self.bindings, Some(self), &mut budget);
            self.spent.set(self.spent.get() + PER_CALL_LIMIT - budget.remaining());
            answer.map_err(|error| {
                let why = format!("composited variable {name:?} fails to evaluate: {error}");
                EvalError::Failed(why)
            })
        };
        // A variable mentions earlier ones only, so that none is computed inside itself.
        self.computed[place].get_or_init(compute).clone()
    }
}

impl<'v> Resolver<'v> for ExpressionScope<'v> {
    fn resolve(&self, name: &str) -> Option<Result<Value<'v>, EvalError>> {
        if name == "variables" {
            // Asked for as a whole, as by `has`: those that have a value.
            let places = 0..self.variables.len();
            let known = places.filter_map(|place| {
                let value = self.variable(place).ok()?;
                Some((self.variables[place].name.as_str(), value))
            });
            return Some(Ok(Value::Map(Map::of_text(known))));
        }
        let name = name.strip_prefix("variables.")?;
        // Of two with one name the last counts, as in a map.
        let place = self.variables.iter().rposition(|variable| variable.name == name)?;
        Some(self.variable(place))
    }
}
