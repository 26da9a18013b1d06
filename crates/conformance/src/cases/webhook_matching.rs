//! Which writes a webhook is asked about, and what its configuration may say.

use gantry_testkit::hook::Reply;
use serde_json::{Value, json};

use super::conversion::{convert, definition, other};
use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, SECRETS, at, config_map, define, deployment, labelled, wait_until,
    widget, with,
};
use super::webhooks::{Kind, allow, deny, first_of, install, patch, rule, webhook};
use crate::case::{Case, CaseError, Outcome, case, same};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("webhook-matches-operations", [58], operations),
    case!("webhook-matches-resources", [58], resources),
    case!("webhook-matches-scope", [58], scope),
    case!("webhook-matches-objects", [58], objects),
    case!("webhook-matches-namespaces", [58], namespaces),
    case!("webhook-matches-namespaces-themselves", [58], namespaces_themselves),
    case!("webhook-matches-conditions", [58], conditions),
    case!("webhook-matches-failing-conditions", [58], failing_conditions),
    case!("webhook-matches-exactly", [58], exactly),
    case!("webhook-matches-equivalents", [58], equivalents),
    case!("webhook-matches-custom-equivalents", [54, 58], custom_equivalents),
    case!("webhook-matches-converted", [54, 58], converted),
    case!("webhook-does-not-match-itself", [58], not_itself),
    case!("webhook-configuration-defaults", [58], defaults),
    case!("webhook-configuration-faults", [58], faults),
    case!("webhook-configuration-clients", [58], clients),
    case!("webhook-configuration-changes", [58], changes),
];

/// Puts a webhook with this change into effect; it says yes.
async fn put(talk: &mut Conversation, change: impl Fn(&mut Value)) -> Outcome {
    let config = talk.hook("hook", allow)?;
    let mut hook = webhook("w", &config);
    change(&mut hook);
    install(talk, Kind::Validating, "one", &[hook]).await
}

/// What the webhook was asked about: operation, resource and part, name.
fn asked(talk: &Conversation) -> Result<Vec<String>, CaseError> {
    let heard = talk.heard("hook")?;
    let asked = heard.iter().map(|call| {
        let request = &call["body"]["request"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let part = text(&request["subResource"]);
        let slash = if part.is_empty() { "" } else { "/" };
        let resource = text(&request["resource"]["resource"]);
        format!(
            "{} {resource}{slash}{part} {}",
            text(&request["operation"]),
            text(&request["name"])
        )
    });
    // A server whose cache was behind asks again when it notices.
    let mut asked: Vec<String> = asked.collect();
    asked.dedup();
    Ok(asked)
}

fn were_asked(talk: &Conversation, expected: &[&str]) -> Outcome {
    let expected: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
    same("what was asked", &expected, &asked(talk)?)
}

/// Makes, changes and removes a config map.
async fn live(talk: &mut Conversation, name: &str) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    talk.put(&at(CONFIG_MAPS, name), &config_map(name, "2")).await?.expect(200)?;
    talk.delete(&at(CONFIG_MAPS, name)).await?.expect(200)?;
    Ok(())
}

async fn operations(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| hook["rules"] = json!([rule(&["UPDATE"], "", "configmaps")])).await?;
    live(talk, "c").await?;
    were_asked(talk, &["UPDATE configmaps c"])
}

async fn resources(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        hook["rules"] = json!([
            rule(&["*"], "", "secrets"),
            rule(&["CREATE"], "*", "*/status"),
            rule(&["UPDATE"], "apps", "deployments/*"),
        ]);
    })
    .await?;
    live(talk, "c").await?;
    let secret = json!({ "metadata": { "name": "s" } });
    talk.create(SECRETS, &secret).await?;
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let change = json!({ "spec": { "replicas": 2 } });
    talk.patch(&at(DEPLOYMENTS, "d"), Patch::Merge, &change).await?.expect(200)?;
    let change = json!({ "spec": { "replicas": 3 } });
    talk.patch(&at(DEPLOYMENTS, "d/scale"), Patch::Merge, &change).await?.expect(200)?;
    let status = json!({ "status": { "replicas": 1 } });
    talk.patch(&at(DEPLOYMENTS, "d/status"), Patch::Merge, &status).await?.expect(200)?;
    were_asked(
        talk,
        &[
            "CREATE secrets s",
            "UPDATE deployments d",
            "UPDATE deployments/scale d",
            "UPDATE deployments/status d",
        ],
    )
}

async fn scope(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        let mut cluster = rule(&["CREATE"], "", "configmaps");
        cluster["scope"] = json!("Cluster");
        let mut namespaced = rule(&["UPDATE"], "", "configmaps");
        namespaced["scope"] = json!("Namespaced");
        hook["rules"] = json!([cluster, namespaced]);
    })
    .await?;
    live(talk, "c").await?;
    were_asked(talk, &["UPDATE configmaps c"])
}

async fn objects(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| hook["objectSelector"] = json!({ "matchLabels": { "on": "yes" } })).await?;
    talk.create(CONFIG_MAPS, &labelled("a", &json!({ "on": "no" }))).await?;
    talk.create(CONFIG_MAPS, &labelled("b", &json!({ "on": "yes" }))).await?;
    for (name, value) in [("a", "yes"), ("b", "no"), ("b", "never")] {
        let change = json!({ "metadata": { "labels": { "on": value } } });
        talk.patch(&at(CONFIG_MAPS, name), Patch::Merge, &change).await?.expect(200)?;
    }
    talk.delete(&at(CONFIG_MAPS, "a")).await?.expect(200)?;
    were_asked(
        talk,
        &[
            "CREATE configmaps b",
            "UPDATE configmaps a",
            "UPDATE configmaps b",
            "DELETE configmaps a",
        ],
    )
}

async fn namespaces(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        hook["namespaceSelector"]["matchLabels"]["absent"] = json!("yes");
    })
    .await?;
    live(talk, "c").await?;
    were_asked(talk, &[])?;
    // The labels count as they are at the time.
    let change = json!({ "metadata": { "labels": { "absent": "yes" } } });
    let ask = Ask::patch("/api/v1/namespaces/{ns}", Patch::Merge, &change);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    let mut probe = config_map("x", "1");
    probe["metadata"]["labels"] = json!({ "y": "z" });
    let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &probe);
    talk.hook("hook", |review| deny(review, &json!({ "message": "asked" })))?;
    talk.ask_until_unrecorded(ask, |answer| answer.status == 400).await?;
    talk.post(CONFIG_MAPS, &config_map("d", "1")).await?.expect(400)?;
    Ok(())
}

async fn namespaces_themselves(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        hook["rules"] = json!([rule(&["CREATE", "UPDATE", "DELETE"], "", "namespaces")]);
        hook["namespaceSelector"] = json!({ "matchLabels": { "case": "{ns}" } });
        hook["objectSelector"] = json!({});
    })
    .await?;
    let namespaces = "/api/v1/namespaces";
    talk.delete_at_end(&at(namespaces, "{ns}-in"));
    talk.delete_at_end(&at(namespaces, "{ns}-out"));
    let named = |name: &str, case: &str| json!({ "metadata": { "name": name, "labels": { "case": case } } });
    talk.create(namespaces, &named("{ns}-in", "{ns}")).await?;
    talk.create(namespaces, &named("{ns}-out", "other")).await?;
    let change = json!({ "metadata": { "labels": { "x": "y" } } });
    talk.patch(&at(namespaces, "{ns}-in"), Patch::Merge, &change).await?.expect(200)?;
    talk.patch(&at(namespaces, "{ns}-out"), Patch::Merge, &change).await?.expect(200)?;
    let expected = talk.fill("CREATE namespaces {ns}-in UPDATE namespaces {ns}-in");
    same("what was asked", &expected, &asked(talk)?.join(" "))?;
    talk.record_heard("hook").map(drop)
}

async fn conditions(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        hook["matchConditions"] = json!([
            { "name": "small", "expression": "!has(object.data) || object.data.a != 'large'" },
            { "name": "not-me", "expression": "request.name != 'me' && oldObject == null" },
        ]);
    })
    .await?;
    for (name, data) in [("a", "small"), ("b", "large"), ("me", "small")] {
        talk.create(CONFIG_MAPS, &config_map(name, data)).await?;
    }
    let change = json!({ "data": { "x": "y" } });
    talk.patch(&at(CONFIG_MAPS, "a"), Patch::Merge, &change).await?.expect(200)?;
    were_asked(talk, &["CREATE configmaps a"])
}

async fn failing_conditions(talk: &mut Conversation) -> Outcome {
    let broken = json!([{ "name": "broken", "expression": "object.data.absent == 'x'" }]);
    let config = talk.hook("hook", allow)?;
    let mut strict = webhook("strict", &config);
    strict["matchConditions"] = broken.clone();
    strict["rules"] = json!([rule(&["CREATE"], "", "configmaps")]);
    let mut loose = webhook("loose", &config);
    loose["matchConditions"] = broken;
    loose["rules"] = json!([rule(&["CREATE"], "", "secrets")]);
    loose["failurePolicy"] = json!("Ignore");
    install(talk, Kind::Validating, "one", &[strict, loose]).await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(403)?;
    talk.create(SECRETS, &json!({ "metadata": { "name": "s" } })).await?;
    were_asked(talk, &[])
}

const SCALERS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";

fn scaler(name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": name },
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" },
        },
    })
}

/// A rule about the first version of scalers.
fn first_version(hook: &mut Value) {
    let mut rule = rule(&["CREATE"], "autoscaling", "horizontalpodautoscalers");
    rule["apiVersions"] = json!(["v1"]);
    hook["rules"] = json!([rule]);
}

async fn exactly(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        first_version(hook);
        hook["matchPolicy"] = json!("Exact");
    })
    .await?;
    talk.create(SCALERS, &scaler("h")).await?;
    were_asked(talk, &[])
}

async fn equivalents(talk: &mut Conversation) -> Outcome {
    put(talk, first_version).await?;
    talk.create(SCALERS, &scaler("h")).await?;
    let heard = talk.record_heard("hook")?;
    let request = &first_of(&heard)["body"]["request"];
    same("as it was asked for", &json!("autoscaling/v1"), &request["object"]["apiVersion"])?;
    same("as it was sent", &json!("v2"), &request["requestKind"]["version"])
}

const OTHER: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";

/// A rule about the first version of widgets.
fn first_widgets(hook: &mut Value) {
    let mut rule = rule(&["CREATE", "UPDATE"], "{ns}.case.test", "widgets");
    rule["apiVersions"] = json!(["v1"]);
    hook["rules"] = json!([rule]);
}

async fn custom_equivalents(talk: &mut Conversation) -> Outcome {
    let mut definition = definition(&json!({}));
    definition["spec"]["conversion"] = json!({ "strategy": "None" });
    define(talk, &definition).await?;
    put(talk, first_widgets).await?;
    talk.create(OTHER, &other("w", &json!({ "same": "x" }))).await?;
    let heard = talk.record_heard("hook")?;
    let version = talk.fill("{ns}.case.test/v1");
    same(
        "as it was asked for",
        &json!(version),
        &first_of(&heard)["body"]["request"]["object"]["apiVersion"],
    )
}

async fn converted(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("convert", |review| Reply::Json(convert(review)))?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await?;
    let config = talk.hook("hook", |review| {
        let was = review["request"]["object"]["spec"]["a"].as_str().unwrap_or_default();
        let value = format!("{was}, seen");
        patch(review, &json!([{ "op": "add", "path": "/spec/a", "value": value }]))
    })?;
    let mut hook = webhook("w", &config);
    first_widgets(&mut hook);
    install(talk, Kind::Mutating, "one", &[hook]).await?;
    let made = talk.create(OTHER, &other("w", &json!({ "b": "1" }))).await?;
    made.is("/spec", &json!({ "b": "1, seen" }))?;
    talk.record_heard("hook")?;
    let widgets = "/apis/{ns}.case.test/v1/namespaces/{ns}/widgets";
    let made = talk.create(widgets, &widget("v", &json!({ "a": "2" }))).await?;
    made.is("/spec", &json!({ "a": "2, seen" }))
}

async fn not_itself(talk: &mut Conversation) -> Outcome {
    put(talk, |hook| {
        hook["rules"] = json!([rule(&["*"], "admissionregistration.k8s.io", "*")]);
        hook["objectSelector"] = json!({ "matchLabels": { "case": "{ns}" } });
    })
    .await?;
    let path = Kind::Validating.path();
    let other = json!({ "metadata": { "name": "{ns}-other", "labels": { "case": "{ns}" } } });
    talk.delete_at_end(&at(path, "{ns}-other"));
    talk.create(path, &other).await?;
    were_asked(talk, &[])
}

async fn defaults(talk: &mut Conversation) -> Outcome {
    let config = json!({ "service": { "namespace": "{ns}", "name": "s" } });
    for kind in [Kind::Mutating, Kind::Validating] {
        let hook = json!({
            "name": "w.case.test", "clientConfig": config, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "operations": ["CREATE"], "apiGroups": ["{ns}.case.test"], "apiVersions": ["v1"],
                "resources": ["nothing"],
            }],
        });
        let body = json!({ "metadata": { "name": "{ns}" }, "webhooks": [hook] });
        talk.delete_at_end(&at(kind.path(), "{ns}"));
        talk.create(kind.path(), &body).await?;
    }
    Ok(())
}

/// Writes a configuration that is refused.
async fn refused(talk: &mut Conversation, hooks: &Value) -> Outcome {
    for kind in [Kind::Mutating, Kind::Validating] {
        let body = json!({ "metadata": { "name": "{ns}-bad" }, "webhooks": hooks });
        talk.post(&with(kind.path(), "dryRun=All"), &body).await?.expect(422)?;
    }
    Ok(())
}

/// A webhook that is in order, with a change.
fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut hook = webhook("w", &json!({ "url": "https://case.test/hook" }));
    change(&mut hook);
    hook
}

async fn faults(talk: &mut Conversation) -> Outcome {
    let table: [fn(&mut Value); 17] = [
        |it| it["name"] = json!(""),
        |it| it["name"] = json!("short.test"),
        |it| it["name"] = json!("Up.Case.Test"),
        |it| it["sideEffects"] = Value::Null,
        |it| it["sideEffects"] = json!("Some"),
        |it| it["failurePolicy"] = json!("Odd"),
        |it| it["matchPolicy"] = json!("Odd"),
        |it| it["timeoutSeconds"] = json!(0),
        |it| it["timeoutSeconds"] = json!(31),
        |it| it["admissionReviewVersions"] = json!([]),
        |it| it["admissionReviewVersions"] = json!(["v2"]),
        |it| it["rules"] = json!([{ "operations": ["CREATE"] }]),
        |it| it["rules"][0]["operations"] = json!(["*", "CREATE"]),
        |it| it["rules"][0]["operations"] = json!(["READ"]),
        |it| it["rules"][0]["scope"] = json!("World"),
        |it| {
            it["objectSelector"] =
                json!({ "matchExpressions": [{ "key": "a", "operator": "Odd" }] });
        },
        |it| it["namespaceSelector"] = json!({ "matchLabels": { "-": "x" } }),
    ];
    for change in table {
        refused(talk, &json!([changed(change)])).await?;
    }
    let conditions: [Value; 4] = [
        json!([{ "name": "a", "expression": "" }]),
        json!([{ "name": "", "expression": "true" }]),
        json!([{ "name": "a", "expression": "true" }, { "name": "a", "expression": "true" }]),
        json!([{ "name": "a", "expression": "1 + 1" }]),
    ];
    for list in conditions {
        refused(talk, &json!([changed(|it| it["matchConditions"] = list.clone())])).await?;
    }
    refused(talk, &json!([changed(|_| {}), changed(|_| {})])).await
}

async fn clients(talk: &mut Conversation) -> Outcome {
    let service = |change: fn(&mut Value)| {
        let mut service = json!({ "namespace": "n", "name": "s", "path": "/p", "port": 443 });
        change(&mut service);
        json!({ "service": service })
    };
    let table = [
        json!({}),
        json!({ "url": "http://case.test/hook" }),
        json!({ "url": "https:///hook" }),
        json!({ "url": "case.test" }),
        json!({ "url": "https://user:secret@case.test/hook" }),
        json!({ "url": "https://case.test/hook?x=y" }),
        json!({ "url": "https://case.test/hook#x" }),
        json!({ "url": "https://case.test/hook", "service": { "namespace": "n", "name": "s" } }),
        service(|it| it["name"] = json!("")),
        service(|it| it["namespace"] = json!("")),
        service(|it| it["port"] = json!(0)),
        service(|it| it["port"] = json!(70_000)),
        service(|it| it["path"] = json!("no-slash")),
        service(|it| it["path"] = json!("/a//b")),
        service(|it| it["path"] = json!("/a/Ä")),
    ];
    for config in table {
        refused(talk, &json!([changed(|it| it["clientConfig"] = config.clone())])).await?;
    }
    Ok(())
}

async fn changes(talk: &mut Conversation) -> Outcome {
    put(talk, |_| {}).await?;
    talk.hook("hook", |review| deny(review, &json!({ "message": "no" })))?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?;
    let path = at(Kind::Validating.path(), "{ns}-one");
    let loose = json!([{ "op": "replace", "path": "/webhooks/0/rules/0/operations",
        "value": ["DELETE"] }]);
    talk.ask_unrecorded(Ask::patch(path.clone(), Patch::Json, &loose)).await?.expect(200)?;
    let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &config_map("c", "1"));
    talk.ask_until_unrecorded(ask, |answer| answer.status == 201).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.delete(&at(CONFIG_MAPS, "c")).await?.expect(400)?;
    talk.ask_unrecorded(Ask::delete(path)).await?.expect(200)?;
    let ask = Ask::delete(with(&at(CONFIG_MAPS, "c"), "dryRun=All"));
    talk.ask_until_unrecorded(ask, |answer| answer.status == 200).await?;
    talk.delete(&at(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}
