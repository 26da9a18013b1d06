use serde_json::json;

use super::super::Ranges;
use super::*;
use crate::stand::Stand;

fn fake(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}, "spec": {}})
}

fn key() -> Key {
    Key::cluster("n1")
}

#[test]
fn a_node_says_what_it_is_and_renews_its_lease() {
    let (nodes, ranges) = (Nodes::default(), Ranges::default());
    let mut stand = Stand::new(&[&nodes, &ranges]);
    stand.put::<Node>(fake("n1"));
    stand.turn(0, &key());
    assert!(stand.object::<Node>(&key()).unwrap()["status"].is_null(), "it has no addresses yet");
    stand.turn(1, &Key::cluster("ranges"));
    stand.settle(0, &key());
    let node = stand.object::<Node>(&key()).unwrap().clone();
    assert_eq!(node["spec"]["podCIDR"], "127.16.0.0/20");
    let status = &node["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["capacity"], json!({"cpu": "1k", "memory": "1Ti", "pods": "1M"}));
    assert_eq!(status["allocatable"], status["capacity"]);
    assert_eq!(status["nodeInfo"]["kernelVersion"], KERNEL);
    assert_eq!(
        status["addresses"],
        json!([{"type": "InternalIP", "address": "127.16.0.1"}, {"type": "Hostname", "address": "n1"}])
    );
    let conditions = status["conditions"].as_array().unwrap().iter();
    let conditions: Vec<String> = conditions
        .map(|it| format!("{}={} {}", it["type"], it["status"], it["reason"]).replace('"', ""))
        .collect();
    assert_eq!(
        conditions,
        [
            "Ready=True KubeletReady",
            "MemoryPressure=False KubeletHasSufficientMemory",
            "DiskPressure=False KubeletHasNoDiskPressure",
            "PIDPressure=False KubeletHasSufficientPID",
            "NetworkUnavailable=False RouteCreated",
        ]
    );
    let lease = Key::new("kube-node-lease", "n1");
    let first = stand.object::<Lease>(&lease).unwrap().clone();
    assert_eq!(first["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(first["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");
    // Renewals come every ten seconds, a little more or less; reports every five minutes.
    let (mut renewals, mut reports) = (Vec::new(), 0);
    while renewals.len() < 60 {
        let wait = stand.settle(0, &key()).look_again.unwrap();
        stand.now += SignedDuration::try_from(wait).unwrap();
        for step in stand.turn(0, &key()).steps {
            match step.write.resource().plural.as_ref() {
                "leases" => renewals.push(stand.now),
                _ => reports += 1,
            }
        }
    }
    let waits: Vec<f64> =
        renewals.windows(2).map(|it| it[1].duration_since(it[0]).as_secs_f64()).collect();
    assert!(waits.iter().all(|it| (9.59..=10.41).contains(it)), "{waits:?}");
    assert!(waits.iter().any(|it| *it < 9.9) && waits.iter().any(|it| *it > 10.1), "{waits:?}");
    assert!((1..=2).contains(&reports), "{reports}");
}

#[test]
fn what_is_said_of_a_node_is_kept_and_followed() {
    let nodes = Nodes::default();
    let mut stand = Stand::new(&[&nodes]);
    let mut node = fake("n1");
    node["spec"] = json!({"podCIDR": "127.32.0.0/20"});
    node["status"] = json!({
        "capacity": {"cpu": "8", "example.com/gpu": "2"},
        "nodeInfo": {"kernelVersion": "5.15.0"},
        "conditions": [{"type": "Theirs", "status": "True", "reason": "R", "message": "m"}],
    });
    stand.put::<Node>(node);
    stand.settle(0, &key());
    let of = |stand: &Stand<'_>, name: &str| {
        stand.object::<Node>(&key()).unwrap()["status"][name].clone()
    };
    assert_eq!(of(&stand, "allocatable"), json!({"cpu": "8", "example.com/gpu": "2"}));
    assert_eq!(of(&stand, "nodeInfo")["kernelVersion"], "5.15.0");
    assert_eq!(of(&stand, "conditions").as_array().unwrap().len(), 6);
    let boot = of(&stand, "nodeInfo")["bootID"].clone();
    stand.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-kernel-version"] = json!("6.1.0");
        it["metadata"]["annotations"]["gantry.dev/sim-capacity"] = json!("{\"cpu\": \"16\"}");
    });
    stand.settle(0, &key());
    assert_eq!(of(&stand, "nodeInfo")["kernelVersion"], "6.1.0");
    assert_ne!(of(&stand, "nodeInfo")["bootID"], boot, "it was started again");
    assert_eq!(of(&stand, "allocatable"), json!({"cpu": "16"}));
    // Without power it says nothing, and says so again when it is back.
    stand.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-node"] = json!("down");
        it["status"]["conditions"][0]["status"] = json!("Unknown");
    });
    stand.pass(600);
    let plan = stand.turn(0, &key());
    assert!(plan.is_quiet() && plan.held[0].reason == "NoPower");
    stand.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"].as_object_mut().unwrap().remove("gantry.dev/sim-node");
    });
    stand.settle(0, &key());
    let ready = of(&stand, "conditions")[0].clone();
    assert_eq!(ready["status"], "True");
    assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:10:00Z");
    stand.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-capacity"] = json!("lots");
    });
    assert_eq!(stand.settle(0, &key()).held[0].reason, "UnreadableAnnotation");
}

#[test]
fn ranges_never_overlap() {
    let ranges = Ranges::default();
    let mut stand = Stand::new(&[&ranges]);
    let given = |name: &str, range: &str| {
        let mut node = fake(name);
        node["spec"] = json!({"podCIDR": range});
        node
    };
    stand.put::<Node>(given("a", "127.16.16.0/20"));
    stand.put::<Node>(given("b", "127.16.32.0/19"));
    stand.put::<Node>(json!({"metadata": {"name": "real"}}));
    for n in 0..6 {
        stand.put::<Node>(fake(&format!("n{n}")));
    }
    stand.settle(0, &Key::cluster("ranges"));
    let range =
        |name: &str| stand.object::<Node>(&Key::cluster(name)).unwrap()["spec"]["podCIDR"].clone();
    let all: Vec<Value> = (0..6).map(|n| range(&format!("n{n}"))).collect();
    assert_eq!(
        all,
        [
            "127.16.0.0/20",
            "127.16.64.0/20",
            "127.16.80.0/20",
            "127.16.96.0/20",
            "127.16.112.0/20",
            "127.16.128.0/20",
        ]
    );
    assert!(range("real").is_null(), "it is not ours");
}
