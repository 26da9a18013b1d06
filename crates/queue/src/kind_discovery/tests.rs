use gantry_reconcile::FactChange;
use serde_json::{Value, json};

use super::*;

const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn jobs() -> TypeName {
    TypeName::of(&JOBS)
}

fn world() -> World {
    World::new([Kind::of::<AppWrapper>()])
}

/// Returns an AppWrapper around a Job, a Pod and nothing, admitted at 6 or not.
fn wrapper(name: &str, kind: &str, can_run: bool) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
        "spec": {"resources": {"GenericItems": [
            {"generictemplate": {"apiVersion": "batch/v1", "kind": kind}},
            {"generictemplate": {"apiVersion": "v1", "kind": "Pod"}},
            {},
        ]}},
        "status": {"canrun": can_run, "conditions": [{"type": "HeadOfLine", "status": "True",
            "lastTransitionMicroTime": "1970-01-01T00:00:06.000000Z"}]},
    })
}

fn see(world: &World, wrapper: &Value) -> Change {
    world
        .single_store_for(&AppWrapper::RESOURCE)
        .unwrap()
        .observe(&wrapper.to_string())
        .unwrap()
        .unwrap()
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn record(world: &World, kind: ServedKind, second: i64) -> FactChange {
    world.facts::<ServedKind>().record(jobs(), kind, at(second))
}

#[test]
fn only_unserved_kinds_are_discovered_again() {
    let world = world();
    assert_eq!(served_kind(&world, &jobs(), Timestamp::MIN), None, "not asked yet");
    record(&world, ServedKind::NotServed, 5);
    assert_eq!(served_kind(&world, &jobs(), at(5)), Some(ServedKind::NotServed));
    assert_eq!(served_kind(&world, &jobs(), at(6)), None, "it may have been installed since");
    record(&world, ServedKind::Usable(JOBS), 7);
    assert_eq!(served_kind(&world, &jobs(), at(9)), Some(ServedKind::Usable(JOBS)));
    let pod = TypeName::of(&Pod::RESOURCE);
    assert_eq!(served_kind(&world, &pod, at(9)), Some(ServedKind::Usable(Pod::RESOURCE)));
    let other = TypeName { api_version: "v2".into(), kind: "Pod".into() };
    assert_eq!(served_kind(&world, &other, at(9)), None);
}

/// Definitions are installed late, and so are permissions: an admitted AppWrapper does not fail
/// because of an answer from before.
#[test]
fn an_admitted_app_wrapper_needs_discovery_after_its_admission() {
    let missing = || ServedKind::MissingRights { resource: JOBS, verbs: vec!["create".to_owned()] };
    let table = [
        // why, admitted, what is known, is it asked at once, is it checked again
        ("not asked yet", false, None, true, false),
        ("nor for one that was admitted", true, None, true, true),
        ("a pending one does not need it", false, Some((ServedKind::NotServed, 5)), false, false),
        ("from before the admission", true, Some((ServedKind::NotServed, 5)), true, true),
        ("rights too", true, Some((missing(), 5)), true, true),
        ("from after the admission", true, Some((missing(), 6)), false, false),
        ("what can be used stays so", true, Some((ServedKind::Usable(JOBS), 5)), false, false),
    ];
    for (why, can_run, known, stale, checked) in table {
        let world = world();
        see(&world, &wrapper("a", "Job", can_run));
        if let Some((kind, second)) = known {
            record(&world, kind, second);
        }
        let wanted = KindDiscovery.wanted_questions(&world, &key("a"), at(8));
        assert_eq!(wanted.questions.into_iter().collect::<Vec<_>>(), [jobs()], "{why}");
        assert_eq!(!wanted.stale.is_empty(), stale, "{why}");
        assert_eq!(wanted.requeue_at, checked.then(|| at(9)), "{why}");
        assert_eq!(
            KindDiscovery.wanted_questions(&world, &key("b"), at(8)),
            WantedQuestions::default(),
            "it is gone"
        );
    }
}

/// Statuses are written all the time. They do not change which kinds matter.
#[test]
fn only_new_kinds_and_admissions_need_discovery() {
    let world = world();
    let enqueued = |wrapper: &Value| {
        let change = see(&world, wrapper);
        KindDiscovery.enqueue(&world, &change).len()
    };
    let mut object = wrapper("a", "Job", false);
    let mut revision = 1;
    let mut write = |object: &mut Value, change: &dyn Fn(&mut Value)| {
        change(object);
        revision += 1;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        enqueued(object)
    };
    assert_eq!(write(&mut object, &|_| {}), 1, "a new one");
    assert_eq!(write(&mut object, &|it| it["status"]["message"] = json!("waits")), 0);
    assert_eq!(write(&mut object, &|it| it["status"]["canrun"] = json!(true)), 1, "it is admitted");
    assert_eq!(write(&mut object, &|it| it["status"]["running"] = json!(3)), 0);
    let item = "/spec/resources/GenericItems/0/generictemplate/kind";
    let other = |it: &mut Value| *it.pointer_mut(item).unwrap() = json!("CronJob");
    assert_eq!(write(&mut object, &other), 1, "another kind");
}

/// Ten thousand AppWrappers around the same three kinds ask three questions, and an answer concerns
/// only those that are admitted and wait for it.
#[test]
fn many_app_wrappers_share_discoveries() {
    let world = world();
    let mut questions = std::collections::BTreeSet::new();
    for nth in 0..10_000 {
        let kind = ["Job", "CronJob", "Workflow"][nth % 3];
        let name = nth.to_string();
        see(&world, &wrapper(&name, kind, nth < 6));
        questions.extend(KindDiscovery.wanted_questions(&world, &key(&name), at(8)).questions);
    }
    assert_eq!(questions.len(), 3);
    let concerned = |change: &FactChange| -> Vec<String> {
        let keys = affected_wrappers(&world, &change.of::<ServedKind>().unwrap());
        keys.iter().map(|it| it.name().to_owned()).collect()
    };
    let waiting = ["0", "3"];
    assert_eq!(concerned(&record(&world, ServedKind::NotServed, 5)), [""; 0], "it is too old");
    assert_eq!(concerned(&record(&world, ServedKind::NotServed, 6)), waiting);
    assert_eq!(concerned(&record(&world, ServedKind::NotServed, 7)), [""; 0], "they know that");
    assert_eq!(concerned(&record(&world, ServedKind::Usable(JOBS), 8)), waiting);
    assert_eq!(concerned(&record(&world, ServedKind::Usable(JOBS), 9)), [""; 0]);
    let failed = world.facts::<ServedKind>().fail(jobs(), "no answer".to_owned(), at(10));
    assert_eq!(concerned(&failed), [""; 0], "what is known stays known");
    assert_eq!(discovery_failure(&world, &jobs()).as_deref(), Some("no answer"));
}
