//! The StorageClass that claims get which name none.

use anyhow::bail;
use gantry_reconcile::{Parameter, View as _};
use gantry_sim::storage::default_class;
use gantry_sim::view::StorageClass;
use http::{Method, StatusCode};
use serde_json::Value;

use super::Door;

/// Marks the class that claims get which name none.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Makes the default StorageClass, unless there is one of its name or another default: what users
/// made is theirs, and most of a class cannot be changed.
///
/// # Errors
/// The server refuses it.
pub(super) async fn install(door: &Door) -> anyhow::Result<()> {
    let class = default_class();
    let path = StorageClass::RESOURCE.collection("")?;
    let json = "application/json";
    let (_, list) = door.ask(Method::GET, &path, json, None).await?;
    let is_there = |it: &Value| {
        it["metadata"]["name"] == class["metadata"]["name"]
            || it["metadata"]["annotations"][IS_DEFAULT] == "true"
    };
    if list["items"].as_array().into_iter().flatten().any(is_there) {
        return Ok(());
    }
    let create = path.with(Parameter::FieldManager("gantry"));
    let (status, answer) = door.ask(Method::POST, &create, json, Some(&class)).await?;
    if status != StatusCode::CREATED {
        let why = answer["message"].as_str().unwrap_or("the server gave no reason").to_owned();
        bail!("could not install the default StorageClass: {why}");
    }
    Ok(())
}
