//! Pools that reject writes, and the pods that would use them.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_harness::{REFUSED_PREFIX, TestCluster};
use gantry_reconcile::{Controller, Key, Write};
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::Scheduler;

fn base() -> Objects {
    vec![node("n1"), node("n2"), driver(), class("gpu", &json!({}))]
}

/// A pool that every plan would choose first, and whose writes the server rejects.
#[test]
fn a_pool_that_rejects_writes_blocks_no_pod() {
    let team = Controllers::new();
    let all = team.all();
    let name = format!("{REFUSED_PREFIX}-pool");
    for (why, bad) in [
        ("beside another on its node", pool(&name, "n1", 4)),
        ("on a node of its own", pool(&name, "n0", 2)),
    ] {
        let mut objects = base();
        objects.extend([
            node("n0"),
            pool("z1", "n1", 2),
            template("t", &device_request("gpu", 1)),
            claim("good", &device_request("gpu", 1)),
            pod_with_claim("a", "good"),
            pod_with_template("b", "t"),
        ]);
        let proof = scenario(&all, objects, vec![]).prove_isolation(&[bad], 0..4, |server| {
            let shape = summary(server);
            json!([shape["pods"], shape["claims"]])
        });
        if let Err(failure) = proof {
            panic!("{why}: {failure}");
        }
    }
}

#[test]
fn a_pod_reports_the_pool_that_rejects_writes() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([
        pool("p1", "n1", 1),
        claim("c", &device_request("gpu", 1)),
        pod_with_claim("a", "c"),
    ]);
    let scenario = scenario(&all, objects, vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.server().refuse(|write| *write.resource() == POOLS && write.key().name() == "p1");
    test_cluster.advance(Duration::from_secs(10)).unwrap();
    let why = "its ledger cannot be written: p1 is forbidden: the test says so";
    let expected = format!(
        "0/2 nodes: 2 insufficient devices for claim gpu (1 no pools, 1 pool is invalid: {why})"
    );
    let pod = test_cluster.server().get(&PODS, &key("a")).unwrap().clone();
    assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
    let said = &pod["status"]["conditions"][0];
    assert_eq!(
        (&said["type"], &said["status"], &said["reason"], said["message"].as_str().unwrap()),
        (&json!("PodScheduled"), &json!("False"), &json!("Unschedulable"), expected.as_str())
    );
    let held: BTreeSet<(String, String, String)> = test_cluster
        .held()
        .into_iter()
        .map(|it| (it.about.key.to_string(), it.reason.to_string(), it.message))
        .collect();
    let held_back = |key: &str, reason: &str, message: &str| {
        (key.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(
        held,
        BTreeSet::from([
            held_back("default/a", "Unschedulable", &expected),
            held_back("p1", "Forbidden", why),
            // Reported by the controller that executes plans.
            held_back(
                "p1",
                "Forbidden",
                "could not patch devicepools.devmgmtproto.k8s.io p1: p1 is forbidden: the test \
                 says so",
            ),
        ])
    );
    // It is retried when the time is over, and succeeds when that is allowed.
    test_cluster.server().refuse(|_| false);
    test_cluster.advance(Duration::from_secs(120)).unwrap();
    assert_eq!(summary(test_cluster.server())["pods"], json!({"a": [true, true]}));
    assert_eq!(test_cluster.held(), []);
}

/// Returns a pool whose ledger is full.
fn full_pool(name: &str) -> (gantry_reconcile::Resource, Value) {
    let mut large = pool(name, "n1", 250);
    for device in large.1["spec"]["devices"].as_array_mut().unwrap() {
        device["attributes"] = json!([{"name": "note", "stringValue": "x".repeat(4000)}]);
    }
    large
}

#[test]
fn pods_use_other_pools_when_a_ledger_is_full() {
    let mut node = node("n1");
    defaults(&node.0.clone(), &mut node.1);
    let objects = [
        node,
        driver(),
        class("gpu", &json!({})),
        full_pool("a1"),
        pool("z1", "n1", 1),
        claim("one", &device_request("gpu", 1)),
        claim("two", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
        pod_with_claim("b", "two"),
    ];
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let plan =
        Scheduler::default().plan(&world(&objects), &Key::cluster(crate::SCHEDULER_NAME), now);
    let pools = plan.steps.iter().map(|it| &it.write).filter(|it| *it.resource() == POOLS);
    let pools: Vec<Key> = pools.map(Write::key).collect();
    assert_eq!(pools, [Key::cluster("z1")], "one of them is served elsewhere");
    let [held] = plan.held.as_slice() else { panic!("{:?}", plan.held) };
    assert_eq!((held.reason.as_ref(), &held.about.key), ("LedgerFull", &key("b")));
    let expected = "0/1 nodes: 1 insufficient devices for claim gpu (1 pool is invalid: its ledger \
                    is full; its driver should split it)";
    assert_eq!(held.message, expected);
    let notes = plan.steps.iter().flat_map(|it| &it.success_events);
    let notes: Vec<_> = notes.map(|it| (it.reason.as_ref(), it.message.as_str())).collect();
    assert_eq!(notes, [("LedgerFull", expected)]);
}
