use super::*;

fn original() -> Value {
    json!({
        "apiVersion": "ex.io/v1", "kind": "Foo",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "generation": 3,
            "labels": { "l": "1" }, "annotations": { "a": "1" },
        },
        "spec": { "old": true },
    })
}

fn converted(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = original();
    object["apiVersion"] = json!("ex.io/v2");
    object["spec"] = json!({ "new": true });
    change(&mut object);
    object
}

fn accepted(change: impl FnOnce(&mut Value)) -> Result<Value, String> {
    check_converted(&[original()], vec![converted(change)], "ex.io/v2").map(|mut it| it.remove(0))
}

#[test]
fn only_labels_and_annotations_of_the_metadata_are_taken() {
    let found = accepted(|object| {
        object["metadata"]["labels"] = json!({ "l": "2", "m": "x" });
        object["metadata"]["annotations"] = Value::Null;
        object["metadata"]["generation"] = json!(99);
        object["metadata"]["finalizers"] = json!(["x.io/y"]);
    })
    .unwrap();
    let metadata = json!({
        "name": "a", "namespace": "n", "uid": "u", "generation": 3,
        "labels": { "l": "2", "m": "x" },
    });
    assert_eq!(found["metadata"], metadata);
    assert_eq!(found["spec"], json!({ "new": true }));
}

#[test]
fn unexpected_objects_are_refused() {
    type Change = fn(&mut Value);
    let table: [(Change, &str); 9] = [
        (
            |it| it["apiVersion"] = json!("ex.io/v1"),
            "returned invalid object at index 0: invalid groupVersion (expected ex.io/v2, received \
             ex.io/v1)",
        ),
        (
            |it| it["kind"] = json!("Bar"),
            "returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
        ),
        (
            |it| it["metadata"]["name"] = json!("b"),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |it| it["metadata"]["namespace"] = json!("m"),
            "returned invalid object: must have the same namespace: n != m",
        ),
        (
            |it| it["metadata"]["uid"] = json!("v"),
            "returned invalid object: must have the same UID: u != v",
        ),
        (
            |it| it["metadata"]["labels"] = json!([]),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in \
             converted object",
        ),
        (
            |it| it["metadata"]["labels"]["x"] = json!(1),
            "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in \
             converted object",
        ),
        (
            |it| it["metadata"]["labels"]["l"] = json!("-"),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": a valid label must \
             be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
             '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            |it| it["metadata"]["annotations"]["-"] = json!("x"),
            "returned invalid metadata: metadata.annotation: Invalid value: \"-\": name part must \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ];
    for (change, expected) in table {
        assert_eq!(accepted(change), Err(expected.to_owned()));
    }
    let found = check_converted(&[original()], Vec::new(), "ex.io/v2");
    assert_eq!(found, Err("returned 0 objects, expected 1".to_owned()));
}

#[test]
fn a_response_must_be_a_success_with_the_request_uid() {
    let review = |response: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": response,
        })
    };
    let kind = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got ";
    let table = [
        (review(json!({ "uid": "1", "result": { "status": "Success" } })), Ok(Vec::new())),
        (
            review(json!({
                "uid": "1", "convertedObjects": [{}], "result": { "status": "Success" },
            })),
            Ok(vec![json!({})]),
        ),
        (json!({}), Err(format!("{kind}/, Kind="))),
        (review(Value::Null), Err("no response provided".to_owned())),
        (review(json!({ "uid": "2" })), Err("expected response.uid=\"1\", got \"2\"".to_owned())),
        (
            review(json!({ "uid": "1", "result": { "status": "Failure", "message": "no" } })),
            Err("no".to_owned()),
        ),
        (
            review(json!({ "uid": "1", "result": { "status": "Failure" } })),
            Err("response.result.status was 'Failure', not 'Success'".to_owned()),
        ),
    ];
    for (document, expected) in table {
        let found = read_response(ReviewVersion::V1, "1", document.to_string().as_bytes());
        assert_eq!(found, expected, "{document}");
    }
    let loose = json!({ "response": { "uid": "other", "result": { "status": "Success" } } });
    let found = read_response(ReviewVersion::V1Beta1, "1", loose.to_string().as_bytes());
    assert_eq!(found, Ok(Vec::new()));
}
