//! Installs the default StorageClass, for claims that name none.

use anyhow::bail;
use gantry_kube_controllers::storage::default_class;
use gantry_kube_controllers::view::StorageClass;
use gantry_reconcile::{Parameter, View as _};
use http::{Method, StatusCode};
use serde_json::Value;

use super::InProcessClient;

/// The annotation that marks the default StorageClass.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Creates the default StorageClass, unless one of its name or another default exists: classes of
/// users are left alone, and most of a class cannot be changed.
///
/// # Errors
/// The server rejects it.
pub(super) async fn install(api_client: &InProcessClient) -> anyhow::Result<()> {
    let class = default_class();
    let path = StorageClass::RESOURCE.collection("")?;
    let json = "application/json";
    let (_, list) = api_client.request(Method::GET, &path, json, None).await?;
    let is_there = |it: &Value| {
        it["metadata"]["name"] == class["metadata"]["name"]
            || it["metadata"]["annotations"][IS_DEFAULT] == "true"
    };
    if list["items"].as_array().into_iter().flatten().any(is_there) {
        return Ok(());
    }
    let create = path.with(Parameter::FieldManager("gantry"));
    let (status, answer) = api_client.request(Method::POST, &create, json, Some(&class)).await?;
    if status != StatusCode::CREATED {
        let why = answer["message"].as_str().unwrap_or("the server gave no reason").to_owned();
        bail!("could not install the default StorageClass: {why}");
    }
    Ok(())
}
