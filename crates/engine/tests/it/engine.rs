//! The small engine: texts, sleep, memory and faults.

use std::io::Read as _;
use std::path::Path;

use gantry_engine::ledger::{Change, Ledger, reap_all};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Program, Reply, is_alive};

const PORT: u16 = 8000;
/// How often at the most an engine is asked whether it sleeps.
const MAX_QUESTIONS: usize = 10_000;
const DEVELOPER: (&str, &str) = ("VLLM_SERVER_DEV_MODE", "1");

fn started(words: &str, variables: &[(&str, &str)]) -> Program {
    let mut program = Program::start(&format!("engine {words}"), variables);
    program.wait_for("listening on");
    program
}

fn ask(program: &Program, prompt: &str) -> Value {
    let body = json!({"prompt": prompt, "max_tokens": 24}).to_string();
    program.call(PORT, "POST /v1/completions", &body).json()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

fn ledger(folder: &Path, capacity: u64) -> Ledger {
    let ledger = Ledger::of(folder, "GPU-0").unwrap();
    ledger.describe(0, capacity).unwrap();
    ledger
}

/// The processes that an engine has started.
fn core_of(program: &Program) -> i32 {
    let id = program.child.id();
    let path = format!("/proc/{id}/task/{id}/children");
    let mut all = std::fs::read_to_string(&path).unwrap();
    // Threads of the runtime start processes, too.
    for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        all.push_str(&std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    }
    all.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_same_prompt_has_one_text_for_each_model() {
    let one = started("--model tiny/a --served-model-name a", &[]);
    let again = started("--model tiny/a --max-model-len 100", &[]);
    let two = started("--model tiny/b", &[]);
    let (first, second, third) = (ask(&one, "Hello"), ask(&again, "Hello"), ask(&two, "Hello"));
    assert_eq!(text(&first), text(&second));
    assert_ne!(text(&first), text(&third));
    assert_eq!(first["model"], "a");
    assert_eq!(third["model"], "tiny/b");
    assert_eq!(first["system_fingerprint"], second["system_fingerprint"]);
    assert_ne!(first["system_fingerprint"], third["system_fingerprint"]);
    assert_eq!(one.call(PORT, "GET /v1/models", "").json()["data"][0]["id"], "a");
    assert!(
        one.call(PORT, "GET /metrics", "")
            .text()
            .contains("request_success_total{model_name=\"a\"} 1")
    );
    let body = json!({"prompt": "Hello", "max_tokens": 24, "stream": true}).to_string();
    let events = one.call(PORT, "POST /v1/completions", &body).text();
    let pieces = events.lines().filter_map(|it| it.strip_prefix("data: {"));
    let pieces: String = pieces
        .map(|it| {
            let event: Value = serde_json::from_str(&format!("{{{it}")).unwrap();
            text(&event).to_owned()
        })
        .collect();
    assert_eq!(pieces, text(&first));
    assert!(events.ends_with("data: [DONE]\n\n"));
    let table = [
        ("POST /v1/completions", r#"{"model":"x","prompt":"a"}"#, 404),
        ("POST /v1/completions", r#"{"prompt":1}"#, 400),
        ("POST /v1/completions", "nonsense", 400),
        ("POST /v1/completions", r#"{"prompt":"a","max_tokens":99999}"#, 400),
        ("GET /v1/completions", "", 405),
        ("POST /sleep", "", 404),
        ("GET /health", "", 200),
    ];
    for (request, body, status) in table {
        assert_eq!(one.call(PORT, request, body).status, status, "{request} {body}");
    }
}

#[test]
fn a_request_to_a_sleeping_engine_is_held_until_it_wakes() {
    let program = started("--model tiny/a", &[DEVELOPER]);
    let expected = ask(&program, "x");
    let is_sleeping = || program.call(PORT, "GET /is_sleeping", "").json()["is_sleeping"].clone();
    assert_eq!(is_sleeping(), false);
    for request in ["POST /sleep?level=3", "POST /sleep?mode=never"] {
        assert_eq!(program.call(PORT, request, "").status, 400, "{request}");
    }
    for level in ["", "?level=0", "?level=2&mode=wait"] {
        assert_eq!(program.call(PORT, &format!("POST /sleep{level}"), "").status, 200);
        // Asleep already: accepted.
        assert_eq!(program.call(PORT, "POST /sleep", "").status, 200);
        assert_eq!(is_sleeping(), true);
        let body = json!({"prompt": "x", "max_tokens": 24}).to_string();
        let mut held = program.send(PORT, "POST /v1/completions", &[], &body);
        // It is not answered for as long as the engine sleeps.
        held.set_nonblocking(true).unwrap();
        assert_eq!(is_sleeping(), true);
        let nothing = held.read(&mut [0; 1]).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        held.set_nonblocking(false).unwrap();
        assert_eq!(program.call(PORT, "POST /wake_up", "").status, 200);
        assert_eq!(text(&Reply::read(held).json()), text(&expected), "{level}");
        assert_eq!(program.call(PORT, "POST /wake_up", "").status, 200);
    }
}

/// Requests that are under way end, are waited for, or go on, as the mode says.
#[test]
fn the_mode_of_sleep_decides_about_requests_under_way() {
    for (mode, end) in [("abort", "abort"), ("wait", "length"), ("keep", "length")] {
        let program = started("--token-time 20ms", &[DEVELOPER]);
        let body = json!({"prompt": "x", "max_tokens": 400}).to_string();
        let under_way = program.send(PORT, "POST /v1/completions", &[], &body);
        let running = "num_requests_running{model_name=\"tiny/default\"} 1";
        while !program.call(PORT, "GET /metrics", "").text().contains(running) {}
        assert_eq!(program.call(PORT, &format!("POST /sleep?mode={mode}"), "").status, 200);
        if mode == "keep" {
            assert_eq!(program.call(PORT, "POST /wake_up", "").status, 200);
        }
        let answer = Reply::read(under_way).json();
        assert_eq!(answer["choices"][0]["finish_reason"], end, "{mode}");
    }
}

#[test]
fn memory_is_taken_in_order_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path(), 10 << 20);
    let directory = folder.path().to_str().unwrap();
    let variables = [DEVELOPER, ("GANTRY_ACCELERATOR_LEDGERS", directory)];
    let size = "--weight-bytes 6000000 --cache-bytes 1000000 --residue-bytes 1000";
    let one = started(&format!("--model tiny/a {size}"), &variables);
    // There is no space for two that are awake.
    let mut two = Program::start(&format!("engine --model tiny/b {size}"), &variables);
    two.wait_for("CUDA out of memory");
    assert_eq!(two.end(), 1);
    assert_eq!(one.call(PORT, "POST /sleep", "").status, 200);
    assert_eq!(ledger.read().unwrap().used(), 1000);
    let two = started(&format!("--model tiny/b {size}"), &variables);
    let refused = one.call(PORT, "POST /wake_up", "");
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("out of memory"), "{refused:?}");
    assert_eq!(two.stop(), 0);
    assert_eq!(one.call(PORT, "POST /wake_up", "").status, 200);
    assert_eq!(one.stop(), 0);
    let state = ledger.read().unwrap();
    assert_eq!(state.used(), 0);
    let record: Vec<(Change, &str, bool)> =
        state.entries.iter().map(|it| (it.change, it.model.as_str(), it.awake)).collect();
    let expected = [
        (Change::Load, "tiny/a", true),
        (Change::Sleep, "tiny/a", false),
        (Change::Load, "tiny/b", true),
        (Change::Release, "tiny/b", false),
        (Change::Wake, "tiny/a", true),
        (Change::Release, "tiny/a", false),
    ];
    assert_eq!(record, expected);
}

/// Many processes use one ledger at once: the record has no gap, and never more than there is.
#[test]
fn concurrent_engines_never_take_more_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path(), 200_000);
    let directory = folder.path().to_str().unwrap();
    let variables = [("GANTRY_ACCELERATOR_LEDGERS", directory)];
    let words = "engine --weight-bytes 70000 --cache-bytes 0";
    let mut all: Vec<Program> = (0..6).map(|_| Program::start(words, &variables)).collect();
    let outcome = |it: &mut Program| it.wait_for("o").contains("CUDA");
    for it in &mut all {
        it.wait_for("loading");
    }
    let refused = all.iter_mut().filter_map(|it| outcome(it).then_some(())).count();
    assert_eq!(refused, 4);
    let state = ledger.read().unwrap();
    assert_eq!(state.used(), 140_000);
    let numbers: Vec<u64> = state.entries.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_killed_root_leaks_its_core_and_a_killed_core_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path(), 10 << 20);
    let directory = folder.path().to_str().unwrap();
    let mut program = started("", &[("GANTRY_ACCELERATOR_LEDGERS", directory)]);
    let core = core_of(&program);
    program.signal(Signal::KILL);
    assert_eq!(program.end(), 137);
    assert!(is_alive(core), "a killed root leaves its core");
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(reap_all(folder.path(), now).unwrap(), 0);
    let id = rustix::process::Pid::from_raw(core).unwrap();
    rustix::process::kill_process(id, Signal::KILL).unwrap();
    while is_alive(core) {
        std::thread::yield_now();
    }
    assert!(ledger.read().unwrap().used() > 0, "a killed process leaves its entry");
    assert_eq!(reap_all(folder.path(), now).unwrap(), 1);
    assert_eq!(ledger.read().unwrap().used(), 0);
}

#[test]
fn every_fault_happens() {
    let faulty = |fault: &str| Program::start(&format!("engine --fault {fault}"), &[DEVELOPER]);
    let listening = |fault: &str| {
        let mut program = faulty(fault);
        program.wait_for("listening on");
        program
    };
    let status =
        |program: &Program, name: &str| program.call(PORT, &format!("POST /{name}"), "").status;

    assert_eq!(faulty("crash-before-listening").end(), 1);
    assert_eq!(faulty("crash-after=1ms").end(), 137);
    assert_eq!(faulty("nope").end(), 2);
    let mut program = Program::start("engine", &[("GANTRY_ENGINE_FAULTS", "fill-log=5000")]);
    assert_eq!(program.wait_for("xxx").len(), 1024);

    let mut program = faulty("never-listen");
    program.wait_for("loading");
    let address = std::net::SocketAddr::from((program.address, PORT));
    std::net::TcpStream::connect(address).unwrap_err();
    program.signal(Signal::TERM);
    assert_eq!(program.end(), 0);

    for (fault, before) in [("crash-in-sleep", None), ("crash-in-wake", Some("sleep"))] {
        let mut program = listening(fault);
        if let Some(before) = before {
            assert_eq!(status(&program, before), 200);
        }
        let name = fault.rsplit('-').next().unwrap().replace("wake", "wake_up");
        // The engine ends without an answer.
        let mut request = program.send(PORT, &format!("POST /{name}"), &[], "");
        assert!(!matches!(request.read(&mut [0]), Ok(1)), "{fault}");
        assert_eq!(program.end(), 137, "{fault}");
    }

    let program = listening("refuse-sleep=1");
    assert_eq!([status(&program, "sleep"), status(&program, "sleep")], [500, 200]);
    let program = listening("refuse-wake=1");
    status(&program, "sleep");
    let refused = program.call(PORT, "POST /wake_up", "");
    assert!(refused.text().contains("CUDA out of memory"), "{refused:?}");
    assert_eq!(status(&program, "wake_up"), 200);
    let program = listening("refuse-wake=1,wedge-after-wake");
    status(&program, "sleep");
    assert_eq!([status(&program, "wake_up"), status(&program, "wake_up")], [500, 500]);

    // Whether it is slower is not measured: only that it is answered at all.
    let program = listening("slow-start=1ms,slow-sleep=1ms,slow-wake=1ms");
    assert_eq!([status(&program, "sleep"), status(&program, "wake_up")], [200, 200]);

    let mut program = listening("ignore-terminate");
    program.signal(Signal::TERM);
    program.wait_for("fault ignore-terminate");
    assert!(is_alive(i32::try_from(program.child.id()).unwrap()));
    drop(program);

    let mut program = listening("leave-child");
    let core = core_of(&program);
    program.signal(Signal::TERM);
    assert_eq!(program.end(), 137);
    assert!(is_alive(core));
}

#[test]
fn the_test_server_of_the_original_answers_at_once_and_is_healthy_later() {
    let mut program = Program::start("/ko-app/test-server --port 8000", &[]);
    program.wait_for("listening on");
    assert_eq!(program.call(PORT, "GET /health", "").status, 503);
    assert_eq!(program.call(PORT, "POST /sleep", "").status, 200);
    assert_eq!(program.call(PORT, "GET /is_sleeping", "").json(), json!({"is_sleeping": true}));
    let mut program = Program::start("test-server --startup-delay=0", &[]);
    program.wait_for("listening on");
    assert_eq!(program.call(PORT, "GET /health", "").status, 200);
}

/// A client that gives up does not leave half a change behind.
#[test]
fn a_sleep_goes_on_when_its_client_is_gone() {
    let mut program = started("--model tiny/a --sleep-time 300ms", &[DEVELOPER]);
    let request = program.send(PORT, "POST /sleep", &[], "");
    // A request whose client is gone before the engine has read it may be dropped.
    program.wait_for("going to sleep");
    drop(request);
    let is_asleep = |program: &Program| {
        program.call(PORT, "GET /is_sleeping", "").json()["is_sleeping"] == true
    };
    assert!((0..MAX_QUESTIONS).any(|_| is_asleep(&program)), "it never slept");
    assert_eq!(program.call(PORT, "POST /wake_up", "").status, 200);
    assert_eq!(ask(&program, "x")["model"], "tiny/a");
}

/// A program of a simulated pod ends with the process that holds the other end of its input.
#[test]
fn a_confined_engine_ends_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    // The input of a test's program is empty.
    let mut program =
        Program::start("engine --model tiny/a", &[("GANTRY_SIMULATED_POD", directory)]);
    assert_eq!(program.end(), 128 + Signal::KILL.as_raw());
}
