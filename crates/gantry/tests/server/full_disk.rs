//! A full disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Protocol, Request};

use super::{CONFIG_MAPS, client, config_map, get, names, rewrite};

/// Runs a program on a small file system of its own, where the data directory is.
const WRAPPER: &str = r#"#!/bin/sh
exec unshare --map-root-user --mount sh -c '
    mount -t tmpfs -o size=300m,mode=700 none "$0" && head -c 150m /dev/zero >"$0/ballast" && exec "$@"
' DATA GANTRY "$@"
"#;

/// More than fits beside the ballast, each a little smaller than an object may be.
const OBJECTS: usize = 300;
const BYTES: usize = 1_000_000;

fn may_mount() -> bool {
    let script = "mount -t tmpfs -o size=1m none /mnt";
    let mut tried = Command::new("unshare");
    tried.args(["--map-root-user", "--mount", "sh", "-c", script]);
    tried.output().is_ok_and(|output| output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_changes_and_loses_nothing() {
    if !may_mount() {
        println!("skipped: this system lets nobody but root mount a small file system");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let wrapper = folder.path().join("small");
    let text = WRAPPER
        .replace("DATA", &data.display().to_string())
        .replace("GANTRY", env!("CARGO_BIN_EXE_gantry"));
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o700)).unwrap();
    let server = Plan::new(&wrapper).data(&data).start(&Clock::system()).await.unwrap();
    let client = client(&server, Protocol::Http2);
    let fill = "x".repeat(BYTES);
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("object-{:03}", made.len());
        let request = Request::post(CONFIG_MAPS, &config_map(&name, &fill));
        let answer = client.send(request).await.unwrap();
        if !answer.status.is_success() {
            break answer;
        }
        made.push(name);
        assert!(made.len() < OBJECTS, "all of it fitted");
    };
    println!("{} objects fitted, then: {} {}", made.len(), refused.status, refused.text());
    assert_eq!(refused.status, 507, "{}", refused.text());
    let status = refused.json().unwrap();
    assert_eq!(status["code"], 507);
    assert!(refused.headers.get("retry-after").is_none(), "trying again would not help");
    let words = status["message"].as_str().unwrap();
    assert!(words.contains("the disk is full"), "{words}");
    assert_eq!(names(&get(&client, CONFIG_MAPS).await), made, "reads go on");
    let readyz = client.send(Request::get("/readyz")).await.unwrap();
    assert_eq!(readyz.status, 500);
    let full =
        "[-]store failed: the disk is full: only deletions are accepted until there is space";
    assert!(readyz.text().contains(full), "{}", readyz.text());
    assert_eq!(client.send(Request::get("/livez")).await.unwrap().status, 200, "no restart helps");
    let last = made.pop().unwrap();
    let gone = client.send(Request::delete(format!("{CONFIG_MAPS}/{last}"))).await.unwrap();
    assert_eq!(gone.status, 200, "deletions go on: {}", gone.text());

    // There is free space again, and no restart is needed.
    let inside = Path::new("/proc").join(server.pid().to_string()).join("root");
    let ballast = inside.join(data.strip_prefix("/").unwrap()).join("ballast");
    fs::remove_file(ballast).unwrap();
    assert_eq!(client.send(Request::get("/readyz")).await.unwrap().text(), "ok");
    rewrite(&client, &made[0], "small").await;
    assert_eq!(names(&get(&client, CONFIG_MAPS).await), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Not even root can create a folder below a file.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&data).unwrap();
    let said = super::refusal(super::plan().data(&data).start(&Clock::system()).await);
    assert!(said.contains(&data.display().to_string()), "{said}");
}

/// A directory that is deleted under a running server loses nothing: changes are rejected.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_goes_away_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, aside) = (folder.path().join("data"), folder.path().join("aside"));
    let server = super::start(&data).await;
    let client = client(&server, Protocol::Http2);
    super::make(&client, "there", "text").await;
    let readyz = || async { client.send(Request::get("/readyz")).await.unwrap() };
    assert_eq!(readyz().await.text(), "ok");
    fs::rename(&data, &aside).unwrap();
    for why in ["moved", "replaced"] {
        let answer = readyz().await;
        let line = "[-]store failed: the data directory was deleted or replaced";
        assert!(answer.status == 500 && answer.text().contains(line), "{why}: {}", answer.text());
        let request = Request::post(CONFIG_MAPS, &config_map("new", "text"));
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.status, 500, "{why}");
        let words = answer.json().unwrap()["message"].as_str().unwrap().to_owned();
        let place = data.join("store").display().to_string();
        assert!(words.contains(&place), "{why}: {words}");
        assert!(words.contains("was deleted or replaced by another"), "{why}: {words}");
        assert_eq!(names(&get(&client, CONFIG_MAPS).await), ["there"], "{why}: reads go on");
        fs::create_dir_all(data.join("store")).unwrap();
    }
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&aside, &data).unwrap();
    assert_eq!(readyz().await.text(), "ok", "it is back");
    super::make(&client, "new", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_everybody_can_write_in_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for mode in [0o777, 0o1777, 0o702] {
        fs::set_permissions(&data, fs::Permissions::from_mode(mode)).unwrap();
        let said = super::refusal(super::plan().data(&data).start(&Clock::system()).await);
        let words = format!("the data directory {} has mode {mode:04o}", data.display());
        assert!(said.contains(&words), "{said}");
        assert!(said.contains(&format!("chmod o-w {}", data.display())), "{said}");
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    drop(super::start(&data).await);
}

/// The previous process may still be ending; one that does not end is named in the error.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_the_lock_and_names_its_holder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let clock = Clock::system();
    let first = super::start(&data).await;
    let pid = first.pid();
    let address = first.target().base.clone();
    let second = super::plan().data(&data).start(&clock);
    let said = super::refusal(second.await);
    let words = format!("in use by process {pid}, which serves {address}");
    assert!(said.contains(&words), "{words} is not in {said}");
    assert!(said.contains("--data-dir"), "{said}");
    first.signal(rustix::process::Signal::KILL).unwrap();
    let third = super::start(&data).await;
    assert_ne!(third.pid(), pid, "a start right after a kill succeeds");
    get(&client(&third, Protocol::Http2), CONFIG_MAPS).await;
    drop(third);
    // However long the previous process takes to end, within some seconds.
    let lock = OpenOptions::new().read(true).write(true).open(data.join("store/lock")).unwrap();
    lock.lock().unwrap();
    let (fourth, ()) = tokio::join!(super::start(&data), async {
        clock.sleep(std::time::Duration::from_secs(1)).await;
        drop(lock);
    });
    get(&client(&fourth, Protocol::Http2), CONFIG_MAPS).await;
}
