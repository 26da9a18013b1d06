//! When a change is not made, and what is left then.

use std::pin::Pin;
use std::task::Poll;

use super::*;
use crate::disk::simulated::Fault;
use crate::log::segment::log_name;

#[test]
fn preconditions_are_checked() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        let first = store.commit(put("s", "there", "0")).await.unwrap().revision;
        let wrong = Revision::new(first.get() + 100);
        let (gets, goes) = (Change::Put(value("1")), Change::Delete(value("1")));
        let table = [
            // why                                key      expected                 change  made
            ("nothing is there to be deleted", "gone", Precondition::Any, &goes, false),
            ("nothing cannot be deleted", "gone", Precondition::Absent, &goes, false),
            ("a deleted key has no revision", "gone", Precondition::Revision(first), &gets, false),
            ("nor is there one to delete", "gone", Precondition::Revision(first), &goes, false),
            ("it exists already", "there", Precondition::Absent, &gets, false),
            ("what exists is not absent", "there", Precondition::Absent, &goes, false),
            ("it was changed in between", "there", Precondition::Revision(wrong), &gets, false),
            ("changed, so not deleted", "there", Precondition::Revision(wrong), &goes, false),
            ("whatever is there is replaced", "there", Precondition::Any, &gets, true),
            ("created when absent", "new", Precondition::Absent, &gets, true),
            ("created whether or not it exists", "other", Precondition::Any, &gets, true),
            ("whatever is there is deleted", "other", Precondition::Any, &goes, true),
        ];
        for (why, key, expect, change, made) in table {
            let before = store.space("s");
            let (space, key_bytes, change) = ("s".into(), key.into(), change.clone());
            let write = Write { space, key: key_bytes, precondition: expect, change, hold: None };
            let current = before.get(key.as_bytes()).map(|entry| entry.revision);
            match store.commit(write).await {
                Ok(event) => {
                    assert!(made, "{why}");
                    assert_eq!(event.revision, before.revision().next(), "{why}");
                    assert_eq!(
                        event.previous.as_ref().map(|entry| entry.revision),
                        current,
                        "{why}"
                    );
                }
                Err(CommitError::Conflict { current: found }) => {
                    assert!(!made, "{why}");
                    assert_eq!(found.map(|entry| entry.revision), current, "{why}");
                    assert_eq!(store.revision(), before.revision(), "{why}: took a revision");
                }
                Err(other) => panic!("{why}: {other}"),
            }
        }
        let held = store.space("s").get(b"there").unwrap().clone();
        let write = Write {
            precondition: Precondition::Revision(held.revision),
            ..delete("s", "there", "bye")
        };
        let gone = store.commit(write).await.unwrap();
        assert_eq!((gone.entry.created, gone.kind), (first, EventKind::Delete));
        assert_eq!(gone.entry.value, format!("bye@{};", gone.revision));
    });
}

/// Of many writers that saw the same revision, one gets to change it.
#[test]
fn changes_of_one_batch_see_each_other() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        let write =
            |text: &str| Write { precondition: Precondition::Absent, ..put("s", "k", text) };
        let answers =
            commit_concurrently(&store, (0..50).map(|n| write(&n.to_string())).collect()).await;
        let won: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!(won.len(), 1);
        for answer in &answers {
            if let Err(error) = answer {
                let CommitError::Conflict { current: Some(current) } = error else {
                    panic!("{error}")
                };
                assert!(Arc::ptr_eq(current, &won[0].entry));
            }
        }
        assert_eq!(store.revision().get(), 2);
    });
}

#[test]
fn oversized_changes_are_rejected() {
    let (store, _) = open(&SimulatedDisk::default(), &small(8192)).unwrap();
    runtime().block_on(async {
        let error = store.commit(put("s", "k", &"x".repeat(8192))).await.unwrap_err();
        assert!(matches!(error, CommitError::TooLarge { limit: 8088, .. }), "{error}");
        let error = store.commit(put(&"s".repeat(70_000), "k", "1")).await.unwrap_err();
        assert!(matches!(error, CommitError::TooLarge { .. }), "{error}");
        store.commit(put("s", "k", &"x".repeat(8000))).await.unwrap();
        store.commit(put("s", "k", &"x".repeat(8000))).await.unwrap();
    });
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_space() {
    let disk = SimulatedDisk::default();
    let mut options = small(8192);
    options.checkpoint_bytes = usize::MAX;
    let (store, _) = open(&disk, &options).unwrap();
    disk.set_capacity(Some(30_000));
    let text = "x".repeat(1000);
    runtime().block_on(async {
        let mut made = 0;
        let error = loop {
            match store.commit(put("s", &format!("k{made}"), &text)).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 100, "the disk is not that large");
        };
        assert!(matches!(error, CommitError::Full { .. }), "{error}");
        let revision = store.revision();
        for _ in 0..3 {
            let error = store.commit(put("s", "more", &text)).await.unwrap_err();
            assert!(matches!(error, CommitError::Full { .. }), "{error}");
        }
        assert_eq!((store.revision(), store.space("s").len()), (revision, made));
        assert!(store.failed().is_none());
        disk.set_capacity(None);
        let event = store.commit(put("s", "more", &text)).await.unwrap();
        assert_eq!(event.revision, revision.next());
    });
    store.close().unwrap();
    let (again, recovery) = open(&disk, &options).unwrap();
    assert_eq!(entries(&again.space("s")), entries(&store.space("s")));
    assert_eq!(recovery.torn_tail, None);
}

/// What fills a disk can be deleted from it, and then there is space again.
#[test]
fn a_full_disk_takes_deletions() {
    for size in [10, 1_000] {
        let disk = SimulatedDisk::default();
        let mut options = small(16_384);
        options.checkpoint_bytes = usize::MAX;
        let (store, _) = open(&disk, &options).unwrap();
        disk.set_capacity(Some(70_000));
        let text = "x".repeat(size);
        let mut made = 0;
        runtime().block_on(async {
            assert!(store.check_ready().is_ok());
            while store.commit(put("s", &format!("k{made}"), &text)).await.is_ok() {
                made += 1;
            }
            assert!(matches!(store.check_ready(), Err(NotReady::Full)), "{size}");
            // Some of them: the end of the file is as large as it is.
            for nth in 0..4 {
                let event = store.commit(delete("s", &format!("k{nth}"), &text)).await.unwrap();
                assert!(event.entry.value.starts_with(text.as_bytes()), "{size}: as it was");
            }
            let error = store.commit(put("s", "more", &text)).await.unwrap_err();
            assert!(matches!(error, CommitError::Full { .. }), "{size}: {error}");
            assert_eq!(store.space("s").len(), made - 4);
            disk.set_capacity(None);
            assert!(store.check_ready().is_ok(), "there is space, even before anybody uses it");
            store.commit(put("s", "more", &text)).await.unwrap();
        });
        store.close().unwrap();
        let (again, recovery) = open(&disk, &options).unwrap();
        assert_eq!(entries(&again.space("s")), entries(&store.space("s")), "{size}");
        assert_eq!(recovery.torn_tail, None);
        // What was deleted without its value is known by what it was before.
        let deleted = |store: &TestStore| -> Vec<EventSummary> {
            let history = history(store, "s").into_iter();
            history.filter(|event| event.1 == EventKind::Delete).collect()
        };
        let keys = |events: Vec<EventSummary>| -> Vec<(u64, String)> {
            events.into_iter().map(|event| (event.0, event.2)).collect()
        };
        assert_eq!(keys(deleted(&again)), keys(deleted(&store)), "{size}");
        assert!(deleted(&again).iter().all(|event| event.3.starts_with(&text)), "{size}");
    }
}

/// Deletions on a full disk lead to a checkpoint, which leads to space.
#[test]
fn deletions_free_the_space_of_a_full_disk() {
    let disk = SimulatedDisk::default();
    let mut options = small(65_536);
    options.checkpoint_bytes = usize::MAX;
    let (store, _) = open(&disk, &options).unwrap();
    disk.set_capacity(Some(disk.used() + 300_000));
    let text = "x".repeat(1_000);
    runtime().block_on(async {
        let mut made = 0;
        while store.commit(put("s", &format!("k{made}"), &text)).await.is_ok() {
            made += 1;
        }
        for nth in 0..made {
            let gone = store.commit(delete("s", &format!("k{nth}"), &text)).await;
            assert!(gone.is_ok(), "{nth} of {made}: {gone:?}");
        }
        // The checkpoint is written in the background.
        let mut tries = 0;
        while store.commit(put("t", "k", &text)).await.is_err() {
            tries += 1;
            assert!(tries < 100_000, "the deletion of everything makes no space");
            std::thread::yield_now();
        }
        assert!(store.check_ready().is_ok());
    });
    store.close().unwrap();
    let (again, _) = open(&disk, &options).unwrap();
    assert_eq!(entries(&again.space("s")), entries(&store.space("s")));
}

#[test]
fn broken_disk_stops_writes_only() {
    for fault in [Fault::SyncError, Fault::ShortWrite, Fault::PowerLoss] {
        let disk = SimulatedDisk::default();
        let (store, _) = open(&disk, &small(8192)).unwrap();
        runtime().block_on(async {
            store.commit(put("s", "a", "1")).await.unwrap();
            let mut watch = store.watch("s", Revision::EMPTY).unwrap();
            disk.inject_file_fault(&log_name(1), fault);
            let write = || put("s", "b", "2");
            for answer in commit_concurrently(&store, vec![write(), write(), write()]).await {
                let error = answer.unwrap_err();
                let CommitError::Failed(failure) = error else { panic!("{fault:?}: {error}") };
                assert!(failure.to_string().ends_with("log-00000000000000000001"), "{failure}");
            }
            assert!(store.wait_until_ended().await.is_some());
            let error = store.commit(put("s", "c", "3")).await.unwrap_err();
            assert!(matches!(error, CommitError::Failed(_)), "{error}");
            assert_eq!(entries(&store.space("s")), [("a".to_owned(), "1@2;".to_owned(), 2)]);
            assert_eq!(watch.next(10).await.unwrap().len(), 1, "nobody sees what is not safe");
        });
        assert!(store.close().is_err());
    }
}

#[test]
fn a_closed_store_refuses_changes_and_can_be_read() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        store.commit(put("s", "a", "1")).await.unwrap();
        store.close().unwrap();
        store.close().unwrap();
        let error = store.commit(put("s", "b", "2")).await.unwrap_err();
        assert!(matches!(error, CommitError::Closed), "{error}");
        assert_eq!(store.space("s").len(), 1);
        assert_eq!(store.wait_for(Revision::new(2)).await, Ok(()));
        assert_eq!(store.wait_for(Revision::new(3)).await, Err(Closed));
        assert!(store.wait_until_ended().await.is_none());
    });
}

#[test]
fn options_that_cannot_work_are_refused() {
    let table = [
        ("too small for anything", Options { segment_bytes: 100, ..small(8192) }),
        ("records are aligned", Options { segment_bytes: 8193, ..small(8192) }),
        ("nothing could ever wait", Options { queue: 0, ..small(8192) }),
    ];
    for (why, options) in table {
        assert!(matches!(TestStore::open(&options), Err(OpenError::Options(_))), "{why}");
    }
}

/// A checkpoint that cannot be written costs space and nothing else, and is tried again.
#[test]
fn failed_checkpoint_is_retried() {
    let disk = SimulatedDisk::default();
    let (store, _) = open(&disk, &small(8192)).unwrap();
    let text = "x".repeat(1000);
    runtime().block_on(async {
        // Room for the log to grow by one file, but not for a checkpoint beside it.
        for change in 0..60 {
            store.commit(put("s", &format!("k{}", change % 30), &text)).await.unwrap();
        }
        let full = disk.used();
        disk.set_capacity(Some(full));
        let mut changes = 0;
        while store.stats().failed_checkpoints == 0 {
            match store.commit(put("s", &format!("k{}", changes % 30), &text)).await {
                Ok(_) | Err(CommitError::Full { .. }) => changes += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(changes < 10_000, "a checkpoint became due and there was no room for it");
        }
        disk.set_capacity(None);
        for change in 0..60 {
            store.commit(put("s", &format!("k{}", change % 30), &text)).await.unwrap();
        }
    });
    store.close().unwrap();
    let (again, recovery) = open(&disk, &small(8192)).unwrap();
    assert!(recovery.checkpoint.is_some());
    assert_eq!(entries(&again.space("s")), entries(&store.space("s")));
}

/// Notes which revision was visible when it was released.
struct Probe {
    store: TestStore,
    visible: Arc<std::sync::Mutex<Option<Revision>>>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        *self.visible.lock().unwrap() = Some(self.store.revision());
    }
}

/// Blocks the thread that drops it until the test sends a message.
struct Blocker(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl Drop for Blocker {
    fn drop(&mut self) {
        self.0.get_mut().unwrap().recv().unwrap();
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[test]
fn hold_lives_until_commit_decides() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        let visible = Arc::default();
        let held = |write: Write| {
            let probe = Probe { store: store.clone(), visible: Arc::clone(&visible) };
            Write { hold: Some(Hold::new(Arc::new(probe))), ..write }
        };
        let released = || *visible.lock().unwrap();

        let made = store.commit(held(put("s", "k", "0"))).await.unwrap().revision;
        assert_eq!(
            released(),
            Some(made),
            "released once the change is visible, before the answer"
        );

        *visible.lock().unwrap() = None;
        let refused = Write { precondition: Precondition::Absent, ..held(put("s", "k", "1")) };
        store.commit(refused).await.unwrap_err();
        assert_eq!(released(), Some(made), "released when the change is refused");

        // The caller stops waiting as soon as the store has the change. The writer is blocked, so
        // that it cannot answer before.
        let (unblock, blocked) = std::sync::mpsc::sync_channel(1);
        let blocker = Hold::new(Arc::new(Blocker(std::sync::Mutex::new(blocked))));
        let mut first =
            Box::pin(store.commit(Write { hold: Some(blocker), ..put("s", "first", "2") }));
        assert!(poll_once(first.as_mut()).await.is_pending());
        *visible.lock().unwrap() = None;
        let mut dropped = Box::pin(store.commit(held(put("s", "k", "2"))));
        assert!(poll_once(dropped.as_mut()).await.is_pending());
        drop(dropped);
        unblock.send(()).unwrap();
        first.await.unwrap();
        // The change after it is decided after it, and may become visible together with it.
        store.commit(put("s", "other", "3")).await.unwrap();
        assert!(released() >= Some(made.next().next()), "not before the change is visible");
    });
}
