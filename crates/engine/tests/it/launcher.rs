//! The interface of the launcher, and that nothing survives a stop.

use std::path::Path;

use gantry_engine::ledger::Ledger;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Program, Watch, is_alive};

/// How often a log is read before a test gives up.
const MAX_READS: u32 = 100_000;
pub(super) const PORT: u16 = 8001;
pub(super) const ENGINE: u16 = 8005;
pub(super) const ALL: &str = "/v2/vllm/instances";

pub(super) fn started(words: &str, variables: &[(&str, &str)]) -> Program {
    let mut program = Program::start(&format!("launcher --mock-gpus {words}"), variables);
    program.wait_for("listening on");
    program
}

/// A launcher whose engines run a line of a shell.
pub(super) fn with_script(folder: &Path, script: &str, words: &str) -> Program {
    let path = folder.join("engine.sh");
    std::fs::write(&path, script).unwrap();
    let command = format!("/bin/sh {}", path.display());
    let words: Vec<&str> = words.split_whitespace().collect();
    let base = ["launcher", "--mock-gpus", "--engine-command", &command];
    let mut program = Program::start_words(&[&base[..], &words[..]].concat(), &[]);
    program.wait_for("listening on");
    program
}

pub(super) fn create(program: &Program, id: &str, body: &Value) -> Value {
    let reply = program.call(PORT, &format!("PUT {ALL}/{id}"), &body.to_string());
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()
}

pub(super) fn log(program: &Program, id: &str) -> Vec<u8> {
    program.call(PORT, &format!("GET {ALL}/{id}/log"), "").body
}

/// Reads the log until it has as many lines, and returns them.
fn log_lines(program: &Program, id: &str, count: usize) -> Vec<String> {
    loop {
        let text = String::from_utf8(log(program, id)).unwrap();
        if text.matches('\n').count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
    }
}

#[test]
fn as_58_requests_have_their_codes_and_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "sleep 1000", "--mock-gpu-count 2");
    let body = json!({
        "options": "--port 8005",
        "gpu_uuids": ["GPU-1", "GPU-0"],
        "env_vars": {"A": "b"},
        "annotations": {"isc-name": "x"},
    });
    let table: [(&str, &str, u16, &str); 24] = [
        ("GET /", "", 200, r#"{"name":"Multi-Instance vLLM Management API","version":"2.0""#),
        ("GET /health", "", 200, r#"{"status":"OK"}"#),
        (
            "GET /v2/vllm/instances",
            "",
            200,
            r#"{"revision":0,"total_instances":0,"running_instances":0,"instances":[],"boot_id":""#,
        ),
        (
            "PUT /v2/vllm/instances/a",
            &body.to_string(),
            201,
            concat!(
                r#"{"status":"running","instance_id":"a","revision":1,"options":"--port 8005","#,
                r#""gpu_uuids":["GPU-1","GPU-0"],"env_vars":{"A":"b","CUDA_VISIBLE_DEVICES":"1,0"},"#,
                r#""annotations":{"isc-name":"x"}}"#
            ),
        ),
        ("PUT /v2/vllm/instances/a", r#"{"options":""}"#, 409, r#"{"detail":"#),
        (
            "PUT /v2/vllm/instances/b",
            r#"{"options":""}"#,
            201,
            r#"{"status":"running","instance_id":"b","revision":2,"options":""}"#,
        ),
        (
            "POST /v2/vllm/instances",
            r#"{"options":""}"#,
            201,
            r#"{"status":"running","instance_id":""#,
        ),
        ("PUT /v2/vllm/instances/c", "{}", 422, r#"{"detail":[{"type":"missing""#),
        ("POST /v2/vllm/instances", "nonsense", 422, r#"{"detail":[{"type":"json_invalid""#),
        (
            "POST /v2/vllm/instances",
            r#"{"options":"","gpu_uuids":["GPU-7"]}"#,
            400,
            r#"{"detail":"GPU UUID GPU-7"#,
        ),
        (
            "PUT /v2/vllm/instances/c",
            r#"{"options":"","gpu_uuids":["GPU-7"]}"#,
            400,
            r#"{"detail":"GPU UUID GPU-7"#,
        ),
        ("GET /v2/vllm/instances/b", "", 200, r#"{"status":"running","instance_id":"b","#),
        ("GET /v2/vllm/instances/none", "", 404, r#"{"detail":"#),
        ("GET /v2/vllm/instances/none/log", "", 404, r#"{"detail":"#),
        ("DELETE /v2/vllm/instances/none", "", 404, r#"{"detail":"#),
        (
            "GET /v2/vllm/instances?detail=False",
            "",
            200,
            r#"{"revision":3,"count":3,"instance_ids":["#,
        ),
        ("GET /v2/vllm/instances?detail=1", "", 200, r#"{"revision":3,"total_instances":3"#),
        ("GET /v2/vllm/instances?detail=maybe", "", 422, r#"{"detail":[{"type":"bool_parsing""#),
        ("PATCH /v2/vllm/instances", "", 405, r#"{"detail":"Method Not Allowed"}"#),
        ("GET /v2/vllm/other", "", 404, r#"{"detail":"Not Found"}"#),
        (
            "DELETE /v2/vllm/instances/b",
            "",
            200,
            r#"{"status":"stopped","instance_id":"b","revision":4,"options":""}"#,
        ),
        ("GET /v2/gpu-debug", "", 501, r#"{"detail":"nvidia-smi"#),
        ("DELETE /v2/vllm/instances", "", 200, r#"{"status":"all_stopped","total_stopped":2,"#),
        ("DELETE /v2/vllm/instances", "", 200, r#"{"status":"all_stopped","total_stopped":0,"#),
    ];
    for (request, body, status, expected) in table {
        let reply = program.call(PORT, request, body);
        assert_eq!(reply.status, status, "{request}: {reply:?}");
        assert!(reply.text().starts_with(expected), "{request}: {}", reply.text());
        assert!(reply.headers.contains_key("gantry-boot-id"));
    }
}

#[test]
fn as_62_logs_have_ranges_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "printf '0123456789'; printf '\\377\\n' >&2; exec sleep 1000";
    let program = with_script(folder.path(), script, "");
    create(&program, "a", &json!({"options": ""}));
    let path = format!("GET {ALL}/a/log");
    while log(&program, "a").len() < 12 {}
    let get = |range: &str| program.call_with(PORT, &path, &[("Range", range)], "");
    let whole = program.call(PORT, &path, "");
    assert_eq!((whole.status, &whole.body[..]), (200, &b"0123456789\xff\n"[..]));
    assert_eq!(whole.headers["content-type"], "application/octet-stream");
    assert_eq!(whole.headers["accept-ranges"], "bytes");
    assert_eq!(whole.headers["content-range"], "bytes 0-11/12");
    let table: [(&str, u16, &[u8], &str); 7] = [
        ("bytes=2-4", 206, b"234", "bytes 2-4/12"),
        ("bytes=10-", 206, b"\xff\n", "bytes 10-11/12"),
        ("bytes=9-99", 206, b"9\xff\n", "bytes 9-11/12"),
        ("bytes=-3", 206, b"9\xff\n", "bytes 9-11/12"),
        ("bytes=12-", 416, b"", "bytes */12"),
        ("bytes=5-4", 400, b"", ""),
        ("nonsense", 400, b"", ""),
    ];
    for (range, status, body, content_range) in table {
        let reply = get(range);
        assert_eq!(reply.status, status, "{range}");
        if status != 400 {
            assert_eq!(reply.body, body, "{range}");
            assert_eq!(reply.headers["content-range"], content_range, "{range}");
        }
    }
    assert_eq!(program.call(PORT, &format!("DELETE {ALL}/a"), "").status, 200);
    assert_eq!(program.call(PORT, &path, "").status, 404);
}

/// The later form of the original: a log without output is an empty body.
#[test]
fn as_85_an_empty_log_is_an_empty_body() {
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "exec sleep 1000", "");
    create(&program, "a", &json!({"options": ""}));
    let path = format!("GET {ALL}/a/log");
    let whole = program.call(PORT, &path, "");
    assert_eq!((whole.status, whole.body.len()), (200, 0));
    assert!(!whole.headers.contains_key("content-range"));
    let tail = program.call_with(PORT, &path, &[("Range", "bytes=-4096")], "");
    assert_eq!((tail.status, tail.headers["content-range"].as_str()), (416, "bytes */0"));
}

#[test]
fn as_64_a_watch_resumes_where_it_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "exec sleep 1000", "");
    create(&program, "a", &json!({"options": ""}));
    let mut fresh = Watch::open(&program, PORT, "");
    let mut resumed = Watch::open(&program, PORT, "?since=0");
    assert_eq!(fresh.next().unwrap().0, "CREATED");
    assert_eq!(resumed.next().unwrap().1["object"]["revision"], 1);
    program.call(PORT, &format!("DELETE {ALL}/a"), "");
    for watch in [&mut fresh, &mut resumed] {
        let (kind, event) = watch.next().unwrap();
        assert_eq!(kind, "DELETED", "an explicit stop has no STOPPED");
        assert_eq!(event["object"]["revision"], 2);
        assert!(event.get("revision").is_none());
    }
    drop(fresh);
    let mut late = Watch::open(&program, PORT, "?since=1");
    assert_eq!(late.next().unwrap().0, "DELETED");
    let path = format!("GET {ALL}/watch?since=x");
    assert_eq!(program.call(PORT, &path, "").status, 422);
    let path = format!("GET {ALL}/watch?since=3");
    assert_eq!(program.call(PORT, &path, "").status, 410, "of another run of the launcher");
    // A launcher that stops ends its watches.
    program.signal(Signal::TERM);
    assert!(late.next().is_none());
}

#[test]
fn as_65_an_end_by_itself_is_told_with_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "echo $1; kill -$1 $$; exit 7", "");
    let mut watch = Watch::open(&program, PORT, "");
    for (id, options, code) in [("a", "KILL", -9), ("b", "0", 7)] {
        create(&program, id, &json!({"options": options}));
        assert_eq!(watch.next().unwrap().0, "CREATED");
        let (kind, event) = watch.next().unwrap();
        assert_eq!((kind.as_str(), &event["exit_code"]), ("STOPPED", &json!(code)));
        assert_eq!(event["object"]["status"], "stopped");
        // Its log is there until it is deleted.
        assert_eq!(log(&program, id), format!("{options}\n").as_bytes());
        let state = program.call(PORT, &format!("GET {ALL}/{id}"), "").json();
        assert_eq!(state["status"], "stopped");
        assert_eq!(program.call(PORT, &format!("DELETE {ALL}/{id}"), "").status, 200);
        assert_eq!(watch.next().unwrap().0, "DELETED");
    }
}

/// SIGTERM goes to the root; what ignores it, leaves the group, or forks again is killed, and the
/// deletion is answered when nothing is left. Other requests are served meanwhile.
#[test]
fn as_60_no_process_survives_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'echo term' TERM\n\
                  setsid sleep 1001 & echo $!\n\
                  (sleep 1002 & echo $!; exec sleep 1003) & echo $!\n\
                  while :; do sleep 0.01; done";
    let program = with_script(folder.path(), script, "--stop-seconds 1");
    create(&program, "a", &json!({"options": ""}));
    let processes: Vec<i32> =
        log_lines(&program, "a", 3).iter().take(3).map(|it| it.parse().unwrap()).collect();
    assert!(processes.iter().all(|it| is_alive(*it)));
    let deletion = program.send(PORT, &format!("DELETE {ALL}/a"), &[], "");
    while !log_lines(&program, "a", 3).contains(&"term".to_owned()) {}
    assert_eq!(program.call(PORT, &format!("GET {ALL}/a"), "").status, 200, "it is not blocked");
    assert_eq!(super::Reply::read(deletion).status, 200);
    assert_eq!(processes.iter().filter(|it| is_alive(**it)).count(), 0);
}

/// The root of an engine is killed: its core is gone and the accelerator is free before anybody is
/// told, and the instance can be replaced.
#[test]
fn as_70_a_killed_root_leaves_no_process_and_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("GANTRY_ACCELERATOR_LEDGERS", folder.path().to_str().unwrap())];
    let mut program = started("--mock-gpu-count 1", &variables);
    let ledger = Ledger::of(folder.path(), "GPU-0").unwrap();
    let mut watch = Watch::open(&program, PORT, "?events=all");
    let body = json!({"options": format!("--port {ENGINE}"), "gpu_uuids": ["GPU-0"]});
    create(&program, "a", &body);
    assert_eq!(watch.next().unwrap().0, "CREATED");
    assert_eq!(watch.next().unwrap().0, "READY");
    assert_eq!(ledger.read().unwrap().held().len(), 1);
    let line = program.wait_for("started instance a as process ");
    let root: i32 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let mut cores = String::new();
    for task in std::fs::read_dir(format!("/proc/{root}/task")).unwrap() {
        cores.push_str(&std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    }
    let core: i32 = cores.trim().parse().unwrap();
    kill_process(Pid::from_raw(root).unwrap(), Signal::KILL).unwrap();
    let (kind, event) = watch.next().unwrap();
    assert_eq!((kind.as_str(), &event["exit_code"]), ("STOPPED", &json!(-9)));
    assert!(!is_alive(root) && !is_alive(core), "a process is left");
    assert_eq!(ledger.read().unwrap().used(), 0, "memory is left");
    assert_eq!(program.call(PORT, &format!("DELETE {ALL}/a"), "").status, 200);
    assert_eq!(watch.next().unwrap().0, "DELETED");
    create(&program, "a", &body);
    assert_eq!(watch.next().unwrap().0, "CREATED");
    assert_eq!(watch.next().unwrap().0, "READY");
    // Stopping the launcher stops all.
    assert_eq!(program.stop(), 0);
    assert_eq!(ledger.read().unwrap().used(), 0);
}

/// A late call of a controller that has died is refused; those of the newest binding are forwarded,
/// and so are those that are not fenced.
#[test]
fn as_69_a_call_for_an_older_binding_is_refused() {
    let program = started("", &[("VLLM_SERVER_DEV_MODE", "1")]);
    let mut watch = Watch::open(&program, PORT, "?events=all");
    let boot = program.call(PORT, &format!("GET {ALL}"), "").json()["boot_id"].clone();
    let boot = boot.as_str().unwrap();
    let call = |request: &str, binding: &str, boot: &str, body: &str| {
        let headers = [("Gantry-Binding", binding), ("Gantry-Boot-Id", boot)];
        let headers: Vec<_> = headers.into_iter().filter(|it| !it.1.is_empty()).collect();
        program.call_with(PORT, request, &headers, body).status
    };
    let body = json!({"options": format!("--port {ENGINE}")}).to_string();
    let (put, delete) = (format!("PUT {ALL}/a"), format!("DELETE {ALL}/a"));
    // A deletion of what is not there counts: a creation that is late comes to nothing.
    assert_eq!(call(&delete, "u1/3", boot, ""), 404);
    assert_eq!(call(&put, "u1/2", boot, &body), 412);
    assert_eq!(call(&put, "u1/4", "of another run", &body), 412);
    assert_eq!(call(&put, "u1/x", boot, &body), 400);
    assert_eq!(call(&put, "u1/3", boot, &body), 201);
    assert_eq!(
        (watch.next().unwrap().0, watch.next().unwrap().0),
        ("CREATED".into(), "READY".into())
    );
    let is_sleeping = || {
        program.call(PORT, &format!("GET {ALL}/a/is_sleeping"), "").json()["is_sleeping"] == true
    };
    let table = [
        ("sleep", "", "", 200, true),
        ("wake_up", "", "", 200, false),
        ("sleep", "u1", boot, 400, false),
        ("sleep?level=1", "u1/3", boot, 200, true),
        ("wake_up", "u2/4", boot, 200, false),
        ("sleep", "u1/3", boot, 412, false),
        ("sleep", "u2/4", "of another run", 412, false),
        // The launcher is bound to nobody; the counter is that of the end of the binding.
        ("sleep", "/4", boot, 200, true),
    ];
    for (name, binding, boot, status, asleep) in table {
        let request = format!("POST {ALL}/a/{name}");
        assert_eq!(call(&request, binding, boot, ""), status, "{name} {binding:?}");
        assert_eq!(is_sleeping(), asleep, "{name} {binding:?}");
    }
    assert_eq!(call(&delete, "u1/3", boot, ""), 412);
    assert_eq!(call(&delete, "u2/4", boot, ""), 200);
    assert_eq!(program.call(PORT, &format!("GET {ALL}/none/is_sleeping"), "").status, 404);
    assert_eq!(program.call(PORT, &format!("DELETE {ALL}/a/sleep"), "").status, 405);
}

/// An instance whose process is started while a deletion of a newer binding is answered with 404
/// must not be there afterwards, whichever comes first.
#[test]
fn as_69_a_creation_that_is_overtaken_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "exec sleep 1000", "");
    let body = json!({"options": ""}).to_string();
    for round in 0..20 {
        let older = format!("u/{}", 2 * round + 1);
        let newer = format!("u/{}", 2 * round + 2);
        let put = format!("PUT {ALL}/a");
        let creation = program.send(PORT, &put, &[("Gantry-Binding", &older)], &body);
        let delete = format!("DELETE {ALL}/a");
        let deleted = program.call_with(PORT, &delete, &[("Gantry-Binding", &newer)], "").status;
        let created = super::Reply::read(creation).status;
        let found = program.call(PORT, &format!("GET {ALL}/a"), "").status;
        assert_eq!(found, 404, "created {created}, deleted {deleted}");
        assert!(matches!((created, deleted), (201, 200) | (412, 404)), "{created} {deleted}");
    }
}

#[test]
fn a_token_guards_everything_but_the_health() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret").unwrap();
    let program = started("", &[("GANTRY_TOKEN_FILE", file.to_str().unwrap())]);
    assert_eq!(program.call(PORT, "GET /health", "").status, 200);
    assert_eq!(program.call(PORT, &format!("GET {ALL}"), "").status, 401);
    let headers = [("Authorization", "Bearer secret")];
    assert_eq!(program.call_with(PORT, &format!("GET {ALL}"), &headers, "").status, 200);
}

/// A module whose import takes two seconds is imported once, before the first request, and not
/// again for an engine.
#[test]
fn engines_are_forked_from_a_process_that_has_imported_their_modules() {
    if !["/usr/bin/python3", "/usr/local/bin/python3"].iter().any(|it| Path::new(it).exists()) {
        println!("skipped: there is no python3, of which the zygote is made");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let module = "import os, sys, time\n\
                  time.sleep(2)\n\
                  print('imported', flush=True)\n\
                  def main():\n\
                  \x20   print(sys.argv[1:], os.environ['A'], os.getpgid(0) == os.getpid())\n\
                  \x20   print('\\xff', file=sys.stderr, flush=True)\n\
                  \x20   if '--fail' in sys.argv: raise ValueError('asked for')\n\
                  \x20   if '--code' in sys.argv: sys.exit(5)\n\
                  \x20   time.sleep(1000)\n";
    std::fs::write(folder.path().join("slowmodule.py"), module).unwrap();
    let variables =
        [("PYTHONPATH", folder.path().to_str().unwrap()), ("PYTHONIOENCODING", "latin-1")];
    let words = "launcher --mock-gpus --mode zygote --zygote-preload slowmodule \
                 --zygote-entry slowmodule:main";
    let mut program = Program::start(words, &variables);
    program.wait_for("imported");
    program.wait_for("listening on");
    let body = json!({"options": "--x 'y z'", "env_vars": {"A": "b"}});
    create(&program, "a", &body);
    let expected = b"['--x', \"'y\", \"z'\"] b True\n\xff\n";
    let _ = (0..MAX_READS).any(|_| log(&program, "a").len() >= expected.len());
    assert_eq!(log(&program, "a"), expected, "the module is not imported again");
    let mut watch = Watch::open(&program, PORT, "");
    assert_eq!(watch.next().unwrap().0, "CREATED");
    for (id, options, code) in [("b", "--fail", 1), ("c", "--code", 5)] {
        create(&program, id, &json!({"options": options, "env_vars": {"A": "c"}}));
        assert_eq!(watch.next().unwrap().0, "CREATED");
        assert_eq!(watch.next().unwrap().1["exit_code"], code, "{options}");
    }
    let text = String::from_utf8_lossy(&log(&program, "b")).into_owned();
    assert!(text.contains("ValueError: asked for"), "{text}");
    let line = loop {
        let line = program.wait_for("started instance a");
        if line.contains(" a as") {
            break line;
        }
    };
    let process: i32 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(is_alive(process));
    assert_eq!(program.call(PORT, &format!("DELETE {ALL}/a"), "").status, 200);
    assert!(!is_alive(process));
}
