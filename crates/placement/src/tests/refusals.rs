//! Pools that take no entries, and those who would be served by them.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_harness::{REFUSED, Stage};
use gantry_reconcile::{Controller, Key, Write};
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::Scheduler;

fn base() -> Objects {
    vec![node("n1"), node("n2"), driver(), class("gpu", &json!({}))]
}

/// A pool that every plan would choose first, and that the server lets nobody write to.
#[test]
fn a_pool_that_refuses_every_write_keeps_nobody_waiting() {
    let team = Team::new();
    let all = team.all();
    let name = format!("{REFUSED}-pool");
    for (why, bad) in [
        ("beside another on its node", pool(&name, "n1", 4)),
        ("on a node of its own", pool(&name, "n0", 2)),
    ] {
        let mut objects = base();
        objects.extend([
            node("n0"),
            pool("z1", "n1", 2),
            template("t", &wish("gpu", 1)),
            claim("good", &wish("gpu", 1)),
            user("a", "good"),
            owner("b", "t"),
        ]);
        let proof = scenario(&all, objects, vec![]).prove_apart(&[bad], 0..4, |server| {
            let shape = shape(server);
            json!([shape["pods"], shape["claims"]])
        });
        if let Err(failure) = proof {
            panic!("{why}: {failure}");
        }
    }
}

#[test]
fn it_is_said_of_a_pod_that_only_a_pool_that_refuses_would_serve() {
    let team = Team::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([pool("p1", "n1", 1), claim("c", &wish("gpu", 1)), user("a", "c")]);
    let scenario = scenario(&all, objects, vec![]);
    let mut stage = Stage::new(&scenario);
    stage.server().refuse(|write| *write.resource() == POOLS && write.key().name() == "p1");
    stage.pass(Duration::from_secs(10)).unwrap();
    let why = "nothing can be entered in its ledger: p1 is forbidden: the test says so";
    let expected = format!(
        "0/2 nodes: 2 insufficient devices for claim gpu (1 no pools, 1 pool is invalid: {why})"
    );
    let pod = stage.server().get(&PODS, &key("a")).unwrap().clone();
    assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
    let said = &pod["status"]["conditions"][0];
    assert_eq!(
        (&said["type"], &said["status"], &said["reason"], said["message"].as_str().unwrap()),
        (&json!("PodScheduled"), &json!("False"), &json!("Unschedulable"), expected.as_str())
    );
    let held: BTreeSet<(String, String, String)> = stage
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
            // Told by whoever carries out plans.
            held_back(
                "p1",
                "Forbidden",
                "could not patch devicepools.devmgmtproto.k8s.io p1: p1 is forbidden: the test \
                 says so",
            ),
        ])
    );
    // It is tried again when the time is over, and served when that is allowed.
    stage.server().refuse(|_| false);
    stage.pass(Duration::from_secs(120)).unwrap();
    assert_eq!(shape(stage.server())["pods"], json!({"a": [true, true]}));
    assert_eq!(stage.held(), []);
}

/// A pool that has no room for an entry.
fn large(name: &str) -> (gantry_reconcile::Resource, Value) {
    let mut large = pool(name, "n1", 250);
    for device in large.1["spec"]["devices"].as_array_mut().unwrap() {
        device["attributes"] = json!([{"name": "note", "stringValue": "x".repeat(4000)}]);
    }
    large
}

#[test]
fn a_pool_whose_ledger_is_full_leaves_pods_to_others() {
    let mut node = node("n1");
    defaults(&node.0.clone(), &mut node.1);
    let objects = [
        node,
        driver(),
        class("gpu", &json!({})),
        large("a1"),
        pool("z1", "n1", 1),
        claim("one", &wish("gpu", 1)),
        claim("two", &wish("gpu", 1)),
        user("a", "one"),
        user("b", "two"),
    ];
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let plan = Scheduler::default().plan(&world(&objects), &Key::cluster(crate::NAME), now);
    let pools = plan.steps.iter().map(|it| &it.write).filter(|it| *it.resource() == POOLS);
    let pools: Vec<Key> = pools.map(Write::key).collect();
    assert_eq!(pools, [Key::cluster("z1")], "one of them is served elsewhere");
    let [held] = plan.held.as_slice() else { panic!("{:?}", plan.held) };
    assert_eq!((held.reason.as_ref(), &held.about.key), ("LedgerFull", &key("b")));
    let expected = "0/1 nodes: 1 insufficient devices for claim gpu (1 pool is invalid: its ledger \
                    is full; its driver should split it)";
    assert_eq!(held.message, expected);
    let notes = plan.steps.iter().flat_map(|it| &it.done);
    let notes: Vec<_> = notes.map(|it| (it.reason.as_ref(), it.message.as_str())).collect();
    assert_eq!(notes, [("LedgerFull", expected)]);
}
