//! Tests that users are authenticated, and authorized by their roles.

use gantry_testkit::http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::{http, kubectl, namespace, shared, wait_until};

#[tokio::test]
async fn a_user_may_do_what_a_role_allows_and_nothing_else() {
    let (cluster, _tails) = shared().await;
    let admin = http(cluster.admin());
    namespace(&admin, "access").await;
    let alice = cluster.user("alice", &["team-a", "team-b"]).unwrap();
    let path = "/api/v1/namespaces/access/configmaps";
    let client = http(&alice);
    let answer = client.send(Request::get(path)).await.unwrap();
    assert_eq!(answer.status, 403);
    let said = answer.json().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(said.starts_with("configmaps is forbidden: User \"alice\" cannot list"), "{said}");
    let (fine, who) = kubectl(&alice, &["auth", "whoami", "-o", "json"]);
    let who: serde_json::Value = serde_json::from_str(&who).unwrap();
    let groups = json!(["team-a", "team-b", "system:authenticated"]);
    assert!(fine);
    assert_eq!(who["status"]["userInfo"]["groups"], groups, "both groups of the certificate");

    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "team-a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-a"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/access/rolebindings";
    let answer = admin.send(Request::post(bindings, &binding)).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    // The server reads its roles from a cache, so it may take a moment.
    wait_until(&client, path, |answer| answer.status == 200).await;
    let maps: Api<ConfigMap> = Api::namespaced(alice.client().await.unwrap(), "access");
    assert!(maps.list(&ListParams::default()).await.is_ok(), "the usual client is alice as well");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let answer = client.send(Request::post(path, &body)).await.unwrap();
    assert_eq!(answer.status, 403, "to view is not to edit");
}
