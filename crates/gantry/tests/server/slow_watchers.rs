//! Watchers that do not read.

use std::fs;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::EmbeddedServer;
use gantry_testkit::http::{Protocol, Request, Stream};
use http::HeaderValue;
use http::header::ACCEPT;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{CONFIG_MAPS, client, fill_event_window, get, make, plan, revision, rewrite};

const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
/// Watchers on shared connections.
const SHARED_CONNECTION_WATCHES: usize = 600;
/// Streams of one connection: what servers allow.
const STREAMS_PER_CONNECTION: usize = 100;
/// Watchers with a connection of their own.
const DEDICATED_CONNECTION_WATCHES: usize = 400;
/// What stalled watchers may cost altogether. The window they share may take 64 MiB of it; a copy
/// for each would take a thousand times 26 MB.
const MAX_MEMORY_GROWTH: u64 = 300 << 20;

pub(super) fn resident(server: &EmbeddedServer) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

pub(super) fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// Opens watches and does not read them.
async fn stall(
    server: &EmbeddedServer,
    connections: usize,
    each: usize,
    protocol: Protocol,
    after: u64,
) -> Vec<Stream> {
    let mut opening = JoinSet::new();
    for _ in 0..connections {
        let client = client(server, protocol);
        opening.spawn(async move {
            let mut open = Vec::new();
            for _ in 0..each {
                let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={after}");
                open.push(client.open(Request::get(path)).await.unwrap());
            }
            open
        });
    }
    opening.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_watchers_cost_little_and_expire() {
    let clock = Clock::system();
    let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
    let client = client(&server, Protocol::Http2);
    let after = revision(&make(&client, "busy", "").await);
    let began = clock.moment();
    fill_event_window(&client, "busy").await;
    let undisturbed = clock.moment() - began;
    let after = after.max(revision(&get(&client, CONFIG_MAPS).await));

    let mut stalled = stall(
        &server,
        SHARED_CONNECTION_WATCHES / STREAMS_PER_CONNECTION,
        STREAMS_PER_CONNECTION,
        Protocol::Http2,
        after,
    )
    .await;
    stalled.extend(stall(&server, DEDICATED_CONNECTION_WATCHES, 1, Protocol::Http1, after).await);
    let baseline = resident(&server);
    let reader = super::client(&server, Protocol::Http2);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={after}");
    let mut watch = reader.open(Request::get(path)).await.unwrap();
    let reading = async {
        let mut seen = 0;
        while seen < 2 * 1_100 {
            let line = watch.next_line(CONDITION_TIMEOUT).await.unwrap().unwrap();
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(line["type"], "MODIFIED", "the one who reads is told everything");
            seen += 1;
        }
    };
    let writing = async {
        let began = clock.moment();
        fill_event_window(&client, "busy").await;
        let took = clock.moment() - began;
        fill_event_window(&client, "busy").await;
        took
    };
    let ((), disturbed) = tokio::join!(reading, writing);
    let peak = resident(&server);
    println!(
        "1100 writes took {undisturbed:?} alone and {disturbed:?} with {} stalled watchers; \
         resident {} MB before, {} MB after",
        stalled.len(),
        mb(baseline),
        mb(peak)
    );
    assert!(peak < baseline + MAX_MEMORY_GROWTH, "{} MB became {} MB", mb(baseline), mb(peak));

    // A watch that is read again reports that events were missed, and how much must be read until
    // then is bounded by what was in progress when it stopped. All at once: on a shared connection,
    // one that does not read blocks the others.
    let mut reading = JoinSet::new();
    for watch in stalled {
        reading.spawn(read_to_the_end(watch, after));
    }
    reading.join_all().await;
}

/// Bytes of a large object.
const LARGE_OBJECT_BYTES: usize = 900_000;
/// Large objects, and watches that do not read them. A copy for each would be 1.3 GB.
const LARGE_OBJECTS: usize = 24;
const UNREAD: usize = 60;
/// What unread watches of large objects may cost: buffers of connections, and nothing of objects.
const MAX_UNREAD_MEMORY: u64 = 64 << 20;

fn large(seed: usize) -> String {
    format!("{seed:0>8}").repeat(LARGE_OBJECT_BYTES / 8)
}

/// The first list and the events of watches that do not read are shared with the store.
#[tokio::test(flavor = "multi_thread")]
async fn unread_watches_hold_no_objects() {
    let clock = Clock::system();
    let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
    let client = client(&server, Protocol::Http2);
    // Twice over what the window keeps, so that it does not grow while it is measured.
    for round in 0..4 {
        for nth in 0..LARGE_OBJECTS {
            let name = format!("large-{nth}");
            match round {
                0 => drop(make(&client, &name, &large(nth)).await),
                _ => drop(rewrite(&client, &name, &large(round * 100 + nth)).await),
            }
        }
    }
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let forms = ["application/json", metadata, table];
    let baseline = resident(&server);
    let mut unread = Vec::new();
    let shared = super::client(&server, Protocol::Http2);
    for nth in 0..UNREAD {
        let own = super::client(&server, Protocol::Http1);
        let client = if nth % 2 == 0 { &shared } else { &own };
        let path = format!("{CONFIG_MAPS}?watch=1&includeObject=Object");
        let accept = HeaderValue::from_static(forms[nth % forms.len()]);
        let request = Request::get(path).header(ACCEPT, accept);
        unread.push((client.open(request).await.unwrap(), own));
    }
    let listed = resident(&server);
    for round in 4..6 {
        for nth in 0..LARGE_OBJECTS {
            rewrite(&client, &format!("large-{nth}"), &large(round * 100 + nth)).await;
        }
    }
    let peak = resident(&server);
    println!(
        "{UNREAD} unread watches of {LARGE_OBJECTS} objects: resident {} MB, {} MB with the lists, \
         {} MB with events",
        mb(baseline),
        mb(listed),
        mb(peak)
    );
    assert!(listed < baseline + MAX_UNREAD_MEMORY, "{} MB became {} MB", mb(baseline), mb(listed));
    assert!(peak < baseline + MAX_UNREAD_MEMORY, "{} MB became {} MB", mb(baseline), mb(peak));
    assert_eq!(unread.len(), UNREAD, "all of them are still open");
    // A client that reads gets every object completely.
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5");
    let mut watch = super::client(&server, Protocol::Http2).open(Request::get(path)).await.unwrap();
    for _ in 0..LARGE_OBJECTS {
        let line = watch.next_line(CONDITION_TIMEOUT).await.unwrap().unwrap();
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["type"], "ADDED");
        if line["object"]["metadata"]["name"] != "kube-root-ca.crt" {
            assert_eq!(line["object"]["data"]["text"].as_str().unwrap().len(), LARGE_OBJECT_BYTES);
        }
    }
}

/// Reads a watch that has fallen behind: events in order, then the error that there were more. A
/// watch that was not read for a minute was closed, which on a slow machine may be before that.
async fn read_to_the_end(mut watch: Stream, mut last: u64) {
    let mut expired = false;
    loop {
        let line = match watch.next_line(CONDITION_TIMEOUT).await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_cut) => return,
        };
        assert!(!expired, "nothing follows");
        let line: Value = serde_json::from_slice(&line).unwrap();
        if line["type"] == "ERROR" {
            assert_eq!(line["object"]["code"], 410, "{line}");
            expired = true;
        } else {
            assert!(revision(&line["object"]) > last, "in order");
            last = revision(&line["object"]);
        }
    }
    assert!(expired, "it was told that it missed something");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_watchers_cost_little() {
    const WATCHERS: usize = 10_000;
    let clock = Clock::system();
    let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
    let client = client(&server, Protocol::Http2);
    let after = revision(&make(&client, "idle", "").await);
    let before = resident(&server);
    let began = clock.moment();
    let waiting = stall(
        &server,
        WATCHERS / STREAMS_PER_CONNECTION,
        STREAMS_PER_CONNECTION,
        Protocol::Http2,
        after,
    )
    .await;
    let took = clock.moment() - began;
    let with = resident(&server);
    println!("{} watchers in {took:?}: {} MB became {} MB", waiting.len(), mb(before), mb(with));
    assert!(with < before + MAX_MEMORY_GROWTH, "{} MB became {} MB", mb(before), mb(with));
    // One more than a server serves gets an error to retry later.
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={after}");
    let refused = super::client(&server, Protocol::Http2).open(Request::get(path)).await.unwrap();
    assert_eq!(refused.status, http::StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers.contains_key(http::header::RETRY_AFTER));
    // All of them are open.
    make(&client, "news", "").await;
    for mut watch in waiting {
        let line = watch.next_line(CONDITION_TIMEOUT).await.unwrap().unwrap();
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["object"]["metadata"]["name"], "news");
    }
}
