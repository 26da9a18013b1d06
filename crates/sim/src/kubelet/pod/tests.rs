use serde_json::{Value, json};

use super::super::Profile;
use super::*;
use crate::test_world::{TestPods as _, TestWorld};
use crate::view::{ContainerKey, ProgramState};

mod programs;

fn fast() -> SimulatedPods {
    SimulatedPods::new(Settings::default())
}

fn node() -> Value {
    json!({
        "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"podCIDR": "127.16.0.0/20"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    })
}

fn pod(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "nginx:1"}]},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn test_world<'a>(pods: &'a SimulatedPods, all: &[Value]) -> TestWorld<'a> {
    let mut world = TestWorld::new(&[pods]);
    world.put::<Node>(node());
    for pod in all {
        world.put::<Pod>(pod.clone());
    }
    world
}

/// Type, status and reason of each condition, in order.
fn conditions(status: &Value) -> Vec<String> {
    let all = status["conditions"].as_array().unwrap().iter();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    all.map(|it| format!("{}={} {}", text(&it["type"]), text(&it["status"]), text(&it["reason"])))
        .collect()
}

#[test]
fn a_pod_runs_at_once_on_a_fast_node() {
    let pods = fast();
    let mut world = test_world(&pods, &[pod("p", &json!({}), &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    let status = world.status("p");
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        conditions(&status),
        [
            "PodReadyToStartContainers=True ",
            "Initialized=True ",
            "Ready=True ",
            "ContainersReady=True "
        ]
    );
    let container = &status["containerStatuses"][0];
    assert_eq!(container["state"]["running"]["startedAt"], "2026-01-01T00:00:00Z");
    assert!(container["imageID"].as_str().unwrap().starts_with("nginx@sha256:"), "{container}");
    assert!(container["containerID"].as_str().unwrap().starts_with("gantry://"));
    assert_eq!([&container["ready"], &container["started"]], [&json!(true), &json!(true)]);
    assert_eq!(status["hostIP"], "127.16.0.1");
    assert!(status["podIP"].as_str().unwrap().starts_with("127.16."), "{status}");
    assert_eq!(status["podIPs"][0]["ip"], status["podIP"]);
    assert_eq!(
        world.take_events(),
        [
            "Pulled: Container image \"nginx:1\" already present on machine",
            "Created: Created container: main",
            "Started: Started container main",
        ]
    );
    world.advance_time(3600);
    assert!(world.reconcile(0, &key("p")).is_noop(), "nothing changes by itself");
}

#[test]
fn the_general_profile_delays_stages() {
    let pods = SimulatedPods::new(Settings { profile: Profile::General, ..Settings::default() });
    let spec = json!({"initContainers": [
        {"name": "side", "image": "s", "restartPolicy": "Always"}, {"name": "init", "image": "i"},
    ]});
    let mut world = test_world(&pods, &[pod("p", &spec, &json!({}))]);
    let mut seen = Vec::new();
    for _ in 0..40 {
        world.reconcile_until_stable(0, &key("p"));
        let status = world.status("p");
        if !status.is_null() {
            let of = |list: &str| {
                let all = status[list].as_array().unwrap().iter();
                let state = |it: &Value| it["state"].as_object().unwrap().keys().next().cloned();
                all.map(|it| state(it).unwrap()).collect::<Vec<_>>().join(",")
            };
            let now = format!(
                "{} {} {}",
                status["phase"].as_str().unwrap(),
                of("initContainerStatuses"),
                of("containerStatuses")
            );
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        world.advance_time(1);
    }
    assert_eq!(
        seen,
        [
            "Pending waiting,waiting waiting",
            "Pending running,waiting waiting",
            "Pending running,running waiting",
            "Pending running,terminated waiting",
            "Running running,terminated running",
        ]
    );
    assert!(world.pod("p").is_ready());
}

#[test]
fn conditions_say_what_is_missing() {
    let pods = fast();
    let gate = json!({"readinessGates": [{"conditionType": "example.com/ok"}]});
    let slow = json!({"pod-ready.stage.kwok.x-k8s.io/delay": "10s"});
    let all = [
        pod("gated", &gate, &json!({})),
        pod("unready", &json!({}), &json!({"gantry.dev/sim-never-ready": "true"})),
        pod("slow", &json!({}), &slow),
        pod(
            "init",
            &json!({"initContainers": [{"name": "i"}]}),
            &json!({
            "pod-init-container-completed.stage.kwok.x-k8s.io/delay": "10s"}),
        ),
    ];
    let mut world = test_world(&pods, &all);
    let table = [
        ("gated", "Running", "Ready=False ReadinessGatesNotReady", "ContainersReady=True "),
        (
            "unready",
            "Running",
            "Ready=False ContainersNotReady",
            "ContainersReady=False ContainersNotReady",
        ),
        ("slow", "Pending", "Initialized=True ", "Ready=False ContainersNotReady"),
        (
            "init",
            "Pending",
            "Initialized=False ContainersNotInitialized",
            "Ready=False ContainersNotReady",
        ),
    ];
    for (name, phase, one, other) in table {
        world.reconcile_until_stable(0, &key(name));
        let status = world.status(name);
        assert_eq!(status["phase"], phase, "{name}");
        let conditions = conditions(&status);
        assert!(conditions.iter().any(|it| it == one), "{name}: {conditions:?}");
        assert!(conditions.iter().any(|it| it == other), "{name}: {conditions:?}");
    }
    // Another controller fulfils the gate, and keeps its condition.
    world.edit::<Pod>(&key("gated"), |it| {
        let condition = json!({"type": "example.com/ok", "status": "True"});
        it["status"]["conditions"].as_array_mut().unwrap().push(condition);
    });
    world.reconcile_until_stable(0, &key("gated"));
    assert!(world.pod("gated").is_ready());
    assert_eq!(world.status("gated")["conditions"].as_array().unwrap().len(), 5);
    let plan = world.reconcile(0, &key("slow"));
    assert_eq!(plan.requeue_after.unwrap().as_secs(), 10);
    world.advance_time(10);
    world.reconcile_until_stable(0, &key("slow"));
    assert!(world.pod("slow").is_ready());
}

#[test]
fn failed_containers_restart_with_backoff() {
    let pods = fast();
    let annotations = json!({"gantry.dev/sim-crash-after": "1s", "gantry.dev/sim-exit-code": "3"});
    let mut world = test_world(&pods, &[pod("p", &json!({}), &annotations)]);
    let key = key("p");
    let mut starts = Vec::new();
    let mut restarts = -1;
    for second in 0..800 {
        world.reconcile_until_stable(0, &key);
        let container = world.pod("p").status.container_statuses[0].clone();
        if container.restart_count != restarts {
            restarts = container.restart_count;
            starts.push(second);
        }
        let waits = container.state.waiting.is_some();
        assert_eq!(world.status("p")["phase"], "Running", "it is being restarted");
        if waits {
            let message = &container.state.waiting.unwrap().message;
            assert!(message.contains("restarting failed container=main pod=p_default(uid-p)"));
            assert_eq!(container.last_state.terminated.unwrap().exit_code, 3);
        }
        world.advance_time(1);
    }
    let waits: Vec<i64> = starts.windows(2).map(|it| it[1] - it[0] - 1).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300]);
    let events = world.take_events();
    let back_off = "BackOff: Back-off restarting failed container main in pod p_default(uid-p)";
    assert_eq!(events.iter().filter(|it| *it == back_off).count(), 7);
}

#[test]
fn pods_end_by_their_policy() {
    let pods = fast();
    let table = [
        // policy, codes by run, phase, restarts, code of the last run
        ("Never", "0", "Succeeded", 0, 0),
        ("Never", "7", "Failed", 0, 7),
        ("OnFailure", "0", "Succeeded", 0, 0),
        ("OnFailure", "1,1,0", "Succeeded", 2, 0),
        ("Always", "0", "Running", 3, 0),
    ];
    for (policy, codes, phase, restarts, code) in table {
        let annotations =
            json!({"gantry.dev/sim-run-for": "5s", "gantry.dev/sim-exit-code": codes});
        let spec = json!({"restartPolicy": policy});
        let mut world = test_world(&pods, &[pod("p", &spec, &annotations)]);
        for _ in 0..60 {
            world.reconcile_until_stable(0, &key("p"));
            world.advance_time(1);
        }
        let status = world.status("p");
        assert_eq!(status["phase"], phase, "{policy} {codes}");
        let container = &status["containerStatuses"][0];
        assert!(container["restartCount"].as_i64().unwrap() >= restarts, "{policy}: {status}");
        if phase != "Running" {
            assert_eq!(container["restartCount"], restarts, "{policy} {codes}");
            assert_eq!(container["state"]["terminated"]["exitCode"], code, "{policy} {codes}");
            assert_eq!(container["ready"], false);
        }
        if phase == "Succeeded" {
            assert_eq!(
                conditions(&status),
                [
                    "PodReadyToStartContainers=False ",
                    "Initialized=True PodCompleted",
                    "Ready=False PodCompleted",
                    "ContainersReady=False PodCompleted",
                ]
            );
        }
    }
}

#[test]
fn job_pods_run_and_complete() {
    let pods = fast();
    let mut job = pod("p", &json!({"restartPolicy": "Never"}), &json!({}));
    job["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let mut world = test_world(&pods, &[job]);
    world.reconcile(0, &key("p"));
    assert_eq!(world.status("p")["phase"], "Running");
    world.reconcile_until_stable(0, &key("p"));
    assert_eq!(world.status("p")["phase"], "Succeeded");
    // A finished pod is left alone, whatever its annotations.
    world.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-exit-code"] = json!("1");
    });
    assert!(world.reconcile(0, &key("p")).is_noop());
}

#[test]
fn a_failed_init_container_fails_the_pod_or_restarts() {
    let own = Settings { programs: Arc::new(["prog".to_owned()].into()), ..Settings::default() };
    let pods = SimulatedPods::new(own);
    let table = [("Never", "Failed"), ("Always", "Pending")];
    for (policy, phase) in table {
        let spec =
            json!({"restartPolicy": policy, "initContainers": [{"name": "i", "image": "prog"}]});
        let mut world = test_world(&pods, &[pod("p", &spec, &json!({}))]);
        world.reconcile_until_stable(0, &key("p"));
        let uid = world.pod("p").metadata.uid.clone();
        let exited = ProgramState::Exited { code: 9, at: world.now, message: String::new() };
        let program = Program { uid, run: 0, state: exited, failed_hook: None };
        world.world.facts().record(ContainerKey::new(&key("p"), "i"), program, world.now);
        world.reconcile_until_stable(0, &key("p"));
        let status = world.status("p");
        assert_eq!(status["phase"], phase, "{policy}");
        let restarts = &status["initContainerStatuses"][0]["restartCount"];
        assert_eq!(*restarts, i64::from(policy == "Always"), "{policy}");
    }
}

#[test]
fn image_pull_errors_are_reported() {
    let pods = fast();
    let annotations = json!({"gantry.dev/sim-image-pull-error": "no such tag"});
    let mut world = test_world(&pods, &[pod("p", &json!({}), &annotations)]);
    world.reconcile_until_stable(0, &key("p"));
    let waiting = |world: &TestWorld<'_>| {
        world.status("p")["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    assert_eq!(waiting(&world), "ErrImagePull");
    world.advance_time(10);
    world.reconcile_until_stable(0, &key("p"));
    assert_eq!(waiting(&world), "ImagePullBackOff");
    assert_eq!(world.status("p")["phase"], "Pending");
    assert_eq!(
        world.take_events(),
        [
            "Pulling: Pulling image \"nginx:1\"",
            "Failed: Failed to pull image \"nginx:1\": no such tag",
            "Failed: Error: ErrImagePull",
            "BackOff: Back-off pulling image \"nginx:1\"",
            "Failed: Error: ImagePullBackOff",
        ]
    );
    world.edit::<Pod>(&key("p"), |it| it["metadata"]["annotations"] = json!({}));
    world.reconcile_until_stable(0, &key("p"));
    assert!(world.pod("p").is_ready(), "the image is there now");
}

#[test]
fn pods_past_their_deadline_fail() {
    let pods = fast();
    let mut world =
        test_world(&pods, &[pod("p", &json!({"activeDeadlineSeconds": 30}), &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    let plan = world.reconcile(0, &key("p"));
    assert_eq!(plan.requeue_after.unwrap().as_secs(), 30);
    world.advance_time(30);
    world.reconcile_until_stable(0, &key("p"));
    let status = world.status("p");
    assert_eq!([&status["phase"], &status["reason"]], ["Failed", "DeadlineExceeded"]);
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
}

#[test]
fn nodes_reject_what_does_not_fit() {
    let pods = fast();
    let asks =
        |cpu: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    let all = [
        pod("first", &asks("3"), &json!({})),
        pod("second", &asks("2"), &json!({})),
        pod("choosy", &json!({"nodeSelector": {"zone": "a"}}), &json!({})),
        pod("small", &asks("1"), &json!({})),
    ];
    let mut world = test_world(&pods, &all);
    let table = [
        ("first", "Running", "", ""),
        (
            "second",
            "Failed",
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
        ),
        (
            "choosy",
            "Failed",
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        ("small", "Running", "", ""),
    ];
    for (name, phase, reason, message) in table {
        world.reconcile_until_stable(0, &key(name));
        let pod = world.pod(name);
        assert_eq!(pod.status.phase.as_str(), phase, "{name}");
        assert_eq!((&*pod.status.reason, &*pod.status.message), (reason, message), "{name}");
    }
}

#[test]
fn deleted_pods_terminate() {
    let going = |grace: i64, finalizers: &[&str], spec: &Value| {
        let mut pod = pod("p", spec, &json!({}));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod["metadata"]["finalizers"] = json!(finalizers);
        pod
    };
    let never = json!({"restartPolicy": "Never"});
    let always = json!({});
    let table = [
        // grace, finalizers, spec, profile, seconds until it is gone or its end is reported
        (30, &[][..], &always, Profile::General, 1, "gone"),
        (0, &[][..], &always, Profile::General, 0, "gone"),
        (30, &[][..], &always, Profile::Fast, 0, "gone"),
        (30, &["x"][..], &never, Profile::Fast, 0, "Failed"),
        (30, &[][..], &never, Profile::General, 1, "gone"),
    ];
    for (grace, finalizers, spec, profile, seconds, end) in table {
        let why = format!("{grace} {finalizers:?} {spec} {profile:?}");
        let pods = SimulatedPods::new(Settings { profile, ..Settings::default() });
        let mut world = test_world(&pods, &[going(grace, finalizers, spec)]);
        while !world.pod("p").is_ready() {
            world.reconcile_until_stable(0, &key("p"));
            world.advance_time(1);
        }
        world.take_events();
        let until = world.now + SignedDuration::from_secs(grace);
        world.edit::<Pod>(&key("p"), |it| {
            it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        });
        for _ in 0..seconds {
            assert!(world.reconcile_until_stable(0, &key("p")).requeue_after.is_some(), "{why}");
            assert!(world.pod("p").is_ready(), "{why}: too early");
            world.advance_time(1);
        }
        world.reconcile_until_stable(0, &key("p"));
        match end {
            "gone" => assert!(world.object::<Pod>(&key("p")).is_none(), "{why}"),
            phase => {
                assert_eq!(world.status("p")["phase"], phase, "{why}");
                assert_eq!(world.pod("p").metadata.deletion_grace_period_seconds, Some(0), "{why}");
            }
        }
        assert!(
            world.take_events().contains(&"Killing: Stopping container main".to_owned()),
            "{why}"
        );
    }
}

#[test]
fn nothing_happens_without_power() {
    let pods = fast();
    let mut world = test_world(&pods, &[pod("p", &json!({}), &json!({}))]);
    world.edit::<Node>(&Key::cluster("n1"), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-node"] = json!("down");
    });
    assert!(world.reconcile(0, &key("p")).is_noop());
    world.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2025-12-31T00:00:00Z");
    });
    assert!(world.reconcile(0, &key("p")).is_noop(), "nothing is there to stop it");
}

#[test]
fn pod_addresses_are_unique() {
    let pods = fast();
    let many: Vec<Value> = (0..200)
        .map(|n| {
            let mut pod = pod(&format!("p{n}"), &json!({}), &json!({}));
            pod["metadata"]["uid"] = json!(format!("u{n}"));
            pod
        })
        .collect();
    let mut world = TestWorld::new(&[&pods]);
    let mut wide = node();
    wide["spec"]["podCIDR"] = json!("127.16.0.0/24");
    wide["status"]["allocatable"]["pods"] = json!("300");
    world.put::<Node>(wide);
    for pod in &many {
        world.put::<Pod>(pod.clone());
    }
    // All plans are made from the same world, as when they are made at the same time.
    let plans: Vec<Plan> =
        (0..200).map(|n| pods.plan(&world.world, &key(&format!("p{n}")), world.now)).collect();
    let mut addresses = std::collections::BTreeSet::new();
    for plan in &plans {
        let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
        addresses.insert(body["status"]["podIP"].as_str().unwrap().to_owned());
    }
    assert_eq!(addresses.len(), 200);
    assert!(!addresses.contains("127.16.0.1"), "that is the node's own");
    // One after the other gives the same.
    for n in 0..200 {
        world.reconcile_until_stable(0, &key(&format!("p{n}")));
        let address = world.status(&format!("p{n}"))["podIP"].as_str().unwrap().to_owned();
        assert!(addresses.remove(&address), "{address}");
    }
    let host = json!({"hostNetwork": true});
    world.put::<Pod>(pod("host", &host, &json!({})));
    world.reconcile_until_stable(0, &key("host"));
    assert_eq!(world.status("host")["podIP"], "127.16.0.1");
}

#[test]
fn unreadable_annotations_are_held() {
    let pods = fast();
    let annotations = json!({"gantry.dev/sim-run-for": "soon"});
    let mut world = test_world(&pods, &[pod("p", &json!({}), &annotations)]);
    let plan = world.reconcile_until_stable(0, &key("p"));
    assert_eq!(plan.held[0].reason, "UnreadableAnnotation");
    assert!(world.pod("p").is_ready(), "it runs all the same");
}
