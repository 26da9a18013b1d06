use serde_json::{Value, json};

use super::super::Profile;
use super::*;
use crate::stand::Stand;
use crate::view::{ContainerKey, ProgramState};

mod programs;

fn fast() -> Pods {
    Pods::new(Settings::default())
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

fn stand<'a>(pods: &'a Pods, all: &[Value]) -> Stand<'a> {
    let mut stand = Stand::new(&[pods]);
    stand.put::<Node>(node());
    for pod in all {
        stand.put::<Pod>(pod.clone());
    }
    stand
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
    let mut stand = stand(&pods, &[pod("p", &json!({}), &json!({}))]);
    stand.settle(0, &key("p"));
    let status = stand.status("p");
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
        stand.told(),
        [
            "Pulled: Container image \"nginx:1\" already present on machine",
            "Created: Created container: main",
            "Started: Started container main",
        ]
    );
    stand.pass(3600);
    assert!(stand.turn(0, &key("p")).is_quiet(), "nothing changes by itself");
}

#[test]
fn a_general_node_takes_its_time() {
    let pods = Pods::new(Settings { profile: Profile::General, ..Settings::default() });
    let spec = json!({"initContainers": [
        {"name": "side", "image": "s", "restartPolicy": "Always"}, {"name": "init", "image": "i"},
    ]});
    let mut stand = stand(&pods, &[pod("p", &spec, &json!({}))]);
    let mut seen = Vec::new();
    for _ in 0..40 {
        stand.settle(0, &key("p"));
        let status = stand.status("p");
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
        stand.pass(1);
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
    assert!(stand.pod("p").is_ready());
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
    let mut stand = stand(&pods, &all);
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
        stand.settle(0, &key(name));
        let status = stand.status(name);
        assert_eq!(status["phase"], phase, "{name}");
        let conditions = conditions(&status);
        assert!(conditions.iter().any(|it| it == one), "{name}: {conditions:?}");
        assert!(conditions.iter().any(|it| it == other), "{name}: {conditions:?}");
    }
    // Somebody else fulfils the gate; the condition stays theirs.
    stand.edit::<Pod>(&key("gated"), |it| {
        let condition = json!({"type": "example.com/ok", "status": "True"});
        it["status"]["conditions"].as_array_mut().unwrap().push(condition);
    });
    stand.settle(0, &key("gated"));
    assert!(stand.pod("gated").is_ready());
    assert_eq!(stand.status("gated")["conditions"].as_array().unwrap().len(), 5);
    let plan = stand.turn(0, &key("slow"));
    assert_eq!(plan.look_again.unwrap().as_secs(), 10);
    stand.pass(10);
    stand.settle(0, &key("slow"));
    assert!(stand.pod("slow").is_ready());
}

#[test]
fn what_fails_is_started_again_later_and_later() {
    let pods = fast();
    let wish = json!({"gantry.dev/sim-crash-after": "1s", "gantry.dev/sim-exit-code": "3"});
    let mut stand = stand(&pods, &[pod("p", &json!({}), &wish)]);
    let key = key("p");
    let mut starts = Vec::new();
    let mut restarts = -1;
    for second in 0..800 {
        stand.settle(0, &key);
        let container = stand.pod("p").status.container_statuses[0].clone();
        if container.restart_count != restarts {
            restarts = container.restart_count;
            starts.push(second);
        }
        let waits = container.state.waiting.is_some();
        assert_eq!(stand.status("p")["phase"], "Running", "it is being restarted");
        if waits {
            let message = &container.state.waiting.unwrap().message;
            assert!(message.contains("restarting failed container=main pod=p_default(uid-p)"));
            assert_eq!(container.last_state.terminated.unwrap().exit_code, 3);
        }
        stand.pass(1);
    }
    let waits: Vec<i64> = starts.windows(2).map(|it| it[1] - it[0] - 1).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300]);
    let told = stand.told();
    let back_off = "BackOff: Back-off restarting failed container main in pod p_default(uid-p)";
    assert_eq!(told.iter().filter(|it| *it == back_off).count(), 7);
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
        let wish = json!({"gantry.dev/sim-run-for": "5s", "gantry.dev/sim-exit-code": codes});
        let spec = json!({"restartPolicy": policy});
        let mut stand = stand(&pods, &[pod("p", &spec, &wish)]);
        for _ in 0..60 {
            stand.settle(0, &key("p"));
            stand.pass(1);
        }
        let status = stand.status("p");
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
fn pods_of_jobs_are_seen_running_and_end() {
    let pods = fast();
    let mut job = pod("p", &json!({"restartPolicy": "Never"}), &json!({}));
    job["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let mut stand = stand(&pods, &[job]);
    stand.turn(0, &key("p"));
    assert_eq!(stand.status("p")["phase"], "Running");
    stand.settle(0, &key("p"));
    assert_eq!(stand.status("p")["phase"], "Succeeded");
    // A pod that has ended is left alone, whatever is said about it.
    stand.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-exit-code"] = json!("1");
    });
    assert!(stand.turn(0, &key("p")).is_quiet());
}

#[test]
fn a_failed_init_container_ends_the_pod_or_is_tried_again() {
    let own = Settings { programs: Arc::new(["prog".to_owned()].into()), ..Settings::default() };
    let pods = Pods::new(own);
    let table = [("Never", "Failed"), ("Always", "Pending")];
    for (policy, phase) in table {
        let spec =
            json!({"restartPolicy": policy, "initContainers": [{"name": "i", "image": "prog"}]});
        let mut stand = stand(&pods, &[pod("p", &spec, &json!({}))]);
        stand.settle(0, &key("p"));
        let uid = stand.pod("p").metadata.uid.clone();
        let exited = ProgramState::Exited { code: 9, at: stand.now, message: String::new() };
        let program = Program { uid, run: 0, state: exited, failed_hook: None };
        stand.world.facts().record(ContainerKey::new(&key("p"), "i"), program, stand.now);
        stand.settle(0, &key("p"));
        let status = stand.status("p");
        assert_eq!(status["phase"], phase, "{policy}");
        let restarts = &status["initContainerStatuses"][0]["restartCount"];
        assert_eq!(*restarts, i64::from(policy == "Always"), "{policy}");
    }
}

#[test]
fn images_that_cannot_be_pulled() {
    let pods = fast();
    let wish = json!({"gantry.dev/sim-image-pull-error": "no such tag"});
    let mut stand = stand(&pods, &[pod("p", &json!({}), &wish)]);
    stand.settle(0, &key("p"));
    let waiting = |stand: &Stand<'_>| {
        stand.status("p")["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    assert_eq!(waiting(&stand), "ErrImagePull");
    stand.pass(10);
    stand.settle(0, &key("p"));
    assert_eq!(waiting(&stand), "ImagePullBackOff");
    assert_eq!(stand.status("p")["phase"], "Pending");
    assert_eq!(
        stand.told(),
        [
            "Pulling: Pulling image \"nginx:1\"",
            "Failed: Failed to pull image \"nginx:1\": no such tag",
            "Failed: Error: ErrImagePull",
            "BackOff: Back-off pulling image \"nginx:1\"",
            "Failed: Error: ImagePullBackOff",
        ]
    );
    stand.edit::<Pod>(&key("p"), |it| it["metadata"]["annotations"] = json!({}));
    stand.settle(0, &key("p"));
    assert!(stand.pod("p").is_ready(), "the image is there now");
}

#[test]
fn pods_that_run_too_long_fail() {
    let pods = fast();
    let mut stand = stand(&pods, &[pod("p", &json!({"activeDeadlineSeconds": 30}), &json!({}))]);
    stand.settle(0, &key("p"));
    let plan = stand.turn(0, &key("p"));
    assert_eq!(plan.look_again.unwrap().as_secs(), 30);
    stand.pass(30);
    stand.settle(0, &key("p"));
    let status = stand.status("p");
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
    let mut stand = stand(&pods, &all);
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
        stand.settle(0, &key(name));
        let pod = stand.pod(name);
        assert_eq!(pod.status.phase.as_str(), phase, "{name}");
        assert_eq!((&*pod.status.reason, &*pod.status.message), (reason, message), "{name}");
    }
}

#[test]
fn pods_leave_when_asked() {
    let going = |grace: i64, finalizers: &[&str], spec: &Value| {
        let mut pod = pod("p", spec, &json!({}));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod["metadata"]["finalizers"] = json!(finalizers);
        pod
    };
    let never = json!({"restartPolicy": "Never"});
    let always = json!({});
    let table = [
        // grace, finalizers, spec, profile, seconds until it is gone or its end is shown
        (30, &[][..], &always, Profile::General, 1, "gone"),
        (0, &[][..], &always, Profile::General, 0, "gone"),
        (30, &[][..], &always, Profile::Fast, 0, "gone"),
        (30, &["x"][..], &never, Profile::Fast, 0, "Failed"),
        (30, &[][..], &never, Profile::General, 1, "gone"),
    ];
    for (grace, finalizers, spec, profile, seconds, end) in table {
        let why = format!("{grace} {finalizers:?} {spec} {profile:?}");
        let pods = Pods::new(Settings { profile, ..Settings::default() });
        let mut stand = stand(&pods, &[going(grace, finalizers, spec)]);
        while !stand.pod("p").is_ready() {
            stand.settle(0, &key("p"));
            stand.pass(1);
        }
        stand.told();
        let until = stand.now + SignedDuration::from_secs(grace);
        stand.edit::<Pod>(&key("p"), |it| {
            it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        });
        for _ in 0..seconds {
            assert!(stand.settle(0, &key("p")).look_again.is_some(), "{why}");
            assert!(stand.pod("p").is_ready(), "{why}: too early");
            stand.pass(1);
        }
        stand.settle(0, &key("p"));
        match end {
            "gone" => assert!(stand.object::<Pod>(&key("p")).is_none(), "{why}"),
            phase => {
                assert_eq!(stand.status("p")["phase"], phase, "{why}");
                assert_eq!(stand.pod("p").metadata.deletion_grace_period_seconds, Some(0), "{why}");
            }
        }
        assert!(stand.told().contains(&"Killing: Stopping container main".to_owned()), "{why}");
    }
}

#[test]
fn nothing_happens_without_power() {
    let pods = fast();
    let mut stand = stand(&pods, &[pod("p", &json!({}), &json!({}))]);
    stand.edit::<Node>(&Key::cluster("n1"), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-node"] = json!("down");
    });
    assert!(stand.turn(0, &key("p")).is_quiet());
    stand.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2025-12-31T00:00:00Z");
    });
    assert!(stand.turn(0, &key("p")).is_quiet(), "nobody is there to end it");
}

#[test]
fn addresses_differ_whoever_is_first() {
    let pods = fast();
    let many: Vec<Value> = (0..200)
        .map(|n| {
            let mut pod = pod(&format!("p{n}"), &json!({}), &json!({}));
            pod["metadata"]["uid"] = json!(format!("u{n}"));
            pod
        })
        .collect();
    let mut stand = Stand::new(&[&pods]);
    let mut wide = node();
    wide["spec"]["podCIDR"] = json!("127.16.0.0/24");
    wide["status"]["allocatable"]["pods"] = json!("300");
    stand.put::<Node>(wide);
    for pod in &many {
        stand.put::<Pod>(pod.clone());
    }
    // All plans are made from the same world, as when they are made at the same time.
    let plans: Vec<Plan> =
        (0..200).map(|n| pods.plan(&stand.world, &key(&format!("p{n}")), stand.now)).collect();
    let mut addresses = std::collections::BTreeSet::new();
    for plan in &plans {
        let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
        addresses.insert(body["status"]["podIP"].as_str().unwrap().to_owned());
    }
    assert_eq!(addresses.len(), 200);
    assert!(!addresses.contains("127.16.0.1"), "that is the node's own");
    // One after the other gives the same.
    for n in 0..200 {
        stand.settle(0, &key(&format!("p{n}")));
        let address = stand.status(&format!("p{n}"))["podIP"].as_str().unwrap().to_owned();
        assert!(addresses.remove(&address), "{address}");
    }
    let host = json!({"hostNetwork": true});
    stand.put::<Pod>(pod("host", &host, &json!({})));
    stand.settle(0, &key("host"));
    assert_eq!(stand.status("host")["podIP"], "127.16.0.1");
}

#[test]
fn annotations_that_cannot_be_read_are_held() {
    let pods = fast();
    let wish = json!({"gantry.dev/sim-run-for": "soon"});
    let mut stand = stand(&pods, &[pod("p", &json!({}), &wish)]);
    let plan = stand.settle(0, &key("p"));
    assert_eq!(plan.held[0].reason, "UnreadableAnnotation");
    assert!(stand.pod("p").is_ready(), "it runs all the same");
}
