//! The manifests, applied to a server that lets roles decide: what the operator may do, and what not.

use gantry_testkit::http::{Client, Request};
use serde_json::{Value, json};

use super::{Site, config_map, done, manifests, namespace, path_of};

/// Whether a client may do this, as the server sees it.
async fn may(client: &Client, attributes: &Value) -> bool {
    let review = json!({ "spec": { "resourceAttributes": attributes } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = done(&client.send(Request::post(path, &review)).await.unwrap());
    answer["status"]["allowed"].as_bool().unwrap()
}

fn about(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Value {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    json!({
        "verb": verb, "group": group, "resource": resource, "subresource": part,
        "namespace": namespace, "name": name,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_1_the_operator_may_do_what_it_does_and_nothing_else() {
    let site = Site::new().await;
    let operator = site.operator().await;
    let (own, rbac, queue) =
        ("gantry-system", "rbac.authorization.k8s.io", "workload.codeflare.dev");
    let definitions = "customresourcedefinitions";
    let table = [
        // expected verb group resource namespace name
        (true, "get", "", "configmaps", own, "gantry-config"),
        (true, "get", "", "configmaps", own, "codeflare-operator-config"),
        (true, "create", "", "configmaps", own, ""),
        (false, "update", "", "configmaps", own, "gantry-config"),
        (true, "create", "coordination.k8s.io", "leases", own, ""),
        (true, "update", "coordination.k8s.io", "leases", own, "gantry-operator"),
        (false, "update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
        (true, "create", "", "events", "default", ""),
        (false, "delete", "", "events", "default", "x"),
        (
            true,
            "get",
            "apiextensions.k8s.io",
            definitions,
            "",
            "appwrappers.workload.codeflare.dev",
        ),
        (false, "get", "apiextensions.k8s.io", definitions, "", "widgets.example.org"),
        (false, "create", "apiextensions.k8s.io", definitions, "", ""),
        (true, "watch", queue, "appwrappers", "default", ""),
        (true, "update", queue, "appwrappers/status", "default", "x"),
        (true, "watch", "", "nodes", "", ""),
        (false, "patch", "", "nodes", "", "n"),
        (true, "create", "batch", "jobs", "default", ""),
        (true, "delete", "ray.io", "rayclusters", "default", "x"),
        (false, "patch", "batch", "jobs", "default", "x"),
        (false, "get", "", "secrets", "default", "x"),
        (false, "get", "", "secrets", own, "x"),
        (false, "list", "", "secrets", "", ""),
        (false, "create", "", "serviceaccounts", "default", ""),
        (false, "create", "", "serviceaccounts/token", own, "controller-manager"),
        (false, "create", rbac, "clusterroles", "", ""),
        (false, "create", rbac, "clusterrolebindings", "", ""),
        (false, "create", rbac, "roles", own, ""),
        (false, "create", rbac, "rolebindings", own, ""),
        (false, "bind", rbac, "clusterroles", "", "cluster-admin"),
        (false, "impersonate", "", "users", "", "x"),
        (false, "create", "apps", "daemonsets", "default", ""),
        (false, "update", "apps", "deployments", own, "gantry-operator"),
        (false, "create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
        (false, "update", "machine.openshift.io", "machinesets", "default", "x"),
    ];
    for (expected, verb, group, resource, namespace, name) in table {
        let attributes = about(verb, group, resource, namespace, name);
        assert_eq!(may(&operator, &attributes).await, expected, "{attributes}");
    }
    // Not only asked about: tried.
    let role = json!({ "metadata": { "name": "mine" }, "rules": [] });
    let tries = [
        (Request::post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role), 403),
        (Request::post(format!("{}/serviceaccounts", namespace()), &role), 403),
        (Request::get("/api/v1/namespaces/default/secrets"), 403),
        (Request::get("/api/v1/nodes"), 200),
    ];
    for (request, expected) in tries {
        let line = format!("{} {}", request.method, request.path_and_query);
        assert_eq!(operator.send(request).await.unwrap().status.as_u16(), expected, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_2_a_platform_adds_kinds_by_a_label() {
    let site = Site::new().await;
    let operator = site.operator().await;
    let widgets = about("create", "example.org", "widgets", "default", "");
    assert!(!may(&operator, &widgets).await);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": "widgets-can-be-wrapped",
            "labels": { gantry::manifests::WRAPPED_LABEL: "true" },
        },
        "rules": [{ "apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["create"] }],
    });
    site.apply(&role).await;
    // The sum of roles follows in its own time; the answer cannot turn back.
    let clock = gantry_process::clock::Clock::system();
    let patience = std::time::Duration::from_secs(60);
    let added = clock.timeout(patience, async {
        while !may(&operator, &widgets).await {
            clock.sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    added.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_3_every_manifest_is_accepted_twice_and_changes_nothing_the_second_time() {
    let site = Site::new().await;
    let mut files: Vec<_> = std::fs::read_dir(manifests().join("optional")).unwrap().collect();
    files.extend(std::fs::read_dir(manifests()).unwrap());
    let mut objects = 0;
    for file in files.into_iter().map(|file| file.unwrap().path()).filter(|file| file.is_file()) {
        site.apply_file(&file).await;
        let text = std::fs::read_to_string(&file).unwrap();
        for document in gantry_api::yaml::read(&text).unwrap() {
            let object = document.to_json();
            let before = done(&site.get(&path_of(&object)).await);
            let after = site.apply(&object).await;
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&after), version(&before), "{}", path_of(&object));
            objects += 1;
        }
    }
    assert!(objects > 15, "{objects}");

    let path = "/apis/apps/v1/namespaces/gantry-system/deployments/gantry-operator";
    let pod = done(&site.get(path).await)["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let resources = json!({ "cpu": "1", "memory": "1Gi" });
    assert_eq!(container["resources"], json!({ "limits": resources, "requests": resources }));
    assert_eq!(pod["serviceAccountName"], "controller-manager");
    assert_eq!(pod["terminationGracePeriodSeconds"], 10);
    let probe = &container["livenessProbe"];
    assert_eq!((&probe["initialDelaySeconds"], &probe["periodSeconds"]), (&json!(15), &json!(20)));
    assert_eq!(site.get(&config_map("gantry-config")).await.status.as_u16(), 404);
}
