//! kubectl's logs, exec, attach and cp, word for word, on simulated containers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry::containers::Containers;
use gantry::server::{RunningServer, ServerConfig, start};
use gantry_apiserver::{AdmissionPlugins, AnonymousAccess, AuthorizationMode, Caller};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_sim::logs::Logs;
use gantry_store::OnDamage;
use gantry_token::StaticTokens;
use http::Request;
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use crate::shell::{Child, Outcome, Shell};

/// A server with one node, its containers' logs, and a shell.
struct TestServer {
    server: RunningServer,
    logs: Logs,
    now: Timestamp,
    shell: Shell,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

const PODS: &str = "/api/v1/namespaces/default/pods";

impl TestServer {
    async fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (clock, logs) = (Clock::system(), Logs::new());
        let plan = ServerConfig {
            directory: folder.path().to_owned(),
            ephemeral: true,
            address: "127.0.0.1:0".parse().unwrap(),
            names: Vec::new(),
            damage: OnDamage::Refuse,
            authorization: vec![AuthorizationMode::Rbac],
            tokens: StaticTokens::default(),
            client_authority: None,
            certificate: None,
            issuer: "https://issuer".to_owned(),
            anonymous_access: AnonymousAccess::Allowed,
            service_network: ("10.96.0.0".parse().unwrap(), 16),
            version: "test",
            plugins: AdmissionPlugins::default(),
            nodes: Some(Arc::new(Containers::new(logs.clone(), clock.clone()))),
            registry: None,
            token_secrets: false,
        };
        let metrics = Metrics::new(&BuildInfo::default());
        let counters = TaskMetrics::register(&metrics).unwrap();
        let (jitter, stop) = (fastrand::Rng::with_seed(1), CancellationToken::new());
        let now = clock.now();
        let mut tasks = Tasks::new(clock, counters, jitter, &stop);
        let server = start(plan, &mut tasks, metrics).await.unwrap();
        let kubeconfig = folder.path().join("for-the-shell");
        std::fs::write(&kubeconfig, &server.kubeconfig).unwrap();
        let shell = Shell::new(&kubeconfig);
        let house = Self { server, logs, now, shell, tasks, _folder: folder };
        let account = json!({ "metadata": { "name": "default" } });
        house.send("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
        house.send("POST", "/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await;
        house
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(Bytes::from(body.to_string())).unwrap();
        let answer = self.server.api.handle(request, Some(Caller::server())).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Creates a pod with these containers, each in a state; returns its uid.
    async fn pod(&self, name: &str, containers: &[(&str, Value)]) -> String {
        let specs: Value = containers
            .iter()
            .map(|(name, _)| {
                json!({ "name": name, "image": "x", "env": [{ "name": "COLOUR", "value": "blue" }] })
            })
            .collect();
        let pod = json!({
            "metadata": { "name": name }, "spec": { "nodeName": "n", "containers": specs },
        });
        let made = self.send("POST", PODS, &pod).await;
        let statuses: Value = containers
            .iter()
            .map(|(name, state)| {
                json!({
                    "name": name, "image": "x", "imageID": "x", "ready": true, "restartCount": 0,
                    "state": state, "lastState": {},
                })
            })
            .collect();
        let status = json!({ "status": { "phase": "Running", "containerStatuses": statuses } });
        self.send("PATCH", &format!("{PODS}/{name}/status"), &status).await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Runs a command line.
    fn run(&self, script: &str) -> Outcome {
        block_in_place(|| self.shell.run(script))
    }

    async fn stop(mut self) {
        self.tasks.token().cancel();
        self.tasks.join().await.unwrap();
    }
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs() {
    let house = TestServer::build().await;
    let uid = house.pod("web", &[("main", running()), ("side", running())]).await;
    let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
    house.pod("slow", &[("main", waiting)]).await;
    let ago = |seconds| house.now.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
    house.logs.start_run(&uid, "main", 0, ago(300), ["one", "two"]);
    house.logs.append(&uid, "main", ago(10), "three");
    house.logs.start_run(&uid, "side", 0, ago(5), ["beside"]);
    house.logs.end_run(&uid, "side");
    let stamp = format!("{:.9}", ago(10));
    let table = [
        ("kubectl logs web -c main", 0, "one\ntwo\nthree\n".to_owned(), ""),
        (
            "kubectl logs web",
            0,
            "one\ntwo\nthree\n".to_owned(),
            "Defaulted container \"main\" out of: main, side\n",
        ),
        ("kubectl logs web -c main --tail=1", 0, "three\n".to_owned(), ""),
        ("kubectl logs web -c main --tail=0", 0, String::new(), ""),
        ("kubectl logs web -c main --since=1m", 0, "three\n".to_owned(), ""),
        ("kubectl logs web -c main --limit-bytes=6", 0, "one\ntw".to_owned(), ""),
        ("kubectl logs web -c main --tail=1 --timestamps", 0, format!("{stamp} three\n"), ""),
        (
            "kubectl logs web --all-containers --prefix --tail=1 | sort",
            0,
            "[pod/web/main] three\n[pod/web/side] beside\n".to_owned(),
            "",
        ),
        ("kubectl logs web -c side -f", 0, "beside\n".to_owned(), ""),
        (
            "kubectl logs web -c main -p",
            1,
            String::new(),
            "Error from server (BadRequest): previous terminated container \"main\" in pod \"web\" \
             not found\n",
        ),
        (
            "kubectl logs slow",
            1,
            String::new(),
            "Error from server (BadRequest): container \"main\" in pod \"slow\" is waiting to \
             start: ContainerCreating\n",
        ),
        (
            "kubectl logs web -c nobody",
            1,
            String::new(),
            "error: container nobody is not valid for pod web\n",
        ),
    ];
    for (script, code, out, err) in table {
        let outcome = house.run(script);
        let found = (outcome.code, outcome.out.as_str(), outcome.err.as_str());
        assert_eq!(found, (Some(code), out.as_str(), err), "{script}");
    }
    // A log that is followed ends with its container, and not before.
    let mut command = house.shell.command("kubectl");
    command.args(["logs", "-f", "web", "-c", "main", "--tail=1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Child::start(command);
    let mut out = BufReader::new(child.out());
    let mut line = String::new();
    block_in_place(|| out.read_line(&mut line).unwrap());
    assert_eq!(line, "three\n");
    house.logs.append(&uid, "main", house.now, "four");
    house.logs.end_run(&uid, "main");
    let mut rest = String::new();
    block_in_place(|| out.read_to_string(&mut rest).unwrap());
    assert_eq!(rest, "four\n");
    assert_eq!(block_in_place(|| child.end()), (Some(0), String::new()));
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_commands() {
    let house = TestServer::build().await;
    let uid = house.pod("web", &[("main", running())]).await;
    let ended = json!({ "terminated": { "exitCode": 0, "containerID": "x://1" } });
    house.pod("done", &[("main", ended)]).await;
    let runtime = "Internal error occurred: Internal error occurred: error executing command in \
                   container: OCI runtime exec failed: exec failed: unable to start container \
                   process: exec: \"tar\": executable file not found in $PATH";
    let table = [
        ("kubectl exec web -- hostname", 0, "web\n".to_owned(), String::new()),
        (
            "kubectl exec web -- sh -c 'echo $COLOUR; echo oops >/dev/null'",
            2,
            String::new(),
            "sh: \">\" is not simulated\ncommand terminated with exit code 2\n".to_owned(),
        ),
        (
            "kubectl exec web -c main -- sh -c 'echo $COLOUR; foo; exit 3'",
            3,
            "blue\n".to_owned(),
            "sh: foo: not found\ncommand terminated with exit code 3\n".to_owned(),
        ),
        ("echo hello | kubectl exec -i web -- cat", 0, "hello\n".to_owned(), String::new()),
        (
            "printf 'pwd\\nexit 5\\n' | kubectl exec -i web -- sh",
            5,
            "/\n".to_owned(),
            "command terminated with exit code 5\n".to_owned(),
        ),
        ("kubectl exec web -- tar", 1, String::new(), format!("error: {runtime}\n")),
        (
            "kubectl exec done -- true",
            1,
            String::new(),
            "error: Internal error occurred: unable to upgrade connection: container not found \
             (\"main\")\n"
                .to_owned(),
        ),
        (
            "kubectl exec web -c nobody -- true",
            1,
            String::new(),
            "Error from server (BadRequest): container nobody is not valid for pod web\n"
                .to_owned(),
        ),
        (
            "kubectl exec nobody -- true",
            1,
            String::new(),
            "Error from server (NotFound): pods \"nobody\" not found\n".to_owned(),
        ),
    ];
    for (script, code, out, err) in table {
        let outcome = house.run(script);
        let found = (outcome.code, outcome.out.as_str(), outcome.err.as_str());
        assert_eq!(found, (Some(code), out.as_str(), err.as_str()), "{script}");
    }
    // kubectl may still be writing when the response arrives, and then reports that first.
    let outcome = house.run("touch f && kubectl cp f web:/tmp/f");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.ends_with(&format!("error: {runtime}\n")), "{}", outcome.err);
    // More than fits into any buffer on the way, in both directions at once.
    let mut command = house.shell.command("kubectl");
    command.args(["exec", "-i", "web", "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = vec![b'x'; 5_000_000];
    let typed = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = block_in_place(|| child.wait_with_output().unwrap());
    typed.join().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), 5_000_000);
    // An attached client gets the output from then on, until the container ends.
    house.logs.start_run(&uid, "main", 0, house.now, ["before"]);
    let mut command = house.shell.command("kubectl");
    command.args(["attach", "web"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Child::start(command);
    let mut out = BufReader::new(child.out());
    let mut line = String::new();
    let clock = Clock::system();
    let logs = house.logs.clone();
    // Until it is received: there is no signal that kubectl listens.
    let said = async {
        loop {
            logs.append(&uid, "main", clock.now(), "after");
            clock.sleep(Duration::from_millis(20)).await;
        }
    };
    let heard = tokio::task::spawn_blocking(move || {
        out.read_line(&mut line).unwrap();
        (line, out)
    });
    // It stays open: kubectl may still write to it.
    let (line, _out) = tokio::select! {
        () = said => unreachable!("it says so for ever"),
        heard = heard => heard.unwrap(),
    };
    assert_eq!(line, "after\n");
    house.logs.end_run(&uid, "main");
    let (code, _) = block_in_place(|| child.end());
    assert_eq!(code, Some(0));
    house.stop().await;
}
