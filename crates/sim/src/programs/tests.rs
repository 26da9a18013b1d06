use std::sync::Mutex;

use gantry_process::clock::Clock;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::tasks::{Counters, OnLoss};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kubelet::{Pods, Settings};
use crate::stand::Stand;
use crate::view::{
    ContainerKey, FailedHook, Hook, Node, Pod, ProbeKey, ProbeKind, ProbeResult, ProbeVerdict,
    Program, ProgramState,
};

/// Keeps what it is told until somebody asks.
#[derive(Default)]
struct Noted {
    programs: Mutex<Vec<Program>>,
    forgotten: Mutex<Vec<ContainerKey>>,
    probes: Mutex<Vec<(ProbeKey, ProbeResult)>>,
    said: Mutex<Vec<String>>,
    news: Notify,
}

impl Facts for Noted {
    fn record(&self, _: ContainerKey, program: Program) {
        self.programs.lock().unwrap().push(program);
        self.news.notify_one();
    }
    fn forget(&self, container: &ContainerKey) {
        self.forgotten.lock().unwrap().push(container.clone());
        self.news.notify_one();
    }
    fn record_probe(&self, probe: ProbeKey, result: ProbeResult) {
        self.probes.lock().unwrap().push((probe, result));
        self.news.notify_one();
    }
    fn begins(&self, _: &str, container: &str, _: Timestamp) {
        self.said.lock().unwrap().push(format!("{container} begins"));
    }
    fn says(&self, _: &str, _: &str, _: Timestamp, text: &str) {
        self.said.lock().unwrap().push(text.to_owned());
        self.news.notify_one();
    }
    fn ends(&self, _: &str, container: &str) {
        self.said.lock().unwrap().push(format!("{container} ends"));
        self.news.notify_one();
    }
}

impl Noted {
    fn first(&self) -> Option<Program> {
        let mut programs = self.programs.lock().unwrap();
        if programs.is_empty() { None } else { Some(programs.remove(0)) }
    }

    async fn until(&self, good: impl Fn(&Self) -> bool) {
        while !good(self) {
            self.news.notified().await;
        }
    }

    /// The next thing a program was told to have done.
    async fn next(&self) -> Program {
        loop {
            if let Some(program) = self.first() {
                return program;
            }
            self.news.notified().await;
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

/// The kubelet starts a container, its program listens on the pod's address and answers; when the
/// pod is to go, the program stops first.
#[tokio::test]
async fn a_program_lives_as_long_as_its_container() {
    let registry = Registry::own();
    let settings = Settings { programs: Arc::new(registry.images()), ..Settings::default() };
    let (observer, runner) = programs(registry, settings.clone());
    let pods = Pods::new(settings);
    let mut stand = Stand::observed(&[&pods], &[&observer]);
    stand.put::<Node>(json!({
        "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"podCIDR": "127.200.16.0/20"},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }));
    stand.put::<Pod>(json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{
            "name": "echo", "image": "gantry.dev/echo:1", "ports": [{"containerPort": 18080}],
        }]},
    }));
    let counters = Counters::register(&Metrics::new(&Build::default())).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
    let facts = Arc::new(Noted::default());
    let (own, told) = (tasks.child(), Arc::clone(&facts) as Arc<dyn Facts>);
    let world = Arc::new(stand.world.clone());
    tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
        runner.run(own, world, Site::new(told)).await;
        Ok(())
    });

    stand.settle(0, &key());
    assert!(!stand.pod("p").is_ready());
    let program = facts.next().await;
    assert_eq!((program.run, &program.state), (0, &ProgramState::Running { ready: true }));
    stand.world.facts().record(ContainerKey::new(&key(), "echo"), program, stand.now);
    stand.settle(0, &key());
    assert!(stand.pod("p").is_ready());
    let address = stand.status("p")["podIP"].as_str().unwrap().to_owned();
    let answer = get(&format!("{address}:18080"), "/a?b=c").await;
    assert_eq!([&answer["pod"], &answer["method"], &answer["path"]], ["p", "GET", "/a?b=c"]);
    assert_eq!(answer["headers"]["x-mark"], "7");

    // The node loses its power, and has it again.
    let power = |stand: &mut Stand<'_>, value: Value| {
        stand.edit::<Node>(&Key::cluster("n1"), |it| {
            it["metadata"]["annotations"]["gantry.dev/sim-node"] = value;
        });
    };
    power(&mut stand, json!("down"));
    facts.until(|it| !it.forgotten.lock().unwrap().is_empty()).await;
    facts.until(|it| it.said.lock().unwrap().iter().any(|it| it == "echo ends")).await;
    TcpStream::connect(format!("{address}:18080")).await.unwrap_err();
    assert!(!facts.said.lock().unwrap().contains(&"stopped".to_owned()), "it was not told");
    power(&mut stand, json!(""));
    assert_eq!(facts.next().await.state, ProgramState::Running { ready: true });
    get(&format!("{address}:18080"), "/").await;

    // The pod is to go: the kubelet waits for the program, and the program ends.
    let until = stand.now + jiff::SignedDuration::from_secs(30);
    stand.edit::<Pod>(&key(), |it| {
        it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    assert!(stand.turn(0, &key()).steps.is_empty(), "it still runs");
    let program = facts.next().await;
    assert!(matches!(program.state, ProgramState::Exited { code: 0, .. }), "{program:?}");
    stand.world.facts().record(ContainerKey::new(&key(), "echo"), program, stand.now);
    stand.settle(0, &key());
    assert!(stand.object::<Pod>(&key()).is_none());
    facts.until(|it| it.forgotten.lock().unwrap().len() == 2).await;
    assert_eq!(facts.forgotten.lock().unwrap()[1], ContainerKey::new(&key(), "echo"));
    let said = facts.said.lock().unwrap().join("\n");
    let listening = format!("echo begins\nlistening on {address}:18080");
    let expected =
        format!("{listening}\nGET /a\necho ends\n{listening}\nGET /\nstopped\necho ends");
    assert_eq!(said, expected);

    stop.cancel();
    tasks.join().await.unwrap();
}

/// A program that cannot do its work ends with a code, and says why.
#[tokio::test]
async fn a_program_that_cannot_listen_ends() {
    let counters = Counters::register(&Metrics::new(&Build::default())).unwrap();
    let stop = CancellationToken::new();
    let table =
        [("PORT", "many", 2, "cannot listen on port \"many\""), ("X", "", 1, "could not listen")];
    for (name, value, code, words) in table {
        let rng = fastrand::Rng::with_seed(1);
        let tasks = Tasks::new(Clock::system(), counters.clone(), rng, &stop);
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        // No address of this machine.
        let setting = Setting {
            environment: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            set_ready: Box::new(|_| panic!("it is not")),
            say: Box::new(move |text| heard.lock().unwrap().push_str(text)),
            ..Setting::bare(key(), "c", Ipv4Addr::new(192, 0, 2, 1))
        };
        assert_eq!(Echo.run(setting, tasks).await, code);
        assert!(said.lock().unwrap().contains(words), "{said:?}");
    }
}

#[test]
fn tags_do_not_matter() {
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

/// A pod with one container on a node, and what runs its program.
struct Running {
    stand: Stand<'static>,
    facts: Arc<Noted>,
    tasks: Tasks,
    stop: CancellationToken,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(registry: Registry, address: &str, container: &Value) -> Self {
        let settings = Settings { programs: Arc::new(registry.images()), ..Settings::default() };
        let (observer, runner) = programs(registry, settings.clone());
        let pods: &'static Pods = Box::leak(Box::new(Pods::new(settings)));
        let observer: &'static ProgramObserver = Box::leak(Box::new(observer));
        let mut stand = Stand::observed(&[pods], &[observer]);
        stand.put::<Node>(json!({
            "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"podCIDR": address},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        }));
        stand.put::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [container], "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "about", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]}},
            ]},
        }));
        let counters = Counters::register(&Metrics::new(&Build::default())).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
        let facts = Arc::new(Noted::default());
        let folder = tempfile::tempdir().unwrap();
        let directory = Some(folder.path().join("pods"));
        let site = Site { directory, ..Site::new(Arc::clone(&facts) as Arc<dyn Facts>) };
        let (own, world) = (tasks.child(), Arc::new(stand.world.clone()));
        tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
            runner.run(own, world, site).await;
            Ok(())
        });
        stand.settle(0, &key());
        Self { stand, facts, tasks, stop, folder }
    }

    fn delete(&mut self, seconds: i64) {
        let until = self.stand.now + jiff::SignedDuration::from_secs(seconds);
        self.stand.edit::<Pod>(&key(), |it| {
            it["metadata"]["deletionTimestamp"] = json!(until.to_string());
            it["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        });
    }

    async fn said(&self, line: &str) {
        self.facts.until(|it| it.said.lock().unwrap().iter().any(|it| it == line)).await;
    }

    /// How the program ended.
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

/// Does not care whether it is to stop.
#[derive(Debug)]
struct Stubborn;

impl Binary for Stubborn {
    fn run(&self, setting: Setting, _: Tasks) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        (setting.set_ready)(true);
        Box::pin(async move {
            let _kept = setting;
            std::future::pending().await
        })
    }
}

/// A process of its own: its environment, its directory, its output, and how it ends.
#[tokio::test]
async fn a_program_may_be_a_process() {
    let child = ChildProcess::new(
        "/bin/sh",
        &["-c", "echo $A $1 $(pwd); echo $$; while :; do :; done", "sh"],
    );
    let registry = Registry::default().with("test/child", child);
    let container = json!({
        "name": "c", "image": "test/child", "env": [{"name": "A", "value": "one"}], "args": ["$(A)s"],
    });
    let mut running = Running::start(registry, "127.201.16.0/20", &container);
    let directory = running.folder.path().join("pods/uid-p");
    running.said(&format!("one ones {}", directory.display())).await;
    running.delete(30);
    assert_eq!(running.exit().await, (143, String::new(), None), "it was told to stop");
    running.end().await;
}

#[tokio::test]
async fn a_process_that_cannot_be_started_says_so() {
    let registry = Registry::default().with("test/none", ChildProcess::new("/no/such", &[]));
    let container = json!({"name": "c", "image": "test/none"});
    let running = Running::start(registry, "127.202.16.0/20", &container);
    let (code, message, _) = running.exit().await;
    assert!(code == 127 && message.starts_with("could not start /no/such: "), "{code} {message}");
    running.end().await;
}

/// Whoever does not stop is ended: after the grace period, at once when there is none, or when this
/// process ends. The hook before the end comes first, and its failure is recorded.
#[tokio::test]
async fn a_program_that_does_not_stop_is_ended() {
    let container =
        |more: &Value| json!({"name": "c", "image": "test/stubborn", "lifecycle": more});
    let registry = || Registry::default().with("test/stubborn", Stubborn);
    let fails = json!({"preStop": {"exec": {"command": ["sh", "-c", "echo no; false"]}}});
    let mut running = Running::start(registry(), "127.203.16.0/20", &container(&fails));
    assert_eq!(running.facts.next().await.state, ProgramState::Running { ready: true });
    running.delete(1);
    let (code, _, hook) = running.exit().await;
    assert_eq!(
        (code, hook.map(|it| (it.hook, it.message))),
        (137, Some((Hook::PreStop, "no".to_owned())))
    );
    running.end().await;

    let mut running = Running::start(registry(), "127.204.16.0/20", &container(&json!({})));
    running.facts.next().await;
    running.delete(0);
    assert_eq!(running.exit().await.0, 137);
    running.end().await;

    let running = Running::start(registry(), "127.205.16.0/20", &container(&json!({})));
    running.facts.next().await;
    running.end().await;
}

/// The annotation kills the run it names, and nothing is said to the program.
#[tokio::test]
async fn a_run_may_be_killed_without_notice() {
    let container =
        json!({"name": "c", "image": "gantry.dev/echo", "ports": [{"containerPort": 18090}]});
    let mut running = Running::start(Registry::own(), "127.206.16.0/20", &container);
    assert_eq!(running.facts.next().await.state, ProgramState::Running { ready: true });
    running.stand.edit::<Pod>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-kill"] = json!("0");
    });
    assert_eq!(running.exit().await.0, 137);
    assert!(!running.facts.said.lock().unwrap().contains(&"stopped".to_owned()));
    running.end().await;
}

/// Probes ask the program itself; what it finds in its volumes is shown through them.
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
    let running = Running::start(Registry::own(), "127.207.16.0/20", &container);
    let verdict = |it: &Noted, kind: ProbeKind| {
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
    let address = running.stand.status("p")["podIP"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(format!("{address}:18091")).await.unwrap();
    let request = "GET /file?path=/one HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\np"), "{answer}");
    running.end().await;
}
