//! Evaluates all policies on a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_cel::Value;
use serde_json::{Value as Json, json};

use crate::authorizer::Authorizer;
use crate::match_conditions::MatchResult;
use crate::policy::{Action, Binding, Policy, Validation};
use crate::request::{AdmissionContext, ParamScope, Request, ResourceView};
use crate::scope::{
    BUDGET_EXHAUSTED_MESSAGE, Expression, ExpressionError, ExpressionScope, Values,
};

/// What all rules of a policy may cost for one binding and one set of parameters.
const POLICY_COST_BUDGET: u64 = 10_000_000;
/// The longest text a message expression may make.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// The longest value of an audit annotation.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// The result of all policies on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The first objection, if there is one.
    pub denied: Option<Denial>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// What is noted for an audit.
    pub annotations: BTreeMap<String, String>,
}

/// An objection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who objects, and why.
    pub message: String,
    /// The reason clients decide by.
    pub reason: DenialReason,
}

/// The reasons a policy may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// 422
    Invalid,
    /// 403
    Forbidden,
    /// 401
    Unauthorized,
    /// 413
    TooLarge,
}

impl DenialReason {
    fn from_word(word: &str) -> Self {
        match word {
            "Forbidden" => Self::Forbidden,
            "Unauthorized" => Self::Unauthorized,
            "RequestEntityTooLarge" => Self::TooLarge,
            _ => Self::Invalid,
        }
    }
}

/// Asks every policy with the bindings it has.
#[must_use]
pub fn evaluate_policies(
    hooks: &[(Arc<Policy>, Vec<Arc<Binding>>)],
    request: &Request<'_>,
    world: &dyn AdmissionContext,
) -> PolicyDecision {
    let mut asking =
        PolicyDispatcher { request, world, decision: PolicyDecision::default(), namespace: None };
    for (policy, bindings) in hooks {
        asking.evaluate_policy(policy, bindings);
    }
    asking.decision
}

struct PolicyDispatcher<'a> {
    request: &'a Request<'a>,
    world: &'a dyn AdmissionContext,
    decision: PolicyDecision,
    /// The namespace of the request, once it is needed.
    namespace: Option<Json>,
}

/// A request as one policy sees it.
struct VersionedRequest {
    request: Json,
    object: Json,
    old: Json,
    namespace: Json,
    authorizer: Arc<dyn Authorizer>,
}

/// The result of a policy with one set of parameters.
#[derive(Debug, Default)]
struct PolicyEvaluation {
    /// Objections by the place of their rule.
    violations: Vec<(usize, String, DenialReason)>,
    /// Values of audit annotations, or why there is none.
    annotations: Vec<(String, Result<String, String>)>,
}

impl PolicyDispatcher<'_> {
    fn evaluate_policy(&mut self, policy: &Policy, bindings: &[Arc<Binding>]) {
        let Some(criteria) = &policy.criteria else {
            let why = "policy contained no match constraints, a required field";
            return self.misconfigured(policy, None, why);
        };
        let view = match criteria.matches(self.request, self.world) {
            Ok(Some(view)) => view,
            Ok(None) => return,
            Err(missing) => return self.misconfigured(policy, None, &missing.to_string()),
        };
        let scope = match &policy.param_kind {
            None => None,
            Some(kind) => match self.world.param_scope(kind) {
                Some(scope) => Some(scope),
                None => {
                    let why = format!("failed to find resource referenced by paramKind: '{kind}'");
                    return self.misconfigured(policy, None, &why);
                }
            },
        };
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut seen = None;
        for binding in bindings {
            let matches = match &binding.criteria {
                None => Ok(Some(self.request.view.clone())),
                Some(criteria) => criteria.matches(self.request, self.world),
            };
            match matches {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(missing) => {
                    self.misconfigured(policy, Some(binding), &missing.to_string());
                    continue;
                }
            }
            let params = match self.params(policy, binding, scope) {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            for params in &params {
                if seen.is_none() {
                    seen = self.versioned_request(&view);
                }
                let Some(seen) = &seen else {
                    let why = "failed to convert object version: unknown conversion";
                    self.misconfigured(policy, Some(binding), why);
                    break;
                };
                let answer = evaluate(policy, self.request, seen, params);
                self.apply_actions(policy, binding, answer, &mut annotations);
            }
        }
        for (key, values) in annotations {
            let key = format!("{}/{key}", policy.name);
            self.decision.annotations.insert(key, values.join(", "));
        }
    }

    /// The request in the view that a policy asked for; nothing if it cannot be shown in it.
    fn versioned_request(&mut self, view: &ResourceView) -> Option<VersionedRequest> {
        let Self { request, world, .. } = self;
        let show = |object: Option<&Json>| match object {
            None => Some(Json::Null),
            Some(object) if view == request.view => Some(object.clone()),
            Some(object) => world.convert(object, view),
        };
        let (object, old) = (show(request.object)?, show(request.old)?);
        let namespace = self.namespace.get_or_insert_with(|| {
            let own = request.is_namespace() || request.namespace.is_empty();
            let found = if own { None } else { world.namespace(request.namespace) };
            found.map_or(Json::Null, |namespace| visible_namespace(&namespace))
        });
        Some(VersionedRequest {
            request: request.to_json(view),
            object,
            old,
            namespace: namespace.clone(),
            authorizer: world.authorizer(),
        })
    }

    /// The parameters of a binding; a policy without any is asked once with null.
    fn params(
        &self,
        policy: &Policy,
        binding: &Binding,
        scope: Option<ParamScope>,
    ) -> Result<Vec<Json>, String> {
        let (Some(kind), Some(reference), Some(scope)) =
            (&policy.param_kind, &binding.param_ref, scope)
        else {
            return Ok(vec![Json::Null]);
        };
        let namespace = match (scope, reference.namespace.as_str(), self.request.namespace) {
            (ParamScope::Cluster, "", _) => "",
            (ParamScope::Cluster, _, _) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped \
                            `paramKind`"
                    .to_owned());
            }
            (ParamScope::Namespaced, "", "") => {
                return Err("cannot use namespaced paramRef in policy binding that matches \
                            cluster-scoped resources"
                    .to_owned());
            }
            (ParamScope::Namespaced, "", own) => own,
            (ParamScope::Namespaced, named, _) => named,
        };
        let name = Some(reference.name.as_str()).filter(|name| !name.is_empty());
        let mut found = self.world.params(kind, namespace, name);
        if name.is_none() {
            found.retain(|param| {
                gantry_kinds::selects(&reference.selector, &param["metadata"]["labels"])
            });
        }
        if found.is_empty() && reference.deny_if_not_found {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()
            );
        }
        Ok(found)
    }

    /// Fails a policy that cannot be evaluated, unless its failure policy ignores that.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.fails_closed {
            let what = if binding.is_none() { "policy" } else { "binding" };
            let message = format!("failed to configure {what}: {why}");
            self.deny(policy, binding, &message, DenialReason::Invalid);
        }
    }

    fn deny(
        &mut self,
        policy: &Policy,
        binding: Option<&Binding>,
        why: &str,
        reason: DenialReason,
    ) {
        let with = binding.map(|it| format!(" with binding '{}'", it.name)).unwrap_or_default();
        let message =
            format!("ValidatingAdmissionPolicy '{}'{with} denied request: {why}", policy.name);
        self.decision.denied.get_or_insert(Denial { message, reason });
    }

    fn apply_actions(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        answer: PolicyEvaluation,
        annotations: &mut BTreeMap<String, Vec<String>>,
    ) {
        for (place, message, reason) in answer.violations {
            for action in &binding.actions {
                match action {
                    Action::Deny => self.deny(policy, Some(binding), &message, reason),
                    Action::Warn => {
                        let (policy, binding) = (&policy.name, &binding.name);
                        let warning = format!(
                            "Validation failed for ValidatingAdmissionPolicy '{policy}' with \
                             binding '{binding}': {message}"
                        );
                        if !self.decision.warnings.contains(&warning) {
                            self.decision.warnings.push(warning);
                        }
                    }
                    Action::Audit => {
                        let actions: Vec<&str> =
                            binding.actions.iter().map(|it| it.as_str()).collect();
                        let failure = json!([{
                            "message": message, "policy": binding.policy, "binding": binding.name,
                            "expressionIndex": place, "validationActions": actions,
                        }]);
                        let key = "validation.policy.admission.k8s.io/validation_failure";
                        // The first stays: a key is written once.
                        let known = self.decision.annotations.entry(key.to_owned());
                        known.or_insert_with(|| failure.to_string());
                    }
                }
            }
        }
        for (key, value) in answer.annotations {
            match value {
                Ok(value) => {
                    let values = annotations.entry(key).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                Err(why) => self.deny(policy, Some(binding), &why, DenialReason::Invalid),
            }
        }
    }
}

/// What expressions see of a namespace.
fn visible_namespace(namespace: &Json) -> Json {
    let mut seen = serde_json::Map::new();
    let mut metadata = serde_json::Map::new();
    for name in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ] {
        if let Some(value) = namespace["metadata"].get(name) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    seen.insert("metadata".to_owned(), Json::Object(metadata));
    for name in ["spec", "status"] {
        let part = namespace.get(name).cloned().unwrap_or_else(|| json!({}));
        seen.insert(name.to_owned(), part);
    }
    Json::Object(seen)
}

/// Asks one policy with one set of parameters.
fn evaluate(
    policy: &Policy,
    request: &Request<'_>,
    seen: &VersionedRequest,
    params: &Json,
) -> PolicyEvaluation {
    let values = |namespace| Values {
        object: &seen.object,
        old: &seen.old,
        request: &seen.request,
        namespace,
        params,
    };
    let failed = |why: String| PolicyEvaluation {
        violations: if policy.fails_closed {
            vec![(0, why, DenialReason::Invalid)]
        } else {
            Vec::new()
        },
        annotations: Vec::new(),
    };
    if !policy.conditions.is_empty() {
        // Conditions do not see the namespace.
        let values = values(&Json::Null);
        let scope = ExpressionScope::new(&values, &policy.variables)
            .with_authorizer(Arc::clone(&seen.authorizer), request);
        match policy.conditions.evaluate(&scope) {
            MatchResult::Met => {}
            MatchResult::Unmet(_) => return PolicyEvaluation::default(),
            MatchResult::Failed(why) => return failed(why),
        }
    }
    let values = values(&seen.namespace);
    let rules = ExpressionScope::new(&values, &policy.variables)
        .with_authorizer(Arc::clone(&seen.authorizer), request);
    let words = ExpressionScope::new(&values, &policy.variables);
    let mut left = POLICY_COST_BUDGET;
    let mut results = Vec::with_capacity(policy.validations.len());
    for rule in &policy.validations {
        match rules.evaluate(&rule.expression, &mut left) {
            Err(ExpressionError::BudgetExhausted) => {
                return failed(BUDGET_EXHAUSTED_MESSAGE.to_owned());
            }
            Err(ExpressionError::Failed(why)) => results.push(Err(why)),
            Ok(value) => results.push(Ok(matches!(value, Value::Bool(true)))),
        }
    }
    // Words are asked for whether they are needed or not, and share what is left.
    let mut messages = Vec::with_capacity(policy.validations.len());
    let mut exhausted = false;
    for rule in &policy.validations {
        let message = rule.message_expression.as_ref().map(|it| words.evaluate(it, &mut left));
        exhausted |= matches!(message, Some(Err(ExpressionError::BudgetExhausted)));
        if exhausted {
            break;
        }
        messages.push(message.and_then(Result::ok));
    }
    let mut answer = PolicyEvaluation::default();
    for (place, (rule, result)) in policy.validations.iter().zip(results).enumerate() {
        match result {
            Err(why) if policy.fails_closed => {
                answer.violations.push((place, why, DenialReason::Invalid));
            }
            Ok(_) if exhausted && policy.fails_closed => {
                let why = format!("failed messageExpression: {BUDGET_EXHAUSTED_MESSAGE}");
                answer.violations.push((place, why, DenialReason::Invalid));
            }
            Ok(false) if !exhausted => {
                let message = messages.get(place).and_then(Option::as_ref);
                let message = violation_message(rule, message);
                answer.violations.push((place, message, DenialReason::from_word(&rule.reason)));
            }
            Ok(_) | Err(_) => {}
        }
    }
    match annotations(policy, &rules) {
        Ok(annotations) => answer.annotations = annotations,
        Err(ExpressionError::BudgetExhausted) => {
            return failed(BUDGET_EXHAUSTED_MESSAGE.to_owned());
        }
        Err(ExpressionError::Failed(why)) => return failed(why),
    }
    answer
}

/// The words of an objection: what its expression makes, if that is fit to print, else what it
/// says, else the rule.
fn violation_message(rule: &Validation, made: Option<&Value<'_>>) -> String {
    if let Some(Value::String(text)) = made {
        let text = text.trim();
        if !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n') {
            return text.to_owned();
        }
    }
    if !rule.message.is_empty() {
        return rule.message.clone();
    }
    format!("failed expression: {}", rule.expression.text.trim())
}

type Annotations = Vec<(String, Result<String, String>)>;

fn annotations<'v>(
    policy: &'v Policy,
    scope: &ExpressionScope<'v>,
) -> Result<Annotations, ExpressionError> {
    let mut left = POLICY_COST_BUDGET;
    let mut found = Vec::new();
    for annotation in &policy.annotations {
        let expression: &Expression = &annotation.expression;
        let value = match scope.evaluate(expression, &mut left) {
            Err(ExpressionError::BudgetExhausted) => return Err(ExpressionError::BudgetExhausted),
            Err(ExpressionError::Failed(why)) if policy.fails_closed => Err(why),
            Err(ExpressionError::Failed(_)) | Ok(Value::Null) => continue,
            Ok(Value::String(text)) => {
                let text = text.trim();
                if text.is_empty() {
                    continue;
                }
                let mut end = text.len().min(MAX_ANNOTATION_BYTES);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                Ok(text[..end].to_owned())
            }
            Ok(other) => Err(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must \
                 be either string or null.",
                expression.text,
                other.type_name()
            )),
        };
        found.push((annotation.key.clone(), value));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
