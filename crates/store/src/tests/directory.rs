//! The real directory: private, and used by one process at a time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

fn durable(path: &Path) -> Options {
    let mut options = small(64 << 10);
    options.durability = Durability::Durable(path.to_owned());
    options
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn changes_survive_closing() {
    let parent = tempfile::tempdir().unwrap();
    let options = durable(&parent.path().join("state"));
    let (store, recovery) = TestStore::open(&options).unwrap();
    assert_eq!((recovery.revision, recovery.changes), (Revision::EMPTY, 0));
    runtime().block_on(async {
        store.commit(put("s", "a", "1")).await.unwrap();
        store.commit(put("s", "b", "2")).await.unwrap();
        store.commit(delete("s", "a", "3")).await.unwrap();
    });
    store.close().unwrap();
    let (again, recovery) = TestStore::open(&options).unwrap();
    assert_eq!((recovery.revision.get(), recovery.changes, recovery.torn_tail), (4, 3, None));
    assert_eq!(entries(&again.space("s")), [("b".to_owned(), "2@3;".to_owned(), 3)]);
    assert_eq!(history(&again, "s"), history(&store, "s"));
}

#[test]
fn files_are_private() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("new/state");
    let (store, _) = TestStore::open(&durable(&path)).unwrap();
    runtime().block_on(store.commit(put("s", "a", "1"))).unwrap();
    store.close().unwrap();
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2);
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        set_mode(&file, 0o640);
        let error = TestStore::open(&durable(&path)).unwrap_err();
        let expected = format!("{} has mode 640: others must have no access", file.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        set_mode(&file, 0o600);
    }
    set_mode(&path, 0o755);
    let error = TestStore::open(&durable(&path)).unwrap_err();
    assert!(
        matches!(&error, OpenError::InsecureMode { path: of, mode: 0o755 } if *of == path),
        "{error}"
    );
}

#[test]
fn a_link_is_not_followed() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    let (store, _) = TestStore::open(&durable(&path)).unwrap();
    store.close().unwrap();
    fs::rename(path.join("lock"), parent.path().join("elsewhere")).unwrap();
    symlink(parent.path().join("elsewhere"), path.join("lock")).unwrap();
    let error = TestStore::open(&durable(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn directory_is_locked_exclusively() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    let (store, _) = TestStore::open(&durable(&path)).unwrap();
    let (id, place) = (std::process::id(), path.display());
    let refused = || TestStore::open(&durable(&path)).unwrap_err().to_string();
    let remedy = "stop it, or use another directory";
    assert_eq!(refused(), format!("{place} is in use by process {id}; {remedy}"));
    store.record_address("https://127.0.0.1:6443").unwrap();
    let serves = "which serves https://127.0.0.1:6443";
    assert_eq!(refused(), format!("{place} is in use by process {id}, {serves}; {remedy}"));
    // What the lock says is for people; it may be anything.
    fs::write(path.join("lock"), "nonsense").unwrap();
    assert_eq!(refused(), format!("{place} is in use by another process; {remedy}"));
    runtime().block_on(store.commit(put("s", "a", "1"))).unwrap();
    // Dropping it without closing makes it free as well, once its thread has ended.
    let mut watch = store.watch("s", store.revision()).unwrap();
    drop(store);
    assert_eq!(runtime().block_on(watch.next(1)).unwrap_err(), WatchError::Closed);
    let (again, recovery) = TestStore::open(&durable(&path)).unwrap();
    assert_eq!((recovery.torn_tail, again.space("s").len()), (None, 1));
}

/// Every way in which a directory can go, and come back.
#[test]
fn removed_directory_is_noticed() {
    let parent = tempfile::tempdir().unwrap();
    let (path, aside) = (parent.path().join("state"), parent.path().join("aside"));
    let (store, _) = TestStore::open(&durable(&path)).unwrap();
    let write = |text: &str| runtime().block_on(store.commit(put("s", "a", text)));
    write("0").unwrap();
    assert!(store.check_ready().is_ok());
    let refuses = |why: &str| {
        assert!(matches!(store.check_ready(), Err(NotReady::DirectoryReplaced)), "{why}");
        let before = store.revision();
        let error = write("no").unwrap_err();
        let said = error.to_string();
        let expected = format!("{}/ was deleted or replaced by another", path.display());
        assert!(said.starts_with(&expected), "{why}: {said}");
        assert_eq!(store.revision(), before, "{why}: nothing is changed");
    };
    fs::rename(&path, &aside).unwrap();
    refuses("moved away");
    fs::create_dir(&path).unwrap();
    refuses("another in its place");
    fs::write(path.join("lock"), "").unwrap();
    refuses("with a lock");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    write("1").unwrap();
    assert!(store.check_ready().is_ok(), "it is back");
    // If the log is removed and the rest stays, changes would be written to files that are never
    // read.
    let logs = fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name());
    let logs: Vec<_> = logs.filter(|it| it.to_string_lossy().starts_with("log-")).collect();
    fs::create_dir(&aside).unwrap();
    logs.iter().for_each(|it| fs::rename(path.join(it), aside.join(it)).unwrap());
    refuses("without its log");
    for log in &logs {
        fs::copy(aside.join(log), path.join(log)).unwrap();
    }
    refuses("with a copy of its log");
    logs.iter().for_each(|it| fs::rename(aside.join(it), path.join(it)).unwrap());
    write("2").unwrap();
    assert!(store.check_ready().is_ok(), "its log is back");
    let lock = fs::read(path.join("lock")).unwrap();
    fs::remove_file(path.join("lock")).unwrap();
    fs::write(path.join("lock"), lock).unwrap();
    refuses("another could take the lock");
    fs::remove_dir_all(&path).unwrap();
    refuses("deleted");
    assert!(store.failed().is_none(), "reading goes on");
    assert_eq!(entries(&store.space("s")), [("a".to_owned(), "2@4;".to_owned(), 2)]);
}
