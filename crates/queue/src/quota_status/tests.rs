use std::time::Duration;

use gantry_harness::{
    CONFLICTED_PREFIX, REFUSED_PREFIX, Scenario, Server, UNREADABLE_PREFIX, UserAction,
};
use gantry_reconcile::{Meta, Propagation, Resource};
use serde::Deserialize;

use super::*;
use crate::quota::{Consumer, ConsumerId};

/// A job that holds this many cpus once it runs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Job {
    metadata: Meta,
    cpus: i64,
    runs: bool,
}

impl View for Job {
    const RESOURCE: Resource = Resource::namespaced("test", "v1", "jobs", "Job");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

fn controller() -> QuotaStatus<Job> {
    QuotaStatus::new(|_, job: &Job| {
        let consumer = Consumer {
            id: ConsumerId::from(job.metadata.key()),
            priority: 0,
            preemptable: true,
            preempt_first: false,
            request: [("cpu".to_owned(), job.cpus * 1000)].into(),
            labels: job.metadata.labels.clone(),
        };
        let since = job.metadata.creation_timestamp.unwrap_or_default();
        job.runs.then_some(QuotaHolder { since, consumer })
    })
}

fn subtree(name: &str, parent: Option<&str>, children: &[(&str, &str)]) -> (Resource, Value) {
    let children: Vec<Value> = children
        .iter()
        .map(|(name, cpu)| json!({"name": name, "quotas": {"requests": {"cpu": cpu}}}))
        .collect();
    let object = json!({
        "metadata": {"name": name, "namespace": "q", "labels": {"tree": "t"}},
        "spec": {"parent": parent, "children": children},
    });
    (Subtree::RESOURCE, object)
}

fn job(name: &str, leaf: &str, cpus: i64, runs: bool) -> (Resource, Value) {
    let metadata = json!({"name": name, "namespace": "n", "labels": {"t": leaf}});
    (Job::RESOURCE, json!({"metadata": metadata, "cpus": cpus, "runs": runs}))
}

/// Returns the statuses, without those of objects with problems.
fn shape(server: &Server) -> Value {
    let sound = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        ![REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX]
            .iter()
            .any(|word| name.starts_with(word))
    };
    let objects = server.list(&Subtree::RESOURCE);
    let statuses =
        objects.into_iter().filter(sound).map(|it| json!([it["metadata"]["name"], it["status"]]));
    statuses.collect()
}

fn scenario<'a>(controllers: &'a [&'a dyn Controller]) -> Scenario<'a> {
    let run = |name: &'static str, runs: bool| -> UserAction {
        Box::new(move |server: &mut Server| {
            server.edit(&Job::RESOURCE, &Key::new("n", name), |it| it["runs"] = json!(runs));
        })
    };
    let cut: UserAction = Box::new(|server: &mut Server| {
        server.delete(&Subtree::RESOURCE, &Key::new("q", "more"), Propagation::Background);
    });
    let end: UserAction = Box::new(|server: &mut Server| {
        server.delete(&Job::RESOURCE, &Key::new("n", "c"), Propagation::Background);
    });
    Scenario {
        controllers,
        defaults: |_, _| {},
        objects: vec![
            subtree("top", None, &[("root", "9")]),
            subtree("leaves", Some("root"), &[("gold", "2"), ("default", "0")]),
            subtree("more", Some("root"), &[("iron", "5")]),
            job("a", "gold", 2, true),
            job("b", "iron", 1, true),
            job("c", "gold", 3, false),
            job("d", "default", 1, false),
        ],
        script: vec![run("c", true), run("d", true), cut, run("a", false), end],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    }
}

#[test]
fn statuses_end_right_whatever_happens() {
    let controller = controller();
    let controllers: [&dyn Controller; 1] = [&controller];
    scenario(&controllers).prove(0..12, shape).unwrap();
    let ending = scenario(&controllers).run(3, gantry_harness::Faults::random()).unwrap();
    // Job b lost its leaf and is on the root; d borrows there.
    let cpu = |amount: &str| json!({"cpu": amount});
    assert_eq!(
        shape(&ending.server),
        json!([
            ["leaves", {
                "totalAllocation": cpu("0"),
                "children": [{"name": "gold", "allocated": cpu("0")}, {"name": "default"}],
            }],
            ["top", {
                "totalAllocation": cpu("2"),
                "children": [{"name": "root", "allocated": cpu("2")}],
            }],
        ])
    );
}

#[test]
fn objects_that_cannot_be_written_or_read_leave_the_others() {
    let controller = controller();
    let controllers: [&dyn Controller; 1] = [&controller];
    let mut bad: Vec<(Resource, Value)> = [REFUSED_PREFIX, CONFLICTED_PREFIX]
        .iter()
        .map(|word| subtree(&format!("{word}-one"), Some("root"), &[(word, "1")]))
        .collect();
    let (resource, mut object) = subtree(&format!("{UNREADABLE_PREFIX}-one"), Some("root"), &[]);
    object["spec"] = json!(7);
    bad.push((resource, object));
    scenario(&controllers).prove_isolation(&bad, 0..6, shape).unwrap();
}

fn read(object: &(Resource, Value)) -> Arc<Subtree> {
    Arc::new(serde_json::from_value(object.1.clone()).unwrap())
}

#[test]
fn a_tree_status_is_written_every_five_seconds() {
    assert_eq!(controller().min_plan_interval(), Duration::from_secs(5));
}

#[test]
fn problems_are_held() {
    let objects = [
        read(&subtree("top", None, &[("root", "9")])),
        read(&subtree("lost", Some("nowhere"), &[("leaf", "1")])),
    ];
    let plan = plan(&objects, std::iter::empty());
    let said: Vec<_> = plan
        .held
        .iter()
        .map(|held| (held.about.key.to_string(), held.reason.as_ref(), held.message.as_str()))
        .collect();
    let text =
        "quota tree t: node \"leaf\" of q/lost is left out: its parent \"nowhere\" does not exist";
    assert_eq!(said, [("q/lost".to_owned(), "UnknownParent", text)]);
    assert_eq!(plan.steps.len(), 1, "the rest counts");
}

#[test]
fn nothing_of_the_old_status_stays() {
    let table = [
        (json!(null), json!({"a": 1}), json!({"a": 1})),
        (json!({"a": 1}), json!({"b": {"c": 2}}), json!({"a": null, "b": {"c": 2}})),
        (json!({"b": {"c": 1, "d": 2}}), json!({"b": {"c": 3}}), json!({"b": {"c": 3, "d": null}})),
        (json!({"l": [1, 2]}), json!({"l": [3]}), json!({"l": [3]})),
        (json!({"a": 1}), json!(null), json!(null)),
    ];
    for (old, new, expected) in table {
        assert_eq!(replacement_patch(&old, new.clone()), expected, "{old} to {new}");
    }
}
