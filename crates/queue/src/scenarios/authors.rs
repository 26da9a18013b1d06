//! AppWrappers whose authors may not create everything (DS-9).

use std::time::Duration;

use gantry_harness::{Action, Ask, Asking, Faults, Scenario, Server};
use gantry_reconcile::{Controller, Key, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::{Cast, Following, JOBS, Play, SERVED, node, scenario};
use super::laws::{ends, job, proven};
use crate::access::{
    AccessQuestion, AccessReview, AccessReviewer, Attributes, AuthorRecording, Need, RecordingCheck,
};
use crate::app_wrapper::{AUTHOR, AppWrapper, TypeName};
use crate::author::Author;
use crate::{Live, Progress, Settings, UserAccess, kind_discovery};

/// `bob` may not create Jobs, and everybody else may.
fn review(_: &Server, question: &AccessQuestion) -> Result<AccessReview, String> {
    let author = Author::read(&question.author).unwrap();
    Ok(match (author.username.as_str(), &question.need) {
        ("bob", Need::Create(name)) if &*name.kind == "Job" => {
            let asked = Attributes::create(&JOBS);
            AccessReview::Denied { asked, reason: String::new() }
        }
        (_, Need::Create(_) | Need::Privilege(_)) => AccessReview::Allowed,
    })
}

fn recording(_: &Server, (): &()) -> Result<AuthorRecording, String> {
    Ok(AuthorRecording { since: Some(Timestamp::UNIX_EPOCH) })
}

/// A server that says what authors may create, and that records them. Its answers are late, get lost and grow
/// old.
fn reviewed<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    reviewer: &'a Asking<AccessReviewer>,
) -> Scenario<'a> {
    static RECORDING: Asking<RecordingCheck> =
        Asking { inquiry: RecordingCheck, answer: recording };
    let mut scenario = scenario(controllers, objects);
    scenario.outside.inquiries.extend([&RECORDING as &dyn Ask, reviewer]);
    scenario
}

fn reviewer() -> Asking<AccessReviewer> {
    Asking { inquiry: AccessReviewer::new(UserAccess::Reviewed), answer: review }
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

/// Everybody who may runs, beside those who may not and those of whom nothing is known.
fn objects() -> Vec<(Resource, Value)> {
    vec![
        node("a", "1", 0),
        by(Some("alice"), "allowed", 1, "800m"),
        by(Some("bob"), "denied", 9, "800m"),
        by(None, "unrecorded", 8, "800m"),
        by(Some("alice"), "second", 0, "800m"),
    ]
}

#[test]
fn ds_9_who_may_not_create_its_items_fails_and_keeps_nobody_waiting() {
    let cast = Cast::new(Settings { holding: Duration::from_secs(600), ..settings() });
    let (controllers, reviewer) = (cast.all(), reviewer());
    let scenario = reviewed(&controllers, objects(), &reviewer);
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
    let (controllers, reviewer) = (cast.all(), reviewer());
    let scenario = reviewed(&controllers, vec![node("a", "1", 0)], &reviewer);
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
    let denied =
        || AccessReview::Denied { asked: Attributes::create(&JOBS), reason: String::new() };
    let table = [
        ("who may", Some("alice"), Some(AccessReview::Allowed), vec!["create"], None),
        ("nobody has asked", Some("alice"), None, vec![], Some("AccessUnsettled")),
        (
            "a kind that came",
            Some("alice"),
            Some(AccessReview::NoSuchKind),
            vec![],
            Some("AccessUnsettled"),
        ),
        ("who may not", Some("alice"), Some(denied()), vec!["patch"], None),
        ("nobody", None, Some(AccessReview::Allowed), vec!["patch"], None),
    ];
    for (why, user, answer, verbs, held) in table {
        let progress = Following(Progress::new(Live::new(settings())));
        let world = World::new(progress.kinds());
        kind_discovery::record(&world, SERVED, at(0));
        let recording = AuthorRecording { since: Some(at(0)) };
        world.facts::<AuthorRecording>().record((), recording, at(0));
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
        let question = AccessQuestion {
            author: json!({"username": "alice"}).to_string().into(),
            namespace: "test".into(),
            need: Need::Create(TypeName::of(&JOBS)),
        };
        if let Some(answer) = answer {
            world.facts::<AccessReview>().record(question, answer, at(2));
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
    let (controllers, reviewer) = (cast.all(), reviewer());
    let late: Action = Box::new(|server: &mut Server| {
        let (resource, object) = by(Some("bob"), "late", 5, "200m");
        server.create(&resource, object);
    });
    let scenario = Scenario { script: vec![late], ..reviewed(&controllers, objects(), &reviewer) };
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
    let (controllers, reviewer) = (cast.all(), reviewer());
    let objects = vec![
        node("a", "1", 0),
        by(Some("alice"), "allowed", 1, "800m"),
        by(Some("bob"), "denied", 9, "800m"),
    ];
    // All of it is over within half a minute, and what is asked for all the time would only be asked more often.
    let horizon = Duration::from_secs(120);
    let scenario = Scenario { horizon, ..reviewed(&controllers, objects, &reviewer) };
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
