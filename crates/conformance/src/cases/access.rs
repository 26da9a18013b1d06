//! Who may do what, in which words they are refused, and acting as someone else.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, LEASES, PODS, at, config_map, with};
use super::roles::{allow, allow_everywhere, ask_as, by, wait_until_allowed};
use crate::case::{Case, Outcome, case};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("refused-requests", [], refused),
    case!("refused-paths", [], refused_paths),
    case!("strangers", [], strangers),
    case!("allowed-by-name", [], by_name),
    case!("allowed-to-change-but-not-to-make", [], changes_that_create),
    case!("impersonation", [], impersonation),
    case!("impersonation-without-a-user", [], without_user),
    case!("impersonation-needs-rights", [], impersonation_rights),
];

const EVE: &str = "{ns}-eve";

async fn refused(talk: &mut Conversation) -> Outcome {
    let one = at(PODS, "p");
    let things = "/apis/none.test/v1/things";
    let table = [
        Ask::get(PODS),
        Ask::get("/api/v1/pods"),
        Ask::get(one.clone()),
        Ask::get(at(&one, "log")),
        Ask::get(with(PODS, "watch=true")),
        Ask::get(with(PODS, "watch=0")),
        Ask::get(with(PODS, "fieldSelector=metadata.name%3Dp")),
        Ask::get(with(PODS, "fieldSelector=metadata.name!%3Dp")),
        Ask::get(with(PODS, "fieldSelector=metadata.name%3Dp&watch=1")),
        Ask::get(with(&one, "watch=1")),
        Ask::get("/api/v1/watch/namespaces/{ns}/pods"),
        Ask::get("/api/v1/watch/namespaces/{ns}/pods/p"),
        Ask::get("/api/v1/watch/namespaces/{ns}"),
        Ask::post(PODS, &json!({})),
        Ask::post(at(&one, "eviction"), &json!({})),
        Ask::post(at(&one, "exec"), &json!({})),
        Ask::get(at(&one, "proxy/a/b")),
        Ask::put(one.clone(), &json!({})),
        Ask::put(at(&one, "status"), &json!({})),
        Ask::patch(one.clone(), Patch::Merge, &json!({})),
        Ask::patch(one.clone(), Patch::Apply, &json!({})),
        Ask::delete(one.clone()),
        Ask::delete(PODS),
        Ask::delete(with(PODS, "fieldSelector=metadata.name%3Dp")),
        Ask::get("/api/v1/namespaces"),
        Ask::get("/api/v1/namespaces/{ns}"),
        Ask::get("/api/v1/namespaces/{ns}/status"),
        Ask::put("/api/v1/namespaces/{ns}/finalize", &json!({})),
        Ask::get("/api/v1/nodes"),
        Ask::get("/api/v1/nodes/n"),
        Ask::post("/api/v1/nodes", &json!({})),
        Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"),
        Ask::get("/apis/apps/v9/namespaces/{ns}/deployments"),
        Ask::get(things),
        Ask::get(at(things, "t")),
        Ask::get("/apis/none.test/v1/namespaces/{ns}/things/t/part"),
        Ask::post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &json!({})),
        Ask::post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({})),
        Ask::get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        Ask::new("OPTIONS", PODS),
        Ask::get(PODS).table(),
    ];
    for ask in table {
        ask_as(talk, EVE, ask).await?.expect(403)?;
    }
    let answer = ask_as(talk, EVE, Ask::get(at(&one, "log"))).await?;
    let words = talk.fill(
        "pods \"p\" is forbidden: User \"{ns}-eve\" cannot get resource \"pods/log\" in API group \
         \"\" in the namespace \"{ns}\"",
    );
    let answer = answer.refused(403, "Forbidden", &words)?;
    answer.is("/details", &json!({ "name": "p", "kind": "pods" }))?;
    // Texts that could be taken for a page.
    ask_as(talk, "a<b>&\"c", Ask::get(PODS)).await?.expect(403)?;
    Ok(())
}

async fn refused_paths(talk: &mut Conversation) -> Outcome {
    for path in ["/metrics", "/", "/nothing", "/logs/a", "/livez/ping", "/readyz/a/b"] {
        let answer = ask_as(talk, EVE, Ask::get(path)).await?.expect(403)?;
        answer.is("/details", &json!({}))?;
    }
    for path in ["/version", "/livez", "/readyz", "/healthz", "/api", "/apis", "/apis/apps/v1"] {
        ask_as(talk, EVE, Ask::get(path)).await?.expect(200)?;
        ask_as(talk, EVE, Ask::post(path, &json!({}))).await?.expect(403)?;
    }
    for path in ["/metrics", "/openapi/v3"] {
        let ask = by("somebody", Ask::get(path)).header("impersonate-group", "system:monitoring");
        talk.ask_unrecorded(ask).await?.expect(200)?;
    }
    Ok(())
}

async fn strangers(talk: &mut Conversation) -> Outcome {
    for path in ["/version", "/version/", "/healthz", "/livez", "/readyz"] {
        talk.ask_unrecorded(Ask::get(path).by_stranger()).await?.expect(200)?;
    }
    let mine = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let table = [
        Ask::get("/api"),
        Ask::get("/apis"),
        Ask::get("/openapi/v3"),
        Ask::get("/metrics"),
        Ask::get("/"),
        Ask::get("/livez/ping"),
        Ask::post("/version", &json!({})),
        Ask::get(CONFIG_MAPS),
        Ask::post(CONFIG_MAPS, &config_map("a", "x")),
        Ask::delete(CONFIG_MAPS),
        Ask::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &mine),
        Ask::get(CONFIG_MAPS).header("impersonate-user", "admin"),
    ];
    for ask in table {
        talk.ask(ask.by_stranger()).await?.expect(403)?;
    }
    Ok(())
}

async fn by_name(talk: &mut Conversation) -> Outcome {
    let user = "{ns}-named";
    allow(talk, user, &["- configmaps * a", "- pods list p", "apps */scale get"]).await?;
    let scale = json!({
        "verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale",
        "namespace": "{ns}",
    });
    wait_until_allowed(talk, user, &scale).await?;
    talk.ask_unrecorded(Ask::post(CONFIG_MAPS, &config_map("a", "x"))).await?.expect(201)?;
    let only = |name: &str| with(CONFIG_MAPS, &format!("fieldSelector=metadata.name%3D{name}"));
    let table = [
        (Ask::get(at(CONFIG_MAPS, "a")), 200),
        (Ask::get(at(CONFIG_MAPS, "b")), 403),
        (Ask::get(CONFIG_MAPS), 403),
        (Ask::get(only("a")), 200),
        (Ask::get(only("b")), 403),
        (Ask::get(with(CONFIG_MAPS, "fieldSelector=metadata.name%3D%3Da")), 200),
        (Ask::get(with(CONFIG_MAPS, "fieldSelector=metadata.name!%3Da")), 403),
        (Ask::get(with(CONFIG_MAPS, "fieldSelector=metadata.name%3Db,metadata.name%3Da")), 200),
        (Ask::get(with(CONFIG_MAPS, "fieldSelector=metadata.name%3Da,metadata.name%3Db")), 200),
        (Ask::get(with(CONFIG_MAPS, "fieldSelector=metadata.name%3D..")), 403),
        (Ask::get(with(PODS, "fieldSelector=metadata.name%3Dp")), 200),
        (Ask::get(with(PODS, "fieldSelector=metadata.name%3Dp&watch=1")), 403),
        (Ask::post(CONFIG_MAPS, &config_map("a", "x")), 403),
        (Ask::delete(only("a")), 403),
        (Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"), 404),
        (Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/d/status"), 403),
        (Ask::patch(at(CONFIG_MAPS, "a"), Patch::Merge, &json!({ "data": { "b": "y" } })), 200),
        (Ask::delete(at(CONFIG_MAPS, "a")), 200),
    ];
    for (ask, status) in table {
        ask_as(talk, user, ask).await?.expect(status)?;
    }
    Ok(())
}

async fn changes_that_create(talk: &mut Conversation) -> Outcome {
    let user = "{ns}-changer";
    let rules = ["coordination.k8s.io leases update,patch", "- configmaps update,patch"];
    allow(talk, user, &rules).await?;
    let patch = json!({ "verb": "patch", "resource": "configmaps", "namespace": "{ns}" });
    wait_until_allowed(talk, user, &patch).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a" },
        "spec": { "holderIdentity": "me" },
    });
    let answer = ask_as(talk, user, Ask::put(at(LEASES, "a"), &lease)).await?;
    let words = talk.fill(
        "leases.coordination.k8s.io \"a\" is forbidden: User \"{ns}-changer\" cannot create resource \
         \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{ns}\"",
    );
    answer.refused(403, "Forbidden", &words)?;
    let applied = with(&at(CONFIG_MAPS, "a"), "fieldManager=me");
    let mut body = config_map("a", "x");
    let ask = |body: &Value| Ask::patch(applied.clone(), Patch::Apply, body);
    ask_as(talk, user, ask(&body)).await?.expect(403)?;
    // What is wrong with the object is found first.
    body["metadata"]["labels"] = json!({ "a": "not a label!" });
    ask_as(talk, user, ask(&body)).await?.expect(422)?;
    talk.ask_unrecorded(Ask::post(CONFIG_MAPS, &config_map("a", "x"))).await?.expect(201)?;
    ask_as(talk, user, ask(&config_map("a", "x"))).await?.expect(200)?;
    Ok(())
}

/// Asks who one is.
fn who() -> Ask {
    Ask::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}))
}

async fn impersonation(talk: &mut Conversation) -> Outcome {
    let group = |ask: Ask, group: &str| ask.header("impersonate-group", group);
    let account = "system:serviceaccount:a:b";
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    let table = [
        by("bob", who()),
        group(by("bob", who()), "devs"),
        group(group(by("bob", who()), "devs"), "ops"),
        group(by("bob", who()), known),
        group(by(account, who()), "devs"),
        by(account, who()),
        by("system:serviceaccount:a:b:c", who()),
        by("system:serviceaccount:A:b", who()),
        by("bob", who()).header("impersonate-uid", "17"),
        by("bob", who())
            .header("impersonate-extra-scopes", "a")
            .header("impersonate-extra-scopes", "b")
            .header("impersonate-extra-other%2fkey", "c")
            .header("impersonate-extra-broken%zz%2f", "d"),
    ];
    for ask in table {
        talk.ask(ask).await?.expect(201)?;
    }
    // Nobody, and whoever says to be unknown, may not even ask.
    talk.ask(by("system:anonymous", who())).await?.expect(403)?;
    talk.ask(group(by("system:anonymous", who()), known)).await?.expect(201)?;
    talk.ask(group(by("bob", who()), unknown)).await?.expect(403)?;
    Ok(())
}

async fn without_user(talk: &mut Conversation) -> Outcome {
    let table = [
        Ask::get(CONFIG_MAPS).header("impersonate-group", "devs"),
        Ask::get(with(CONFIG_MAPS, "a=b&c=%3Cd%3E")).header("impersonate-uid", "<7>"),
        Ask::get(CONFIG_MAPS)
            .header("impersonate-user", "")
            .header("impersonate-group", "devs")
            .header("impersonate-group", "ops")
            .header("impersonate-extra-a%2fb", "c")
            .header("impersonate-uid", "7"),
    ];
    for ask in table {
        talk.ask(ask).await?.expect(500)?;
    }
    Ok(())
}

async fn impersonation_rights(talk: &mut Conversation) -> Outcome {
    // Impersonation cannot be nested, so the rights are asked for in reviews; what a caller without
    // any is told shows with a stranger.
    let rules = [
        "- users,groups impersonate bob,devs",
        "- serviceaccounts impersonate",
        "authentication.k8s.io userextras/scopes impersonate a",
        "authentication.k8s.io uids impersonate 7",
    ];
    let user = "{ns}-actor";
    allow_everywhere(talk, user, &rules).await?;
    let last = json!({
        "verb": "impersonate", "group": "authentication.k8s.io", "resource": "uids", "name": "7",
    });
    wait_until_allowed(talk, user, &last).await?;
    let stranger = |ask: Ask| ask.by_stranger();
    let table = [
        Ask::get(CONFIG_MAPS).header("impersonate-user", "bob"),
        Ask::get(CONFIG_MAPS).header("impersonate-user", "system:serviceaccount:a:b"),
        Ask::get("/version").header("impersonate-user", "bob"),
        Ask::get(CONFIG_MAPS).header("impersonate-user", "b").header("impersonate-group", "c"),
    ];
    for ask in table {
        talk.ask(stranger(ask)).await?.expect(403)?;
    }
    let asked = [
        ("", "users", "", "bob"),
        ("", "users", "", "eve"),
        ("", "groups", "", "devs"),
        ("", "groups", "", "ops"),
        ("", "serviceaccounts", "", "x"),
        ("authentication.k8s.io", "userextras", "scopes", "a"),
        ("authentication.k8s.io", "userextras", "scopes", "b"),
        ("authentication.k8s.io", "userextras", "", "a"),
        ("authentication.k8s.io", "uids", "", "7"),
        ("authentication.k8s.io", "uids", "", "8"),
    ];
    for (group, resource, part, name) in asked {
        let body = json!({ "spec": { "user": user, "resourceAttributes": {
            "verb": "impersonate", "group": group, "resource": resource, "subresource": part,
            "name": name,
        } } });
        talk.post(super::roles::ACCESS, &body).await?.expect(201)?;
    }
    Ok(())
}
