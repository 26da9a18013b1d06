//! Pools that take no entries, and those who would be served by them.

use gantry_reconcile::harness::{Faults, REFUSED};
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
    let forbid: gantry_reconcile::harness::Action = Box::new(|server| {
        server.refuse(|write| *write.resource() == POOLS && write.key().name() == "p1");
    });
    let later = make(node("n3"));
    let ending = scenario(&all, objects, vec![forbid, later]).run(3, Faults::none()).unwrap();
    // Chance decides whether the pod was first; if not, it is told why it waits.
    let pod = ending.server.get(&PODS, &key("a")).unwrap();
    if pod["spec"]["nodeName"].is_null() {
        let said = pod["status"]["conditions"].to_string();
        assert!(said.contains("nothing can be entered in its ledger"), "{said}");
        assert!(ending.held.iter().any(|it| it.reason == "Forbidden"), "{:?}", ending.held);
    }
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
    assert!(held.message.contains("its ledger is full; its driver should split it"), "{held:?}");
    let mut notes = plan.steps.iter().flat_map(|it| &it.done);
    assert!(notes.any(|it| it.reason == "LedgerFull"), "{:?}", plan.steps);
}
