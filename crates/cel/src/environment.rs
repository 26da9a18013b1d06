//! The variables and functions that expressions may use, and compiled programs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::accessed_entries;
use crate::ast::Node;
use crate::check::{self, CheckedExpression};
use crate::cost::{self, Budget};
use crate::error::{CompileError, EvalError};
use crate::eval::Evaluation;
use crate::eval_context::EvalContext;
use crate::parse::{self, ParsedExpression};
use crate::signature::{Signature, join};
use crate::types::Type;
use crate::value::Value;
use crate::view::{self, Binding};

/// The variables and functions that expressions of one kind may use.
///
/// ```
/// use gantry_cel::{Binding, Budget, Environment, Type};
/// use serde_json::json;
///
/// let port = Type::object("port", [("port".to_owned(), Type::Int)]);
/// let ports = Type::list(port);
/// let environment = Environment::new().with_variable("self", ports.clone());
/// let rule = environment.compile("self.all(p, p.port < 1024)", Some(&Type::Bool))?;
///
/// let value = json!([{"port": 80}, {"port": 8080}]);
/// let answer = rule.evaluate(&[("self", Binding::Tree(&value, &ports))], &mut Budget::default())?;
/// assert_eq!(answer.as_bool(), Some(false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Environment {
    names: Vec<String>,
    types: Vec<Type>,
    functions: Vec<Arc<HostFunction>>,
    limits: Limits,
    comparisons: Comparisons,
}

/// Which values can be compared with which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comparisons {
    /// Those that a Kubernetes server compares: an amount equals text nowhere, and operators order
    /// neither amounts nor versions.
    #[default]
    Kubernetes,
    /// Besides, `== != < <= > >=` compare amounts with amounts, text and integers, and versions
    /// with versions and text: the other side is read as what the first one is, and text that
    /// cannot be read is an error. An amount and a version cannot be compared at all.
    Mixed,
}

/// How large an expression may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of text.
    pub max_bytes: usize,
    /// The most levels of nesting. Evaluation needs stack for each.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 10 * 1024, max_depth: 250 }
    }
}

/// A signature that does not read as one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the signature {0:?}: write it as in `string.(int) bool` or `(string) int`")]
pub struct InvalidSignature(pub String);

/// What a function of the host does with its arguments; a member finds its target in front.
pub type HostFunctionBody =
    Arc<dyn for<'v> Fn(&[Value<'v>]) -> Result<Value<'v>, EvalError> + Send + Sync>;

/// A function that the host brings.
pub struct HostFunction {
    pub(crate) name: String,
    pub(crate) signatures: Vec<Signature>,
    pub(crate) cost: u64,
    pub(crate) run: HostFunctionBody,
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Environment {
    /// The library, and no variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. A name with dots wins over a field of a variable with a shorter one.
    #[must_use]
    pub fn with_variable(mut self, name: &str, ty: Type) -> Self {
        self.names.push(name.to_owned());
        self.types.push(ty);
        self
    }

    /// Adds a function of the host, which costs the same whatever it is given.
    ///
    /// Signatures read `authorizer.(string) check` for a member, `(int,list(A)) A` else, where a
    /// single capital letter stands for any type.
    ///
    /// # Errors
    /// When a signature cannot be read.
    pub fn with_function(
        mut self,
        name: &str,
        signatures: &[&str],
        cost: u64,
        run: HostFunctionBody,
    ) -> Result<Self, InvalidSignature> {
        let signatures = signatures
            .iter()
            .map(|text| Signature::parse(text).ok_or_else(|| InvalidSignature((*text).into())))
            .collect::<Result<_, _>>()?;
        self.functions.push(Arc::new(HostFunction {
            name: name.to_owned(),
            signatures,
            cost,
            run,
        }));
        Ok(self)
    }

    /// Sets how large an expression may be.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets which values can be compared with which.
    #[must_use]
    pub fn with_comparisons(mut self, comparisons: Comparisons) -> Self {
        self.comparisons = comparisons;
        self
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn comparisons(&self) -> Comparisons {
        self.comparisons
    }

    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.names.iter().rposition(|known| known == name)
    }

    pub(crate) fn variable_type(&self, place: usize) -> Type {
        self.types.get(place).cloned().unwrap_or(Type::Dyn)
    }

    pub(crate) fn function(&self, name: &str) -> Option<Arc<HostFunction>> {
        self.functions.iter().rfind(|function| function.name == name).cloned()
    }

    /// The program that `source` spells, whose answer is of the expected type.
    ///
    /// # Errors
    /// When the text is no expression, is wrong whatever its variables are, or is too large.
    pub fn compile(&self, source: &str, expected: Option<&Type>) -> Result<Program, CompileError> {
        let ParsedExpression { root, nodes, mentioned } = parse::parse(source, self)?;
        let checked = catch_unwind(AssertUnwindSafe(|| check::check(source, &root, nodes, self)))
            .map_err(|_| CompileError::Internal("the checker failed".to_owned()))??;
        if let Some(expected) = expected
            && join(&checked.result, expected).is_none()
        {
            let found = checked.result;
            return Err(CompileError::WrongResult { expected: expected.clone(), found });
        }
        let estimate = cost::estimate(&root, &checked);
        let comparisons = self.comparisons;
        Ok(Program { root, names: self.names.clone(), mentioned, checked, estimate, comparisons })
    }
}

/// An expression that may run, any number of times and from any thread.
#[derive(Debug)]
pub struct Program {
    root: Node,
    names: Vec<String>,
    mentioned: Vec<usize>,
    checked: CheckedExpression,
    estimate: u64,
    comparisons: Comparisons,
}

impl Program {
    /// Whether the expression mentions the declared variable `name`.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        self.mentioned.iter().any(|place| self.names.get(*place).is_some_and(|known| known == name))
    }

    /// The entries of the declared variable `name` that can decide the answer, sorted; nothing if
    /// the expression looks at the variable as a whole.
    ///
    /// Two values that agree in these entries, or both lack one, get the same answer.
    #[must_use]
    pub fn entries_of(&self, name: &str) -> Option<Vec<&str>> {
        let place = self.names.iter().rposition(|known| known == name);
        accessed_entries::accessed_entries(&self.root, place)
    }

    /// The type of its answer.
    #[must_use]
    pub fn result_type(&self) -> &Type {
        &self.checked.result
    }

    /// The most it can cost, given the declared sizes of its variables.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Evaluates the expression with these variables.
    ///
    /// What it costs is taken from the budget whether it succeeds or not.
    ///
    /// # Errors
    /// When there is no answer, or none within the budget.
    pub fn evaluate(
        &self,
        bindings: &[(&str, Binding<'_>)],
        budget: &mut Budget,
    ) -> Result<EvaluatedValue, EvalError> {
        let value = self.evaluate_value(bindings, budget)?;
        Ok(match value {
            Value::Bool(truth) => EvaluatedValue::Bool(truth),
            Value::String(text) => EvaluatedValue::String((*text).to_owned()),
            other => EvaluatedValue::Other(view::to_json(&other)?),
        })
    }

    /// Evaluates the expression to a value, which may borrow from its variables.
    ///
    /// # Errors
    /// When there is no answer, or none within the budget.
    pub fn evaluate_value<'v>(
        &'v self,
        bindings: &[(&str, Binding<'v>)],
        budget: &mut Budget,
    ) -> Result<Value<'v>, EvalError> {
        self.evaluate_with(bindings, None, budget)
    }

    /// The same, where some variables are only computed when the evaluation comes to them.
    ///
    /// # Errors
    /// When there is no answer, or none within the budget.
    pub fn evaluate_with<'v>(
        &'v self,
        bindings: &[(&str, Binding<'v>)],
        resolver: Option<&dyn Resolver<'v>>,
        budget: &mut Budget,
    ) -> Result<Value<'v>, EvalError> {
        let work = EvalContext::new(budget.next_limit(), &self.checked.patterns, self.comparisons);
        let mut evaluation = Evaluation {
            context: work,
            globals: vec![None; self.names.len()],
            names: &self.names,
            resolver,
            locals: Vec::new(),
        };
        // The library is meant not to panic on any input; if it does, one expression has no answer
        // and the process goes on.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            for place in &self.mentioned {
                let bound = bindings.iter().find(|(name, _)| *name == self.names[*place]);
                if let Some((_, binding)) = bound {
                    evaluation.globals[*place] = Some(binding.value()?);
                }
            }
            evaluation.node(&self.root)
        }));
        budget.spend(evaluation.context.meter.used());
        answer.unwrap_or_else(|_| Err(EvalError::Internal("the evaluator failed".to_owned())))
    }
}

/// Knows variables that are computed only when an evaluation comes to them.
pub trait Resolver<'v> {
    /// The value of a declared variable that is not bound; nothing if it has none.
    fn resolve(&self, name: &str) -> Option<Result<Value<'v>, EvalError>>;
}

/// What an expression answers.
#[derive(Clone, Debug, PartialEq)]
pub enum EvaluatedValue {
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// Anything else that JSON can say.
    Other(Json),
}

impl EvaluatedValue {
    /// The truth value, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            Self::String(_) | Self::Other(_) => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Bool(_) | Self::Other(_) => None,
        }
    }

    /// The answer as JSON.
    #[must_use]
    pub fn into_json(self) -> Json {
        match self {
            Self::Bool(truth) => Json::Bool(truth),
            Self::String(text) => Json::String(text),
            Self::Other(json) => json,
        }
    }
}
