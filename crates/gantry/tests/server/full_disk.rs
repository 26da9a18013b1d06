//! A disk without room.

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

    // There is room again, and nobody has to start anything anew.
    let inside = Path::new("/proc").join(server.pid().to_string()).join("root");
    let ballast = inside.join(data.strip_prefix("/").unwrap()).join("ballast");
    fs::remove_file(ballast).unwrap();
    rewrite(&client, &made[0], "small").await;
    assert_eq!(names(&get(&client, CONFIG_MAPS).await), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Not even root can make a folder below a file.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&data).unwrap();
    let said = super::refusal(super::plan().data(&data).start(&Clock::system()).await);
    assert!(said.contains(&data.display().to_string()), "{said}");
}
