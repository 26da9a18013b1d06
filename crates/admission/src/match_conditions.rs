//! Match conditions of policies and webhooks.

use std::sync::Arc;

use gantry_cel::Value;
use gantry_kinds::admission_policies::ExpressionKind;
use gantry_schema::FieldError;
use serde_json::Value as Json;

use crate::authorizer::Authorizer;
use crate::environment::{OptionalVariables, compile, environment};
use crate::request::{Request, ResourceView};
use crate::scope::{
    BUDGET_EXHAUSTED_MESSAGE, Expression, ExpressionError, ExpressionScope, Values,
};

/// What all conditions together may cost on one request.
const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// The conditions of one policy or webhook.
#[derive(Debug, Default)]
pub struct MatchConditions(pub(crate) Vec<MatchCondition>);

#[derive(Debug)]
pub(crate) struct MatchCondition {
    pub(crate) name: String,
    pub(crate) expression: Expression,
}

/// What is wrong with the names and conditions of the webhooks of a configuration, in the words of
/// a real server; `old` is what it replaces.
#[must_use]
pub fn validate_webhooks(object: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let environment = environment(OptionalVariables { params: false, authorizer: true }, None);
    gantry_kinds::validate_conditions(object, old, &mut |role, source| {
        compile(&environment, role, source).err()
    })
}

/// Whether conditions are met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// All are.
    Met,
    /// The one of this name is not.
    Unmet(String),
    /// None is known not to be, and some could not be found out.
    Failed(String),
}

impl MatchConditions {
    /// Compiles the conditions of a webhook.
    #[must_use]
    pub fn of_webhook(conditions: &Json) -> Self {
        let environment = environment(OptionalVariables { params: false, authorizer: true }, None);
        Self::read(conditions, &environment)
    }

    pub(crate) fn read(conditions: &Json, environment: &gantry_cel::Environment) -> Self {
        let list = conditions.as_array().into_iter().flatten();
        let read = |condition: &Json| {
            let text = condition["expression"].as_str().unwrap_or_default().to_owned();
            let program = compile(environment, ExpressionKind::Condition, &text);
            MatchCondition {
                name: condition["name"].as_str().unwrap_or_default().to_owned(),
                expression: Expression { text, program },
            }
        };
        Self(list.map(read).collect())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a webhook is to be asked about a request, seen in a view; the objects are in that
    /// view already.
    #[must_use]
    pub fn evaluate_for_webhook(
        &self,
        request: &Request<'_>,
        view: &ResourceView,
        authorizer: Arc<dyn Authorizer>,
    ) -> MatchResult {
        if self.is_empty() {
            return MatchResult::Met;
        }
        let shown = request.to_json(view);
        let values = Values {
            object: request.object.unwrap_or(&Json::Null),
            old: request.old.unwrap_or(&Json::Null),
            request: &shown,
            namespace: &Json::Null,
            params: &Json::Null,
        };
        self.evaluate(&ExpressionScope::new(&values, &[]).with_authorizer(authorizer, request))
    }

    /// All are asked, unless one is not met: an error elsewhere does not matter then.
    pub(crate) fn evaluate<'v>(&'v self, scope: &ExpressionScope<'v>) -> MatchResult {
        let mut left = MATCH_CONDITIONS_BUDGET;
        let mut answers = Vec::with_capacity(self.0.len());
        for condition in &self.0 {
            match scope.evaluate(&condition.expression, &mut left) {
                Err(ExpressionError::BudgetExhausted) => {
                    return MatchResult::Failed(BUDGET_EXHAUSTED_MESSAGE.to_owned());
                }
                answer => answers.push((condition, answer)),
            }
        }
        let mut failures: Vec<String> = Vec::new();
        for (condition, answer) in answers {
            match answer {
                Ok(Value::Bool(false)) => return MatchResult::Unmet(condition.name.clone()),
                Ok(_) | Err(ExpressionError::BudgetExhausted) => {}
                Err(ExpressionError::Failed(why)) if failures.contains(&why) => {}
                Err(ExpressionError::Failed(why)) => failures.push(why),
            }
        }
        match failures.as_slice() {
            [] => MatchResult::Met,
            [one] => MatchResult::Failed(one.clone()),
            more => MatchResult::Failed(format!("[{}]", more.join(", "))),
        }
    }
}
