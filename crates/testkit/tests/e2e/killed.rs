//! Whatever ends the test process, nothing of its cluster stays.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::run::Identity;
use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// What the victim prints before each of its facts, to be found among the words of the harness.
const MARK: &str = "victim: ";

/// Holds a cluster until its input ends. It runs in a process of its own.
#[tokio::test]
#[ignore = "is started and killed by the others"]
async fn victim() {
    let cluster = RealCluster::start().await.unwrap();
    for (_, pid) in cluster.processes() {
        println!("{MARK}{pid}");
    }
    println!("{MARK}{}", cluster.folder().display());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Another process of this program with a cluster of its own.
struct Victim {
    child: Child,
    programs: Vec<Identity>,
    folder: PathBuf,
}

impl Victim {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::victim", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut programs = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((_, fact)) = line.split_once(MARK) else { continue };
            match fact.parse() {
                Ok(pid) => programs.push(identity(pid)),
                Err(_) => return Self { child, programs, folder: PathBuf::from(fact) },
            }
        }
        panic!("the victim said nothing");
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn kill(&mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
        self.child.wait().unwrap();
    }

    fn running(&self) -> usize {
        self.programs.iter().filter(|program| program.is_running()).count()
    }

    /// Its children that are no programs of the cluster: the guard.
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
    let mut victim = Victim::start();
    assert_eq!(victim.running(), 2, "etcd and kube-apiserver");
    victim.kill(Signal::INT);
    let clock = Clock::system();
    let deadline = clock.moment() + PATIENCE;
    while victim.running() > 0 || victim.folder.exists() {
        assert!(clock.moment() < deadline, "left behind: {}", victim.folder.display());
        clock.sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_next_start_removes_what_kill_9_left() {
    let mut victim = Victim::start();
    let guards = victim.guards();
    assert_eq!(guards.len(), 1);
    for guard in guards {
        kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    }
    victim.kill(Signal::KILL);
    assert_eq!(victim.running(), 2, "nobody was there to end them");
    assert!(victim.folder.exists());
    let next = RealCluster::start().await.unwrap();
    assert_eq!(victim.running(), 0);
    assert!(!victim.folder.exists());
    assert!(next.folder().exists());
}
