//! Which writes a webhook is asked about, and what its configuration may say.

use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::conversion::{convert, definition, widget_v2};
use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, SECRETS, config_map, define, deployment, labelled, object_path,
    wait_until, widget, with_query,
};
use super::webhooks::{Kind, allow, deny, first_call, install, patch, rule, webhook};
use crate::case::{Case, CaseError, Outcome, case, expect_equal};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("webhook-matches-operations", [58], operations),
    case!("webhook-matches-resources", [58], resources),
    case!("webhook-matches-scope", [58], scope),
    case!("webhook-matches-objects", [58], objects),
    case!("webhook-matches-namespaces", [58], namespaces),
    case!("webhook-matches-namespaces-themselves", [58], namespaces_themselves),
    case!("webhook-matches-conditions", [58], conditions),
    case!("webhook-matches-failing-conditions", [58], failing_conditions),
    case!("webhook-matches-exactly", [58], match_policy_exact),
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
async fn install_allowing(talk: &mut Session, change: impl Fn(&mut Value)) -> Outcome {
    let config = talk.serve_webhook("hook", allow)?;
    let mut hook = webhook("w", &config);
    change(&mut hook);
    install(talk, Kind::Validating, "one", &[hook]).await
}

/// What the webhook was asked about: operation, resource and part, name.
fn reviewed_requests(talk: &Session) -> Result<Vec<String>, CaseError> {
    let heard = talk.webhook_calls("hook")?;
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

fn expect_reviewed(talk: &Session, expected: &[&str]) -> Outcome {
    let expected: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
    expect_equal("what was asked", &expected, &reviewed_requests(talk)?)
}

/// Makes, changes and removes a config map.
async fn create_update_delete(talk: &mut Session, name: &str) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    talk.put(&object_path(CONFIG_MAPS, name), &config_map(name, "2")).await?.expect(200)?;
    talk.delete(&object_path(CONFIG_MAPS, name)).await?.expect(200)?;
    Ok(())
}

async fn operations(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| hook["rules"] = json!([rule(&["UPDATE"], "", "configmaps")]))
        .await?;
    create_update_delete(talk, "c").await?;
    expect_reviewed(talk, &["UPDATE configmaps c"])
}

async fn resources(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        hook["rules"] = json!([
            rule(&["*"], "", "secrets"),
            rule(&["CREATE"], "*", "*/status"),
            rule(&["UPDATE"], "apps", "deployments/*"),
        ]);
    })
    .await?;
    create_update_delete(talk, "c").await?;
    let secret = json!({ "metadata": { "name": "s" } });
    talk.create(SECRETS, &secret).await?;
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let change = json!({ "spec": { "replicas": 2 } });
    talk.patch(&object_path(DEPLOYMENTS, "d"), PatchType::Merge, &change).await?.expect(200)?;
    let change = json!({ "spec": { "replicas": 3 } });
    talk.patch(&object_path(DEPLOYMENTS, "d/scale"), PatchType::Merge, &change)
        .await?
        .expect(200)?;
    let status = json!({ "status": { "replicas": 1 } });
    talk.patch(&object_path(DEPLOYMENTS, "d/status"), PatchType::Merge, &status)
        .await?
        .expect(200)?;
    expect_reviewed(
        talk,
        &[
            "CREATE secrets s",
            "UPDATE deployments d",
            "UPDATE deployments/scale d",
            "UPDATE deployments/status d",
        ],
    )
}

async fn scope(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        let mut cluster = rule(&["CREATE"], "", "configmaps");
        cluster["scope"] = json!("Cluster");
        let mut namespaced = rule(&["UPDATE"], "", "configmaps");
        namespaced["scope"] = json!("Namespaced");
        hook["rules"] = json!([cluster, namespaced]);
    })
    .await?;
    create_update_delete(talk, "c").await?;
    expect_reviewed(talk, &["UPDATE configmaps c"])
}

async fn objects(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        hook["objectSelector"] = json!({ "matchLabels": { "on": "yes" } });
    })
    .await?;
    talk.create(CONFIG_MAPS, &labelled("a", &json!({ "on": "no" }))).await?;
    talk.create(CONFIG_MAPS, &labelled("b", &json!({ "on": "yes" }))).await?;
    for (name, value) in [("a", "yes"), ("b", "no"), ("b", "never")] {
        let change = json!({ "metadata": { "labels": { "on": value } } });
        talk.patch(&object_path(CONFIG_MAPS, name), PatchType::Merge, &change)
            .await?
            .expect(200)?;
    }
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    expect_reviewed(
        talk,
        &[
            "CREATE configmaps b",
            "UPDATE configmaps a",
            "UPDATE configmaps b",
            "DELETE configmaps a",
        ],
    )
}

async fn namespaces(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        hook["namespaceSelector"]["matchLabels"]["absent"] = json!("yes");
    })
    .await?;
    create_update_delete(talk, "c").await?;
    expect_reviewed(talk, &[])?;
    // The labels count as they are at the time.
    let change = json!({ "metadata": { "labels": { "absent": "yes" } } });
    let ask = RequestSpec::patch("/api/v1/namespaces/{ns}", PatchType::Merge, &change);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let mut probe = config_map("x", "1");
    probe["metadata"]["labels"] = json!({ "y": "z" });
    let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &probe);
    talk.serve_webhook("hook", |review| deny(review, &json!({ "message": "asked" })))?;
    talk.send_until_unrecorded(ask, |answer| answer.status == 400).await?;
    talk.post(CONFIG_MAPS, &config_map("d", "1")).await?.expect(400)?;
    Ok(())
}

async fn namespaces_themselves(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        hook["rules"] = json!([rule(&["CREATE", "UPDATE", "DELETE"], "", "namespaces")]);
        hook["namespaceSelector"] = json!({ "matchLabels": { "case": "{ns}" } });
        hook["objectSelector"] = json!({});
    })
    .await?;
    let namespaces = "/api/v1/namespaces";
    talk.delete_at_end(&object_path(namespaces, "{ns}-in"));
    talk.delete_at_end(&object_path(namespaces, "{ns}-out"));
    let named = |name: &str, case: &str| {
        json!({
            "metadata": { "name": name, "labels": { "case": case } },
        })
    };
    talk.create(namespaces, &named("{ns}-in", "{ns}")).await?;
    talk.create(namespaces, &named("{ns}-out", "other")).await?;
    let change = json!({ "metadata": { "labels": { "x": "y" } } });
    talk.patch(&object_path(namespaces, "{ns}-in"), PatchType::Merge, &change)
        .await?
        .expect(200)?;
    talk.patch(&object_path(namespaces, "{ns}-out"), PatchType::Merge, &change)
        .await?
        .expect(200)?;
    let expected = talk.with_namespace("CREATE namespaces {ns}-in UPDATE namespaces {ns}-in");
    expect_equal("what was asked", &expected, &reviewed_requests(talk)?.join(" "))?;
    talk.record_webhook_calls("hook").map(drop)
}

async fn conditions(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
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
    talk.patch(&object_path(CONFIG_MAPS, "a"), PatchType::Merge, &change).await?.expect(200)?;
    expect_reviewed(talk, &["CREATE configmaps a"])
}

async fn failing_conditions(talk: &mut Session) -> Outcome {
    let broken = json!([{ "name": "broken", "expression": "object.data.absent == 'x'" }]);
    let config = talk.serve_webhook("hook", allow)?;
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
    expect_reviewed(talk, &[])
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

async fn match_policy_exact(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        first_version(hook);
        hook["matchPolicy"] = json!("Exact");
    })
    .await?;
    talk.create(SCALERS, &scaler("h")).await?;
    expect_reviewed(talk, &[])
}

async fn equivalents(talk: &mut Session) -> Outcome {
    install_allowing(talk, first_version).await?;
    talk.create(SCALERS, &scaler("h")).await?;
    let heard = talk.record_webhook_calls("hook")?;
    let request = &first_call(&heard)["body"]["request"];
    expect_equal(
        "as it was asked for",
        &json!("autoscaling/v1"),
        &request["object"]["apiVersion"],
    )?;
    expect_equal("as it was sent", &json!("v2"), &request["requestKind"]["version"])
}

const OTHER: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";

/// A rule about the first version of widgets.
fn first_widgets(hook: &mut Value) {
    let mut rule = rule(&["CREATE", "UPDATE"], "{ns}.case.test", "widgets");
    rule["apiVersions"] = json!(["v1"]);
    hook["rules"] = json!([rule]);
}

async fn custom_equivalents(talk: &mut Session) -> Outcome {
    let mut definition = definition(&json!({}));
    definition["spec"]["conversion"] = json!({ "strategy": "None" });
    define(talk, &definition).await?;
    install_allowing(talk, first_widgets).await?;
    talk.create(OTHER, &widget_v2("w", &json!({ "same": "x" }))).await?;
    let heard = talk.record_webhook_calls("hook")?;
    let version = talk.with_namespace("{ns}.case.test/v1");
    expect_equal(
        "as it was asked for",
        &json!(version),
        &first_call(&heard)["body"]["request"]["object"]["apiVersion"],
    )
}

async fn converted(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("convert", |review| Reply::Json(convert(review)))?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await?;
    let config = talk.serve_webhook("hook", |review| {
        let was = review["request"]["object"]["spec"]["a"].as_str().unwrap_or_default();
        let value = format!("{was}, seen");
        patch(review, &json!([{ "op": "add", "path": "/spec/a", "value": value }]))
    })?;
    let mut hook = webhook("w", &config);
    first_widgets(&mut hook);
    install(talk, Kind::Mutating, "one", &[hook]).await?;
    let made = talk.create(OTHER, &widget_v2("w", &json!({ "b": "1" }))).await?;
    made.has_value("/spec", &json!({ "b": "1, seen" }))?;
    talk.record_webhook_calls("hook")?;
    let widgets = "/apis/{ns}.case.test/v1/namespaces/{ns}/widgets";
    let made = talk.create(widgets, &widget("v", &json!({ "a": "2" }))).await?;
    made.has_value("/spec", &json!({ "a": "2, seen" }))
}

async fn not_itself(talk: &mut Session) -> Outcome {
    install_allowing(talk, |hook| {
        hook["rules"] = json!([rule(&["*"], "admissionregistration.k8s.io", "*")]);
        hook["objectSelector"] = json!({ "matchLabels": { "case": "{ns}" } });
    })
    .await?;
    let path = Kind::Validating.path();
    let other = json!({ "metadata": { "name": "{ns}-other", "labels": { "case": "{ns}" } } });
    talk.delete_at_end(&object_path(path, "{ns}-other"));
    talk.create(path, &other).await?;
    expect_reviewed(talk, &[])
}

async fn defaults(talk: &mut Session) -> Outcome {
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
        talk.delete_at_end(&object_path(kind.path(), "{ns}"));
        talk.create(kind.path(), &body).await?;
    }
    Ok(())
}

/// Writes a configuration that is refused.
async fn refused(talk: &mut Session, hooks: &Value) -> Outcome {
    for kind in [Kind::Mutating, Kind::Validating] {
        let body = json!({ "metadata": { "name": "{ns}-bad" }, "webhooks": hooks });
        talk.post(&with_query(kind.path(), "dryRun=All"), &body).await?.expect(422)?;
    }
    Ok(())
}

/// A webhook that is in order, with a change.
fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut hook = webhook("w", &json!({ "url": "https://case.test/hook" }));
    change(&mut hook);
    hook
}

async fn faults(talk: &mut Session) -> Outcome {
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

async fn clients(talk: &mut Session) -> Outcome {
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

async fn changes(talk: &mut Session) -> Outcome {
    install_allowing(talk, |_| {}).await?;
    talk.serve_webhook("hook", |review| deny(review, &json!({ "message": "no" })))?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?;
    let path = object_path(Kind::Validating.path(), "{ns}-one");
    let loose = json!([{ "op": "replace", "path": "/webhooks/0/rules/0/operations",
        "value": ["DELETE"] }]);
    talk.send_unrecorded(RequestSpec::patch(path.clone(), PatchType::Json, &loose))
        .await?
        .expect(200)?;
    let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &config_map("c", "1"));
    talk.send_until_unrecorded(ask, |answer| answer.status == 201).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(400)?;
    talk.send_unrecorded(RequestSpec::delete(path)).await?.expect(200)?;
    let ask = RequestSpec::delete(with_query(&object_path(CONFIG_MAPS, "c"), "dryRun=All"));
    talk.send_until_unrecorded(ask, |answer| answer.status == 200).await?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}
