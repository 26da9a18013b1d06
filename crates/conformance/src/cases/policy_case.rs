//! Admission policies: rows that install a policy and say what becomes of a request.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, config_map};
use crate::case::{CaseError, Outcome};
use crate::session::{RequestSpec, Session};

pub(super) const POLICIES: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// What becomes of a request that a policy was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// It is served.
    Allowed,
    /// It is served with this warning.
    Warned(&'static str),
    /// It is refused: 422 with these words.
    Denied(&'static str),
    /// It is refused with another code and reason.
    DeniedAs(u16, &'static str, &'static str),
}

use Expected::{Allowed, Denied, DeniedAs, Warned};

/// A row: its name, which is that of its policy and object, and what its policy's specification
/// and its binding's have besides what all have.
pub(super) struct PolicyCase {
    pub(super) name: &'static str,
    pub(super) policy: Value,
    pub(super) binding: Value,
    pub(super) expected: Expected,
}

/// A row whose policy has one rule.
pub(super) fn case_with_expression(
    name: &'static str,
    expression: &str,
    then: Expected,
) -> PolicyCase {
    case_with_rule(name, &json!({ "expression": expression }), then)
}

pub(super) fn case_with_rule(name: &'static str, rule: &Value, then: Expected) -> PolicyCase {
    policy_case(name, json!({ "validations": [rule] }), then)
}

pub(super) fn policy_case(name: &'static str, policy: Value, then: Expected) -> PolicyCase {
    PolicyCase { name, policy, binding: json!({}), expected: then }
}

/// Adds and replaces fields.
pub(super) fn merged(mut base: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        base[name] = value.clone();
    }
    base
}

/// A selector of the case's own namespace.
pub(super) fn own_namespace() -> Value {
    json!({ "matchLabels": { "kubernetes.io/metadata.name": "{ns}" } })
}

/// A policy about config maps of one name in the case's namespace.
pub(super) fn policy(name: &str, spec: &Value) -> Value {
    let base = json!({
        "matchConstraints": {
            "namespaceSelector": own_namespace(),
            "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"], "resourceNames": [name],
            }],
        },
    });
    json!({ "metadata": { "name": format!("{{ns}}-{name}") }, "spec": merged(base, spec) })
}

pub(super) fn binding(name: &str, spec: &Value) -> Value {
    let name = format!("{{ns}}-{name}");
    let base = json!({ "policyName": name, "validationActions": ["Deny"] });
    json!({ "metadata": { "name": name }, "spec": merged(base, spec) })
}

/// Puts policies into effect. The last of all is a probe: when it objects, all others are in
/// effect.
pub(super) async fn install_all(talk: &mut Session, rows: &[PolicyCase]) -> Outcome {
    for PolicyCase { name, policy: spec, binding: more, .. } in rows {
        install_one(talk, &policy(name, spec), &binding(name, more)).await?;
    }
    probe(talk, "probe").await
}

pub(super) async fn install_one(talk: &mut Session, policy: &Value, binding: &Value) -> Outcome {
    for (path, object) in [(POLICIES, policy), (BINDINGS, binding)] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        talk.delete_at_end(&format!("{path}/{name}"));
        talk.create(path, object).await?;
    }
    Ok(())
}

/// Waits until what was written before is in effect.
pub(super) async fn probe(talk: &mut Session, name: &str) -> Outcome {
    let spec = json!({ "validations": [{ "expression": "false" }] });
    for (path, object) in [(POLICIES, policy(name, &spec)), (BINDINGS, binding(name, &json!({})))] {
        talk.delete_at_end(&format!("{path}/{{ns}}-{name}"));
        talk.send_unrecorded(RequestSpec::post(path, &object)).await?.expect(201)?;
    }
    let ask = RequestSpec::post(format!("{CONFIG_MAPS}?dryRun=All"), &config_map(name, "x"));
    talk.send_until_unrecorded(ask, |answer| answer.status == 422).await.map(drop)
}

/// The words of a refusal by a row's policy.
fn denial_message(talk: &Session, name: &str, why: &str) -> String {
    let who = talk.with_namespace(&format!("'{{ns}}-{name}'"));
    let why = talk.with_namespace(why);
    format!(
        "configmaps \"{name}\" is forbidden: ValidatingAdmissionPolicy {who} with binding {who} \
         denied request: {why}"
    )
}

/// Makes a config map for every row and checks what becomes of it.
pub(super) async fn create_and_check_all(talk: &mut Session, rows: &[PolicyCase]) -> Outcome {
    install_all(talk, rows).await?;
    for PolicyCase { name, expected: then, .. } in rows {
        let answer = talk.post(CONFIG_MAPS, &config_map(name, "x")).await?;
        match *then {
            Allowed => answer.expect(201)?.has_warnings(&[])?,
            Warned(words) => {
                let who = talk.with_namespace(&format!("'{{ns}}-{name}'"));
                let words = format!(
                    "Validation failed for ValidatingAdmissionPolicy {who} with binding {who}: \
                     {words}"
                );
                answer.expect(201)?.has_warnings(&[&words])?;
            }
            Denied(why) => {
                drop(answer.expect_error(422, "Invalid", &denial_message(talk, name, why))?);
            }
            DeniedAs(code, reason, why) => {
                answer.expect_error(code, reason, &denial_message(talk, name, why))?;
            }
        }
    }
    Ok::<(), CaseError>(())
}
