//! The programs as the controllers of crate `actuation` use them: the requests are the controllers'
//! own, and so is the reading of the answers.

use gantry_actuation::calls::{self, Engine, Purpose, read_reply};
use gantry_actuation::facts::{LauncherState, read_accelerators, read_instances, read_sleeping};
use gantry_actuation::instance::DesiredInstance;
use gantry_actuation::labels::{ACCELERATORS_PATH, INSTANCES_PATH};
use gantry_actuation::view::ActuationPod;
use gantry_engine::ledger::Ledger;
use gantry_reconcile::{Call, Reply as CallReply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Program, Watch};

const LAUNCHER: u16 = 8001;
const ENGINE: u16 = 8005;
const SPI: u16 = 8081;

/// A pod with the address of a program: a launcher that is bound to a requester, or to none.
fn pod(program: &Program, requester: Option<&str>, counter: u64) -> ActuationPod {
    let mut annotations = json!({"actuation.gantry.dev/binding": counter.to_string()});
    if let Some(uid) = requester {
        annotations["dual-pods.llm-d.ai/requester"] = json!(format!("{uid} r"));
    }
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "n", "name": "l", "uid": "ul", "annotations": annotations,
            "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
        },
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
        "status": {"podIP": program.address.to_string()},
    }))
    .unwrap()
}

/// Sends a call as it is written; returns the status and how the controllers read the reply.
fn send(program: &Program, call: &Call) -> (u16, CallReply) {
    let (address, port) = call.target.address.rsplit_once(':').unwrap();
    assert_eq!(address, program.address.to_string());
    let request = &call.request;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = format!("{} {}", text(&request["method"]), text(&request["path"]));
    let headers = request["headers"].as_object();
    let headers: Vec<(String, String)> =
        headers.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect();
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let body = request.get("body").map(Value::to_string).unwrap_or_default();
    let reply = program.call_with(port.parse().unwrap(), &line, &headers, &body);
    let purpose = Purpose::from_name(call.purpose).unwrap();
    (reply.status, read_reply(purpose, reply.status, &reply.body))
}

fn done(program: &Program, call: &Call) -> u16 {
    let (status, reply) = send(program, call);
    assert!(matches!(reply, CallReply::Done(_)), "{:?}: {reply:?}", call.id);
    status
}

fn refused(program: &Program, call: &Call) -> u16 {
    let (status, reply) = send(program, call);
    let code = match &reply {
        CallReply::Refused(refusal) => Some(refusal.code),
        CallReply::Done(_) => None,
    };
    assert_eq!(code, Some(status), "{:?}: {reply:?}", call.id);
    status
}

fn instances(program: &Program) -> LauncherState {
    let reply = program.call(LAUNCHER, &format!("GET {INSTANCES_PATH}"), "");
    read_instances(reply.status, &reply.body).unwrap()
}

/// Whether an engine sleeps, by the launcher and by its own port.
fn is_sleeping(program: &Program, id: &str) -> bool {
    let path = format!("GET {INSTANCES_PATH}/{id}/is_sleeping");
    let forwarded = program.call(LAUNCHER, &path, "");
    let direct = program.call(ENGINE, "GET /is_sleeping", "");
    let states = [forwarded, direct].map(|it| read_sleeping(it.status, &it.body).unwrap());
    assert_eq!(states[0], states[1]);
    states[0].is_sleeping
}

#[test]
fn as_69_the_calls_of_the_controllers_are_served_and_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("VLLM_SERVER_DEV_MODE", "1"),
        ("GANTRY_ACCELERATOR_LEDGERS", folder.path().to_str().unwrap()),
    ];
    let mut program = Program::start("launcher --mock-gpus --mock-gpu-count 2", &variables);
    program.wait_for("listening on");
    let boot = instances(&program).boot.unwrap();
    let server = json!({"port": ENGINE, "options": "--model tiny/a --token-time 20ms"});
    let gpus = ["GPU-1".to_owned()];
    let desired =
        DesiredInstance::new("isc", &serde_json::from_value(server).unwrap(), &gpus).unwrap();
    let id = desired.id.as_str();
    let bound = |counter: u64| pod(&program, Some("u1"), counter);
    let (first, ending, idle) = (bound(3), bound(4), pod(&program, None, 4));
    let engine =
        |provider| Engine { provider, port: ENGINE, instance: Some(id), boot: Some(&boot) };
    let create = |provider| calls::create_instance(provider, Some(&boot), id, &desired.config);

    // Created once, however often the call is made.
    let mut watch = Watch::open(&program, LAUNCHER, "?events=all");
    assert_eq!(done(&program, &create(&first)), 201);
    assert_eq!(done(&program, &create(&first)), 409);
    let mut next = || watch.next().unwrap().0;
    assert_eq!((next(), next()), ("CREATED".to_owned(), "READY".to_owned()));
    let state = instances(&program);
    let listed = state.instance(id).unwrap();
    assert_eq!(
        (listed.port, listed.config.as_deref(), &listed.gpu_uuids[..], listed.is_stopped),
        (Some(ENGINE), Some("isc"), &gpus[..], false)
    );
    assert!(!is_sleeping(&program, id));
    assert_eq!(done(&program, &engine(&first).wake()), 200, "awake already");

    // The binding ends: the engine drains, and one that is not to be waited for overtakes that.
    let body = json!({"prompt": "x", "max_tokens": 4000, "stream": true}).to_string();
    let endless = program.send(ENGINE, "POST /v1/completions", &[], &body);
    let running = "num_requests_running{model_name=\"tiny/a\"} 1";
    while !program.call(ENGINE, "GET /metrics", "").text().contains(running) {}
    let drain = engine(&ending).sleep(true);
    let path = drain.request["path"].as_str().unwrap();
    let binding = drain.request["headers"]["Gantry-Binding"].as_str().unwrap();
    let headers = [("Gantry-Binding", binding), ("Gantry-Boot-Id", &boot)];
    let draining = program.send(LAUNCHER, &format!("POST {path}"), &headers, "");
    assert_eq!(done(&program, &engine(&ending).sleep(false)), 200);
    assert_eq!(super::Reply::read(draining).status, 200);
    assert!(is_sleeping(&program, id));
    let aborted = super::Reply::read(endless).text();
    assert!(aborted.contains("\"finish_reason\":\"abort\""), "{aborted}");

    // Late calls of the binding, and of another run of the launcher; then those of the next one.
    for call in [engine(&first).wake(), engine(&first).sleep(true), create(&first)] {
        assert_eq!(refused(&program, &call), 412);
    }
    let late = calls::delete_instance(&first, Some(&boot), id);
    assert_eq!(refused(&program, &late), 412);
    assert!(is_sleeping(&program, id));
    assert_eq!(done(&program, &engine(&idle).sleep(false)), 200, "bound to nobody");
    let second = pod(&program, Some("u2"), 5);
    let elsewhere = Engine { boot: Some("other"), ..engine(&second) };
    assert_eq!(refused(&program, &elsewhere.wake()), 412);
    assert_eq!(done(&program, &engine(&second).wake()), 200);
    assert!(!is_sleeping(&program, id));

    // Controllers that do not know of fences go to the port of the engine.
    let unfenced = Engine { boot: None, ..engine(&second) };
    assert_eq!(done(&program, &unfenced.sleep(true)), 200);
    assert_eq!(done(&program, &unfenced.wake()), 200);

    // A deletion of what is not there counts.
    let third = pod(&program, Some("u3"), 6);
    let missing = calls::delete_instance(&third, Some(&boot), "none");
    assert_eq!(done(&program, &missing), 404);
    assert_eq!(refused(&program, &engine(&second).sleep(false)), 412);

    // The engine is killed: its exit code is in the list, and the end of its log can be read.
    let line = loop {
        let line = program.wait_for("started instance");
        if line.contains(id) {
            break line;
        }
    };
    let root: i32 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(root).unwrap(), Signal::KILL).unwrap();
    while watch.next().unwrap().0 != "STOPPED" {}
    let state = instances(&program);
    let ended = state.instance(id).unwrap();
    assert_eq!((ended.is_stopped, ended.exit_code), (true, Some(-9)));
    let range = [("Range", "bytes=-4096")];
    let log = program.call_with(LAUNCHER, &format!("GET {INSTANCES_PATH}/{id}/log"), &range, "");
    assert_eq!(log.status, 206);
    assert!(log.text().contains("listening on"), "{}", log.text());
    let delete = calls::delete_instance(&third, Some(&boot), id);
    assert_eq!(done(&program, &delete), 200);
    assert_eq!(done(&program, &delete), 404);
    assert_eq!(instances(&program).instances, []);
    assert_eq!(Ledger::of(folder.path(), "GPU-1").unwrap().read().unwrap().used(), 0);
}

#[test]
fn as_46_a_requester_answers_the_controllers() {
    let folder = tempfile::tempdir().unwrap();
    Ledger::of(folder.path(), "GPU-a").unwrap().describe(0, 1 << 20).unwrap();
    let variables = [("GANTRY_ACCELERATOR_LEDGERS", folder.path().to_str().unwrap())];
    let mut program = Program::start("/app/requester", &variables);
    program.wait_for("requester: probes on");
    // Found by a task that may not have run yet.
    let known = loop {
        let reply = program.call(SPI, &format!("GET {ACCELERATORS_PATH}"), "");
        if let Ok(known) = read_accelerators(reply.status, &reply.body) {
            break known;
        }
    };
    assert_eq!(known.uuids, ["GPU-a"]);
    let (requester, provider) = (pod(&program, None, 0), pod(&program, Some("u1"), 1));
    for is_ready in [true, true, false] {
        done(&program, &calls::relay(&requester, SPI, &provider, is_ready));
        let status = if is_ready { 200 } else { 503 };
        assert_eq!(program.call(8080, "GET /ready", "").status, status);
    }
    let proxy = |port| calls::configure_proxy(&requester, SPI, &provider, port);
    assert_eq!(done(&program, &proxy(ENGINE)), 200);
    assert_eq!(done(&program, &proxy(ENGINE)), 200, "the target in force");
    assert_eq!(refused(&program, &proxy(8006)), 409);
}
