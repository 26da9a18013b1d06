use gantry_harness::{Crash, Faults, InFlightRequests, Scenario, Server, UserAction};
use serde_json::{Value, json};

use super::models::*;
use super::service::*;
use crate::settings::{Backend, PoolKind};
use crate::view::{AppWrapper, Node};
use gantry_reconcile::View as _;

type Controllers<'a> = [&'a dyn gantry_reconcile::Controller; 4];

fn runs(kind: PoolKind) {
    let scaling = scaling(Backend::Pools(kind), 3);
    for ends in [false, true] {
        let queue = Queue { ends };
        let cloud = PoolService::default();
        let nodes = PoolNodes(cloud.clone());
        let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
        let ending = final_state_without_faults(&managed(
            &controllers,
            &cloud,
            vec![job("a", "g4dn.xlarge", &[2])],
            vec![],
            3,
        ));
        let pools = service(&ending.server).pools().clone();
        let mine: Vec<_> = pools
            .values()
            .filter(|it| it.labels.get("a-n").is_some_and(|it| it == "a-n"))
            .collect();
        let state = field(&ending.server, &AppWrapper::RESOURCE, &key("a"), "/status/state");
        if ends {
            assert_eq!((state, mine.len()), (json!("Completed"), 0));
        } else {
            assert_eq!((state, mine.len()), (json!("Running"), 1));
            assert_eq!(
                (mine[0].instance_type.as_str(), mine[0].replicas),
                ("g4dn.xlarge", Some(2))
            );
            let name = &mine[0].name;
            assert!(name.starts_with("a-") && name.len() <= kind.max_name_length(), "{name}");
            let nodes = ending.server.list(&Node::RESOURCE);
            let marked = nodes.iter().filter(|it| it["metadata"]["labels"]["a"] == "a").count();
            assert_eq!(marked, 2, "nodes have both labels");
        }
        assert_eq!(pools["worker"], foreign(), "another's pool is not touched");
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

/// Returns the jobs, what was granted, and the pools that are left.
fn remaining(server: &Server) -> Value {
    let pools: Vec<String> = service(server).pools().keys().cloned().collect();
    json!([final_state(server), pools])
}

/// Lost, doubled and late calls and replies, ghosts of dead leaders, two leaders: no pool ever has
/// more nodes than were granted for it, none exists that never was granted, and nothing is left in
/// the end.
#[test]
fn is_18_nothing_is_bought_twice_or_left_whatever_happens_to_calls() {
    let scaling = scaling(Backend::Pools(PoolKind::Node), 4);
    let queue = Queue { ends: true };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let jobs = vec![
        job("a", "g", &[2]),
        job("b", "g_m", &[1, 1]),
        job("c", "m", &[3]),
        job("d", "g", &[1]),
    ];
    let scenario = managed(&controllers, &cloud, jobs, vec![removes("d")], 4);
    let end = remaining(&final_state_without_faults(&scenario).server);
    assert_eq!((&end[1], &end[0]["granted"]), (&json!(["worker"]), &json!([])), "{end:#}");
    proven(scenario.prove_faults(0..8, remaining));
}

/// A crash at every move, with requests lost and late.
#[test]
fn is_18_nothing_is_bought_twice_or_left_whenever_a_process_dies() {
    let scaling = scaling(Backend::Pools(PoolKind::Node), 4);
    let queue = Queue { ends: true };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let jobs = vec![job("a", "g", &[2]), job("b", "g", &[2])];
    proven(managed(&controllers, &cloud, jobs, vec![removes("b")], 4).prove_crashes(0, remaining));
}

/// As long as no request arrives after its sender has given it up, there are at every moment no
/// more nodes than the grant record grants, though replies are lost, requests are doubled, lists
/// are old, and processes die.
#[test]
fn is_18_there_are_never_more_nodes_than_the_ledger_grants() {
    let scaling = scaling(Backend::Pools(PoolKind::Node), 3);
    let queue = Queue { ends: true };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let strict = |jobs, script| {
        let mut scenario = managed(&controllers, &cloud, jobs, script, 3);
        scenario.external.invariants.push(within_grant_record());
        scenario
    };
    let faults = Faults { lost_answers: 150, doubled: 100, relists: 20, ..Faults::none() };
    let run = |scenario: &Scenario<'_>, seed, faults| match scenario.run(seed, faults) {
        Ok(ending) => {
            let end = remaining(&ending.server);
            assert_eq!((&end[1], &end[0]["granted"]), (&json!(["worker"]), &json!([])), "{end:#}");
            ending.moves
        }
        Err(failure) => panic!("{failure}"),
    };
    let jobs = || vec![job("a", "g", &[2]), job("b", "g", &[1])];
    let removed = strict(jobs(), vec![removes("a"), removes("b")]);
    for seed in 0..80 {
        run(&removed, seed, faults);
    }
    let few = strict(jobs(), vec![removes("b")]);
    let moves = run(&few, 0, Faults::none());
    for after in 0..moves {
        let crash = Some(Crash { after, in_flight: InFlightRequests::Lost });
        run(&few, 0, Faults { crash, ..Faults::none() });
    }
}

#[test]
fn is_18_nothing_is_done_before_the_pools_are_known() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let mut over = job("a", "g", &[1]);
    over.1["metadata"]["finalizers"] = json!([crate::owner_labels::FINALIZER]);
    let objects = vec![over, job("b", "g", &[1])];
    let mut unlisted = managed(&controllers, &cloud, objects, vec![state("a", "Completed")], 4);
    unlisted.external.inquiries.clear();
    let ending = final_state_without_faults(&unlisted);
    assert!(ending.held.iter().all(|it| it.reason == "PoolsUnknown"), "{:?}", ending.held);
    let finalizers =
        field(&ending.server, &AppWrapper::RESOURCE, &key("a"), "/metadata/finalizers");
    assert_eq!(finalizers, json!([crate::owner_labels::FINALIZER]), "what it has is not known");
    assert_eq!(service(&ending.server).pools().len(), 1, "the one that was there");
}

/// Returns how many nodes the bought pools have.
fn sizes(server: &Server) -> Value {
    let pools = service(server).pools();
    let bought = pools.values().filter(|it| it.name != "worker");
    json!(bought.map(|it| it.replicas).collect::<Vec<_>>())
}

fn asks_for(count: u32) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&AppWrapper::RESOURCE, &key("a"), |it| {
            it["spec"]["resources"]["GenericItems"][0]["custompodresources"][0]["replicas"] =
                json!(count);
        });
    })
}

#[test]
fn a_job_that_asks_for_more_gets_a_larger_pool() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let script = vec![asks_for(4), asks_for(2), asks_for(3)];
    let scenario = managed(&controllers, &cloud, vec![job("a", "g", &[1])], script, 4);
    assert_eq!(sizes(&final_state_without_faults(&scenario).server), json!([3]));
    proven(scenario.prove_faults(0..8, sizes));
}

/// Changes of a pool by others are observed when it is listed, and the grant is provisioned again.
#[test]
fn a_pool_that_others_delete_or_resize_is_as_granted_again() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let meddle = |act: fn(&mut PoolService)| -> UserAction {
        Box::new(move |server: &mut Server| act(server.peer_mut(crate::pool::PROTOCOL)))
    };
    let script = vec![
        meddle(|service| service.pools().retain(|name, _| name == "worker")),
        meddle(|service| {
            let mut pools = service.pools();
            let mine = pools.values_mut().filter(|it| it.name != "worker");
            mine.for_each(|it| it.replicas = Some(1));
        }),
    ];
    let scenario = managed(&controllers, &cloud, vec![job("a", "g", &[3])], script, 4);
    assert_eq!(sizes(&final_state_without_faults(&scenario).server), json!([3]));
    proven(scenario.prove_faults(0..8, sizes));
}

/// A pool with the labels of a deleted job is deleted when it is listed.
#[test]
fn is_26_a_pool_of_a_job_that_is_gone_is_deleted() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let objects = vec![(Node::RESOURCE, json!({"metadata": {"name": "n"}}))];
    let mut scenario = managed(&controllers, &cloud, objects, vec![], 4);
    scenario.external.invariants.clear();
    scenario.script = vec![Box::new(|server: &mut Server| {
        let labels = [("gone", "gone"), ("gone-n", "gone-n"), (NAMESPACE_LABEL, "n")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let pool = crate::pool::Pool { name: "gone-1".to_owned(), labels, ..foreign() };
        let service: &mut PoolService = server.peer_mut(crate::pool::PROTOCOL);
        service.pools().insert(pool.name.clone(), pool);
    })];
    assert_eq!(remaining(&final_state_without_faults(&scenario).server)[1], json!(["worker"]));
    proven(scenario.prove_faults(0..4, remaining));
}

/// A refusal is reported on the job and held; the call is retried, and the others are served.
#[test]
fn is_20_a_refused_call_is_reported_and_blocks_no_other() {
    let scaling = scaling(Backend::Pools(PoolKind::Machine), 4);
    let queue = Queue { ends: false };
    let cloud = PoolService::default();
    let nodes = PoolNodes(cloud.clone());
    let controllers: Controllers<'_> = [&scaling, &queue, &nodes, &Kubelet::REPORTS_NODES];
    let jobs = vec![job("a", "refused", &[1]), job("b", "g", &[1])];
    let ending = final_state_without_faults(&managed(&controllers, &cloud, jobs, vec![], 4));
    let held: Vec<_> = ending.held.iter().filter(|it| it.reason == "Forbidden").collect();
    assert!(held.len() == 1 && held[0].about.key == key("a"), "{:?}", ending.held);
    assert!(held[0].message.starts_with("could not create pool \"a-"), "{}", held[0].message);
    let told =
        ending.events.iter().any(|it| it.reason == "PoolRefused" && it.about.key == key("a"));
    assert!(told, "{:?}", ending.events);
    let state = field(&ending.server, &AppWrapper::RESOURCE, &key("b"), "/status/state");
    assert_eq!(state, "Running");
}
