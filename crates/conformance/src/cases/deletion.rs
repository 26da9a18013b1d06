//! Deletion: finalizers, grace, collections.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, PODS, config_map, labelled, object_path, pod, service_account, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("finalizers-hold-an-object", [20], finalizers),
    case!("last-finalizer-one-event", [20], last_finalizer_event),
    case!("what-a-deletion-returns", [20], returned),
    case!("propagation-finalizers", [23], propagation_finalizers),
    case!("graceful-deletion-of-a-pod", [21], graceful),
    case!("deletion-of-an-unscheduled-pod", [21], unscheduled),
    case!("deletion-of-a-job-warns", [23], job_warns),
    case!("options-in-body-or-query", [23], body_or_query),
    case!("deletion-of-a-collection", [36], collection),
    case!("deletion-of-namespaces", [25, 36], namespaces),
    case!("terminating-namespace-refuses", [25], terminating),
];

async fn finalizers(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let deleted = talk.delete(&path).await?.expect(200)?.expect_kind("ConfigMap")?;
    expect_true("deletionTimestamp", deleted.at("/metadata/deletionTimestamp").is_string())?;
    deleted.has_value("/metadata/deletionGracePeriodSeconds", &json!(0))?;
    expect_true("marking is a write", made.revision() < deleted.revision())?;
    let again = talk.delete(&path).await?.expect(200)?;
    expect_equal("deleting again", deleted.json(), again.json())?;
    let more = json!({ "metadata": { "finalizers": ["case.test/hold", "case.test/more"] } });
    let answer = talk.patch(&path, PatchType::Merge, &more).await?.expect(422)?;
    // Two layers of the real server check it, and both say so.
    let cause = (
        "metadata.finalizers",
        "FieldValueForbidden",
        "Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"case.test/more\"}",
    );
    answer.has_causes(&[cause, cause])?;
    let change = json!({ "data": { "a": "y" } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&path, PatchType::Merge, &free)
        .await?
        .expect(200)?
        .has_no_value("/metadata/finalizers")?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}

async fn last_finalizer_event(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    let path = object_path(CONFIG_MAPS, "a");
    talk.delete(&path).await?.expect(200)?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&path, PatchType::Merge, &free).await?.expect(200)?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    let told = talk.finish_watch(watch, Until::Events(3)).await?;
    told.has_events(&[("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")])
}

async fn returned(talk: &mut Session) -> Outcome {
    let table = [
        ("/api/v1/namespaces/{ns}/configmaps", json!({}), "Status"),
        ("/api/v1/namespaces/{ns}/secrets", json!({}), "Status"),
        ("/api/v1/namespaces/{ns}/serviceaccounts", json!({}), "ServiceAccount"),
        (
            "/api/v1/namespaces/{ns}/services",
            json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }),
            "Service",
        ),
        ("/api/v1/namespaces/{ns}/resourcequotas", json!({}), "ResourceQuota"),
        ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", json!({}), "Status"),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", json!({}), "Status"),
        (
            "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims",
            json!({ "devices": { "requests": [{
                "name": "r", "exactly": { "deviceClassName": "c.test" },
            }] } }),
            "ResourceClaim",
        ),
    ];
    for (path, spec, kind) in table {
        let mut object = json!({ "metadata": { "name": "a" } });
        if spec != json!({}) {
            object["spec"] = spec;
        }
        talk.create(path, &object).await?;
        let answer = talk.delete(&object_path(path, "a")).await?.expect(200)?;
        expect_equal(&answer.request_line, &kind, &answer.string("/kind").as_str())?;
    }
    Ok(())
}

async fn propagation_finalizers(talk: &mut Session) -> Outcome {
    let table = [
        ("foreground", "Foreground", json!(["foregroundDeletion"])),
        ("orphan", "Orphan", json!(["orphan"])),
    ];
    for (name, policy, expected) in table {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
        let options = json!({ "propagationPolicy": policy });
        let answer =
            talk.send(RequestSpec::delete(object_path(CONFIG_MAPS, name)).json(&options)).await?;
        let answer = answer.expect(200)?;
        // A server with a garbage collector may be done before it answers a second question.
        answer.has_value("/metadata/finalizers", &expected)?;
    }
    talk.create(CONFIG_MAPS, &config_map("query", "x")).await?;
    let path = with_query(&object_path(CONFIG_MAPS, "query"), "propagationPolicy=Orphan");
    talk.delete(&path).await?.expect(200)?.has_value("/metadata/finalizers", &json!(["orphan"]))
}

async fn graceful(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    talk.create(PODS, &pod("p")).await?;
    let path = object_path(PODS, "p");
    let seconds = |answer: &crate::response::Response, expected: u32| {
        answer.has_value("/metadata/deletionGracePeriodSeconds", &json!(expected))
    };
    let first = talk.delete(&path).await?.expect(200)?.expect_kind("Pod")?;
    seconds(&first, 30)?;
    first.has_value("/metadata/generation", &json!(2))?;
    let shorter = talk.delete(&with_query(&path, "gracePeriodSeconds=5")).await?.expect(200)?;
    seconds(&shorter, 5)?;
    let longer = talk.delete(&with_query(&path, "gracePeriodSeconds=60")).await?.expect(200)?;
    seconds(&longer, 5)?;
    expect_equal("what is ignored is no write", &shorter.revision(), &longer.revision())?;
    let body = json!({ "gracePeriodSeconds": 0 });
    talk.send(RequestSpec::delete(path.clone()).json(&body)).await?.expect(200)?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}

/// Who sends options in a body has said everything there: the query is not looked at.
async fn body_or_query(talk: &mut Session) -> Outcome {
    for body in [json!({}), json!({ "propagationPolicy": "Background" })] {
        talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
        let tried = with_query(&object_path(CONFIG_MAPS, "a"), "dryRun=All");
        talk.delete(&tried).await?.expect(200)?;
        talk.get(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
        talk.send(RequestSpec::delete(tried).json(&body)).await?.expect(200)?;
        talk.get(&object_path(CONFIG_MAPS, "a")).await?.expect(404)?;
    }
    Ok(())
}

async fn unscheduled(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    let mut object = pod("p");
    object["spec"]["nodeName"] = Value::Null;
    // A gate keeps it unscheduled, also where there is a scheduler.
    object["spec"]["schedulingGates"] = json!([{ "name": "case.test/wait" }]);
    talk.create(PODS, &object).await?;
    talk.delete(&object_path(PODS, "p")).await?.expect(200)?.expect_kind("Pod")?;
    talk.get(&object_path(PODS, "p")).await?.expect(404)?;
    Ok(())
}

async fn job_warns(talk: &mut Session) -> Outcome {
    let jobs = "/apis/batch/v1/namespaces/{ns}/jobs";
    let object = json!({
        "metadata": { "name": "j" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "registry.test/c:1" }],
        } } },
    });
    talk.create(jobs, &object).await?;
    let answer = talk.delete(&object_path(jobs, "j")).await?.expect(200)?;
    answer.has_warnings(&["child pods are preserved by default when jobs are deleted; set \
                    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to \
                    suppress this warning"])?;
    answer.has_value("/metadata/finalizers", &json!(["orphan"]))
}

async fn collection(talk: &mut Session) -> Outcome {
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        talk.create(CONFIG_MAPS, &labelled(name, &json!({ "l": label }))).await?;
    }
    let deleted =
        talk.delete(&with_query(CONFIG_MAPS, "labelSelector=l%3D1")).await?.expect(200)?;
    deleted.has_value("/kind", &json!("ConfigMapList"))?;
    let mut names = deleted.names();
    names.sort();
    expect_equal("what was deleted", &vec!["a".to_owned(), "b".to_owned()], &names)?;
    talk.get(&with_query(CONFIG_MAPS, "labelSelector=l")).await?.expect(200)?.has_names(&["c"])
}

async fn namespaces(talk: &mut Session) -> Outcome {
    let message = "the server does not allow this method on the requested resource";
    let answer = talk.delete("/api/v1/namespaces").await?;
    answer.expect_error(405, "MethodNotAllowed", message)?;
    for name in ["default", "kube-system", "kube-public"] {
        let answer = talk.delete(&object_path("/api/v1/namespaces", name)).await?;
        let message =
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        answer.expect_error(403, "Forbidden", &message)?;
    }
    Ok(())
}

async fn terminating(talk: &mut Session) -> Outcome {
    let mut held = config_map("held", "x");
    held["metadata"]["finalizers"] = json!(["case.test/hold"]);
    talk.create(CONFIG_MAPS, &held).await?;
    let deleted =
        talk.delete("/api/v1/namespaces/{ns}").await?.expect(200)?.expect_kind("Namespace")?;
    deleted.has_value("/status/phase", &json!("Terminating"))?;
    deleted.has_value("/spec/finalizers", &json!(["kubernetes"]))?;
    deleted.has_no_value("/metadata/deletionGracePeriodSeconds")?;
    let message = talk.with_namespace(
        "configmaps \"late\" is forbidden: unable to create new content in namespace {ns} because \
         it is being terminated",
    );
    // A server may need a moment to see the change in its own cache.
    let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &config_map("late", "x"));
    talk.send_until_unrecorded(ask, |answer| answer.status == 403).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("late", "x")).await?;
    let answer = answer.expect_error(403, "Forbidden", &message)?;
    answer.has_causes(&[(
        "metadata.namespace",
        "NamespaceTerminating",
        &talk.with_namespace("namespace {ns} is being terminated"),
    )])?;
    // What is there can be changed until it goes. Whether it was asked to go by then is a matter of
    // time, so only the status counts.
    for change in [json!({ "data": { "a": "y" } }), json!({ "metadata": { "finalizers": null } })] {
        let ask = RequestSpec::patch(object_path(CONFIG_MAPS, "held"), PatchType::Merge, &change);
        talk.send_unrecorded(ask).await?.expect(200)?;
    }
    Ok(())
}
