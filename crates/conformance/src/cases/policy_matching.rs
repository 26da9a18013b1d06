//! Admission policies: which requests they are asked about, and with which parameters.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, PODS, at, config_map, deployment, labelled, pod};
use super::objects::{WIDGETS, define_widgets, widget};
use super::objects::{service_account, with};
use super::policies::{
    BINDINGS, POLICIES, Row, Then, binding, install, install_one, merged, own_namespace, policy,
    probe,
};
use crate::case::{Case, Outcome, case};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("policy-rules", [57], rules),
    case!("policy-operations", [57], operations),
    case!("policy-parts", [57], parts),
    case!("policy-equivalents", [57], equivalents),
    case!("policy-namespaces", [57], namespaces),
    case!("policy-params", [57], params),
    case!("policy-bindings", [57], bindings),
    case!("policy-exempt", [57], exempt),
];

/// A policy that objects to all it is asked about, under the given constraints.
fn refusing(name: &'static str, constraints: &Value, then: Then) -> Row {
    let own = json!({ "namespaceSelector": own_namespace() });
    let policy = json!({
        "matchConstraints": merged(own, constraints),
        "validations": [{ "expression": "false", "message": "no" }],
    });
    Row { name, policy, binding: json!({}), then }
}

fn meant(more: &Value) -> Value {
    let base = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    });
    merged(base, more)
}

async fn rules(talk: &mut Conversation) -> Outcome {
    let no = Then::Denied("no");
    let named = |name: &str, more: &Value| json!({ "resourceRules": [merged(meant(more), &json!({ "resourceNames": [name] }))] });
    let constrained = |name: &str, more: &Value| merged(named(name, &json!({})), more);
    let table = [
        refusing("all-groups", &named("all-groups", &json!({ "apiGroups": ["*"] })), no),
        refusing(
            "other-group",
            &named("other-group", &json!({ "apiGroups": ["apps"] })),
            Then::Allowed,
        ),
        refusing("all-versions", &named("all-versions", &json!({ "apiVersions": ["*"] })), no),
        refusing(
            "other-version",
            &named("other-version", &json!({ "apiVersions": ["v2"] })),
            Then::Allowed,
        ),
        refusing("all-resources", &named("all-resources", &json!({ "resources": ["*"] })), no),
        refusing("all-parts", &named("all-parts", &json!({ "resources": ["*/*"] })), no),
        refusing("own-parts", &named("own-parts", &json!({ "resources": ["configmaps/*"] })), no),
        refusing(
            "only-part",
            &named("only-part", &json!({ "resources": ["configmaps/x"] })),
            Then::Allowed,
        ),
        refusing("others", &named("others", &json!({ "resources": ["secrets"] })), Then::Allowed),
        refusing("all-operations", &named("all-operations", &json!({ "operations": ["*"] })), no),
        refusing(
            "update",
            &named("update", &json!({ "operations": ["UPDATE", "DELETE"] })),
            Then::Allowed,
        ),
        refusing("namespaced", &named("namespaced", &json!({ "scope": "Namespaced" })), no),
        refusing("cluster", &named("cluster", &json!({ "scope": "Cluster" })), Then::Allowed),
        refusing(
            "excluded",
            &constrained("excluded", &json!({ "excludeResourceRules": [meant(&json!({}))] })),
            Then::Allowed,
        ),
        refusing(
            "other-excluded",
            &constrained(
                "other-excluded",
                &json!({ "excludeResourceRules": [meant(&json!({ "resourceNames": ["x"] }))] }),
            ),
            no,
        ),
        refusing(
            "labelled",
            &constrained("labelled", &json!({ "objectSelector": { "matchLabels": { "a": "b" } } })),
            no,
        ),
        refusing(
            "not-labelled",
            &constrained(
                "not-labelled",
                &json!({ "objectSelector": { "matchLabels": { "a": "c" } } }),
            ),
            Then::Allowed,
        ),
        refusing(
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
        refusing(
            "elsewhere",
            &constrained(
                "elsewhere",
                &json!({ "namespaceSelector": { "matchLabels": { "no": "such" } } }),
            ),
            Then::Allowed,
        ),
    ];
    install(talk, &table).await?;
    for Row { name, then, .. } in &table {
        let answer = talk.post(CONFIG_MAPS, &labelled(name, &json!({ "a": "b" }))).await?;
        let code = if matches!(then, Then::Allowed) { 201 } else { 422 };
        answer.expect(code)?;
    }
    Ok(())
}

/// A policy about everything that is done to objects of one resource in the case's namespace.
async fn guard(
    talk: &mut Conversation,
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

const SAID: &str = "request.operation + ' ' + string(object == null) + ' ' + string(oldObject == \
                    null) + ' ' + request.options.kind";

async fn operations(talk: &mut Conversation) -> Outcome {
    let rule = meant(&json!({ "operations": ["*"] }));
    let held = "!(object != null ? object : oldObject).metadata.name.startsWith('held')";
    talk.create(CONFIG_MAPS, &config_map("held-one", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("held-two", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("free", "x")).await?;
    guard(talk, "guard", &rule, held, SAID).await?;
    probe(talk, "probe").await?;
    let change = json!({ "data": { "a": "y" } });
    let one = at(CONFIG_MAPS, "held-one");
    talk.post(CONFIG_MAPS, &config_map("held-three", "x")).await?.expect(422)?;
    talk.put(&one, &config_map("held-one", "y")).await?.expect(422)?;
    talk.patch(&one, Patch::Merge, &change).await?.expect(422)?;
    talk.patch(&one, Patch::Strategic, &change).await?.expect(422)?;
    let operations = json!([{ "op": "replace", "path": "/data/a", "value": "y" }]);
    talk.patch(&one, Patch::Json, &operations).await?.expect(422)?;
    let applied = with(&one, "fieldManager=m&force=true");
    talk.patch(&applied, Patch::Apply, &config_map("held-one", "y")).await?.expect(422)?;
    let new = with(&at(CONFIG_MAPS, "held-new"), "fieldManager=m");
    talk.patch(&new, Patch::Apply, &config_map("held-new", "y")).await?.expect(422)?;
    // A change that changes nothing is asked about too.
    talk.patch(&one, Patch::Merge, &json!({})).await?.expect(422)?;
    talk.delete(&one).await?.expect(422)?;
    talk.delete(&with(&one, "dryRun=All")).await?.expect(422)?;
    let free = at(CONFIG_MAPS, "free");
    talk.patch(&free, Patch::Merge, &change).await?.expect(200)?;
    talk.delete(&free).await?.expect(200)?;
    let generated = json!({ "metadata": { "generateName": "held-" } });
    talk.ask_unrecorded(Ask::post(CONFIG_MAPS, &generated)).await?.expect(422)?;
    Ok(())
}

async fn parts(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    talk.create(PODS, &pod("p")).await?;
    let said = "request.subResource + ' ' + request.kind.kind + ' ' + request.operation";
    let scale = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["deployments/scale"],
    });
    guard(talk, "scale", &scale, "object.spec.replicas < 5", said).await?;
    let status = json!({
        "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["*/status"],
    });
    guard(talk, "status", &status, "object.metadata.name == 'free'", said).await?;
    let pods = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["pods/eviction", "pods/exec", "pods/attach", "pods/portforward"],
    });
    let worded = "request.subResource + ' ' + request.kind.group + '/' + request.kind.version + \
                  '.' + request.kind.kind + ' ' + request.operation + ' ' + object.kind";
    guard(talk, "pods", &pods, "false", worded).await?;
    probe(talk, "probe").await?;
    let path = at(DEPLOYMENTS, "d");
    let size = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    let scale = format!("{path}/scale");
    talk.patch(&scale, Patch::Merge, &size(9)).await?.expect(422)?;
    talk.patch(&scale, Patch::Merge, &size(2)).await?.expect(200)?;
    // The size may also be changed elsewhere.
    talk.patch(&path, Patch::Merge, &size(9)).await?.expect(200)?;
    let status = json!({ "status": { "observedGeneration": 1 } });
    talk.patch(&format!("{path}/status"), Patch::Merge, &status).await?.expect(422)?;
    let one = at(PODS, "p");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": "p", "namespace": "{ns}" },
    });
    talk.post(&format!("{one}/eviction"), &eviction).await?.expect(422)?;
    for part in ["exec?command=ls&container=c", "attach?container=c", "portforward?ports=80"] {
        let ask = Ask::new("POST", format!("{one}/{part}"));
        talk.ask(ask).await?.expect(422)?;
    }
    Ok(())
}

const SCALERS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";
const OLD_SCALERS: &str = "/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers";

async fn equivalents(talk: &mut Conversation) -> Outcome {
    let rule = |version: &str| {
        json!({
            "apiGroups": ["autoscaling"], "apiVersions": [version], "operations": ["CREATE"],
            "resources": ["horizontalpodautoscalers"],
        })
    };
    let said = "request.resource.version + ' ' + request.requestResource.version + ' ' + \
                object.apiVersion + ' ' + string(object.spec.maxReplicas)";
    let refused = |name: &str| format!("object.metadata.name != '{name}'");
    guard(talk, "one", &rule("v1"), &refused("one"), said).await?;
    guard(talk, "two", &rule("v2"), &refused("two"), said).await?;
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
        let path = with(SCALERS, "dryRun=All");
        talk.post(&path, &scaler("v2", name)).await?.expect(code)?;
        let path = with(OLD_SCALERS, "dryRun=All");
        talk.post(&path, &scaler("v1", name)).await?.expect(422)?;
    }
    Ok(())
}

async fn namespaces(talk: &mut Conversation) -> Outcome {
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
    talk.patch(mine, Patch::Merge, &label).await?.expect(422)?;
    let other = json!({ "metadata": { "labels": { "other": "x" } } });
    talk.patch(mine, Patch::Merge, &other).await?.expect(200)?;
    Ok(())
}

async fn params(talk: &mut Conversation) -> Outcome {
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
    let bound = |name: &'static str, policy: &Value, reference: Value, then| Row {
        name,
        policy: policy.clone(),
        binding: json!({ "paramRef": reference }),
        then,
    };
    let named = |name: &str, action: &str| json!({ "name": name, "namespace": "{ns}", "parameterNotFoundAction": action });
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
        bound("same", &asking, named("param-x", "Deny"), Then::Allowed),
        bound("differs", &asking, named("param-y", "Deny"), Then::Denied("no")),
        bound("absent", &asking, named("none", "Deny"), Then::Denied(missing)),
        bound("absent-allowed", &asking, named("none", "Allow"), Then::Allowed),
        bound(
            "own-namespace",
            &asking,
            json!({ "name": "param-y", "parameterNotFoundAction": "Deny" }),
            Then::Denied("no"),
        ),
        bound("selected", &asking, selected("x", "Deny"), Then::Allowed),
        bound("one-differs", &asking, selected("both", "Deny"), Then::Denied("no")),
        bound("none-selected", &asking, selected("none", "Deny"), Then::Denied(missing)),
        bound("none-allowed", &asking, selected("none", "Allow"), Then::Allowed),
        Row {
            name: "no-reference",
            policy: with_params(&words, "params == null"),
            binding: json!({}),
            then: Then::Allowed,
        },
        bound(
            "cluster-wide",
            &with_params(&namespace, "params.metadata.name == '{ns}'"),
            json!({ "name": "{ns}", "parameterNotFoundAction": "Deny" }),
            Then::Allowed,
        ),
        bound(
            "misplaced",
            &with_params(&namespace, "true"),
            named("{ns}", "Deny"),
            Then::Denied(
                "failed to configure binding: paramRef.namespace must not be provided for a \
                 cluster-scoped `paramKind`",
            ),
        ),
        bound(
            "unknown-kind",
            &with_params(&nowhere, "true"),
            named("x", "Allow"),
            Then::Denied(
                "failed to configure policy: failed to find resource referenced by paramKind: \
                 'none.case.test/v1, Kind=Nothing'",
            ),
        ),
        bound(
            "unknown-ignored",
            &merged(with_params(&nowhere, "true"), &json!({ "failurePolicy": "Ignore" })),
            named("x", "Deny"),
            Then::Allowed,
        ),
    ];
    for value in ["x", "y"] {
        let name = format!("param-{value}");
        let mut object = widget(&name, &json!({ "a": value }));
        object["metadata"]["labels"] = json!({ "set": if value == "x" { "x" } else { "both" } });
        talk.create(WIDGETS, &object).await?;
    }
    install(talk, &table).await?;
    // The real server learns of parameters at its leisure, each kind by itself, in their order.
    for (name, code, words) in
        [("same", 201, ""), ("differs", 422, "request: no"), ("cluster-wide", 201, "")]
    {
        let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &config_map(name, "x"));
        let known = |answer: &crate::answer::Answer| {
            answer.status == code && answer.string("/message").ends_with(words)
        };
        talk.ask_until_unrecorded(ask, known).await?;
    }
    for Row { name, then, .. } in &table {
        // The real server reads new kinds of parameters at its leisure.
        let warming = "not yet synced to use for admission";
        let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &config_map(name, "x"));
        let cold = |answer: &crate::answer::Answer| answer.string("/message").contains(warming);
        let answer = talk.ask_until(ask, |answer| !cold(answer)).await?;
        match then {
            Then::Denied(why) => {
                let why = talk.fill(why);
                answer.refused_with(422, "Invalid", &why)?;
            }
            Then::Allowed | Then::Warned(_) | Then::DeniedAs(..) => drop(answer.expect(201)?),
        }
    }
    Ok(())
}

async fn bindings(talk: &mut Conversation) -> Outcome {
    let refusing = json!({ "validations": [{ "expression": "false", "message": "no" }] });
    // A policy without a binding does nothing.
    talk.delete_at_end(&format!("{POLICIES}/{{ns}}-unbound"));
    talk.create(POLICIES, &policy("unbound", &refusing)).await?;
    // A binding narrows its policy.
    let narrow = json!({ "matchResources": { "objectSelector": { "matchLabels": { "a": "b" } } } });
    install_one(talk, &policy("narrow", &refusing), &binding("narrow", &narrow)).await?;
    let elsewhere = json!({ "matchResources": { "excludeResourceRules": [meant(&json!({}))] } });
    install_one(talk, &policy("elsewhere", &refusing), &binding("elsewhere", &elsewhere)).await?;
    // A binding of nothing does nothing, until there is something.
    talk.delete_at_end(&format!("{BINDINGS}/{{ns}}-early"));
    talk.create(BINDINGS, &binding("early", &json!({}))).await?;
    probe(talk, "probe").await?;
    let dry = with(CONFIG_MAPS, "dryRun=All");
    for name in ["unbound", "narrow", "elsewhere", "early"] {
        talk.post(&dry, &config_map(name, "x")).await?.expect(201)?;
    }
    talk.post(&dry, &labelled("narrow", &json!({ "a": "b" }))).await?.expect(422)?;
    talk.delete_at_end(&format!("{POLICIES}/{{ns}}-early"));
    talk.create(POLICIES, &policy("early", &refusing)).await?;
    let early = Ask::post(dry.clone(), &config_map("early", "x"));
    talk.ask_until(early.clone(), |answer| answer.status == 422).await?;
    // What is gone has no effect.
    talk.delete(&format!("{BINDINGS}/{{ns}}-early")).await?.expect(200)?;
    talk.ask_until(early, |answer| answer.status == 201).await?;
    Ok(())
}

/// Policies cannot stand in the way of those who change policies.
async fn exempt(talk: &mut Conversation) -> Outcome {
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
    talk.post(&with(POLICIES, "dryRun=All"), &target).await?.expect(201)?;
    let bound = binding("target", &json!({}));
    talk.post(&with(BINDINGS, "dryRun=All"), &bound).await?.expect(201)?;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({ "metadata": { "name": "{ns}-target" } });
    talk.post(&with(hooks, "dryRun=All"), &hook).await?.expect(422)?;
    Ok(())
}
