//! What a client learns before it asks for anything.

use serde_json::{Value, json};

use super::objects::{DEFINITIONS, define, is_established, object_path, widget_definition};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("aggregated-discovery-of-core", [1], aggregated_core),
    case!("aggregated-discovery-of-groups", [1], aggregated_groups),
    case!("aggregated-discovery-not-modified", [1], not_modified),
    case!("legacy-discovery-roots", [2], legacy_roots),
    case!("legacy-discovery-of-resources", [2, 4], legacy_resources),
    case!("legacy-discovery-of-a-group", [2], legacy_group),
    case!("definition-in-discovery", [3], definition_visible),
    case!("openapi-index", [3, 12], openapi_index),
    case!("version-and-health", [2], version_and_health),
];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The element of a list whose field at `pointer` is `name`.
fn named<'a>(list: &'a Value, pointer: &str, name: &str) -> Option<&'a Value> {
    let is_it = |item: &&Value| item.pointer(pointer).is_some_and(|it| it == name);
    list.as_array()?.iter().find(is_it)
}

async fn aggregated_core(talk: &mut Session) -> Outcome {
    let answer = talk.send(RequestSpec::get("/api").accept(AGGREGATED)).await?.expect(200)?;
    answer.has_header("content-type", AGGREGATED)?;
    answer.has_header("vary", "Accept")?;
    expect_true(
        "an ETag in quotes",
        answer.header("etag").first().is_some_and(|it| it.starts_with('"')),
    )?;
    answer.has_values(&[
        ("/kind", json!("APIGroupDiscoveryList")),
        ("/apiVersion", json!("apidiscovery.k8s.io/v2")),
        ("/metadata", json!({})),
        ("/items/0/metadata", json!({})),
        ("/items/0/versions/0/version", json!("v1")),
        ("/items/0/versions/0/freshness", json!("Current")),
    ])?;
    let resources = answer.at("/items/0/versions/0/resources");
    let config_maps = named(resources, "/resource", "configmaps").cloned().unwrap_or_default();
    let expected = json!({
        "resource": "configmaps",
        "responseKind": { "group": "", "version": "", "kind": "ConfigMap" },
        "scope": "Namespaced",
        "singularResource": "configmap",
        "verbs": [
            "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
        ],
        "shortNames": ["cm"],
    });
    expect_equal("the entry of configmaps", &expected, &config_maps)
}

async fn aggregated_groups(talk: &mut Session) -> Outcome {
    let answer = talk.send(RequestSpec::get("/apis").accept(AGGREGATED)).await?.expect(200)?;
    answer.has_header("content-type", AGGREGATED)?;
    let apps = named(answer.at("/items"), "/metadata/name", "apps").cloned().unwrap_or_default();
    let resources = &apps["versions"][0]["resources"];
    let deployments = named(resources, "/resource", "deployments").cloned().unwrap_or_default();
    expect_equal("a short name", &json!(["deploy"]), &deployments["shortNames"])?;
    expect_equal("a category", &json!(["all"]), &deployments["categories"])?;
    let scale = named(&deployments["subresources"], "/subresource", "scale").cloned();
    let expected = json!({
        "subresource": "scale",
        "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
        "verbs": ["get", "patch", "update"],
    });
    expect_equal("the scale of deployments", &expected, &scale.unwrap_or_default())
}

async fn not_modified(talk: &mut Session) -> Outcome {
    // The core group: no other case changes it meanwhile.
    let first = talk.send(RequestSpec::get("/api").accept(AGGREGATED)).await?.expect(200)?;
    let tag = first.header("etag").first().cloned().unwrap_or_default();
    let ask = RequestSpec::get("/api").accept(AGGREGATED);
    let again = talk.send(ask.clone().header("if-none-match", tag)).await?.expect(304)?;
    expect_equal("a body", &Value::Null, again.json())?;
    talk.send(ask.header("if-none-match", "\"other\"")).await?.expect(200)?;
    Ok(())
}

async fn legacy_roots(talk: &mut Session) -> Outcome {
    let core = talk.send(RequestSpec::get("/api").accept("application/json")).await?.expect(200)?;
    core.has_values(&[("/kind", json!("APIVersions")), ("/versions", json!(["v1"]))])?;
    let groups =
        talk.send(RequestSpec::get("/apis").accept("application/json")).await?.expect(200)?;
    groups.has_values(&[("/kind", json!("APIGroupList")), ("/apiVersion", json!("v1"))])?;
    let first = groups.at("/groups/0/name");
    expect_equal("the first group", &json!("apiregistration.k8s.io"), first)?;
    let scaling = named(groups.at("/groups"), "/name", "autoscaling").cloned().unwrap_or_default();
    expect_equal("the preferred version", &json!("v2"), &scaling["preferredVersion"]["version"])
}

async fn legacy_resources(talk: &mut Session) -> Outcome {
    let core = talk.get("/api/v1").await?.expect(200)?;
    core.has_values(&[("/kind", json!("APIResourceList")), ("/groupVersion", json!("v1"))])?;
    let resource = |name: &str| named(core.at("/resources"), "/name", name).cloned();
    let pods = resource("pods").unwrap_or_default();
    expect_equal("the hash of pods", &json!("xPOwRZ+Yhw8="), &pods["storageVersionHash"])?;
    let eviction = resource("pods/eviction").unwrap_or_default();
    let expected = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true,
        "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"],
    });
    expect_equal("a subresource of another group", &expected, &eviction)
}

async fn legacy_group(talk: &mut Session) -> Outcome {
    let group = talk.get("/apis/apps").await?.expect(200)?;
    let version = json!({ "groupVersion": "apps/v1", "version": "v1" });
    group.has_values(&[
        ("/kind", json!("APIGroup")),
        ("/name", json!("apps")),
        ("/versions", json!([version])),
        ("/preferredVersion", version),
    ])?;
    let apps = talk.get("/apis/apps/v1").await?.expect(200)?;
    let scale = named(apps.at("/resources"), "/name", "deployments/scale").cloned();
    let scale = scale.unwrap_or_default();
    expect_equal("the kind of a scale", &json!("Scale"), &scale["kind"])?;
    expect_equal("the group of a scale", &json!("autoscaling"), &scale["group"])
}

async fn definition_visible(talk: &mut Session) -> Outcome {
    let definition = widget_definition(&json!({ "type": "object" }));
    let path = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    talk.delete_at_end(&path);
    define(talk, &definition).await?;
    talk.send_until_unrecorded(RequestSpec::get(path), is_established).await?;
    let group = talk.with_namespace("{ns}.case.test");
    let has_group =
        |answer: &Response, list: &str, name: &str| named(answer.at(list), name, &group).is_some();
    let ask = RequestSpec::get("/apis").accept(AGGREGATED);
    let answer = talk.send_until(ask, |it| has_group(it, "/items", "/metadata/name")).await?;
    let group_entry = named(answer.at("/items"), "/metadata/name", &group).cloned();
    let widgets = group_entry.unwrap_or_default()["versions"][0]["resources"][0].take();
    let kind = json!({ "group": group, "version": "v1", "kind": "Widget" });
    expect_equal("a custom kind names its group", &kind, &widgets["responseKind"])?;
    let verbs =
        json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    expect_equal("the order of verbs", &verbs, &widgets["verbs"])?;
    talk.send_until(RequestSpec::get("/apis"), |it| has_group(it, "/groups", "/name")).await?;
    let list = talk.get("/apis/{ns}.case.test/v1").await?.expect(200)?;
    list.has_value("/resources/0/name", &json!("widgets"))?;
    let paths = format!("/paths/apis~1{group}~1v1");
    let index = RequestSpec::get("/openapi/v3");
    talk.send_until(index, |it| it.at(&paths).is_object()).await?.expect(200)?;
    Ok(())
}

async fn openapi_index(talk: &mut Session) -> Outcome {
    let index = talk.get("/openapi/v3").await?.expect(200)?;
    let url = index.string("/paths/apis~1coordination.k8s.io~1v1/serverRelativeURL");
    let start = "/openapi/v3/apis/coordination.k8s.io/v1?hash=";
    expect_true("a URL with a hash", url.starts_with(start))?;
    let document = talk.send_unrecorded(RequestSpec::get(url)).await?.expect(200)?;
    let patch =
        "/paths/~1apis~1coordination.k8s.io~1v1~1namespaces~1{namespace}~1leases~1{name}/patch";
    let kind = json!({ "group": "coordination.k8s.io", "version": "v1", "kind": "Lease" });
    document.has_value(&format!("{patch}/x-kubernetes-group-version-kind"), &kind)?;
    let parameters = document.at(&format!("{patch}/parameters"));
    expect_true("fieldValidation", named(parameters, "/name", "fieldValidation").is_some())?;
    expect_true("dryRun", named(parameters, "/name", "dryRun").is_some())?;
    let forms = document.at(&format!("{patch}/requestBody/content"));
    expect_true("strategic merge", forms.get("application/strategic-merge-patch+json").is_some())
}

async fn version_and_health(talk: &mut Session) -> Outcome {
    for path in ["/version", "/version/"] {
        let version = talk.get(path).await?.expect(200)?;
        version.has_values(&[("/major", json!("1")), ("/minor", json!("34"))])?;
        expect_true("a semantic version", version.string("/gitVersion").starts_with("v1.34."))?;
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = talk.get(path).await?.expect(200)?;
        expect_equal("the text", &"ok", &answer.text())?;
    }
    Ok(())
}
