//! Reviews: who am I, may I, what may I.

use serde_json::{Value, json};

use super::roles::{
    ACCESS, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, OWN_ACCESS, ROLES, allow_in_namespace,
    as_user, binding, create_unrecorded, role, wait_until_allowed,
};
use crate::case::{Case, Outcome, case};
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("access-reviews", [], access),
    case!("access-reviews-give-reasons", [], reasons),
    case!("access-reviews-that-are-wrong", [], invalid_reviews),
    case!("access-reviews-with-selectors", [], selectors),
    case!("local-access-reviews", [], local),
    case!("own-access-reviews", [], own),
    case!("rules-reviews", [], rules),
    case!("reviews-are-only-made", [], create_only),
    case!("roles-at-the-start", [], bootstrap_roles),
    case!("reviews-in-other-forms", [], other_forms),
];

const LOCAL: &str = "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// Reviews have no table, and their metadata can be asked for.
async fn other_forms(talk: &mut Session) -> Outcome {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let question =
        json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let token = json!({ "spec": { "token": "none" } });
    let table = [
        (OWN_ACCESS, &question, "SelfSubjectAccessReview"),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}), "SelfSubjectReview"),
        ("/apis/authentication.k8s.io/v1/tokenreviews", &token, "TokenReview"),
    ];
    let message = "only the following media types are accepted: application/json, \
                   application/yaml, application/vnd.kubernetes.protobuf";
    // The name of the user is part of one of the answers, and differs from server to server.
    let by = |ask: RequestSpec| {
        ask.header("impersonate-user", "asks").header("impersonate-group", "system:masters")
    };
    for (path, body, kind) in table {
        let answer = talk.send(by(RequestSpec::post(path, body).accept(TABLE))).await?;
        answer.expect_error(406, "NotAcceptable", message)?;
        let either = format!("{TABLE},application/json");
        talk.send(by(RequestSpec::post(path, body).accept(&either)))
            .await?
            .expect(201)?
            .expect_kind(kind)?;
        let answer =
            talk.send(by(RequestSpec::post(path, body).accept(PARTIAL))).await?.expect(201)?;
        let answer = answer.expect_kind("PartialObjectMetadata")?;
        answer.has_value("/apiVersion", &json!("meta.k8s.io/v1"))?;
        answer.has_no_value("/status")?;
    }
    Ok(())
}

/// A question about another user.
fn access_review_spec(user: &str, verb: &str, resource: &str) -> Value {
    json!({ "spec": { "user": user, "resourceAttributes": {
        "verb": verb, "resource": resource, "namespace": "{ns}",
    } } })
}

async fn access(talk: &mut Session) -> Outcome {
    let user = "{ns}-reader";
    let briefs = ["- pods get,list", "- secrets get a", "apps * watch", "- */log get"];
    allow_in_namespace(talk, user, &briefs).await?;
    let log = json!({
        "verb": "get", "resource": "x", "subresource": "log", "namespace": "{ns}",
    });
    wait_until_allowed(talk, user, &log).await?;
    let spec =
        |resource: Value| json!({ "spec": { "user": user, "resourceAttributes": resource } });
    let here = |verb: &str, resource: &str| {
        json!({
            "verb": verb, "resource": resource, "namespace": "{ns}",
        })
    };
    let mut named = here("get", "secrets");
    named["name"] = json!("a");
    let mut other = named.clone();
    other["name"] = json!("b");
    let mut all = here("watch", "anything");
    all["group"] = json!("apps");
    all["version"] = json!("v7");
    let table = [
        spec(here("get", "pods")),
        spec(here("list", "pods")),
        spec(here("*", "pods")),
        spec(here("get", "*")),
        spec(here("get", "pods/log")),
        spec(json!({ "verb": "get", "resource": "pods" })),
        spec(json!({ "verb": "get", "resource": "pods", "namespace": "default" })),
        spec(here("get", "secrets")),
        spec(named),
        spec(other),
        spec(all),
        spec(json!({})),
        json!({
            "spec": { "user": user, "nonResourceAttributes": { "verb": "get", "path": "/" } },
        }),
        json!({ "spec": { "user": "system:anonymous", "groups": ["system:unauthenticated"],
            "nonResourceAttributes": { "verb": "get", "path": "/healthz" } } }),
        json!({ "spec": { "user": "x", "nonResourceAttributes": {} } }),
        json!({ "spec": { "groups": ["system:masters"], "resourceAttributes": {} } }),
        json!({ "spec": { "groups": ["system:masters"], "uid": "7", "extra": { "a": ["b"] },
            "nonResourceAttributes": { "verb": "get", "path": "/x" } } }),
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": here("get", "pods") },
            "status": { "allowed": false, "reason": "forged" } }),
    ];
    for body in table {
        talk.post(ACCESS, &body).await?.expect(201)?;
    }
    Ok(())
}

async fn reasons(talk: &mut Session) -> Outcome {
    let pods = ["- pods get"];
    create_unrecorded(talk, ROLES, &role("reader", &pods)).await?;
    create_unrecorded(talk, CLUSTER_ROLES, &role("{ns}-reader", &pods)).await?;
    talk.delete_at_end(&format!("{CLUSTER_ROLES}/{{ns}}-reader"));
    let bound = |kind: &str, role: &str, subjects: Value| {
        let mut object = binding("", kind, role, "");
        object["subjects"] = subjects;
        object
    };
    let table = [
        ("a", "Role", "reader", json!([{ "kind": "User", "name": "{ns}-a" }])),
        ("b", "ClusterRole", "{ns}-reader", json!([{ "kind": "Group", "name": "{ns}-b" }])),
        ("c", "Role", "reader", json!([{ "kind": "ServiceAccount", "name": "c" }])),
        (
            "d",
            "Role",
            "reader",
            json!([
                { "kind": "ServiceAccount", "name": "d", "namespace": "else" },
                { "kind": "User", "name": "system:serviceaccount:else:d" },
            ]),
        ),
        ("e", "Role", "gone", json!([{ "kind": "User", "name": "{ns}-e" }])),
        ("f", "ClusterRole", "{ns}-gone", json!([{ "kind": "User", "name": "{ns}-f" }])),
    ];
    for (name, kind, role, subjects) in table {
        let mut object = bound(kind, role, subjects);
        object["metadata"]["name"] = json!(name);
        create_unrecorded(talk, BINDINGS, &object).await?;
    }
    let mut object = binding("{ns}-all", "ClusterRole", "{ns}-reader", "{ns}-g");
    object["subjects"] = json!([
        { "kind": "ServiceAccount", "name": "g", "namespace": "else" },
        { "kind": "User", "name": "{ns}-g" },
    ]);
    create_unrecorded(talk, CLUSTER_BINDINGS, &object).await?;
    talk.delete_at_end(&format!("{CLUSTER_BINDINGS}/{{ns}}-all"));
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": "{ns}" });
    wait_until_allowed(talk, "{ns}-g", &pods).await?;
    wait_until_allowed(talk, "system:serviceaccount:else:d", &pods).await?;
    let asked = access_review_spec("{ns}-f", "get", "pods");
    let lost = RequestSpec::post(ACCESS, &asked);
    let wanted = |answer: &crate::response::Response| !answer.string("/status/reason").is_empty();
    talk.send_until_unrecorded(lost, wanted).await?;
    let users = [
        "{ns}-a",
        "{ns}-b",
        "system:serviceaccount:{ns}:c",
        "system:serviceaccount:else:c",
        "system:serviceaccount:else:d",
        "{ns}-e",
        "{ns}-f",
        "{ns}-g",
        "system:serviceaccount:else:g",
    ];
    for user in users {
        for resource in ["pods", "nodes"] {
            talk.post(ACCESS, &access_review_spec(user, "get", resource)).await?.expect(201)?;
        }
    }
    let mut member = access_review_spec("", "get", "pods");
    member["spec"]["groups"] = json!(["x", "{ns}-b"]);
    talk.post(ACCESS, &member).await?.expect(201)?;
    // A refusal gives the reason as well.
    let answer =
        talk.send(as_user("{ns}-e", RequestSpec::get("/api/v1/namespaces/{ns}/pods"))).await?;
    let words = talk.with_namespace(
        "pods is forbidden: User \"{ns}-e\" cannot list resource \"pods\" in API group \"\" in the \
         namespace \"{ns}\": RBAC: role.rbac.authorization.k8s.io \"gone\" not found",
    );
    answer.expect_error(403, "Forbidden", &words)?;
    Ok(())
}

async fn invalid_reviews(talk: &mut Session) -> Outcome {
    let get = json!({ "verb": "get", "resource": "pods" });
    let table = [
        json!({}),
        json!({ "spec": {} }),
        json!({ "spec": { "user": "a" } }),
        json!({ "spec": { "resourceAttributes": get } }),
        json!({ "spec": { "user": "a", "resourceAttributes": get, "nonResourceAttributes": {} } }),
        json!({
            "spec": { "groups": [], "nonResourceAttributes": { "path": "/a", "verb": "get" } },
        }),
    ];
    for body in table {
        talk.post(ACCESS, &body).await?.expect(422)?;
        talk.post(LOCAL, &body).await?.expect(422)?;
    }
    for body in
        [json!({}), json!({ "spec": { "resourceAttributes": {}, "nonResourceAttributes": {} } })]
    {
        talk.post(OWN_ACCESS, &body).await?.expect(422)?;
    }
    // Its message holds the time, so that only the status is compared.
    let named = json!({
        "metadata": { "name": "a" }, "spec": { "user": "a", "resourceAttributes": get },
    });
    for path in [ACCESS, OWN_ACCESS, LOCAL] {
        let answer = talk.send_unrecorded(RequestSpec::post(path, &named)).await?;
        answer.expect_error_containing(
            422,
            "Invalid",
            "metadata: Invalid value: {\"name\":\"a\"",
        )?;
    }
    talk.post(RULES, &json!({})).await?.expect(400)?;
    talk.post(RULES, &json!({ "spec": { "namespace": "" } })).await?.expect(400)?;
    let bad = r#"{"spec":{"user":7}}"#;
    talk.send(RequestSpec::new("POST", ACCESS).text("application/json", bad)).await?.expect(400)?;
    Ok(())
}

async fn selectors(talk: &mut Session) -> Outcome {
    let spec = |name: &str, selector: Value| {
        let mut body = json!({ "spec": { "user": "a", "resourceAttributes": {
            "verb": "list", "resource": "pods",
        } } });
        body["spec"]["resourceAttributes"][name] = selector;
        body
    };
    let one = |operator: &str, values: Value| {
        json!({
            "key": "a", "operator": operator, "values": values,
        })
    };
    let good = one("In", json!(["b"]));
    let table = [
        (json!({ "rawSelector": "a=b" }), [201, 201]),
        (json!({ "rawSelector": "a in (b" }), [201, 201]),
        (json!({ "rawSelector": "a" }), [201, 201]),
        (json!({ "requirements": [good] }), [201, 201]),
        (json!({ "requirements": [one("New", json!([]))] }), [201, 201]),
        (json!({ "requirements": [good, one("New", json!([]))] }), [201, 201]),
        (json!({ "requirements": [one("Exists", json!([]))] }), [201, 201]),
        (json!({ "requirements": [one("In", json!(["b", "c"]))] }), [201, 201]),
        (json!({ "requirements": [one("In", json!([]))] }), [422, 422]),
        (json!({ "requirements": [one("Exists", json!(["b"]))] }), [422, 422]),
        (json!({ "requirements": [good], "rawSelector": "a" }), [422, 422]),
        (json!({}), [422, 422]),
        (json!({ "requirements": [{ "operator": "In", "values": ["b"] }] }), [422, 422]),
        (
            json!({ "requirements": [{ "key": "!", "operator": "In", "values": ["b c"] }] }),
            [201, 422],
        ),
    ];
    for (selector, statuses) in table {
        for (name, status) in ["fieldSelector", "labelSelector"].into_iter().zip(statuses) {
            talk.post(ACCESS, &spec(name, selector.clone())).await?.expect(status)?;
        }
    }
    Ok(())
}

async fn local(talk: &mut Session) -> Outcome {
    let user = "{ns}-local";
    allow_in_namespace(talk, user, &["- pods get"]).await?;
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": "{ns}" });
    wait_until_allowed(talk, user, &pods).await?;
    let body = access_review_spec(user, "get", "pods");
    talk.post(LOCAL, &body).await?.expect(201)?;
    talk.post(LOCAL, &access_review_spec(user, "list", "pods")).await?.expect(201)?;
    let mut placed = body.clone();
    placed["metadata"] = json!({ "namespace": "{ns}" });
    talk.post(LOCAL, &placed).await?.expect(201)?;
    placed["metadata"]["namespace"] = json!("default");
    talk.post(LOCAL, &placed).await?.expect(400)?;
    let mut elsewhere = body.clone();
    elsewhere["spec"]["resourceAttributes"]["namespace"] = json!("default");
    talk.post(LOCAL, &elsewhere).await?.expect(422)?;
    elsewhere["spec"]["resourceAttributes"]["namespace"] = Value::Null;
    talk.post(LOCAL, &elsewhere).await?.expect(422)?;
    // A review of the whole cluster takes no notice of a namespace.
    placed["metadata"]["namespace"] = json!("{ns}");
    talk.post(ACCESS, &placed).await?.expect(201)?;
    // Whether the namespace is there is not asked.
    let nowhere = LOCAL.replace("{ns}", "{ns}-nowhere");
    let mut asked = body;
    asked["spec"]["resourceAttributes"]["namespace"] = json!("{ns}-nowhere");
    talk.post(&nowhere, &asked).await?.expect(201)?;
    Ok(())
}

async fn own(talk: &mut Session) -> Outcome {
    let user = "{ns}-own";
    allow_in_namespace(talk, user, &["- pods get"]).await?;
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": "{ns}" });
    wait_until_allowed(talk, user, &pods).await?;
    for resource in ["pods", "nodes"] {
        let body = access_review_spec(user, "get", resource);
        let body = json!({ "spec": { "resourceAttributes": body["spec"]["resourceAttributes"] } });
        talk.send(as_user(user, RequestSpec::post(OWN_ACCESS, &body))).await?.expect(201)?;
        talk.post(OWN_ACCESS, &body).await?.expect(201)?;
    }
    let path =
        json!({ "spec": { "nonResourceAttributes": { "verb": "get", "path": "/metrics" } } });
    talk.send(as_user(user, RequestSpec::post(OWN_ACCESS, &path))).await?.expect(201)?;
    talk.post(OWN_ACCESS, &path).await?.expect(201)?;
    Ok(())
}

async fn rules(talk: &mut Session) -> Outcome {
    let user = "{ns}-ruled";
    allow_in_namespace(
        talk,
        user,
        &["- pods get,list", "apps deployments,sets * a,b", "- */log get"],
    )
    .await?;
    let log = json!({ "verb": "get", "resource": "x", "subresource": "log", "namespace": "{ns}" });
    wait_until_allowed(talk, user, &log).await?;
    // Bindings are listed in any order, so the user is bound once in the cluster and once here.
    let alone =
        |ask: RequestSpec| as_user(user, ask).header("impersonate-group", "system:unauthenticated");
    let body = json!({
        "metadata": { "labels": { "a": "b" } }, "spec": { "namespace": "{ns}" },
    });
    // Who is not known may not ask; so the rights are given for this.
    allow_self_reviews(talk, user).await?;
    talk.send(alone(RequestSpec::post(RULES, &body))).await?.expect(201)?;
    let elsewhere = json!({ "spec": { "namespace": "default" } });
    talk.send(alone(RequestSpec::post(RULES, &elsewhere))).await?.expect(201)?;
    create_unrecorded(talk, BINDINGS, &binding("lost", "Role", "gone", user)).await?;
    let lost =
        |answer: &crate::response::Response| !answer.string("/status/evaluationError").is_empty();
    talk.send_until(alone(RequestSpec::post(RULES, &body)), lost).await?;
    Ok(())
}

/// Lets a user ask what they may, by a binding that has no part in the answer.
async fn allow_self_reviews(talk: &mut Session, user: &str) -> Outcome {
    let name = "{ns}-asks";
    let create = ["authorization.k8s.io selfsubjectrulesreviews create"];
    create_unrecorded(talk, CLUSTER_ROLES, &role(name, &create)).await?;
    talk.delete_at_end(&format!("{CLUSTER_ROLES}/{name}"));
    create_unrecorded(talk, CLUSTER_BINDINGS, &binding(name, "ClusterRole", name, user)).await?;
    talk.delete_at_end(&format!("{CLUSTER_BINDINGS}/{name}"));
    let asked = json!({
        "verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectrulesreviews",
    });
    wait_until_allowed(talk, user, &asked).await
}

async fn create_only(talk: &mut Session) -> Outcome {
    for path in [ACCESS, OWN_ACCESS, LOCAL, RULES] {
        talk.get(path).await?.expect(405)?;
        talk.delete(path).await?.expect(405)?;
        talk.send(RequestSpec::put(format!("{path}/a"), &json!({}))).await?.expect(404)?;
    }
    Ok(())
}

/// The roles and bindings of the cluster it starts with, as they were made. Those of namespaces are
/// made in any order, which shows in their revisions; a test of its own compares them.
async fn bootstrap_roles(talk: &mut Session) -> Outcome {
    for path in [CLUSTER_ROLES, CLUSTER_BINDINGS] {
        let list = format!("{path}?labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults");
        let answer = talk.send_unrecorded(RequestSpec::get(list)).await?.expect(200)?;
        for name in answer.names() {
            // The rules of aggregated roles depend on the controller that maintains them.
            if !["admin", "edit", "view"].contains(&name.as_str()) {
                talk.get(&format!("{path}/{name}")).await?.expect(200)?;
            }
        }
    }
    Ok(())
}
