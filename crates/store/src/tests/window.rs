//! History: every revision in the window can be read and watched from, and none before it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Content = BTreeMap<String, String>;

fn content(space: &SpaceSnapshot<()>) -> Content {
    entries(space).into_iter().map(|(key, value, _)| (key, value)).collect()
}

#[derive(Debug, Clone)]
struct Step {
    space: usize,
    key: u8,
    deleted: bool,
    padding: usize,
    /// A revision to look at, as a share of those there have been.
    read_at: u64,
    reopened: bool,
}

fn any_step() -> impl Strategy<Value = Step> {
    let deleted = prop::bool::weighted(0.3);
    let reopened = prop::bool::weighted(0.01);
    (0..3_usize, 0..6_u8, deleted, 0..300_usize, any::<u64>(), reopened).prop_map(
        |(space, key, deleted, padding, look, reopened)| Step {
            space,
            key,
            deleted,
            padding,
            read_at: look,
            reopened,
        },
    )
}

const SPACES: [&str; 3] = ["a", "b", "c"];

/// Compares one revision of one space with what it was then.
fn check(store: &TestStore, space: &str, revision: u64, then: &Content, later: &[EventSummary]) {
    let state = store.snapshot_state();
    let floor = state.floor(space);
    let at = Revision::new(revision);
    let found = store.snapshot_at(space, at);
    let watch = store.watch(space, at);
    if at < floor {
        assert_eq!(found.unwrap_err(), TooOld { oldest: floor });
        assert_eq!(watch.unwrap_err(), TooOld { oldest: floor });
        return;
    }
    let found = found.unwrap();
    assert_eq!((content(&found), found.revision()), (then.clone(), at));
    let mut watch = watch.unwrap();
    if later.is_empty() {
        assert_eq!(watch.progress_revision(), store.revision());
    } else {
        let events = runtime().block_on(watch.next(usize::MAX)).unwrap();
        assert_eq!(events.iter().map(|event| summarize(event)).collect::<Vec<_>>(), later);
    }
}

proptest! {
    #[test]
    fn windows_keep_history_and_bounds(
        steps in prop::collection::vec(any_step(), 1..150),
        bytes in 500..8000_usize,
        space_bytes in 500..8000_usize,
        floor_events in 0..6_usize,
    ) {
        let disk = SimulatedDisk::default();
        let mut options = small(8192);
        let ceiling_bytes = bytes + 4000;
        options.window = WindowOptions { bytes, space_bytes, floor_events, ceiling_bytes };
        let (mut store, _) = open(&disk, &options).unwrap();
        let runtime = runtime();
        // Every revision of every space, and every event.
        let mut was: BTreeMap<u64, [Content; 3]> = BTreeMap::from([(1, Default::default())]);
        let mut events: [Vec<EventSummary>; 3] = Default::default();
        for step in steps {
            let (name, key) = (SPACES[step.space], format!("k{}", step.key));
            let text = "x".repeat(step.padding);
            let write = if step.deleted { delete(name, &key, &text) } else { put(name, &key, &text) };
            if let Ok(event) = runtime.block_on(store.commit(write)) {
                let mut now = was.last_key_value().unwrap().1.clone();
                let (revision, kind, key, value) = summarize(&event);
                match kind {
                    EventKind::Put => drop(now[step.space].insert(key, value)),
                    EventKind::Delete => drop(now[step.space].remove(&key)),
                }
                was.insert(revision, now);
                events[step.space].push(summarize(&event));
            }
            if step.reopened {
                store.close().unwrap();
                let floors = SPACES.map(|space| store.snapshot_state().floor(space));
                store = open(&disk, &options).unwrap().0;
                prop_assert_eq!(SPACES.map(|space| store.snapshot_state().floor(space)), floors);
            }
            let revision = step.read_at % was.len() as u64 + 1;
            for (index, space) in SPACES.iter().enumerate() {
                let later: Vec<_> =
                    events[index].iter().filter(|event| event.0 > revision).cloned().collect();
                check(&store, space, revision, &was[&revision][index], &later);
            }
            let state = store.snapshot_state();
            let windows: Vec<_> = state.windows.iter().collect();
            let counted = windows.iter().flat_map(|w| w.events.iter()).map(|e| e.size()).sum::<usize>();
            prop_assert_eq!(state.window_bytes, counted);
            prop_assert!(counted <= ceiling_bytes);
            let grown = windows.iter().any(|window| window.events.len() > floor_events);
            prop_assert!(counted <= bytes || !grown);
            for window in windows {
                prop_assert!(window.bytes <= space_bytes || window.events.len() <= floor_events);
            }
        }
    }
}

/// The pages of a list that is read slowly all show the same revision, and share its memory.
#[test]
fn a_list_can_be_paged_through_while_it_changes() {
    let (store, _) = TestStore::open(&small(8192)).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let writes = (0..100).map(|key| put("s", &format!("{key:03}"), "old")).collect();
        commit_concurrently(&store, writes).await;
    });
    let first = store.space("s");
    let before = entries(&first);
    let mut paged = Vec::new();
    let mut from = std::ops::Bound::Unbounded;
    let mut last;
    loop {
        let page = store.snapshot_at("s", first.revision()).unwrap();
        assert_eq!(page.count(from), 100 - paged.len());
        let items: Vec<_> = page.range(from).take(7).cloned().collect();
        let Some(item) = items.last() else { break };
        last = item.key.clone();
        from = std::ops::Bound::Excluded(&last);
        paged.extend(items);
        runtime.block_on(async {
            store
                .commit(delete("s", &format!("{:03}", 99 - paged.len().div_ceil(7)), "gone"))
                .await
                .unwrap();
            store.commit(put("s", &format!("{:03}x", paged.len()), "new")).await.unwrap();
        });
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let paged: Vec<_> =
        paged.iter().map(|e| (text(&e.key), text(&e.value), e.created.get())).collect();
    assert_eq!(paged, before);
}

/// One busy space does not push out the history of a quiet one.
#[test]
fn a_quiet_space_keeps_its_history() {
    let mut options = small(8192);
    options.window = WindowOptions {
        bytes: 20_000,
        space_bytes: 20_000,
        floor_events: 16,
        ceiling_bytes: 80_000,
    };
    let (store, _) = TestStore::open(&options).unwrap();
    runtime().block_on(async {
        for change in 0..10 {
            store.commit(put("quiet", "k", &change.to_string())).await.unwrap();
        }
        for change in 0..1000 {
            store.commit(put("busy", "k", &format!("{change}{}", "x".repeat(500)))).await.unwrap();
        }
    });
    assert_eq!(history(&store, "quiet").len(), 10);
    assert!(store.watch("quiet", Revision::EMPTY).is_ok());
    assert!(store.watch("busy", Revision::EMPTY).is_err());
}

/// States kept for paging pin nothing that has left the window.
#[test]
fn cached_states_leave_with_window() {
    let mut options = small(8192);
    options.window = WindowOptions {
        bytes: 20_000,
        space_bytes: 20_000,
        floor_events: 2,
        ceiling_bytes: 30_000,
    };
    let (store, _) = TestStore::open(&options).unwrap();
    runtime().block_on(async {
        let first = store.commit(put("s", "k", "first")).await.unwrap();
        store.commit(put("s", "k", "second")).await.unwrap();
        let looked = store.snapshot_at("s", first.revision).unwrap();
        assert!(Arc::ptr_eq(looked.get(b"k").unwrap(), &first.entry));
        let entry = Arc::downgrade(&first.entry);
        drop((first, looked));
        assert!(entry.upgrade().is_some(), "kept for the next page");
        for change in 0..50 {
            store.commit(put("s", "k", &format!("{change}{}", "x".repeat(1000)))).await.unwrap();
        }
        assert!(entry.upgrade().is_none());
    });
}

/// A holder of a snapshot can tell whether the space was written to since, without reading it.
#[test]
fn a_space_is_the_same_until_it_is_written_to() {
    runtime().block_on(async {
        let (store, _) = TestStore::open(&Options::new(Durability::Ephemeral)).unwrap();
        let nothing = store.space("a");
        assert!(nothing.is_same(&store.space("b")), "both are empty");
        store.commit(put("a", "x", "1")).await.unwrap();
        assert!(!nothing.is_same(&store.space("a")));
        let one = store.space("a");
        store.commit(put("b", "y", "1")).await.unwrap();
        assert!(one.is_same(&store.space("a")), "another space was written to");
        assert!(one.is_same(&store.snapshot().space("a")));
        store.commit(put("a", "x", "1")).await.unwrap();
        assert!(!one.is_same(&store.space("a")), "the same was written again");
        store.commit(delete("a", "x", "1")).await.unwrap();
        assert!(nothing.is_same(&store.space("a")), "empty again");
    });
}
