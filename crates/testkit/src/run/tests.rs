//! Tests with `sleep` in place of a cluster.

use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn folders(root: &TempDir) -> usize {
    fs::read_dir(root.path()).unwrap().count()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let deadline = clock.moment() + Duration::from_secs(20);
    while !holds() {
        assert!(clock.moment() < deadline, "timed out: {what}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the recorded process of a name, as soon as it is recorded.
async fn recorded(run: &Run, name: &str) -> Identity {
    let record = run.folder().join("processes").join(name);
    let read = || fs::read_to_string(&record).ok().and_then(|stat| Identity::from_stat(&stat));
    until("a record", || read().is_some()).await;
    read().unwrap()
}

/// A run of a program with a child: killing the first alone would leave the second.
async fn run_with_child_processes(root: &TempDir) -> (Run, Identity) {
    let mut run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    run.start("nap", Path::new("sh"), &words(&["-c", "sleep 1000; true"])).unwrap();
    let nap = recorded(&run, "nap").await;
    until("a family", || members(nap) == 2).await;
    (run, nap)
}

/// Returns how many processes are in the group that a process leads, without zombies.
fn members(leader: Identity) -> usize {
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let group = leader.pid.to_string();
    stats
        .filter(|stat| {
            let mut fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
            fields.next() != Some("Z") && fields.nth(1) == Some(&group)
        })
        .count()
}

#[tokio::test]
async fn a_dropped_run_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (mut run, nap) = run_with_child_processes(&root).await;
    assert!(nap.is_running() && run.exited_process().is_none());
    assert_eq!(run.processes(), [("nap", u32::try_from(nap.pid).unwrap())]);
    drop(run);
    assert!(!nap.is_running());
    assert_eq!(folders(&root), 0);
    until("the end of the family", || members(nap) == 0).await;
}

#[tokio::test]
async fn the_guard_acts_when_its_pipe_closes() {
    let root = tempfile::tempdir().unwrap();
    let (mut run, nap) = run_with_child_processes(&root).await;
    // What the system does when we are killed.
    drop(run.guard.as_mut().unwrap().stdin.take());
    until("the guard", || folders(&root) == 0).await;
    until("the end of the family", || members(nap) == 0).await;
}

#[tokio::test]
async fn next_run_removes_dead_runs_only() {
    let root = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let mut run = Run::begin(root.path(), &clock).await.unwrap();
    run.start("nap", Path::new("sleep"), &words(&["1000"])).unwrap();
    let nap = recorded(&run, "nap").await;
    // The same records under an owner that has our pid and started at another time.
    let us = Identity::current().unwrap();
    let gone = root.path().join(format!("{}-{}-0", us.pid, us.started + 1));
    fs::create_dir_all(gone.join("processes")).unwrap();
    let stranger = root.path().join("not-a-run");
    fs::create_dir_all(&stranger).unwrap();
    let reused = fs::read_to_string(run.folder().join("processes/nap")).unwrap();
    let reused = reused.replace(&nap.started.to_string(), "1");
    fs::write(gone.join("processes/reused"), reused).unwrap();
    assert_eq!(leftovers::running(run.folder()), [nap]);
    assert_eq!(leftovers::running(&gone), [], "the pid is on record, the start time is not");
    leftovers::remove_leftovers(root.path(), &clock).await;
    assert!(!gone.exists() && stranger.exists() && run.folder().exists());
    assert!(nap.is_running());

    fs::create_dir_all(gone.join("processes")).unwrap();
    fs::copy(run.folder().join("processes/nap"), gone.join("processes/nap")).unwrap();
    leftovers::remove_leftovers(root.path(), &clock).await;
    assert!(!gone.exists() && !nap.is_running());
    assert!(run.exited_process().is_some(), "and its parent notices");
}

#[tokio::test]
async fn a_failure_is_seen_and_its_log_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    let script = "seq 10000; echo the end >&2; exit 3";
    run.start("loud", Path::new("sh"), &words(&["-c", script])).unwrap();
    until("its end", || run.exited_process().is_some()).await;
    let (name, status) = run.exited_process().unwrap();
    assert_eq!((name, status.code()), ("loud", Some(3)));
    let tails = run.tails();
    assert!(tails.starts_with("--- loud\n9") && tails.ends_with("10000\nthe end\n"), "{tails}");
    assert!(tails.len() < 4000);
}

#[tokio::test]
async fn files_are_private_to_the_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    let path = run.write("key", "secret").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(run.folder())), (0o600, 0o700));
    let error = run.write("no/such/folder", "").unwrap_err().to_string();
    assert!(error.starts_with("could not write ") && error.ends_with("no/such/folder"), "{error}");
}
