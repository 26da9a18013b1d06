//! Dry run: everything but the write.

use serde_json::json;

use super::objects::{
    CONFIG_MAPS, SERVICES, WIDGETS, at, config_map, define_widgets, widget, with,
};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch, Until};

pub(super) const CASES: &[Case] = &[
    case!("dry-run-of-a-creation", [37], creation),
    case!("dry-run-of-changes", [37], changes),
    case!("dry-run-of-a-deletion", [37], deletion),
    case!("dry-run-tells-nobody", [37], no_event),
    case!("dry-run-of-custom-objects", [37], custom),
];

async fn creation(talk: &mut Conversation) -> Outcome {
    let dry = with(CONFIG_MAPS, "dryRun=All");
    let made = talk.create(&dry, &config_map("a", "x")).await?;
    made.lacks("/metadata/resourceVersion")?;
    holds("a uid", made.at("/metadata/uid").is_string())?;
    talk.get(&at(CONFIG_MAPS, "a")).await?.expect(404)?;
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk.post(&dry, &config_map("a", "x")).await?;
    answer.refused(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    let applied = with(&at(CONFIG_MAPS, "b"), "dryRun=All&fieldManager=m");
    talk.patch(&applied, Patch::Apply, &config_map("b", "x")).await?.expect(201)?;
    talk.get(&at(CONFIG_MAPS, "b")).await?.expect(404)?;
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let made = talk.create(&with(SERVICES, "dryRun=All"), &service).await?;
    made.is("/spec/type", &json!("ClusterIP"))
}

async fn changes(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    let dry = with(&path, "dryRun=All");
    let change = json!({ "data": { "a": "y" } });
    let put = talk.put(&dry, &config_map("a", "y")).await?.expect(200)?;
    put.is("/data/a", &json!("y"))?;
    let patched = talk.patch(&dry, Patch::Merge, &change).await?.expect(200)?;
    patched.is("/data/a", &json!("y"))?;
    let applied = with(&path, "dryRun=All&fieldManager=m&force=true");
    let applied = talk.patch(&applied, Patch::Apply, &config_map("a", "y")).await?.expect(200)?;
    applied.is("/data/a", &json!("y"))?;
    let stored = talk.get(&path).await?.expect(200)?;
    same("what is stored", made.json(), stored.json())
}

async fn deletion(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    talk.delete(&with(&path, "dryRun=All")).await?.expect(200)?.is("/status", &json!("Success"))?;
    talk.ask(Ask::delete(path.clone()).json(&json!({ "dryRun": ["All"] }))).await?.expect(200)?;
    let collection = talk.delete(&with(CONFIG_MAPS, "dryRun=All")).await?.expect(200)?;
    collection.lists(&["a"])?;
    talk.get(&path).await?.expect(200)?;
    Ok(())
}

async fn no_event(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    let dry = with(&at(CONFIG_MAPS, "a"), "dryRun=All");
    talk.put(&dry, &config_map("a", "y")).await?.expect(200)?;
    talk.delete(&dry).await?.expect(200)?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.read(watch, Until::Events(1)).await?.tells(&[("ADDED", "b")])
}

async fn custom(talk: &mut Conversation) -> Outcome {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string", "default": "given" } },
    });
    define_widgets(talk, &schema).await?;
    let made = talk.create(&with(WIDGETS, "dryRun=All"), &widget("w", &json!({}))).await?;
    made.is("/spec", &json!({ "a": "given" }))?;
    let wrong = widget("w", &json!({ "a": 1 }));
    talk.post(&with(WIDGETS, "dryRun=All"), &wrong).await?.expect(422)?;
    talk.get(&at(WIDGETS, "w")).await?.expect(404)?;
    Ok(())
}
