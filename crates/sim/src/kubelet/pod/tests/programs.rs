//! Containers that are programs, and what their pods wait for.

use bytes::Bytes;
use gantry_reconcile::Uid;

use super::*;
use crate::view::{FailedHook, Hook, ProbeKey, ProbeKind, ProbeVerdict, SourceKey, SourceKind};

fn own() -> Pods {
    Pods::new(Settings {
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

fn uid(stand: &Stand<'_>) -> Uid {
    stand.pod("p").metadata.uid.clone()
}

fn tell(stand: &mut Stand<'_>, run: i64, state: ProgramState, failed_hook: Option<FailedHook>) {
    let program = Program { uid: uid(stand), run, state, failed_hook };
    stand.world.facts().record(ContainerKey::new(&key("p"), "e"), program, stand.now);
    stand.settle(0, &key("p"));
}

fn exited(stand: &Stand<'_>, code: i64, message: &str) -> ProgramState {
    ProgramState::Exited { code, at: stand.now, message: message.to_owned() }
}

fn probe(
    stand: &mut Stand<'_>,
    run: i64,
    probe: ProbeKind,
    verdict: ProbeVerdict,
    failure: Option<&str>,
) {
    let container = ContainerKey::new(&key("p"), "e");
    let failure = failure.map(str::to_owned);
    let result = ProbeResult { uid: uid(stand), run, verdict, failure, in_a_row: 1 };
    stand.world.facts().record(ProbeKey { container, probe }, result, stand.now);
    stand.settle(0, &key("p"));
}

/// Whether the container is started and ready, and whether its pod is.
fn health(stand: &Stand<'_>) -> [bool; 3] {
    let container = &stand.status("p")["containerStatuses"][0];
    let is = |field: &str| container[field].as_bool().unwrap();
    [is("started"), is("ready"), stand.pod("p").is_ready()]
}

#[test]
fn programs_decide_about_their_containers() {
    let pods = own();
    let mut stand = stand(&pods, &[program("Never", &json!({}))]);
    stand.settle(0, &key("p"));
    assert_eq!(stand.status("p")["phase"], "Running");
    assert!(!stand.pod("p").is_ready(), "nobody listens yet");
    let ready = |ready| ProgramState::Running { ready };
    // Readiness comes, goes and comes again.
    for is_ready in [true, false, true] {
        tell(&mut stand, 0, ready(is_ready), None);
        assert_eq!(health(&stand), [true, is_ready, is_ready]);
    }
    let other = exited(&stand, 1, "");
    tell(&mut stand, 1, other, None);
    assert_eq!(stand.status("p")["phase"], "Running", "another run is no news of this one");
    let end = exited(&stand, 4, "I am done");
    tell(&mut stand, 0, end, None);
    let status = stand.status("p");
    assert_eq!(status["phase"], "Failed");
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!([&ended["exitCode"], &ended["message"]], [&json!(4), &json!("I am done")]);
}

#[test]
fn probes_decide_about_their_containers() {
    use ProbeKind::{Liveness, Readiness, Startup};
    use ProbeVerdict::{Failing, Passing, Undecided};
    let pods = own();
    let ask = json!({"httpGet": {"path": "/healthz", "port": 8080}});
    let probes = json!({"startupProbe": ask, "readinessProbe": ask, "livenessProbe": ask});
    let mut stand = stand(&pods, &[program("Always", &probes)]);
    stand.settle(0, &key("p"));
    tell(&mut stand, 0, ProgramState::Running { ready: true }, None);
    assert_eq!(health(&stand), [false, false, false], "nothing was asked yet");
    probe(&mut stand, 0, Startup, Undecided, Some("refused"));
    assert_eq!(health(&stand), [false, false, false]);
    probe(&mut stand, 0, Startup, Passing, None);
    assert_eq!(health(&stand), [true, false, false]);
    probe(&mut stand, 0, Readiness, Passing, None);
    assert_eq!(health(&stand), [true, true, true]);
    stand.told();
    probe(&mut stand, 0, Readiness, Failing, Some("HTTP probe failed with statuscode: 503"));
    assert_eq!(health(&stand), [true, false, false]);
    let told = stand.told();
    let words = "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503";
    assert!(told.contains(&words.to_owned()), "{told:?}");
    probe(&mut stand, 0, Readiness, Passing, None);
    probe(&mut stand, 1, Readiness, Failing, Some("another run"));
    probe(&mut stand, 0, Readiness, Passing, None);
    assert_eq!(health(&stand), [true, true, true]);

    // What is not alive is ended by the runner, and then started again.
    probe(&mut stand, 0, Liveness, Failing, Some("context deadline exceeded"));
    assert_eq!(stand.status("p")["containerStatuses"][0]["restartCount"], 0, "it still runs");
    stand.told();
    let end = exited(&stand, 143, "");
    tell(&mut stand, 0, end, None);
    let status = stand.status("p");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 143);
    assert_eq!(health(&stand), [false, false, false], "a new run is asked anew");
    let killing = "Killing: Container e failed liveness probe, will be restarted".to_owned();
    assert_eq!(stand.told().iter().filter(|it| **it == killing).count(), 1);
}

#[test]
fn probes_that_cannot_be_asked_are_held() {
    let pods = own();
    let table = [
        (json!({"grpc": {"port": 1}}), "grpc is not simulated"),
        (json!({"httpGet": {"port": 80, "host": "192.0.2.7"}}), "\"192.0.2.7\" is not reached"),
        (json!({"httpGet": {"port": 80, "host": "localhost"}}), "\"localhost\" is not reached"),
        (json!({"tcpSocket": {"port": 80, "host": "127.0.0.1"}}), "\"127.0.0.1\" is not reached"),
        (json!({"httpGet": {"port": "web"}}), "no port of container e"),
        (json!({"httpGet": {"port": 0}}), "write 1 to 65535"),
        (json!({"httpGet": {"port": 80, "scheme": "HTTPS"}}), "HTTPS\" is not simulated"),
    ];
    for (probe, words) in table {
        let mut stand = stand(&pods, &[program("Always", &json!({"readinessProbe": probe}))]);
        stand.settle(0, &key("p"));
        let plan = stand.turn(0, &key("p"));
        let held: Vec<_> = plan.held.iter().filter(|it| it.reason == "UnsupportedProbe").collect();
        assert!(held.len() == 1 && held[0].message.contains(words), "{words}: {held:?}");
    }
    // Containers that are only simulated are as ready as ever.
    let simulated = json!({"containers": [{"name": "e", "image": "i", "readinessProbe": {"grpc": {"port": 1}}}]});
    let mut stand = stand(&pods, &[pod("p", &simulated, &json!({}))]);
    stand.settle(0, &key("p"));
    assert!(stand.pod("p").is_ready());
    assert!(stand.turn(0, &key("p")).held.is_empty());
}

#[test]
fn hooks_that_fail_are_told_once() {
    let pods = own();
    let mut stand = stand(&pods, &[program("Always", &json!({}))]);
    stand.settle(0, &key("p"));
    let failed = |hook| Some(FailedHook { hook, message: "no".to_owned() });
    tell(&mut stand, 0, ProgramState::Running { ready: true }, failed(Hook::PostStart));
    stand.told();
    let end = exited(&stand, 137, "");
    tell(&mut stand, 0, end, failed(Hook::PostStart));
    let told = stand.told();
    assert_eq!(
        told[..2],
        ["FailedPostStartHook: PostStartHook failed: no", "Killing: FailedPostStartHook"]
    );
    let until = stand.now + SignedDuration::from_secs(30);
    stand.edit::<Pod>(&key("p"), |it| {
        it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    let end = exited(&stand, 0, "");
    tell(&mut stand, 1, end, failed(Hook::PreStop));
    let told = stand.told();
    assert!(told.contains(&"FailedPreStopHook: PreStopHook failed: no".to_owned()), "{told:?}");
    assert!(stand.object::<Pod>(&key("p")).is_none());
}

/// With and without a program: what a pod names must be there before it starts.
#[test]
fn pods_wait_for_what_they_name() {
    let pods = own();
    let known = |stand: &Stand<'_>, kind, name: &str, data: &[(&str, &str)]| {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        let object = SourceObject::Present(Arc::new(data.collect()));
        stand.world.facts().record(SourceKey { kind, namespace, name }, object, stand.now);
    };
    let absent = |stand: &Stand<'_>, kind, name: &str| {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let key = SourceKey { kind, namespace, name };
        stand.world.facts().record(key, SourceObject::Absent, stand.now);
    };
    for image in ["gantry.dev/echo", "nginx:1"] {
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let spec = json!({
            "containers": [{"name": "e", "image": image, "env": env}],
            "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}],
        });
        let mut stand = stand(&pods, &[pod("p", &spec, &json!({}))]);
        let waiting = |stand: &Stand<'_>| {
            stand.status("p")["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
        };
        let settle = |stand: &mut Stand<'_>| {
            stand.told();
            stand.settle(0, &key("p"));
            (waiting(stand), stand.told())
        };
        let (state, told) = settle(&mut stand);
        assert_eq!((state, told.len()), (json!("ContainerCreating"), 0), "nothing is known yet");
        absent(&stand, SourceKind::ConfigMap, "c");
        absent(&stand, SourceKind::Secret, "s");
        let (state, told) = settle(&mut stand);
        assert_eq!(state, "ContainerCreating");
        let mount = "FailedMount: MountVolume.SetUp failed for volume \"v\" : ";
        assert_eq!(told, [format!("{mount}configmap \"c\" not found")]);
        assert_eq!(stand.turn(0, &key("p")).held[0].reason, "FailedMount");
        known(&stand, SourceKind::ConfigMap, "c", &[]);
        let (_, told) = settle(&mut stand);
        let lacking = "configmap references non-existent config key: k";
        assert_eq!(told, [format!("{mount}{lacking}")]);
        known(&stand, SourceKind::ConfigMap, "c", &[("k", "v")]);
        let (state, told) = settle(&mut stand);
        assert_eq!(state, "CreateContainerConfigError");
        assert!(told.contains(&"Failed: Error: secret \"s\" not found".to_owned()), "{told:?}");
        known(&stand, SourceKind::Secret, "s", &[]);
        let (_, told) = settle(&mut stand);
        let words = "Failed: Error: couldn't find key k in Secret default/s".to_owned();
        assert!(told.contains(&words), "{told:?}");
        assert_eq!(stand.status("p")["phase"], "Pending");
        known(&stand, SourceKind::Secret, "s", &[("k", "v")]);
        settle(&mut stand);
        assert_eq!(stand.status("p")["phase"], "Running", "{image} goes on by itself");
    }
}

#[test]
fn a_run_is_killed_by_its_count() {
    let pods = own();
    let wish = json!({"gantry.dev/sim-kill": "0"});
    let mut stand = stand(&pods, &[pod("p", &json!({}), &json!({}))]);
    stand.settle(0, &key("p"));
    stand.edit::<Pod>(&key("p"), |it| it["metadata"]["annotations"] = wish);
    stand.settle(0, &key("p"));
    let container = &stand.status("p")["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1, "the run after it is left alone");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 137);
}
