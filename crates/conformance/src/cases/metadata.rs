//! Metadata only a server sets, and generation.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, WIDGETS, config_map, define, deployment, object_path, widget,
    widget_definition, with_version_field,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, Session};

pub(super) const CASES: &[Case] = &[
    case!("generated-names", [17], generated_names),
    case!("generated-name-is-cut", [17], generated_name_cut),
    case!("metadata-of-the-server", [18], server_metadata),
    case!("metadata-on-update", [18], metadata_on_update),
    case!("generation-of-deployments", [19], deployment_generation),
    case!("generation-of-custom-objects", [19], custom_generation),
    case!("generation-with-status", [19], status_generation),
    case!("status-of-custom-objects", [19], status_isolation),
    case!("owner-references", [18], owner_references),
    case!("finalizer-names", [20], finalizer_names),
    case!("labels-of-a-job", [18], labels_of_a_job),
];

/// Letters a server makes names of: no vowels, so that no word appears.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

async fn generated_names(talk: &mut Session) -> Outcome {
    let body = json!({ "metadata": { "generateName": "some-" } });
    let first = talk.create(CONFIG_MAPS, &body).await?.string("/metadata/name");
    let second = talk.create(CONFIG_MAPS, &body).await?.string("/metadata/name");
    expect_true("two names", first != second)?;
    for name in [first, second] {
        let suffix = name.strip_prefix("some-").unwrap_or_default();
        expect_equal("letters added", &5, &suffix.len())?;
        expect_true("safe letters", suffix.chars().all(|it| LETTERS.contains(it)))?;
    }
    let both = json!({ "metadata": { "generateName": "some-", "name": "chosen" } });
    talk.create(CONFIG_MAPS, &both).await?.has_value("/metadata/name", &json!("chosen"))
}

async fn generated_name_cut(talk: &mut Session) -> Outcome {
    let prefix = "p".repeat(80);
    let body = json!({ "metadata": { "generateName": prefix } });
    let made = talk.create(CONFIG_MAPS, &body).await?;
    let name = made.string("/metadata/name");
    expect_equal("length", &63, &name.len())?;
    expect_equal("the prefix that is kept", &&prefix[..58], &&name[..58])?;
    made.has_value("/metadata/generateName", &json!(prefix))
}

async fn server_metadata(talk: &mut Session) -> Outcome {
    let mine = json!({
        "name": "a",
        "uid": "00000000-0000-4000-8000-000000000000",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "selfLink": "/mine",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 7,
        "generation": 7,
    });
    let made = talk.create(CONFIG_MAPS, &json!({ "metadata": mine })).await?;
    for field in ["uid", "creationTimestamp"] {
        let given = made.at(&format!("/metadata/{field}"));
        expect_true(field, given.is_string() && *given != mine[field])?;
    }
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        made.has_no_value(&format!("/metadata/{field}"))?;
    }
    made.has_value("/metadata/namespace", &json!(talk.with_namespace("{ns}")))
}

async fn metadata_on_update(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let change = json!({ "metadata": {
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "selfLink": "/mine",
        "labels": { "l": "1" },
    } });
    let path = object_path(CONFIG_MAPS, "a");
    let changed = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    changed.has_value("/metadata/creationTimestamp", made.at("/metadata/creationTimestamp"))?;
    changed.has_value("/metadata/labels", &json!({ "l": "1" }))?;
    changed.has_no_value("/metadata/selfLink")?;
    let deleted = json!({ "metadata": { "deletionTimestamp": "1999-01-01T00:00:00Z" } });
    talk.patch(&path, PatchType::Merge, &deleted).await?.expect_error(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \
         \"1999-01-01T00:00:00Z\": field is immutable",
    )?;
    let other = json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" } });
    let answer = talk.patch(&path, PatchType::Merge, &other).await?;
    answer.expect_error_containing(422, "Invalid", "metadata.uid: Invalid value: ")?;
    Ok(())
}

/// Patches an object and checks its generation.
async fn generation_after(
    talk: &mut Session,
    path: &str,
    change: Value,
    generation: u64,
) -> Outcome {
    let changed = talk.patch(path, PatchType::Merge, &change).await?.expect(200)?;
    // A scale has no generation; its object has.
    let changed = if changed.string("/kind") == "Scale" {
        talk.get(path.trim_end_matches("/scale")).await?.expect(200)?
    } else {
        changed
    };
    changed.has_value("/metadata/generation", &json!(generation))
}

async fn deployment_generation(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d"))
        .await?
        .has_value("/metadata/generation", &json!(1))?;
    let path = object_path(DEPLOYMENTS, "d");
    let paused = json!({ "spec": { "paused": true } });
    generation_after(talk, &path, paused, 2).await?;
    let labels = json!({ "metadata": { "labels": { "l": "1" } } });
    generation_after(talk, &path, labels, 2).await?;
    let status = json!({ "status": { "observedGeneration": 2 } });
    generation_after(talk, &object_path(&path, "status"), status, 2).await?;
    let scale = json!({ "spec": { "replicas": 3 } });
    generation_after(talk, &object_path(&path, "scale"), scale, 3).await?;
    let mine = json!({ "metadata": { "generation": 70 } });
    generation_after(talk, &path, mine, 3).await
}

/// Widgets with two fields in `spec` and a free `status`.
fn widgets_with_status(subresources: Value) -> Value {
    let field = json!({ "type": "string" });
    let spec = json!({ "type": "object", "properties": { "a": field, "b": field } });
    let mut definition = widget_definition(&spec);
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"] = spec;
    with_version_field(definition, "subresources", subresources)
}

async fn custom_generation(talk: &mut Session) -> Outcome {
    define(talk, &widgets_with_status(json!({}))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" })))
        .await?
        .has_value("/metadata/generation", &json!(1))?;
    let path = object_path(WIDGETS, "w");
    let labels = json!({ "metadata": { "labels": { "l": "1" } } });
    generation_after(talk, &path, labels, 1).await?;
    generation_after(talk, &path, json!({ "spec": { "a": "2" } }), 2).await?;
    // Without the subresource the status is a field like any other.
    generation_after(talk, &path, json!({ "status": { "a": "2" } }), 3).await?;
    let message = talk.with_namespace("widgets.{ns}.case.test \"w\" not found");
    talk.get(&object_path(&path, "status")).await?.expect_error(404, "NotFound", &message)?;
    Ok(())
}

async fn status_generation(talk: &mut Session) -> Outcome {
    define(talk, &widgets_with_status(json!({ "status": {} }))).await?;
    let mut object = widget("w", &json!({ "a": "1" }));
    object["status"] = json!({ "a": "mine" });
    let made = talk.create(WIDGETS, &object).await?;
    made.has_value("/metadata/generation", &json!(1))?;
    made.has_no_value("/status")?;
    let path = object_path(WIDGETS, "w");
    let status = json!({ "status": { "a": "1" } });
    generation_after(talk, &object_path(&path, "status"), status, 1).await?;
    generation_after(talk, &path, json!({ "spec": { "a": "2" } }), 2).await?;
    let ignored = json!({ "status": { "a": "2" } });
    generation_after(talk, &path, ignored, 2).await?;
    talk.get(&path).await?.expect(200)?.has_value("/status", &json!({ "a": "1" }))
}

async fn status_isolation(talk: &mut Session) -> Outcome {
    define(talk, &widgets_with_status(json!({ "status": {} }))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let all = json!({
        "metadata": { "labels": { "l": "1" }, "annotations": { "n": "1" } },
        "spec": { "a": "2" },
        "status": { "a": "3" },
    });
    let path = object_path(&object_path(WIDGETS, "w"), "status");
    let changed = talk.patch(&path, PatchType::Merge, &all).await?.expect(200)?;
    changed.has_values(&[
        ("/metadata/labels", Value::Null),
        ("/metadata/annotations", Value::Null),
        ("/spec", json!({ "a": "1" })),
        ("/status", json!({ "a": "3" })),
    ])
}

async fn owner_references(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    let owner = |name: &str, controller: bool| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "controller": controller,
            "uid": "00000000-0000-4000-8000-000000000000",
        })
    };
    object["metadata"]["ownerReferences"] = json!([owner("b", true), owner("c", true)]);
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("metadata.ownerReferences"))?;
    object["metadata"]["ownerReferences"] = json!([{ "name": "b" }]);
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(422)?;
    let causes = answer.at("/details/causes").as_array().map_or(0, Vec::len);
    expect_equal("what is missing", &3, &causes)
}

async fn finalizer_names(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["unqualified"]);
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("metadata.finalizers[0]"))?;
    define(talk, &widgets_with_status(json!({}))).await?;
    let mut object = widget("w", &json!({}));
    object["metadata"]["finalizers"] = json!(["unqualified"]);
    let made = talk.create(WIDGETS, &object).await?;
    made.has_warnings(&[
        "metadata.finalizers: \"unqualified\": prefer a domain-qualified finalizer name to avoid \
         accidental conflicts with other finalizer writers",
    ])?;
    let free = json!({ "metadata": { "finalizers": [] } });
    talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &free).await?.expect(200)?;
    Ok(())
}

/// A job without labels has those of its template; its own stay as they are.
async fn labels_of_a_job(talk: &mut Session) -> Outcome {
    const JOBS: &str = "/apis/batch/v1/namespaces/{ns}/jobs";
    let table = [
        ("a", json!({}), json!({}), 4),
        ("b", json!({}), json!({ "app": "b" }), 5),
        ("c", json!({ "app": "c" }), json!({}), 1),
    ];
    for (name, own, of_pods, count) in table {
        let job = json!({
            "metadata": { "name": name, "labels": own },
            "spec": { "suspend": true, "template": {
                "metadata": { "labels": of_pods },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "c", "image": "registry.test/c:1" }],
                },
            } },
        });
        talk.create(JOBS, &job).await?;
        let stored = talk.get(&object_path(JOBS, name)).await?.expect(200)?;
        let labels = stored.at("/metadata/labels").as_object().map_or(0, serde_json::Map::len);
        expect_equal(&format!("labels of {name}"), &count, &labels)?;
    }
    Ok(())
}
