//! What the launcher answers at its bounds and when something beside it fails; and how fast it is.

use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gantry_engine::ledger::Ledger;
use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::launcher::{ALL, ENGINE, PORT, create, log, started, with_script};
use super::{Program, Watch, read_head};

/// How long the accelerator of a killed engine may be taken.
const FREE_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn as_58_the_index_names_every_endpoint_with_its_method() {
    let program = started("", &[]);
    let index = program.call(PORT, "GET /", "").json();
    let one = "/v2/vllm/instances/{instance_id}";
    let expected = json!({
        "index": "GET /",
        "health": "GET /health",
        "create_instance": "POST /v2/vllm/instances",
        "create_named_instance": format!("PUT {one}"),
        "delete_instance": format!("DELETE {one}"),
        "delete_all_instances": "DELETE /v2/vllm/instances",
        "get_instance_status": format!("GET {one}"),
        "get_all_instances": "GET /v2/vllm/instances",
        "get_instance_logs": format!("GET {one}/log"),
        "watch_instances": "GET /v2/vllm/instances/watch",
    });
    assert_eq!(index["endpoints"], expected);
}

/// A program that cannot be executed: the request fails, and nothing of it is left.
#[test]
fn as_58_an_engine_that_cannot_be_started_is_500() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("engine");
    std::fs::write(&file, "not a program").unwrap();
    let command = file.display().to_string();
    let words = ["launcher", "--mock-gpus", "--mode", "exec", "--engine-command", &command];
    let mut program = Program::start_words(&words, &[]);
    program.wait_for("listening on");
    for request in [format!("PUT {ALL}/a"), format!("POST {ALL}")] {
        let reply = program.call(PORT, &request, r#"{"options":""}"#);
        assert_eq!(reply.status, 500, "{request}: {reply:?}");
        assert!(reply.text().starts_with(r#"{"detail":"could not start instance "#), "{reply:?}");
    }
    let list = program.call(PORT, &format!("GET {ALL}"), "").json();
    assert_eq!((&list["total_instances"], &list["revision"]), (&json!(0), &json!(0)));
}

/// How often a watch is tried at the most until one that was closed has been noticed.
const MAX_ATTEMPTS: usize = 10_000;

#[test]
fn as_64_the_sixty_fifth_watch_is_503_until_one_ends() {
    let program = started("", &[]);
    let mut watches: Vec<Watch> = (0..64).map(|_| Watch::open(&program, PORT, "")).collect();
    let path = format!("GET {ALL}/watch");
    let refused = program.call(PORT, &path, "");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.text(), r#"{"detail":"there are 64 watches already"}"#);
    assert_eq!(program.call(PORT, "GET /health", "").status, 200, "others are served");
    drop(watches.pop());
    assert_eq!(watches.len(), 63);
    // The launcher notices that it is closed a moment later.
    let is_accepted = |_| {
        let (status, _) = read_head(&mut BufReader::new(program.send(PORT, &path, &[], "")));
        assert!(matches!(status, 200 | 503), "{status}");
        status == 200
    };
    assert!((0..MAX_ATTEMPTS).any(is_accepted), "a closed watch was not noticed");
}

/// The buffer has the last 1000 events: a watch from before them is refused, and one that reads
/// all along gets every event.
#[test]
fn as_64_a_revision_that_left_the_buffer_is_410() {
    const ROUNDS: u64 = 510;
    let folder = tempfile::tempdir().unwrap();
    let program = with_script(folder.path(), "exec sleep 1000", "");
    let mut quick = Watch::open(&program, PORT, "");
    let reader = std::thread::spawn(move || {
        let mut last = 0;
        while last < 2 * ROUNDS {
            let (_, event) = quick.next().unwrap();
            assert_eq!(event["object"]["revision"], last + 1, "an event is missing");
            last += 1;
        }
        last
    });
    for _ in 0..ROUNDS {
        create(&program, "a", &json!({"options": ""}));
        assert_eq!(program.call(PORT, &format!("DELETE {ALL}/a"), "").status, 200);
    }
    assert_eq!(reader.join().unwrap(), 2 * ROUNDS);
    for since in [0, 2 * ROUNDS - 1001, 2 * ROUNDS + 1] {
        let reply = program.call(PORT, &format!("GET {ALL}/watch?since={since}"), "");
        assert_eq!(reply.status, 410, "since {since}: {reply:?}");
        assert!(reply.text().starts_with(r#"{"detail":"#), "{reply:?}");
    }
    let mut resumed = Watch::open(&program, PORT, &format!("?since={}", 2 * ROUNDS - 1000));
    assert_eq!(resumed.next().unwrap().1["object"]["revision"], 2 * ROUNDS - 999);
}

/// Writes a vendor tool into a folder of programs.
fn vendor_tool(folder: &Path, script: &str) -> String {
    let file = folder.join("nvidia-smi");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", folder.display())
}

#[test]
fn as_58_the_output_of_the_vendor_tool_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = vendor_tool(folder.path(), "echo one accelerator; exit 3");
    let program = started("", &[("PATH", &path)]);
    let reply = program.call(PORT, "GET /v2/gpu-debug", "");
    let expected = json!({"stdout": "one accelerator\n", "stderr": "", "returncode": 3});
    assert_eq!((reply.status, reply.json()), (200, expected));
}

#[test]
fn as_58_a_vendor_tool_that_hangs_is_504_and_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = vendor_tool(folder.path(), "exec sleep 1000");
    let program = started("", &[("PATH", &path)]);
    let asked = program.send(PORT, "GET /v2/gpu-debug", &[], "");
    assert_eq!(program.call(PORT, &format!("GET {ALL}"), "").status, 200);
    let reply = super::Reply::read(asked);
    assert_eq!(reply.status, 504, "{reply:?}");
}

/// The root of an engine is killed: its accelerator is free within five seconds.
#[test]
fn as_70_the_ledger_of_a_killed_root_is_free_within_five_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("GANTRY_ACCELERATOR_LEDGERS", folder.path().to_str().unwrap())];
    let mut program = started("--mock-gpu-count 1", &variables);
    let ledger = Ledger::of(folder.path(), "GPU-0").unwrap();
    let mut watch = Watch::open(&program, PORT, "?events=all");
    let body = json!({"options": format!("--port {ENGINE}"), "gpu_uuids": ["GPU-0"]});
    create(&program, "a", &body);
    while watch.next().unwrap().0 != "READY" {}
    assert!(ledger.read().unwrap().used() > 0);
    let line = program.wait_for("started instance a as process ");
    let root: i32 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let clock = Clock::system();
    let killed = clock.moment();
    kill_process(Pid::from_raw(root).unwrap(), Signal::KILL).unwrap();
    while ledger.read().unwrap().used() > 0 {
        assert!(clock.moment() - killed < FREE_WITHIN, "memory is left: {:?}", ledger.read());
    }
}

/// Importing the module takes two seconds, once; a start takes what a fork takes, which is printed.
#[test]
fn the_time_of_a_start_from_the_zygote_is_printed() {
    const STARTS: u32 = 5;
    if !["/usr/bin/python3", "/usr/local/bin/python3"].iter().any(|it| Path::new(it).exists()) {
        println!("skipped: there is no python3, of which the zygote is made");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let module = "import os, time\n\
                  time.sleep(2)\n\
                  with open(os.environ['IMPORTS'], 'a') as file: file.write('imported\\n')\n\
                  def main():\n\
                  \x20   print('runs', flush=True)\n\
                  \x20   time.sleep(1000)\n";
    std::fs::write(folder.path().join("slowmodule.py"), module).unwrap();
    let imports = folder.path().join("imports");
    let variables =
        [("PYTHONPATH", folder.path().to_str().unwrap()), ("IMPORTS", imports.to_str().unwrap())];
    let words = "launcher --mock-gpus --mode zygote --zygote-preload slowmodule \
                 --zygote-entry slowmodule:main";
    let mut program = Program::start(words, &variables);
    program.wait_for("listening on");
    let clock = Clock::system();
    for number in 0..STARTS {
        let id = format!("i{number}");
        let began = clock.moment();
        create(&program, &id, &json!({"options": ""}));
        while log(&program, &id) != b"runs\n" {}
        let took = clock.moment() - began;
        println!("start {number} took {:.3} s; the goal is below 0.2 s", took.as_secs_f64());
    }
    assert_eq!(std::fs::read_to_string(&imports).unwrap(), "imported\n", "imported once");
}
