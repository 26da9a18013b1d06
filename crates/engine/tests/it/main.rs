//! The programs as they are used: real processes, real requests.
#![expect(clippy::unwrap_used, reason = "a test that cannot start a program should fail loudly")]

mod controllers;
mod engine;
mod launcher;
mod launcher_limits;
mod requester;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use gantry_process::descendants::Family;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything takes; a test that waits for it has failed.
const LIMIT: Duration = Duration::from_secs(120);

/// An address of this machine that no other test has.
fn address() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let [.., process] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | (process >> 1), high ^ (process << 7), low)
}

/// A program of this crate that runs.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
    address: Ipv4Addr,
    /// With whatever it leaves behind.
    family: Family,
}

impl Program {
    /// Starts a program with an address of its own.
    fn start(words: &str, variables: &[(&str, &str)]) -> Self {
        let words: Vec<&str> = words.split_whitespace().collect();
        Self::start_words(&words, variables)
    }

    fn start_words(words: &[&str], variables: &[(&str, &str)]) -> Self {
        let address = address();
        let mark = format!("{}.{address}", std::process::id());
        let mut child = Command::new(env!("CARGO_BIN_EXE_gantry-programs"))
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("GANTRY_POD_ADDRESS", address.to_string())
            .env("GANTRY_TEST_RUN", &mark)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let family = Family { root: None, mark: Some(format!("GANTRY_TEST_RUN={mark}")) };
        Self { child, output, address, family }
    }

    /// Reads output until a line contains a text, and returns that line.
    fn wait_for(&mut self, text: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "no {text:?} in {all}");
            if line.contains(text) {
                return line;
            }
            all.push_str(&line);
        }
    }

    fn call(&self, port: u16, request: &str, body: &str) -> Reply {
        Reply::read(self.send(port, request, &[], body))
    }

    fn call_with(&self, port: u16, request: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        Reply::read(self.send(port, request, headers, body))
    }

    /// Sends a request, `GET /path`, and returns the connection.
    fn send(&self, port: u16, request: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(SocketAddr::from((self.address, port))).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut head = format!(
            "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGTERM and returns the exit code.
    fn stop(mut self) -> i32 {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the end and returns the exit code; 128 plus the signal for one that was killed.
    fn end(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Until none is left that might have started another.
        while self.family.kill_once().is_ok_and(|it| !it.is_empty()) {
            std::thread::yield_now();
        }
    }
}

/// A response.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Reply {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader);
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|it| it == "chunked") {
            while let Some(chunk) = read_chunk(&mut reader) {
                body.extend(chunk);
            }
        } else {
            reader.read_to_end(&mut body).unwrap();
        }
        Self { status, headers, body }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn read_head(reader: &mut BufReader<TcpStream>) -> (u16, BTreeMap<String, String>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let pair = |line: &String| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    };
    (status, lines[1..].iter().filter_map(pair).collect())
}

/// Reads one chunk of a body; `None` at its end.
fn read_chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes).unwrap();
    bytes.truncate(size);
    (size > 0).then_some(bytes)
}

/// A watch of a launcher, line by line.
struct Watch(BufReader<TcpStream>);

impl Watch {
    fn open(program: &Program, port: u16, query: &str) -> Self {
        let path = format!("GET /v2/vllm/instances/watch{query}");
        let mut reader = BufReader::new(program.send(port, &path, &[], ""));
        let (status, headers) = read_head(&mut reader);
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "application/x-ndjson");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["transfer-encoding"], "chunked");
        Self(reader)
    }

    /// The next event: its type, and itself.
    fn next(&mut self) -> Option<(String, Value)> {
        let event: Value = serde_json::from_slice(&read_chunk(&mut self.0)?).unwrap();
        Some((event["type"].as_str().unwrap().to_owned(), event))
    }
}

/// Whether a process is there, or threads of it are.
fn is_alive(process: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let fields: Vec<&str> = text[text.rfind(')').unwrap() + 1..].split_whitespace().collect();
    fields[0] != "Z" || fields[17].parse::<u32>().unwrap() > 1
}
