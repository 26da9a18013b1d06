//! `gantry operator` as a process that runs: its log, its signals, its end. Tests on a real server
//! use it too.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

/// An operator that runs; its log is read to the end.
pub(crate) struct Operator {
    pub(crate) child: Child,
    pub(crate) lines: mpsc::Receiver<String>,
    /// What was read, for who must see it all when something went wrong.
    pub(crate) read: Vec<String>,
}

impl Operator {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_command("operator", flags)
    }

    /// Starts another command that runs controllers.
    pub(crate) fn start_command(command: &str, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gantry"))
            .arg(command)
            .args(flags)
            .env("NAMESPACE", "gantry-system")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::sync_channel(100_000);
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).try_for_each(|it| send.send(it))
        });
        Self { child, lines, read: Vec::new() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it said so far.
    pub(crate) fn said(&mut self) -> String {
        self.read.extend(self.lines.try_iter());
        self.read.join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- operator ({ended:?} before the end)\n{}", self.said());
        }
    }
}
