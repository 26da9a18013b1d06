use gantry_harness::{Server, UserAction};
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::models::*;
use crate::owner_labels::{COPY_LABEL, FINALIZER, GAVE_UP_ANNOTATION, MESSAGE_ANNOTATION};
use crate::settings::Backend;
use crate::view::{AppWrapper, ConfigMap, Machine, MachineSet, Node, SET_LABEL};

/// The number of runs with faults of each kind: enough to have found every bug there was.
const SEEDS: u64 = 4;

const BOUGHT: &str = "/metadata/labels/instascale.codeflare.dev-a-n";

#[test]
fn d_3_a_set_grows_for_a_job_and_shrinks_when_it_is_deleted() {
    let scaling = scaling(Backend::Reuse, 3);
    let queue = Queue { ends: true };
    let controllers: [&dyn gantry_reconcile::Controller; 2] = [&scaling, &queue];
    let objects = || vec![set("s", "m5.xlarge", 0), job("a", "m5.xlarge", &[1])];
    let bought = final_state_without_faults(&scenario(&controllers, objects(), vec![]));
    let of =
        |path: &str, server: &Server| field(server, &MachineSet::RESOURCE, &set_key("s"), path);
    assert_eq!(of("/spec/replicas", &bought.server), 1);
    assert_eq!(of(BOUGHT, &bought.server), "1");
    assert_eq!(of("/metadata/annotations/unknown", &bought.server), "kept");
    assert_eq!(of("/spec/template/spec/providerSpec/value/ami", &bought.server), "x");
    let finalizers =
        field(&bought.server, &AppWrapper::RESOURCE, &key("a"), "/metadata/finalizers");
    assert_eq!(finalizers, json!([FINALIZER]));

    let returned =
        final_state_without_faults(&scenario(&controllers, objects(), vec![removes("a")]));
    assert_eq!(of("/spec/replicas", &returned.server), 0);
    assert_eq!(of(BOUGHT, &returned.server), Value::Null);
    assert!(returned.server.get(&AppWrapper::RESOURCE, &key("a")).is_none(), "it may go");
}

#[test]
fn d_4_a_job_runs_on_a_machine_of_its_own_and_gives_it_back() {
    let (scaling, api) = (scaling(Backend::Reuse, 3), MachineApi::new(1));
    for ends in [false, true] {
        let queue = Queue { ends };
        let controllers: [&dyn gantry_reconcile::Controller; 4] =
            [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
        let objects = vec![set("s", "g4dn.xlarge", 0), job("a", "g4dn.xlarge", &[1])];
        let ending = final_state_without_faults(&scenario(&controllers, objects, vec![]));
        let server = &ending.server;
        let state = field(server, &AppWrapper::RESOURCE, &key("a"), "/status/state");
        let machines = server.list(&Machine::RESOURCE);
        if ends {
            assert_eq!((state, machines.len()), (json!("Completed"), 0));
            let job = server.get(&AppWrapper::RESOURCE, &key("a")).unwrap();
            assert_eq!(job["metadata"]["finalizers"], json!([]), "a job that is over is not held");
        } else {
            assert_eq!((state, machines.len()), (json!("Running"), 1));
            assert_eq!(machines[0]["metadata"]["labels"]["a-n"], "a-n");
            let node = server.list(&Node::RESOURCE)[0];
            assert_eq!(node["metadata"]["labels"], json!({"a-n": "a-n", "a": "a"}));
        }
    }
}

/// Returns several sets with one type, several types, several jobs, more than may be granted at
/// once.
fn contending_jobs() -> Vec<(gantry_reconcile::Resource, Value)> {
    vec![
        set("zone-a", "g", 1),
        set("zone-b", "g", 0),
        set("plain", "m", 1),
        set("other", "x", 2),
        job("a", "g", &[2]),
        job("b", "g_m", &[1, 1]),
        job("c", "m_g", &[2, 1]),
        job("d", "g", &[1]),
    ]
}

fn is_untouched(name: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        // Whatever has happened, objects that no job needs are unchanged.
        let other = server.get(&MachineSet::RESOURCE, &set_key(name)).unwrap();
        assert_eq!(other["spec"]["replicas"], 2);
        assert_eq!(other["metadata"]["generation"], 1);
    })
}

#[test]
fn is_13_reuse_buys_once_and_releases_everything() {
    let (scaling, api) = (scaling(Backend::Reuse, 3), MachineApi::new(3));
    let queue = Queue { ends: true };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let script = || vec![removes("d"), is_untouched("other"), is_untouched("other")];
    let scenario = scenario(&controllers, contending_jobs(), script());
    let end = final_state(&final_state_without_faults(&scenario).server);
    assert_eq!(end["granted"], json!([]), "{end:#}");
    assert_eq!((&end["machines"], &end["nodes"]), (&json!(4), &json!(4)), "{end:#}");
    proven(scenario.prove_faults(0..SEEDS, final_state));
    let few = || {
        vec![set("zone-a", "g", 1), set("zone-b", "g", 0), job("a", "g", &[2]), job("b", "g", &[2])]
    };
    proven(
        super::models::scenario(&controllers, few(), vec![removes("b")])
            .prove_crashes(0, final_state),
    );
}

#[test]
fn is_22_nothing_is_left_of_copies_whatever_happens() {
    let (scaling, api) = (scaling(Backend::Duplicate, 3), MachineApi { most: 100, works: true });
    let queue = Queue { ends: true };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let scenario =
        scenario(&controllers, contending_jobs(), vec![removes("d"), is_untouched("other")]);
    let end = final_state(&final_state_without_faults(&scenario).server);
    assert_eq!(end["sets"].as_array().unwrap().len(), 4, "{end:#}");
    proven(scenario.prove_faults(0..SEEDS, final_state));
    let few = vec![set("s", "g", 1), job("a", "g", &[2])];
    proven(super::models::scenario(&controllers, few, vec![]).prove_crashes(0, final_state));
}

#[test]
fn is_17_a_copy_is_of_its_job_alone() {
    let (scaling, api) = (scaling(Backend::Duplicate, 3), MachineApi::new(3));
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let objects =
        vec![set("s", "m5.xlarge", 1), set("t", "g", 0), job("a", "m5.xlarge_g", &[2, 1])];
    let ending = final_state_without_faults(&scenario(&controllers, objects, vec![]));
    let copy = ending.server.get(&MachineSet::RESOURCE, &set_key("a-n-m5.xlarge")).unwrap();
    assert_eq!(copy["spec"]["replicas"], 2);
    assert_eq!(copy["metadata"]["labels"][COPY_LABEL], "a-n");
    let own = json!({"a": "a", SET_LABEL: "a-n-m5.xlarge"});
    assert_eq!(copy["spec"]["selector"], json!({"matchLabels": own}));
    let labels = &copy["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["machine.openshift.io/cluster-api-cluster"], "cluster-x");
    assert_eq!((&labels["a"], &labels[SET_LABEL]), (&json!("a"), &json!("a-n-m5.xlarge")));
    let taints = &copy["spec"]["template"]["spec"]["taints"];
    assert_eq!(*taints, json!([{"key": "a", "value": "value1", "effect": "PreferNoSchedule"}]));
    assert_eq!(copy["spec"]["template"]["spec"]["providerSpec"]["value"]["ami"], "x");
    assert_eq!(
        copy["metadata"]["annotations"]["base"],
        Value::Null,
        "what was the source's stays there"
    );
    let source = ending.server.get(&MachineSet::RESOURCE, &set_key("s")).unwrap();
    assert_eq!(source["metadata"]["generation"], 1, "the source is not touched");
    let nodes = ending.server.list(&Node::RESOURCE);
    assert_eq!(nodes.iter().filter(|it| it["metadata"]["labels"]["a-n"] == "a-n").count(), 3);
}

#[test]
fn is_12_several_sets_of_a_type_share_what_is_needed() {
    let scaling = scaling(Backend::Reuse, 9);
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 2] = [&scaling, &queue];
    let sets = vec![set("z1", "g", 5), set("z2", "g", 0), set("z3", "g", 0), job("a", "g", &[4])];
    let ending = final_state_without_faults(&scenario(&controllers, sets, vec![]));
    let replicas = ["z1", "z2", "z3"]
        .map(|it| field(&ending.server, &MachineSet::RESOURCE, &set_key(it), "/spec/replicas"));
    assert_eq!(replicas, [json!(7), json!(1), json!(1)]);
}

#[test]
fn is_9_a_job_that_asks_for_less_gives_back_what_is_too_much() {
    let (scaling, api) = (scaling(Backend::Reuse, 5), MachineApi::new(5));
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let change = |count: i64| -> UserAction {
        Box::new(move |server: &mut Server| {
            server.edit(&AppWrapper::RESOURCE, &key("a"), |it| {
                it["spec"]["resources"]["GenericItems"][0]["custompodresources"][0]["replicas"] =
                    json!(count);
            });
        })
    };
    let objects = vec![set("s", "g", 1), set("t", "g", 1), job("a", "g", &[4])];
    let scenario =
        scenario(&controllers, objects, vec![change(3), change(2), change(5), change(2)]);
    let end = final_state_without_faults(&scenario);
    let replicas: i64 = ["s", "t"]
        .map(|it| field(&end.server, &MachineSet::RESOURCE, &set_key(it), "/spec/replicas"))
        .iter()
        .filter_map(Value::as_i64)
        .sum();
    assert_eq!(replicas, 4, "two of its own");
    let count = |server: &Server| {
        let marked = |it: &&&Value| it["metadata"]["labels"]["a-n"] == "a-n";
        let machines = server.list(&Machine::RESOURCE);
        json!([machines.len(), machines.iter().filter(marked).count()])
    };
    assert_eq!(count(&end.server), json!([4, 2]));
    proven(scenario.prove_faults(0..SEEDS, count));
}

#[test]
fn is_25_a_provision_timeout_is_reported_on_the_job() {
    let scaling = scaling(Backend::Reuse, 3);
    let api = MachineApi { most: 2, works: false };
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 3] = [&scaling, &queue, &api];
    let objects = vec![set("s", "g", 0), job("a", "g", &[2])];
    let mut scenario = scenario(&controllers, objects, vec![]);
    let waiting = final_state_without_faults(&scenario);
    let replicas =
        |server: &Server| field(server, &MachineSet::RESOURCE, &set_key("s"), "/spec/replicas");
    assert_eq!(replicas(&waiting.server), 2);
    assert!(waiting.held.iter().any(|it| it.reason == "Provisioning"), "{:?}", waiting.held);

    scenario.horizon = std::time::Duration::from_secs(3600);
    let ending = final_state_without_faults(&scenario);
    assert_eq!(replicas(&ending.server), 0);
    let job = ending.server.get(&AppWrapper::RESOURCE, &key("a")).unwrap();
    assert_eq!(job["metadata"]["annotations"][GAVE_UP_ANNOTATION], "g=2");
    assert!(
        job["metadata"]["annotations"][MESSAGE_ANNOTATION]
            .as_str()
            .unwrap()
            .contains("were not ready in time")
    );
    let told = ending.events.iter().filter(|it| it.reason == "ProvisioningTimedOut").count();
    assert_eq!(told, 1, "reported once");
    let granted = field(&ending.server, &ConfigMap::RESOURCE, &ledger(), "/data");
    assert_eq!(granted, json!({}));
    proven(scenario.prove(0..SEEDS, final_state));
}

#[test]
fn is_26_machines_without_a_grant_record_are_adopted() {
    let (scaling, api) = (scaling(Backend::Reuse, 1), MachineApi { most: 100, works: true });
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let mut bought = set("s", "g", 2);
    bought.1["metadata"]["labels"]["instascale.codeflare.dev-a-n"] = json!("2");
    let mut held = job("a", "g", &[2]);
    held.1["metadata"]["finalizers"] = json!([FINALIZER]);
    let objects = || vec![bought.clone(), held.clone()];
    let kept = final_state_without_faults(&scenario(&controllers, objects(), vec![]));
    let replicas =
        |server: &Server| field(server, &MachineSet::RESOURCE, &set_key("s"), "/spec/replicas");
    assert_eq!(replicas(&kept.server), 2, "no more, and no less though it is above the limit");
    let returned =
        final_state_without_faults(&scenario(&controllers, objects(), vec![removes("a")]));
    assert_eq!(replicas(&returned.server), 0);
}
