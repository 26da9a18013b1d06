//! Probes, the interface of controllers, and the proxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use gantry_engine::ledger::Ledger;
use serde_json::json;

use super::Program;

const PROBES: u16 = 8080;
const SPI: u16 = 8081;
const PROXY: u16 = 8082;

fn started(variables: &[(&str, &str)]) -> Program {
    let mut program = Program::start("requester", variables);
    program.wait_for("requester: probes on");
    program
}

#[test]
fn as_46_readiness_toggles() {
    let program = started(&[]);
    let table = [
        (PROBES, "GET /ready", 503, "Service Unavailable\n"),
        (SPI, "POST /v1/become-ready", 200, "OK\n"),
        (PROBES, "GET /ready", 200, "OK\n"),
        (SPI, "POST /v1/become-ready", 200, "OK\n"),
        (SPI, "POST /v1/become-unready", 200, "OK\n"),
        (PROBES, "GET /ready", 503, "Service Unavailable\n"),
        (PROBES, "POST /ready", 405, "Method Not Allowed\n"),
        (SPI, "GET /v1/become-ready", 405, "Method Not Allowed\n"),
        (SPI, "GET /ready", 404, "404 page not found\n"),
        (PROBES, "GET /other", 404, "404 page not found\n"),
    ];
    for (port, request, status, body) in table {
        let reply = program.call(port, request, "");
        assert_eq!((reply.status, reply.text().as_str()), (status, body), "{request}");
    }
    assert_eq!(program.stop(), 0);
}

#[test]
fn as_46_accelerators_are_those_of_the_vendor_tool() {
    let folder = tempfile::tempdir().unwrap();
    for (index, uuid) in [(0, "GPU-a"), (1, "GPU-b")] {
        Ledger::of(folder.path(), uuid).unwrap().describe(index, 1 << 20).unwrap();
    }
    let directory = folder.path().to_str().unwrap();
    let mut program = Program::start(
        "/app/requester",
        &[("GANTRY_ACCELERATOR_LEDGERS", directory), ("NVIDIA_VISIBLE_DEVICES", "GPU-b")],
    );
    program.wait_for("requester: probes on");
    let path = "GET /v1/dual-pods/accelerators";
    // Found once, by a task that may not have run yet.
    let mut reply = program.call(SPI, path, "");
    while reply.status == 500 {
        reply = program.call(SPI, path, "");
    }
    assert_eq!(reply.json(), json!(["GPU-b"]));
    let usage = program.call(SPI, "GET /v1/dual-pods/accelerator-memory-usage", "");
    assert_eq!(usage.json(), json!({"GPU-b": 0}));
    let without = started(&[("PATH", "/nowhere")]);
    for path in [path, "GET /v1/dual-pods/accelerator-memory-usage"] {
        assert_eq!(without.call(SPI, path, "").status, 500);
    }
}

#[test]
fn as_47_a_relayed_log_is_printed_once() {
    let mut program = started(&[]);
    // Chunks end with lines: another task writes lines of its own in between.
    let table = [
        ("POST /v1/set-log?startPos=0", "one\n", 200),
        ("POST /v1/set-log?startPos=2", "e\ntwo\n", 200),
        ("POST /v1/set-log?startPos=0", "one\n", 200),
        ("POST /v1/set-log?startPos=9", "x", 400),
        ("POST /v1/set-log?startPos=-1", "x", 400),
        ("POST /v1/set-log", "x", 400),
        ("POST /v1/set-log?startPos=8", "end\n", 200),
    ];
    for (request, body, status) in table {
        assert_eq!(program.call(SPI, request, body).status, status, "{request}");
    }
    let lines = ["one", "two", "end"].map(|it| program.wait_for(it));
    assert_eq!(lines, ["one\n", "two\n", "end\n"]);
}

#[test]
fn as_49_the_proxy_is_configured_once() {
    let program = started(&[]);
    let target = SocketAddr::from((program.address, PROXY));
    TcpStream::connect(target).unwrap_err();
    let engine = TcpListener::bind((program.address, 0)).unwrap();
    let port = engine.local_addr().unwrap().port();
    let body = json!({"address": program.address.to_string(), "port": port}).to_string();
    let path = "/v1/proxy/config";
    assert_eq!(program.call(SPI, &format!("GET {path}"), "").status, 404);
    for bad in [
        "nonsense",
        "{}",
        r#"{"address":"","port":1}"#,
        r#"{"address":"a","port":0}"#,
        r#"{"address":"a","port":70000}"#,
    ] {
        assert_eq!(program.call(SPI, &format!("PUT {path}"), bad).status, 400, "{bad}");
    }
    assert_eq!(program.call(SPI, &format!("DELETE {path}"), "").status, 405);
    assert_eq!(program.call(SPI, &format!("PUT {path}"), &body).status, 200);
    assert_eq!(program.call(SPI, &format!("GET {path}"), "").text(), body);
    let mut client = TcpStream::connect(target).unwrap();
    client.write_all(b"ping").unwrap();
    let (mut served, _) = engine.accept().unwrap();
    let mut heard = [0; 4];
    served.read_exact(&mut heard).unwrap();
    served.write_all(b"pong").unwrap();
    drop(served);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!((&heard, answer.as_str()), (b"ping", "pong"));
}

#[test]
fn as_82_the_same_target_is_accepted_again_and_another_is_refused() {
    let program = started(&[]);
    let put = |body: &str| program.call(SPI, "PUT /v1/proxy/config", body).status;
    let table = [
        (r#"{"address":"127.0.0.1","port":1}"#, 200),
        (r#"{"port":1,"address":"127.0.0.1"}"#, 200),
        (r#"{"address":"127.0.0.1","port":2}"#, 409),
        (r#"{"address":"127.0.0.2","port":1}"#, 409),
        (r#"{"address":"127.0.0.1","port":1}"#, 200),
    ];
    for (body, status) in table {
        assert_eq!(put(body), status, "{body}");
    }
}

#[test]
fn as_48_ports_that_are_taken_have_their_exit_codes() {
    let first = started(&[]);
    let own = first.address.to_string();
    let taken = [("GANTRY_POD_ADDRESS", own.as_str())];
    assert_eq!(Program::start("requester", &taken).end(), 10);
    assert_eq!(Program::start("requester --spi-port 9", &taken).end(), 11);
    assert_eq!(Program::start("requester", &[("PROBES_PORT", "x")]).end(), 2);
    assert_eq!(Program::start("requester --proxy-dial-timeout nope", &[]).end(), 2);
    assert_eq!(first.stop(), 0);
}

#[test]
fn a_token_guards_the_interface_of_controllers_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret\n").unwrap();
    let program = started(&[("GANTRY_TOKEN_FILE", file.to_str().unwrap())]);
    let ready = "POST /v1/become-ready";
    let authorized =
        |token: &str| program.call_with(SPI, ready, &[("Authorization", token)], "").status;
    assert_eq!(program.call(SPI, ready, "").status, 401);
    for wrong in ["Bearer secre", "Bearer secret2", "secret", "Basic secret"] {
        assert_eq!(authorized(wrong), 401, "{wrong}");
    }
    assert_eq!(program.call(PROBES, "GET /ready", "").status, 503);
    assert_eq!(authorized("Bearer secret"), 200);
    assert_eq!(program.call(PROBES, "GET /ready", "").status, 200);
    std::fs::write(&file, " \n").unwrap();
    let empty = [("GANTRY_TOKEN_FILE", file.to_str().unwrap())];
    assert_eq!(Program::start("requester", &empty).end(), 2);
}
