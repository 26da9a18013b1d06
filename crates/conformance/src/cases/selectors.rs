//! Label and field selectors.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, PODS, SECRETS, SERVICES, config_map, labelled, object_path, pod, service_account,
    with_query,
};
use crate::case::{Case, Outcome, case, expect_true};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("label-selectors", [35], label_selectors),
    case!("label-selector-errors", [35], label_errors),
    case!("field-selectors-of-every-kind", [34], name_selectors),
    case!("field-selectors-of-pods", [34], pod_selectors),
    case!("field-selectors-of-others", [34], other_selectors),
    case!("field-selectors-of-events", [34], event_selectors),
    case!("field-selectors-of-counts", [34], count_selectors),
    case!("field-selectors-across-namespaces", [34], cluster_selectors),
    case!("field-selectors-of-requests", [34], request_selectors),
    case!("field-selector-errors", [34], field_errors),
];

/// A query value as it goes over the wire.
fn escaped(text: &str) -> String {
    let escape = |letter: char| match letter {
        ' ' => "%20".to_owned(),
        '=' => "%3D".to_owned(),
        '!' => "%21".to_owned(),
        ',' => "%2C".to_owned(),
        '<' => "%3C".to_owned(),
        '>' => "%3E".to_owned(),
        '\\' => "%5C".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Lists with each selector and compares the names.
async fn select(talk: &mut Session, path: &str, kind: &str, table: &[(&str, &[&str])]) -> Outcome {
    for (selector, names) in table {
        let query = format!("{kind}={}", escaped(&talk.with_namespace(selector)));
        talk.get(&with_query(path, &query)).await?.expect(200)?.has_names(names)?;
    }
    Ok(())
}

async fn label_selectors(talk: &mut Session) -> Outcome {
    let objects = [
        ("one", json!({ "l": "1", "n": "5" })),
        ("two", json!({ "l": "2", "case.test/m": "" })),
        ("zero", json!({})),
    ];
    for (name, labels) in &objects {
        talk.create(CONFIG_MAPS, &labelled(name, labels)).await?;
    }
    let table: [(&str, &[&str]); 16] = [
        ("l", &["one", "two"]),
        ("!l", &["zero"]),
        ("l=1", &["one"]),
        ("l==1", &["one"]),
        ("l!=1", &["two", "zero"]),
        ("l in (1,2)", &["one", "two"]),
        ("l in (2)", &["two"]),
        ("l notin (1)", &["two", "zero"]),
        ("l notin (1,2)", &["zero"]),
        ("n>4", &["one"]),
        ("n<5", &[]),
        ("l,n", &["one"]),
        ("l=1,n=5", &["one"]),
        ("l=1,n=6", &[]),
        ("case.test/m", &["two"]),
        ("case.test/m=", &["two"]),
    ];
    select(talk, CONFIG_MAPS, "labelSelector", &table).await
}

async fn label_errors(talk: &mut Session) -> Outcome {
    for selector in ["a===b", "a b", "a in b", "a=b=c", "=b", "a in ("] {
        let query = format!("labelSelector={}", escaped(selector));
        talk.get(&with_query(CONFIG_MAPS, &query)).await?.expect_error_containing(
            400,
            "BadRequest",
            "",
        )?;
    }
    let query = with_query(CONFIG_MAPS, "labelSelector=a%20%3D%3D%20b%20%3D%3D%20c");
    let message = "found '==', expected: ',' or 'end of string'";
    talk.get(&query).await?.expect_error(400, "BadRequest", message)?;
    Ok(())
}

async fn name_selectors(talk: &mut Session) -> Outcome {
    for name in ["a", "b"] {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
    }
    let table: [(&str, &[&str]); 7] = [
        ("metadata.name=a", &["a"]),
        ("metadata.name==a", &["a"]),
        ("metadata.name!=a", &["b"]),
        ("metadata.name=c", &[]),
        ("metadata.namespace={ns}", &["a", "b"]),
        ("metadata.namespace!={ns}", &[]),
        ("metadata.name=a,metadata.namespace={ns}", &["a"]),
    ];
    select(talk, CONFIG_MAPS, "fieldSelector", &table).await
}

async fn pod_selectors(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    talk.create(PODS, &pod("a")).await?;
    let mut other = pod("b");
    other["spec"]["restartPolicy"] = json!("Never");
    other["spec"]["schedulerName"] = json!("mine");
    other["spec"]["nodeName"] = Value::Null;
    other["spec"]["hostNetwork"] = json!(true);
    other["spec"]["schedulingGates"] = json!([{ "name": "case.test/wait" }]);
    talk.create(PODS, &other).await?;
    let status = json!({ "status": { "phase": "Running", "podIP": "192.0.2.7",
        "podIPs": [{ "ip": "192.0.2.7" }] } });
    let path = format!("{PODS}/a/status");
    talk.patch(&path, PatchType::Merge, &status).await?.expect(200)?;
    let table: [(&str, &[&str]); 12] = [
        ("spec.nodeName=node-of-{ns}", &["a"]),
        ("spec.nodeName!=node-of-{ns}", &["b"]),
        ("spec.host=node-of-{ns}", &["a"]),
        ("spec.restartPolicy=Never", &["b"]),
        ("spec.schedulerName=mine", &["b"]),
        ("spec.schedulerName!=mine", &["a"]),
        ("spec.serviceAccountName=default", &["a", "b"]),
        ("spec.hostNetwork=true", &["b"]),
        ("status.phase=Running", &["a"]),
        ("status.phase!=Running", &["b"]),
        ("status.podIP=192.0.2.7", &["a"]),
        ("status.nominatedNodeName=", &["a", "b"]),
    ];
    select(talk, PODS, "fieldSelector", &table).await
}

async fn other_selectors(talk: &mut Session) -> Outcome {
    for (name, kind) in [("a", "Opaque"), ("b", "case.test/kind")] {
        talk.create(SECRETS, &json!({ "metadata": { "name": name }, "type": kind })).await?;
    }
    let table: [(&str, &[&str]); 2] = [("type=Opaque", &["a"]), ("type!=Opaque", &["b"])];
    select(talk, SECRETS, "fieldSelector", &table).await?;
    let service = json!({
        "metadata": { "name": "s" },
        "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] },
    });
    talk.create(SERVICES, &service).await?;
    let table: [(&str, &[&str]); 3] = [
        ("spec.clusterIP=None", &["s"]),
        ("spec.type=ClusterIP", &["s"]),
        ("spec.type=NodePort", &[]),
    ];
    select(talk, SERVICES, "fieldSelector", &table).await?;
    let table: [(&str, &[&str]); 2] = [
        ("status.phase=Active,metadata.name=default", &["default"]),
        ("status.phase=Terminating,metadata.name=default", &[]),
    ];
    select(talk, "/api/v1/namespaces", "fieldSelector", &table).await
}

/// Each field selects the only object by its value, and nothing by the opposite.
async fn one_by_each(
    talk: &mut Session,
    path: &str,
    name: &str,
    fields: &[(&str, &str)],
) -> Outcome {
    for (field, value) in fields {
        let table: [(&str, &[&str]); 2] =
            [(&format!("{field}={value}"), &[name]), (&format!("{field}!={value}"), &[])];
        select(talk, path, "fieldSelector", &table).await?;
    }
    Ok(())
}

async fn event_selectors(talk: &mut Session) -> Outcome {
    let path = "/api/v1/namespaces/{ns}/events";
    let event = json!({
        "metadata": { "name": "e" },
        "involvedObject": {
            "kind": "Pod", "namespace": "{ns}", "name": "p", "uid": "some-uid",
            "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "spec.containers",
        },
        "reason": "Because", "type": "Warning", "message": "m",
        "source": { "component": "part" }, "reportingComponent": "reporter",
    });
    talk.create(path, &event).await?;
    let about = [
        ("kind", "Pod"),
        ("namespace", "{ns}"),
        ("name", "p"),
        ("uid", "some-uid"),
        ("apiVersion", "v1"),
        ("resourceVersion", "7"),
        ("fieldPath", "spec.containers"),
    ];
    let new = "/apis/events.k8s.io/v1/namespaces/{ns}/events";
    for (path, object) in [(path, "involvedObject"), (new, "regarding")] {
        for (field, value) in about {
            let field = format!("{object}.{field}");
            one_by_each(talk, path, "e", &[(&field, value)]).await?;
        }
        one_by_each(talk, path, "e", &[("reason", "Because"), ("type", "Warning")]).await?;
    }
    let old = [("source", "part"), ("reportingComponent", "reporter")];
    one_by_each(talk, path, "e", &old).await?;
    one_by_each(talk, new, "e", &[("reportingController", "reporter")]).await
}

async fn count_selectors(talk: &mut Session) -> Outcome {
    let template = json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
    });
    let controllers = "/api/v1/namespaces/{ns}/replicationcontrollers";
    let controller = json!({
        "metadata": { "name": "r" },
        "spec": { "replicas": 0, "selector": { "app": "a" }, "template": template },
    });
    talk.create(controllers, &controller).await?;
    one_by_each(talk, controllers, "r", &[("status.replicas", "0")]).await?;
    // What took the place of a controller has no such field.
    let sets = "/apis/apps/v1/namespaces/{ns}/replicasets?fieldSelector=status.replicas%3D0";
    let message = "\"status.replicas\" is not a known field selector: only \"metadata.name\", \
                   \"metadata.namespace\"";
    talk.get(sets).await?.expect_error(400, "BadRequest", message)?;
    let jobs = "/apis/batch/v1/namespaces/{ns}/jobs";
    let mut template = template;
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "metadata": { "name": "j" },
        "spec": { "suspend": true, "template": template },
    });
    talk.create(jobs, &job).await?;
    one_by_each(talk, jobs, "j", &[("status.successful", "0")]).await
}

/// A certificate request of an arbitrary user.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISU1IRUNBUUF3RHpFTk1Bc0dB\
                   MVVFQXd3RVkyRnpaVEJaTUJNR0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQksvdTJyYVZS\
                   TjBTQ1JMYnh0UzlmZTYrcEQ5U0w5dWlCZUwvdVlxSXJ0YkZVUmFPdGZuUE9UUlFSUUkrCmI3Yld3\
                   SEZpTk9YQURUVXl3aUVJUHFhVHBaQ2dBREFLQmdncWhrak9QUVFEQWdOSEFEQkVBaUJLOEJsbFl6\
                   ZkUKcWNCUVBMUlNzZkhhOE55Vmx0MzVpWXlKUGQ4OHJ4eE9JQUlnY1VKdlFoS28rTUVqS3ZEWFZP\
                   ejJjcFRlVWNSRwpEWnRoaDFVRkhCdXpiRlU9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1Qt\
                   LS0tLQo=";

async fn cluster_selectors(talk: &mut Session) -> Outcome {
    let node = json!({ "metadata": { "name": "{ns}" }, "spec": { "unschedulable": true } });
    let slice = json!({
        "metadata": { "name": "{ns}" },
        "spec": {
            "driver": "case.test", "nodeName": "node-of-{ns}",
            "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 },
        },
    });
    let rows = [
        ("/api/v1/nodes", &node, "spec.unschedulable", "true"),
        ("/apis/resource.k8s.io/v1/resourceslices", &slice, "spec.nodeName", "node-of-{ns}"),
        ("/apis/resource.k8s.io/v1/resourceslices", &slice, "spec.driver", "case.test"),
    ];
    let name = talk.with_namespace("{ns}");
    for (path, object, field, value) in rows {
        talk.create(path, object).await?;
        // Others' objects are there as well: the name tells them apart.
        let table: [(&str, &[&str]); 2] = [
            (&format!("metadata.name={{ns}},{field}={value}"), &[&name]),
            (&format!("metadata.name={{ns}},{field}!={value}"), &[]),
        ];
        select(talk, path, "fieldSelector", &table).await?;
        talk.delete(&object_path(path, "{ns}")).await?.expect(200)?;
    }
    Ok(())
}

/// Not part of the transcript: a request names its user, which differs on each server.
async fn request_selectors(talk: &mut Session) -> Outcome {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({
        "metadata": { "name": "{ns}" },
        "spec": {
            "request": CSR, "signerName": "case.test/{ns}", "usages": ["client auth"],
            "username": "somebody-else", "extra": { "a": ["b"] },
        },
    });
    talk.delete_at_end(&object_path(path, "{ns}"));
    let made = talk.send_unrecorded(RequestSpec::post(path, &request)).await?.expect(201)?;
    made.has_value("/spec/groups", &json!(["system:masters", "system:authenticated"]))?;
    expect_true("who asks is known", made.string("/spec/username") != "somebody-else")?;
    made.has_no_value("/spec/extra/a")?;
    made.has_no_value("/metadata/managedFields")?;
    let name = talk.with_namespace("{ns}");
    for (operator, names) in [("=", vec![name.as_str()]), ("!=", vec![])] {
        let selector = talk.with_namespace("metadata.name={ns},spec.signerName");
        let selector = format!("{selector}{operator}{}", talk.with_namespace("case.test/{ns}"));
        let query = format!("fieldSelector={}", escaped(&selector));
        talk.send_unrecorded(RequestSpec::get(with_query(path, &query)))
            .await?
            .expect(200)?
            .has_names(&names)?;
    }
    Ok(())
}

async fn field_errors(talk: &mut Session) -> Outcome {
    let answer = talk.get(&with_query(CONFIG_MAPS, "fieldSelector=data.x%3D1")).await?;
    let message = "\"data.x\" is not a known field selector: only \"metadata.name\", \
                   \"metadata.namespace\"";
    answer.expect_error_containing(400, "BadRequest", message)?;
    let answer = talk.get(&with_query(PODS, "fieldSelector=spec.foo%3D1")).await?;
    answer.expect_error_containing(400, "BadRequest", "field label not supported: spec.foo")?;
    let answer = talk.get(&with_query(CONFIG_MAPS, "fieldSelector=metadata.name")).await?;
    answer.expect_error_containing(400, "BadRequest", "invalid selector: 'metadata.name'")?;
    talk.get(&object_path(CONFIG_MAPS, "none")).await?.expect(404)?;
    Ok(())
}
