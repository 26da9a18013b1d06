use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, UserAction, prove_worlds};
use gantry_reconcile::{Propagation, Resource};

use super::*;
use crate::batch::test_support::{defaults, job, kubelet};
use crate::test_world::{assert_proof, faulty_objects};
use crate::view::Phase;

type ExitCode = fn(&Pod) -> Option<i64>;

fn number(pod: &Pod) -> u32 {
    pods::completion_index(pod).unwrap_or(0)
}

/// Every pod succeeds.
const SUCCEEDS: ExitCode = |_| Some(0);
/// Every pod fails.
const FAILS: ExitCode = |_| Some(1);
/// No pod exits.
const NEVER_EXITS: ExitCode = |_| None;

fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    Scenario {
        controllers,
        defaults,
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(7200),
        ..Scenario::default()
    }
}

/// The final state of a job: its counters, its indexes, and its true conditions with their reasons.
fn job_summary(server: &Server, name: &str) -> Value {
    let Some(job) = server.get(&Job::RESOURCE, &Key::new("n", name)) else { return json!("gone") };
    let status = &job["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let said = conditions.iter().map(|it| {
        let word = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
        format!("{}={} {}", word("type"), word("status"), word("reason"))
    });
    let pods = server.list(&Pod::RESOURCE);
    let waits = pods.iter().filter(|it| it.to_string().contains(Job::TRACKING_FINALIZER)).count();
    let counters = ["active", "ready", "terminating", "succeeded", "failed"];
    let counters = counters.map(|name| status[name].as_i64().unwrap_or_default());
    json!({
        "counters": counters,
        "indexes": [status["completedIndexes"], status["failedIndexes"]],
        "said": said.collect::<Vec<_>>(),
        "uncounted": status["uncountedTerminatedPods"],
        "waits": waits,
    })
}

fn run(spec: &Value, exit: ExitCode, script: Vec<UserAction>) -> Value {
    let kubelet = kubelet(exit);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let scenario = scenario(&controllers, vec![job("j", spec.clone())], script);
    job_summary(&scenario.run(1, Faults::none()).unwrap().server, "j")
}

fn edit(path: &'static str, value: Value) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&Job::RESOURCE, &Key::new("n", "j"), |job| {
            *job.pointer_mut(path).unwrap() = value.clone();
        });
    })
}

fn expected_summary(counters: [i64; 2], indexes: [Option<&str>; 2], said: &[&str]) -> Value {
    json!({
        "counters": [0, 0, 0, counters[0], counters[1]], "indexes": indexes, "said": said,
        "uncounted": {}, "waits": 0,
    })
}

const COMPLETE: [&str; 2] =
    ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"];

#[test]
fn jobs_end_as_their_pods_do() {
    let none = || [None, None];
    let failed =
        |reason: &str| [format!("FailureTarget=True {reason}"), format!("Failed=True {reason}")];
    let odd: ExitCode =
        |pod| Some(i64::from(number(pod) % 2 == 1 && pods::index_failures(pod).0 == 0));
    let one_lost: ExitCode = |pod| Some(if number(pod) == 1 { 42 } else { 0 });
    let only_first: ExitCode = |pod| (number(pod) == 0).then_some(0);
    let indexed = |spec: Value| {
        let mut all = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
        for (name, value) in spec.as_object().unwrap() {
            all[name] = value.clone();
        }
        all
    };
    let rule = |action: &str| json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]});
    let per_index = |spec: Value| {
        let mut all = indexed(spec);
        all["backoffLimitPerIndex"] = all["backoffLimitPerIndex"].as_i64().unwrap_or(1).into();
        all["backoffLimit"] = json!(i32::MAX);
        all
    };
    let table: Vec<(&str, Value, ExitCode, Value)> = vec![
        (
            "one pod",
            json!({"completions": 1}),
            SUCCEEDS,
            expected_summary([1, 0], none(), &COMPLETE),
        ),
        (
            "several at once",
            json!({"completions": 5, "parallelism": 2}),
            SUCCEEDS,
            expected_summary([5, 0], none(), &COMPLETE),
        ),
        (
            "any that ends well",
            json!({"parallelism": 1}),
            SUCCEEDS,
            expected_summary([1, 0], none(), &COMPLETE),
        ),
        (
            "nothing to do",
            json!({"completions": 0}),
            SUCCEEDS,
            expected_summary([0, 0], none(), &COMPLETE),
        ),
        (
            "numbers",
            indexed(json!({})),
            SUCCEEDS,
            expected_summary([4, 0], [Some("0-3"), None], &COMPLETE),
        ),
        (
            "too many failures",
            json!({"completions": 2, "backoffLimit": 2}),
            FAILS,
            expected_summary(
                [0, 3],
                none(),
                &failed("BackoffLimitExceeded").each_ref().map(String::as_str),
            ),
        ),
        (
            "not one failure",
            json!({"completions": 2, "backoffLimit": 0}),
            FAILS,
            expected_summary(
                [0, 1],
                none(),
                &failed("BackoffLimitExceeded").each_ref().map(String::as_str),
            ),
        ),
        (
            "too long",
            json!({"completions": 2, "parallelism": 2, "activeDeadlineSeconds": 30}),
            NEVER_EXITS,
            expected_summary(
                [0, 2],
                none(),
                &failed("DeadlineExceeded").each_ref().map(String::as_str),
            ),
        ),
        (
            "each number fails once",
            per_index(json!({})),
            odd,
            expected_summary([4, 2], [Some("0-3"), Some("")], &COMPLETE),
        ),
        (
            "numbers that fail for good",
            per_index(json!({})),
            |pod| Some(i64::from(number(pod) == 2)),
            expected_summary(
                [3, 2],
                [Some("0,1,3"), Some("2")],
                &failed("FailedIndexes").each_ref().map(String::as_str),
            ),
        ),
        (
            "too many numbers that fail",
            per_index(json!({"maxFailedIndexes": 1, "backoffLimitPerIndex": 0})),
            |pod| (number(pod) < 2).then_some(1),
            expected_summary(
                [0, 4],
                [None, Some("0,1")],
                &failed("MaxFailedIndexesExceeded").each_ref().map(String::as_str),
            ),
        ),
        (
            "an index failed immediately",
            per_index(
                json!({"backoffLimitPerIndex": 5, "podFailurePolicy": rule("FailIndex"), "podReplacementPolicy": "Failed"}),
            ),
            one_lost,
            expected_summary(
                [3, 1],
                [Some("0,2,3"), Some("1")],
                &failed("FailedIndexes").each_ref().map(String::as_str),
            ),
        ),
        (
            "an exit code that fails the job",
            json!({"completions": 3, "podFailurePolicy": rule("FailJob"), "podReplacementPolicy": "Failed"}),
            |_| Some(42),
            expected_summary(
                [0, 1],
                none(),
                &failed("PodFailurePolicy").each_ref().map(String::as_str),
            ),
        ),
        (
            "some numbers are enough",
            indexed(json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}})),
            only_first,
            expected_summary(
                [1, 0],
                [Some("0"), None],
                &["SuccessCriteriaMet=True SuccessPolicy", "Complete=True SuccessPolicy"],
            ),
        ),
    ];
    for (why, spec, exit, expected) in table {
        assert_eq!(run(&spec, exit, vec![]), expected, "{why}");
    }
}

#[test]
fn jobs_are_suspended_and_resumed() {
    let spec = json!({"completions": 3, "parallelism": 2, "suspend": true});
    let resting = run(&spec, SUCCEEDS, vec![]);
    assert_eq!(resting["said"], json!(["Suspended=True JobSuspended"]));
    assert_eq!(resting["counters"], json!([0, 0, 0, 0, 0]), "no pod is made");
    let resumed = run(&spec, SUCCEEDS, vec![edit("/spec/suspend", json!(false))]);
    assert_eq!(resumed["counters"], json!([0, 0, 0, 3, 0]));
    let spec = json!({"completions": 3, "parallelism": 2, "suspend": false});
    let paused = run(&spec, NEVER_EXITS, vec![edit("/spec/suspend", json!(true))]);
    assert_eq!(paused["counters"], json!([0, 0, 0, 0, 0]), "what ran is let go, and not counted");
    assert_eq!(paused["said"], json!(["Suspended=True JobSuspended"]));
}

#[test]
fn the_deadline_restarts_after_a_suspension() {
    let spec = json!({"completions": 3, "activeDeadlineSeconds": 10, "suspend": false});
    let mut observed = observed_job(&spec, &[]);
    let mut job = Job::clone(&observed.job);
    let long_ago = "2026-01-01T00:00:00Z";
    job.status = serde_json::from_value(json!({
        "startTime": long_ago,
        "conditions": [{
            "type": "Suspended", "status": "True", "reason": "JobSuspended",
            "message": "Job suspended", "lastTransitionTime": long_ago,
        }],
    }))
    .unwrap();
    observed.job = Arc::new(job);
    let plan = plan(&observed);
    let status = status_of(&plan).unwrap();
    assert_eq!(status["startTime"], "2026-01-01T01:00:00Z");
    let expected = json!([{
        "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
        "lastProbeTime": "2026-01-01T01:00:00Z", "lastTransitionTime": "2026-01-01T01:00:00Z",
    }]);
    assert_eq!(status["conditions"], expected);
    let notes = plan.steps.iter().flat_map(|step| &step.success_events);
    let said: Vec<&str> = notes.map(|note| &*note.reason).collect();
    assert_eq!(said, ["SuccessfulCreate", "Resumed"]);
}

#[test]
fn jobs_managed_elsewhere_are_left_alone() {
    let spec = json!({"completions": 1, "managedBy": "example.com/queue"});
    assert_eq!(run(&spec, SUCCEEDS, vec![])["said"], json!([]));
    let spec = json!({"completions": 1, "managedBy": "kubernetes.io/job-controller"});
    assert_eq!(run(&spec, SUCCEEDS, vec![])["said"], json!(COMPLETE));
}

/// Users change jobs while everything goes wrong.
#[test]
fn jobs_converge() {
    let one_fails: ExitCode = |pod| match pod.metadata.annotations.get("fail") {
        Some(_) => Some(1),
        None => Some(i64::from(number(pod) == 1 && pods::index_failures(pod).0 == 0)),
    };
    let kubelet = kubelet(one_fails);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let (_, mut hopeless) = job("hopeless", json!({"completions": 2, "backoffLimit": 1}));
    hopeless["spec"]["template"]["metadata"] = json!({"annotations": {"fail": "yes"}});
    let indexed = json!({
        "completions": 3, "parallelism": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 2, "backoffLimit": i32::MAX,
    });
    let objects = vec![
        job("j", json!({"completions": 4, "parallelism": 2, "suspend": false})),
        job("numbers", indexed),
        (Job::RESOURCE, hopeless),
    ];
    let script: Vec<UserAction> = vec![
        edit("/spec/parallelism", json!(3)),
        edit("/spec/suspend", json!(true)),
        edit("/spec/suspend", json!(false)),
        edit("/spec/parallelism", json!(1)),
    ];
    let scenario = scenario(&controllers, objects, script);
    let shape = |server: &Server| {
        let mut all = json!(["j", "numbers", "hopeless"].map(|name| job_summary(server, name)));
        // Whether the suspension was observed is a matter of timing.
        let said = all[0]["said"].as_array_mut().unwrap();
        said.retain(|it| !it.as_str().unwrap().starts_with("Suspended"));
        all
    };
    assert_proof(scenario.prove_faults(0..8, shape));
}

#[test]
fn jobs_survive_a_crash_at_every_step() {
    let one_fails: ExitCode =
        |pod| Some(i64::from(number(pod) == 1 && pods::index_failures(pod).0 == 0));
    let kubelet = kubelet(one_fails);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let indexed = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 1, "backoffLimit": i32::MAX,
    });
    let plain = json!({"completions": 2, "parallelism": 1});
    for (spec, ended) in [(indexed, 2), (plain, 2)] {
        let scenario = scenario(&controllers, vec![job("j", spec)], vec![]);
        let calm = scenario.run(1, Faults::none()).unwrap();
        assert_eq!(job_summary(&calm.server, "j")["counters"][3], ended);
        assert_proof(scenario.prove_crashes(1, |server| job_summary(server, "j")));
    }
}

/// Jobs of any size whose pods succeed or fail by their index.
#[test]
fn random_jobs_converge() {
    let exit: ExitCode = |pod| Some(i64::from(pod.metadata.annotations.contains_key("fail")));
    let kubelet = kubelet(exit);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let objects = ["j", "k"].map(|name| {
            let completions = rng.u32(1..4);
            let mut spec = json!({
                "completions": completions, "parallelism": rng.u32(1..4),
                "backoffLimit": rng.u32(..2),
            });
            if rng.bool() {
                spec["completionMode"] = json!("Indexed");
            }
            let (resource, mut object) = job(name, spec);
            if rng.u32(..3) == 0 {
                object["spec"]["template"]["metadata"] = json!({"annotations": {"fail": "yes"}});
            }
            (resource, object)
        });
        let parallelism = rng.u32(1..4);
        let script = (0..rng.usize(..3)).map(|_| edit("/spec/parallelism", json!(parallelism)));
        scenario(&controllers, objects.to_vec(), script.collect())
    };
    // How many pods had started when the first failed is a matter of timing.
    let shape = |server: &Server| {
        let ends = ["j", "k"].map(|name| job_summary(server, name));
        json!(ends.map(|it| json!([it["counters"][3], it["said"], it["uncounted"], it["waits"]])))
    };
    assert_proof(prove_worlds(0..16, world, shape));
}

/// Every pod is created once and counted once: as many are left as have succeeded.
#[test]
fn no_pod_is_created_or_counted_twice() {
    let kubelet = kubelet(SUCCEEDS);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let indexed = json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"});
    let objects =
        vec![job("j", json!({"completions": 5, "parallelism": 3})), job("numbers", indexed)];
    let scenario = scenario(&controllers, objects, vec![]);
    for seed in 0..60 {
        let faults = Faults { lost_answers: 300, crashes: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap();
        let of = |name: &str| {
            let pods = ending.server.list(&Pod::RESOURCE);
            pods.iter().filter(|it| it["metadata"]["ownerReferences"][0]["name"] == name).count()
        };
        let counted = |name: &str| job_summary(&ending.server, name)["counters"].clone();
        assert_eq!((of("j"), counted("j")), (5, json!([0, 0, 0, 5, 0])), "seed {seed}");
        assert_eq!((of("numbers"), counted("numbers")), (4, json!([0, 0, 0, 4, 0])), "seed {seed}");
    }
}

#[test]
fn removed_jobs_leave_no_pod_behind() {
    for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
        let kubelet = kubelet(NEVER_EXITS);
        let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
        let objects = vec![job("j", json!({"completions": 3, "parallelism": 3}))];
        let script: Vec<UserAction> = vec![Box::new(move |server: &mut Server| {
            server.delete(&Job::RESOURCE, &Key::new("n", "j"), propagation);
        })];
        let scenario = scenario(&controllers, objects, script);
        let shape = |server: &Server| {
            let pods = server.list(&Pod::RESOURCE);
            let held =
                pods.iter().filter(|it| it.to_string().contains(Job::TRACKING_FINALIZER)).count();
            let owned = pods.iter().filter(|it| it["metadata"]["ownerReferences"][0].is_object());
            json!([job_summary(server, "j"), held, owned.count()])
        };
        let proof = scenario.prove(0..4, shape);
        proof.unwrap_or_else(|failure| panic!("{propagation:?}: {failure}"));
    }
}

#[test]
fn one_faulty_job_does_not_block_others() {
    let kubelet = kubelet(SUCCEEDS);
    let controllers: [&dyn Controller; 3] = [&JobController, &JobFinalizerController, &kubelet];
    let odd = job("odd", json!({"completions": 1, "completionMode": "Sometimes"}));
    let objects = vec![odd, job("j", json!({"completions": 2}))];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.horizon = Duration::from_secs(60);
    let shape = |server: &Server| job_summary(server, "j");
    let bad =
        faulty_objects("job", "/spec/parallelism", |name| job(name, json!({"completions": 1})));
    assert_proof(scenario.prove_isolation(&bad, 0..4, shape));
    let ending = scenario.run(3, Faults::random()).unwrap();
    assert_eq!(job_summary(&ending.server, "j"), expected_summary([2, 0], [None, None], &COMPLETE));
}

fn pod_of(job: &Value, name: &str, phase: &str, more: &Value) -> Arc<Pod> {
    let mut text = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "5",
            "labels": {"batch.kubernetes.io/controller-uid": "j"},
            "finalizers": [Job::TRACKING_FINALIZER],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"phase": phase},
    });
    text["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": "j",
        "controller": true,
    }]);
    for (path, value) in more.as_object().unwrap() {
        *text.pointer_mut(path).unwrap() = value.clone();
    }
    Arc::new(serde_json::from_value(text).unwrap())
}

fn observed_job(spec: &Value, pods: &[(&str, &str)]) -> ObservedJob {
    let (_, mut object) = job("j", spec.clone());
    object["metadata"]["uid"] = json!("j");
    object["metadata"]["resourceVersion"] = json!("9");
    defaults(&Job::RESOURCE, &mut object);
    let pods = pods.iter().map(|(name, phase)| pod_of(&object, name, phase, &json!({})));
    ObservedJob {
        pods: pods.collect(),
        orphans: Vec::new(),
        job: Arc::new(serde_json::from_value(object).unwrap()),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    }
}

fn status_of(plan: &Plan) -> Option<&Value> {
    plan.steps.iter().find_map(|step| match &step.write {
        Write::Merge { subresource: Subresource::Status, body, .. } => Some(&body["status"]),
        _ => None,
    })
}

#[test]
fn ends_are_recorded_before_finalizers_are_removed() {
    let mut observed = observed_job(
        &json!({"completions": 3, "parallelism": 3}),
        &[("a", "Succeeded"), ("b", "Failed")],
    );
    let first = plan(&observed);
    let status = status_of(&first).unwrap();
    assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": ["a"], "failed": ["b"]}));
    assert_eq!((&status["succeeded"], &status["failed"]), (&Value::Null, &Value::Null));
    let releases = |plan: &Plan| -> Vec<String> {
        let main = |it: &&gantry_reconcile::Step| {
            matches!(it.write, Write::Merge { subresource: Subresource::Main, .. })
        };
        plan.steps.iter().filter(main).map(|it| it.write.key().name().to_owned()).collect()
    };
    assert!(releases(&first).is_empty(), "not before it is written down");
    // Recorded: now their finalizers may be removed, and they are not counted yet.
    let mut job = Job::clone(&observed.job);
    job.status = serde_json::from_value(status.clone()).unwrap_or_else(|_| {
        let mut status = status.clone();
        status.as_object_mut().unwrap().retain(|_, it| !it.is_null());
        serde_json::from_value(status).unwrap()
    });
    observed.job = Arc::new(job);
    let second = plan(&observed);
    assert_eq!(releases(&second), ["a", "b"]);
    assert!(status_of(&second).is_none(), "nothing new to write");
    // One has lost its finalizer and the other is gone: both are counted.
    let mut a = Pod::clone(&observed.pods[0]);
    a.metadata.finalizers.clear();
    observed.pods = vec![Arc::new(a)];
    let third = plan(&observed);
    let status = status_of(&third).unwrap();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(1)));
    assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": null, "failed": null}));
}

#[test]
fn indexed_pods_carry_their_index() {
    let observed = observed_job(
        &json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3}),
        &[],
    );
    let plan = plan(&observed);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("a create") };
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("j-0-") && name.len() == 9, "{name}");
    assert_eq!(body["metadata"]["generateName"], "j-0-");
    assert_eq!(body["metadata"]["labels"][pods::COMPLETION_INDEX], "0");
    assert_eq!(
        body["metadata"]["annotations"],
        json!({pods::COMPLETION_INDEX: "0", pods::INDEX_FAILURE_COUNT: "0"})
    );
    assert_eq!(body["spec"]["hostname"], "j-0");
    assert_eq!(body["metadata"]["finalizers"], json!([Job::TRACKING_FINALIZER]));
    let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
    let variable =
        json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
    assert_eq!(body["spec"]["containers"][0]["env"], variable);
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(
        (&*note.reason, note.message.as_str()),
        ("SuccessfulCreate", &*format!("Created pod: {name}"))
    );
}

#[test]
fn backoff_doubles_after_each_failure() {
    let at = |minute: usize| format!("2026-01-01T00:0{minute}:00Z");
    let spec = json!({"completions": 9, "parallelism": 1});
    // (failures, success after how many of them) -> backoff after the last failure, in seconds
    let table = [
        (0, None, None),
        (1, None, Some(10)),
        (2, None, Some(20)),
        (3, None, Some(40)),
        (6, None, Some(320)),
        (7, None, Some(600)),
        (9, None, Some(600)),
        (3, Some(2), Some(10)),
        (3, Some(3), None),
    ];
    for (failures, success, expected) in table {
        let mut observed = observed_job(&spec, &[]);
        let mut job = Job::clone(&observed.job);
        job.spec.backoff_limit = Some(100);
        observed.job = Arc::new(job);
        let object = json!({"metadata": {"name": "j"}});
        let mut ends: Vec<&str> = vec!["Failed"; failures];
        if let Some(place) = success {
            ends.insert(place, "Succeeded");
        }
        for (minute, phase) in ends.iter().enumerate() {
            let made = json!({"/metadata/creationTimestamp": at(minute)});
            observed.pods.push(pod_of(&object, &format!("p{minute}"), phase, &made));
        }
        let last = ends.iter().rposition(|it| *it == "Failed").unwrap_or(0);
        observed.now = at(last).parse().unwrap();
        let plan = plan(&observed);
        let wait =
            plan.held.first().map(|it| it.until.unwrap().duration_since(observed.now).as_secs());
        assert_eq!(wait, expected, "{failures} failures, success at {success:?}");
    }
}

#[test]
fn least_advanced_pods_are_deleted_first() {
    let mut observed = observed_job(
        &json!({"completions": 9, "parallelism": 1}),
        &[("a", "Running"), ("b", "Pending"), ("c", "Running")],
    );
    let goes = |seen: &ObservedJob| -> Vec<String> {
        plan(seen)
            .steps
            .iter()
            .filter(|it| matches!(it.write, Write::Merge { subresource: Subresource::Main, .. }))
            .map(|it| it.write.key().name().to_owned())
            .collect()
    };
    assert_eq!(goes(&observed), ["b", "a"], "pending before running");
    let mut ready = Pod::clone(&observed.pods[0]);
    ready.status.conditions =
        serde_json::from_value(json!([{"type": "Ready", "status": "True"}])).unwrap();
    observed.pods[0] = Arc::new(ready);
    assert_eq!(goes(&observed), ["b", "c"], "and running before ready");
}

#[test]
fn orphans_are_adopted_and_released() {
    let mut observed =
        observed_job(&json!({"completions": 2, "parallelism": 2}), &[("a", "Running")]);
    let mut orphan = Pod::clone(&observed.pods[0]);
    orphan.metadata.name = "o".to_owned();
    orphan.metadata.owner_references.clear();
    orphan.metadata.finalizers.clear();
    observed.orphans = vec![Arc::new(orphan)];
    let mut strange = Pod::clone(&observed.pods[0]);
    strange.metadata.labels.clear();
    observed.pods = vec![Arc::new(strange)];
    let plan = plan(&observed);
    let bodies: Vec<&Value> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.write {
            Write::Merge { subresource: Subresource::Main, body, .. } => Some(&body["metadata"]),
            _ => None,
        })
        .collect();
    assert_eq!(*bodies[0], json!({"ownerReferences": [], "finalizers": []}));
    assert_eq!(bodies[1]["ownerReferences"][0]["name"], "j");
    assert_eq!(bodies[1]["finalizers"], json!([Job::TRACKING_FINALIZER]));
}

#[test]
fn container_restarts_count_as_failures() {
    let spec = json!({
        "completions": 1, "backoffLimit": 2,
        "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}},
    });
    for (restarts, fails) in [(1, false), (2, true), (5, true)] {
        let mut observed = observed_job(&spec, &[("a", "Running")]);
        let mut pod = Pod::clone(&observed.pods[0]);
        pod.status.phase = Phase::Running;
        pod.status.container_statuses =
            serde_json::from_value(json!([{"name": "main", "restartCount": restarts}])).unwrap();
        observed.pods = vec![Arc::new(pod)];
        let plan = plan(&observed);
        let said = status_of(&plan).unwrap()["conditions"][0]["reason"].clone();
        assert_eq!(said == "BackoffLimitExceeded", fails, "{restarts}");
    }
}

#[test]
fn pods_of_an_unreadable_job_keep_their_finalizer() {
    let world = World::new(JobFinalizerController.kinds());
    let (_, mut odd) = job("j", json!({"parallelism": "many"}));
    odd["metadata"]["uid"] = json!("j");
    let pod = pod_of(&odd, "p", "Succeeded", &json!({}));
    world.store::<Pod>().set(Pod::clone(&pod));
    let plan = || JobFinalizerController.plan(&world, &pod.metadata.key(), Timestamp::MIN);
    assert_eq!(plan().steps.len(), 1, "those of a deleted job do not");
    world.single_store_for(&Job::RESOURCE).unwrap().observe(&odd.to_string()).unwrap_err();
    assert!(plan().is_noop());
}
