//! ansible-core in a process that answers many requests.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{say, testbed};

/// The process.
pub(super) struct Oracle {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    folder: PathBuf,
    home: tempfile::TempDir,
    password: PathBuf,
}

/// What it made of an inventory.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(Value),
    Refused,
}

impl Oracle {
    /// Starts it, or says why it cannot be started.
    pub(super) fn start() -> Option<Self> {
        let script = testbed().join("ansible");
        let output = Command::new(script).arg("--print-dir").output().unwrap();
        let folder = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
        if !folder.join("bin/ansible-inventory").exists() {
            say("skipped: inventories are not compared with ansible-core; run testbed/ansible");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let password = home.path().join("password");
        std::fs::write(&password, super::generate::PASSWORD).unwrap();
        std::fs::write(home.path().join("ansible.cfg"), "").unwrap();
        let mut child = command(&folder.join("bin/python"), home.path())
            .args(["-B".as_ref(), testbed().join("inventory/oracle.py").as_os_str()])
            .env("PYTHONPATH", folder.join("lib/ansible"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, requests, replies, folder, home, password })
    }

    /// Asks about an inventory.
    pub(super) fn ask(&mut self, sources: &[String], patterns: &[String]) -> Reply {
        let password = super::generate::PASSWORD;
        let request = json!({"sources": sources, "patterns": patterns, "password": password});
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        assert!(!line.is_empty(), "it ended: {}", log());
        let answer: Value = serde_json::from_str(&line).unwrap();
        if let Some(error) = answer.get("error") {
            say(&format!("the original refuses: {error}\n{}", log()));
            return Reply::Refused;
        }
        Reply::Answer(answer)
    }

    /// Runs one of the programs and returns what it prints.
    pub(super) fn run(
        &self,
        program: &str,
        sources: &[String],
        arguments: &[&str],
        folder: &Path,
    ) -> String {
        let output = command(&self.folder.join("bin").join(program), self.home.path())
            .args(arguments)
            .args(sources.iter().flat_map(|source| ["-i", source]))
            .arg("--vault-password-file")
            .arg(&self.password)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program without the settings of the user who runs the tests.
fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8"), ("SITE", "lab")])
        .env("ANSIBLE_CONFIG", home.join("ansible.cfg"))
        .env("ANSIBLE_NOCOLOR", "1")
        .env("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "true")
        .env("HOME", home)
        .env("ANSIBLE_HOME", home);
    command
}
