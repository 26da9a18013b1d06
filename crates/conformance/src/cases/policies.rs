//! Admission policies: what they may say, and what they decide.

use serde_json::{Value, json};

use super::policy_case::Expected::{Allowed, Denied, DeniedAs, Warned};
use super::policy_case::{
    PolicyCase, case_with_expression, case_with_rule, create_and_check_all, policy_case,
};
use crate::case::{Case, Outcome, case};
use crate::session::Session;

pub(super) const CASES: &[Case] = &[
    case!("policy-words", [57], messages),
    case!("policy-errors", [57], errors),
    case!("policy-variables", [57], variables),
    case!("policy-conditions", [57], conditions),
    case!("policy-actions", [57], actions),
];

async fn messages(talk: &mut Session) -> Outcome {
    let long = "'long' + [1,2,3,4,5,6,7,8,9,10].map(i, object.metadata.name).join('-------------')";
    create_and_check_all(
        talk,
        &[
            case_with_expression("true", "true", Allowed),
            case_with_expression("false", "false", Denied("failed expression: false")),
            case_with_expression("spaces", "  false  ", Denied("failed expression: false")),
            case_with_rule(
                "said",
                &json!({ "expression": "false", "message": " not this " }),
                Denied("not this"),
            ),
            case_with_rule(
                "made",
                &json!({
                    "expression": "false", "messageExpression": "'no ' + object.metadata.name",
                }),
                Denied("no made"),
            ),
            case_with_rule(
                "both",
                &json!({ "expression": "false", "message": "said", "messageExpression": "'made'" }),
                Denied("made"),
            ),
            case_with_rule(
                "unmade",
                &json!({
                    "expression": "false", "message": "said",
                    "messageExpression": "string(object.spec.none)",
                }),
                Denied("said"),
            ),
            case_with_rule(
                "empty",
                &json!({ "expression": "false", "messageExpression": "'  '" }),
                Denied("failed expression: false"),
            ),
            case_with_rule(
                "lines",
                &json!({
                    "expression": "false", "message": "said", "messageExpression": "'a\\nb'",
                }),
                Denied("said"),
            ),
            case_with_rule(
                "joined",
                &json!({ "expression": "false", "messageExpression": long }),
                Denied(
                    "longjoined-------------joined-------------joined-------------joined---------\
                     ----joined-------------joined-------------joined-------------joined----------\
                     ---joined-------------joined",
                ),
            ),
            case_with_rule(
                "forbidden",
                &json!({ "expression": "false", "reason": "Forbidden" }),
                DeniedAs(403, "Forbidden", "failed expression: false"),
            ),
            case_with_rule(
                "invalid",
                &json!({ "expression": "false", "reason": "Invalid" }),
                Denied("failed expression: false"),
            ),
            case_with_rule(
                "large",
                &json!({ "expression": "false", "reason": "RequestEntityTooLarge" }),
                DeniedAs(413, "RequestEntityTooLarge", "failed expression: false"),
            ),
            policy_case(
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

async fn errors(talk: &mut Session) -> Outcome {
    let ignoring = |expression: &str| {
        json!({
            "failurePolicy": "Ignore", "validations": [{ "expression": expression }],
        })
    };
    create_and_check_all(
        talk,
        &[
            case_with_expression(
                "no-key",
                "object.data.nokey == 'x'",
                Denied(
                    "expression 'object.data.nokey == 'x'' resulted in error: no such key: nokey",
                ),
            ),
            case_with_expression(
                "no-object",
                "object.spec.replicas == 1",
                Denied(
                    "expression 'object.spec.replicas == 1' resulted in error: no such key: spec",
                ),
            ),
            case_with_expression(
                "no-overload",
                "object.data.a > 3",
                Denied("expression 'object.data.a > 3' resulted in error: no such overload"),
            ),
            case_with_expression(
                "no-old",
                "oldObject.data.a == 'x'",
                Denied("expression 'oldObject.data.a == 'x'' resulted in error: no such key: data"),
            ),
            case_with_expression(
                "bounds",
                "[1, 2][int(size(object.data)) + 4] == 1",
                Denied(
                    "expression '[1, 2][int(size(object.data)) + 4] == 1' resulted in error: index \
                     out of bounds: 5",
                ),
            ),
            case_with_expression(
                "division",
                "1 / (size(object.data) - 1) == 1",
                Denied(
                    "expression '1 / (size(object.data) - 1) == 1' resulted in error: division by \
                     zero",
                ),
            ),
            case_with_expression("absorbed", "object.data.nokey == 'x' || true", Allowed),
            case_with_expression("tested", "!has(object.data.nokey)", Allowed),
            policy_case("ignored", ignoring("object.data.nokey == 'x'"), Allowed),
            policy_case("not-ignored", ignoring("false"), Denied("failed expression: false")),
            policy_case(
                "ignored-first",
                json!({ "failurePolicy": "Ignore", "validations": [
                    { "expression": "object.data.nokey == 'x'" },
                    { "expression": "object.data.a == 'y'", "message": "second" },
                ] }),
                Denied("second"),
            ),
            case_with_expression(
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

async fn variables(talk: &mut Session) -> Outcome {
    let composed = |variables: Value, expression: &str| {
        json!({
            "variables": variables, "validations": [{ "expression": expression }],
        })
    };
    create_and_check_all(
        talk,
        &[
            policy_case(
                "simple",
                composed(
                    json!([{ "name": "v", "expression": "object.data.a" }]),
                    "variables.v == 'x'",
                ),
                Allowed,
            ),
            policy_case(
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
            policy_case(
                "lazy",
                composed(
                    json!([{ "name": "broken", "expression": "object.spec.none" }]),
                    "true || variables.broken",
                ),
                Allowed,
            ),
            policy_case(
                "branch",
                composed(
                    json!([{ "name": "broken", "expression": "object.spec.none" }]),
                    "object.data.a == 'x' ? true : variables.broken == 1",
                ),
                Allowed,
            ),
            policy_case(
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
            policy_case(
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
            policy_case(
                "lists",
                composed(
                    json!([{ "name": "keys", "expression": "object.data.map(k, k)" }]),
                    "variables.keys == ['a'] && 'a' in variables.keys",
                ),
                Allowed,
            ),
            policy_case(
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

async fn conditions(talk: &mut Session) -> Outcome {
    let under = |conditions: Value, failure: &str| {
        json!({
            "failurePolicy": failure, "matchConditions": conditions,
            "validations": [{ "expression": "false", "message": "asked" }],
        })
    };
    let met = json!({ "name": "met", "expression": "object.data.a == 'x'" });
    let unmet = json!({ "name": "unmet", "expression": "object.data.a == 'y'" });
    let broken = json!({ "name": "broken", "expression": "object.spec.none == 1" });
    create_and_check_all(
        talk,
        &[
            policy_case("met", under(json!([met]), "Fail"), Denied("asked")),
            policy_case("unmet", under(json!([unmet]), "Fail"), Allowed),
            policy_case("one-unmet", under(json!([met, unmet]), "Fail"), Allowed),
            policy_case(
                "broken",
                under(json!([broken]), "Fail"),
                Denied("expression 'object.spec.none == 1' resulted in error: no such key: spec"),
            ),
            policy_case("broken-ignored", under(json!([broken]), "Ignore"), Allowed),
            policy_case("broken-met", under(json!([met, broken]), "Ignore"), Allowed),
            policy_case("broken-unmet", under(json!([broken, unmet]), "Fail"), Allowed),
            policy_case(
                "user",
                under(
                    json!([{ "name": "u", "expression": "request.userInfo.username == 'nobody'" }]),
                    "Fail",
                ),
                Allowed,
            ),
            policy_case(
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

async fn actions(talk: &mut Session) -> Outcome {
    let refused = json!({ "validations": [{ "expression": "false", "message": "no" }] });
    let bound = |name, actions: Value, then| PolicyCase {
        name,
        policy: refused.clone(),
        binding: json!({ "validationActions": actions }),
        expected: then,
    };
    let noted = |expression: &str, failure: &str| {
        json!({
            "failurePolicy": failure,
            "auditAnnotations": [{ "key": "note", "valueExpression": expression }],
        })
    };
    create_and_check_all(
        talk,
        &[
            bound("deny", json!(["Deny"]), Denied("no")),
            bound("warn", json!(["Warn"]), Warned("no")),
            bound("audit", json!(["Audit"]), Allowed),
            bound("warn-audit", json!(["Warn", "Audit"]), Warned("no")),
            bound("deny-audit", json!(["Audit", "Deny"]), Denied("no")),
            policy_case("note", noted("'made ' + object.metadata.name", "Fail"), Allowed),
            policy_case("no-note", noted("null", "Fail"), Allowed),
            policy_case(
                "broken-note",
                noted("string(object.spec.none)", "Fail"),
                Denied(
                    "expression 'string(object.spec.none)' resulted in error: no such key: spec",
                ),
            ),
            policy_case(
                "broken-note-ignored",
                noted("string(object.spec.none)", "Ignore"),
                Allowed,
            ),
            PolicyCase {
                name: "warned-error",
                policy: json!({ "validations": [{ "expression": "object.spec.none == 1" }] }),
                binding: json!({ "validationActions": ["Warn"] }),
                expected: Warned(
                    "expression 'object.spec.none == 1' resulted in error: no such key: spec",
                ),
            },
        ],
    )
    .await
}
