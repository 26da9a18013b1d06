use gantry_reconcile::inquiry::WantedQuestions;
use gantry_reconcile::{Change, FactChange, Inquiry as _, Kind, Observed};
use serde_json::json;

use super::*;
use crate::app_wrapper::TypeName;

const ALICE: &str = r#"{"username":"alice"}"#;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn jobs() -> TypeName {
    TypeName { api_version: "batch/v1".into(), kind: "Job".into() }
}

/// Returns an AppWrapper around a Job and a Pod, created at 100.
fn wrapper(author: Option<&str>) -> AppWrapper {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "n", "creationTimestamp": at(100)},
        "spec": {"resources": {"GenericItems": [
            {"generictemplate": {"apiVersion": "batch/v1", "kind": "Job"}},
            {"generictemplate": {"apiVersion": "v1", "kind": "Pod"}},
            {"generictemplate": {"apiVersion": "v1", "kind": "Pod"}},
            {},
        ]}},
    });
    if let Some(author) = author {
        object["metadata"]["annotations"] = json!({crate::app_wrapper::AUTHOR_ANNOTATION: author});
    }
    serde_json::from_value(object).unwrap()
}

fn recorded(world: &World, since: Option<Timestamp>) {
    world.facts::<AuthorRecording>().record((), AuthorRecording { since }, at(100));
}

fn question(need: RequiredPermission) -> AccessQuestion {
    AccessQuestion { author: ALICE.into(), namespace: "n".into(), permission: need }
}

/// Returns a world in which authors have been recorded since 50, with these reviews about pods and
/// jobs.
fn world(pods: Option<(AccessReview, i64)>, job: Option<(AccessReview, i64)>) -> World {
    let world = World::new([Kind::of::<AppWrapper>()]);
    recorded(&world, Some(at(50)));
    let pod = TypeName { api_version: "v1".into(), kind: "Pod".into() };
    for (name, answer) in [(pod, pods), (jobs(), job)] {
        if let Some((answer, second)) = answer {
            let question = question(RequiredPermission::Create(name));
            world.facts::<AccessReview>().record(question, answer, at(second));
        }
    }
    world
}

/// Returns the questions of the reviewer for an AppWrapper.
fn wanted(world: &World, wrapper: &AppWrapper, now: i64) -> WantedQuestions<AccessQuestion> {
    world.store::<AppWrapper>().set(wrapper.clone());
    let reviewer = AccessReviewer::new(UserAccess::Reviewed);
    reviewer.wanted_questions(world, &wrapper.metadata.key(), at(now))
}

fn denied_review() -> AccessReview {
    let (resource, group) = ("jobs".to_owned(), "batch".to_owned());
    let asked = ResourceAttributes {
        verb: "create".to_owned(),
        resource,
        group,
        ..ResourceAttributes::default()
    };
    AccessReview::Denied { asked, reason: "no binding".to_owned() }
}

#[test]
fn ds_9_an_answer_counts_for_as_long_as_it_may_be_true() {
    let yes = Some((AccessReview::Allowed, 110));
    let open = "whether user \"alice\" may create Job of batch/v1 in the namespace \"n\" is being \
                checked";
    let denied = "user \"alice\" cannot create resource \"jobs\" in API group \"batch\" in the \
                  namespace \"n\": no binding; have the permission granted, \
                  then create the AppWrapper again";
    let table = [
        // why  about jobs  now  may it be admitted  is it asked
        ("not asked yet", None, 111, Some(open), true),
        ("yes", Some((AccessReview::Allowed, 110)), 111, None, false),
        ("a yes is asked for again", Some((AccessReview::Allowed, 110)), 125, None, true),
        ("and is over", Some((AccessReview::Allowed, 110)), 140, Some(open), true),
        ("no", Some((denied_review(), 101)), 102, Some(denied), false),
        ("a no from before it was made", Some((denied_review(), 100)), 101, Some(open), true),
        ("is not asked about all the time", Some((denied_review(), 100)), 100, Some(open), false),
        ("a no is over", Some((denied_review(), 101)), 111, Some(open), true),
        ("no such kind", Some((AccessReview::NoSuchKind, 101)), 102, None, false),
        ("which may have come", Some((AccessReview::NoSuchKind, 101)), 111, Some(open), true),
    ];
    for (why, about_jobs, now, kept_back, asked) in table {
        let world = world(yes.clone(), about_jobs);
        let wrapper = wrapper(Some(ALICE));
        let found = may_admit(&world, &wrapper, UserAccess::Reviewed, at(now))
            .err()
            .map(|it| it.to_string());
        match kept_back {
            None => assert_eq!(found, None, "{why}"),
            Some(part) => {
                assert!(found.as_ref().is_some_and(|it| it.contains(part)), "{why}: {found:?}");
            }
        }
        assert_eq!(is_due(&world, &wrapper, now), asked, "{why}");
    }
}

/// Returns whether it is asked now what the author of an AppWrapper may do with jobs.
fn is_due(world: &World, wrapper: &AppWrapper, now: i64) -> bool {
    let (wanted, jobs) =
        (wanted(world, wrapper, now), question(RequiredPermission::Create(jobs())));
    let reviewer = AccessReviewer::new(UserAccess::Reviewed);
    let known = world.facts::<AccessReview>().observed(&jobs);
    let is_old = |it: &Observed<AccessReview>| {
        it.age(at(now)) >= reviewer.refresh_interval(&jobs, &it.value)
    };
    wanted.questions.contains(&jobs)
        && (wanted.stale.contains(&jobs) || known.is_none_or(|it| is_old(&it)))
}

/// A server that does not answer does not revoke earlier answers. When they expire, pending
/// AppWrappers report why there is no other.
#[test]
fn ds_9_a_failure_is_reported_when_no_review_is_valid() {
    let world = world(Some((AccessReview::Allowed, 110)), Some((AccessReview::Allowed, 90)));
    let jobs = question(RequiredPermission::Create(jobs()));
    let kept = |now: i64| {
        let kept = may_admit(&world, &wrapper(Some(ALICE)), UserAccess::Reviewed, at(now));
        kept.err().map(|it| (it.reason(), it.to_string()))
    };
    let change = world.facts::<AccessReview>().fail(jobs.clone(), "forbidden".to_owned(), at(112));
    assert_eq!(kept(119), None, "the yes from 90 still counts");
    let why = "could not ask whether user \"alice\" may create Job of batch/v1 in the namespace \
               \"n\": forbidden";
    assert_eq!(kept(120), Some((reason::UNSETTLED, why.to_owned())));
    assert!(changes_authorization(&change.of().unwrap()));
    world.facts::<AccessReview>().record(jobs, denied_review(), at(121));
    assert_eq!(kept(122).unwrap().0, reason::DENIED);
}

#[test]
fn ds_9_an_author_annotation_from_before_recording_is_ignored() {
    let all = || world(Some((AccessReview::Allowed, 110)), Some((AccessReview::Allowed, 110)));
    let late = all();
    recorded(&late, Some(at(101)));
    let never = all();
    recorded(&never, None);
    let other = r#"{"username":"alice","groups":["team"]}"#;
    let table = [
        ("recorded", all(), Some(ALICE), None),
        ("not recorded", all(), None, Some("its author is not recorded")),
        ("no author", all(), Some("alice"), Some("its author is not recorded")),
        ("another user of that name", all(), Some(other), Some("is being checked")),
        ("from before", late, Some(ALICE), Some("created before 1970-01-01T00:01:41Z")),
        ("not recording", never, Some(ALICE), Some("authors are not recorded")),
        (
            "nothing is known",
            World::new([Kind::of::<AppWrapper>()]),
            Some(ALICE),
            Some("authors are not recorded"),
        ),
    ];
    for (why, world, author, kept_back) in table {
        let found = may_admit(&world, &wrapper(author), UserAccess::Reviewed, at(111))
            .err()
            .map(|it| it.to_string());
        match kept_back {
            None => assert_eq!(found, None, "{why}"),
            Some(part) => {
                assert!(found.as_ref().is_some_and(|it| it.contains(part)), "{why}: {found:?}");
            }
        }
    }
    let unknown = [None, Some("alice")].map(|it| questions(&wrapper(it), UserAccess::Reviewed));
    assert_eq!(unknown, [[], []], "there is no author to ask about");
}

/// A kind that did not exist when an AppWrapper was admitted may have been installed since.
#[test]
fn ds_9_created_items_were_reviewed() {
    let world = world(Some((AccessReview::Allowed, 110)), Some((AccessReview::NoSuchKind, 110)));
    let mut wrapper = wrapper(Some(ALICE));
    assert_eq!(may_admit(&world, &wrapper, UserAccess::Reviewed, at(111)), Ok(()));
    let kept = may_create(&world, &wrapper, UserAccess::Reviewed, at(111)).unwrap_err();
    assert!(kept.is_pending(), "{kept}");
    assert!(!is_due(&world, &wrapper, 112), "it waits");
    wrapper.status.can_run = true;
    wrapper.status.state = Some(gantry_api::queue::AppWrapperState::Pending);
    assert!(is_due(&world, &wrapper, 112), "it is to be made");
    wrapper.status.state = Some(gantry_api::queue::AppWrapperState::Running);
    assert_eq!(wanted(&world, &wrapper, 150), WantedQuestions::default(), "it was made");
}

/// An answer in flight may be from before an AppWrapper was created. It is checked again until no
/// such answer can arrive any more.
#[test]
fn ds_9_an_answer_that_is_under_way_may_be_too_old() {
    let world = world(Some((AccessReview::Allowed, 100)), None);
    let wrapper = wrapper(Some(ALICE));
    assert_eq!(wanted(&world, &wrapper, 101).requeue_at, Some(at(102)));
    world.facts::<AccessReview>().record(
        question(RequiredPermission::Create(jobs())),
        denied_review(),
        at(100),
    );
    let again = wanted(&world, &wrapper, 102);
    assert_eq!((again.stale.len(), again.requeue_at), (1, Some(at(103))), "a no from before");
    world.facts::<AccessReview>().forget(&question(RequiredPermission::Create(jobs())));
    assert_eq!(wanted(&world, &wrapper, 111).requeue_at, None, "whatever comes now is new enough");
}

fn record(world: &World, answer: AccessReview, second: i64) -> FactChange {
    world.facts::<AccessReview>().record(
        question(RequiredPermission::Create(jobs())),
        answer,
        at(second),
    )
}

#[test]
fn ds_9_an_unchanged_review_enqueues_nothing() {
    let world = world(None, None);
    let table = [
        ("the first", AccessReview::Allowed, 0, true),
        ("the same in time", AccessReview::Allowed, 15, false),
        ("the same too late", AccessReview::Allowed, 45, true),
        ("another", denied_review(), 50, true),
        ("a denial counts for a newer AppWrapper", denied_review(), 51, true),
        ("a right that was granted", AccessReview::Allowed, 52, true),
    ];
    for (why, answer, second, expected) in table {
        let change = record(&world, answer, second);
        assert_eq!(changes_authorization(&change.of().unwrap()), expected, "{why}");
    }
    let gone = world
        .facts::<AccessReview>()
        .forget(&question(RequiredPermission::Create(jobs())))
        .unwrap();
    assert!(!changes_authorization(&gone.of().unwrap()));
}

/// An answer concerns the AppWrappers that wait for it and no others of the same author.
#[test]
fn ds_9_a_review_enqueues_only_app_wrappers_that_need_it() {
    let world = world(None, None);
    let see = |name: &str, namespace: &str, kind: &str, can_run: bool| {
        let mut one = wrapper(Some(ALICE));
        (one.metadata.name, one.metadata.namespace) = (name.to_owned(), namespace.to_owned());
        one.spec.resources.items.retain(|it| it.name.as_ref().is_some_and(|it| &*it.kind == kind));
        one.status.state = Some(gantry_api::queue::AppWrapperState::Pending);
        one.status.can_run = can_run;
        world.store::<AppWrapper>().set(one);
    };
    see("pending", "n", "Job", false);
    see("admitted", "n", "Job", true);
    see("elsewhere", "m", "Job", true);
    see("other", "n", "Pod", true);
    let concerned = |change: &FactChange| -> Vec<String> {
        let keys = affected_wrappers(&world, &change.of().unwrap(), UserAccess::Reviewed);
        keys.iter().map(|it| it.name().to_owned()).collect()
    };
    assert_eq!(concerned(&record(&world, AccessReview::Allowed, 110)), ["admitted"]);
    assert_eq!(concerned(&record(&world, AccessReview::Allowed, 125)), [""; 0], "it is known");
    assert_eq!(
        concerned(&record(&world, denied_review(), 126)),
        ["admitted", "pending"],
        "it fails"
    );
}

/// Statuses are written all the time. They do not change the questions.
#[test]
fn ds_9_a_status_change_repeats_no_review() {
    let world = world(None, None);
    let reviewer = AccessReviewer::new(UserAccess::Reviewed);
    let write = |change: &dyn Fn(&mut AppWrapper)| {
        let store = world.store::<AppWrapper>();
        let key = Key::new("n", "a");
        let mut one = store.get(&key).map_or_else(|| wrapper(Some(ALICE)), |it| (*it).clone());
        change(&mut one);
        let change: Change = store.set(one);
        let asked = reviewer.enqueue(&world, &change).len();
        (asked, RecordingCheck.enqueue(&world, &change).len())
    };
    assert_eq!(write(&|_| {}), (1, 1), "a new one");
    assert_eq!(write(&|it| it.status.message = Some("waits".to_owned())), (0, 0));
    let other = r#"{"username":"bob"}"#.to_owned();
    let author = crate::app_wrapper::AUTHOR_ANNOTATION.to_owned();
    let rewrite = |it: &mut AppWrapper| {
        it.metadata.annotations.insert(author.clone(), other.clone());
    };
    assert_eq!(write(&rewrite), (1, 0), "another author");
    assert_eq!(write(&|it| drop(it.spec.resources.items.remove(0))), (1, 0), "other items");
    let run = |it: &mut AppWrapper| {
        it.status.state = Some(gantry_api::queue::AppWrapperState::Running);
        it.status.can_run = true;
    };
    assert_eq!(write(&run), (1, 0), "no AppWrapper needs it any more");
    assert_eq!(write(&|it| it.status.running = 3), (0, 0));
    assert!(
        !RecordingCheck
            .wanted_questions(&world, &Key::cluster("authors"), at(0))
            .questions
            .is_empty()
    );
    let gone = world.store::<AppWrapper>().unset(&Key::new("n", "a")).unwrap();
    assert_eq!(RecordingCheck.enqueue(&world, &gone).len(), 1);
    assert!(
        RecordingCheck
            .wanted_questions(&world, &Key::cluster("authors"), at(0))
            .questions
            .is_empty()
    );
}

#[test]
fn ds_9_what_is_not_allowed_is_denied_in_the_words_of_the_server() {
    let asked =
        || ResourceAttributes { verb: "create".to_owned(), ..ResourceAttributes::default() };
    let denied = |reason: &str| AccessReview::Denied { asked: asked(), reason: reason.to_owned() };
    let table = [
        (json!({"allowed": true, "reason": "RBAC: allowed"}), AccessReview::Allowed),
        (json!({"allowed": false}), denied("")),
        (json!({"allowed": false, "reason": "no"}), denied("no")),
        (json!({"allowed": false, "reason": "no", "evaluationError": "e"}), denied("no: e")),
        (json!({"allowed": false, "evaluationError": "no role"}), denied("no role")),
        (json!({}), denied("")),
    ];
    for (status, expected) in table {
        assert_eq!(AccessReview::read(&json!({"status": status}), asked()), expected, "{status}");
    }
}

#[test]
fn ds_9_recording_counts_after_the_webhook_has_propagated() {
    let mut object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
    let since = |object: &Value| AuthorRecording::read(object).since;
    let at = |text: &str| Some(text.parse().unwrap());
    assert_eq!(since(&object), at("2026-01-01T00:00:05Z"));
    object["metadata"]["annotations"] = json!({SOURCE_ANNOTATION: "x"});
    assert_eq!(since(&object), at("2026-01-01T00:00:00Z"), "one that configures itself does not");
    assert_eq!(since(&json!({})), None);
}

/// Returns a RoleBinding, a Role and a Secret for a token, which grant more than the permission to
/// create them.
fn granting() -> AppWrapper {
    let rbac = "rbac.authorization.k8s.io/v1";
    let token = json!({"name": "s", "annotations": {"kubernetes.io/service-account.name": "sa"}});
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "n", "creationTimestamp": at(100),
            "annotations": {crate::app_wrapper::AUTHOR_ANNOTATION: ALICE},
        },
        "spec": {"resources": {"GenericItems": [
            {"generictemplate": {"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "b"},
                "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}},
            {"generictemplate": {"apiVersion": rbac, "kind": "Role", "metadata": {"name": "r"}}},
            {"generictemplate": {"apiVersion": "v1", "kind": "Secret",
                "type": "kubernetes.io/service-account-token", "metadata": token}},
        ]}},
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn ds_9_authors_need_what_the_server_would_ask_of_them_for_objects_that_give_rights() {
    let wrapper = granting();
    let asked = |access| -> Vec<String> {
        let questions = questions(&wrapper, access);
        questions.into_iter().map(|it| it.permission.to_string()).collect()
    };
    let creations = [
        "create Role of rbac.authorization.k8s.io/v1",
        "create RoleBinding of rbac.authorization.k8s.io/v1",
        "create Secret of v1",
    ];
    let privileges = [
        "bind resource \"clusterroles\" named \"cluster-admin\" in API group \
         \"rbac.authorization.k8s.io\"",
        "escalate resource \"roles\" named \"r\" in API group \"rbac.authorization.k8s.io\"",
        "create resource \"serviceaccounts/token\" named \"sa\" in API group \"\"",
    ];
    assert_eq!(asked(UserAccess::Reviewed), [&creations[..], &privileges].concat());
    // The server checks these itself, and also what the author holds.
    assert_eq!(asked(UserAccess::OnBehalf), creations);
    // An author that may create all of them and lacks one of the other permissions is refused, by
    // its name.
    for denied in questions(&wrapper, UserAccess::Reviewed) {
        let RequiredPermission::Privilege(privilege) = &denied.permission else { continue };
        let world = world(None, None);
        for question in questions(&wrapper, UserAccess::Reviewed) {
            let answer = match question == denied {
                true => {
                    let asked = ResourceAttributes::of(privilege);
                    AccessReview::Denied { asked, reason: String::new() }
                }
                false => AccessReview::Allowed,
            };
            world.facts::<AccessReview>().record(question, answer, at(111));
        }
        let kept = may_admit(&world, &wrapper, UserAccess::Reviewed, at(112)).unwrap_err();
        let words = format!("user \"alice\" cannot {} in the namespace \"n\"; ", denied.permission);
        assert!(kept.to_string().starts_with(&words), "{kept}");
        assert_eq!(may_admit(&world, &wrapper, UserAccess::OnBehalf, at(112)), Ok(()));
    }
}
