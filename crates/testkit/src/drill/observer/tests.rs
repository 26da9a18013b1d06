//! Tests that each violation of a guarantee is detected.

use serde_json::{Value, json};

use super::super::Size;
use super::*;

const AT: Duration = Duration::from_secs(1);

fn observer() -> Observer {
    Observer::new(&Workload::new(&Size::full(), &mut fastrand::Rng::with_seed(1)))
}

fn wrapper(name: &str, revision: u32, status: &Value) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}, "status": status})
}

fn admitted_status() -> Value {
    json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true})
}

fn pod(name: &str, node: &str, cpu: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {OWNER: "job-000"}},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    })
}

fn node(cpu: &str) -> Value {
    json!({"metadata": {"name": "n"}, "status": {
        "allocatable": {"cpu": cpu, "pods": "3"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
}

#[track_caller]
fn assert_violation(observer: &Observer, words: &str) {
    let [fault] = observer.violations() else { panic!("{:?}", observer.violations()) };
    assert!(fault.contains(words), "{fault}");
}

#[test]
fn completed_app_wrappers_stay_so() {
    let mut observer = observer();
    let done = json!({"state": "Completed", "queuejobstate": "Completed"});
    observer.changed(Kind::Wrappers, &wrapper("job-000", 1, &done), AT);
    assert_eq!((observer.completed(), observer.violations().len()), (1, 0));
    observer.changed(Kind::Wrappers, &wrapper("job-000", 2, &json!({"state": "Pending"})), AT);
    assert_violation(&observer, "job-000 was Completed");
}

#[test]
fn failures_and_losses_are_reported() {
    let mut failed = observer();
    failed.changed(Kind::Wrappers, &wrapper("job-000", 1, &json!({"state": "Failed"})), AT);
    assert_violation(&failed, "job-000 ended as Failed");
    let mut gone = observer();
    gone.changed(Kind::Wrappers, &wrapper("job-000", 1, &json!({})), AT);
    gone.listed(Kind::Wrappers, &[], AT);
    assert_violation(&gone, "job-000 was deleted");
    let mut strange = observer();
    strange.changed(Kind::Wrappers, &wrapper("other", 1, &json!({})), AT);
    assert_violation(&strange, "other was not submitted");
}

/// All of them at once are more than any tree has. Preempted AppWrappers do not count.
#[test]
fn quota_overcommit_is_reported() {
    let mut observer = observer();
    let names: Vec<String> = observer.app_wrappers.keys().cloned().collect();
    let yields = json!({"state": "Running", "queuejobstate": "Preempted", "canrun": true});
    let all = |status: &Value| -> Vec<Value> {
        names.iter().map(|name| wrapper(name, 1, status)).collect()
    };
    observer.listed(Kind::Wrappers, &all(&yields), AT);
    assert!(observer.violations().is_empty(), "{:?}", observer.violations());
    observer.listed(Kind::Wrappers, &all(&admitted_status()), AT);
    let faults = observer.violations();
    for limit in ["the root of tree team", "bronze of tree team", "the root of tree project"] {
        assert!(faults.iter().any(|it| it.starts_with(limit)), "{limit}: {faults:?}");
    }
    assert_eq!(faults.len(), 3, "and each is checked once: {faults:?}");
}

#[test]
fn node_overcommit_is_reported() {
    let mut observer = observer();
    observer.changed(Kind::Pods, &pod("a", "n", "3", "Running"), AT);
    observer.changed(Kind::Nodes, &node("4"), AT);
    observer.changed(Kind::Pods, &pod("b", "n", "9", "Succeeded"), AT);
    observer.changed(Kind::Pods, &pod("c", "", "9", "Pending"), AT);
    observer.changed(Kind::Pods, &pod("d", "n", "1", "Pending"), AT);
    assert!(observer.violations().is_empty(), "{:?}", observer.violations());
    observer.changed(Kind::Pods, &pod("e", "n", "1", "Pending"), AT);
    assert_violation(&observer, "node n has");
    observer.violations.clear();
    observer.deleted(Kind::Pods, &pod("a", "n", "3", "Running"));
    for name in ["f", "g"] {
        observer.changed(Kind::Pods, &pod(name, "n", "0", "Pending"), AT);
    }
    assert_violation(&observer, "but its 4 pods use");
}

/// An AppWrapper with one item, which completes.
fn complete_one_app_wrapper(observer: &mut Observer) -> (String, Value) {
    let one = |it: &&PlannedAppWrapper| it.items.len() == 1;
    let planned = observer.app_wrappers.values().find(one).unwrap().clone();
    observer.app_wrappers.retain(|name, _| *name == planned.name);
    observer.changed(Kind::Wrappers, &wrapper(&planned.name, 1, &admitted_status()), AT);
    let done = json!({"state": "Completed", "queuejobstate": "Completed"});
    observer.changed(Kind::Wrappers, &wrapper(&planned.name, 2, &done), AT);
    let (item, pods) = &planned.items[0];
    let job = json!({"metadata": {"name": item, "uid": "1"}, "status": {
        "succeeded": pods, "conditions": [{"type": "Complete", "status": "True"}],
    }});
    (planned.name, job)
}

#[test]
fn leftovers_are_reported() {
    let mut observer = observer();
    let (name, job) = complete_one_app_wrapper(&mut observer);
    assert!(observer.leftovers()[0].contains("and its item is None"), "{:?}", observer.leftovers());
    observer.changed(Kind::Jobs, &job, AT);
    assert_eq!(observer.leftovers(), Vec::<String>::new());

    observer.changed(Kind::Pods, &pod("p", "n", "1", "Running"), AT);
    let tree = json!({"metadata": {"name": "t"}, "status": {"totalAllocation": {"cpu": "2"}}});
    observer.changed(Kind::Trees, &tree, AT);
    let left = observer.leftovers();
    assert!(
        left[0].starts_with("pod p on node") && left[1].starts_with("QuotaSubtree t"),
        "{left:?}"
    );
    observer.changed(Kind::Pods, &pod("p", "n", "1", "Succeeded"), AT);
    observer.changed(Kind::Trees, &json!({"metadata": {"name": "t"}}), AT);

    // Created again without a preemption.
    let mut again = job;
    again["metadata"]["uid"] = json!("2");
    observer.changed(Kind::Jobs, &again, AT);
    assert!(observer.leftovers()[0].contains("was created 2 times"), "{:?}", observer.leftovers());
    observer.wrappers.get_mut(&name).unwrap().preemptions = 1;
    assert_eq!(observer.leftovers(), Vec::<String>::new());
}

#[test]
fn preemptions_are_counted_by_reason() {
    let mut observer = observer();
    let back = json!({
        "state": "Running", "queuejobstate": "Preempted", "canrun": true,
        "conditions": [
            {"type": "Preempted", "reason": "PriorityPreempted", "lastUpdateMicroTime": "1"},
            {"type": "Preempted", "reason": "QuotaReclaimed", "lastUpdateMicroTime": "2"},
            {"type": "Running", "reason": "PodsRunning", "lastUpdateMicroTime": "3"},
        ],
    });
    for revision in 1..3 {
        observer.changed(Kind::Wrappers, &wrapper("job-000", revision, &back), AT);
    }
    assert_eq!(observer.take_preemption_summary().as_deref(), Some("preempted: 1 QuotaReclaimed"));
    assert_eq!(observer.take_preemption_summary(), None);
    // An AppWrapper that changed during a gap may have been preempted in it.
    observer.listed(Kind::Wrappers, &[wrapper("job-000", 9, &admitted_status())], AT);
    assert_eq!((observer.wrappers["job-000"].missed, observer.gaps), (1, 0));
    observer.listed(Kind::Wrappers, &[wrapper("job-000", 9, &admitted_status())], AT);
    assert_eq!((observer.wrappers["job-000"].missed, observer.gaps), (1, 1));
}
