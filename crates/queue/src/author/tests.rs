use super::*;

const ALICE: &str = r#"{"username":"alice","groups":["team"]}"#;
const BOB: &str = r#"{"username":"bob"}"#;

/// Returns an AppWrapper around an item of this name, with these annotations.
fn wrapper(item: &str, annotations: &Value) -> Value {
    let template = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": item}});
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"priority": 1, "resources": {"GenericItems": [{"generictemplate": template}]}},
    });
    if !annotations.is_null() {
        object["metadata"]["annotations"] = annotations.clone();
    }
    object
}

fn by(name: &str) -> Value {
    json!({AUTHOR_ANNOTATION: name, "other": "stays"})
}

fn review(user: &str, operation: &str, old: &Value, object: &Value) -> Value {
    let user: Value = serde_json::from_str(user).unwrap();
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": operation, "userInfo": user, "object": object, "oldObject": old,
    }})
}

/// Returns the annotations of an object after the answer is applied to it.
fn after(answer: &Value, object: &Value) -> Value {
    let mut annotations = object["metadata"]["annotations"].clone();
    let Some(patch) = answer["response"]["patch"].as_str() else { return annotations };
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    let one = "/metadata/annotations/workload.codeflare.dev~1gantry-author";
    for change in patch.as_array().unwrap() {
        match (change["op"].as_str().unwrap(), change["path"].as_str().unwrap()) {
            ("add", "/metadata/annotations") => annotations = change["value"].clone(),
            ("add", path) if path == one => {
                annotations[AUTHOR_ANNOTATION] = change["value"].clone();
            }
            ("remove", path) if path == one => {
                assert!(
                    annotations.as_object_mut().unwrap().shift_remove(AUTHOR_ANNOTATION).is_some()
                );
            }
            (op, path) => panic!("{op} {path}"),
        }
    }
    annotations
}

#[test]
fn ds_9_the_author_is_the_user_that_wrote_the_items() {
    let none = Value::Null;
    let other = json!({"other": "stays"});
    let table = [
        // why  who  operation  before  written  expected
        (
            "the creator is the author",
            ALICE,
            none.clone(),
            wrapper("x", &none),
            json!({AUTHOR_ANNOTATION: ALICE}),
        ),
        ("beside other annotations", ALICE, none.clone(), wrapper("x", &other), by(ALICE)),
        ("a forged one is replaced", BOB, none.clone(), wrapper("x", &by(ALICE)), by(BOB)),
        ("the right one stays", ALICE, none.clone(), wrapper("x", &by(ALICE)), by(ALICE)),
        (
            "a user that changes items is the author",
            BOB,
            wrapper("x", &by(ALICE)),
            wrapper("y", &by(ALICE)),
            by(BOB),
        ),
        (
            "one that changes anything else is not",
            BOB,
            wrapper("x", &by(ALICE)),
            wrapper("x", &by(ALICE)),
            by(ALICE),
        ),
        (
            "nor one that claims it",
            BOB,
            wrapper("x", &by(ALICE)),
            wrapper("x", &by(BOB)),
            by(ALICE),
        ),
        (
            "an author is not taken away",
            BOB,
            wrapper("x", &by(ALICE)),
            wrapper("x", &other),
            by(ALICE),
        ),
        (
            "not with all annotations either",
            BOB,
            wrapper("x", &json!({AUTHOR_ANNOTATION: ALICE})),
            wrapper("x", &none),
            json!({AUTHOR_ANNOTATION: ALICE}),
        ),
        ("no author is added later", BOB, wrapper("x", &other), wrapper("x", &by(BOB)), other),
        (
            "unless they write the items",
            BOB,
            wrapper("x", &none),
            wrapper("y", &none),
            json!({AUTHOR_ANNOTATION: BOB}),
        ),
    ];
    for (why, user, old, object, expected) in table {
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let said = answer_review(&review(user, operation, &old, &object));
        assert_eq!(said["response"]["allowed"], true, "{why}");
        assert_eq!(said["response"]["uid"], "u1", "{why}");
        assert_eq!(after(&said, &object), expected, "{why}");
        let mut written = object;
        written["metadata"]["annotations"] = expected.clone();
        let again = answer_review(&review(user, operation, &old, &written));
        assert_eq!(again["response"]["patch"], Value::Null, "asked again nothing changes: {why}");
    }
}

#[test]
fn ds_9_what_is_not_about_items_is_left_alone() {
    let object = wrapper("x", &by(BOB));
    let mut status = review(ALICE, "UPDATE", &wrapper("x", &by(ALICE)), &object);
    status["request"]["subResource"] = json!("status");
    let table = [
        ("a status", status, true),
        ("a deletion", review(ALICE, "DELETE", &object, &Value::Null), true),
        ("nothing at all", json!({}), true),
        ("no user", review("{}", "CREATE", &Value::Null, &object), false),
        ("no user", review("7", "CREATE", &Value::Null, &object), false),
        ("no operation", json!({"request": {"object": object}}), false),
    ];
    for (why, review, allowed) in table {
        let said = answer_review(&review);
        assert_eq!(said["response"]["allowed"], allowed, "{why}");
        assert_eq!(said["response"]["patch"], Value::Null, "{why}");
    }
}

#[test]
fn an_author_is_read_as_it_was_written() {
    let author = Author {
        username: "alice".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["b".to_owned(), "a".to_owned()],
        extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
    };
    assert_eq!(Author::read(&author.annotation()), Some(author.clone()));
    for text in ["", "alice", "{}", r#"{"username":""}"#, r#"{"username":7}"#] {
        assert_eq!(Author::read(text), None, "{text}");
    }
    let jobs = gantry_reconcile::Resource::namespaced("batch", "v1", "jobs", "Job");
    let review = author.access_review("n", &ResourceAttributes::create(&jobs));
    assert_eq!(
        review["spec"],
        json!({
            "user": "alice", "uid": "7", "groups": ["b", "a"], "extra": {"k": ["v"]},
            "resourceAttributes": {"namespace": "n", "verb": "create", "group": "batch",
                "version": "v1", "resource": "jobs"},
        })
    );
}

/// An author that users could choose not to have recorded would be of no use.
#[test]
fn ds_9_the_webhook_cannot_be_bypassed() {
    let configuration = webhook_configuration(|path| json!({"url": path}));
    let hook = &configuration["webhooks"][0];
    assert_eq!(hook["failurePolicy"], "Fail");
    assert_eq!((&hook["namespaceSelector"], &hook["objectSelector"]), (&json!({}), &json!({})));
    assert_eq!(hook["matchConditions"], Value::Null);
    assert_eq!(hook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    assert_eq!(hook["rules"][0]["resources"], json!(["appwrappers"]), "and no subresource");
}
