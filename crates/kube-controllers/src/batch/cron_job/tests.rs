use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, UserAction, prove_worlds};
use gantry_reconcile::Resource;

use super::*;
use crate::batch::test_support::{defaults, kubelet};
use crate::batch::{JobController, JobFinalizerController};
use crate::test_world::{assert_proof, faulty_objects, is_faulty};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(spec: &Value, status: &Value) -> Value {
    let mut object = json!({
        "metadata": {
            "name": "c", "namespace": "n", "uid": "c", "resourceVersion": "3",
            "creationTimestamp": "2026-01-01T00:00:30Z",
        },
        "spec": {
            "schedule": "*/10 * * * *", "concurrencyPolicy": "Allow",
            "jobTemplate": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"completions": 1},
            },
        },
        "status": status,
    });
    for (name, value) in spec.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    object
}

/// A job for a minute of the hour, and how it finished.
fn job_at(minute: i64, ended: Option<&str>) -> Value {
    let for_time =
        at("2026-01-01T00:00:00Z").checked_add(SignedDuration::from_mins(minute)).unwrap();
    let conditions = ended.map(|kind| json!([{"type": kind, "status": "True"}]));
    json!({
        "metadata": {
            "name": format!("c-{}", for_time.as_second() / 60), "namespace": "n",
            "uid": format!("j{minute}"), "resourceVersion": "2",
            "annotations": {SCHEDULED_TIMESTAMP: for_time.to_string()},
        },
        "status": {
            "conditions": conditions.unwrap_or(json!([])), "startTime": for_time.to_string(),
            "completionTime": ended.map(|_| for_time.to_string()),
        },
    })
}

fn observed(spec: &Value, status: &Value, jobs: &[Value], now: &str) -> ObservedCronJob {
    let read = |job: &Value| Arc::new(serde_json::from_value(job.clone()).unwrap());
    ObservedCronJob {
        cron: Arc::new(serde_json::from_value(cron(spec, status)).unwrap()),
        jobs: jobs.iter().map(read).collect(),
        zone: Ok(TimeZone::UTC),
        now: at(now),
    }
}

/// The writes, in short.
fn written(plan: &Plan) -> Vec<String> {
    let short = |step: &Step| format!("{} {}", step.write.verb(), step.write.key().name());
    plan.steps.iter().map(short).collect()
}

fn events(plan: &Plan) -> Vec<&str> {
    plan.events.iter().map(|it| &*it.reason).collect()
}

/// The minutes of the first hour, as names have them.
fn name(minute: i64) -> String {
    format!("c-{}", at("2026-01-01T00:00:00Z").as_second() / 60 + minute)
}

#[test]
fn jobs_are_started_when_their_time_has_come() {
    let none = json!({});
    let last = |time: &str| json!({"lastScheduleTime": time});
    let create = |minute: i64| vec![format!("create {}", name(minute))];
    let table = [
        ("too early", json!({}), none.clone(), "2026-01-01T00:09:59Z", vec![], vec![]),
        ("on time", json!({}), none.clone(), "2026-01-01T00:10:00Z", create(10), vec![]),
        ("once", json!({}), last("2026-01-01T00:10:00Z"), "2026-01-01T00:19:00Z", vec![], vec![]),
        (
            "only the last missed",
            json!({}),
            none.clone(),
            "2026-01-01T00:45:00Z",
            create(40),
            vec![],
        ),
        (
            "too late",
            json!({"startingDeadlineSeconds": 60}),
            none.clone(),
            "2026-01-01T00:12:00Z",
            vec![],
            vec![],
        ),
        (
            "just in time",
            json!({"startingDeadlineSeconds": 120}),
            none.clone(),
            "2026-01-01T00:11:59Z",
            create(10),
            vec![],
        ),
        ("at rest", json!({"suspend": true}), none.clone(), "2026-01-01T00:10:00Z", vec![], vec![]),
        (
            "long forgotten",
            json!({"schedule": "* * * * *"}),
            none.clone(),
            "2026-01-01T05:00:00Z",
            create(300),
            vec!["TooManyMissedTimes"],
        ),
        (
            "nonsense",
            json!({"schedule": "every day"}),
            none.clone(),
            "2026-01-01T00:10:00Z",
            vec![],
            vec!["UnparseableSchedule"],
        ),
        (
            "never",
            json!({"schedule": "0 0 31 2 *"}),
            none,
            "2026-01-01T00:10:00Z",
            vec![],
            vec!["InvalidSchedule"],
        ),
        (
            "uneven times",
            json!({"schedule": "30 6-16/4 * * 1-5"}),
            last("2026-01-01T06:30:00Z"),
            "2026-01-05T07:00:00Z",
            vec![format!("create c-{}", at("2026-01-05T06:30:00Z").as_second() / 60)],
            vec![],
        ),
    ];
    for (why, spec, status, now, writes, notes) in table {
        let plan = plan(&observed(&spec, &status, &[], now));
        assert_eq!(written(&plan), writes, "{why}");
        assert_eq!(events(&plan), notes, "{why}");
    }
}

#[test]
fn a_job_carries_its_scheduled_time() {
    let mut observed = observed(&json!({}), &json!({}), &[], "2026-01-01T00:10:00Z");
    observed.zone = Ok(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
    let planned = plan(&observed);
    let Write::Create { body, .. } = &planned.steps[0].write else { panic!("a create") };
    let expected = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name(10), "namespace": "n", "labels": {"a": "b"},
            "annotations": {"c": "d", SCHEDULED_TIMESTAMP: "2026-01-01T01:10:00+01:00"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"completions": 1},
    });
    assert_eq!(*body, expected);
    assert_eq!(planned.requeue_after, Some(Duration::from_millis(600_100)));
    observed.zone = Err("Mars/Base".to_owned());
    let lost = plan(&observed);
    assert_eq!((written(&lost), events(&lost)), (vec![], vec!["UnknownTimeZone"]));
}

#[test]
fn concurrency_policies_are_respected() {
    let running = json!({
        "active": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": name(10), "namespace": "n",
            "uid": "j10", "resourceVersion": "2",
        }],
        "lastScheduleTime": "2026-01-01T00:10:00Z",
    });
    let table = [
        ("Allow", vec![format!("create {}", name(20))], vec![]),
        ("Forbid", vec![], vec!["JobAlreadyActive"]),
        ("Replace", vec![format!("delete {}", name(10))], vec![]),
    ];
    for (policy, writes, notes) in table {
        let spec = json!({"concurrencyPolicy": policy});
        let plan = plan(&observed(&spec, &running, &[job_at(10, None)], "2026-01-01T00:20:00Z"));
        assert_eq!(written(&plan), writes, "{policy}");
        assert_eq!(events(&plan), notes, "{policy}");
    }
}

#[test]
fn the_status_follows_the_jobs() {
    let job = |minute| job_at(minute, None);
    let mut by_hand = job_at(15, None);
    by_hand["metadata"]["name"] = json!("c-by-hand");
    let jobs = [job(10), by_hand, job_at(0, Some("Complete"))];
    let gone = json!({"active": [{"name": "c-1", "uid": "gone"}, {"name": name(0), "uid": "j0"}]});
    let plan = plan(&observed(&json!({}), &gone, &jobs, "2026-01-01T00:12:00Z"));
    let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("a merge") };
    let expected = json!({"status": {
        "active": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": name(10), "namespace": "n",
            "uid": "j10", "resourceVersion": "2",
        }],
        "lastScheduleTime": "2026-01-01T00:10:00Z",
        "lastSuccessfulTime": "2026-01-01T00:00:00Z",
    }});
    assert_eq!(*body, expected);
    assert_eq!(written(&plan).len(), 1, "the job of this time is there already");
    let reasons: Vec<&str> = plan.steps[0].success_events.iter().map(|it| &*it.reason).collect();
    assert_eq!(reasons, ["UnexpectedJob", "SawCompletedJob", "MissingJob"], "once it is written");
    assert!(plan.events.is_empty());
}

#[test]
fn finished_jobs_beyond_the_limit_are_deleted() {
    let spec = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
    let jobs =
        [job_at(0, Some("Complete")), job_at(10, Some("Complete")), job_at(20, Some("Failed"))];
    let unnoted = plan(&observed(&spec, &json!({}), &jobs, "2026-01-01T00:21:00Z"));
    assert_eq!(written(&unnoted), ["patch c"]);
    let status = json!({
        "lastScheduleTime": "2026-01-01T00:20:00Z", "lastSuccessfulTime": "2026-01-01T00:10:00Z",
    });
    let noted = plan(&observed(&spec, &status, &jobs, "2026-01-01T00:21:00Z"));
    assert_eq!(written(&noted), [format!("delete {}", name(0)), format!("delete {}", name(20))]);
}

#[test]
fn cron_jobs_converge() {
    let kubelet = kubelet(|_| Some(0));
    let crons = CronJobController::new(TimeZoneDatabase::none());
    let controllers: [&dyn Controller; 4] =
        [&crons, &JobController, &JobFinalizerController, &kubelet];
    let object = |name: &str, policy: &str| -> (Resource, Value) {
        let mut object = cron(&json!({"concurrencyPolicy": policy}), &json!({}));
        object["metadata"] = json!({"name": name, "namespace": "n"});
        object["spec"]["successfulJobsHistoryLimit"] = json!(2);
        object["spec"]["jobTemplate"]["spec"] = json!({
            "completions": 1, "parallelism": 1, "backoffLimit": 6,
            "template": {"spec": {"containers": []}},
        });
        (CronJob::RESOURCE, object)
    };
    let rest: UserAction = Box::new(|server: &mut Server| {
        let key = Key::new("n", "rests");
        server.edit(&CronJob::RESOURCE, &key, |it| it["spec"]["suspend"] = json!(true));
    });
    let bad = (
        CronJob::RESOURCE,
        json!({"metadata": {"name": "bad", "namespace": "n"}, "spec": {"schedule": 7}}),
    );
    let scenario = Scenario {
        controllers: &controllers,
        defaults,
        objects: vec![bad, object("forbids", "Forbid"), object("rests", "Replace")],
        script: vec![rest],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    // The current time differs, so only what does not depend on it is compared.
    let shape = |server: &Server| {
        let jobs = server.list(&Job::RESOURCE);
        let of = |name: &str| {
            jobs.iter().filter(|it| it["metadata"]["ownerReferences"][0]["name"] == name).count()
        };
        let cron = server.get(&CronJob::RESOURCE, &Key::new("n", "forbids")).unwrap();
        json!([of("forbids"), cron["status"]["active"], of("rests")])
    };
    let calm = scenario.run(0, Faults::none()).unwrap();
    assert_eq!(shape(&calm.server), json!([2, null, 0]));
    for seed in 0..12 {
        let ending = scenario.run(seed, Faults::random()).unwrap();
        assert_eq!(shape(&ending.server), json!([2, null, 0]), "seed {seed}");
    }
}

/// One scheduled time comes, and the next is far away, so that there is a final state to compare.
#[test]
fn cron_jobs_survive_a_crash_at_every_step() {
    let kubelet = kubelet(|_| Some(0));
    let crons = CronJobController::new(TimeZoneDatabase::none());
    let controllers: [&dyn Controller; 4] =
        [&crons, &JobController, &JobFinalizerController, &kubelet];
    let object = |name: &str, policy: &str, limit: u32| {
        let mut object = cron(&json!({"concurrencyPolicy": policy}), &json!({}));
        object["metadata"] = json!({"name": name, "namespace": "n"});
        // Runs start at the full hour.
        object["spec"]["schedule"] = json!("10 * * * *");
        object["spec"]["successfulJobsHistoryLimit"] = json!(limit);
        object["spec"]["jobTemplate"]["spec"] = json!({
            "completions": 1, "parallelism": 1, "backoffLimit": 6,
            "template": {"spec": {"containers": []}},
        });
        (CronJob::RESOURCE, object)
    };
    let shape = |server: &Server| {
        let crons = server.list(&CronJob::RESOURCE);
        let crons = crons.iter().filter(|it| !is_faulty(&it["metadata"]["name"]));
        let said = crons.map(|it| {
            let owner = &it["metadata"]["uid"];
            let jobs = server.list(&Job::RESOURCE);
            let own =
                jobs.iter().filter(|it| it["metadata"]["ownerReferences"][0]["uid"] == *owner);
            let status = &it["status"];
            let succeeded = status["lastSuccessfulTime"].is_string();
            json!([own.count(), status["active"], status["lastScheduleTime"], succeeded])
        });
        said.collect::<Value>()
    };
    let scenario = |objects: Vec<(Resource, Value)>| Scenario {
        controllers: &controllers,
        defaults,
        objects,
        script: vec![],
        replicas: 1,
        horizon: Duration::from_secs(900),
        ..Scenario::default()
    };
    let one = scenario(vec![object("once", "Forbid", 1)]);
    let calm = shape(&one.run(1, Faults::none()).unwrap().server);
    assert_eq!(calm, json!([[1, null, "2027-01-15T08:10:00Z", true]]));
    assert_proof(one.prove(1..5, shape));
    let bad = faulty_objects("cron", "/spec/schedule", |name| object(name, "Allow", 1));
    assert_proof(one.prove_isolation(&bad, 0..2, shape));
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let objects = ["a", "b"].map(|name| {
            let policy = ["Allow", "Forbid", "Replace"][rng.usize(..3)];
            let (resource, mut object) = object(name, policy, rng.u32(..2));
            object["spec"]["suspend"] = json!(rng.u32(..4) == 0);
            (resource, object)
        });
        scenario(objects.to_vec())
    };
    assert_proof(prove_worlds(0..8, world, shape));
}
