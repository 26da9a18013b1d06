//! AppWrappers whose authors may not create everything (DS-9).

use std::time::Duration;

use gantry_harness::{AnySimulatedInquiry, Faults, Scenario, Server, SimulatedInquiry, UserAction};
use gantry_reconcile::{Controller, Key, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::{
    JOBS, ProgressWithKinds, SERVED, Simulation, TestControllers, node, scenario,
};
use super::properties::{final_states, job, proven};
use crate::access::{
    AccessQuestion, AccessReview, AccessReviewer, AuthorRecording, RecordingCheck,
    RequiredPermission, ResourceAttributes,
};
use crate::app_wrapper::{AUTHOR_ANNOTATION, AppWrapper, TypeName};
use crate::author::Author;
use crate::{LiveSettings, Progress, Settings, UserAccess, kind_discovery};

/// `bob` may not create Jobs, and all other users may.
fn review(_: &Server, question: &AccessQuestion) -> Result<AccessReview, String> {
    let author = Author::read(&question.author).unwrap();
    Ok(match (author.username.as_str(), &question.permission) {
        ("bob", RequiredPermission::Create(name)) if &*name.kind == "Job" => {
            let asked = ResourceAttributes::create(&JOBS);
            AccessReview::Denied { asked, reason: String::new() }
        }
        (_, RequiredPermission::Create(_) | RequiredPermission::Privilege(_)) => {
            AccessReview::Allowed
        }
    })
}

fn recording(_: &Server, (): &()) -> Result<AuthorRecording, String> {
    Ok(AuthorRecording { since: Some(Timestamp::UNIX_EPOCH) })
}

/// Creates a server that answers reviews, and that records authors. Its answers are late, get lost
/// and expire.
fn reviewed<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    reviewer: &'a SimulatedInquiry<AccessReviewer>,
) -> Scenario<'a> {
    static RECORDING: SimulatedInquiry<RecordingCheck> =
        SimulatedInquiry { inquiry: RecordingCheck, answer: recording };
    let mut scenario = scenario(controllers, objects);
    scenario.external.inquiries.extend([&RECORDING as &dyn AnySimulatedInquiry, reviewer]);
    scenario
}

fn reviewer() -> SimulatedInquiry<AccessReviewer> {
    SimulatedInquiry { inquiry: AccessReviewer::new(UserAccess::Reviewed), answer: review }
}

fn settings() -> Settings {
    Settings { user_access: UserAccess::Reviewed, ..Settings::default() }
}

/// Returns a job of a user.
fn by(user: Option<&str>, name: &str, priority: i64, cpu: &str) -> (Resource, Value) {
    let (resource, mut object) = job(name, priority, 1, cpu, 5);
    if let Some(user) = user {
        object["metadata"]["annotations"] =
            json!({AUTHOR_ANNOTATION: json!({"username": user}).to_string()});
    }
    (resource, object)
}

/// Returns jobs whose authors are allowed and run, beside denied ones and ones without a known
/// author.
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
fn ds_9_a_denied_app_wrapper_fails_and_blocks_no_other() {
    let cast = TestControllers::new(Settings { holding: Duration::from_secs(600), ..settings() });
    let (controllers, reviewer) = (cast.all(), reviewer());
    let scenario = reviewed(&controllers, objects(), &reviewer);
    let mut sim = Simulation::new(&scenario);
    sim.advance(60);
    assert_eq!(sim.state("allowed"), "Completed Completed");
    assert_eq!(sim.state("second"), "Completed Completed");
    assert_eq!(sim.state("denied"), "Failed Failed");
    let status = sim.status("denied");
    assert_eq!(
        status["message"],
        "test/denied creation failure: user \"bob\" cannot create resource \"jobs\" in API group \
         \"batch\" in the namespace \"test\"; have the permission granted, then create \
         the AppWrapper again"
    );
    assert_eq!(sim.conditions("denied"), ["Init", "Queueing", "Failed"], "it never was the head");
    assert_eq!(sim.reasons("denied").last().unwrap(), "ItemCreationFailure.");
    assert!(sim.object(&JOBS, "denied-j").is_none());
    assert_eq!(sim.state("unrecorded"), "Pending Backoff");
    let status = sim.status("unrecorded");
    assert!(status["message"].as_str().unwrap().contains("create it again"), "{status}");
    assert_eq!(sim.reasons("unrecorded").last().unwrap(), "AuthorNotRecorded");
    // A user writes its items, and so becomes its author.
    let key = Key::new("test", "unrecorded");
    let author = json!({"username": "alice"}).to_string();
    sim.run.server().edit(&AppWrapper::RESOURCE, &key, |it| {
        it["metadata"]["annotations"] = json!({AUTHOR_ANNOTATION: author});
    });
    sim.advance(60);
    assert_eq!(sim.state("unrecorded"), "Completed Completed");
}

/// Nothing is preempted, and no quota is charged, for an AppWrapper that is denied.
#[test]
fn ds_9_nothing_is_preempted_for_a_denied_app_wrapper() {
    let cast =
        TestControllers::new(Settings { preemption: true, active_eviction: true, ..settings() });
    let (controllers, reviewer) = (cast.all(), reviewer());
    let scenario = reviewed(&controllers, vec![node("a", "1", 0)], &reviewer);
    let mut sim = Simulation::new(&scenario);
    let (_, mut long) = by(Some("alice"), "long", 0, "800m");
    let notes = "/spec/resources/GenericItems/0/generictemplate/metadata/annotations/seconds";
    *long.pointer_mut(notes).unwrap() = json!("1000");
    sim.create(long);
    sim.create(by(Some("bob"), "denied", 9, "800m").1);
    sim.advance(30);
    assert_eq!(sim.state("denied"), "Failed Failed");
    assert_eq!(sim.state("long"), "Running Running");
    assert!(!sim.conditions("long").contains(&"Preempted".to_owned()));
}

/// Kinds may be installed, and authors may change, after an AppWrapper was admitted.
#[test]
fn ds_9_no_item_is_created_that_its_author_may_not_create() {
    let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    let denied =
        || AccessReview::Denied { asked: ResourceAttributes::create(&JOBS), reason: String::new() };
    let table = [
        ("allowed", Some("alice"), Some(AccessReview::Allowed), vec!["create"], None),
        ("not reviewed yet", Some("alice"), None, vec![], Some("AccessUnsettled")),
        (
            "a kind that came",
            Some("alice"),
            Some(AccessReview::NoSuchKind),
            vec![],
            Some("AccessUnsettled"),
        ),
        ("denied", Some("alice"), Some(denied()), vec!["patch"], None),
        ("no author", None, Some(AccessReview::Allowed), vec!["patch"], None),
    ];
    for (why, user, answer, verbs, held) in table {
        let progress = ProgressWithKinds(Progress::new(LiveSettings::new(settings())));
        let world = World::new(progress.kinds());
        kind_discovery::record_served(&world, SERVED, at(0));
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
        world
            .single_store_for(&AppWrapper::RESOURCE)
            .unwrap()
            .observe(&object.to_string())
            .unwrap();
        let question = AccessQuestion {
            author: json!({"username": "alice"}).to_string().into(),
            namespace: "test".into(),
            permission: RequiredPermission::Create(TypeName::of(&JOBS)),
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
fn ds_9_changing_rights_converge() {
    let cast = TestControllers::new(settings());
    let (controllers, reviewer) = (cast.all(), reviewer());
    let late: UserAction = Box::new(|server: &mut Server| {
        let (resource, object) = by(Some("bob"), "late", 5, "200m");
        server.create(&resource, object);
    });
    let scenario = Scenario { script: vec![late], ..reviewed(&controllers, objects(), &reviewer) };
    let ending = scenario.run(1, Faults::none()).unwrap();
    assert_eq!(
        final_states(&ending.server)["wrappers"],
        json!([
            ["allowed", "Completed", null],
            ["denied", "Failed", null],
            ["late", "Failed", null],
            ["second", "Completed", null],
            ["unrecorded", "Pending", null],
        ])
    );
    assert_eq!(final_states(&ending.server)["jobs"], json!(["allowed-j", "second-j"]));
    proven(scenario.prove_faults(0..4, final_states));
}

/// Whichever process dies, and whichever processes lead at once: nothing is created that is denied.
#[test]
fn ds_9_a_crash_at_every_step_admits_no_denied_app_wrapper() {
    let cast = TestControllers::new(settings());
    let (controllers, reviewer) = (cast.all(), reviewer());
    let objects = vec![
        node("a", "1", 0),
        by(Some("alice"), "allowed", 1, "800m"),
        by(Some("bob"), "denied", 9, "800m"),
    ];
    // Everything is over within half a minute, and periodic questions would only be asked more
    // often.
    let horizon = Duration::from_secs(120);
    let scenario = Scenario { horizon, ..reviewed(&controllers, objects, &reviewer) };
    let never = |server: &Server| {
        let mut passed = server.history(&AppWrapper::RESOURCE);
        let denied = passed.any(|(text, _)| {
            let object: Value = serde_json::from_str(text).unwrap();
            object["metadata"]["name"] == "denied" && object["status"]["canrun"] == true
        });
        json!([final_states(server), denied])
    };
    let ending = scenario.run(1, Faults::none()).unwrap();
    assert_eq!(never(&ending.server)[1], false);
    proven(scenario.prove_crashes(1, never));
}
