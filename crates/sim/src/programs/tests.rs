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
use crate::view::{ContainerKey, Node, Pod, ProbeKey, ProbeResult, Program, ProgramState};

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
