//! Strategic merge patch.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, SERVICES, config_map, deployment, object_path, with_query,
};
use crate::case::{Case, CaseError, Outcome, case, expect_equal};
use crate::response::Response;
use crate::session::{PatchType, Session};

pub(super) const CASES: &[Case] = &[
    case!("strategic-elements", [42], elements),
    case!("strategic-replacement", [42], replacement),
    case!("strategic-order", [42], order),
    case!("strategic-retained-keys", [42], retained_keys),
    case!("strategic-primitive-lists", [42], primitive_lists),
    case!("strategic-maps", [42], maps),
    case!("strategic-lists-without-key", [42], plain_lists),
    case!("strategic-services", [42], services),
    case!("strategic-refusals", [42], refusals),
];

/// A Deployment with the containers a and b.
fn two_containers() -> Value {
    let mut object = deployment("d");
    object["spec"]["template"]["spec"]["containers"] = json!([
        { "name": "a", "image": "registry.test/a:1" },
        { "name": "b", "image": "registry.test/b:1" },
    ]);
    object
}

/// Patches the pod template's spec of the Deployment.
async fn patch_pod(talk: &mut Session, spec: Value) -> Result<Response, CaseError> {
    let change = json!({ "spec": { "template": { "spec": spec } } });
    talk.patch(&object_path(DEPLOYMENTS, "d"), PatchType::Strategic, &change).await
}

/// Checks the names of the containers, in order.
fn containers(answer: Response, expected: &[&str]) -> Result<Response, CaseError> {
    let answer = answer.expect(200)?;
    let names = answer.at("/spec/template/spec/containers").as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = names.iter().filter_map(|it| it["name"].as_str()).collect();
    expect_equal("containers", &expected, &names.as_slice())?;
    Ok(answer)
}

async fn elements(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &two_containers()).await?;
    let merge = json!({ "containers": [{ "name": "b", "image": "registry.test/b:2" }] });
    let answer = containers(patch_pod(talk, merge).await?, &["a", "b"])?;
    answer.has_value("/spec/template/spec/containers/1/image", &json!("registry.test/b:2"))?;
    let add = json!({ "containers": [{ "name": "c", "image": "registry.test/c:1" }] });
    containers(patch_pod(talk, add).await?, &["c", "a", "b"])?;
    let delete = json!({ "containers": [{ "name": "a", "$patch": "delete" }] });
    containers(patch_pod(talk, delete).await?, &["c", "b"])?;
    let inner = json!({ "containers": [{ "name": "b", "env": [{ "name": "E", "value": "1" }] }] });
    patch_pod(talk, inner).await?.expect(200)?;
    let inner = json!({ "containers": [{ "name": "b", "env": [{ "name": "F", "value": "2" }] }] });
    let answer = patch_pod(talk, inner).await?.expect(200)?;
    let env = json!([{ "name": "F", "value": "2" }, { "name": "E", "value": "1" }]);
    answer.has_value("/spec/template/spec/containers/1/env", &env)
}

async fn replacement(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &two_containers()).await?;
    let replace = json!({ "containers": [
        { "name": "c", "image": "registry.test/c:1" },
        { "$patch": "replace" },
    ] });
    containers(patch_pod(talk, replace).await?, &["c"])?;
    let null = json!({ "containers": null });
    patch_pod(talk, null).await?.expect_error_containing(422, "Invalid", "Required value")?;
    Ok(())
}

async fn order(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &two_containers()).await?;
    let order = json!({
        "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }],
    });
    containers(patch_pod(talk, order).await?, &["b", "a"])?;
    let append = json!({
        "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }, { "name": "c" }],
        "containers": [{ "name": "c", "image": "registry.test/c:1" }],
    });
    containers(patch_pod(talk, append).await?, &["b", "a", "c"])?;
    let unlisted = json!({
        "$setElementOrder/containers": [{ "name": "b" }],
        "containers": [{ "name": "d", "image": "registry.test/d:1" }],
    });
    let answer = patch_pod(talk, unlisted).await?.expect(500)?;
    let message = answer.string("/message");
    expect_equal("message", &true, &message.contains("doesn't match $setElementOrder list"))
}

async fn retained_keys(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let volume = json!({ "volumes": [{ "name": "v", "emptyDir": {} }] });
    let made = patch_pod(talk, volume).await?.expect(200)?.revision();
    // A server tries a patch on what its cache has first. On a state without the volume it would
    // warn of the directive, so first make sure that this state has arrived.
    let path = with_query(&object_path(DEPLOYMENTS, "d"), &format!("resourceVersion={made}"));
    talk.get(&path).await?.expect(200)?;
    let other = json!({ "volumes": [{
        "name": "v", "$retainKeys": ["name", "configMap"], "configMap": { "name": "m" },
    }] });
    let answer = patch_pod(talk, other).await?.expect(200)?;
    answer.has_no_value("/spec/template/spec/volumes/0/emptyDir")?;
    answer.has_value("/spec/template/spec/volumes/0/configMap/name", &json!("m"))?;
    let strategy = json!({ "spec": { "strategy": {
        "$retainKeys": ["type"], "type": "Recreate",
    } } });
    let answer =
        talk.patch(&object_path(DEPLOYMENTS, "d"), PatchType::Strategic, &strategy).await?;
    answer.expect(200)?.has_value("/spec/strategy", &json!({ "type": "Recreate" }))
}

async fn primitive_lists(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/a", "case.test/b"]);
    talk.create(CONFIG_MAPS, &object).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let add = json!({ "metadata": { "finalizers": ["case.test/c", "case.test/a"] } });
    let answer = talk.patch(&path, PatchType::Strategic, &add).await?.expect(200)?;
    let merged = json!(["case.test/c", "case.test/a", "case.test/b"]);
    answer.has_value("/metadata/finalizers", &merged)?;
    let delete = json!({ "metadata": {
        "$deleteFromPrimitiveList/finalizers": ["case.test/a", "case.test/b", "case.test/c"],
    } });
    talk.patch(&path, PatchType::Strategic, &delete)
        .await?
        .expect(200)?
        .has_no_value("/metadata/finalizers")
}

async fn maps(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let table = [
        (json!({ "b": "y" }), json!({ "a": "x", "b": "y" })),
        (json!({ "a": null }), json!({ "b": "y" })),
        (json!({ "$patch": "replace", "c": "z" }), json!({ "c": "z" })),
        (json!({ "$patch": "delete" }), Value::Null),
    ];
    for (data, expected) in table {
        let change = json!({ "data": data });
        let answer = talk.patch(&path, PatchType::Strategic, &change).await?.expect(200)?;
        answer.has_value("/data", &expected)?;
    }
    Ok(())
}

async fn plain_lists(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &two_containers()).await?;
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists" });
    let first = json!({ "tolerations": [toleration("a"), toleration("b")] });
    patch_pod(talk, first).await?.expect(200)?;
    let second = json!({
        "tolerations": [toleration("c")],
        "containers": [{ "name": "a", "args": ["1", "2"] }],
    });
    let answer = patch_pod(talk, second).await?.expect(200)?;
    answer.has_value("/spec/template/spec/tolerations", &json!([toleration("c")]))?;
    let third = json!({ "containers": [{ "name": "a", "args": ["3"] }] });
    let answer = patch_pod(talk, third).await?.expect(200)?;
    answer.has_value("/spec/template/spec/containers/0/args", &json!(["3"]))
}

async fn services(talk: &mut Session) -> Outcome {
    let service = json!({
        "metadata": { "name": "s" },
        "spec": { "clusterIP": "None", "ports": [{ "name": "one", "port": 80 }] },
    });
    talk.create(SERVICES, &service).await?;
    let change = json!({ "spec": { "ports": [
        { "port": 80, "targetPort": 8080 },
        { "name": "two", "port": 81 },
    ] } });
    let answer = talk
        .patch(&object_path(SERVICES, "s"), PatchType::Strategic, &change)
        .await?
        .expect(200)?;
    let ports = answer.at("/spec/ports").as_array().cloned().unwrap_or_default();
    let pairs: Vec<_> =
        ports.iter().map(|it| (it["port"].clone(), it["targetPort"].clone())).collect();
    expect_equal("ports", &vec![(json!(80), json!(8080)), (json!(81), json!(81))], &pairs)
}

async fn refusals(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &two_containers()).await?;
    let keyless = json!({ "containers": [{ "image": "q" }] });
    let answer = patch_pod(talk, keyless).await?.expect(500)?;
    let message = "map: map[image:q] does not contain declared merge key: name";
    answer.has_value("/message", &json!(message))?;
    let unknown = json!({ "containers": [{ "name": "a", "$patch": "zap" }] });
    let answer = patch_pod(talk, unknown).await?.expect(500)?;
    let said = answer.string("/message");
    expect_equal("message", &true, &said.contains("unknown patch type: zap in map"))?;
    let wrong = json!({ "containers": { "name": "a" } });
    patch_pod(talk, wrong).await?.expect_error_containing(
        422,
        "Invalid",
        "cannot restore slice from map",
    )?;
    Ok(())
}
