//! Who may do what, in which words they are refused, and acting as someone else.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, LEASES, PODS, config_map, object_path, with_query};
use super::roles::{allow_everywhere, allow_in_namespace, as_user, send_as, wait_until_allowed};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("refused-requests", [], refused),
    case!("refused-paths", [], refused_paths),
    case!("strangers", [], anonymous),
    case!("allowed-by-name", [], by_name),
    case!("allowed-to-change-but-not-to-make", [], changes_that_create),
    case!("impersonation", [], impersonation),
    case!("impersonation-without-a-user", [], without_user),
    case!("impersonation-needs-rights", [], impersonation_rights),
];

const USER: &str = "{ns}-eve";

async fn refused(talk: &mut Session) -> Outcome {
    let one = object_path(PODS, "p");
    let things = "/apis/none.test/v1/things";
    let table = [
        RequestSpec::get(PODS),
        RequestSpec::get("/api/v1/pods"),
        RequestSpec::get(one.clone()),
        RequestSpec::get(object_path(&one, "log")),
        RequestSpec::get(with_query(PODS, "watch=true")),
        RequestSpec::get(with_query(PODS, "watch=0")),
        RequestSpec::get(with_query(PODS, "fieldSelector=metadata.name%3Dp")),
        RequestSpec::get(with_query(PODS, "fieldSelector=metadata.name!%3Dp")),
        RequestSpec::get(with_query(PODS, "fieldSelector=metadata.name%3Dp&watch=1")),
        RequestSpec::get(with_query(&one, "watch=1")),
        RequestSpec::get("/api/v1/watch/namespaces/{ns}/pods"),
        RequestSpec::get("/api/v1/watch/namespaces/{ns}/pods/p"),
        RequestSpec::get("/api/v1/watch/namespaces/{ns}"),
        RequestSpec::post(PODS, &json!({})),
        RequestSpec::post(object_path(&one, "eviction"), &json!({})),
        RequestSpec::post(object_path(&one, "exec"), &json!({})),
        RequestSpec::get(object_path(&one, "proxy/a/b")),
        RequestSpec::put(one.clone(), &json!({})),
        RequestSpec::put(object_path(&one, "status"), &json!({})),
        RequestSpec::patch(one.clone(), PatchType::Merge, &json!({})),
        RequestSpec::patch(one.clone(), PatchType::Apply, &json!({})),
        RequestSpec::delete(one.clone()),
        RequestSpec::delete(PODS),
        RequestSpec::delete(with_query(PODS, "fieldSelector=metadata.name%3Dp")),
        RequestSpec::get("/api/v1/namespaces"),
        RequestSpec::get("/api/v1/namespaces/{ns}"),
        RequestSpec::get("/api/v1/namespaces/{ns}/status"),
        RequestSpec::put("/api/v1/namespaces/{ns}/finalize", &json!({})),
        RequestSpec::get("/api/v1/nodes"),
        RequestSpec::get("/api/v1/nodes/n"),
        RequestSpec::post("/api/v1/nodes", &json!({})),
        RequestSpec::get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"),
        RequestSpec::get("/apis/apps/v9/namespaces/{ns}/deployments"),
        RequestSpec::get(things),
        RequestSpec::get(object_path(things, "t")),
        RequestSpec::get("/apis/none.test/v1/namespaces/{ns}/things/t/part"),
        RequestSpec::post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &json!({})),
        RequestSpec::post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({})),
        RequestSpec::get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        RequestSpec::new("OPTIONS", PODS),
        RequestSpec::get(PODS).table(),
    ];
    for ask in table {
        send_as(talk, USER, ask).await?.expect(403)?;
    }
    let answer = send_as(talk, USER, RequestSpec::get(object_path(&one, "log"))).await?;
    let words = talk.with_namespace(
        "pods \"p\" is forbidden: User \"{ns}-eve\" cannot get resource \"pods/log\" in API group \
         \"\" in the namespace \"{ns}\"",
    );
    let answer = answer.expect_error(403, "Forbidden", &words)?;
    answer.has_value("/details", &json!({ "name": "p", "kind": "pods" }))?;
    // Texts that could be taken for a page.
    send_as(talk, "a<b>&\"c", RequestSpec::get(PODS)).await?.expect(403)?;
    Ok(())
}

async fn refused_paths(talk: &mut Session) -> Outcome {
    for path in ["/metrics", "/", "/nothing", "/logs/a", "/livez/ping", "/readyz/a/b"] {
        let answer = send_as(talk, USER, RequestSpec::get(path)).await?.expect(403)?;
        answer.has_value("/details", &json!({}))?;
    }
    for path in ["/version", "/livez", "/readyz", "/healthz", "/api", "/apis", "/apis/apps/v1"] {
        send_as(talk, USER, RequestSpec::get(path)).await?.expect(200)?;
        send_as(talk, USER, RequestSpec::post(path, &json!({}))).await?.expect(403)?;
    }
    for path in ["/metrics", "/openapi/v3"] {
        let ask = as_user("somebody", RequestSpec::get(path))
            .header("impersonate-group", "system:monitoring");
        talk.send_unrecorded(ask).await?.expect(200)?;
    }
    Ok(())
}

async fn anonymous(talk: &mut Session) -> Outcome {
    for path in ["/version", "/version/", "/healthz", "/livez", "/readyz"] {
        talk.send_unrecorded(RequestSpec::get(path).anonymously()).await?.expect(200)?;
    }
    let mine = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let table = [
        RequestSpec::get("/api"),
        RequestSpec::get("/apis"),
        RequestSpec::get("/openapi/v3"),
        RequestSpec::get("/metrics"),
        RequestSpec::get("/"),
        RequestSpec::get("/livez/ping"),
        RequestSpec::post("/version", &json!({})),
        RequestSpec::get(CONFIG_MAPS),
        RequestSpec::post(CONFIG_MAPS, &config_map("a", "x")),
        RequestSpec::delete(CONFIG_MAPS),
        RequestSpec::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &mine),
        RequestSpec::get(CONFIG_MAPS).header("impersonate-user", "admin"),
    ];
    for ask in table {
        talk.send(ask.anonymously()).await?.expect(403)?;
    }
    Ok(())
}

async fn by_name(talk: &mut Session) -> Outcome {
    let user = "{ns}-named";
    allow_in_namespace(talk, user, &["- configmaps * a", "- pods list p", "apps */scale get"])
        .await?;
    let scale = json!({
        "verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale",
        "namespace": "{ns}",
    });
    wait_until_allowed(talk, user, &scale).await?;
    talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &config_map("a", "x")))
        .await?
        .expect(201)?;
    let only =
        |name: &str| with_query(CONFIG_MAPS, &format!("fieldSelector=metadata.name%3D{name}"));
    let table = [
        (RequestSpec::get(object_path(CONFIG_MAPS, "a")), 200),
        (RequestSpec::get(object_path(CONFIG_MAPS, "b")), 403),
        (RequestSpec::get(CONFIG_MAPS), 403),
        (RequestSpec::get(only("a")), 200),
        (RequestSpec::get(only("b")), 403),
        (RequestSpec::get(with_query(CONFIG_MAPS, "fieldSelector=metadata.name%3D%3Da")), 200),
        (RequestSpec::get(with_query(CONFIG_MAPS, "fieldSelector=metadata.name!%3Da")), 403),
        (
            RequestSpec::get(with_query(
                CONFIG_MAPS,
                "fieldSelector=metadata.name%3Db,metadata.name%3Da",
            )),
            200,
        ),
        (
            RequestSpec::get(with_query(
                CONFIG_MAPS,
                "fieldSelector=metadata.name%3Da,metadata.name%3Db",
            )),
            200,
        ),
        (RequestSpec::get(with_query(CONFIG_MAPS, "fieldSelector=metadata.name%3D..")), 403),
        (RequestSpec::get(with_query(PODS, "fieldSelector=metadata.name%3Dp")), 200),
        (RequestSpec::get(with_query(PODS, "fieldSelector=metadata.name%3Dp&watch=1")), 403),
        (RequestSpec::post(CONFIG_MAPS, &config_map("a", "x")), 403),
        (RequestSpec::delete(only("a")), 403),
        (RequestSpec::get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"), 404),
        (RequestSpec::get("/apis/apps/v1/namespaces/{ns}/deployments/d/status"), 403),
        (
            RequestSpec::patch(
                object_path(CONFIG_MAPS, "a"),
                PatchType::Merge,
                &json!({ "data": { "b": "y" } }),
            ),
            200,
        ),
        (RequestSpec::delete(object_path(CONFIG_MAPS, "a")), 200),
    ];
    for (ask, status) in table {
        send_as(talk, user, ask).await?.expect(status)?;
    }
    Ok(())
}

async fn changes_that_create(talk: &mut Session) -> Outcome {
    let user = "{ns}-changer";
    let rules = ["coordination.k8s.io leases update,patch", "- configmaps update,patch"];
    allow_in_namespace(talk, user, &rules).await?;
    let patch = json!({ "verb": "patch", "resource": "configmaps", "namespace": "{ns}" });
    wait_until_allowed(talk, user, &patch).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a" },
        "spec": { "holderIdentity": "me" },
    });
    let answer = send_as(talk, user, RequestSpec::put(object_path(LEASES, "a"), &lease)).await?;
    let words = talk.with_namespace(
        "leases.coordination.k8s.io \"a\" is forbidden: User \"{ns}-changer\" cannot create \
         resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{ns}\"",
    );
    answer.expect_error(403, "Forbidden", &words)?;
    let applied = with_query(&object_path(CONFIG_MAPS, "a"), "fieldManager=me");
    let mut body = config_map("a", "x");
    let ask = |body: &Value| RequestSpec::patch(applied.clone(), PatchType::Apply, body);
    send_as(talk, user, ask(&body)).await?.expect(403)?;
    // What is wrong with the object is found first.
    body["metadata"]["labels"] = json!({ "a": "not a label!" });
    send_as(talk, user, ask(&body)).await?.expect(422)?;
    talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &config_map("a", "x")))
        .await?
        .expect(201)?;
    send_as(talk, user, ask(&config_map("a", "x"))).await?.expect(200)?;
    Ok(())
}

/// Asks for the user of the request itself.
fn self_subject_review() -> RequestSpec {
    RequestSpec::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}))
}

async fn impersonation(talk: &mut Session) -> Outcome {
    let group = |ask: RequestSpec, group: &str| ask.header("impersonate-group", group);
    let account = "system:serviceaccount:a:b";
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    let table = [
        as_user("bob", self_subject_review()),
        group(as_user("bob", self_subject_review()), "devs"),
        group(group(as_user("bob", self_subject_review()), "devs"), "ops"),
        group(as_user("bob", self_subject_review()), known),
        group(as_user(account, self_subject_review()), "devs"),
        as_user(account, self_subject_review()),
        as_user("system:serviceaccount:a:b:c", self_subject_review()),
        as_user("system:serviceaccount:A:b", self_subject_review()),
        as_user("bob", self_subject_review()).header("impersonate-uid", "17"),
        as_user("bob", self_subject_review())
            .header("impersonate-extra-scopes", "a")
            .header("impersonate-extra-scopes", "b")
            .header("impersonate-extra-other%2fkey", "c")
            .header("impersonate-extra-broken%zz%2f", "d"),
    ];
    for ask in table {
        talk.send(ask).await?.expect(201)?;
    }
    // The anonymous user, and users of the group of unauthenticated users, may not even ask.
    talk.send(as_user("system:anonymous", self_subject_review())).await?.expect(403)?;
    talk.send(group(as_user("system:anonymous", self_subject_review()), known))
        .await?
        .expect(201)?;
    talk.send(group(as_user("bob", self_subject_review()), unknown)).await?.expect(403)?;
    Ok(())
}

async fn without_user(talk: &mut Session) -> Outcome {
    let table = [
        RequestSpec::get(CONFIG_MAPS).header("impersonate-group", "devs"),
        RequestSpec::get(with_query(CONFIG_MAPS, "a=b&c=%3Cd%3E")).header("impersonate-uid", "<7>"),
        RequestSpec::get(CONFIG_MAPS)
            .header("impersonate-user", "")
            .header("impersonate-group", "devs")
            .header("impersonate-group", "ops")
            .header("impersonate-extra-a%2fb", "c")
            .header("impersonate-uid", "7"),
    ];
    for ask in table {
        talk.send(ask).await?.expect(500)?;
    }
    Ok(())
}

async fn impersonation_rights(talk: &mut Session) -> Outcome {
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
    let stranger = |ask: RequestSpec| ask.anonymously();
    let table = [
        RequestSpec::get(CONFIG_MAPS).header("impersonate-user", "bob"),
        RequestSpec::get(CONFIG_MAPS).header("impersonate-user", "system:serviceaccount:a:b"),
        RequestSpec::get("/version").header("impersonate-user", "bob"),
        RequestSpec::get(CONFIG_MAPS)
            .header("impersonate-user", "b")
            .header("impersonate-group", "c"),
    ];
    for ask in table {
        talk.send(stranger(ask)).await?.expect(403)?;
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
