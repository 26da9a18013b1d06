//! AppWrappers whose authors may not create everything (DS-9).

use std::time::Duration;

use gantry_harness::{Action, Faults, Scenario, Server};
use gantry_reconcile::{
    Change, Controller, Key, Kind, Part, Plan, Resource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::{Cast, JOBS, Play, catalog, node, scenario};
use super::laws::{ends, job, proven};
use crate::access::{self, Answer, Attributes, Need, Question, Recording, Right};
use crate::app_wrapper::{AUTHOR, AppWrapper, TypeName};
use crate::author::Author;
use crate::{Live, Progress, Settings, UserAccess};

/// Asks about authors and is always answered: `bob` may not create Jobs, and everybody else may. What is said
/// is put down on the server, where the other controllers of the harness see it.
struct Reviewer;

impl Controller for Reviewer {
    fn name(&self) -> &'static str {
        "reviewer"
    }

    fn kinds(&self) -> Vec<Kind> {
        [Kind::of::<AppWrapper>()].into_iter().chain(access::kinds()).collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.is::<AppWrapper>() { vec![change.key.clone()] } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(wrapper) = world.shelf::<AppWrapper>().get(key) else { return plan };
        for question in access::questions(world, &wrapper, UserAccess::Reviewed, now) {
            let key = question.key();
            let mut body =
                json!({"author": question.author, "answer": answer(&question), "at": now});
            plan.write(match world.shelf::<Right>().get(&key) {
                Some(known) => Write::Merge {
                    resource: Right::RESOURCE,
                    key,
                    part: Part::Main,
                    fence: known.metadata.fence(),
                    body,
                },
                None => {
                    body["metadata"] = json!({"name": key.name(), "namespace": key.namespace()});
                    Write::Create { resource: Right::RESOURCE, body }
                }
            });
        }
        if wrapper.is_queued() {
            plan.look_within(Duration::from_secs(1));
        }
        plan
    }
}

fn answer(question: &Question) -> Answer {
    let author = Author::read(&question.author).unwrap();
    match (author.username.as_str(), &question.need) {
        ("bob", Need::Create(name)) if &*name.kind == "Job" => {
            let asked = Attributes::create(&JOBS);
            Answer::Denied { asked, reason: String::new() }
        }
        (_, Need::Create(_) | Need::Privilege(_)) => Answer::Allowed,
    }
}

fn settings() -> Settings {
    Settings { user_access: UserAccess::Reviewed, ..Settings::default() }
}

/// A job that somebody made.
fn by(user: Option<&str>, name: &str, priority: i64, cpu: &str) -> (Resource, Value) {
    let (resource, mut object) = job(name, priority, 1, cpu, 5);
    if let Some(user) = user {
        object["metadata"]["annotations"] = json!({AUTHOR: json!({"username": user}).to_string()});
    }
    (resource, object)
}

fn recording() -> (Resource, Value) {
    let name = Recording::key().name().to_owned();
    (Recording::RESOURCE, json!({"metadata": {"name": name}, "since": Timestamp::UNIX_EPOCH}))
}

/// Everybody who may runs, beside those who may not and those of whom nothing is known.
fn objects() -> Vec<(Resource, Value)> {
    vec![
        node("a", "1", 0),
        recording(),
        by(Some("alice"), "allowed", 1, "800m"),
        by(Some("bob"), "denied", 9, "800m"),
        by(None, "unrecorded", 8, "800m"),
        by(Some("alice"), "second", 0, "800m"),
    ]
}

#[test]
fn ds_9_who_may_not_create_its_items_fails_and_keeps_nobody_waiting() {
    let cast = Cast::new(Settings { holding: Duration::from_secs(600), ..settings() });
    let all = cast.all();
    let controllers: Vec<&dyn Controller> = all.into_iter().chain([&Reviewer as _]).collect();
    let scenario = scenario(&controllers, objects());
    let mut play = Play::new(&scenario);
    play.pass(60);
    assert_eq!(play.state("allowed"), "Completed Completed");
    assert_eq!(play.state("second"), "Completed Completed");
    assert_eq!(play.state("denied"), "Failed Failed");
    let status = play.status("denied");
    assert_eq!(
        status["message"],
        "test/denied creation failure: user \"bob\" cannot create resource \"jobs\" in API group \
         \"batch\" in the namespace \"test\"; have the right granted, then create the AppWrapper anew"
    );
    assert_eq!(play.conditions("denied"), ["Init", "Queueing", "Failed"], "it never was the head");
    assert_eq!(play.reasons("denied").last().unwrap(), "ItemCreationFailure.");
    assert!(play.object(&JOBS, "denied-j").is_none());
    assert_eq!(play.state("unrecorded"), "Pending Backoff");
    let status = play.status("unrecorded");
    assert!(status["message"].as_str().unwrap().contains("create it anew"), "{status}");
    assert_eq!(play.reasons("unrecorded").last().unwrap(), "AuthorNotRecorded");
    // Somebody writes its items, and so becomes its author.
    let key = Key::new("test", "unrecorded");
    let author = json!({"username": "alice"}).to_string();
    play.stage.server().edit(&AppWrapper::RESOURCE, &key, |it| {
        it["metadata"]["annotations"] = json!({AUTHOR: author});
    });
    play.pass(60);
    assert_eq!(play.state("unrecorded"), "Completed Completed");
}

/// Nobody makes room, and no quota is charged, for one who may not have it.
#[test]
fn ds_9_nobody_makes_room_for_who_may_not() {
    let cast = Cast::new(Settings { preemption: true, active_eviction: true, ..settings() });
    let all = cast.all();
    let controllers: Vec<&dyn Controller> = all.into_iter().chain([&Reviewer as _]).collect();
    let scenario = scenario(&controllers, vec![node("a", "1", 0), recording()]);
    let mut play = Play::new(&scenario);
    let (_, mut long) = by(Some("alice"), "long", 0, "800m");
    let notes = "/spec/resources/GenericItems/0/generictemplate/metadata/annotations/seconds";
    *long.pointer_mut(notes).unwrap() = json!("1000");
    play.create(long);
    play.create(by(Some("bob"), "denied", 9, "800m").1);
    play.pass(30);
    assert_eq!(play.state("denied"), "Failed Failed");
    assert_eq!(play.state("long"), "Running Running");
    assert!(!play.conditions("long").contains(&"Preempted".to_owned()));
}

/// Kinds may come, and authors change, after an AppWrapper has passed.
#[test]
fn ds_9_nothing_is_made_that_its_author_may_not_create() {
    let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    let denied = || Answer::Denied { asked: Attributes::create(&JOBS), reason: String::new() };
    let table = [
        ("who may", Some("alice"), Some(Answer::Allowed), vec!["create"], None),
        ("nobody has asked", Some("alice"), None, vec![], Some("AccessUnsettled")),
        ("a kind that came", Some("alice"), Some(Answer::NoKind), vec![], Some("AccessUnsettled")),
        ("who may not", Some("alice"), Some(denied()), vec!["patch"], None),
        ("nobody", None, Some(Answer::Allowed), vec!["patch"], None),
    ];
    for (why, user, answer, verbs, held) in table {
        let progress = Progress::new(Live::new(settings()), catalog());
        let world = World::new(progress.kinds());
        world.shelf::<Recording>().set(Recording::new(at(0)));
        let (_, mut object) = by(user, "one", 0, "100m");
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!("1");
        object["metadata"]["creationTimestamp"] = json!(at(0));
        object["status"] = json!({
            "state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true,
            "conditions": [{"type": "HeadOfLine", "status": "True", "reason": "FrontOfQueue.",
                "lastTransitionMicroTime": at(2), "lastUpdateMicroTime": at(2)}],
        });
        world.find(&AppWrapper::RESOURCE).unwrap().saw(&object.to_string()).unwrap();
        let question = Question {
            author: json!({"username": "alice"}).to_string(),
            namespace: "test".to_owned(),
            need: Need::Create(TypeName::of(&JOBS)),
        };
        if let Some(answer) = answer {
            world.shelf::<Right>().set(question.answered(answer, at(2)));
        }
        let plan = progress.plan(&world, &Key::new("test", "one"), at(3));
        let found: Vec<&str> = plan.steps.iter().map(|it| it.write.verb()).collect();
        assert_eq!(found, verbs, "{why}");
        assert_eq!(plan.held.first().map(|it| it.reason.as_ref()), held, "{why}");
        if verbs == ["patch"] {
            let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{why}") };
            assert_eq!(body["status"]["queuejobstate"], "Failed", "{why}");
        }
    }
}

#[test]
fn ds_9_rights_that_come_and_go_end_in_one_place() {
    let cast = Cast::new(settings());
    let all = cast.all();
    let controllers: Vec<&dyn Controller> = all.into_iter().chain([&Reviewer as _]).collect();
    let late: Action = Box::new(|server: &mut Server| {
        let (resource, object) = by(Some("bob"), "late", 5, "200m");
        server.create(&resource, object);
    });
    let scenario = Scenario { script: vec![late], ..scenario(&controllers, objects()) };
    let ending = scenario.run(1, Faults::none()).unwrap();
    assert_eq!(
        ends(&ending.server)["wrappers"],
        json!([
            ["allowed", "Completed", null],
            ["denied", "Failed", null],
            ["late", "Failed", null],
            ["second", "Completed", null],
            ["unrecorded", "Pending", null],
        ])
    );
    assert_eq!(ends(&ending.server)["jobs"], json!(["allowed-j", "second-j"]));
    proven(scenario.prove_faults(0..4, ends));
}

/// Whoever dies, and whoever leads beside whom: nothing is made for one who may not have it.
#[test]
fn ds_9_a_crash_at_every_move_lets_nobody_through() {
    let cast = Cast::new(settings());
    let all = cast.all();
    let controllers: Vec<&dyn Controller> = all.into_iter().chain([&Reviewer as _]).collect();
    let objects = vec![
        node("a", "1", 0),
        recording(),
        by(Some("alice"), "allowed", 1, "800m"),
        by(Some("bob"), "denied", 9, "800m"),
    ];
    let scenario = scenario(&controllers, objects);
    let never = |server: &Server| {
        let mut passed = server.history(&AppWrapper::RESOURCE);
        let denied = passed.any(|(text, _)| {
            let object: Value = serde_json::from_str(text).unwrap();
            object["metadata"]["name"] == "denied" && object["status"]["canrun"] == true
        });
        json!([ends(server), denied])
    };
    let ending = scenario.run(1, Faults::none()).unwrap();
    assert_eq!(never(&ending.server)[1], false);
    proven(scenario.prove_crashes(1, never));
}
