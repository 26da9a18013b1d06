use std::time::Duration;

use gantry_harness::{Action, Faults, Scenario, Server, prove_worlds};
use gantry_reconcile::{Propagation, Resource};

use super::*;
use crate::batch::pretend::{defaults, job, kubelet};
use crate::stand::{bad, proven};
use crate::view::Phase;

type Exit = fn(&Pod) -> Option<i64>;

fn number(pod: &Pod) -> u32 {
    pods::index(pod).unwrap_or(0)
}

/// Everything ends well.
const WELL: Exit = |_| Some(0);
/// Nothing ends well.
const BADLY: Exit = |_| Some(1);
/// Nothing ends.
const NEVER: Exit = |_| None;

fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    script: Vec<Action>,
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

/// The end of a job: its counters, its numbers, and its true conditions with their reasons.
fn end(server: &Server, name: &str) -> Value {
    let Some(job) = server.get(&Job::RESOURCE, &Key::new("n", name)) else { return json!("gone") };
    let status = &job["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let said = conditions.iter().map(|it| {
        let word = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
        format!("{}={} {}", word("type"), word("status"), word("reason"))
    });
    let pods = server.list(&Pod::RESOURCE);
    let waits = pods.iter().filter(|it| it.to_string().contains(Job::TRACKING)).count();
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

fn run(spec: &Value, exit: Exit, script: Vec<Action>) -> Value {
    let kubelet = kubelet(exit);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
    let scenario = scenario(&controllers, vec![job("j", spec.clone())], script);
    end(&scenario.run(1, Faults::none()).unwrap().server, "j")
}

fn edit(path: &'static str, value: Value) -> Action {
    Box::new(move |server: &mut Server| {
        server.edit(&Job::RESOURCE, &Key::new("n", "j"), |job| {
            *job.pointer_mut(path).unwrap() = value.clone();
        });
    })
}

fn ended(counters: [i64; 2], indexes: [Option<&str>; 2], said: &[&str]) -> Value {
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
    let odd: Exit = |pod| Some(i64::from(number(pod) % 2 == 1 && pods::failures(pod).0 == 0));
    let one_lost: Exit = |pod| Some(if number(pod) == 1 { 42 } else { 0 });
    let only_first: Exit = |pod| (number(pod) == 0).then_some(0);
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
    let table: Vec<(&str, Value, Exit, Value)> = vec![
        ("one pod", json!({"completions": 1}), WELL, ended([1, 0], none(), &COMPLETE)),
        (
            "several at once",
            json!({"completions": 5, "parallelism": 2}),
            WELL,
            ended([5, 0], none(), &COMPLETE),
        ),
        ("any that ends well", json!({"parallelism": 1}), WELL, ended([1, 0], none(), &COMPLETE)),
        ("nothing to do", json!({"completions": 0}), WELL, ended([0, 0], none(), &COMPLETE)),
        ("numbers", indexed(json!({})), WELL, ended([4, 0], [Some("0-3"), None], &COMPLETE)),
        (
            "too many failures",
            json!({"completions": 2, "backoffLimit": 2}),
            BADLY,
            ended([0, 3], none(), &failed("BackoffLimitExceeded").each_ref().map(String::as_str)),
        ),
        (
            "not one failure",
            json!({"completions": 2, "backoffLimit": 0}),
            BADLY,
            ended([0, 1], none(), &failed("BackoffLimitExceeded").each_ref().map(String::as_str)),
        ),
        (
            "too long",
            json!({"completions": 2, "parallelism": 2, "activeDeadlineSeconds": 30}),
            NEVER,
            ended([0, 2], none(), &failed("DeadlineExceeded").each_ref().map(String::as_str)),
        ),
        (
            "each number fails once",
            per_index(json!({})),
            odd,
            ended([4, 2], [Some("0-3"), Some("")], &COMPLETE),
        ),
        (
            "numbers that fail for good",
            per_index(json!({})),
            |pod| Some(i64::from(number(pod) == 2)),
            ended(
                [3, 2],
                [Some("0,1,3"), Some("2")],
                &failed("FailedIndexes").each_ref().map(String::as_str),
            ),
        ),
        (
            "too many numbers that fail",
            per_index(json!({"maxFailedIndexes": 1, "backoffLimitPerIndex": 0})),
            |pod| (number(pod) < 2).then_some(1),
            ended(
                [0, 4],
                [None, Some("0,1")],
                &failed("MaxFailedIndexesExceeded").each_ref().map(String::as_str),
            ),
        ),
        (
            "a number given up at once",
            per_index(
                json!({"backoffLimitPerIndex": 5, "podFailurePolicy": rule("FailIndex"), "podReplacementPolicy": "Failed"}),
            ),
            one_lost,
            ended(
                [3, 1],
                [Some("0,2,3"), Some("1")],
                &failed("FailedIndexes").each_ref().map(String::as_str),
            ),
        ),
        (
            "an exit code that fails the job",
            json!({"completions": 3, "podFailurePolicy": rule("FailJob"), "podReplacementPolicy": "Failed"}),
            |_| Some(42),
            ended([0, 1], none(), &failed("PodFailurePolicy").each_ref().map(String::as_str)),
        ),
        (
            "some numbers are enough",
            indexed(json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}})),
            only_first,
            ended(
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
fn jobs_rest_and_go_on() {
    let spec = json!({"completions": 3, "parallelism": 2, "suspend": true});
    let resting = run(&spec, WELL, vec![]);
    assert_eq!(resting["said"], json!(["Suspended=True JobSuspended"]));
    assert_eq!(resting["counters"], json!([0, 0, 0, 0, 0]), "no pod is made");
    let resumed = run(&spec, WELL, vec![edit("/spec/suspend", json!(false))]);
    assert_eq!(resumed["counters"], json!([0, 0, 0, 3, 0]));
    let spec = json!({"completions": 3, "parallelism": 2, "suspend": false});
    let paused = run(&spec, NEVER, vec![edit("/spec/suspend", json!(true))]);
    assert_eq!(paused["counters"], json!([0, 0, 0, 0, 0]), "what ran is let go, and not counted");
    assert_eq!(paused["said"], json!(["Suspended=True JobSuspended"]));
}

#[test]
fn the_clock_starts_again_after_a_rest() {
    let spec = json!({"completions": 3, "activeDeadlineSeconds": 10, "suspend": false});
    let mut seen = job_seen(&spec, &[]);
    let mut job = Job::clone(&seen.job);
    let long_ago = "2026-01-01T00:00:00Z";
    job.status = serde_json::from_value(json!({
        "startTime": long_ago,
        "conditions": [{
            "type": "Suspended", "status": "True", "reason": "JobSuspended",
            "message": "Job suspended", "lastTransitionTime": long_ago,
        }],
    }))
    .unwrap();
    seen.job = Arc::new(job);
    let plan = plan(&seen);
    let status = status_of(&plan).unwrap();
    assert_eq!(status["startTime"], "2026-01-01T01:00:00Z");
    let expected = json!([{
        "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
        "lastProbeTime": "2026-01-01T01:00:00Z", "lastTransitionTime": "2026-01-01T01:00:00Z",
    }]);
    assert_eq!(status["conditions"], expected);
    let notes = plan.steps.iter().flat_map(|step| &step.done);
    let said: Vec<&str> = notes.map(|note| &*note.reason).collect();
    assert_eq!(said, ["SuccessfulCreate", "Resumed"]);
}

#[test]
fn jobs_of_others_are_left_alone() {
    let spec = json!({"completions": 1, "managedBy": "example.com/queue"});
    assert_eq!(run(&spec, WELL, vec![])["said"], json!([]));
    let spec = json!({"completions": 1, "managedBy": "kubernetes.io/job-controller"});
    assert_eq!(run(&spec, WELL, vec![])["said"], json!(COMPLETE));
}

/// Users change their minds while everything goes wrong.
#[test]
fn jobs_end_in_the_same_place() {
    let one_fails: Exit = |pod| match pod.metadata.annotations.get("fail") {
        Some(_) => Some(1),
        None => Some(i64::from(number(pod) == 1 && pods::failures(pod).0 == 0)),
    };
    let kubelet = kubelet(one_fails);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
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
    let script: Vec<Action> = vec![
        edit("/spec/parallelism", json!(3)),
        edit("/spec/suspend", json!(true)),
        edit("/spec/suspend", json!(false)),
        edit("/spec/parallelism", json!(1)),
    ];
    let scenario = scenario(&controllers, objects, script);
    let shape = |server: &Server| {
        let mut all = json!(["j", "numbers", "hopeless"].map(|name| end(server, name)));
        // Whether it was seen resting is a matter of time.
        let said = all[0]["said"].as_array_mut().unwrap();
        said.retain(|it| !it.as_str().unwrap().starts_with("Suspended"));
        all
    };
    proven(scenario.prove_faults(0..8, shape));
}

#[test]
fn jobs_survive_a_crash_at_every_move() {
    let one_fails: Exit = |pod| Some(i64::from(number(pod) == 1 && pods::failures(pod).0 == 0));
    let kubelet = kubelet(one_fails);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
    let indexed = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 1, "backoffLimit": i32::MAX,
    });
    let plain = json!({"completions": 2, "parallelism": 1});
    for (spec, ended) in [(indexed, 2), (plain, 2)] {
        let scenario = scenario(&controllers, vec![job("j", spec)], vec![]);
        let calm = scenario.run(1, Faults::none()).unwrap();
        assert_eq!(end(&calm.server, "j")["counters"][3], ended);
        proven(scenario.prove_crashes(1, |server| end(server, "j")));
    }
}

/// Jobs of any size whose pods end well, or not, by their number.
#[test]
fn jobs_of_any_world_end_in_one_place() {
    let exit: Exit = |pod| Some(i64::from(pod.metadata.annotations.contains_key("fail")));
    let kubelet = kubelet(exit);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
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
    // How many had begun when the first failed is a matter of time.
    let shape = |server: &Server| {
        let ends = ["j", "k"].map(|name| end(server, name));
        json!(ends.map(|it| json!([it["counters"][3], it["said"], it["uncounted"], it["waits"]])))
    };
    proven(prove_worlds(0..16, world, shape));
}

/// Every pod is made once and counted once: as many are left as have ended well.
#[test]
fn no_pod_is_made_or_counted_twice() {
    let kubelet = kubelet(WELL);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
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
        let counted = |name: &str| end(&ending.server, name)["counters"].clone();
        assert_eq!((of("j"), counted("j")), (5, json!([0, 0, 0, 5, 0])), "seed {seed}");
        assert_eq!((of("numbers"), counted("numbers")), (4, json!([0, 0, 0, 4, 0])), "seed {seed}");
    }
}

#[test]
fn removed_jobs_leave_no_pod_behind() {
    for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
        let kubelet = kubelet(NEVER);
        let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
        let objects = vec![job("j", json!({"completions": 3, "parallelism": 3}))];
        let script: Vec<Action> = vec![Box::new(move |server: &mut Server| {
            server.delete(&Job::RESOURCE, &Key::new("n", "j"), propagation);
        })];
        let scenario = scenario(&controllers, objects, script);
        let shape = |server: &Server| {
            let pods = server.list(&Pod::RESOURCE);
            let held = pods.iter().filter(|it| it.to_string().contains(Job::TRACKING)).count();
            let owned = pods.iter().filter(|it| it["metadata"]["ownerReferences"][0].is_object());
            json!([end(server, "j"), held, owned.count()])
        };
        let proof = scenario.prove(0..4, shape);
        proof.unwrap_or_else(|failure| panic!("{propagation:?}: {failure}"));
    }
}

#[test]
fn one_bad_job_leaves_the_others_alone() {
    let kubelet = kubelet(WELL);
    let controllers: [&dyn Controller; 3] = [&Jobs, &TrackedPods, &kubelet];
    let odd = job("odd", json!({"completions": 1, "completionMode": "Sometimes"}));
    let objects = vec![odd, job("j", json!({"completions": 2}))];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.horizon = Duration::from_secs(60);
    let shape = |server: &Server| end(server, "j");
    let bad = bad("job", "/spec/parallelism", |name| job(name, json!({"completions": 1})));
    proven(scenario.prove_apart(&bad, 0..4, shape));
    let ending = scenario.run(3, Faults::some()).unwrap();
    assert_eq!(end(&ending.server, "j"), ended([2, 0], [None, None], &COMPLETE));
}

fn pod_of(job: &Value, name: &str, phase: &str, more: &Value) -> Arc<Pod> {
    let mut text = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "5",
            "labels": {"batch.kubernetes.io/controller-uid": "j"},
            "finalizers": [Job::TRACKING],
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

fn job_seen(spec: &Value, pods: &[(&str, &str)]) -> Seen {
    let (_, mut object) = job("j", spec.clone());
    object["metadata"]["uid"] = json!("j");
    object["metadata"]["resourceVersion"] = json!("9");
    defaults(&Job::RESOURCE, &mut object);
    let pods = pods.iter().map(|(name, phase)| pod_of(&object, name, phase, &json!({})));
    Seen {
        pods: pods.collect(),
        orphans: Vec::new(),
        job: Arc::new(serde_json::from_value(object).unwrap()),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    }
}

fn status_of(plan: &Plan) -> Option<&Value> {
    plan.steps.iter().find_map(|step| match &step.write {
        Write::Merge { part: Part::Status, body, .. } => Some(&body["status"]),
        _ => None,
    })
}

#[test]
fn ends_are_written_down_before_pods_are_let_go() {
    let mut seen = job_seen(
        &json!({"completions": 3, "parallelism": 3}),
        &[("a", "Succeeded"), ("b", "Failed")],
    );
    let first = plan(&seen);
    let status = status_of(&first).unwrap();
    assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": ["a"], "failed": ["b"]}));
    assert_eq!((&status["succeeded"], &status["failed"]), (&Value::Null, &Value::Null));
    let releases = |plan: &Plan| -> Vec<String> {
        let main = |it: &&gantry_reconcile::Step| {
            matches!(it.write, Write::Merge { part: Part::Main, .. })
        };
        plan.steps.iter().filter(main).map(|it| it.write.key().name().to_owned()).collect()
    };
    assert!(releases(&first).is_empty(), "not before it is written down");
    // Written down: now they may go, and are not counted yet.
    let mut job = Job::clone(&seen.job);
    job.status = serde_json::from_value(status.clone()).unwrap_or_else(|_| {
        let mut status = status.clone();
        status.as_object_mut().unwrap().retain(|_, it| !it.is_null());
        serde_json::from_value(status).unwrap()
    });
    seen.job = Arc::new(job);
    let second = plan(&seen);
    assert_eq!(releases(&second), ["a", "b"]);
    assert!(status_of(&second).is_none(), "nothing new to say");
    // One has lost its finalizer and the other is gone: both are counted.
    let mut a = Pod::clone(&seen.pods[0]);
    a.metadata.finalizers.clear();
    seen.pods = vec![Arc::new(a)];
    let third = plan(&seen);
    let status = status_of(&third).unwrap();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(1)));
    assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": null, "failed": null}));
}

#[test]
fn numbered_pods_know_their_number() {
    let seen = job_seen(
        &json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3}),
        &[],
    );
    let plan = plan(&seen);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("a create") };
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("j-0-") && name.len() == 9, "{name}");
    assert_eq!(body["metadata"]["generateName"], "j-0-");
    assert_eq!(body["metadata"]["labels"][pods::INDEX], "0");
    assert_eq!(body["metadata"]["annotations"], json!({pods::INDEX: "0", pods::FAILURES: "0"}));
    assert_eq!(body["spec"]["hostname"], "j-0");
    assert_eq!(body["metadata"]["finalizers"], json!([Job::TRACKING]));
    let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
    let variable =
        json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
    assert_eq!(body["spec"]["containers"][0]["env"], variable);
    let note = plan.steps[0].done.first().unwrap();
    assert_eq!(
        (&*note.reason, note.message.as_str()),
        ("SuccessfulCreate", &*format!("Created pod: {name}"))
    );
}

#[test]
fn waits_double_after_each_failure() {
    let at = |minute: usize| format!("2026-01-01T00:0{minute}:00Z");
    let spec = json!({"completions": 9, "parallelism": 1});
    // (failures, success after how many of them) -> wait after the last failure, in seconds
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
        let mut seen = job_seen(&spec, &[]);
        let mut job = Job::clone(&seen.job);
        job.spec.backoff_limit = Some(100);
        seen.job = Arc::new(job);
        let object = json!({"metadata": {"name": "j"}});
        let mut ends: Vec<&str> = vec!["Failed"; failures];
        if let Some(place) = success {
            ends.insert(place, "Succeeded");
        }
        for (minute, phase) in ends.iter().enumerate() {
            let made = json!({"/metadata/creationTimestamp": at(minute)});
            seen.pods.push(pod_of(&object, &format!("p{minute}"), phase, &made));
        }
        let last = ends.iter().rposition(|it| *it == "Failed").unwrap_or(0);
        seen.now = at(last).parse().unwrap();
        let plan = plan(&seen);
        let wait = plan.held.first().map(|it| it.until.unwrap().duration_since(seen.now).as_secs());
        assert_eq!(wait, expected, "{failures} failures, success at {success:?}");
    }
}

#[test]
fn the_least_of_the_pods_goes_first() {
    let mut seen = job_seen(
        &json!({"completions": 9, "parallelism": 1}),
        &[("a", "Running"), ("b", "Pending"), ("c", "Running")],
    );
    let goes = |seen: &Seen| -> Vec<String> {
        plan(seen)
            .steps
            .iter()
            .filter(|it| matches!(it.write, Write::Merge { part: Part::Main, .. }))
            .map(|it| it.write.key().name().to_owned())
            .collect()
    };
    assert_eq!(goes(&seen), ["b", "a"], "pending before running");
    let mut ready = Pod::clone(&seen.pods[0]);
    ready.status.conditions =
        serde_json::from_value(json!([{"type": "Ready", "status": "True"}])).unwrap();
    seen.pods[0] = Arc::new(ready);
    assert_eq!(goes(&seen), ["b", "c"], "and running before ready");
}

#[test]
fn strangers_are_taken_on_and_given_up() {
    let mut seen = job_seen(&json!({"completions": 2, "parallelism": 2}), &[("a", "Running")]);
    let mut orphan = Pod::clone(&seen.pods[0]);
    orphan.metadata.name = "o".to_owned();
    orphan.metadata.owner_references.clear();
    orphan.metadata.finalizers.clear();
    seen.orphans = vec![Arc::new(orphan)];
    let mut strange = Pod::clone(&seen.pods[0]);
    strange.metadata.labels.clear();
    seen.pods = vec![Arc::new(strange)];
    let plan = plan(&seen);
    let bodies: Vec<&Value> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.write {
            Write::Merge { part: Part::Main, body, .. } => Some(&body["metadata"]),
            _ => None,
        })
        .collect();
    assert_eq!(*bodies[0], json!({"ownerReferences": [], "finalizers": []}));
    assert_eq!(bodies[1]["ownerReferences"][0]["name"], "j");
    assert_eq!(bodies[1]["finalizers"], json!([Job::TRACKING]));
}

#[test]
fn restarts_count_where_containers_start_again() {
    let spec = json!({
        "completions": 1, "backoffLimit": 2,
        "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}},
    });
    for (restarts, fails) in [(1, false), (2, true), (5, true)] {
        let mut seen = job_seen(&spec, &[("a", "Running")]);
        let mut pod = Pod::clone(&seen.pods[0]);
        pod.status.phase = Phase::Running;
        pod.status.container_statuses =
            serde_json::from_value(json!([{"name": "main", "restartCount": restarts}])).unwrap();
        seen.pods = vec![Arc::new(pod)];
        let plan = plan(&seen);
        let said = status_of(&plan).unwrap()["conditions"][0]["reason"].clone();
        assert_eq!(said == "BackoffLimitExceeded", fails, "{restarts}");
    }
}

#[test]
fn pods_of_a_job_that_cannot_be_read_still_wait_for_it() {
    let world = World::new(TrackedPods.kinds());
    let (_, mut odd) = job("j", json!({"parallelism": "many"}));
    odd["metadata"]["uid"] = json!("j");
    let pod = pod_of(&odd, "p", "Succeeded", &json!({}));
    world.shelf::<Pod>().set(Pod::clone(&pod));
    let plan = || TrackedPods.plan(&world, &pod.metadata.key(), Timestamp::MIN);
    assert_eq!(plan().steps.len(), 1, "those of a job that is gone do not");
    world.find(&Job::RESOURCE).unwrap().saw(&odd.to_string()).unwrap_err();
    assert!(plan().is_quiet());
}
