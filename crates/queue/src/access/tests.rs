use gantry_reconcile::{Kind, View as _};
use serde_json::{Value, json};

use super::*;

const ALICE: &str = r#"{"username":"alice"}"#;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn jobs() -> TypeName {
    TypeName { api_version: "batch/v1".into(), kind: "Job".into() }
}

/// An AppWrapper around a Job and a Pod that was made at 100.
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
        object["metadata"]["annotations"] = json!({crate::app_wrapper::AUTHOR: author});
    }
    serde_json::from_value(object).unwrap()
}

/// A world in which authors have been recorded since 50, and in which this was said about pods and jobs.
fn world(pods: Option<(Answer, i64)>, job: Option<(Answer, i64)>) -> World {
    let world = World::new([Kind::of::<AppWrapper>()].into_iter().chain(kinds()));
    world.shelf::<Recording>().set(Recording::new(at(50)));
    let pod = TypeName { api_version: "v1".into(), kind: "Pod".into() };
    for (name, answer) in [(pod, pods), (jobs(), job)] {
        if let Some((answer, second)) = answer {
            let need = Need::Create(name);
            let question = Question { author: ALICE.to_owned(), namespace: "n".to_owned(), need };
            world.shelf::<Right>().set(question.answered(answer, at(second)));
        }
    }
    world
}

fn no() -> Answer {
    let (resource, group) = ("jobs".to_owned(), "batch".to_owned());
    let asked = Attributes { verb: "create".to_owned(), resource, group, ..Attributes::default() };
    Answer::Denied { asked, reason: "no binding".to_owned() }
}

#[test]
fn ds_9_an_answer_counts_for_as_long_as_it_may_be_true() {
    let yes = Some((Answer::Allowed, 110));
    let open = "whether user \"alice\" may create Job of batch/v1 in the namespace \"n\" is being \
                found out";
    let denied = "user \"alice\" cannot create resource \"jobs\" in API group \"batch\" in the \
                  namespace \"n\": no binding; have the right granted, then create the AppWrapper anew";
    let lost = Answer::Unanswered("forbidden".to_owned());
    let table = [
        // why  about jobs  now  may it pass  is it asked
        ("nobody has asked", None, 111, Some(open), true),
        ("yes", Some((Answer::Allowed, 110)), 111, None, false),
        ("a yes is asked for again", Some((Answer::Allowed, 110)), 125, None, true),
        ("and is over", Some((Answer::Allowed, 110)), 140, Some(open), true),
        ("no", Some((no(), 101)), 102, Some(denied), false),
        ("a no from before it was made", Some((no(), 100)), 101, Some(open), true),
        ("is not asked about all the time", Some((no(), 100)), 100, Some(open), false),
        ("a no is over", Some((no(), 101)), 111, Some(open), true),
        ("no such kind", Some((Answer::NoKind, 101)), 102, None, false),
        ("which may have come", Some((Answer::NoKind, 101)), 111, Some(open), true),
        ("no answer", Some((lost.clone(), 101)), 105, Some("forbidden"), false),
        ("is asked for again", Some((lost, 101)), 106, Some("forbidden"), true),
    ];
    for (why, about_jobs, now, kept_back, asked) in table {
        let world = world(yes.clone(), about_jobs);
        let wrapper = wrapper(Some(ALICE));
        let found = may_pass(&world, &wrapper, UserAccess::Reviewed, at(now))
            .err()
            .map(|it| it.to_string());
        match kept_back {
            None => assert_eq!(found, None, "{why}"),
            Some(part) => {
                assert!(found.as_ref().is_some_and(|it| it.contains(part)), "{why}: {found:?}");
            }
        }
        let questions = questions(&world, &wrapper, UserAccess::Reviewed, at(now));
        assert_eq!(questions.iter().any(|it| it.need == Need::Create(jobs())), asked, "{why}");
    }
}

#[test]
fn ds_9_an_author_that_anybody_could_have_written_is_none() {
    let all = || world(Some((Answer::Allowed, 110)), Some((Answer::Allowed, 110)));
    let late = all();
    late.shelf::<Recording>().set(Recording::new(at(101)));
    let never = all();
    never.shelf::<Recording>().unset(&Recording::key());
    let other = r#"{"username":"alice","groups":["team"]}"#;
    let table = [
        ("recorded", all(), Some(ALICE), None),
        ("not recorded", all(), None, Some("who made it is not recorded")),
        ("no author", all(), Some("alice"), Some("who made it is not recorded")),
        ("somebody else of that name", all(), Some(other), Some("is being found out")),
        ("from before", late, Some(ALICE), Some("made before 1970-01-01T00:01:41Z")),
        ("nobody records", never, Some(ALICE), Some("authors are not recorded")),
        (
            "nothing is known",
            World::new([Kind::of::<AppWrapper>()]),
            Some(ALICE),
            Some("authors are not recorded"),
        ),
    ];
    for (why, world, author, kept_back) in table {
        let found = may_pass(&world, &wrapper(author), UserAccess::Reviewed, at(111))
            .err()
            .map(|it| it.to_string());
        match kept_back {
            None => assert_eq!(found, None, "{why}"),
            Some(part) => {
                assert!(found.as_ref().is_some_and(|it| it.contains(part)), "{why}: {found:?}");
            }
        }
    }
    assert_eq!(questions(&all(), &wrapper(None), UserAccess::Reviewed, at(111)), []);
    assert_eq!(
        questions(&all(), &wrapper(Some("alice")), UserAccess::Reviewed, at(111)),
        [],
        "there is nobody to ask about"
    );
}

/// A kind that was not there when an AppWrapper passed may have come since.
#[test]
fn ds_9_what_is_made_was_asked_for() {
    let world = world(Some((Answer::Allowed, 110)), Some((Answer::NoKind, 110)));
    let mut wrapper = wrapper(Some(ALICE));
    assert_eq!(may_pass(&world, &wrapper, UserAccess::Reviewed, at(111)), Ok(()));
    let kept = may_create(&world, &wrapper, UserAccess::Reviewed, at(111)).unwrap_err();
    assert!(kept.is_open(), "{kept}");
    assert_eq!(questions(&world, &wrapper, UserAccess::Reviewed, at(112)).len(), 0, "it waits");
    wrapper.status.can_run = true;
    wrapper.status.state = Some(gantry_api::queue::AppWrapperState::Pending);
    assert_eq!(
        questions(&world, &wrapper, UserAccess::Reviewed, at(112)).len(),
        1,
        "it is to be made"
    );
    wrapper.status.state = Some(gantry_api::queue::AppWrapperState::Running);
    assert_eq!(questions(&world, &wrapper, UserAccess::Reviewed, at(150)), [], "it was made");
}

#[test]
fn ds_9_the_same_again_is_no_news() {
    let question = Question {
        author: ALICE.to_owned(),
        namespace: "n".to_owned(),
        need: Need::Create(jobs()),
    };
    let shelf = gantry_reconcile::Shelf::<Right>::at(Right::RESOURCE);
    let table = [
        ("the first", Answer::Allowed, 0, true),
        ("the same in time", Answer::Allowed, 15, false),
        ("the same too late", Answer::Allowed, 45, true),
        ("another", no(), 50, true),
        ("a no is for whoever came since", no(), 51, true),
        ("a right that was granted", Answer::Allowed, 52, true),
    ];
    for (why, answer, second, expected) in table {
        let change = shelf.set(question.answered(answer, at(second)));
        assert_eq!(is_news(&change), expected, "{why}");
    }
    assert!(!is_news(&shelf.unset(&question.key()).unwrap()));
}

/// All of the words are chosen by users.
#[test]
fn no_question_is_mistaken_for_another() {
    let question = |author: &str, version: &str, kind: &str| Question {
        author: author.to_owned(),
        namespace: "n".to_owned(),
        need: Need::Create(TypeName { api_version: version.into(), kind: kind.into() }),
    };
    let all = [
        question("a", "v1", "Pod"),
        question("a", "v1\",\"Pod", ""),
        question("Pod\",\"a", "v1", ""),
        question("", "v1", "Pod\",\"a"),
    ];
    let keys: std::collections::BTreeSet<Key> = all.iter().map(Question::key).collect();
    assert_eq!(keys.len(), all.len());
    let right = all[0].answered(Answer::Allowed, at(1));
    assert_eq!(right.meta().key(), all[0].key());
    let read: Value =
        json!({"metadata": {"name": "x"}, "author": "a", "answer": no(), "at": at(1)});
    assert_eq!(serde_json::from_value::<Right>(read).unwrap().answer, no());
}

/// A RoleBinding, a Role and a Secret for a token, which give more than the right to create them.
fn granting() -> AppWrapper {
    let rbac = "rbac.authorization.k8s.io/v1";
    let token = json!({"name": "s", "annotations": {"kubernetes.io/service-account.name": "sa"}});
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "n", "creationTimestamp": at(100),
            "annotations": {crate::app_wrapper::AUTHOR: ALICE},
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
    let world = world(None, None);
    let asked = |access| -> Vec<String> {
        let questions = questions(&world, &wrapper, access, at(111));
        questions.into_iter().map(|it| it.need.to_string()).collect()
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
    // The server looks at these itself, and also at what the author holds.
    assert_eq!(asked(UserAccess::OnBehalf), creations);
    // Whoever may create all of them and lacks one of the others is refused, by its name.
    for denied in questions(&world, &wrapper, UserAccess::Reviewed, at(111)) {
        let Need::Privilege(privilege) = &denied.need else { continue };
        let world = self::world(None, None);
        for question in questions(&world, &wrapper, UserAccess::Reviewed, at(111)) {
            let answer = match question == denied {
                true => {
                    let asked = Attributes::of(privilege);
                    Answer::Denied { asked, reason: String::new() }
                }
                false => Answer::Allowed,
            };
            world.shelf::<Right>().set(question.answered(answer, at(111)));
        }
        let kept = may_pass(&world, &wrapper, UserAccess::Reviewed, at(112)).unwrap_err();
        let words = format!("user \"alice\" cannot {} in the namespace \"n\"; ", denied.need);
        assert!(kept.to_string().starts_with(&words), "{kept}");
        assert_eq!(may_pass(&world, &wrapper, UserAccess::OnBehalf, at(112)), Ok(()));
    }
}
