//! Nobody gives away more than they hold.

use serde_json::{Value, json};

use super::objects::{object_path, with_query};
use super::roles::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, allow_everywhere, allow_in_namespace,
    binding, create_unrecorded, role, rules, send_as, wait_until_allowed,
};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("grants-by-roles", [], by_roles),
    case!("grants-by-bindings", [], by_bindings),
    case!("grants-by-changes", [], by_changes),
    case!("grants-by-gathering", [], by_aggregation),
    case!("right-to-escalate", [], escalate),
    case!("right-to-bind", [], bind),
    case!("grants-with-lost-roles", [], lost_roles),
    case!("role-of-a-binding-stays", [], role_of_binding),
];

/// A user who may write roles and bindings.
const GRANTER: &str = "{ns}-granter";
/// What they hold in the whole cluster.
const CLUSTER_RULES: [&str; 8] = [
    "rbac.authorization.k8s.io roles,rolebindings,clusterroles,clusterrolebindings \
     create,update,patch,get,delete",
    "- pods get,list",
    "- */log get",
    "- configmaps get a,b",
    "apps,batch deployments,jobs update,patch",
    "x.test * watch",
    "/a,/b/* get",
    "/c/* get,post",
];
/// What they hold in the case's namespace besides.
const NAMESPACE_RULES: [&str; 3] = ["- secrets get,delete", "- services *", "* endpoints list"];

/// What they try to grant, held or not.
const TRIED_RULES: [&[&str]; 55] = [
    &["- pods get"],
    &["- pods get,list"],
    &["- pods list,get,list"],
    &["- pods get,watch"],
    &["- pods get p"],
    &["- pods watch p"],
    &["- pods *"],
    &["- * get"],
    &["* pods get"],
    &["* * *"],
    &["*,- pods,* get,*"],
    &["- pods/log get"],
    &["- pods/log get,list"],
    &["- services/log get"],
    &["- */log get"],
    &["- */status get"],
    &["apps */log get"],
    &["- pods/exec create"],
    &["- configmaps get"],
    &["- configmaps get a"],
    &["- configmaps get b,a"],
    &["- configmaps get a,b,c"],
    &["- configmaps list a"],
    &["- secrets get"],
    &["- secrets get,list"],
    &["- secrets get,delete,deletecollection s"],
    &["- services create,update,delete"],
    &["- services *"],
    &["- services/status update"],
    &["- services/* update"],
    &["apps endpoints list"],
    &["- endpoints list,get"],
    &["* endpoints list"],
    &["discovery.k8s.io,- endpoints,endpointslices list"],
    &["apps deployments update"],
    &["apps,batch deployments,jobs patch,update"],
    &["batch deployments update"],
    &["apps,extensions deployments update"],
    &["apps deployments,replicasets update,delete"],
    &["x.test anything watch"],
    &["x.test any/part watch"],
    &["x.test * watch,get"],
    &["y.test * watch"],
    &["x.test * watch a"],
    &["rbac.authorization.k8s.io roles escalate"],
    &["rbac.authorization.k8s.io clusterroles bind"],
    &["rbac.authorization.k8s.io * get"],
    &["- users impersonate"],
    &["- pods get", "- nodes get", "- pods delete"],
    &["- nodes get", "- nodes list", "- nodes get n", "- nodes list n"],
    &["- pods list", "apps deployments update"],
    &["- nodes,pods get,list,watch", "apps deployments *", "batch jobs create"],
    &["authorization.k8s.io selfsubjectaccessreviews create"],
    &["authorization.k8s.io subjectaccessreviews create"],
    &["- odd\"name get"],
];

/// Paths they try to grant, which only roles of the cluster can.
const TRIED_PATHS: [&[&str]; 14] = [
    &["/a get"],
    &["/a post"],
    &["/a/b get"],
    &["/b get"],
    &["/b/ get"],
    &["/b/c get"],
    &["/b/* get"],
    &["/b/c* get,post"],
    &["/c/d,/c/e get,post"],
    &["/c* get"],
    &["* get"],
    &["/version get"],
    &["/apis/* get"],
    &["/z,/y get,post", "- pods get", "- nodes get"],
];

async fn begin(talk: &mut Session) -> Outcome {
    allow_everywhere(talk, GRANTER, &CLUSTER_RULES).await?;
    allow_in_namespace(talk, GRANTER, &NAMESPACE_RULES).await?;
    let everywhere = json!({ "verb": "get", "resource": "pods", "subresource": "log" });
    wait_until_allowed(talk, GRANTER, &everywhere).await?;
    let here = json!({ "verb": "delete", "resource": "secrets", "namespace": "{ns}" });
    wait_until_allowed(talk, GRANTER, &here).await
}

async fn by_roles(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    for tried in TRIED_RULES {
        for path in [ROLES, CLUSTER_ROLES] {
            let body = role("{ns}-tried", tried);
            send_as(talk, GRANTER, RequestSpec::post(with_query(path, "dryRun=All"), &body))
                .await?;
        }
    }
    for tried in TRIED_PATHS {
        let body = role("{ns}-tried", tried);
        send_as(talk, GRANTER, RequestSpec::post(with_query(CLUSTER_ROLES, "dryRun=All"), &body))
            .await?;
    }
    let answer =
        send_as(talk, GRANTER, RequestSpec::post(ROLES, &role("r", &["- nodes get,list"]))).await?;
    let words = talk.with_namespace(
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"{ns}-granter\" \
         (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently \
         held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}",
    );
    let answer = answer.expect_error(403, "Forbidden", &words)?;
    let group = "rbac.authorization.k8s.io";
    answer.has_value("/details", &json!({ "name": "r", "group": group, "kind": "roles" }))?;
    // A role that has no name yet.
    let mut unnamed = role("", &["- nodes get"]);
    unnamed["metadata"] = json!({ "generateName": "r-" });
    send_as(talk, GRANTER, RequestSpec::post(ROLES, &unnamed)).await?.expect(403)?;
    // What is wrong with a role is found after what it grants.
    let mut odd = role("odd name/", &["- nodes get"]);
    send_as(talk, GRANTER, RequestSpec::post(ROLES, &odd)).await?.expect(403)?;
    odd["rules"] = rules(&["- pods get"]);
    send_as(talk, GRANTER, RequestSpec::post(ROLES, &odd)).await?.expect(422)?;
    send_as(talk, GRANTER, RequestSpec::post(ROLES, &role("r", &["- pods get"])))
        .await?
        .expect(201)?;
    Ok(())
}

async fn by_bindings(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    let tried: [(&str, &[&str]); 7] = [
        ("a", &["- pods get"]),
        ("b", &["- pods get,watch"]),
        ("c", &["- secrets get"]),
        ("d", &["- services *", "- nodes get"]),
        ("e", &["* * *"]),
        ("f", &[]),
        ("g", &["x.test things watch t"]),
    ];
    for (name, rules) in tried {
        create_unrecorded(talk, ROLES, &role(name, rules)).await?;
        let everywhere = format!("{{ns}}-{name}");
        create_unrecorded(talk, CLUSTER_ROLES, &role(&everywhere, rules)).await?;
        talk.delete_at_end(&object_path(CLUSTER_ROLES, &everywhere));
    }
    let bindings = with_query(BINDINGS, "dryRun=All");
    let cluster_bindings = with_query(CLUSTER_BINDINGS, "dryRun=All");
    for (name, _) in tried {
        let everywhere = format!("{{ns}}-{name}");
        for (path, kind, role) in [
            (&bindings, "Role", name),
            (&bindings, "ClusterRole", &everywhere),
            (&cluster_bindings, "ClusterRole", &everywhere),
        ] {
            let body = binding("{ns}-tried", kind, role, "bob");
            send_as(talk, GRANTER, RequestSpec::post(path, &body)).await?;
        }
    }
    // Roles that are not there, and what is no role.
    for (path, kind) in [
        (&bindings, "Role"),
        (&bindings, "ClusterRole"),
        (&cluster_bindings, "ClusterRole"),
        (&cluster_bindings, "Role"),
        (&bindings, "Thing"),
    ] {
        let body = binding("{ns}-tried", kind, "{ns}-none", "bob");
        send_as(talk, GRANTER, RequestSpec::post(path, &body)).await?;
        talk.post(path, &body).await?;
    }
    let mut short = binding("{ns}-tried", "Role", "b", "bob");
    short["roleRef"] = json!({ "kind": "Role", "name": "b" });
    send_as(talk, GRANTER, RequestSpec::post(&bindings, &short)).await?.expect(403)?;
    short["roleRef"] = json!({ "apiGroup": "x.test", "kind": "Role", "name": "a" });
    send_as(talk, GRANTER, RequestSpec::post(&bindings, &short)).await?;
    Ok(())
}

async fn by_changes(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    create_unrecorded(talk, ROLES, &role("weak", &["- pods get"])).await?;
    create_unrecorded(talk, ROLES, &role("strong", &["- nodes get"])).await?;
    create_unrecorded(talk, BINDINGS, &binding("weak", "Role", "weak", "bob")).await?;
    create_unrecorded(talk, BINDINGS, &binding("strong", "Role", "strong", "bob")).await?;
    let (weak, strong) = (object_path(ROLES, "weak"), object_path(ROLES, "strong"));
    let (weak_binding, strong_binding) =
        (object_path(BINDINGS, "weak"), object_path(BINDINGS, "strong"));
    let more = json!({ "rules": rules(&["- nodes get"]) });
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let holds = json!({ "metadata": { "finalizers": ["case.test/hold"] } });
    let frees = json!({ "metadata": { "finalizers": null } });
    let eve = json!({ "subjects": [{ "kind": "User", "name": "eve" }] });
    let op = json!([{ "op": "add", "path": "/rules/-", "value": { "verbs": ["get"],
        "apiGroups": [""], "resources": ["nodes"] } }]);
    let mut applied = role("weak", &["- nodes list"]);
    applied["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    applied["kind"] = json!("Role");
    let table = [
        (RequestSpec::put(&weak, &role("weak", &["- pods get,watch"])), 403),
        (RequestSpec::put(&weak, &role("weak", &["- pods get,list"])), 200),
        (RequestSpec::patch(&weak, PatchType::Merge, &more), 403),
        (RequestSpec::patch(&weak, PatchType::Strategic, &more), 403),
        (RequestSpec::patch(&weak, PatchType::Json, &op), 403),
        (
            RequestSpec::patch(
                with_query(&weak, "fieldManager=me&force=true"),
                PatchType::Apply,
                &applied,
            ),
            403,
        ),
        (RequestSpec::patch(&weak, PatchType::Merge, &label), 200),
        (RequestSpec::patch(&strong, PatchType::Merge, &label), 403),
        (RequestSpec::patch(&strong, PatchType::Merge, &json!({})), 200),
        (RequestSpec::patch(&strong, PatchType::Merge, &holds), 200),
        (RequestSpec::patch(&strong, PatchType::Merge, &frees), 200),
        (RequestSpec::put(&strong, &role("strong", &["- pods get"])), 200),
        (RequestSpec::put(&strong, &role("strong", &["- nodes get"])), 403),
        (RequestSpec::put(object_path(ROLES, "fresh"), &role("fresh", &["- nodes get"])), 403),
        (RequestSpec::put(object_path(ROLES, "fresh"), &role("fresh", &["- pods get"])), 201),
        (RequestSpec::patch(&weak_binding, PatchType::Merge, &eve), 200),
        (RequestSpec::patch(&strong_binding, PatchType::Merge, &eve), 200),
    ];
    for (ask, status) in table {
        send_as(talk, GRANTER, ask).await?.expect(status)?;
    }
    talk.send_unrecorded(RequestSpec::put(&strong, &role("strong", &["- nodes get"])))
        .await?
        .expect(200)?;
    let bob = json!({ "subjects": [{ "kind": "User", "name": "bob" }] });
    let table = [
        (RequestSpec::patch(&strong_binding, PatchType::Merge, &bob), 403),
        (RequestSpec::patch(&strong_binding, PatchType::Merge, &label), 403),
        (RequestSpec::patch(&strong_binding, PatchType::Merge, &holds), 200),
        (RequestSpec::patch(&strong_binding, PatchType::Merge, &frees), 200),
        (RequestSpec::put(&strong_binding, &binding("strong", "Role", "strong", "eve")), 403),
        (
            RequestSpec::put(
                object_path(BINDINGS, "fresh"),
                &binding("fresh", "Role", "strong", "eve"),
            ),
            403,
        ),
        (
            RequestSpec::put(
                object_path(BINDINGS, "fresh"),
                &binding("fresh", "Role", "weak", "eve"),
            ),
            201,
        ),
        (RequestSpec::delete(&strong_binding), 200),
        (RequestSpec::delete(&strong), 200),
    ];
    for (ask, status) in table {
        send_as(talk, GRANTER, ask).await?.expect(status)?;
    }
    Ok(())
}

async fn by_aggregation(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    let gathering = |selectors: Value| {
        json!({
            "metadata": { "name": "{ns}-all" },
            "aggregationRule": { "clusterRoleSelectors": selectors },
        })
    };
    let some = json!([{ "matchLabels": { "case.test/{ns}": "x" } }]);
    let path = with_query(CLUSTER_ROLES, "dryRun=All");
    let words = talk.with_namespace(
        "clusterroles.rbac.authorization.k8s.io \"{ns}-all\" is forbidden: must have cluster-admin \
         privileges to use the aggregationRule",
    );
    let answer = send_as(talk, GRANTER, RequestSpec::post(&path, &gathering(some.clone()))).await?;
    answer.expect_error(403, "Forbidden", &words)?;
    send_as(talk, GRANTER, RequestSpec::post(&path, &gathering(json!([])))).await?;
    let mut both = gathering(some.clone());
    both["rules"] = rules(&["- nodes get"]);
    send_as(talk, GRANTER, RequestSpec::post(&path, &both)).await?.expect(403)?;
    create_unrecorded(talk, CLUSTER_ROLES, &gathering(some)).await?;
    talk.delete_at_end(&object_path(CLUSTER_ROLES, "{ns}-all"));
    let own = object_path(CLUSTER_ROLES, "{ns}-all");
    let table = [
        RequestSpec::patch(&own, PatchType::Merge, &json!({ "aggregationRule": null })),
        RequestSpec::patch(
            &own,
            PatchType::Merge,
            &json!({ "metadata": { "labels": { "a": "b" } } }),
        ),
        RequestSpec::put(&own, &role("{ns}-all", &["- pods get"])),
    ];
    for ask in table {
        let answer = send_as(talk, GRANTER, ask).await?;
        answer.expect_error(403, "Forbidden", &words)?;
    }
    Ok(())
}

async fn escalate(talk: &mut Session) -> Outcome {
    let user = "{ns}-climber";
    let briefs = [
        "rbac.authorization.k8s.io roles create,update,patch,get",
        "rbac.authorization.k8s.io roles escalate mine",
        "rbac.authorization.k8s.io rolebindings *",
    ];
    allow_in_namespace(talk, user, &briefs).await?;
    create_unrecorded(talk, ROLES, &role("mine", &["- pods get"])).await?;
    create_unrecorded(talk, ROLES, &role("other", &["- pods get"])).await?;
    let last = json!({
        "verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "rolebindings",
        "namespace": "{ns}",
    });
    wait_until_allowed(talk, user, &last).await?;
    let strong = |name: &str| role(name, &["* * *"]);
    let table = [
        (RequestSpec::put(object_path(ROLES, "mine"), &strong("mine")), 200),
        (RequestSpec::put(object_path(ROLES, "other"), &strong("other")), 403),
        // The name of a new object is in its body, where the right is not looked for.
        (RequestSpec::post(with_query(ROLES, "dryRun=All"), &strong("mine")), 403),
        // The right to escalate is none to bind.
        (RequestSpec::post(BINDINGS, &binding("b", "Role", "mine", "bob")), 403),
    ];
    for (ask, status) in table {
        send_as(talk, user, ask).await?.expect(status)?;
    }
    Ok(())
}

async fn bind(talk: &mut Session) -> Outcome {
    let user = "{ns}-binder";
    let briefs = [
        "rbac.authorization.k8s.io rolebindings create,update,patch,get",
        "rbac.authorization.k8s.io roles bind a",
        "rbac.authorization.k8s.io clusterroles bind cluster-admin",
    ];
    allow_in_namespace(talk, user, &briefs).await?;
    for name in ["a", "b"] {
        create_unrecorded(talk, ROLES, &role(name, &["* * *"])).await?;
    }
    let last = json!({
        "verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "clusterroles",
        "name": "cluster-admin", "namespace": "{ns}",
    });
    wait_until_allowed(talk, user, &last).await?;
    let table = [
        (RequestSpec::post(BINDINGS, &binding("x", "Role", "a", "bob")), 201),
        (RequestSpec::post(BINDINGS, &binding("y", "Role", "b", "bob")), 403),
        (RequestSpec::post(BINDINGS, &binding("z", "ClusterRole", "cluster-admin", "bob")), 201),
        (RequestSpec::put(object_path(BINDINGS, "x"), &binding("x", "Role", "a", "eve")), 200),
        (
            RequestSpec::post(
                CLUSTER_BINDINGS,
                &binding("{ns}-w", "ClusterRole", "cluster-admin", "b"),
            ),
            403,
        ),
        // Who may bind a role need not know whether it is there.
        (RequestSpec::post(BINDINGS, &binding("w", "Role", "none", "bob")), 404),
    ];
    for (ask, status) in table {
        send_as(talk, user, ask).await?.expect(status)?;
    }
    Ok(())
}

async fn lost_roles(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    create_unrecorded(talk, BINDINGS, &binding("lost", "Role", "gone", GRANTER)).await?;
    let body = role("r", &["- nodes get"]);
    let lost = |answer: &crate::response::Response| {
        answer.string("/message").contains("resolution errors")
    };
    let ask = super::roles::as_user(GRANTER, RequestSpec::post(ROLES, &body));
    talk.send_until(ask, lost).await?.expect(403)?;
    create_unrecorded(talk, BINDINGS, &binding("more", "ClusterRole", "{ns}-gone", GRANTER))
        .await?;
    let ask = super::roles::as_user(GRANTER, RequestSpec::post(ROLES, &body));
    let both = |answer: &crate::response::Response| answer.string("/message").contains("[[");
    talk.send_until(ask, both).await?.expect(403)?;
    send_as(talk, GRANTER, RequestSpec::post(ROLES, &role("r", &["- pods get"])))
        .await?
        .expect(201)?;
    Ok(())
}

async fn role_of_binding(talk: &mut Session) -> Outcome {
    begin(talk).await?;
    create_unrecorded(talk, ROLES, &role("a", &["- pods get"])).await?;
    create_unrecorded(talk, ROLES, &role("b", &["- pods get"])).await?;
    create_unrecorded(talk, BINDINGS, &binding("x", "Role", "a", "bob")).await?;
    let turned = binding("x", "Role", "b", "bob");
    talk.put(&object_path(BINDINGS, "x"), &turned).await?.expect_error_containing(
        422,
        "Invalid",
        "cannot change roleRef",
    )?;
    send_as(talk, GRANTER, RequestSpec::put(object_path(BINDINGS, "x"), &turned))
        .await?
        .expect(422)?;
    let strong = binding("x", "ClusterRole", "cluster-admin", "bob");
    send_as(talk, GRANTER, RequestSpec::put(object_path(BINDINGS, "x"), &strong))
        .await?
        .expect(403)?;
    Ok(())
}
