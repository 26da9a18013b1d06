//! Containers that are programs, and the dependencies of their pods.

use bytes::Bytes;
use gantry_reconcile::Uid;

use super::*;
use crate::view::{FailedHook, Hook, ProbeKey, ProbeKind, ProbeVerdict, SourceKey, SourceKind};

fn with_programs() -> SimulatedPods {
    SimulatedPods::new(Settings {
        programs: Arc::new(["gantry.dev/echo".to_owned()].into()),
        sources: SourcePolicy::Read,
        ..Settings::default()
    })
}

fn container(more: &Value) -> Value {
    let mut container = json!({"name": "e", "image": "gantry.dev/echo"});
    for (field, value) in more.as_object().unwrap() {
        container[field] = value.clone();
    }
    container
}

fn program(policy: &str, more: &Value) -> Value {
    pod("p", &json!({"restartPolicy": policy, "containers": [container(more)]}), &json!({}))
}

fn uid(world: &TestWorld<'_>) -> Uid {
    world.pod("p").metadata.uid.clone()
}

fn record_program(
    world: &mut TestWorld<'_>,
    run: i64,
    state: ProgramState,
    failed_hook: Option<FailedHook>,
) {
    let program = Program { uid: uid(world), run, state, failed_hook };
    world.world.facts().record(ContainerKey::new(&key("p"), "e"), program, world.now);
    world.reconcile_until_stable(0, &key("p"));
}

fn exited(world: &TestWorld<'_>, code: i64, message: &str) -> ProgramState {
    ProgramState::Exited { code, at: world.now, message: message.to_owned() }
}

fn record_probe(
    world: &mut TestWorld<'_>,
    run: i64,
    probe: ProbeKind,
    verdict: ProbeVerdict,
    failure: Option<&str>,
) {
    let container = ContainerKey::new(&key("p"), "e");
    let failure = failure.map(str::to_owned);
    let result = ProbeResult { uid: uid(world), run, verdict, failure, consecutive: 1 };
    world.world.facts().record(ProbeKey { container, probe }, result, world.now);
    world.reconcile_until_stable(0, &key("p"));
}

/// Returns whether the container is started and ready, and whether its pod is.
fn health(world: &TestWorld<'_>) -> [bool; 3] {
    let container = &world.status("p")["containerStatuses"][0];
    let is = |field: &str| container[field].as_bool().unwrap();
    [is("started"), is("ready"), world.pod("p").is_ready()]
}

#[test]
fn programs_decide_about_their_containers() {
    let pods = with_programs();
    let mut world = test_world(&pods, &[program("Never", &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    assert_eq!(world.status("p")["phase"], "Running");
    assert!(!world.pod("p").is_ready(), "nothing listens yet");
    let ready = |ready| ProgramState::Running { ready };
    // The container becomes ready, unready and ready again.
    for is_ready in [true, false, true] {
        record_program(&mut world, 0, ready(is_ready), None);
        assert_eq!(health(&world), [true, is_ready, is_ready]);
    }
    let other = exited(&world, 1, "");
    record_program(&mut world, 1, other, None);
    assert_eq!(world.status("p")["phase"], "Running", "another run is no news of this one");
    let end = exited(&world, 4, "I am done");
    record_program(&mut world, 0, end, None);
    let status = world.status("p");
    assert_eq!(status["phase"], "Failed");
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!([&ended["exitCode"], &ended["message"]], [&json!(4), &json!("I am done")]);
}

#[test]
fn probes_decide_about_their_containers() {
    use ProbeKind::{Liveness, Readiness, Startup};
    use ProbeVerdict::{Failing, Passing, Undecided};
    let pods = with_programs();
    let ask = json!({"httpGet": {"path": "/healthz", "port": 8080}});
    let probes = json!({"startupProbe": ask, "readinessProbe": ask, "livenessProbe": ask});
    let mut world = test_world(&pods, &[program("Always", &probes)]);
    world.reconcile_until_stable(0, &key("p"));
    record_program(&mut world, 0, ProgramState::Running { ready: true }, None);
    assert_eq!(health(&world), [false, false, false], "nothing was probed yet");
    record_probe(&mut world, 0, Startup, Undecided, Some("refused"));
    assert_eq!(health(&world), [false, false, false]);
    record_probe(&mut world, 0, Startup, Passing, None);
    assert_eq!(health(&world), [true, false, false]);
    record_probe(&mut world, 0, Readiness, Passing, None);
    assert_eq!(health(&world), [true, true, true]);
    world.take_events();
    record_probe(&mut world, 0, Readiness, Failing, Some("HTTP probe failed with statuscode: 503"));
    assert_eq!(health(&world), [true, false, false]);
    let events = world.take_events();
    let words = "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503";
    assert!(events.contains(&words.to_owned()), "{events:?}");
    record_probe(&mut world, 0, Readiness, Passing, None);
    record_probe(&mut world, 1, Readiness, Failing, Some("another run"));
    record_probe(&mut world, 0, Readiness, Passing, None);
    assert_eq!(health(&world), [true, true, true]);

    // A container whose liveness probe fails is stopped by the runner, and then restarted.
    record_probe(&mut world, 0, Liveness, Failing, Some("context deadline exceeded"));
    assert_eq!(world.status("p")["containerStatuses"][0]["restartCount"], 0, "it still runs");
    world.take_events();
    let end = exited(&world, 143, "");
    record_program(&mut world, 0, end, None);
    let status = world.status("p");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 143);
    assert_eq!(health(&world), [false, false, false], "a new run is probed again");
    let killing = "Killing: Container e failed liveness probe, will be restarted".to_owned();
    assert_eq!(world.take_events().iter().filter(|it| **it == killing).count(), 1);
}

#[test]
fn unsupported_probes_are_held() {
    let pods = with_programs();
    let table = [
        (json!({"grpc": {"port": 1}}), "grpc is not simulated"),
        (
            json!({"httpGet": {"port": 80, "host": "192.0.2.7"}}),
            "\"192.0.2.7\": simulated nodes reach only",
        ),
        (
            json!({"httpGet": {"port": 80, "host": "localhost"}}),
            "\"localhost\": simulated nodes reach only",
        ),
        (
            json!({"tcpSocket": {"port": 80, "host": "127.0.0.1"}}),
            "\"127.0.0.1\": simulated nodes reach only",
        ),
        (json!({"httpGet": {"port": "web"}}), "not a port of container e"),
        (json!({"httpGet": {"port": 0}}), "write 1 to 65535"),
        (json!({"httpGet": {"port": 80, "scheme": "HTTPS"}}), "HTTPS\" is not simulated"),
    ];
    for (probe, words) in table {
        let mut world = test_world(&pods, &[program("Always", &json!({"readinessProbe": probe}))]);
        world.reconcile_until_stable(0, &key("p"));
        let plan = world.reconcile(0, &key("p"));
        let held: Vec<_> = plan.held.iter().filter(|it| it.reason == "UnsupportedProbe").collect();
        assert!(held.len() == 1 && held[0].message.contains(words), "{words}: {held:?}");
        let events = world.take_events();
        let events: Vec<_> =
            events.iter().filter(|it| it.starts_with("UnsupportedProbe: ")).collect();
        assert!(
            events.len() == 1 && events[0].contains(words),
            "{words} is an event, once: {events:?}"
        );
    }
    // The probes of containers without a program are not run: they are ready.
    let simulated = json!({"containers": [{"name": "e", "image": "i", "readinessProbe": {"grpc": {"port": 1}}}]});
    let mut world = test_world(&pods, &[pod("p", &simulated, &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    assert!(world.pod("p").is_ready());
    assert!(world.reconcile(0, &key("p")).held.is_empty());
}

#[test]
fn failed_hooks_are_reported_once() {
    let pods = with_programs();
    let mut world = test_world(&pods, &[program("Always", &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    let failed = |hook| Some(FailedHook { hook, message: "no".to_owned() });
    record_program(&mut world, 0, ProgramState::Running { ready: true }, failed(Hook::PostStart));
    world.take_events();
    let end = exited(&world, 137, "");
    record_program(&mut world, 0, end, failed(Hook::PostStart));
    let events = world.take_events();
    assert_eq!(
        events[..2],
        ["FailedPostStartHook: PostStartHook failed: no", "Killing: FailedPostStartHook"]
    );
    let until = world.now + SignedDuration::from_secs(30);
    world.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    let end = exited(&world, 0, "");
    record_program(&mut world, 1, end, failed(Hook::PreStop));
    let events = world.take_events();
    assert!(events.contains(&"FailedPreStopHook: PreStopHook failed: no".to_owned()), "{events:?}");
    assert!(world.object::<Pod>(&key("p")).is_none());
}

#[test]
fn ignored_annotations_are_held() {
    let pods = with_programs();
    let both = json!({"containers": [container(&json!({})), {"name": "x", "image": "nginx:1"}]});
    let alone = json!({"containers": [container(&json!({}))]});
    let table = [
        ("gantry.dev/sim-run-for", "30s", &alone, 1),
        ("gantry.dev/sim-crash-after", "30s", &alone, 1),
        ("gantry.dev/sim-exit-code", "3", &alone, 1),
        ("gantry.dev/sim-never-ready", "true", &alone, 0),
        ("gantry.dev/sim-run-for", "30s", &both, 0),
    ];
    for (name, value, spec, count) in table {
        let mut pod = pod("p", spec, &json!({}));
        pod["metadata"]["annotations"][name] = json!(value);
        let mut world = test_world(&pods, &[pod]);
        world.reconcile_until_stable(0, &key("p"));
        let events = world.take_events();
        let events: Vec<_> =
            events.iter().filter(|it| it.starts_with("IgnoredAnnotation")).collect();
        assert_eq!(events.len(), count, "{name}: {events:?}");
        assert!(events.iter().all(|it| it.contains(name)), "{events:?}");
        let plan = world.reconcile(0, &key("p"));
        let held = plan.held.iter().filter(|it| it.reason == "IgnoredAnnotation").count();
        assert_eq!(held, count, "{name}");
    }
}

/// With and without a program: the objects a pod references must exist before it starts.
#[test]
fn pods_wait_for_config_maps_and_secrets() {
    let pods = with_programs();
    let known = |world: &TestWorld<'_>, kind, name: &str, data: &[(&str, &str)]| {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        let object = SourceObject::Present(Arc::new(data.collect()));
        world.world.facts().record(SourceKey { kind, namespace, name }, object, world.now);
    };
    let absent = |world: &TestWorld<'_>, kind, name: &str| {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let key = SourceKey { kind, namespace, name };
        world.world.facts().record(key, SourceObject::Absent, world.now);
    };
    for image in ["gantry.dev/echo", "nginx:1"] {
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let spec = json!({
            "containers": [{"name": "e", "image": image, "env": env}],
            "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}],
        });
        let mut world = test_world(&pods, &[pod("p", &spec, &json!({}))]);
        let waiting = |world: &TestWorld<'_>| {
            world.status("p")["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
        };
        let settle = |world: &mut TestWorld<'_>| {
            world.take_events();
            world.reconcile_until_stable(0, &key("p"));
            (waiting(world), world.take_events())
        };
        let (state, events) = settle(&mut world);
        assert_eq!((state, events.len()), (json!("ContainerCreating"), 0), "nothing is known yet");
        absent(&world, SourceKind::ConfigMap, "c");
        absent(&world, SourceKind::Secret, "s");
        let (state, events) = settle(&mut world);
        assert_eq!(state, "ContainerCreating");
        let mount = "FailedMount: MountVolume.SetUp failed for volume \"v\" : ";
        assert_eq!(events, [format!("{mount}configmap \"c\" not found")]);
        let sandbox = |world: &TestWorld<'_>| {
            let status = world.status("p");
            let ready = status["conditions"].as_array().unwrap().iter();
            let ready = ready.clone().find(|it| it["type"] == "PodReadyToStartContainers").unwrap();
            (status["podIP"].is_string(), ready["status"].clone())
        };
        assert_eq!(sandbox(&world), (false, json!("False")), "there is no sandbox yet");
        assert_eq!(world.reconcile(0, &key("p")).held[0].reason, "FailedMount");
        known(&world, SourceKind::ConfigMap, "c", &[]);
        let (_, events) = settle(&mut world);
        let lacking = "configmap references non-existent config key: k";
        assert_eq!(events, [format!("{mount}{lacking}")]);
        known(&world, SourceKind::ConfigMap, "c", &[("k", "v")]);
        let (state, events) = settle(&mut world);
        assert_eq!(state, "CreateContainerConfigError");
        assert_eq!(sandbox(&world), (true, json!("True")));
        assert!(events.contains(&"Failed: Error: secret \"s\" not found".to_owned()), "{events:?}");
        known(&world, SourceKind::Secret, "s", &[]);
        let (_, events) = settle(&mut world);
        let words = "Failed: Error: couldn't find key k in Secret default/s".to_owned();
        assert!(events.contains(&words), "{events:?}");
        assert_eq!(world.status("p")["phase"], "Pending");
        known(&world, SourceKind::Secret, "s", &[("k", "v")]);
        settle(&mut world);
        assert_eq!(world.status("p")["phase"], "Running", "{image} goes on by itself");
    }
}

#[test]
fn a_run_is_killed_by_its_count() {
    let pods = with_programs();
    let annotations = json!({"gantry.dev/sim-kill": "0"});
    let mut world = test_world(&pods, &[pod("p", &json!({}), &json!({}))]);
    world.reconcile_until_stable(0, &key("p"));
    world.edit::<Pod>(&key("p"), |it| it["metadata"]["annotations"] = annotations);
    world.reconcile_until_stable(0, &key("p"));
    let container = &world.status("p")["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1, "the run after it is left alone");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 137);
}
