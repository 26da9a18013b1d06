//! Watches: everything once and in order, or a word that it was not.

use std::sync::Weak;

use super::*;

fn multi_thread_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(3).build().unwrap()
}

/// Follows a space to a revision and returns what was seen.
async fn follow(
    mut watch: Watch<(), ()>,
    to: Revision,
    max: usize,
) -> Result<Vec<u64>, WatchError> {
    let mut revisions = Vec::new();
    while watch.progress_revision() < to {
        let events = watch.next(max).await?;
        assert!(!events.is_empty() && events.len() <= max);
        revisions.extend(events.iter().map(|event| event.revision.get()));
    }
    Ok(revisions)
}

#[test]
fn every_event_is_seen_once_and_in_order_while_others_write() {
    let (store, _) = open(&SimulatedDisk::default(), &small(64 << 10)).unwrap();
    multi_thread_runtime().block_on(async {
        let mut watchers = JoinSet::new();
        for max in [1, 2, 7, 100, 1000] {
            for space in ["even", "odd"] {
                let mut watch = store.watch(space, Revision::EMPTY).unwrap();
                watchers.spawn(async move {
                    let mut revisions = Vec::new();
                    loop {
                        match watch.next(max).await {
                            Ok(events) => revisions.extend(events.iter().map(|e| e.revision.get())),
                            Err(WatchError::Closed) => return (space, revisions),
                            Err(lagged) => panic!("{lagged}"),
                        }
                    }
                });
            }
        }
        let mut writers = JoinSet::new();
        for writer in 0..8 {
            let store = store.clone();
            writers.spawn(async move {
                let mut made = Vec::new();
                for change in 0..100 {
                    let space = if (writer + change) % 2 == 0 { "even" } else { "odd" };
                    let write = put(space, &format!("{writer}"), &format!("{change}"));
                    made.push((space, store.commit(write).await.unwrap().revision.get()));
                }
                made
            });
        }
        let mut made: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
        made.sort_by_key(|(_, revision)| *revision);
        assert_eq!(
            made.iter().map(|made| made.1).collect::<Vec<_>>(),
            (2..=801).collect::<Vec<_>>()
        );
        let closing = store.clone();
        tokio::task::spawn_blocking(move || closing.close()).await.unwrap().unwrap();
        for (space, revisions) in watchers.join_all().await {
            let expected: Vec<_> = made.iter().filter(|m| m.0 == space).map(|m| m.1).collect();
            assert_eq!(revisions, expected, "{space}");
        }
    });
}

#[test]
fn watch_starts_at_given_revision() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        for text in ["1", "2", "3"] {
            store.commit(put("s", "k", text)).await.unwrap();
        }
        let table = [(1, vec![2, 3, 4, 5]), (2, vec![3, 4, 5]), (4, vec![5]), (5, vec![])];
        let watches: Vec<_> = table
            .iter()
            .map(|(after, _)| store.watch("s", Revision::new(*after)).unwrap())
            .collect();
        store.commit(put("s", "k", "4")).await.unwrap();
        let mut future = store.watch("s", Revision::new(6)).unwrap();
        store.commit(put("other", "k", "5")).await.unwrap();
        assert_eq!(future.progress_revision().get(), 6, "not what has yet to come");
        for (watch, (after, expected)) in watches.into_iter().zip(table) {
            let seen = follow(watch, Revision::new(6), 2).await.unwrap();
            assert_eq!(seen, expected, "after {after}");
        }
        store.commit(put("s", "k", "6")).await.unwrap();
        assert_eq!(future.next(9).await.unwrap()[0].revision.get(), 7);
    });
}

/// The revision of bookmarks advances also when the resource is idle.
#[test]
fn an_idle_watch_catches_up_with_the_store() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        let mut idle = store.watch("idle", Revision::EMPTY).unwrap();
        let mut busy = store.watch("busy", Revision::EMPTY).unwrap();
        for text in ["1", "2", "3"] {
            store.commit(put("busy", "k", text)).await.unwrap();
        }
        assert_eq!(idle.progress_revision().get(), 4);
        assert_eq!(busy.progress_revision().get(), 1, "three events have yet to be handed out");
        assert_eq!(busy.next(2).await.unwrap().len(), 2);
        assert_eq!(busy.progress_revision().get(), 3);
        assert_eq!(busy.next(2).await.unwrap().len(), 1);
        store.commit(put("other", "k", "4")).await.unwrap();
        assert_eq!((busy.progress_revision().get(), idle.progress_revision().get()), (5, 5));
    });
}

/// A thousand watches that are never read keep nothing alive, and report that they lagged when they
/// are read.
#[test]
fn slow_watchers_hold_no_memory() {
    let mut options = small(8192);
    options.window = WindowOptions {
        bytes: 50_000,
        space_bytes: 50_000,
        floor_events: 8,
        ceiling_bytes: 60_000,
    };
    let (store, _) = TestStore::open(&options).unwrap();
    runtime().block_on(async {
        let mut watches: Vec<_> =
            (0..1000).map(|_| store.watch("s", Revision::EMPTY).unwrap()).collect();
        let mut old = Vec::new();
        for change in 0..500 {
            let event = store.commit(put("s", "k", &"x".repeat(1000))).await.unwrap();
            assert!(store.stats().window_bytes <= 50_000);
            if change < 400 {
                old.push((Arc::downgrade(&event), Arc::downgrade(&event.entry)));
            }
        }
        let alive = |weak: &(Weak<Event<(), ()>>, Weak<Entry<()>>)| {
            weak.0.strong_count() + weak.1.strong_count() > 0
        };
        assert_eq!(old.iter().filter(|weak| alive(weak)).count(), 0);
        let oldest = store.watch("s", Revision::EMPTY).unwrap_err().oldest;
        for watch in &mut watches {
            assert_eq!(watch.progress_revision(), Revision::EMPTY, "it has been handed nothing");
            assert_eq!(watch.next(1).await.unwrap_err(), WatchError::Lagged { oldest });
        }
        let mut again = store.watch("s", oldest).unwrap();
        assert_eq!(again.next(1).await.unwrap()[0].revision, oldest.next());
    });
}

#[test]
fn wait_for_ends_at_revision() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    runtime().block_on(async {
        let waiting = store.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            waiting.wait_for(Revision::new(4)).await.unwrap();
            waiting.revision().get()
        });
        for text in ["1", "2", "3"] {
            assert!(tasks.try_join_next().is_none());
            store.commit(put("s", "k", text)).await.unwrap();
        }
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), 4);
    });
}
