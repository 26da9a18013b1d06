//! Admission policies: what they may say, and what they decide.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, config_map};
use crate::case::{Case, CaseError, Outcome, case};
use crate::conversation::{Ask, Conversation};

pub(super) const CASES: &[Case] = &[
    case!("policy-words", [57], words),
    case!("policy-errors", [57], errors),
    case!("policy-variables", [57], variables),
    case!("policy-conditions", [57], conditions),
    case!("policy-actions", [57], actions),
];

pub(super) const POLICIES: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// What becomes of a request that a policy was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// It is served.
    Allowed,
    /// It is served with this warning.
    Warned(&'static str),
    /// It is refused: 422 with these words.
    Denied(&'static str),
    /// It is refused with another code and reason.
    DeniedAs(u16, &'static str, &'static str),
}

use Then::{Allowed, Denied, DeniedAs, Warned};

/// A row: its name, which is that of its policy and object, and what its policy's specification
/// and its binding's have besides what all have.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) policy: Value,
    pub(super) binding: Value,
    pub(super) then: Then,
}

/// A row whose policy has one rule.
pub(super) fn rule(name: &'static str, expression: &str, then: Then) -> Row {
    ruled(name, &json!({ "expression": expression }), then)
}

fn ruled(name: &'static str, rule: &Value, then: Then) -> Row {
    row(name, json!({ "validations": [rule] }), then)
}

pub(super) fn row(name: &'static str, policy: Value, then: Then) -> Row {
    Row { name, policy, binding: json!({}), then }
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

/// Puts policies into effect. The last of all is a probe: when it objects, all others are in effect.
pub(super) async fn install(talk: &mut Conversation, rows: &[Row]) -> Outcome {
    for Row { name, policy: spec, binding: more, .. } in rows {
        install_one(talk, &policy(name, spec), &binding(name, more)).await?;
    }
    probe(talk, "probe").await
}

pub(super) async fn install_one(
    talk: &mut Conversation,
    policy: &Value,
    binding: &Value,
) -> Outcome {
    for (path, object) in [(POLICIES, policy), (BINDINGS, binding)] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        talk.delete_at_end(&format!("{path}/{name}"));
        talk.create(path, object).await?;
    }
    Ok(())
}

/// Waits until what was written before is in effect.
pub(super) async fn probe(talk: &mut Conversation, name: &str) -> Outcome {
    let spec = json!({ "validations": [{ "expression": "false" }] });
    for (path, object) in [(POLICIES, policy(name, &spec)), (BINDINGS, binding(name, &json!({})))] {
        talk.delete_at_end(&format!("{path}/{{ns}}-{name}"));
        talk.ask_unrecorded(Ask::post(path, &object)).await?.expect(201)?;
    }
    let ask = Ask::post(format!("{CONFIG_MAPS}?dryRun=All"), &config_map(name, "x"));
    talk.ask_until_unrecorded(ask, |answer| answer.status == 422).await.map(drop)
}

/// The words of a refusal by a row's policy.
fn refusal(talk: &Conversation, name: &str, why: &str) -> String {
    let who = talk.fill(&format!("'{{ns}}-{name}'"));
    let why = talk.fill(why);
    format!(
        "configmaps \"{name}\" is forbidden: ValidatingAdmissionPolicy {who} with binding {who} \
         denied request: {why}"
    )
}

/// Makes a config map for every row and checks what becomes of it.
pub(super) async fn ask_all(talk: &mut Conversation, rows: &[Row]) -> Outcome {
    install(talk, rows).await?;
    for Row { name, then, .. } in rows {
        let answer = talk.post(CONFIG_MAPS, &config_map(name, "x")).await?;
        match *then {
            Allowed => answer.expect(201)?.warns(&[])?,
            Warned(words) => {
                let who = talk.fill(&format!("'{{ns}}-{name}'"));
                let words = format!(
                    "Validation failed for ValidatingAdmissionPolicy {who} with binding {who}: \
                     {words}"
                );
                answer.expect(201)?.warns(&[&words])?;
            }
            Denied(why) => drop(answer.refused(422, "Invalid", &refusal(talk, name, why))?),
            DeniedAs(code, reason, why) => {
                answer.refused(code, reason, &refusal(talk, name, why))?;
            }
        }
    }
    Ok::<(), CaseError>(())
}

async fn words(talk: &mut Conversation) -> Outcome {
    let long = "'long' + [1,2,3,4,5,6,7,8,9,10].map(i, object.metadata.name).join('-------------')";
    ask_all(
        talk,
        &[
            rule("true", "true", Allowed),
            rule("false", "false", Denied("failed expression: false")),
            rule("spaces", "  false  ", Denied("failed expression: false")),
            ruled(
                "said",
                &json!({ "expression": "false", "message": " not this " }),
                Denied("not this"),
            ),
            ruled(
                "made",
                &json!({ "expression": "false", "messageExpression": "'no ' + object.metadata.name" }),
                Denied("no made"),
            ),
            ruled(
                "both",
                &json!({ "expression": "false", "message": "said", "messageExpression": "'made'" }),
                Denied("made"),
            ),
            ruled(
                "unmade",
                &json!({
                    "expression": "false", "message": "said",
                    "messageExpression": "string(object.spec.none)",
                }),
                Denied("said"),
            ),
            ruled(
                "empty",
                &json!({ "expression": "false", "messageExpression": "'  '" }),
                Denied("failed expression: false"),
            ),
            ruled(
                "lines",
                &json!({ "expression": "false", "message": "said", "messageExpression": "'a\\nb'" }),
                Denied("said"),
            ),
            ruled(
                "joined",
                &json!({ "expression": "false", "messageExpression": long }),
                Denied(
                    "longjoined-------------joined-------------joined-------------joined---------\
                     ----joined-------------joined-------------joined-------------joined----------\
                     ---joined-------------joined",
                ),
            ),
            ruled(
                "forbidden",
                &json!({ "expression": "false", "reason": "Forbidden" }),
                DeniedAs(403, "Forbidden", "failed expression: false"),
            ),
            ruled(
                "invalid",
                &json!({ "expression": "false", "reason": "Invalid" }),
                Denied("failed expression: false"),
            ),
            ruled(
                "large",
                &json!({ "expression": "false", "reason": "RequestEntityTooLarge" }),
                DeniedAs(413, "RequestEntityTooLarge", "failed expression: false"),
            ),
            row(
                "second",
                json!({ "validations": [
                    { "expression": "true", "message": "one" },
                    { "expression": "false", "message": "two", "reason": "Forbidden" },
                    { "expression": "false", "message": "three" },
                ] }),
                DeniedAs(403, "Forbidden", "two"),
            ),
        ],
    )
    .await
}

async fn errors(talk: &mut Conversation) -> Outcome {
    let ignoring = |expression: &str| json!({ "failurePolicy": "Ignore", "validations": [{ "expression": expression }] });
    ask_all(
        talk,
        &[
            rule(
                "no-key",
                "object.data.nokey == 'x'",
                Denied(
                    "expression 'object.data.nokey == 'x'' resulted in error: no such key: nokey",
                ),
            ),
            rule(
                "no-object",
                "object.spec.replicas == 1",
                Denied(
                    "expression 'object.spec.replicas == 1' resulted in error: no such key: spec",
                ),
            ),
            rule(
                "no-overload",
                "object.data.a > 3",
                Denied("expression 'object.data.a > 3' resulted in error: no such overload"),
            ),
            rule(
                "no-old",
                "oldObject.data.a == 'x'",
                Denied("expression 'oldObject.data.a == 'x'' resulted in error: no such key: data"),
            ),
            rule(
                "bounds",
                "[1, 2][int(size(object.data)) + 4] == 1",
                Denied(
                    "expression '[1, 2][int(size(object.data)) + 4] == 1' resulted in error: index \
                     out of bounds: 5",
                ),
            ),
            rule(
                "division",
                "1 / (size(object.data) - 1) == 1",
                Denied(
                    "expression '1 / (size(object.data) - 1) == 1' resulted in error: division by \
                     zero",
                ),
            ),
            rule("absorbed", "object.data.nokey == 'x' || true", Allowed),
            rule("tested", "!has(object.data.nokey)", Allowed),
            row("ignored", ignoring("object.data.nokey == 'x'"), Allowed),
            row("not-ignored", ignoring("false"), Denied("failed expression: false")),
            row(
                "ignored-first",
                json!({ "failurePolicy": "Ignore", "validations": [
                    { "expression": "object.data.nokey == 'x'" },
                    { "expression": "object.data.a == 'y'", "message": "second" },
                ] }),
                Denied("second"),
            ),
            rule(
                "expensive",
                "[1,2,3,4,5,6,7,8,9,10,11,12].all(a, [1,2,3,4,5,6,7,8,9,10,11,12].all(b, \
                 [1,2,3,4,5,6,7,8,9,10,11,12].all(c, [1,2,3,4,5,6,7,8,9,10,11,12].all(d, \
                 [1,2,3,4,5,6,7,8,9,10,11,12].all(e, a + b + c + d + e > 0)))))",
                Denied(
                    "expression '[1,2,3,4,5,6,7,8,9,10,11,12].all(a, \
                     [1,2,3,4,5,6,7,8,9,10,11,12].all(b, [1,2,3,4,5,6,7,8,9,10,11,12].all(c, \
                     [1,2,3,4,5,6,7,8,9,10,11,12].all(d, [1,2,3,4,5,6,7,8,9,10,11,12].all(e, a + b \
                     + c + d + e > 0)))))' resulted in error: operation cancelled: actual cost \
                     limit exceeded",
                ),
            ),
        ],
    )
    .await
}

async fn variables(talk: &mut Conversation) -> Outcome {
    let composed = |variables: Value, expression: &str| json!({ "variables": variables, "validations": [{ "expression": expression }] });
    ask_all(
        talk,
        &[
            row(
                "simple",
                composed(
                    json!([{ "name": "v", "expression": "object.data.a" }]),
                    "variables.v == 'x'",
                ),
                Allowed,
            ),
            row(
                "chained",
                composed(
                    json!([
                        { "name": "one", "expression": "object.data.a" },
                        { "name": "two", "expression": "variables.one + 'y'" },
                    ]),
                    "variables.two == 'xy' && variables.one.size() == 1",
                ),
                Allowed,
            ),
            row(
                "lazy",
                composed(
                    json!([{ "name": "broken", "expression": "object.spec.none" }]),
                    "true || variables.broken",
                ),
                Allowed,
            ),
            row(
                "branch",
                composed(
                    json!([{ "name": "broken", "expression": "object.spec.none" }]),
                    "object.data.a == 'x' ? true : variables.broken == 1",
                ),
                Allowed,
            ),
            row(
                "broken",
                composed(
                    json!([{ "name": "broken", "expression": "object.spec.none" }]),
                    "variables.broken == 1",
                ),
                Denied(
                    "expression 'variables.broken == 1' resulted in error: composited variable \
                     \"broken\" fails to evaluate: no such key: spec",
                ),
            ),
            row(
                "deep",
                composed(
                    json!([
                        { "name": "inner", "expression": "object.spec.none" },
                        { "name": "outer", "expression": "variables.inner + 1" },
                    ]),
                    "variables.outer == 1",
                ),
                Denied(
                    "expression 'variables.outer == 1' resulted in error: composited variable \
                     \"outer\" fails to evaluate: composited variable \"inner\" fails to evaluate: \
                     no such key: spec",
                ),
            ),
            row(
                "lists",
                composed(
                    json!([{ "name": "keys", "expression": "object.data.map(k, k)" }]),
                    "variables.keys == ['a'] && 'a' in variables.keys",
                ),
                Allowed,
            ),
            row(
                "worded",
                json!({
                    "variables": [{ "name": "v", "expression": "object.metadata.name + '!'" }],
                    "validations": [
                        { "expression": "false", "messageExpression": "'no ' + variables.v" },
                    ],
                }),
                Denied("no worded!"),
            ),
        ],
    )
    .await
}

async fn conditions(talk: &mut Conversation) -> Outcome {
    let under = |conditions: Value, failure: &str| {
        json!({
            "failurePolicy": failure, "matchConditions": conditions,
            "validations": [{ "expression": "false", "message": "asked" }],
        })
    };
    let met = json!({ "name": "met", "expression": "object.data.a == 'x'" });
    let unmet = json!({ "name": "unmet", "expression": "object.data.a == 'y'" });
    let broken = json!({ "name": "broken", "expression": "object.spec.none == 1" });
    ask_all(
        talk,
        &[
            row("met", under(json!([met]), "Fail"), Denied("asked")),
            row("unmet", under(json!([unmet]), "Fail"), Allowed),
            row("one-unmet", under(json!([met, unmet]), "Fail"), Allowed),
            row(
                "broken",
                under(json!([broken]), "Fail"),
                Denied("expression 'object.spec.none == 1' resulted in error: no such key: spec"),
            ),
            row("broken-ignored", under(json!([broken]), "Ignore"), Allowed),
            row("broken-met", under(json!([met, broken]), "Ignore"), Allowed),
            row("broken-unmet", under(json!([broken, unmet]), "Fail"), Allowed),
            row(
                "user",
                under(
                    json!([{ "name": "u", "expression": "request.userInfo.username == 'nobody'" }]),
                    "Fail",
                ),
                Allowed,
            ),
            row(
                "rights",
                under(
                    json!([{
                        "name": "r",
                        "expression": "!authorizer.requestResource.check('create').allowed()",
                    }]),
                    "Fail",
                ),
                Allowed,
            ),
        ],
    )
    .await
}

async fn actions(talk: &mut Conversation) -> Outcome {
    let refused = json!({ "validations": [{ "expression": "false", "message": "no" }] });
    let bound = |name, actions: Value, then| Row {
        name,
        policy: refused.clone(),
        binding: json!({ "validationActions": actions }),
        then,
    };
    let noted = |expression: &str, failure: &str| {
        json!({
            "failurePolicy": failure,
            "auditAnnotations": [{ "key": "note", "valueExpression": expression }],
        })
    };
    ask_all(
        talk,
        &[
            bound("deny", json!(["Deny"]), Denied("no")),
            bound("warn", json!(["Warn"]), Warned("no")),
            bound("audit", json!(["Audit"]), Allowed),
            bound("warn-audit", json!(["Warn", "Audit"]), Warned("no")),
            bound("deny-audit", json!(["Audit", "Deny"]), Denied("no")),
            row("note", noted("'made ' + object.metadata.name", "Fail"), Allowed),
            row("no-note", noted("null", "Fail"), Allowed),
            row(
                "broken-note",
                noted("string(object.spec.none)", "Fail"),
                Denied(
                    "expression 'string(object.spec.none)' resulted in error: no such key: spec",
                ),
            ),
            row("broken-note-ignored", noted("string(object.spec.none)", "Ignore"), Allowed),
            Row {
                name: "warned-error",
                policy: json!({ "validations": [{ "expression": "object.spec.none == 1" }] }),
                binding: json!({ "validationActions": ["Warn"] }),
                then: Warned(
                    "expression 'object.spec.none == 1' resulted in error: no such key: spec",
                ),
            },
        ],
    )
    .await
}
