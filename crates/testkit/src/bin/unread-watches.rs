//! Opens very many watches that no client reads, and measures their cost for the server and its
//! other clients.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::crash::gantry_program;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Protocol, Request, Stream};
use serde_json::{Value, json};

const USAGE: &str = "usage: unread-watches [--watches N] [--objects N] [--bytes N] [--program PATH]

The program is the gantry beside this one unless it is named: build it first with
`cargo build --release --package gantry`. Fails if the watches cost more than 300 MB of memory, or \
if
the slowest hundredth of other requests takes more than five times as long as without them.";

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Requests of other clients in one measurement.
const SAMPLES: usize = 2_000;
/// Of ten watches, how many share a connection; the others have one of their own.
const SHARED_OF_TEN: usize = 6;
/// Streams of one connection: the limit of common servers.
const STREAMS: usize = 100;
const MEMORY_BOUND: u64 = 300 << 20;
const SLOWER_BOUND: f64 = 5.0;

struct Measurement {
    watches: usize,
    objects: usize,
    bytes: usize,
    program: std::path::PathBuf,
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(measurement) = Measurement::read(std::env::args().skip(1)) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    match Box::pin(measurement.run(&Clock::system())).await {
        Ok(report) => {
            let _ = writeln!(io::stdout(), "{report}");
            if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(fault) => {
            let _ = writeln!(io::stderr(), "{fault}");
            ExitCode::FAILURE
        }
    }
}

impl Measurement {
    fn read(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let program = gantry_program(&std::env::current_exe().ok()?);
        let mut measurement = Self { watches: 1_000, objects: 100, bytes: 900_000, program };
        while let Some(name) = arguments.next() {
            let value = arguments.next()?;
            match name.as_str() {
                "--watches" => measurement.watches = value.parse().ok()?,
                "--objects" => measurement.objects = value.parse().ok()?,
                "--bytes" => measurement.bytes = value.parse().ok()?,
                "--program" => measurement.program = value.into(),
                _ => return None,
            }
        }
        Some(measurement)
    }

    async fn run(&self, clock: &Clock) -> Result<Report, Failure> {
        let plan = Plan::new(&self.program).flag("--ephemeral");
        let server = plan.start(clock).await?;
        let client = Client::new(server.target(), Protocol::Http2, clock.clone())?;
        for nth in 0..self.objects {
            let name = format!("large-{nth}");
            send(&client, Request::post(CONFIG_MAPS, &map(&name, self.bytes))).await?;
        }
        // Rewritten once, so that the store retains as much history as it ever does.
        self.rewrite(&client, 1).await?;
        send(&client, Request::post(CONFIG_MAPS, &map("small", 10))).await?;
        let normal = slowest(&client, clock).await?;
        let idle = resident(&server)?;
        let unread = self.open(&server, clock).await?;
        let listed = resident(&server)?;
        let disturbed = slowest(&client, clock).await?;
        self.rewrite(&client, 2).await?;
        let after_events = resident(&server)?;
        let disturbed = disturbed.max(slowest(&client, clock).await?);
        let watches = unread.len();
        drop(unread);
        Ok(Report { watches, idle, listed, after_events, normal, disturbed })
    }

    async fn rewrite(&self, client: &Client, round: usize) -> Result<(), Failure> {
        for nth in 0..self.objects {
            let path = format!("{CONFIG_MAPS}/large-{nth}");
            let labels = json!({ "metadata": { "labels": { "round": round.to_string() } } });
            send(client, Request::patch(path, "application/merge-patch+json", &labels)).await?;
        }
        Ok(())
    }

    async fn open(
        &self,
        server: &EmbeddedServer,
        clock: &Clock,
    ) -> Result<Vec<(Stream, Client)>, Failure> {
        let connect = |protocol| Client::new(server.target(), protocol, clock.clone());
        let path = format!("{CONFIG_MAPS}?watch=1");
        let mut unread = Vec::new();
        let mut shared = connect(Protocol::Http2)?;
        for nth in 0..self.watches {
            if nth % STREAMS == 0 {
                shared = connect(Protocol::Http2)?;
            }
            let client = match nth % 10 < SHARED_OF_TEN {
                true => shared.clone(),
                false => connect(Protocol::Http1)?,
            };
            let stream = client.open(Request::get(path.as_str())).await?;
            if !stream.status.is_success() {
                return Err(format!("watch {nth} was refused: {}", stream.status).into());
            }
            unread.push((stream, client));
        }
        Ok(unread)
    }
}

fn map(name: &str, bytes: usize) -> Value {
    json!({ "metadata": { "name": name }, "data": { "text": "x".repeat(bytes) } })
}

async fn send(client: &Client, request: Request) -> Result<(), Failure> {
    let answer = client.send(request).await?;
    if answer.status.is_success() {
        return Ok(());
    }
    Err(format!("{}: {}", answer.status, answer.text()).into())
}

/// Returns the 99th percentile of the latency of a small client's requests.
async fn slowest(client: &Client, clock: &Clock) -> Result<Duration, Failure> {
    let mut times = Vec::with_capacity(SAMPLES);
    for nth in 0..SAMPLES {
        let began = clock.moment();
        let path = format!("{CONFIG_MAPS}/small");
        let change = json!({ "data": { "text": nth.to_string() } });
        let request = match nth % 4 {
            0 => Request::patch(path, "application/merge-patch+json", &change),
            _ => Request::get(path),
        };
        send(client, request).await?;
        times.push(clock.moment() - began);
    }
    times.sort_unstable();
    Ok(times[SAMPLES - SAMPLES / 100])
}

fn resident(server: &EmbeddedServer) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.ok_or("the system does not say how much memory the server has")? << 10)
}

/// The measurements.
struct Report {
    watches: usize,
    idle: u64,
    listed: u64,
    after_events: u64,
    normal: Duration,
    disturbed: Duration,
}

impl Report {
    fn ratio(&self) -> f64 {
        self.disturbed.as_secs_f64() / self.normal.as_secs_f64()
    }

    fn holds(&self) -> bool {
        self.listed.max(self.after_events) < self.idle + MEMORY_BOUND && self.ratio() < SLOWER_BOUND
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes / 1_000_000;
        writeln!(
            f,
            "memory: {} MB idle, {} MB with {} unread watches, {} MB after all objects changed",
            mb(self.idle),
            mb(self.listed),
            self.watches,
            mb(self.after_events)
        )?;
        let (normal, disturbed) = (self.normal, self.disturbed);
        write!(f, "p99 of others: {normal:?} and {disturbed:?}, {:.1} times", self.ratio())
    }
}
