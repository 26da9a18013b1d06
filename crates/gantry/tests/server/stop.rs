//! A server that is stopped by a signal.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Protocol, Request};
use rustix::process::Signal;

use super::{CONFIG_MAPS, client, get, make, names, revision, start};

const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// Every file and folder with its mode and, if it is a key, its content.
fn read_all_files(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let is_key = path.extension().is_some_and(|it| it == "pem");
        let content = if is_key { fs::read(&path).unwrap() } else { Vec::new() };
        all.insert(path, (mode | if metadata.is_dir() { 0o40_000 } else { 0 }, content));
    }
    all
}

/// Waits until the server has started this number of requests. Watches are not counted.
async fn wait_for_requests(client: &Client, count: u64, clock: &Clock) {
    let give_up = clock.moment() + CONDITION_TIMEOUT;
    loop {
        let page = client.send(Request::get("/metrics")).await.unwrap().text();
        let line = page.lines().find_map(|line| line.strip_prefix("gantry_server_requests "));
        if line.is_some_and(|it| it.parse::<u64>().unwrap() >= count) {
            return;
        }
        assert!(clock.moment() < give_up, "never {count} requests:\n{page}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_watches_finishes_requests_and_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let clock = Clock::system();
    let mut server = start(&data).await;
    let one = client(&server, Protocol::Http1);
    let two = client(&server, Protocol::Http2);
    let last = revision(&make(&two, "kept", "text").await);
    let mut watches = Vec::new();
    for client in [&one, &two] {
        let request = Request::get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={last}"));
        let mut watch = client.open(request).await.unwrap();
        make(&two, &format!("seen-{}", watches.len()), "").await;
        assert!(watch.next_line(CONDITION_TIMEOUT).await.unwrap().is_some());
        watches.push(watch);
    }
    // A list that waits for a revision yet to come is a request in progress.
    let slow = Request::get(format!("{CONFIG_MAPS}?resourceVersion=999999"));
    let waiting = async {
        let (first, second) = tokio::join!(one.send(slow.clone()), two.send(slow.clone()));
        [first.unwrap(), second.unwrap()]
    };
    let stopping = async {
        // Both of them, and the one of the test itself.
        wait_for_requests(&two, 3, &clock).await;
        server.signal(Signal::TERM).unwrap();
    };
    let (answers, ()) = tokio::join!(waiting, stopping);
    for answer in answers {
        assert_eq!(answer.status, 504, "a whole answer, however late: {}", answer.text());
        assert_eq!(answer.json().unwrap()["reason"], "Timeout");
    }
    // The second watch also saw what was made for the first.
    for mut watch in watches {
        let mut rest = 0;
        while watch.next_line(CONDITION_TIMEOUT).await.unwrap().is_some() {
            rest += 1;
        }
        assert!(rest <= 1, "nothing happened after the second object");
    }
    let status = server.wait_for_exit(CONDITION_TIMEOUT, &clock).await.unwrap();
    assert_eq!(status.code(), Some(0), "{}", server.tails());
    assert!(server.tails().contains("stopped"), "{}", server.tails());
    let before = read_all_files(&data);
    drop(server);

    let server = start(&data).await;
    println!("started again in {:?}", server.took());
    let list = get(&client(&server, Protocol::Http2), CONFIG_MAPS).await;
    assert_eq!(names(&list), ["kept", "seen-0", "seen-1"]);
    assert!(revision(&list) >= last + 2);
    let after = read_all_files(&data);
    for (path, (mode, content)) in &before {
        if path.extension().is_some_and(|it| it == "pem") {
            assert_eq!(after.get(path), Some(&(*mode, content.clone())), "{}", path.display());
        }
    }
    for (path, (mode, _)) in before.iter().chain(&after) {
        let expected = if mode & 0o40_000 == 0 { 0o600 } else { 0o40_700 };
        assert_eq!(*mode, expected, "{} has mode {mode:o}", path.display());
    }
    assert!(before.keys().any(|path| path.ends_with("pki/ca.pem")), "{before:?}");
}
