use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, UserAction};
use gantry_reconcile::{Propagation, Resource};

use super::*;
use crate::test_world::{assert_proof, faulty_objects, is_faulty};

fn pod(name: &str, node: &str, claims: &Value) -> (Resource, Value) {
    let metadata = json!({"name": name, "namespace": "n"});
    let spec = json!({"nodeName": node, "resourceClaims": claims});
    (Pod::RESOURCE, json!({"metadata": metadata, "spec": spec}))
}

fn from_template(template: &str) -> Value {
    json!([{"name": "gpu", "resourceClaimTemplateName": template}])
}

fn template() -> (Resource, Value) {
    let body = json!({
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {
            "metadata": {"labels": {"kept": "yes"}},
            "spec": {"devices": {"requests": [{"name": "one"}]}},
        },
    });
    (ResourceClaimTemplate::RESOURCE, body)
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    let horizon = Duration::from_secs(60);
    Scenario {
        controllers,
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon,
        ..Scenario::default()
    }
}

/// Returns claims by name without random parts, and the claims in the statuses of pods.
fn summary(server: &Server) -> Value {
    let name = |it: &Value| it["metadata"]["name"].clone();
    let good = |it: &&&Value| !is_faulty(&it["metadata"]["name"]);
    let claims = server.list(&ResourceClaim::RESOURCE);
    let claims = claims.iter().filter(good).map(|it| {
        let users = it["status"]["reservedFor"].as_array();
        let users: Vec<Value> = users.into_iter().flatten().map(|it| it["name"].clone()).collect();
        let made_for = &it["metadata"]["annotations"][POD_CLAIM_ANNOTATION];
        json!([made_for, it["metadata"]["labels"], it["spec"], users, it["status"]["allocation"]])
    });
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().filter(good).map(|it| {
        let statuses = it["status"]["resourceClaimStatuses"].as_array();
        let statuses = statuses.into_iter().flatten();
        let is_there = |it: &Value| {
            let claim = it["resourceClaimName"].as_str().unwrap_or_default();
            server.get(&ResourceClaim::RESOURCE, &key(claim)).is_some()
        };
        json!([name(it), statuses.map(|it| json!([it["name"], is_there(it)])).collect::<Vec<_>>()])
    });
    json!({"claims": claims.collect::<Vec<_>>(), "pods": pods.collect::<Vec<_>>()})
}

#[test]
fn claims_are_created_from_templates_and_deleted_with_pods() {
    let controllers: [&dyn Controller; 1] = [&ResourceClaimController];
    let ends: UserAction = Box::new(|server| {
        server.edit(&Pod::RESOURCE, &key("ends"), |it| it["status"]["phase"] = json!("Succeeded"));
    });
    let deleted: UserAction =
        Box::new(|server| server.delete(&Pod::RESOURCE, &key("goes"), Propagation::Background));
    let scenario = scenario(
        &controllers,
        vec![
            template(),
            pod("stays", "", &from_template("t")),
            pod("ends", "", &from_template("t")),
            pod("goes", "", &from_template("t")),
            pod("waits", "", &from_template("missing")),
        ],
        vec![ends, deleted],
    );
    let calm = scenario.run(0, Faults::none()).unwrap();
    let spec = json!({"devices": {"requests": [{"name": "one"}]}});
    let claim = json!(["gpu", {"kept": "yes"}, spec, [], null]);
    let found = summary(&calm.server);
    assert_eq!(found["claims"], json!([claim]));
    let waits = calm.held.iter().find(|it| it.about.key == key("waits")).unwrap();
    let why = "PodResourceClaim gpu: resource claim template \"missing\": resourceclaimtemplate.resource.k8s.io \"missing\" not found";
    assert_eq!(
        (waits.reason.as_ref(), waits.message.as_str()),
        ("FailedResourceClaimCreation", why)
    );
    // Whether a finishing pod got the name of its claim before is a matter of timing.
    let claims = |server: &Server| summary(server)["claims"].clone();
    assert_proof(scenario.prove(0..6, claims));
    let pods = faulty_objects("pod", "/spec/nodeName", |name| pod(name, "", &from_template("t")));
    assert_proof(scenario.prove_isolation(&pods, 0..3, claims));
}

#[test]
fn reservations_end_with_the_pods_they_are_for() {
    let controllers: [&dyn Controller; 1] = [&ResourceClaimController];
    let named = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    let user = |name: &str, uid: &str| json!({"resource": "pods", "name": name, "uid": uid});
    let claim = |name: &str, finalizers: Value, users: Value| {
        let metadata = json!({"name": name, "namespace": "n", "finalizers": finalizers});
        (ResourceClaim::RESOURCE, json!({"metadata": metadata, "spec": {"users": users}}))
    };
    let allocate: UserAction = Box::new(|server| {
        for name in ["shared", "unused", "foreign"] {
            server.edit(&ResourceClaim::RESOURCE, &key(name), |it| {
                let users = it["spec"]["users"].clone();
                it["status"] = json!({"allocation": {"devices": {}}, "reservedFor": users});
            });
        }
    });
    let other = json!({"apiGroup": "x", "resource": "ys", "name": "z", "uid": "z"});
    let scenario = scenario(
        &controllers,
        vec![
            // Bound without a scheduler: only the controller reserves its claim.
            pod("by-hand", "node", &named),
            claim("shared", json!([]), json!([user("was", "gone"), other])),
            claim("unused", json!([FINALIZER]), json!([user("was", "gone")])),
            claim("foreign", json!(["x/y"]), json!([user("was", "gone")])),
        ],
        vec![allocate],
    );
    let ending = scenario.run(0, Faults::none()).unwrap();
    let users = |name: &str| {
        let claim = ending.server.get(&ResourceClaim::RESOURCE, &key(name)).unwrap();
        let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let users: Vec<String> =
            users.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        (users, claim["status"]["allocation"].is_object())
    };
    assert_eq!(users("shared"), (vec!["z".to_owned(), "by-hand".to_owned()], true));
    assert_eq!(users("unused"), (vec![], false), "what schedulers allocated is given back");
    assert_eq!(users("foreign"), (vec![], true), "an allocation of another driver is kept");
    assert_proof(scenario.prove(0..6, summary));
}
