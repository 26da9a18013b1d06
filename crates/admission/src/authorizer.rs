//! Access checks in expressions: `authorizer` and what follows it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use gantry_cel::{Environment, EvalError, HostFunctionBody, HostValue, Text, Value};
use serde_json::json;

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessCheck {
    /// A path that is no resource.
    Path {
        /// The path.
        path: String,
        /// The method, in lower case.
        verb: String,
    },
    /// A resource.
    Resource {
        /// The group.
        group: String,
        /// The resource.
        resource: String,
        /// The part of an object; empty for all of it.
        subresource: String,
        /// The namespace; empty for all.
        namespace: String,
        /// The name of an object; empty for all.
        name: String,
        /// The verb.
        verb: String,
        /// The fields that are selected, as text; empty for all.
        field_selector: String,
        /// The labels that are selected, as text; empty for all.
        label_selector: String,
    },
}

/// What is known about a right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is given.
    pub allowed: bool,
    /// The reason, in the words of the authorizer.
    pub reason: String,
    /// Why nothing is known.
    pub error: Option<String>,
}

/// Knows what callers may do.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Whether the user, a `UserInfo`, may do this.
    fn authorize(&self, user: &serde_json::Value, check: &AccessCheck) -> Decision;
}

const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
const DECISION: &str = "kubernetes.authorization.Decision";

/// The types of the two variables.
pub(crate) const VARIABLE_TYPES: [&str; 2] = [AUTHORIZER, RESOURCE_CHECK];

/// The user whose access is checked, and the authorizer that decides.
#[derive(Clone, Debug)]
struct CallerAuthorizer {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<serde_json::Value>,
}

#[derive(Clone, Debug)]
struct PathCheck {
    caller: CallerAuthorizer,
    path: String,
}

#[derive(Clone, Debug)]
struct GroupCheck {
    caller: CallerAuthorizer,
    group: String,
}

#[derive(Clone, Debug, Default)]
struct ResourceAttributes {
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    field_selector: String,
    label_selector: String,
}

#[derive(Clone, Debug)]
struct ResourceCheck {
    caller: CallerAuthorizer,
    attributes: ResourceAttributes,
}

macro_rules! host_values {
    ($($ty:ty => $name:expr),+ $(,)?) => {$(
        impl HostValue for $ty {
            fn type_name(&self) -> &str {
                $name
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    )+};
}

host_values! {
    CallerAuthorizer => AUTHORIZER,
    PathCheck => PATH_CHECK,
    GroupCheck => GROUP_CHECK,
    ResourceCheck => RESOURCE_CHECK,
    Decision => DECISION,
}

/// The values of `authorizer` and `authorizer.requestResource`.
pub(crate) fn values<'v>(
    authorizer: Arc<dyn Authorizer>,
    user: &serde_json::Value,
    request: &crate::request::Request<'_>,
) -> [Value<'v>; 2] {
    let asker = CallerAuthorizer { authorizer, user: Arc::new(user.clone()) };
    let target = ResourceAttributes {
        group: request.view.group.clone(),
        resource: request.view.resource.clone(),
        subresource: request.subresource.to_owned(),
        namespace: request.namespace.to_owned(),
        name: request.name.to_owned(),
        ..ResourceAttributes::default()
    };
    let resource = ResourceCheck { caller: asker.clone(), attributes: target };
    [Value::Host(Arc::new(asker)), Value::Host(Arc::new(resource))]
}

/// What a check costs, so that an expression can afford two.
const CHECK_COST: u64 = 350_000;
/// What a selector costs: that of the list it becomes.
const SELECTOR_COST: u64 = 10;

/// Adds the functions to what expressions may use.
pub(crate) fn extend(environment: Environment) -> Environment {
    let member = |target: &str, params: &str, answer: &str| format!("{target}.({params}) {answer}");
    let functions: [Function; 14] = [
        ("path", vec![member(AUTHORIZER, "string", PATH_CHECK)], 1, Arc::new(path)),
        ("group", vec![member(AUTHORIZER, "string", GROUP_CHECK)], 1, Arc::new(group)),
        (
            "serviceAccount",
            vec![member(AUTHORIZER, "string,string", AUTHORIZER)],
            1,
            Arc::new(service_account),
        ),
        ("resource", vec![member(GROUP_CHECK, "string", RESOURCE_CHECK)], 1, Arc::new(resource)),
        narrowing_function("subresource", 1, |target, text| target.subresource = text),
        narrowing_function("namespace", 1, |target, text| target.namespace = text),
        narrowing_function("name", 1, |target, text| target.name = text),
        narrowing_function("fieldSelector", SELECTOR_COST, |target, text| {
            target.field_selector = text;
        }),
        narrowing_function("labelSelector", SELECTOR_COST, |target, text| {
            target.label_selector = text;
        }),
        (
            "check",
            vec![
                member(PATH_CHECK, "string", DECISION),
                member(RESOURCE_CHECK, "string", DECISION),
            ],
            CHECK_COST,
            Arc::new(check),
        ),
        decision_accessor("errored", "bool", |decision| Value::Bool(decision.error.is_some())),
        decision_accessor("error", "string", |decision| {
            text(decision.error.as_deref().unwrap_or_default())
        }),
        decision_accessor("allowed", "bool", |decision| Value::Bool(decision.allowed)),
        decision_accessor("reason", "string", |decision| text(&decision.reason)),
    ];
    functions.into_iter().fold(environment, |environment, (name, signatures, cost, run)| {
        let signatures: Vec<&str> = signatures.iter().map(String::as_str).collect();
        environment
            .with_function(name, &signatures, cost, run)
            .expect("the signatures above are well formed")
    })
}

type Function = (&'static str, Vec<String>, u64, HostFunctionBody);

/// A function that narrows what is asked about.
fn narrowing_function(
    name: &'static str,
    cost: u64,
    set: fn(&mut ResourceAttributes, String),
) -> Function {
    let signature = format!("{RESOURCE_CHECK}.(string) {RESOURCE_CHECK}");
    let run = run(move |args| {
        let (check, text) = receiver::<ResourceCheck>(args)?;
        let mut check = check.clone();
        set(&mut check.attributes, text);
        Ok(host(check))
    });
    (name, vec![signature], cost, run)
}

/// A function that tells something of a decision.
fn decision_accessor(
    name: &'static str,
    answer: &str,
    tell: for<'a> fn(&'a Decision) -> Value<'static>,
) -> Function {
    let signature = format!("{DECISION}.() {answer}");
    let run = run(move |args| match args {
        [Value::Host(value)] => {
            let decision = value.as_any().downcast_ref::<Decision>();
            decision.map(tell).ok_or(EvalError::NoSuchOverload)
        }
        _ => Err(EvalError::NoSuchOverload),
    });
    (name, vec![signature], 1, run)
}

/// A closure whose answer lives as long as what it is given.
fn run<F>(function: F) -> HostFunctionBody
where
    F: for<'v> Fn(&[Value<'v>]) -> Result<Value<'v>, EvalError> + Send + Sync + 'static,
{
    Arc::new(function)
}

fn text(words: &str) -> Value<'static> {
    Value::String(Text::Shared(words.into()))
}

fn host<'v>(value: impl HostValue) -> Value<'v> {
    Value::Host(Arc::new(value))
}

/// The target of a member function and its one argument.
fn receiver<'a, T: 'static>(args: &'a [Value<'_>]) -> Result<(&'a T, String), EvalError> {
    let [Value::Host(target), Value::String(text)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let target = target.as_any().downcast_ref::<T>().ok_or(EvalError::NoSuchOverload)?;
    Ok((target, (**text).to_owned()))
}

fn path<'v>(args: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (asker, path) = receiver::<CallerAuthorizer>(args)?;
    if path.trim().is_empty() {
        return Err(EvalError::Failed("path must not be empty".to_owned()));
    }
    Ok(host(PathCheck { caller: asker.clone(), path }))
}

fn group<'v>(args: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (asker, group) = receiver::<CallerAuthorizer>(args)?;
    Ok(host(GroupCheck { caller: asker.clone(), group }))
}

fn resource<'v>(args: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (check, resource) = receiver::<GroupCheck>(args)?;
    if resource.trim().is_empty() {
        return Err(EvalError::Failed("resource must not be empty".to_owned()));
    }
    let target = ResourceAttributes {
        group: check.group.clone(),
        resource,
        ..ResourceAttributes::default()
    };
    Ok(host(ResourceCheck { caller: check.caller.clone(), attributes: target }))
}

fn service_account<'v>(args: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::Host(asker), Value::String(namespace), Value::String(name)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let asker =
        asker.as_any().downcast_ref::<CallerAuthorizer>().ok_or(EvalError::NoSuchOverload)?;
    let (namespace, name): (&str, &str) = (namespace, name);
    let subdomain = gantry_kinds::NameRule::DnsSubdomain;
    if !subdomain.check(name, false).is_empty() {
        return Err(EvalError::Failed("Invalid service account name".to_owned()));
    }
    if namespace.contains('.') || !subdomain.check(namespace, false).is_empty() {
        return Err(EvalError::Failed("Invalid service account namespace".to_owned()));
    }
    let groups =
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let username = format!("system:serviceaccount:{namespace}:{name}");
    let user = Arc::new(json!({ "username": username, "groups": groups }));
    Ok(host(CallerAuthorizer { authorizer: Arc::clone(&asker.authorizer), user }))
}

fn check<'v>(args: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    if let Ok((check, verb)) = receiver::<PathCheck>(args) {
        let asked = AccessCheck::Path { path: check.path.clone(), verb };
        return Ok(host(check.caller.authorizer.authorize(&check.caller.user, &asked)));
    }
    let (check, verb) = receiver::<ResourceCheck>(args)?;
    let ResourceAttributes {
        group,
        resource,
        subresource,
        namespace,
        name,
        field_selector,
        label_selector,
    } = check.attributes.clone();
    let asked = AccessCheck::Resource {
        group,
        resource,
        subresource,
        namespace,
        name,
        verb,
        field_selector,
        label_selector,
    };
    Ok(host(check.caller.authorizer.authorize(&check.caller.user, &asked)))
}
