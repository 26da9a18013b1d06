//! With `sleep` in the place of a cluster.

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
        assert!(clock.moment() < deadline, "waited in vain: {what}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// The process on record under a name, as soon as it is.
async fn recorded(run: &Run, name: &str) -> Identity {
    let record = run.folder().join("processes").join(name);
    let read = || fs::read_to_string(&record).ok().and_then(|stat| Identity::from_stat(&stat));
    until("a record", || read().is_some()).await;
    read().unwrap()
}

#[tokio::test]
async fn a_dropped_run_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    // The shell and its sleep are one group: ending the first alone would leave the second.
    run.start("nap", Path::new("sh"), &words(&["-c", "sleep 1000; true"])).unwrap();
    let nap = recorded(&run, "nap").await;
    assert!(nap.is_running() && run.ended().is_none());
    assert_eq!(run.processes(), [("nap", u32::try_from(nap.pid).unwrap())]);
    drop(run);
    assert!(!nap.is_running());
    assert_eq!(folders(&root), 0);
}

#[tokio::test]
async fn the_guard_acts_when_its_pipe_closes() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    run.start("nap", Path::new("sleep"), &words(&["1000"])).unwrap();
    let nap = recorded(&run, "nap").await;
    // What the system does for us when we are killed.
    drop(run.guard.as_mut().unwrap().stdin.take());
    until("the guard", || folders(&root) == 0).await;
    until("the end", || !nap.is_running()).await;
}

#[tokio::test]
async fn the_next_run_removes_what_the_dead_left_and_spares_the_living() {
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
    leftovers::sweep(root.path(), &clock).await;
    assert!(!gone.exists() && stranger.exists() && run.folder().exists());
    assert!(nap.is_running(), "its pid was on record, its start time was not");

    fs::create_dir_all(gone.join("processes")).unwrap();
    fs::copy(run.folder().join("processes/nap"), gone.join("processes/nap")).unwrap();
    leftovers::sweep(root.path(), &clock).await;
    assert!(!gone.exists() && !nap.is_running());
    assert!(run.ended().is_some(), "and its parent is told");
}

#[tokio::test]
async fn a_failure_is_seen_and_its_log_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::begin(root.path(), &Clock::system()).await.unwrap();
    let script = "seq 10000; echo the end >&2; exit 3";
    run.start("loud", Path::new("sh"), &words(&["-c", script])).unwrap();
    until("its end", || run.ended().is_some()).await;
    let (name, status) = run.ended().unwrap();
    assert_eq!((name, status.code()), ("loud", Some(3)));
    let tails = run.tails();
    assert!(tails.starts_with("--- loud\n9") && tails.ends_with("10000\nthe end\n"), "{tails}");
    assert!(tails.len() < 4000);
}

#[tokio::test]
async fn what_is_written_is_for_us_alone() {
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
