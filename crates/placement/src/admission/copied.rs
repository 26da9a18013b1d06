//! Whether a user may have a ConfigMap copied into the status of claims.
//!
//! The allocator reads it with its own rights, and everybody who reads the claim reads the copy. So who
//! names a ConfigMap must be able to read it. The server knows the rights of who asks: it evaluates
//! [`condition`] by itself, and asks only about requests whose author may not.

use serde_json::Value;

use super::{Answer, is_news};

/// Refuses an object that names a ConfigMap. The server asks only about authors who may not read it.
pub(super) fn refuse(object: &Value, request: &Value) -> Answer {
    let named = is_news(request).then(|| find("spec", &object["spec"])).flatten();
    let own = object["metadata"]["namespace"].as_str();
    let refused = named.map(|(path, config)| {
        let name = config["name"].as_str().unwrap_or_default();
        let namespace = config["namespace"].as_str().or(own).unwrap_or_default();
        format!(
            "{path}: Forbidden: ConfigMap {namespace}/{name} would be copied into the status of claims, and \
             you may not get ConfigMaps there; have that right granted in namespace {namespace:?}, or \
             remove the reference"
        )
    });
    Answer { refused, forbidden: true, ..Answer::default() }
}

/// The first reference to a ConfigMap below a field, and where it is. Every list called `configs` is one
/// of references, whatever form the claim has.
fn find<'a>(path: &str, value: &'a Value) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match value.as_array().filter(|_| name == "configs") {
                Some(configs) => configs.iter().enumerate().find_map(|(at, config)| {
                    let is_core = config["apiVersion"].as_str().is_none_or(|it| !it.contains('/'));
                    is_core.then(|| (format!("{path}[{at}]"), config))
                }),
                None => find(&path, value),
            }
        }),
        Value::Array(list) => {
            let mut list = list.iter().enumerate();
            list.find_map(|(at, value)| find(&format!("{path}[{at}]"), value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// When the server asks about an object in a namespace, in its own language: it has new references, and its
/// author may not read the ConfigMaps of the namespace. One right for all of them is asked about: asking
/// for each would cost more than a server grants an expression.
pub(super) fn condition() -> String {
    let configs = |of: &str| format!("(has({of}.configs) && size({of}.configs) > 0)");
    let claim = |of: &str| {
        format!(
            "({} || (has({of}.claims) && {of}.claims.exists(t, {} || (has(t.oneOf) && t.oneOf.exists(a, \
             {})))))",
            configs(of),
            configs("t"),
            configs("a"),
        )
    };
    format!(
        "(oldObject == null || object.spec != oldObject.spec) && ({} || (has(object.spec.claimSpec) && {}) \
         || (has(object.spec.privilegedClaimSpec) && {})) && \
         !authorizer.group('').resource('configmaps').namespace(request.namespace).check('get').allowed()",
        claim("object.spec"),
        claim("object.spec.claimSpec"),
        configs("object.spec.privilegedClaimSpec"),
    )
}

/// The same for a class, whose references name their namespaces. Who may read all ConfigMaps is asked about
/// once.
pub(super) fn class_condition() -> String {
    let all = "authorizer.group('').resource('configmaps')";
    format!(
        "(oldObject == null || object.spec != oldObject.spec) && has(object.spec.configs) && \
         !{all}.check('get').allowed() && object.spec.configs.exists(c, !c.apiVersion.contains('/') && \
         !{all}.namespace(c.namespace).name(c.name).check('get').allowed())"
    )
}
