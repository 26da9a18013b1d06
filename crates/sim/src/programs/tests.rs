use std::sync::Mutex;

use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{OnLoss, TaskMetrics};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kubelet::{Settings, SimulatedPods};
use crate::test_world::{TestPods as _, TestWorld};
use crate::view::{
    ContainerKey, DevicePluginKey, FailedHook, Hook, Node, Pod, ProbeKey, ProbeKind, ProbeResult,
    ProbeVerdict, Program, ProgramState, RegisteredDevices,
};

/// Stores what is recorded for the test.
#[derive(Default)]
struct FakeRecorder {
    programs: Mutex<Vec<Program>>,
    forgotten: Mutex<Vec<ContainerKey>>,
    probes: Mutex<Vec<(ProbeKey, ProbeResult)>>,
    log_lines: Mutex<Vec<String>>,
    kernels: Mutex<Vec<(String, Option<KernelState>)>>,
    devices: Mutex<Vec<(DevicePluginKey, Option<RegisteredDevices>)>>,
    notify: Notify,
}

impl ProgramRecorder for FakeRecorder {
    fn record(&self, _: ContainerKey, program: Program) {
        self.programs.lock().unwrap().push(program);
        self.notify.notify_one();
    }
    fn forget(&self, container: &ContainerKey) {
        self.forgotten.lock().unwrap().push(container.clone());
        self.notify.notify_one();
    }
    fn record_probe(&self, probe: ProbeKey, result: ProbeResult) {
        self.probes.lock().unwrap().push((probe, result));
        self.notify.notify_one();
    }
    fn record_kernel(&self, node: &str, state: Option<KernelState>) {
        self.kernels.lock().unwrap().push((node.to_owned(), state));
        self.notify.notify_one();
    }
    fn record_devices(&self, key: DevicePluginKey, devices: Option<RegisteredDevices>) {
        self.devices.lock().unwrap().push((key, devices));
        self.notify.notify_one();
    }
    fn run_started(&self, _: &str, container: &str, _: Timestamp) {
        self.log_lines.lock().unwrap().push(format!("{container} begins"));
    }
    fn append_log(&self, _: &str, _: &str, _: Timestamp, text: &str) {
        self.log_lines.lock().unwrap().push(text.to_owned());
        self.notify.notify_one();
    }
    fn run_ended(&self, _: &str, container: &str) {
        self.log_lines.lock().unwrap().push(format!("{container} ends"));
        self.notify.notify_one();
    }
}

impl FakeRecorder {
    fn first(&self) -> Option<Program> {
        let mut programs = self.programs.lock().unwrap();
        if programs.is_empty() { None } else { Some(programs.remove(0)) }
    }

    async fn until(&self, good: impl Fn(&Self) -> bool) {
        while !good(self) {
            self.notify.notified().await;
        }
    }

    /// Returns the next recorded state of a program.
    async fn next(&self) -> Program {
        loop {
            if let Some(program) = self.first() {
                return program;
            }
            self.notify.notified().await;
        }
    }
}

fn key() -> Key {
    Key::new("default", "p")
}

async fn get(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Mark: 7\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_str(body).unwrap()
}

/// The kubelet starts a container, its program listens on the pod's address and responds; when the
/// pod is deleted, the program stops first.
#[tokio::test]
async fn a_program_lives_as_long_as_its_container() {
    let registry = ProgramRegistry::built_in();
    let settings = Settings { programs: Arc::new(registry.images()), ..Settings::default() };
    let (observer, runner) = programs(registry, settings.clone());
    let pods = SimulatedPods::new(settings);
    let mut test_world = TestWorld::with_observers(&[&pods], &[&observer]);
    test_world.put::<Node>(json!({
        "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"podCIDR": "127.200.16.0/20"},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }));
    test_world.put::<Pod>(json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{
            "name": "echo", "image": "gantry.dev/echo:1", "ports": [{"containerPort": 18080}],
        }]},
    }));
    let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
    let facts = Arc::new(FakeRecorder::default());
    let (own, recorder) = (tasks.child(), Arc::clone(&facts) as Arc<dyn ProgramRecorder>);
    let world = Arc::new(test_world.world.clone());
    tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
        runner.run(own, world, ProgramHost::new(recorder)).await;
        Ok(())
    });

    test_world.reconcile_until_stable(0, &key());
    assert!(!test_world.pod("p").is_ready());
    let program = facts.next().await;
    assert_eq!((program.run, &program.state), (0, &ProgramState::Running { ready: true }));
    test_world.world.facts().record(ContainerKey::new(&key(), "echo"), program, test_world.now);
    test_world.reconcile_until_stable(0, &key());
    assert!(test_world.pod("p").is_ready());
    let address = test_world.status("p")["podIP"].as_str().unwrap().to_owned();
    let answer = get(&format!("{address}:18080"), "/a?b=c").await;
    assert_eq!([&answer["pod"], &answer["method"], &answer["path"]], ["p", "GET", "/a?b=c"]);
    assert_eq!(answer["headers"]["x-mark"], "7");

    // The node is powered off, and on again.
    let power = |test_world: &mut TestWorld<'_>, value: Value| {
        test_world.edit::<Node>(&Key::cluster("n1"), |it| {
            it["metadata"]["annotations"]["gantry.dev/sim-node"] = value;
        });
    };
    power(&mut test_world, json!("down"));
    facts.until(|it| !it.forgotten.lock().unwrap().is_empty()).await;
    facts.until(|it| it.log_lines.lock().unwrap().iter().any(|it| it == "echo ends")).await;
    TcpStream::connect(format!("{address}:18080")).await.unwrap_err();
    assert!(
        !facts.log_lines.lock().unwrap().contains(&"stopped".to_owned()),
        "it got no stop signal"
    );
    power(&mut test_world, json!(""));
    assert_eq!(facts.next().await.state, ProgramState::Running { ready: true });
    get(&format!("{address}:18080"), "/").await;

    // The pod is deleted: the kubelet waits for the program, and the program ends.
    let until = test_world.now + jiff::SignedDuration::from_secs(30);
    test_world.edit::<Pod>(&key(), |it| {
        it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    assert!(test_world.reconcile(0, &key()).steps.is_empty(), "it still runs");
    let program = facts.next().await;
    assert!(matches!(program.state, ProgramState::Exited { code: 0, .. }), "{program:?}");
    test_world.world.facts().record(ContainerKey::new(&key(), "echo"), program, test_world.now);
    test_world.reconcile_until_stable(0, &key());
    assert!(test_world.object::<Pod>(&key()).is_none());
    facts.until(|it| it.forgotten.lock().unwrap().len() == 2).await;
    assert_eq!(facts.forgotten.lock().unwrap()[1], ContainerKey::new(&key(), "echo"));
    let said = facts.log_lines.lock().unwrap().join("\n");
    let listening = format!("echo begins\nlistening on {address}:18080");
    let expected =
        format!("{listening}\nGET /a\necho ends\n{listening}\nGET /\nstopped\necho ends");
    assert_eq!(said, expected);

    stop.cancel();
    tasks.join().await.unwrap();
}

/// A program that cannot listen exits with a code, and reports why.
#[tokio::test]
async fn a_program_that_cannot_listen_ends() {
    let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
    let stop = CancellationToken::new();
    let table =
        [("PORT", "many", 2, "cannot listen on port \"many\""), ("X", "", 1, "could not listen")];
    for (name, value, code, words) in table {
        let rng = fastrand::Rng::with_seed(1);
        let tasks = Tasks::new(Clock::system(), counters.clone(), rng, &stop);
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        // No address of this machine.
        let context = ProgramContext {
            environment: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            set_ready: Box::new(|_| panic!("it is not")),
            log: Box::new(move |text| heard.lock().unwrap().push_str(text)),
            ..ProgramContext::minimal(key(), "c", Ipv4Addr::new(192, 0, 2, 1))
        };
        assert_eq!(Echo.run(context, tasks).await, code);
        assert!(said.lock().unwrap().contains(words), "{said:?}");
    }
}

#[test]
fn image_tags_are_ignored() {
    let table = [
        ("gantry.dev/echo", "gantry.dev/echo"),
        ("gantry.dev/echo:v1", "gantry.dev/echo"),
        ("gantry.dev/echo@sha256:00", "gantry.dev/echo"),
        ("host:5000/echo", "host:5000/echo"),
        ("host:5000/echo:1", "host:5000/echo"),
    ];
    for (image, expected) in table {
        assert_eq!(repository(image), expected);
    }
}

/// A pod with one container on a node, and the runner of its program.
struct RunningPod {
    test_world: TestWorld<'static>,
    facts: Arc<FakeRecorder>,
    tasks: Tasks,
    stop: CancellationToken,
    folder: tempfile::TempDir,
}

impl RunningPod {
    fn start(registry: ProgramRegistry, address: &str, container: &Value) -> Self {
        let settings = Settings { programs: Arc::new(registry.images()), ..Settings::default() };
        let (observer, runner) = programs(registry, settings.clone());
        let pods: &'static SimulatedPods = Box::leak(Box::new(SimulatedPods::new(settings)));
        let observer: &'static ProgramObserver = Box::leak(Box::new(observer));
        let mut test_world = TestWorld::with_observers(&[pods], &[observer]);
        test_world.put::<Node>(json!({
            "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"podCIDR": address},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        }));
        test_world.put::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [container], "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "about", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]}},
            ]},
        }));
        let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
        let facts = Arc::new(FakeRecorder::default());
        let folder = tempfile::tempdir().unwrap();
        let directory = Some(folder.path().join("pods"));
        let program_host = ProgramHost {
            directory,
            ..ProgramHost::new(Arc::clone(&facts) as Arc<dyn ProgramRecorder>)
        };
        let (own, world) = (tasks.child(), Arc::new(test_world.world.clone()));
        tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
            runner.run(own, world, program_host).await;
            Ok(())
        });
        test_world.reconcile_until_stable(0, &key());
        Self { test_world, facts, tasks, stop, folder }
    }

    fn delete(&mut self, seconds: i64) {
        let until = self.test_world.now + jiff::SignedDuration::from_secs(seconds);
        self.test_world.edit::<Pod>(&key(), |it| {
            it["metadata"]["deletionTimestamp"] = json!(until.to_string());
            it["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        });
    }

    async fn wait_for_line(&self, line: &str) {
        self.facts.until(|it| it.log_lines.lock().unwrap().iter().any(|it| it == line)).await;
    }

    /// Returns how the program exited.
    async fn exit(&self) -> (i64, String, Option<FailedHook>) {
        loop {
            let Program { state, failed_hook, .. } = self.facts.next().await;
            if let ProgramState::Exited { code, message, .. } = state {
                return (code, message, failed_hook);
            }
        }
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join().await.unwrap();
        let left = std::fs::read_dir(self.folder.path().join("pods")).unwrap().count();
        assert_eq!(left, 0, "files of the pod are left");
    }
}

/// Ignores the stop signal.
#[derive(Debug)]
struct IgnoresStop;

impl Binary for IgnoresStop {
    fn run(&self, context: ProgramContext, _: Tasks) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        (context.set_ready)(true);
        Box::pin(async move {
            let _kept = context;
            std::future::pending().await
        })
    }
}

/// A separate process: its environment, its directory, its output, and its exit.
#[tokio::test]
async fn a_program_may_be_a_process() {
    let child = ChildProcess::new(
        "/bin/sh",
        &["-c", "echo $A $1 $(pwd); echo $$; while :; do :; done", "sh"],
    );
    let registry = ProgramRegistry::default().with("test/child", child);
    let container = json!({
        "name": "c", "image": "test/child", "env": [{"name": "A", "value": "one"}], "args": ["$(A)s"],
    });
    let mut running = RunningPod::start(registry, "127.201.16.0/20", &container);
    let directory = running.folder.path().join("pods/uid-p");
    running.wait_for_line(&format!("one ones {}", directory.display())).await;
    running.delete(30);
    assert_eq!(running.exit().await, (143, String::new(), None), "it got a stop signal");
    running.end().await;
}

#[tokio::test]
async fn a_process_that_cannot_be_started_says_so() {
    let registry = ProgramRegistry::default().with("test/none", ChildProcess::new("/no/such", &[]));
    let container = json!({"name": "c", "image": "test/none"});
    let running = RunningPod::start(registry, "127.202.16.0/20", &container);
    let (code, message, _) = running.exit().await;
    assert!(code == 127 && message.starts_with("could not start /no/such: "), "{code} {message}");
    running.end().await;
}

/// A program that does not stop is killed: after the grace period, immediately when there is none,
/// or when this process ends. The `preStop` hook runs first, and its failure is recorded.
#[tokio::test]
async fn a_program_that_does_not_stop_is_killed() {
    let container =
        |more: &Value| json!({"name": "c", "image": "test/stubborn", "lifecycle": more});
    let registry = || ProgramRegistry::default().with("test/stubborn", IgnoresStop);
    let fails = json!({"preStop": {"exec": {"command": ["sh", "-c", "echo no; false"]}}});
    let mut running = RunningPod::start(registry(), "127.203.16.0/20", &container(&fails));
    assert_eq!(running.facts.next().await.state, ProgramState::Running { ready: true });
    running.delete(1);
    let (code, _, hook) = running.exit().await;
    assert_eq!(
        (code, hook.map(|it| (it.hook, it.message))),
        (137, Some((Hook::PreStop, "no".to_owned())))
    );
    running.end().await;

    let mut running = RunningPod::start(registry(), "127.204.16.0/20", &container(&json!({})));
    running.facts.next().await;
    running.delete(0);
    assert_eq!(running.exit().await.0, 137);
    running.end().await;

    let running = RunningPod::start(registry(), "127.205.16.0/20", &container(&json!({})));
    running.facts.next().await;
    running.end().await;
}

/// The annotation kills the run it names, without a signal to the program.
#[tokio::test]
async fn a_run_may_be_killed_without_notice() {
    let container =
        json!({"name": "c", "image": "gantry.dev/echo", "ports": [{"containerPort": 18090}]});
    let mut running = RunningPod::start(ProgramRegistry::built_in(), "127.206.16.0/20", &container);
    assert_eq!(running.facts.next().await.state, ProgramState::Running { ready: true });
    running.test_world.edit::<Pod>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-kill"] = json!("0");
    });
    assert_eq!(running.exit().await.0, 137);
    assert!(!running.facts.log_lines.lock().unwrap().contains(&"stopped".to_owned()));
    running.end().await;
}

/// Probes are sent to the program itself; its responses show the files of its volumes.
#[tokio::test]
async fn a_program_is_probed() {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 18091}, "periodSeconds": 1});
    let liveness = json!({"tcpSocket": {"port": 18091}, "periodSeconds": 1});
    let container = json!({
        "name": "c", "image": "gantry.dev/echo", "ports": [{"containerPort": 18091}],
        "env": [{"name": "ECHO_ALLOW", "value": "file"}],
        "volumeMounts": [
            {"name": "about", "mountPath": "/about"},
            {"name": "about", "mountPath": "/one", "subPath": "name"},
        ],
        "startupProbe": probe("/file?path=/about/name"),
        "readinessProbe": probe("/file?path=/nowhere"),
        "livenessProbe": liveness,
    });
    let running = RunningPod::start(ProgramRegistry::built_in(), "127.207.16.0/20", &container);
    let verdict = |it: &FakeRecorder, kind: ProbeKind| {
        let probes = it.probes.lock().unwrap();
        let last = probes.iter().rev().find(|(key, _)| key.probe == kind);
        last.map(|(_, result)| (result.verdict, result.failure.clone()))
    };
    running
        .facts
        .until(|it| verdict(it, ProbeKind::Liveness) == Some((ProbeVerdict::Passing, None)))
        .await;
    assert_eq!(verdict(&running.facts, ProbeKind::Startup), Some((ProbeVerdict::Passing, None)));
    let words = Some("HTTP probe failed with statuscode: 404".to_owned());
    running
        .facts
        .until(|it| {
            verdict(it, ProbeKind::Readiness) == Some((ProbeVerdict::Failing, words.clone()))
        })
        .await;
    let address = running.test_world.status("p")["podIP"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(format!("{address}:18091")).await.unwrap();
    let request = "GET /file?path=/one HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\np"), "{answer}");
    running.end().await;
}

mod device_plugins;
mod driver_containers;
