//! Deletion: finalizers, grace, collections.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, PODS, at, config_map, labelled, pod, service_account, with};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch, Until};

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

async fn finalizers(talk: &mut Conversation) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let path = at(CONFIG_MAPS, "a");
    let deleted = talk.delete(&path).await?.expect(200)?.kind("ConfigMap")?;
    holds("deletionTimestamp", deleted.at("/metadata/deletionTimestamp").is_string())?;
    deleted.is("/metadata/deletionGracePeriodSeconds", &json!(0))?;
    holds("marking is a write", made.revision() < deleted.revision())?;
    let again = talk.delete(&path).await?.expect(200)?;
    same("deleting again", deleted.json(), again.json())?;
    let more = json!({ "metadata": { "finalizers": ["case.test/hold", "case.test/more"] } });
    let answer = talk.patch(&path, Patch::Merge, &more).await?.expect(422)?;
    // Two layers of the real server check it, and both say so.
    let cause = (
        "metadata.finalizers",
        "FieldValueForbidden",
        "Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"case.test/more\"}",
    );
    answer.caused_by(&[cause, cause])?;
    let change = json!({ "data": { "a": "y" } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&path, Patch::Merge, &free).await?.expect(200)?.lacks("/metadata/finalizers")?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}

async fn last_finalizer_event(talk: &mut Conversation) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    let path = at(CONFIG_MAPS, "a");
    talk.delete(&path).await?.expect(200)?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&path, Patch::Merge, &free).await?.expect(200)?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    let told = talk.read(watch, Until::Events(3)).await?;
    told.tells(&[("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")])
}

async fn returned(talk: &mut Conversation) -> Outcome {
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
        let answer = talk.delete(&at(path, "a")).await?.expect(200)?;
        same(&answer.asked, &kind, &answer.string("/kind").as_str())?;
    }
    Ok(())
}

async fn propagation_finalizers(talk: &mut Conversation) -> Outcome {
    let table = [
        ("foreground", "Foreground", json!(["foregroundDeletion"])),
        ("orphan", "Orphan", json!(["orphan"])),
    ];
    for (name, policy, expected) in table {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
        let options = json!({ "propagationPolicy": policy });
        let answer = talk.ask(Ask::delete(at(CONFIG_MAPS, name)).json(&options)).await?;
        let answer = answer.expect(200)?;
        // A server with a garbage collector may be done before it answers a second question.
        answer.is("/metadata/finalizers", &expected)?;
    }
    talk.create(CONFIG_MAPS, &config_map("query", "x")).await?;
    let path = with(&at(CONFIG_MAPS, "query"), "propagationPolicy=Orphan");
    talk.delete(&path).await?.expect(200)?.is("/metadata/finalizers", &json!(["orphan"]))
}

async fn graceful(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    talk.create(PODS, &pod("p")).await?;
    let path = at(PODS, "p");
    let seconds = |answer: &crate::answer::Answer, expected: u32| {
        answer.is("/metadata/deletionGracePeriodSeconds", &json!(expected))
    };
    let first = talk.delete(&path).await?.expect(200)?.kind("Pod")?;
    seconds(&first, 30)?;
    first.is("/metadata/generation", &json!(2))?;
    let shorter = talk.delete(&with(&path, "gracePeriodSeconds=5")).await?.expect(200)?;
    seconds(&shorter, 5)?;
    let longer = talk.delete(&with(&path, "gracePeriodSeconds=60")).await?.expect(200)?;
    seconds(&longer, 5)?;
    same("what is ignored is no write", &shorter.revision(), &longer.revision())?;
    let body = json!({ "gracePeriodSeconds": 0 });
    talk.ask(Ask::delete(path.clone()).json(&body)).await?.expect(200)?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}

/// Who sends options in a body has said everything there: the query is not looked at.
async fn body_or_query(talk: &mut Conversation) -> Outcome {
    for body in [json!({}), json!({ "propagationPolicy": "Background" })] {
        talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
        let tried = with(&at(CONFIG_MAPS, "a"), "dryRun=All");
        talk.delete(&tried).await?.expect(200)?;
        talk.get(&at(CONFIG_MAPS, "a")).await?.expect(200)?;
        talk.ask(Ask::delete(tried).json(&body)).await?.expect(200)?;
        talk.get(&at(CONFIG_MAPS, "a")).await?.expect(404)?;
    }
    Ok(())
}

async fn unscheduled(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    let mut object = pod("p");
    object["spec"]["nodeName"] = Value::Null;
    // A gate keeps it unscheduled, also where there is a scheduler.
    object["spec"]["schedulingGates"] = json!([{ "name": "case.test/wait" }]);
    talk.create(PODS, &object).await?;
    talk.delete(&at(PODS, "p")).await?.expect(200)?.kind("Pod")?;
    talk.get(&at(PODS, "p")).await?.expect(404)?;
    Ok(())
}

async fn job_warns(talk: &mut Conversation) -> Outcome {
    let jobs = "/apis/batch/v1/namespaces/{ns}/jobs";
    let object = json!({
        "metadata": { "name": "j" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "registry.test/c:1" }],
        } } },
    });
    talk.create(jobs, &object).await?;
    let answer = talk.delete(&at(jobs, "j")).await?.expect(200)?;
    answer.warns(&["child pods are preserved by default when jobs are deleted; set \
                    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to \
                    suppress this warning"])?;
    answer.is("/metadata/finalizers", &json!(["orphan"]))
}

async fn collection(talk: &mut Conversation) -> Outcome {
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        talk.create(CONFIG_MAPS, &labelled(name, &json!({ "l": label }))).await?;
    }
    let deleted = talk.delete(&with(CONFIG_MAPS, "labelSelector=l%3D1")).await?.expect(200)?;
    deleted.is("/kind", &json!("ConfigMapList"))?;
    let mut names = deleted.names();
    names.sort();
    same("what was deleted", &vec!["a".to_owned(), "b".to_owned()], &names)?;
    talk.get(&with(CONFIG_MAPS, "labelSelector=l")).await?.expect(200)?.lists(&["c"])
}

async fn namespaces(talk: &mut Conversation) -> Outcome {
    let message = "the server does not allow this method on the requested resource";
    let answer = talk.delete("/api/v1/namespaces").await?;
    answer.refused(405, "MethodNotAllowed", message)?;
    for name in ["default", "kube-system", "kube-public"] {
        let answer = talk.delete(&at("/api/v1/namespaces", name)).await?;
        let message =
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        answer.refused(403, "Forbidden", &message)?;
    }
    Ok(())
}

async fn terminating(talk: &mut Conversation) -> Outcome {
    let mut held = config_map("held", "x");
    held["metadata"]["finalizers"] = json!(["case.test/hold"]);
    talk.create(CONFIG_MAPS, &held).await?;
    let deleted = talk.delete("/api/v1/namespaces/{ns}").await?.expect(200)?.kind("Namespace")?;
    deleted.is("/status/phase", &json!("Terminating"))?;
    deleted.is("/spec/finalizers", &json!(["kubernetes"]))?;
    deleted.lacks("/metadata/deletionGracePeriodSeconds")?;
    let message = talk.fill(
        "configmaps \"late\" is forbidden: unable to create new content in namespace {ns} because \
         it is being terminated",
    );
    // A server may need a moment to see the change in its own cache.
    let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &config_map("late", "x"));
    talk.ask_until_unrecorded(ask, |answer| answer.status == 403).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("late", "x")).await?;
    let answer = answer.refused(403, "Forbidden", &message)?;
    answer.caused_by(&[(
        "metadata.namespace",
        "NamespaceTerminating",
        &talk.fill("namespace {ns} is being terminated"),
    )])?;
    // What is there can be changed until it goes. Whether it was asked to go by then is a matter of
    // time, so only the status counts.
    for change in [json!({ "data": { "a": "y" } }), json!({ "metadata": { "finalizers": null } })] {
        let ask = Ask::patch(at(CONFIG_MAPS, "held"), Patch::Merge, &change);
        talk.ask_unrecorded(ask).await?.expect(200)?;
    }
    Ok(())
}
