use gantry_harness::Server;
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::models::*;
use crate::pool::Pool;
use crate::settings::{Backend, PoolKind};
use crate::view::{AppWrapper, Node};

fn foreign() -> (gantry_reconcile::Resource, Value) {
    let object = json!({
        "metadata": {"name": "worker", "labels": {"tier": "gold"}},
        "instanceType": "m5.xlarge", "replicas": 3,
    });
    (Pool::RESOURCE, object)
}

fn runs(kind: PoolKind) {
    let scaling = scaling(Backend::Pools(kind), 3);
    for ends in [false, true] {
        let queue = Queue { ends };
        let controllers: [&dyn gantry_reconcile::Controller; 4] =
            [&scaling, &queue, &Cloud, &Kubelet];
        let objects = vec![polled(), foreign(), job("a", "g4dn.xlarge", &[2])];
        let ending = calm(&scenario(&controllers, objects, vec![]));
        let pools = ending.server.list(&Pool::RESOURCE);
        let mine: Vec<_> =
            pools.iter().filter(|it| it["metadata"]["labels"]["a-n"] == "a-n").collect();
        let state = field(&ending.server, &AppWrapper::RESOURCE, &key("a"), "/status/state");
        if ends {
            assert_eq!((state, mine.len()), (json!("Completed"), 0));
        } else {
            assert_eq!((state, mine.len()), (json!("Running"), 1));
            assert_eq!(
                (&mine[0]["instanceType"], &mine[0]["replicas"]),
                (&json!("g4dn.xlarge"), &json!(2))
            );
            let name = mine[0]["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("a-") && name.len() <= kind.longest_name(), "{name}");
            let nodes = ending.server.list(&Node::RESOURCE);
            let marked = nodes.iter().filter(|it| it["metadata"]["labels"]["a"] == "a").count();
            assert_eq!(marked, 2, "nodes have both labels");
        }
        let other = ending.server.get(&Pool::RESOURCE, &gantry_reconcile::Key::cluster("worker"));
        assert_eq!(other.unwrap()["metadata"]["generation"], 1, "another's pool is not touched");
    }
}

#[test]
fn d_5_a_job_gets_a_machine_pool_and_gives_it_back() {
    runs(PoolKind::Machine);
}

#[test]
fn d_6_a_job_gets_a_node_pool_and_gives_it_back() {
    runs(PoolKind::Node);
}

#[test]
fn is_18_nothing_is_left_of_pools_whatever_happens() {
    let scaling = scaling(Backend::Pools(PoolKind::Node), 4);
    let queue = Queue { ends: true };
    let controllers: [&dyn gantry_reconcile::Controller; 4] = [&scaling, &queue, &Cloud, &Kubelet];
    let objects = vec![
        polled(),
        foreign(),
        job("a", "g", &[2]),
        job("b", "g_m", &[1, 1]),
        job("c", "m", &[3]),
        job("d", "g", &[1]),
    ];
    let scenario = scenario(&controllers, objects, vec![removes("d")]);
    let end = shape(&calm(&scenario).server);
    assert_eq!((&end["pools"], &end["granted"]), (&json!(["worker"]), &json!([])), "{end:#}");
    proven(scenario.prove_faults(0..4, shape));
    let few = vec![polled(), foreign(), job("a", "g", &[2]), job("b", "g", &[2])];
    proven(super::models::scenario(&controllers, few, vec![removes("b")]).prove_crashes(0, shape));
}

#[test]
fn is_18_nothing_is_done_before_the_pools_are_known() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 2] = [&scaling, &queue];
    let mut over = job("a", "g", &[1]);
    over.1["metadata"]["finalizers"] = json!([crate::marks::FINALIZER]);
    let objects = vec![over, job("b", "g", &[1])];
    let ending = calm(&scenario(&controllers, objects, vec![state("a", "Completed")]));
    assert!(ending.held.iter().all(|it| it.reason == "PoolsUnknown"), "{:?}", ending.held);
    let finalizers =
        field(&ending.server, &AppWrapper::RESOURCE, &key("a"), "/metadata/finalizers");
    assert_eq!(finalizers, json!([crate::marks::FINALIZER]), "what it has is not known");
    assert!(ending.server.list(&Pool::RESOURCE).is_empty());
}

#[test]
fn a_job_that_asks_for_more_gets_a_larger_pool() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 4] = [&scaling, &queue, &Cloud, &Kubelet];
    let more: gantry_harness::Action = Box::new(|server: &mut Server| {
        server.edit(&AppWrapper::RESOURCE, &key("a"), |it| {
            it["spec"]["resources"]["GenericItems"][0]["custompodresources"][0]["replicas"] =
                json!(3);
        });
    });
    let scenario = scenario(&controllers, vec![polled(), job("a", "g", &[1])], vec![more]);
    let size = |server: &Server| {
        let pools = server.list(&Pool::RESOURCE);
        json!(pools.iter().map(|it| it["replicas"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(size(&calm(&scenario).server), json!([3]));
    proven(scenario.prove_faults(0..4, size));
}
