use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::Revision;

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta,
    size: i64,
}

impl View for Thing {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "things", "Thing");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Thing `name` as written at `revision`; its UID consists of its name and `life`.
fn thing(name: &str, life: u32, revision: u64) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("{name}-{life}"),
            "resourceVersion": revision.to_string(),
        },
        "size": i64::try_from(revision).unwrap(),
    })
}

fn world() -> World {
    World::new([Kind::of::<Thing>(), Kind::of::<Thing>()])
}

fn store(world: &World) -> Arc<dyn AnyStore> {
    world.single_store_for(&Thing::RESOURCE).unwrap()
}

/// What the one store assumes.
fn assume(world: &World, write: &Write, answer: &Outcome) -> Option<Change> {
    world.assume(write, answer).pop()
}

fn sizes(world: &World) -> Vec<i64> {
    world.store::<Thing>().list().iter().map(|it| it.size).collect()
}

fn delete(name: &str, life: u32) -> Write {
    Write::Delete {
        resource: Thing::RESOURCE,
        key: Key::new("n", name),
        fence: crate::Fence { uid: Uid::new(&format!("{name}-{life}")), revision: None },
        grace: None,
        propagation: None,
    }
}

fn create(body: Value) -> Write {
    Write::Create { resource: Thing::RESOURCE, body }
}

#[test]
fn the_newer_copy_stays() {
    let world = world();
    let saw =
        |revision| store(&world).observe(&thing("a", 1, revision).to_string()).unwrap().is_some();
    assert!(saw(5), "news");
    assert!(!saw(5), "the same again is no change");
    assert!(!saw(4), "older");
    assert!(saw(6));
    assert_eq!(sizes(&world), [6]);
}

#[test]
fn responses_are_assumed_before_the_watch() {
    let world = world();
    let made = thing("a", 1, 7);
    let change = assume(&world, &create(made.clone()), &Outcome::Done(Some(made.clone())));
    assert!(change.is_some());
    assert_eq!(sizes(&world), [7]);
    let again = store(&world).observe(&made.to_string()).unwrap();
    assert!(again.is_none(), "the watch has nothing to add");
}

#[test]
fn a_late_response_restores_nothing() {
    let world = world();
    let made = thing("a", 1, 7);
    store(&world).observe(&made.to_string()).unwrap();
    store(&world).observe_deletion(&thing("a", 1, 8).to_string()).unwrap();
    let change = assume(&world, &create(made.clone()), &Outcome::Done(Some(made)));
    assert!(change.is_none() && sizes(&world).is_empty(), "the watch has shown its end already");
}

#[test]
fn stale_events_do_not_restore_deleted_objects() {
    let world = world();
    store(&world).observe(&thing("a", 1, 7).to_string()).unwrap();
    assert!(assume(&world, &delete("a", 1), &Outcome::Done(None)).unwrap().is_removal());
    store(&world).observe(&thing("a", 1, 8).to_string()).unwrap();
    assert!(sizes(&world).is_empty(), "written before our delete, delivered after it");
    store(&world).observe_deletion(&thing("a", 1, 9).to_string()).unwrap();
    store(&world).observe(&thing("a", 2, 10).to_string()).unwrap();
    assert_eq!(sizes(&world), [10], "the next object of the name is another one");
}

#[test]
fn deleting_an_old_uid_keeps_the_new_object() {
    let world = world();
    let next = thing("a", 2, 9);
    assume(&world, &create(next.clone()), &Outcome::Done(Some(next))).unwrap();
    store(&world).observe_deletion(&thing("a", 1, 8).to_string()).unwrap();
    assert_eq!(sizes(&world), [9]);
    assert!(assume(&world, &delete("a", 1), &Outcome::NotFound).is_none());
    assert_eq!(sizes(&world), [9]);
}

#[test]
fn a_delete_with_finalizers_keeps_the_object() {
    let world = world();
    store(&world).observe(&thing("a", 1, 7).to_string()).unwrap();
    let mut going = thing("a", 1, 8);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["x"]);
    assume(&world, &delete("a", 1), &Outcome::Done(Some(going.clone()))).unwrap();
    let seen = world.store::<Thing>().get(&Key::new("n", "a")).unwrap();
    assert!(seen.meta().is_terminating());
    // Without finalizers, the response shows the last state of an object that is gone.
    going["metadata"]["finalizers"] = json!([]);
    assume(&world, &delete("a", 1), &Outcome::Done(Some(going))).unwrap();
    assert!(sizes(&world).is_empty());
}

#[test]
fn removing_the_last_finalizer_deletes() {
    let merge = |object: &Value| Write::Merge {
        resource: Thing::RESOURCE,
        key: Key::new("n", "a"),
        subresource: crate::Subresource::Main,
        fence: crate::Fence { uid: Uid::new("a-1"), revision: None },
        body: object.clone(),
    };
    // The remaining finalizers, and whether the object still exists.
    let cases = [
        (json!({}), false),
        (json!({"metadata": {"finalizers": []}}), false),
        (json!({"metadata": {"finalizers": ["x"]}}), true),
        (json!({"metadata": {"deletionGracePeriodSeconds": 30}}), true),
        (json!({"metadata": {"deletionGracePeriodSeconds": 0}}), false),
        (json!({"spec": {"finalizers": ["kubernetes"]}}), true),
        (json!({"metadata": {"deletionTimestamp": null}}), true),
    ];
    for (left, there) in cases {
        let world = world();
        store(&world).observe(&thing("a", 1, 7).to_string()).unwrap();
        // The response has the revision from before: nothing was written any more.
        let mut answer = thing("a", 1, 7);
        answer["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (part, fields) in left.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                answer[part][field] = value.clone();
            }
        }
        let change = assume(&world, &merge(&left), &Outcome::Done(Some(answer)));
        assert_eq!(change.is_none(), there, "{left}");
        assert_eq!(sizes(&world).len(), usize::from(there), "{left}");
    }
}

#[test]
fn a_relist_keeps_newer_own_writes() {
    let world = world();
    for (name, revision) in [("a", 1), ("b", 2)] {
        store(&world).observe(&thing(name, 1, revision).to_string()).unwrap();
    }
    let made = thing("c", 1, 9);
    assume(&world, &create(made.clone()), &Outcome::Done(Some(made))).unwrap();
    let (b, d) = (thing("b", 1, 5).to_string(), thing("d", 1, 4).to_string());
    let (changes, unreadable) = store(&world).replace(&[&b, &d], Revision(5));
    assert_eq!(sizes(&world), [5, 9, 4], "a is gone, b is newer, c is kept, d is new");
    assert_eq!((changes.len(), unreadable.len()), (3, 0));
    assert!(store(&world).has_synced());
}

#[test]
fn an_unreadable_object_keeps_the_others() {
    let world = world();
    let mut bad = thing("b", 1, 2);
    bad["size"] = json!("large");
    let (good, bad) = (thing("a", 1, 1).to_string(), bad.to_string());
    let (_, unreadable) = store(&world).replace(&[&bad, &good], Revision(2));
    assert_eq!(sizes(&world), [1]);
    assert_eq!(unreadable[0].to_string(), "cannot read things n/b");
    let bad_now = thing("a", 1, 3).to_string().replace("\"size\":3", "\"size\":null");
    let unreadable = store(&world).observe(&bad_now).unwrap_err();
    assert!(sizes(&world).is_empty(), "the cached version is no longer true");
    let change = unreadable.change.unwrap();
    assert!(change.is_removal() && change.before::<Thing>().is_some(), "and that is a change");
    assert!(store(&world).observe(&bad_now).unwrap_err().change.is_none(), "but not a second time");
}

#[test]
fn unreadable_objects_are_reported() {
    let world = world();
    let bad = |name: &str, revision| {
        let mut bad = thing(name, 1, revision);
        bad["size"] = json!("large");
        bad.to_string()
    };
    let hidden = || -> Vec<String> {
        let all = store(&world).unreadable().into_iter();
        all.map(|held| format!("{} {}: {}", held.about.key, held.reason, held.message)).collect()
    };
    let (_, unreadable) = store(&world).replace(&[&bad("a", 1), &bad("b", 2)], Revision(2));
    assert_eq!(unreadable.len(), 2);
    let why = "invalid type: string \"large\", expected i64";
    let [a, b] = ["a", "b"].map(|name| format!("n/{name} Unreadable: cannot read things n/{name}"));
    assert!(hidden()[0].starts_with(&format!("{a}: {why}")), "{:?}", hidden());
    let things = world.store::<Thing>();
    assert!(things.is_unreadable(&Key::new("n", "b")) && things.get(&Key::new("n", "b")).is_none());
    store(&world).observe(&thing("a", 1, 3).to_string()).unwrap().unwrap();
    assert!(hidden().len() == 1 && hidden()[0].starts_with(&b), "one can be read again");
    store(&world).observe(&bad("a", 4)).unwrap_err();
    store(&world).observe_deletion(&bad("b", 5)).unwrap();
    assert!(
        hidden().len() == 1 && hidden()[0].starts_with(&a),
        "one cannot be read any more, one is gone"
    );
    let written = thing("a", 1, 9);
    let write = create(written.clone());
    assume(&world, &write, &Outcome::Done(Some(written))).unwrap();
    let _ = store(&world).replace(&[&bad("a", 6)], Revision(6));
    assert!(hidden().is_empty(), "what our own write fixed since can be read");
    let _ = store(&world).replace(&[], Revision(10));
    assert!(hidden().is_empty() && sizes(&world).is_empty());
}

#[test]
fn refusals_are_remembered_until_the_next_plan() {
    let world = world();
    let (key, write) = (Key::new("n", "a"), create(thing("b", 1, 1)));
    let refusal = crate::Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "quota exceeded".to_owned(),
    };
    let table = [
        (Outcome::Done(None), None),
        (Outcome::NotFound, Some(("NotFound", false))),
        (Outcome::Conflict("late".to_owned()), Some(("Conflict", false))),
        (Outcome::Unknown("lost".to_owned()), Some(("NoResponse", false))),
        (Outcome::Refused(refusal.clone()), Some(("Forbidden", true))),
    ];
    for (outcome, expected) in table {
        let refused = RefusedWrite::of(&write, &outcome);
        let held = crate::Held::failed_write(&write, &outcome, None);
        let found = held.as_ref().map(|held| (&*held.reason, refused.is_some()));
        assert_eq!(found, expected, "{outcome:?}");
    }
    let gone = crate::Held::failed_write(&delete("b", 1), &Outcome::NotFound, None);
    assert_eq!(gone, None, "what was to go is gone");
    let refused = RefusedWrite::of(&write, &Outcome::Refused(refusal)).unwrap();
    assert!(refused.matches(&write) && !refused.matches(&delete("b", 1)));
    world.record_refusals("one", &key, vec![refused.clone()]);
    assert_eq!(world.refused_writes("one", &key), [refused]);
    assert!(world.refused_writes("two", &key).is_empty(), "each controller has its own");
    assert!(world.refused_writes("one", &Key::new("n", "b")).is_empty(), "and each key");
    world.record_refusals("one", &key, Vec::new());
    assert!(world.refused_writes("one", &key).is_empty());
}

#[test]
fn objects_are_found_by_owner_and_namespace() {
    let world = world();
    let mut owned = thing("a", 1, 1);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x-1", "controller": true}]);
    store(&world).observe(&owned.to_string()).unwrap();
    store(&world).observe(&thing("b", 1, 2).to_string()).unwrap();
    let things = world.store::<Thing>();
    assert_eq!(things.owned_by(&Uid::new("x-1")).len(), 1);
    assert_eq!((things.in_namespace("n").len(), things.in_namespace("m").len()), (2, 0));
    // Released by its owner, the object is no longer in the owner index.
    store(&world).observe(&thing("a", 1, 3).to_string()).unwrap();
    assert!(things.owned_by(&Uid::new("x-1")).is_empty());
}

/// A view that many kinds share.
#[derive(Debug, serde::Deserialize)]
struct Anything {
    metadata: Meta,
}

impl View for Anything {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "anythings", "Anything");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[test]
fn many_kinds_may_share_one_view() {
    let (one, two) = (
        Resource::namespaced("", "v1", "ones", "One"),
        Resource::namespaced("x", "v1", "twos", "Two"),
    );
    let world = World::new([
        Kind::with_resource::<Anything>(one.clone()),
        Kind::with_resource::<Anything>(two.clone()),
    ]);
    let text =
        r#"{"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3"}}"#;
    let change = world.single_store_for(&two).unwrap().observe(text).unwrap().unwrap();
    assert_eq!(change.resource, two, "a change says which of them it is");
    assert!(change.is::<Anything>());
    let count = |resource| world.store_for::<Anything>(resource).unwrap().len();
    assert_eq!((count(&one), count(&two)), (0, 1));
    assert!(world.store_for::<Anything>(&Anything::RESOURCE).is_none());
}

#[test]
fn two_views_of_a_kind_have_two_stores() {
    let world = world();
    let (_, is_new) = world.add_store(&Kind::with_resource::<Anything>(Thing::RESOURCE));
    assert!(is_new);
    assert!(!world.add_store(&Kind::with_resource::<Anything>(Thing::RESOURCE)).1, "there is one");
    assert!(world.single_store_for(&Thing::RESOURCE).is_none(), "it is ambiguous which is meant");
    let made = thing("a", 1, 7);
    let changes = world.assume(&create(made.clone()), &Outcome::Done(Some(made)));
    assert_eq!(changes.len(), 2);
    assert!(changes[0].is::<Thing>() && changes[1].is::<Anything>());
    assert_eq!(world.store::<Thing>().len(), 1);
    assert_eq!(world.store_for::<Anything>(&Thing::RESOURCE).unwrap().len(), 1);
    let shelf = world.store_by_id(&StoreId::with_resource::<Anything>(Thing::RESOURCE)).unwrap();
    assert_eq!(shelf.store_id(), StoreId::with_resource::<Anything>(Thing::RESOURCE));
    assert_ne!(shelf.store_id(), StoreId::of::<Thing>());
}

#[test]
fn derived_state_is_shared_by_clones() {
    #[derive(Default)]
    struct Sum(std::sync::Mutex<u32>);
    let world = World::default();
    let clone = world.clone();
    *world.derived::<Sum>().0.lock().unwrap() += 5;
    assert_eq!(*clone.derived::<Sum>().0.lock().unwrap(), 5);
    assert_eq!(*World::default().derived::<Sum>().0.lock().unwrap(), 0);
}
