use serde_json::json;

use super::*;
use crate::amounts::OtherResources;

fn cpu(cpu: i64) -> Amounts {
    Amounts { cpu, ..Amounts::default() }
}

fn cluster(pods: &[(&str, &str, i64, &str)]) -> Capacity {
    let mut capacity = Capacity::new(OtherResources::Ignored);
    let node = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "status": {"allocatable": {"cpu": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    capacity.update_node("a", Some(&node));
    for (name, wrapper, cpu, phase) in pods {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "labels": {"appwrapper.mcad.ibm.com": wrapper}},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m")}}}]},
            "status": {"phase": phase},
        }))
        .unwrap();
        capacity.update_pod(&Key::new("n", name), Some(&pod));
    }
    capacity
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

#[test]
fn reserved_but_unused_capacity_is_not_available() {
    let pods = [
        ("p1", "one", 2000, "Running"),
        ("p2", "two", 1000, "Pending"),
        ("p3", "three", 4000, "Succeeded"),
    ];
    let capacity = cluster(&pods);
    let free = capacity.free(&PodTolerations::default(), &BTreeMap::new());
    assert_eq!(free.cpu, 7000, "what has succeeded takes nothing");
    let table = [
        ("half of it runs", "one", 4000, true, 5000),
        ("what is bound is taken, though it does not run", "two", 3000, true, 5000),
        ("what has succeeded is not done again", "three", 4000, true, 7000),
        ("more than declared is not lost", "one", 1000, true, 7000),
        ("without a reservation it has nothing", "one", 4000, false, 7000),
        ("without pods yet it reserves its demand", "four", 6000, true, 1000),
        ("and never more than there is", "four", 60_000, true, 0),
    ];
    for (why, name, demand, holds, expected) in table {
        let mut holdings = Reservations::default();
        holdings.set(&key(name), Some(TrackedAppWrapper::new(cpu(demand), 0, holds)), &capacity);
        let against = holdings.adjustment_for(None, &PodTolerations::default(), &capacity);
        assert_eq!(against.available(&free).cpu, expected, "{why}");
    }
}

#[test]
fn lower_priority_counts_as_free_with_preemption() {
    let pods = [
        ("p1", "low", 2000, "Running"),
        ("p2", "high", 1000, "Running"),
        ("p3", "low", 500, "Succeeded"),
    ];
    let capacity = cluster(&pods);
    let mut holdings = Reservations::default();
    holdings.set(&key("low"), Some(TrackedAppWrapper::new(cpu(9000), 1, true)), &capacity);
    holdings.set(&key("high"), Some(TrackedAppWrapper::new(cpu(3000), 8, true)), &capacity);
    let free = capacity.free(&PodTolerations::default(), &BTreeMap::new());
    let table = [
        ("without preemption all of it counts", None, 0),
        ("equal priority is not lower", Some(1), 0),
        ("what it runs can be had, what it reserved is ignored", Some(5), 7000 + 2000 - 2000),
        ("of all lower ones", Some(9), 7000 + 3000),
    ];
    for (why, priority, expected) in table {
        let against = holdings.adjustment_for(priority, &PodTolerations::default(), &capacity);
        assert_eq!(against.available(&free).cpu, expected, "{why}");
    }
}

#[test]
fn a_release_is_noticed() {
    let capacity = cluster(&[("p1", "one", 2000, "Running")]);
    let mut holdings = Reservations::default();
    let job = |demand, holds| Some(TrackedAppWrapper::new(cpu(demand), 3, holds));
    assert!(!holdings.set(&key("one"), job(5000, true), &capacity), "it took");
    assert!(!holdings.set(&key("one"), job(6000, true), &capacity), "it took more");
    assert!(holdings.set(&key("one"), job(4000, true), &capacity), "it gave back");
    assert!(holdings.set(&key("one"), job(4000, false), &capacity), "all of it");
    assert!(!holdings.set(&key("one"), None, &capacity), "there was nothing left");
    assert_eq!(holdings, Reservations::default());
}
