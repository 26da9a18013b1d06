//! Checks whether a user may have a ConfigMap copied into the status of claims.
//!
//! The allocator reads it with its own rights, and every user that can read the claim can read the
//! copy. So a user that names a ConfigMap must be able to read it. The server knows the rights of
//! the user: it evaluates [`match_condition`] by itself, and calls the webhook only for requests
//! whose author may not.

use serde_json::Value;

use super::{AdmissionResponse, changes_content};

/// Denies an object that names a ConfigMap. The server calls this only for authors that may not
/// read it.
pub(super) fn deny(object: &Value, request: &Value) -> AdmissionResponse {
    let named = changes_content(request)
        .then(|| find_config_map_reference("spec", &object["spec"]))
        .flatten();
    let own = object["metadata"]["namespace"].as_str();
    let refused = named.map(|(path, config)| {
        let name = config["name"].as_str().unwrap_or_default();
        let namespace = config["namespace"].as_str().or(own).unwrap_or_default();
        format!(
            "{path}: Forbidden: ConfigMap {namespace}/{name} would be copied into the status of \
             claims, and you may not get ConfigMaps there; have that right granted in namespace \
             {namespace:?}, or remove the reference"
        )
    });
    AdmissionResponse { denied: refused, forbidden: true, ..AdmissionResponse::default() }
}

/// Returns the first reference to a ConfigMap below a field, and its path. Every list called
/// `configs` is one of references, whatever form the claim has.
fn find_config_map_reference<'a>(path: &str, value: &'a Value) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match value.as_array().filter(|_| name == "configs") {
                Some(configs) => configs.iter().enumerate().find_map(|(at, config)| {
                    let is_core = config["apiVersion"].as_str().is_none_or(|it| !it.contains('/'));
                    is_core.then(|| (format!("{path}[{at}]"), config))
                }),
                None => find_config_map_reference(&path, value),
            }
        }),
        Value::Array(list) => {
            let mut list = list.iter().enumerate();
            list.find_map(|(at, value)| find_config_map_reference(&format!("{path}[{at}]"), value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns the CEL condition for objects in a namespace: the object has new references, and its
/// author may not read the ConfigMaps of the namespace. One right for all of them is checked: a
/// check of each would cost more than a server grants an expression.
pub(super) fn match_condition() -> String {
    let configs = |of: &str| format!("(has({of}.configs) && size({of}.configs) > 0)");
    let claim = |of: &str| {
        format!(
            "({} || (has({of}.claims) && {of}.claims.exists(t, {} || (has(t.oneOf) && \
             t.oneOf.exists(a, {})))))",
            configs(of),
            configs("t"),
            configs("a"),
        )
    };
    format!(
        "(oldObject == null || object.spec != oldObject.spec) && ({} || \
         (has(object.spec.claimSpec) && {}) || (has(object.spec.privilegedClaimSpec) && {})) && \
         !authorizer.group('').resource('configmaps').namespace(request.namespace).check('get').allowed()",
        claim("object.spec"),
        claim("object.spec.claimSpec"),
        configs("object.spec.privilegedClaimSpec"),
    )
}

/// Returns the same condition for a class, whose references name their namespaces. The right to
/// read all ConfigMaps is checked once.
pub(super) fn class_match_condition() -> String {
    let all = "authorizer.group('').resource('configmaps')";
    format!(
        "(oldObject == null || object.spec != oldObject.spec) && has(object.spec.configs) && \
         !{all}.check('get').allowed() && object.spec.configs.exists(c, \
         !c.apiVersion.contains('/') && \
         !{all}.namespace(c.namespace).name(c.name).check('get').allowed())"
    )
}
