//! Dry run: everything but the write.

use serde_json::json;

use super::objects::{
    CONFIG_MAPS, SERVICES, WIDGETS, config_map, define_widgets, object_path, widget, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("dry-run-of-a-creation", [37], creation),
    case!("dry-run-of-changes", [37], changes),
    case!("dry-run-of-a-deletion", [37], deletion),
    case!("dry-run-tells-nobody", [37], no_event),
    case!("dry-run-of-custom-objects", [37], custom),
];

async fn creation(talk: &mut Session) -> Outcome {
    let dry = with_query(CONFIG_MAPS, "dryRun=All");
    let made = talk.create(&dry, &config_map("a", "x")).await?;
    made.has_no_value("/metadata/resourceVersion")?;
    expect_true("a uid", made.at("/metadata/uid").is_string())?;
    talk.get(&object_path(CONFIG_MAPS, "a")).await?.expect(404)?;
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk.post(&dry, &config_map("a", "x")).await?;
    answer.expect_error(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    let applied = with_query(&object_path(CONFIG_MAPS, "b"), "dryRun=All&fieldManager=m");
    talk.patch(&applied, PatchType::Apply, &config_map("b", "x")).await?.expect(201)?;
    talk.get(&object_path(CONFIG_MAPS, "b")).await?.expect(404)?;
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let made = talk.create(&with_query(SERVICES, "dryRun=All"), &service).await?;
    made.has_value("/spec/type", &json!("ClusterIP"))
}

async fn changes(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let dry = with_query(&path, "dryRun=All");
    let change = json!({ "data": { "a": "y" } });
    let put = talk.put(&dry, &config_map("a", "y")).await?.expect(200)?;
    put.has_value("/data/a", &json!("y"))?;
    let patched = talk.patch(&dry, PatchType::Merge, &change).await?.expect(200)?;
    patched.has_value("/data/a", &json!("y"))?;
    let applied = with_query(&path, "dryRun=All&fieldManager=m&force=true");
    let applied =
        talk.patch(&applied, PatchType::Apply, &config_map("a", "y")).await?.expect(200)?;
    applied.has_value("/data/a", &json!("y"))?;
    let stored = talk.get(&path).await?.expect(200)?;
    expect_equal("what is stored", made.json(), stored.json())
}

async fn deletion(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    talk.delete(&with_query(&path, "dryRun=All"))
        .await?
        .expect(200)?
        .has_value("/status", &json!("Success"))?;
    talk.send(RequestSpec::delete(path.clone()).json(&json!({ "dryRun": ["All"] })))
        .await?
        .expect(200)?;
    let collection = talk.delete(&with_query(CONFIG_MAPS, "dryRun=All")).await?.expect(200)?;
    collection.has_names(&["a"])?;
    talk.get(&path).await?.expect(200)?;
    Ok(())
}

async fn no_event(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    let dry = with_query(&object_path(CONFIG_MAPS, "a"), "dryRun=All");
    talk.put(&dry, &config_map("a", "y")).await?.expect(200)?;
    talk.delete(&dry).await?.expect(200)?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.finish_watch(watch, Until::Events(1)).await?.has_events(&[("ADDED", "b")])
}

async fn custom(talk: &mut Session) -> Outcome {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string", "default": "given" } },
    });
    define_widgets(talk, &schema).await?;
    let made = talk.create(&with_query(WIDGETS, "dryRun=All"), &widget("w", &json!({}))).await?;
    made.has_value("/spec", &json!({ "a": "given" }))?;
    let wrong = widget("w", &json!({ "a": 1 }));
    talk.post(&with_query(WIDGETS, "dryRun=All"), &wrong).await?.expect(422)?;
    talk.get(&object_path(WIDGETS, "w")).await?.expect(404)?;
    Ok(())
}
