//! Tests that nothing of a cluster remains, however the process that runs it ends.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::programs::Programs;
use gantry_testkit::run::Identity;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::WAIT_TIMEOUT;

/// Another process with a cluster of its own. It ends when its input does, so a failing test leaves
/// none behind.
pub(super) struct ClusterProcess {
    child: Child,
    programs: Vec<Identity>,
    pub(super) folder: PathBuf,
}

impl ClusterProcess {
    /// Starts it with its runs below `cache`, where no other test cleans up.
    pub(super) fn start(cache: &TempDir, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_real-cluster"))
            .args(arguments)
            .env("GANTRY_CACHE", cache.path())
            .env("GANTRY_TESTBED", Programs::find().unwrap().folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut programs, mut folder) = (Vec::new(), None);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["process", pid, _] => programs.push(identity(pid.parse().unwrap())),
                ["folder", path] => folder = Some(PathBuf::from(path)),
                ["ready"] => break,
                _ => {}
            }
        }
        Self { child, programs, folder: folder.unwrap() }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(super) fn kill(&mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as a user does, with Ctrl-D.
    pub(super) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        assert!(self.running() == 0 && !self.folder.exists());
    }

    pub(super) fn running(&self) -> usize {
        self.programs.iter().filter(|program| program.is_running()).count()
    }

    /// Kills it and its guard, so that no process is left to clean up.
    pub(super) fn kill_with_its_guard(&mut self) {
        let guards = self.guards();
        assert_eq!(guards.len(), 1);
        for guard in guards {
            kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
        }
        self.kill(Signal::KILL);
    }

    /// Returns its children that are not programs of the cluster: the guard.
    fn guards(&self) -> Vec<i32> {
        let numbers = fs::read_dir("/proc").unwrap().flatten();
        let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let known = |pid: i32| self.programs.iter().any(|program| program.pid == pid);
        pids.filter(|pid| parent(*pid) == Some(self.pid()) && !known(*pid)).collect()
    }
}

fn identity(pid: i32) -> Identity {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    Identity { pid, started: started.parse().unwrap() }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[tokio::test]
async fn an_interrupt_ends_the_cluster_as_well() {
    let cache = tempfile::tempdir().unwrap();
    let mut victim = ClusterProcess::start(&cache, &[]);
    assert_eq!(victim.running(), 2, "etcd and kube-apiserver");
    victim.kill(Signal::INT);
    let clock = Clock::system();
    let deadline = clock.moment() + WAIT_TIMEOUT;
    while victim.running() > 0 || victim.folder.exists() {
        assert!(clock.moment() < deadline, "left behind: {}", victim.folder.display());
        clock.sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_next_start_removes_what_kill_9_left() {
    let cache = tempfile::tempdir().unwrap();
    let mut victim = ClusterProcess::start(&cache, &[]);
    victim.kill_with_its_guard();
    assert_eq!(victim.running(), 2, "their guard was killed, too");
    assert!(victim.folder.exists());
    let next = ClusterProcess::start(&cache, &[]);
    assert_eq!((victim.running(), next.running()), (0, 2));
    assert!(!victim.folder.exists() && next.folder.exists());
    next.finish();
}
