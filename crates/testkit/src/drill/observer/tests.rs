//! Each promise, broken once.

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

fn passed() -> Value {
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
fn blames(observer: &Observer, words: &str) {
    let [fault] = observer.faults() else { panic!("{:?}", observer.faults()) };
    assert!(fault.contains(words), "{fault}");
}

#[test]
fn what_has_ended_stays_so() {
    let mut observer = observer();
    let done = json!({"state": "Completed", "queuejobstate": "Completed"});
    observer.changed(Kind::Wrappers, &wrapper("job-000", 1, &done), AT);
    assert_eq!((observer.done(), observer.faults().len()), (1, 0));
    observer.changed(Kind::Wrappers, &wrapper("job-000", 2, &json!({"state": "Pending"})), AT);
    blames(&observer, "job-000 was Completed");
}

#[test]
fn nobody_fails_and_nobody_is_forgotten() {
    let mut failed = observer();
    failed.changed(Kind::Wrappers, &wrapper("job-000", 1, &json!({"state": "Failed"})), AT);
    blames(&failed, "job-000 ended as Failed");
    let mut gone = observer();
    gone.changed(Kind::Wrappers, &wrapper("job-000", 1, &json!({})), AT);
    gone.listed(Kind::Wrappers, &[], AT);
    blames(&gone, "job-000 is gone");
    let mut strange = observer();
    strange.changed(Kind::Wrappers, &wrapper("other", 1, &json!({})), AT);
    blames(&strange, "nobody submitted other");
}

/// All of them at once are more than any tree has. Those that were told to make room do not count.
#[test]
fn no_tree_gives_more_than_it_has() {
    let mut observer = observer();
    let names: Vec<String> = observer.wishes.keys().cloned().collect();
    let yields = json!({"state": "Running", "queuejobstate": "Preempted", "canrun": true});
    let all = |status: &Value| -> Vec<Value> {
        names.iter().map(|name| wrapper(name, 1, status)).collect()
    };
    observer.listed(Kind::Wrappers, &all(&yields), AT);
    assert!(observer.faults().is_empty(), "{:?}", observer.faults());
    observer.listed(Kind::Wrappers, &all(&passed()), AT);
    let faults = observer.faults();
    for limit in ["the root of tree team", "bronze of tree team", "the root of tree project"] {
        assert!(faults.iter().any(|it| it.starts_with(limit)), "{limit}: {faults:?}");
    }
    assert_eq!(faults.len(), 3, "and each is judged once: {faults:?}");
}

#[test]
fn no_node_gives_more_than_it_has() {
    let mut observer = observer();
    observer.changed(Kind::Pods, &pod("a", "n", "3", "Running"), AT);
    observer.changed(Kind::Nodes, &node("4"), AT);
    observer.changed(Kind::Pods, &pod("b", "n", "9", "Succeeded"), AT);
    observer.changed(Kind::Pods, &pod("c", "", "9", "Pending"), AT);
    observer.changed(Kind::Pods, &pod("d", "n", "1", "Pending"), AT);
    assert!(observer.faults().is_empty(), "{:?}", observer.faults());
    observer.changed(Kind::Pods, &pod("e", "n", "1", "Pending"), AT);
    blames(&observer, "node n has");
    observer.faults.clear();
    observer.gone(Kind::Pods, &pod("a", "n", "3", "Running"));
    for name in ["f", "g"] {
        observer.changed(Kind::Pods, &pod(name, "n", "0", "Pending"), AT);
    }
    blames(&observer, "to 4 pods");
}

/// An AppWrapper with one item, which completes.
fn completes(observer: &mut Observer) -> (String, Value) {
    let one = |it: &&Wish| it.items.len() == 1;
    let wish = observer.wishes.values().find(one).unwrap().clone();
    observer.wishes.retain(|name, _| *name == wish.name);
    observer.changed(Kind::Wrappers, &wrapper(&wish.name, 1, &passed()), AT);
    let done = json!({"state": "Completed", "queuejobstate": "Completed"});
    observer.changed(Kind::Wrappers, &wrapper(&wish.name, 2, &done), AT);
    let (item, pods) = &wish.items[0];
    let job = json!({"metadata": {"name": item, "uid": "1"}, "status": {
        "succeeded": pods, "conditions": [{"type": "Complete", "status": "True"}],
    }});
    (wish.name, job)
}

#[test]
fn what_is_left_over_is_found() {
    let mut observer = observer();
    let (name, job) = completes(&mut observer);
    assert!(observer.leftovers()[0].contains("and its item is None"), "{:?}", observer.leftovers());
    observer.changed(Kind::Jobs, &job, AT);
    assert_eq!(observer.leftovers(), Vec::<String>::new());

    observer.changed(Kind::Pods, &pod("p", "n", "1", "Running"), AT);
    let tree = json!({"metadata": {"name": "t"}, "status": {"totalAllocation": {"cpu": "2"}}});
    observer.changed(Kind::Trees, &tree, AT);
    let left = observer.leftovers();
    assert!(
        left[0].starts_with("pod p is on node") && left[1].starts_with("QuotaSubtree t"),
        "{left:?}"
    );
    observer.changed(Kind::Pods, &pod("p", "n", "1", "Succeeded"), AT);
    observer.changed(Kind::Trees, &json!({"metadata": {"name": "t"}}), AT);

    // Made again without having been taken back.
    let mut again = job;
    again["metadata"]["uid"] = json!("2");
    observer.changed(Kind::Jobs, &again, AT);
    assert!(observer.leftovers()[0].contains("was made 2 times"), "{:?}", observer.leftovers());
    observer.wrappers.get_mut(&name).unwrap().taken_back = 1;
    assert_eq!(observer.leftovers(), Vec::<String>::new());
}

#[test]
fn who_is_taken_back_is_counted_with_the_reason() {
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
    assert_eq!(observer.news().as_deref(), Some("taken back: 1 QuotaReclaimed"));
    assert_eq!(observer.news(), None);
    // Whoever was not looked at may have been taken back as well.
    observer.listed(Kind::Wrappers, &[wrapper("job-000", 9, &passed())], AT);
    assert_eq!((observer.wrappers["job-000"].missed, observer.gaps), (1, 0));
    observer.listed(Kind::Wrappers, &[wrapper("job-000", 9, &passed())], AT);
    assert_eq!((observer.wrappers["job-000"].missed, observer.gaps), (1, 1));
}
