//! Admission policies: which requests they are asked about, and with which parameters.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, labelled, object_path, pod,
};
use super::objects::{WIDGETS, define_widgets, widget};
use super::objects::{service_account, with_query};
use super::policy_case::{
    BINDINGS, Expected, POLICIES, PolicyCase, binding, install_all, install_one, merged,
    own_namespace, policy, probe,
};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("policy-rules", [57], rules),
    case!("policy-operations", [57], operations),
    case!("policy-parts", [57], subresources),
    case!("policy-equivalents", [57], equivalents),
    case!("policy-namespaces", [57], namespaces),
    case!("policy-params", [57], params),
    case!("policy-bindings", [57], bindings),
    case!("policy-exempt", [57], exempt),
];

/// A policy that objects to all it is asked about, under the given constraints.
fn deny_all_case(name: &'static str, constraints: &Value, then: Expected) -> PolicyCase {
    let own = json!({ "namespaceSelector": own_namespace() });
    let policy = json!({
        "matchConstraints": merged(own, constraints),
        "validations": [{ "expression": "false", "message": "no" }],
    });
    PolicyCase { name, policy, binding: json!({}), expected: then }
}

fn match_constraints(more: &Value) -> Value {
    let base = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    });
    merged(base, more)
}

async fn rules(talk: &mut Session) -> Outcome {
    let no = Expected::Denied("no");
    let named = |name: &str, more: &Value| {
        json!({
            "resourceRules": [merged(match_constraints(more), &json!({ "resourceNames": [name] }))],
        })
    };
    let constrained = |name: &str, more: &Value| merged(named(name, &json!({})), more);
    let table = [
        deny_all_case("all-groups", &named("all-groups", &json!({ "apiGroups": ["*"] })), no),
        deny_all_case(
            "other-group",
            &named("other-group", &json!({ "apiGroups": ["apps"] })),
            Expected::Allowed,
        ),
        deny_all_case("all-versions", &named("all-versions", &json!({ "apiVersions": ["*"] })), no),
        deny_all_case(
            "other-version",
            &named("other-version", &json!({ "apiVersions": ["v2"] })),
            Expected::Allowed,
        ),
        deny_all_case("all-resources", &named("all-resources", &json!({ "resources": ["*"] })), no),
        deny_all_case("all-parts", &named("all-parts", &json!({ "resources": ["*/*"] })), no),
        deny_all_case(
            "own-parts",
            &named("own-parts", &json!({ "resources": ["configmaps/*"] })),
            no,
        ),
        deny_all_case(
            "only-part",
            &named("only-part", &json!({ "resources": ["configmaps/x"] })),
            Expected::Allowed,
        ),
        deny_all_case(
            "others",
            &named("others", &json!({ "resources": ["secrets"] })),
            Expected::Allowed,
        ),
        deny_all_case(
            "all-operations",
            &named("all-operations", &json!({ "operations": ["*"] })),
            no,
        ),
        deny_all_case(
            "update",
            &named("update", &json!({ "operations": ["UPDATE", "DELETE"] })),
            Expected::Allowed,
        ),
        deny_all_case("namespaced", &named("namespaced", &json!({ "scope": "Namespaced" })), no),
        deny_all_case(
            "cluster",
            &named("cluster", &json!({ "scope": "Cluster" })),
            Expected::Allowed,
        ),
        deny_all_case(
            "excluded",
            &constrained(
                "excluded",
                &json!({ "excludeResourceRules": [match_constraints(&json!({}))] }),
            ),
            Expected::Allowed,
        ),
        deny_all_case(
            "other-excluded",
            &constrained(
                "other-excluded",
                &json!({
                    "excludeResourceRules": [match_constraints(&json!({ "resourceNames": ["x"] }))],
                }),
            ),
            no,
        ),
        deny_all_case(
            "labelled",
            &constrained("labelled", &json!({ "objectSelector": { "matchLabels": { "a": "b" } } })),
            no,
        ),
        deny_all_case(
            "not-labelled",
            &constrained(
                "not-labelled",
                &json!({ "objectSelector": { "matchLabels": { "a": "c" } } }),
            ),
            Expected::Allowed,
        ),
        deny_all_case(
            "expressed",
            &constrained(
                "expressed",
                &json!({ "objectSelector": { "matchExpressions": [
                    { "key": "a", "operator": "In", "values": ["b"] },
                    { "key": "z", "operator": "DoesNotExist" },
                ] } }),
            ),
            no,
        ),
        deny_all_case(
            "elsewhere",
            &constrained(
                "elsewhere",
                &json!({ "namespaceSelector": { "matchLabels": { "no": "such" } } }),
            ),
            Expected::Allowed,
        ),
    ];
    install_all(talk, &table).await?;
    for PolicyCase { name, expected: then, .. } in &table {
        let answer = talk.post(CONFIG_MAPS, &labelled(name, &json!({ "a": "b" }))).await?;
        let code = if matches!(then, Expected::Allowed) { 201 } else { 422 };
        answer.expect(code)?;
    }
    Ok(())
}

/// A policy about everything that is done to objects of one resource in the case's namespace.
async fn install_guard_policy(
    talk: &mut Session,
    name: &str,
    rule: &Value,
    expression: &str,
    worded: &str,
) -> Outcome {
    let spec = json!({
        "matchConstraints": { "namespaceSelector": own_namespace(), "resourceRules": [rule] },
        "validations": [{ "expression": expression, "messageExpression": worded }],
    });
    install_one(talk, &policy(name, &spec), &binding(name, &json!({}))).await
}

const OPERATION_MESSAGE_EXPRESSION: &str = "request.operation + ' ' + string(object == null) + ' ' \
                                            + string(oldObject == null) + ' ' + \
                                            request.options.kind";

async fn operations(talk: &mut Session) -> Outcome {
    let rule = match_constraints(&json!({ "operations": ["*"] }));
    let held = "!(object != null ? object : oldObject).metadata.name.startsWith('held')";
    talk.create(CONFIG_MAPS, &config_map("held-one", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("held-two", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("free", "x")).await?;
    install_guard_policy(talk, "guard", &rule, held, OPERATION_MESSAGE_EXPRESSION).await?;
    probe(talk, "probe").await?;
    let change = json!({ "data": { "a": "y" } });
    let one = object_path(CONFIG_MAPS, "held-one");
    talk.post(CONFIG_MAPS, &config_map("held-three", "x")).await?.expect(422)?;
    talk.put(&one, &config_map("held-one", "y")).await?.expect(422)?;
    talk.patch(&one, PatchType::Merge, &change).await?.expect(422)?;
    talk.patch(&one, PatchType::Strategic, &change).await?.expect(422)?;
    let operations = json!([{ "op": "replace", "path": "/data/a", "value": "y" }]);
    talk.patch(&one, PatchType::Json, &operations).await?.expect(422)?;
    let applied = with_query(&one, "fieldManager=m&force=true");
    talk.patch(&applied, PatchType::Apply, &config_map("held-one", "y")).await?.expect(422)?;
    let new = with_query(&object_path(CONFIG_MAPS, "held-new"), "fieldManager=m");
    talk.patch(&new, PatchType::Apply, &config_map("held-new", "y")).await?.expect(422)?;
    // A change that changes nothing is asked about too.
    talk.patch(&one, PatchType::Merge, &json!({})).await?.expect(422)?;
    talk.delete(&one).await?.expect(422)?;
    talk.delete(&with_query(&one, "dryRun=All")).await?.expect(422)?;
    let free = object_path(CONFIG_MAPS, "free");
    talk.patch(&free, PatchType::Merge, &change).await?.expect(200)?;
    talk.delete(&free).await?.expect(200)?;
    let generated = json!({ "metadata": { "generateName": "held-" } });
    talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &generated)).await?.expect(422)?;
    Ok(())
}

async fn subresources(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    talk.create(PODS, &pod("p")).await?;
    let said = "request.subResource + ' ' + request.kind.kind + ' ' + request.operation";
    let scale = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["deployments/scale"],
    });
    install_guard_policy(talk, "scale", &scale, "object.spec.replicas < 5", said).await?;
    let status = json!({
        "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["*/status"],
    });
    install_guard_policy(talk, "status", &status, "object.metadata.name == 'free'", said).await?;
    let pods = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["pods/eviction", "pods/exec", "pods/attach", "pods/portforward"],
    });
    let worded = "request.subResource + ' ' + request.kind.group + '/' + request.kind.version + \
                  '.' + request.kind.kind + ' ' + request.operation + ' ' + object.kind";
    install_guard_policy(talk, "pods", &pods, "false", worded).await?;
    probe(talk, "probe").await?;
    let path = object_path(DEPLOYMENTS, "d");
    let size = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    let scale = format!("{path}/scale");
    talk.patch(&scale, PatchType::Merge, &size(9)).await?.expect(422)?;
    talk.patch(&scale, PatchType::Merge, &size(2)).await?.expect(200)?;
    // The size may also be changed elsewhere.
    talk.patch(&path, PatchType::Merge, &size(9)).await?.expect(200)?;
    let status = json!({ "status": { "observedGeneration": 1 } });
    talk.patch(&format!("{path}/status"), PatchType::Merge, &status).await?.expect(422)?;
    let one = object_path(PODS, "p");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": "p", "namespace": "{ns}" },
    });
    talk.post(&format!("{one}/eviction"), &eviction).await?.expect(422)?;
    for part in ["exec?command=ls&container=c", "attach?container=c", "portforward?ports=80"] {
        let ask = RequestSpec::new("POST", format!("{one}/{part}"));
        talk.send(ask).await?.expect(422)?;
    }
    Ok(())
}

const SCALERS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";
const OLD_SCALERS: &str = "/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers";

async fn equivalents(talk: &mut Session) -> Outcome {
    let rule = |version: &str| {
        json!({
            "apiGroups": ["autoscaling"], "apiVersions": [version], "operations": ["CREATE"],
            "resources": ["horizontalpodautoscalers"],
        })
    };
    let said = "request.resource.version + ' ' + request.requestResource.version + ' ' + \
                object.apiVersion + ' ' + string(object.spec.maxReplicas)";
    let refused = |name: &str| format!("object.metadata.name != '{name}'");
    install_guard_policy(talk, "one", &rule("v1"), &refused("one"), said).await?;
    install_guard_policy(talk, "two", &rule("v2"), &refused("two"), said).await?;
    let exact = json!({
        "matchConstraints": {
            "matchPolicy": "Exact", "namespaceSelector": own_namespace(),
            "resourceRules": [rule("v1")],
        },
        "validations": [{ "expression": refused("exact"), "messageExpression": said }],
    });
    install_one(talk, &policy("exact", &exact), &binding("exact", &json!({}))).await?;
    probe(talk, "probe").await?;
    let scaler = |version: &str, name: &str| {
        json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": { "name": name },
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" },
            },
        })
    };
    for name in ["one", "two", "exact"] {
        let code = if name == "exact" { 201 } else { 422 };
        let path = with_query(SCALERS, "dryRun=All");
        talk.post(&path, &scaler("v2", name)).await?.expect(code)?;
        let path = with_query(OLD_SCALERS, "dryRun=All");
        talk.post(&path, &scaler("v1", name)).await?.expect(422)?;
    }
    Ok(())
}

async fn namespaces(talk: &mut Session) -> Outcome {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["namespaces"],
        "scope": "Cluster",
    });
    // What is asked about is the namespace of the case, and one with its name and more.
    let spec = json!({
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": { "matchLabels": { "held": "{ns}" } },
        },
        "validations": [{
            "expression": "namespaceObject == null && request.operation == 'DELETE'",
            "messageExpression": "request.operation + ' ' + request.namespace + ' ' + request.name",
        }],
    });
    install_one(talk, &policy("spaces", &spec), &binding("spaces", &json!({}))).await?;
    probe(talk, "probe").await?;
    let new = json!({ "metadata": { "name": "{ns}-new", "labels": { "held": "{ns}" } } });
    talk.post("/api/v1/namespaces", &new).await?.expect(422)?;
    let mine = "/api/v1/namespaces/{ns}";
    let label = json!({ "metadata": { "labels": { "held": "{ns}" } } });
    talk.patch(mine, PatchType::Merge, &label).await?.expect(422)?;
    let other = json!({ "metadata": { "labels": { "other": "x" } } });
    talk.patch(mine, PatchType::Merge, &other).await?.expect(200)?;
    Ok(())
}

async fn params(talk: &mut Session) -> Outcome {
    // A kind of the case's own: the real server stops to learn of a built-in kind for good when the
    // last policy that has it for parameters goes.
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    define_widgets(talk, &schema).await?;
    let words = json!({ "apiVersion": "{ns}.case.test/v1", "kind": "Widget" });
    let with_params = |kind: &Value, expression: &str| {
        json!({
            "paramKind": kind,
            "validations": [{ "expression": expression, "message": "no" }],
        })
    };
    let asking = with_params(&words, "object.data.a == params.spec.a");
    let bound = |name: &'static str, policy: &Value, reference: Value, then| PolicyCase {
        name,
        policy: policy.clone(),
        binding: json!({ "paramRef": reference }),
        expected: then,
    };
    let named = |name: &str, action: &str| {
        json!({
            "name": name, "namespace": "{ns}", "parameterNotFoundAction": action,
        })
    };
    let selected = |value: &str, action: &str| {
        json!({
            "selector": { "matchLabels": { "set": value } }, "parameterNotFoundAction": action,
        })
    };
    let missing = "failed to configure binding: no params found for policy binding with `Deny` \
         parameterNotFoundAction";
    let nowhere = json!({ "apiVersion": "none.case.test/v1", "kind": "Nothing" });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace" });
    let table = [
        bound("same", &asking, named("param-x", "Deny"), Expected::Allowed),
        bound("differs", &asking, named("param-y", "Deny"), Expected::Denied("no")),
        bound("absent", &asking, named("none", "Deny"), Expected::Denied(missing)),
        bound("absent-allowed", &asking, named("none", "Allow"), Expected::Allowed),
        bound(
            "own-namespace",
            &asking,
            json!({ "name": "param-y", "parameterNotFoundAction": "Deny" }),
            Expected::Denied("no"),
        ),
        bound("selected", &asking, selected("x", "Deny"), Expected::Allowed),
        bound("one-differs", &asking, selected("both", "Deny"), Expected::Denied("no")),
        bound("none-selected", &asking, selected("none", "Deny"), Expected::Denied(missing)),
        bound("none-allowed", &asking, selected("none", "Allow"), Expected::Allowed),
        PolicyCase {
            name: "no-reference",
            policy: with_params(&words, "params == null"),
            binding: json!({}),
            expected: Expected::Allowed,
        },
        bound(
            "cluster-wide",
            &with_params(&namespace, "params.metadata.name == '{ns}'"),
            json!({ "name": "{ns}", "parameterNotFoundAction": "Deny" }),
            Expected::Allowed,
        ),
        bound(
            "misplaced",
            &with_params(&namespace, "true"),
            named("{ns}", "Deny"),
            Expected::Denied(
                "failed to configure binding: paramRef.namespace must not be provided for a \
                 cluster-scoped `paramKind`",
            ),
        ),
        bound(
            "unknown-kind",
            &with_params(&nowhere, "true"),
            named("x", "Allow"),
            Expected::Denied(
                "failed to configure policy: failed to find resource referenced by paramKind: \
                 'none.case.test/v1, Kind=Nothing'",
            ),
        ),
        bound(
            "unknown-ignored",
            &merged(with_params(&nowhere, "true"), &json!({ "failurePolicy": "Ignore" })),
            named("x", "Deny"),
            Expected::Allowed,
        ),
    ];
    for value in ["x", "y"] {
        let name = format!("param-{value}");
        let mut object = widget(&name, &json!({ "a": value }));
        object["metadata"]["labels"] = json!({ "set": if value == "x" { "x" } else { "both" } });
        talk.create(WIDGETS, &object).await?;
    }
    install_all(talk, &table).await?;
    // The real server learns of parameters at its leisure, each kind by itself, in their order.
    for (name, code, words) in
        [("same", 201, ""), ("differs", 422, "request: no"), ("cluster-wide", 201, "")]
    {
        let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &config_map(name, "x"));
        let known = |answer: &crate::response::Response| {
            answer.status == code && answer.string("/message").ends_with(words)
        };
        talk.send_until_unrecorded(ask, known).await?;
    }
    for PolicyCase { name, expected: then, .. } in &table {
        // The real server reads new kinds of parameters at its leisure.
        let warming = "not yet synced to use for admission";
        let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &config_map(name, "x"));
        let cold = |answer: &crate::response::Response| answer.string("/message").contains(warming);
        let answer = talk.send_until(ask, |answer| !cold(answer)).await?;
        match then {
            Expected::Denied(why) => {
                let why = talk.with_namespace(why);
                answer.expect_error_containing(422, "Invalid", &why)?;
            }
            Expected::Allowed | Expected::Warned(_) | Expected::DeniedAs(..) => {
                drop(answer.expect(201)?);
            }
        }
    }
    Ok(())
}

async fn bindings(talk: &mut Session) -> Outcome {
    let refusing = json!({ "validations": [{ "expression": "false", "message": "no" }] });
    // A policy without a binding does nothing.
    talk.delete_at_end(&format!("{POLICIES}/{{ns}}-unbound"));
    talk.create(POLICIES, &policy("unbound", &refusing)).await?;
    // A binding narrows its policy.
    let narrow = json!({ "matchResources": { "objectSelector": { "matchLabels": { "a": "b" } } } });
    install_one(talk, &policy("narrow", &refusing), &binding("narrow", &narrow)).await?;
    let elsewhere =
        json!({ "matchResources": { "excludeResourceRules": [match_constraints(&json!({}))] } });
    install_one(talk, &policy("elsewhere", &refusing), &binding("elsewhere", &elsewhere)).await?;
    // A binding of nothing does nothing, until there is something.
    talk.delete_at_end(&format!("{BINDINGS}/{{ns}}-early"));
    talk.create(BINDINGS, &binding("early", &json!({}))).await?;
    probe(talk, "probe").await?;
    let dry = with_query(CONFIG_MAPS, "dryRun=All");
    for name in ["unbound", "narrow", "elsewhere", "early"] {
        talk.post(&dry, &config_map(name, "x")).await?.expect(201)?;
    }
    talk.post(&dry, &labelled("narrow", &json!({ "a": "b" }))).await?.expect(422)?;
    talk.delete_at_end(&format!("{POLICIES}/{{ns}}-early"));
    talk.create(POLICIES, &policy("early", &refusing)).await?;
    let early = RequestSpec::post(dry.clone(), &config_map("early", "x"));
    talk.send_until(early.clone(), |answer| answer.status == 422).await?;
    // What is gone has no effect.
    talk.delete(&format!("{BINDINGS}/{{ns}}-early")).await?.expect(200)?;
    talk.send_until(early, |answer| answer.status == 201).await?;
    Ok(())
}

/// Policies cannot block changes of policies.
async fn exempt(talk: &mut Session) -> Outcome {
    let rule = json!({
        "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["*"],
        "resources": ["*"], "resourceNames": ["{ns}-target"],
    });
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": "false", "message": "no" }],
    });
    install_one(talk, &policy("exempt", &spec), &binding("exempt", &json!({}))).await?;
    probe(talk, "probe").await?;
    let target = policy("target", &json!({ "validations": [{ "expression": "true" }] }));
    talk.post(&with_query(POLICIES, "dryRun=All"), &target).await?.expect(201)?;
    let bound = binding("target", &json!({}));
    talk.post(&with_query(BINDINGS, "dryRun=All"), &bound).await?.expect(201)?;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({ "metadata": { "name": "{ns}-target" } });
    talk.post(&with_query(hooks, "dryRun=All"), &hook).await?.expect(422)?;
    Ok(())
}
