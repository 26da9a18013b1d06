use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_harness::{Faults, Scenario, Server, UserAction, prove_worlds};
use gantry_reconcile::{Controller, Plan, Propagation, View, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::test_world::{assert_proof, faulty_objects};
use crate::view::{EndpointSlice, Endpoints, Node};

fn service(spec: &Value) -> Arc<Service> {
    let mut text = json!({
        "metadata": {
            "name": "web", "namespace": "n", "uid": "s", "resourceVersion": "7",
            "labels": {"team": "a"}, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "selector": {"app": "web"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        text["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(text).unwrap())
}

fn pod_text(number: usize, ready: bool) -> Value {
    json!({
        "metadata": {
            "name": format!("p{number:03}"), "namespace": "n", "uid": format!("u{number}"),
            "labels": {"app": "web"},
        },
        "spec": {
            "nodeName": "node",
            "containers": [{"ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}],
        },
        "status": {
            "phase": "Running", "podIP": format!("127.0.0.{number}"),
            "podIPs": [{"ip": format!("127.0.{}.{}", number / 250, number % 250)}],
            "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": "2026-01-01T00:00:05Z",
            }],
        },
    })
}

fn pod(text: &Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(text.clone()).unwrap())
}

fn observed(service: &Arc<Service>, pods: &[Value]) -> ObservedSlices {
    ObservedSlices {
        service: Arc::clone(service),
        pods: pods.iter().map(pod).collect(),
        slices: Vec::new(),
        zones: BTreeMap::from([("node".to_owned(), Some("z1".to_owned()))]),
    }
}

/// Applies a successful plan to the slices.
fn apply_plan(observed: &mut ObservedSlices, plan: &Plan) {
    for step in &plan.steps {
        let key = step.write.key();
        let at = observed.slices.iter().position(|it| it.metadata.key() == key);
        match &step.write {
            Write::Create { body, .. } => {
                assert!(at.is_none(), "{key} is there already");
                let mut body = body.clone();
                body["metadata"]["uid"] = body["metadata"]["name"].clone();
                observed.slices.push(Arc::new(serde_json::from_value(body).unwrap()));
            }
            Write::Merge { body, .. } => {
                let old = &mut observed.slices[at.expect("it is there")];
                let mut new = EndpointSlice::clone(old);
                new.endpoints = serde_json::from_value(body["endpoints"].clone()).unwrap();
                new.ports = serde_json::from_value(body["ports"].clone()).unwrap();
                for (key, value) in body["metadata"]["labels"].as_object().unwrap() {
                    new.metadata.labels.remove(key);
                    new.metadata
                        .labels
                        .extend(value.as_str().map(|value| (key.clone(), value.to_owned())));
                }
                *old = Arc::new(new);
            }
            Write::Delete { .. } => {
                observed.slices.remove(at.expect("it is there"));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn verbs(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|step| step.write.verb()).collect()
}

fn body(plan: &Plan) -> &Value {
    match &plan.steps[0].write {
        Write::Create { body, .. } | Write::Merge { body, .. } => body,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slice_has_what_clients_need() {
    let plan = plan_slices(&observed(&service(&json!({})), &[pod_text(1, true)]));
    let expected = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": body(&plan)["metadata"]["name"], "generateName": "web-", "namespace": "n",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": "web", "team": "a",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s",
                "controller": true, "blockOwnerDeletion": true,
            }],
            "annotations": {
                "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:05Z",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{
            "addresses": ["127.0.0.1"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "n", "name": "p001", "uid": "u1"},
            "nodeName": "node", "zone": "z1",
        }],
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    });
    assert_eq!(*body(&plan), expected);
    let name = body(&plan)["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
}

#[test]
fn conditions_follow_the_pod() {
    let going = json!("2026-01-01T00:00:00Z");
    let table = [
        // why                             ready  terminating  publish  [ready, serving,
        // terminating]
        ("ready", true, false, false, [true, true, false]),
        ("not ready", false, false, false, [false, false, false]),
        ("going", true, true, false, [false, true, true]),
        ("terminating and not ready", false, true, false, [false, false, true]),
        ("shown in any case", false, true, true, [true, false, true]),
    ];
    for (why, ready, is_going, publish, expected) in table {
        let service = service(&json!({"publishNotReadyAddresses": publish}));
        let mut text = pod_text(1, ready);
        if is_going {
            text["metadata"]["deletionTimestamp"] = going.clone();
        }
        let plan = plan_slices(&observed(&service, &[text]));
        let conditions = &body(&plan)["endpoints"][0]["conditions"];
        let [ready, serving, terminating] = expected;
        let expected = json!({"ready": ready, "serving": serving, "terminating": terminating});
        assert_eq!(*conditions, expected, "{why}");
    }
}

#[test]
fn only_reachable_pods_are_listed() {
    let change = |path: &str, value: Value| {
        let mut text = pod_text(1, true);
        *text.pointer_mut(path).unwrap() = value;
        text
    };
    let publish = json!({"publishNotReadyAddresses": true});
    let mut bare = pod_text(1, true);
    bare["status"]["podIP"] = json!("");
    bare["status"]["podIPs"] = json!([]);
    let table = [
        ("a running pod", json!({}), pod_text(1, true), 1),
        ("a finished one", json!({}), change("/status/phase", json!("Succeeded")), 0),
        ("one without an address", json!({}), bare, 0),
        ("one on a lost node", json!({}), change("/spec/nodeName", json!("gone")), 0),
        ("that too, on request", publish, change("/spec/nodeName", json!("gone")), 1),
        ("one of the other family", json!({"ipFamilies": ["IPv6"]}), pod_text(1, true), 0),
    ];
    for (why, spec, pod, expected) in table {
        let plan = plan_slices(&observed(&service(&spec), &[pod]));
        assert_eq!(body(&plan)["endpoints"].as_array().unwrap().len(), expected, "{why}");
    }
}

#[test]
fn hints_follow_the_traffic_distribution() {
    let table = [
        (json!({}), Value::Null),
        (json!({"trafficDistribution": "PreferClose"}), json!({"forZones": [{"name": "z1"}]})),
        (
            json!({"trafficDistribution": "PreferSameNode"}),
            json!({"forZones": [{"name": "z1"}], "forNodes": [{"name": "node"}]}),
        ),
    ];
    for (spec, expected) in table {
        let plan = plan_slices(&observed(&service(&spec), &[pod_text(1, true)]));
        assert_eq!(body(&plan)["endpoints"][0]["hints"], expected, "{spec}");
    }
}

#[test]
fn named_ports_are_found_and_split_slices() {
    let mut other = pod_text(2, true);
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9090);
    let mut observed = observed(&service(&json!({})), &[pod_text(1, true), other.clone()]);
    let plan = plan_slices(&observed);
    assert_eq!(verbs(&plan), ["create", "create"], "two sets of ports, two slices");
    apply_plan(&mut observed, &plan);
    assert!(plan_slices(&observed).is_noop());
    // Once both have the same port, one slice is enough.
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(8080);
    observed.pods[1] = pod(&other);
    assert_eq!(verbs(&plan_slices(&observed)), ["patch", "delete"]);
}

#[test]
fn a_service_without_endpoints_has_an_empty_slice() {
    let mut observed = observed(&service(&json!({"clusterIP": "None"})), &[]);
    let plan = plan_slices(&observed);
    assert_eq!(body(&plan)["endpoints"], json!([]));
    assert_eq!(body(&plan)["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    apply_plan(&mut observed, &plan);
    assert!(plan_slices(&observed).is_noop(), "once is enough");
    observed.pods = vec![pod(&pod_text(1, true))];
    let plan = plan_slices(&observed);
    assert_eq!(verbs(&plan), ["patch"], "the empty slice is used");
    apply_plan(&mut observed, &plan);
    observed.pods.clear();
    assert_eq!(verbs(&plan_slices(&observed)), ["patch"], "and empty again");
}

#[test]
fn slices_of_a_former_service_are_deleted() {
    let mut observed = observed(&service(&json!({})), &[pod_text(1, true)]);
    let plan = plan_slices(&observed);
    apply_plan(&mut observed, &plan);
    let mut old = EndpointSlice::clone(&observed.slices[0]);
    old.metadata.owner_references[0].uid = gantry_reconcile::Uid::new("former");
    observed.slices = vec![Arc::new(old)];
    assert_eq!(verbs(&plan_slices(&observed)), ["create", "delete"]);
}

#[test]
fn a_lost_reply_doubles_nothing() {
    let observed =
        observed(&service(&json!({})), &(0..250).map(|n| pod_text(n, true)).collect::<Vec<_>>());
    let name = |plan: &Plan| -> Vec<_> { plan.steps.iter().map(|it| it.write.key()).collect() };
    let (first, again) = (name(&plan_slices(&observed)), name(&plan_slices(&observed)));
    assert_eq!(first, again);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever pods are created and deleted, each has exactly one endpoint, in slices that are not
    /// too full, and then nothing is left to do.
    #[test]
    fn slices_hold_every_pod_once(rounds in prop::collection::vec(
        prop::collection::btree_map(0_usize..260, any::<bool>(), 0..240), 1..4,
    )) {
        let mut observed = observed(&service(&json!({})), &[]);
        for pods in rounds {
            observed.pods = pods.iter().map(|(n, ready)| pod(&pod_text(*n, *ready))).collect();
            let plan = plan_slices(&observed);
            apply_plan(&mut observed, &plan);
            let served = observed.slices.iter().flat_map(|it| &it.endpoints);
            let mut served: Vec<_> = served
                .map(|it| (it.target_ref.as_ref().unwrap().uid.clone(), it.conditions.ready.unwrap()))
                .collect();
            served.sort();
            let mut wanted: Vec<_> = pods.iter().map(|(n, ready)| (format!("u{n}"), *ready)).collect();
            wanted.sort();
            prop_assert_eq!(served, wanted);
            prop_assert!(observed.slices.iter().all(|it| it.endpoints.len() <= 100));
            prop_assert!(!observed.slices.is_empty());
            prop_assert!(plan_slices(&observed).is_noop());
        }
    }
}

fn observed_endpoints(spec: &Value, pods: &[Value]) -> ObservedEndpoints {
    ObservedEndpoints {
        service: Some(service(spec)),
        pods: pods.iter().map(pod).collect(),
        endpoints: None,
    }
}

#[test]
fn endpoints_show_pods_by_their_ports() {
    let mut beside = pod_text(3, true);
    beside["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9090);
    let pods = [pod_text(2, false), pod_text(1, true), beside];
    let mut observed = observed_endpoints(&json!({}), &pods);
    let plan = plan_endpoints(&observed);
    let place = |n: usize| {
        json!({
            "ip": format!("127.0.0.{n}"), "nodeName": "node",
            "targetRef": {"kind": "Pod", "namespace": "n", "name": format!("p{n:03}"), "uid": format!("u{n}")},
        })
    };
    let port = |number: i32| json!([{"name": "http", "protocol": "TCP", "port": number}]);
    let expected = json!([
        {"addresses": [place(1)], "notReadyAddresses": [place(2)], "ports": port(8080)},
        {"addresses": [place(3)], "ports": port(9090)},
    ]);
    assert_eq!(body(&plan)["subsets"], expected);
    assert_eq!(
        body(&plan)["metadata"]["labels"],
        json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "team": "a"})
    );
    let mut made = body(&plan).clone();
    made["metadata"]["uid"] = json!("e");
    observed.endpoints = Some(Arc::new(serde_json::from_value(made).unwrap()));
    assert!(plan_endpoints(&observed).is_noop(), "nothing is left to do");
    observed.pods.pop();
    assert_eq!(verbs(&plan_endpoints(&observed)), ["patch"]);
    observed.service = None;
    assert_eq!(verbs(&plan_endpoints(&observed)), ["delete"], "they go with their service");
}

#[test]
fn unmanaged_endpoints_are_left_alone() {
    let text = json!({"metadata": {"name": "web", "namespace": "n"}, "subsets": null});
    let endpoints: Option<Arc<Endpoints>> = Some(Arc::new(serde_json::from_value(text).unwrap()));
    let gone = ObservedEndpoints { endpoints: endpoints.clone(), ..ObservedEndpoints::default() };
    assert!(plan_endpoints(&gone).is_noop());
    let by_hand = observed_endpoints(&json!({"selector": null}), &[]);
    assert!(plan_endpoints(&ObservedEndpoints { endpoints, ..by_hand }).is_noop());
}

#[test]
fn excess_addresses_are_truncated_and_annotated() {
    let pods: Vec<_> = (0..1100).map(|n| pod_text(n, n % 2 == 0)).collect();
    let plan = plan_endpoints(&observed_endpoints(&json!({}), &pods));
    let count = |name: &str| body(&plan)["subsets"][0][name].as_array().unwrap().len();
    assert_eq!((count("addresses"), count("notReadyAddresses")), (550, 450));
    let note = &body(&plan)["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"];
    assert_eq!(note, "truncated");
}

/// Returns the endpoints of a service: each once, whatever slice it is in.
fn served_endpoints(server: &Server, name: &str) -> Value {
    let slices = server.list(&EndpointSlice::RESOURCE);
    let own = |it: &&&Value| it["metadata"]["labels"][EndpointSlice::SERVICE_NAME_LABEL] == name;
    let places = slices.iter().filter(own).flat_map(|it| it["endpoints"].as_array().unwrap());
    let mut places: Vec<String> = places
        .map(|it| format!("{} {}", it["targetRef"]["name"], it["conditions"]["ready"]))
        .collect();
    places.sort();
    let endpoints = server.get(&Endpoints::RESOURCE, &Key::new("n", name));
    let older = endpoints.map(|it| {
        let subsets = it["subsets"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = subsets
            .iter()
            .flat_map(|it| it["addresses"].as_array().cloned().unwrap_or_default())
            .map(|it| it["targetRef"]["name"].to_string())
            .collect();
        names.sort();
        names
    });
    json!([slices.iter().filter(own).count() > 0, places, older])
}

#[test]
fn endpoints_converge() {
    let controllers: [&dyn Controller; 2] = [&EndpointSliceController, &EndpointsController];
    let service = |name: &str, selector: Value| {
        let body = json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {
                "selector": selector, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"],
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
            },
        });
        (Service::RESOURCE, body)
    };
    let mut objects = vec![
        service("web", json!({"app": "web"})),
        service("leaves", json!({"app": "web"})),
        (Node::RESOURCE, json!({"metadata": {"name": "node"}})),
    ];
    for number in 0..4 {
        let mut body = pod_text(number, true);
        body["metadata"].as_object_mut().unwrap().remove("uid");
        body.as_object_mut().unwrap().remove("status");
        objects.push((Pod::RESOURCE, body));
    }
    let ready = |number: usize, ready: bool| -> UserAction {
        Box::new(move |server: &mut Server| {
            let key = Key::new("n", &format!("p{number:03}"));
            let status = pod_text(number, ready)["status"].clone();
            server.edit(&Pod::RESOURCE, &key, |pod| pod["status"] = status);
        })
    };
    let script: Vec<UserAction> = vec![
        ready(0, true),
        ready(1, true),
        ready(2, false),
        ready(3, true),
        ready(1, false),
        Box::new(|server: &mut Server| {
            server.delete(&Pod::RESOURCE, &Key::new("n", "p003"), Propagation::Background);
            server.edit(&Pod::RESOURCE, &Key::new("n", "p002"), |pod| {
                pod["metadata"]["labels"] = json!({"app": "other"});
            });
        }),
        Box::new(|server: &mut Server| {
            server.delete(&Service::RESOURCE, &Key::new("n", "leaves"), Propagation::Background);
        }),
        ready(1, true),
    ];
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon: std::time::Duration::from_secs(120),
        ..Scenario::default()
    };
    let shape = |server: &Server| {
        json!([served_endpoints(server, "web"), served_endpoints(server, "leaves")])
    };
    let calm = shape(&scenario.run(0, Faults::none()).unwrap().server);
    let places = json!(["\"p000\" true", "\"p001\" true", "\"p003\" false"]);
    assert_eq!(calm[0], json!([true, places, ["\"p000\"", "\"p001\""]]));
    assert_eq!(calm[1], json!([false, [], null]));
    assert_proof(scenario.prove(0..4, shape));
    let bad =
        faulty_objects("service", "/spec/selector", |name| service(name, json!({"app": "web"})));
    assert_proof(scenario.prove_isolation(&bad, 0..2, shape));
}

#[test]
fn random_endpoints_converge() {
    let controllers: [&dyn Controller; 2] = [&EndpointSliceController, &EndpointsController];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut objects = vec![(Node::RESOURCE, json!({"metadata": {"name": "node"}}))];
        objects.extend(["web", "also"].map(|name| {
            let body = json!({
                "metadata": {"name": name, "namespace": "n"},
                "spec": {
                    "selector": {"app": "web"}, "ipFamilies": ["IPv4"],
                    "clusterIP": if rng.bool() { "None" } else { "10.0.0.1" },
                    "publishNotReadyAddresses": rng.bool(),
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
                },
            });
            (Service::RESOURCE, body)
        }));
        let count = rng.usize(..4);
        for number in 0..count {
            let mut body = pod_text(number, true);
            body["metadata"].as_object_mut().unwrap().remove("uid");
            objects.push((Pod::RESOURCE, body));
        }
        let change = |rng: &mut fastrand::Rng| -> UserAction {
            let (number, ready, goes) = (rng.usize(..4), rng.bool(), rng.u32(..5) == 0);
            Box::new(move |server: &mut Server| {
                let key = Key::new("n", &format!("p{number:03}"));
                if goes {
                    server.delete(&Pod::RESOURCE, &key, Propagation::Background);
                }
                let status = pod_text(number, ready)["status"].clone();
                server.edit(&Pod::RESOURCE, &key, |pod| pod["status"] = status);
            })
        };
        let script = (0..rng.usize(..6)).map(|_| change(rng)).collect();
        let horizon = std::time::Duration::from_secs(120);
        let defaults = |_: &gantry_reconcile::Resource, _: &mut Value| {};
        Scenario {
            controllers: &controllers,
            defaults,
            objects,
            script,
            replicas: 1,
            horizon,
            ..Scenario::default()
        }
    };
    let shape = |server: &Server| {
        json!([served_endpoints(server, "web"), served_endpoints(server, "also")])
    };
    assert_proof(prove_worlds(0..16, world, shape));
}

#[test]
fn endpoints_of_an_unreadable_service_stay() {
    let world = World::new(EndpointsController.kinds());
    let metadata = json!({
        "name": "web", "namespace": "n", "uid": "e", "resourceVersion": "3",
        "labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"},
    });
    let text = json!({"metadata": metadata, "subsets": null});
    world.store::<Endpoints>().set(serde_json::from_value(text).unwrap());
    let plan = || EndpointsController.plan(&world, &Key::new("n", "web"), Timestamp::MIN);
    assert_eq!(verbs(&plan()), ["delete"], "not of a deleted service");
    let odd = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": 7}});
    world.single_store_for(&Service::RESOURCE).unwrap().observe(&odd.to_string()).unwrap_err();
    assert!(plan().is_noop());
}
