//! No argument, environment, log or file has the password, on either side.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// What is looked for. It is in no other process: the test itself makes it from two parts.
fn password() -> String {
    ["correct-horse", "battery-staple"].join("-")
}

#[tokio::test]
async fn pvs_46_no_argument_environment_or_log_has_the_password() {
    let Some(hosts) = hosts("secrets", 1).await else { return };
    let host = &hosts.hosts()[0];
    let password = password();
    // The password goes to the host on standard input here, too: as a hash.
    let hash = std::process::Command::new("openssl")
        .args(["passwd", "-6", "-stdin"])
        .stdin(input(&hosts, &password))
        .output()
        .unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    let users = format!(
        "set -e; sudo useradd -m -s /bin/bash -p '{}' asked; \
         sudo cp /etc/ssh/authorized_keys.d/ops /etc/ssh/authorized_keys.d/asked; \
         echo 'asked ALL=(ALL) ALL' | sudo tee /etc/sudoers.d/asked >/dev/null",
        hash.trim()
    );
    hosts.prepare(host, &users).unwrap();
    let connection =
        connection(&hosts, SshTarget { user: Some("asked".to_owned()), ..target(&hosts, host) });
    let wanted = root(Some(&password));
    // Processes of the host are processes of this machine as well, so one sampler sees both ends.
    let done = AtomicBool::new(false);
    let (samples, names) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&password, &done));
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async {
                for _ in 0..20 {
                    let request = Request { r#become: Some(&wanted), ..request(&["id", "-un"]) };
                    let result = connection.run(&request).await.unwrap();
                    assert_eq!(result.stdout, b"root\n");
                    assert!(!format!("{result:?}").contains("correct-horse"));
                }
                connection.close().await;
            });
        });
        let worked = work.join();
        done.store(true, Ordering::Relaxed);
        worked.unwrap();
        sampler.join().unwrap()
    });
    print_line(&format!("sampled {samples} processes, among them {names:?}"));
    assert!(names.contains("ssh") && names.contains("sudo"), "{names:?}");
    let logs = hosts.prepare(host, "sudo journalctl --no-pager; sudo cat /var/log/*.log").ok();
    let logs = logs.unwrap_or_else(|| hosts.prepare(host, "sudo journalctl --no-pager").unwrap());
    assert!(logs.contains("asked"), "sudo logs its commands");
    assert!(!logs.contains("correct-horse"));
    // Nothing was written on the host either. The pattern does not match itself.
    let found = "sudo grep -rl 'correct-[h]orse' /tmp /var /home /etc /run || true";
    let found = hosts.prepare(host, found);
    assert_eq!(found.unwrap(), "");
}

fn input(hosts: &TestHosts, text: &str) -> fs::File {
    let path = hosts.folder().join("text");
    fs::write(&path, text).unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file
}

/// Reads arguments and environments of all processes again and again. Returns how many were read,
/// and the names of ssh and sudo if they were among them.
fn sample(secret: &str, done: &AtomicBool) -> (usize, BTreeSet<String>) {
    let (mut samples, mut names) = (0, BTreeSet::new());
    while !done.load(Ordering::Relaxed) {
        for process in fs::read_dir("/proc").unwrap().flatten() {
            for file in ["cmdline", "environ"] {
                // A process may end at any time.
                let Ok(bytes) = fs::read(process.path().join(file)) else { continue };
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(secret), "{file} of {text}");
                let name = text.split('\0').next().unwrap_or_default();
                if file == "cmdline" && matches!(name, "ssh" | "sudo") {
                    names.insert(name.to_owned());
                }
                samples += 1;
            }
        }
    }
    (samples, names)
}
