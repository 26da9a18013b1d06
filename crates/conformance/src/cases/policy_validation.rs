//! Admission policies and bindings: what is refused when they are written.

use serde_json::{Value, json};

use super::objects::with_query;
use super::policy_case::{BINDINGS, POLICIES, binding, merged, policy};
use crate::case::{Case, Outcome, case};
use crate::session::Session;

pub(super) const CASES: &[Case] = &[
    case!("policy-expressions-refused", [57], expressions),
    case!("policy-fields-refused", [57], fields),
    case!("policy-rules-refused", [57], rules),
    case!("policy-bindings-refused", [57], bindings),
    case!("policy-defaults", [57], defaults),
    case!("policy-changes", [57], changes),
];

/// Writes a policy that is refused; both servers must say the same.
async fn refused(talk: &mut Session, spec: &Value) -> Outcome {
    let answer = talk.post(&with_query(POLICIES, "dryRun=All"), &policy("p", spec)).await?;
    answer.expect(422).map(drop)
}

async fn expressions(talk: &mut Session) -> Outcome {
    let rules = [
        "object.",
        "object.a ==",
        "a b",
        "'unclosed",
        "objekt.data.a == 'x'",
        "object.data.a",
        "'text'",
        "1 + 1",
        "[true]",
        "{'a': 1}",
        "null",
        "1 + 'a' == 2",
        "size(1) == 1",
        "nosuch(object)",
        "object.data.nosuch()",
        "request.nosuch == 'x'",
        "request.userInfo.nosuch == 'x'",
        "request.name == 1",
        "request.dryRun == 'x'",
        "namespaceObject.metadata.uid == 'x'",
        "namespaceObject.spec.none == 'x'",
        "params.x == 'y'",
        "variables.x == 'y'",
        "authorizer.group('').check('x').allowed()",
        "authorizer.check('x').allowed()",
        "authorizer.requestResource.check('get')",
        "authorizer.requestResource.check('get').reason()",
        "object.data.a.matches('[')",
        "timestamp('x') == timestamp('y')",
        "true ? 1 : 'a'",
        "[1, 'a'].size() == 2",
        "object.all(a)",
        "has(object)",
        "true &&\n  objekt",
    ];
    for expression in rules {
        refused(talk, &json!({ "validations": [{ "expression": expression }] })).await?;
    }
    let messages =
        ["1", "object.data.a", "authorizer.path('/x').check('get').reason()", "'a' +", " "];
    for expression in messages {
        let rule = json!({ "expression": "true", "messageExpression": expression });
        refused(talk, &json!({ "validations": [rule] })).await?;
    }
    for expression in
        ["object.data.a == 'x' &&", "variables.v == 'x'", "'a'", "params.a == 1", "  "]
    {
        let spec = json!({
            "matchConditions": [{ "name": "c", "expression": expression }],
            "variables": [{ "name": "v", "expression": "'x'" }],
            "validations": [{ "expression": "true" }],
        });
        refused(talk, &spec).await?;
    }
    for expression in ["object.", "variables.later", "variables.v", ""] {
        let spec = json!({
            "variables": [
                { "name": "v", "expression": expression },
                { "name": "later", "expression": "'x'" },
            ],
            "validations": [{ "expression": "true" }],
        });
        refused(talk, &spec).await?;
    }
    for expression in ["1", "object.data.a", "true", "'a' +"] {
        let annotation = json!({ "key": "k", "valueExpression": expression });
        refused(talk, &json!({ "auditAnnotations": [annotation] })).await?;
    }
    let typed = json!({
        "variables": [{ "name": "v", "expression": "'x'" }],
        "validations": [{ "expression": "variables.v == 1" }, { "expression": "variables.w == 1" }],
    });
    refused(talk, &typed).await
}

async fn fields(talk: &mut Session) -> Outcome {
    let fine = json!({ "validations": [{ "expression": "true" }] });
    let rows = [
        json!({ "failurePolicy": "Maybe" }),
        json!({ "paramKind": {} }),
        json!({ "paramKind": { "apiVersion": "a/b/c", "kind": "K" } }),
        json!({ "paramKind": { "apiVersion": "Bad_/v1", "kind": "K" } }),
        json!({ "paramKind": { "apiVersion": "v1", "kind": "No Kind" } }),
        json!({ "paramKind": { "apiVersion": "g.test/1", "kind": "K" } }),
        json!({ "matchConditions": [{ "expression": "true" }] }),
        json!({ "matchConditions": [{ "name": "bad name", "expression": "true" }] }),
        json!({ "matchConditions": [
            { "name": "a", "expression": "true" }, { "name": "a", "expression": "true" },
        ] }),
        json!({ "matchConditions": [{ "name": "a" }] }),
        json!({ "variables": [{ "name": "", "expression": "1" }] }),
        json!({ "variables": [{ "name": "1a", "expression": "1" }] }),
        json!({ "variables": [{ "name": "namespace", "expression": "1" }] }),
        json!({ "variables": [{ "name": "a", "expression": " " }] }),
        json!({ "validations": [] }),
        json!({ "validations": [{ "expression": "" }] }),
        json!({ "validations": [{ "expression": "true", "message": " " }] }),
        json!({ "validations": [{ "expression": "true", "message": "a\nb" }] }),
        json!({ "validations": [{ "expression": "true", "reason": "Because" }] }),
        json!({ "validations": [{ "expression": "true", "reason": "Unauthorized" }] }),
        json!({ "auditAnnotations": [{ "key": "", "valueExpression": "'x'" }] }),
        json!({ "auditAnnotations": [{ "key": "bad key", "valueExpression": "'x'" }] }),
        json!({ "auditAnnotations": [{ "key": "k", "valueExpression": "" }] }),
        json!({ "auditAnnotations": [
            { "key": "k", "valueExpression": "'x'" }, { "key": "k", "valueExpression": "'y'" },
        ] }),
    ];
    for more in rows {
        refused(talk, &merged(fine.clone(), &more)).await?;
    }
    let nothing = json!({ "metadata": { "name": "{ns}-p" }, "spec": {} });
    talk.post(POLICIES, &nothing).await?.expect(422)?;
    Ok(())
}

async fn rules(talk: &mut Session) -> Outcome {
    let rule = |more: Value| {
        let base = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"],
        });
        json!({ "resourceRules": [merged(base, &more)] })
    };
    let rows = [
        json!({ "resourceRules": [] }),
        rule(json!({ "operations": [] })),
        rule(json!({ "operations": ["*", "CREATE"] })),
        rule(json!({ "operations": ["PATCH"] })),
        rule(json!({ "apiGroups": [] })),
        rule(json!({ "apiGroups": ["*", ""] })),
        rule(json!({ "apiVersions": [] })),
        rule(json!({ "apiVersions": ["*", "v1"] })),
        rule(json!({ "apiVersions": [""] })),
        rule(json!({ "resources": [] })),
        rule(json!({ "resources": [""] })),
        rule(json!({ "resources": ["*/*", "pods"] })),
        rule(json!({ "resources": ["*", "pods"] })),
        rule(json!({ "resources": ["pods/*", "pods/status"] })),
        rule(json!({ "resources": ["*/status", "pods/status"] })),
        rule(json!({ "scope": "Global" })),
        rule(json!({ "resourceNames": ["a", "a"] })),
        rule(json!({ "resourceNames": ["a/b"] })),
        merged(rule(json!({})), &json!({ "matchPolicy": "Loose" })),
        merged(
            rule(json!({})),
            &json!({ "objectSelector": { "matchLabels": { "bad key": "x" } } }),
        ),
        merged(
            rule(json!({})),
            &json!({ "namespaceSelector": { "matchExpressions": [
                { "key": "a", "operator": "Near" },
            ] } }),
        ),
        merged(rule(json!({})), &json!({ "excludeResourceRules": [{ "operations": ["*"] }] })),
    ];
    for constraints in rows {
        let spec = json!({
            "matchConstraints": constraints, "validations": [{ "expression": "true" }],
        });
        refused(talk, &spec).await?;
    }
    Ok(())
}

async fn bindings(talk: &mut Session) -> Outcome {
    let reference = |more: Value| json!({ "paramRef": more });
    let rows = [
        json!({ "policyName": "" }),
        json!({ "policyName": "Bad_Name" }),
        json!({ "validationActions": [] }),
        json!({ "validationActions": ["Deny", "Warn"] }),
        json!({ "validationActions": ["Deny", "Deny"] }),
        json!({ "validationActions": ["Refuse"] }),
        reference(json!({ "parameterNotFoundAction": "Deny" })),
        reference(json!({ "name": "a" })),
        reference(json!({ "name": "a", "parameterNotFoundAction": "Ask" })),
        reference(json!({ "name": "a", "selector": {}, "parameterNotFoundAction": "Deny" })),
        reference(json!({ "name": "a/b", "parameterNotFoundAction": "Allow" })),
        reference(json!({
            "selector": { "matchLabels": { "a": "bad value" } }, "parameterNotFoundAction": "Allow",
        })),
        json!({ "matchResources": { "matchPolicy": "Loose" } }),
        json!({ "matchResources": { "resourceRules": [{ "operations": ["*"] }] } }),
    ];
    for more in rows {
        let path = with_query(BINDINGS, "dryRun=All");
        talk.post(&path, &binding("b", &more)).await?.expect(422)?;
    }
    Ok(())
}

async fn defaults(talk: &mut Session) -> Outcome {
    let spec = json!({
        "matchConstraints": {
            "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"], "resourceNames": ["none"],
            }],
            "excludeResourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["*"],
            }],
        },
        "validations": [{ "expression": "true" }],
    });
    let path = with_query(POLICIES, "dryRun=All");
    let answer = talk.create(&path, &policy("p", &spec)).await?;
    answer.has_values(&[
        ("/spec/failurePolicy", json!("Fail")),
        ("/spec/matchConstraints/matchPolicy", json!("Equivalent")),
        ("/spec/matchConstraints/resourceRules/0/scope", json!("*")),
        ("/metadata/generation", json!(1)),
    ])?;
    let path = with_query(BINDINGS, "dryRun=All");
    talk.create(&path, &binding("b", &json!({ "matchResources": {} }))).await?;
    Ok(())
}

async fn changes(talk: &mut Session) -> Outcome {
    use crate::session::PatchType;
    let spec = json!({ "validations": [{ "expression": "true" }] });
    let path = format!("{POLICIES}/{{ns}}-p");
    talk.delete_at_end(&path);
    talk.create(POLICIES, &policy("p", &spec)).await?;
    let wrong = json!({ "spec": { "validations": [{ "expression": "object." }] } });
    talk.patch(&path, PatchType::Merge, &wrong).await?.expect(422)?;
    let other = json!({ "spec": { "validations": [{ "expression": "1 == 1" }] } });
    let answer = talk.patch(&path, PatchType::Merge, &other).await?.expect(200)?;
    answer.has_value("/metadata/generation", &json!(2))?;
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let answer = talk.patch(&path, PatchType::Merge, &label).await?.expect(200)?;
    answer.has_value("/metadata/generation", &json!(2))?;
    let status = json!({ "status": { "observedGeneration": 2 } });
    talk.patch(&format!("{path}/status"), PatchType::Merge, &status).await?.expect(200)?;
    talk.delete(&path).await?.expect(200)?;
    Ok(())
}
