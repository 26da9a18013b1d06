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

/// Thing `name` as written at `revision`; its identity is its name and `life`.
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

fn shelf(world: &World) -> Arc<dyn AnyShelf> {
    world.find(&Thing::RESOURCE).unwrap()
}

/// What the one shelf learns.
fn learn(world: &World, write: &Write, answer: &Outcome) -> Option<Change> {
    world.learn(write, answer).pop()
}

fn sizes(world: &World) -> Vec<i64> {
    world.shelf::<Thing>().all().iter().map(|it| it.size).collect()
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
    let saw = |revision| shelf(&world).saw(&thing("a", 1, revision).to_string()).unwrap().is_some();
    assert!(saw(5), "news");
    assert!(!saw(5), "the same again is no change");
    assert!(!saw(4), "older");
    assert!(saw(6));
    assert_eq!(sizes(&world), [6]);
}

#[test]
fn an_answer_is_known_before_the_watch_shows_it() {
    let world = world();
    let made = thing("a", 1, 7);
    let change = learn(&world, &create(made.clone()), &Outcome::Done(Some(made.clone())));
    assert!(change.is_some());
    assert_eq!(sizes(&world), [7]);
    let again = shelf(&world).saw(&made.to_string()).unwrap();
    assert!(again.is_none(), "the watch has nothing to add");
}

#[test]
fn a_late_answer_brings_nothing_back() {
    let world = world();
    let made = thing("a", 1, 7);
    shelf(&world).saw(&made.to_string()).unwrap();
    shelf(&world).saw_end(&thing("a", 1, 8).to_string()).unwrap();
    let change = learn(&world, &create(made.clone()), &Outcome::Done(Some(made)));
    assert!(change.is_none() && sizes(&world).is_empty(), "the watch has shown its end already");
}

#[test]
fn what_we_removed_is_not_brought_back_by_older_news() {
    let world = world();
    shelf(&world).saw(&thing("a", 1, 7).to_string()).unwrap();
    assert!(learn(&world, &delete("a", 1), &Outcome::Done(None)).unwrap().is_removal());
    shelf(&world).saw(&thing("a", 1, 8).to_string()).unwrap();
    assert!(sizes(&world).is_empty(), "written before our delete, shown after it");
    shelf(&world).saw_end(&thing("a", 1, 9).to_string()).unwrap();
    shelf(&world).saw(&thing("a", 2, 10).to_string()).unwrap();
    assert_eq!(sizes(&world), [10], "the next of the name is another object");
}

#[test]
fn the_end_of_the_former_object_leaves_the_next_alone() {
    let world = world();
    let next = thing("a", 2, 9);
    learn(&world, &create(next.clone()), &Outcome::Done(Some(next))).unwrap();
    shelf(&world).saw_end(&thing("a", 1, 8).to_string()).unwrap();
    assert_eq!(sizes(&world), [9]);
    assert!(learn(&world, &delete("a", 1), &Outcome::Absent).is_none());
    assert_eq!(sizes(&world), [9]);
}

#[test]
fn a_delete_that_waits_leaves_the_object() {
    let world = world();
    shelf(&world).saw(&thing("a", 1, 7).to_string()).unwrap();
    let mut going = thing("a", 1, 8);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["x"]);
    learn(&world, &delete("a", 1), &Outcome::Done(Some(going.clone()))).unwrap();
    let seen = world.shelf::<Thing>().get(&Key::new("n", "a")).unwrap();
    assert!(seen.meta().is_going());
    // Without anything to wait for, the answer shows what is no more.
    going["metadata"]["finalizers"] = json!([]);
    learn(&world, &delete("a", 1), &Outcome::Done(Some(going))).unwrap();
    assert!(sizes(&world).is_empty());
}

#[test]
fn what_loses_its_last_finalizer_is_gone() {
    let merge = |object: &Value| Write::Merge {
        resource: Thing::RESOURCE,
        key: Key::new("n", "a"),
        part: crate::Part::Main,
        fence: crate::Fence { uid: Uid::new("a-1"), revision: None },
        body: object.clone(),
    };
    // What is left to wait for, and whether the object is still there.
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
        shelf(&world).saw(&thing("a", 1, 7).to_string()).unwrap();
        // The answer has the revision from before: nothing was written any more.
        let mut answer = thing("a", 1, 7);
        answer["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (part, fields) in left.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                answer[part][field] = value.clone();
            }
        }
        let change = learn(&world, &merge(&left), &Outcome::Done(Some(answer)));
        assert_eq!(change.is_none(), there, "{left}");
        assert_eq!(sizes(&world).len(), usize::from(there), "{left}");
    }
}

#[test]
fn a_new_list_keeps_what_was_written_since() {
    let world = world();
    for (name, revision) in [("a", 1), ("b", 2)] {
        shelf(&world).saw(&thing(name, 1, revision).to_string()).unwrap();
    }
    let made = thing("c", 1, 9);
    learn(&world, &create(made.clone()), &Outcome::Done(Some(made))).unwrap();
    let (b, d) = (thing("b", 1, 5).to_string(), thing("d", 1, 4).to_string());
    let (changes, unreadable) = shelf(&world).replace(&[&b, &d], Revision(5));
    assert_eq!(sizes(&world), [5, 9, 4], "a is gone, b is newer, c is kept, d is new");
    assert_eq!((changes.len(), unreadable.len()), (3, 0));
    assert!(shelf(&world).is_filled());
}

#[test]
fn one_object_that_cannot_be_read_leaves_the_others() {
    let world = world();
    let mut bad = thing("b", 1, 2);
    bad["size"] = json!("large");
    let (good, bad) = (thing("a", 1, 1).to_string(), bad.to_string());
    let (_, unreadable) = shelf(&world).replace(&[&bad, &good], Revision(2));
    assert_eq!(sizes(&world), [1]);
    assert_eq!(unreadable[0].to_string(), "cannot read things n/b");
    let bad_now = thing("a", 1, 3).to_string().replace("\"size\":3", "\"size\":null");
    let unreadable = shelf(&world).saw(&bad_now).unwrap_err();
    assert!(sizes(&world).is_empty(), "what was known is no longer true");
    let change = unreadable.change.unwrap();
    assert!(change.is_removal() && change.before::<Thing>().is_some(), "and that is a change");
    assert!(shelf(&world).saw(&bad_now).unwrap_err().change.is_none(), "but not a second time");
}

#[test]
fn what_cannot_be_read_is_known_to_be_there() {
    let world = world();
    let bad = |name: &str, revision| {
        let mut bad = thing(name, 1, revision);
        bad["size"] = json!("large");
        bad.to_string()
    };
    let hidden = || -> Vec<String> {
        let all = shelf(&world).unreadable().into_iter();
        all.map(|held| format!("{} {}: {}", held.about.key, held.reason, held.message)).collect()
    };
    let (_, unreadable) = shelf(&world).replace(&[&bad("a", 1), &bad("b", 2)], Revision(2));
    assert_eq!(unreadable.len(), 2);
    let why = "invalid type: string \"large\", expected i64";
    let [a, b] = ["a", "b"].map(|name| format!("n/{name} Unreadable: cannot read things n/{name}"));
    assert!(hidden()[0].starts_with(&format!("{a}: {why}")), "{:?}", hidden());
    let things = world.shelf::<Thing>();
    assert!(things.is_unreadable(&Key::new("n", "b")) && things.get(&Key::new("n", "b")).is_none());
    shelf(&world).saw(&thing("a", 1, 3).to_string()).unwrap().unwrap();
    assert!(hidden().len() == 1 && hidden()[0].starts_with(&b), "one was mended");
    shelf(&world).saw(&bad("a", 4)).unwrap_err();
    shelf(&world).saw_end(&bad("b", 5)).unwrap();
    assert!(hidden().len() == 1 && hidden()[0].starts_with(&a), "one was spoiled, one is gone");
    let written = thing("a", 1, 9);
    let write = create(written.clone());
    learn(&world, &write, &Outcome::Done(Some(written))).unwrap();
    let _ = shelf(&world).replace(&[&bad("a", 6)], Revision(6));
    assert!(hidden().is_empty(), "what our own hand mended since can be read");
    let _ = shelf(&world).replace(&[], Revision(10));
    assert!(hidden().is_empty() && sizes(&world).is_empty());
}

#[test]
fn refusals_are_remembered_until_the_next_plan() {
    let world = world();
    let (key, write) = (Key::new("n", "a"), create(thing("b", 1, 1)));
    let refusal =
        crate::Refusal { code: 403, reason: "Forbidden".to_owned(), message: "no room".to_owned() };
    let table = [
        (Outcome::Done(None), None),
        (Outcome::Absent, Some(("NotFound", false))),
        (Outcome::Stale("late".to_owned()), Some(("Conflict", false))),
        (Outcome::Unanswered("lost".to_owned()), Some(("Unanswered", false))),
        (Outcome::Refused(refusal.clone()), Some(("Forbidden", true))),
    ];
    for (outcome, expected) in table {
        let refused = Refused::of(&write, &outcome);
        let held = crate::Held::failed(&write, &outcome, None);
        let found = held.as_ref().map(|held| (&*held.reason, refused.is_some()));
        assert_eq!(found, expected, "{outcome:?}");
    }
    let gone = crate::Held::failed(&delete("b", 1), &Outcome::Absent, None);
    assert_eq!(gone, None, "what was to go is gone");
    let refused = Refused::of(&write, &Outcome::Refused(refusal)).unwrap();
    assert!(refused.is(&write) && !refused.is(&delete("b", 1)));
    world.remember("one", &key, vec![refused.clone()]);
    assert_eq!(world.refused("one", &key), [refused]);
    assert!(world.refused("two", &key).is_empty(), "each controller has its own");
    assert!(world.refused("one", &Key::new("n", "b")).is_empty(), "and each key");
    world.remember("one", &key, Vec::new());
    assert!(world.refused("one", &key).is_empty());
}

#[test]
fn objects_are_found_by_owner_and_namespace() {
    let world = world();
    let mut owned = thing("a", 1, 1);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x-1", "controller": true}]);
    shelf(&world).saw(&owned.to_string()).unwrap();
    shelf(&world).saw(&thing("b", 1, 2).to_string()).unwrap();
    let things = world.shelf::<Thing>();
    assert_eq!(things.owned_by(&Uid::new("x-1")).len(), 1);
    assert_eq!((things.within("n").len(), things.within("m").len()), (2, 0));
    // Given up by its owner, it is filed elsewhere.
    shelf(&world).saw(&thing("a", 1, 3).to_string()).unwrap();
    assert!(things.owned_by(&Uid::new("x-1")).is_empty());
}

/// A view that many kinds are seen through.
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
fn many_kinds_may_be_seen_through_one_view() {
    let (one, two) = (
        Resource::namespaced("", "v1", "ones", "One"),
        Resource::namespaced("x", "v1", "twos", "Two"),
    );
    let world = World::new([Kind::at::<Anything>(one.clone()), Kind::at::<Anything>(two.clone())]);
    let text =
        r#"{"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3"}}"#;
    let change = world.find(&two).unwrap().saw(text).unwrap().unwrap();
    assert_eq!(change.resource, two, "a change says which of them it is");
    assert!(change.is::<Anything>());
    let count = |resource| world.shelf_at::<Anything>(resource).unwrap().len();
    assert_eq!((count(&one), count(&two)), (0, 1));
    assert!(world.shelf_at::<Anything>(&Anything::RESOURCE).is_none());
}

#[test]
fn two_may_see_a_kind_through_eyes_of_their_own() {
    let world = world();
    let (_, is_new) = world.add(&Kind::at::<Anything>(Thing::RESOURCE));
    assert!(is_new);
    assert!(!world.add(&Kind::at::<Anything>(Thing::RESOURCE)).1, "there is one");
    assert!(world.find(&Thing::RESOURCE).is_none(), "nobody can say which is meant");
    let made = thing("a", 1, 7);
    let changes = world.learn(&create(made.clone()), &Outcome::Done(Some(made)));
    assert_eq!(changes.len(), 2);
    assert!(changes[0].is::<Thing>() && changes[1].is::<Anything>());
    assert_eq!(world.shelf::<Thing>().len(), 1);
    assert_eq!(world.shelf_at::<Anything>(&Thing::RESOURCE).unwrap().len(), 1);
    let shelf = world.at(&Place::at::<Anything>(Thing::RESOURCE)).unwrap();
    assert_eq!(shelf.place(), Place::at::<Anything>(Thing::RESOURCE));
    assert_ne!(shelf.place(), Place::of::<Thing>());
}

#[test]
fn what_is_kept_with_a_world_is_one_for_all_its_clones() {
    #[derive(Default)]
    struct Sum(std::sync::Mutex<u32>);
    let world = World::default();
    let clone = world.clone();
    *world.kept::<Sum>().0.lock().unwrap() += 5;
    assert_eq!(*clone.kept::<Sum>().0.lock().unwrap(), 5);
    assert_eq!(*World::default().kept::<Sum>().0.lock().unwrap(), 0);
}
