//! How API servers ask about pods that claim devices, and about the objects of the group.

use anyhow::Context as _;
use gantry_apiserver::Api;
use gantry_placement::admission::{Failure, Mode, Question, answer, configurations};
use serde_json::{Value, json};

use crate::manifests::NAMESPACE;
use crate::up::Door;

/// The service behind which the operator answers.
pub const SERVICE: &str = "gantry-webhook";

/// Lets the embedded server ask, of which nothing is heard outside the process. Pods that claim devices
/// wait for them in this way. The configurations are objects like any other; whoever deletes them is not
/// asked any more until the next start.
///
/// # Errors
/// The server refuses them.
pub async fn settle(api: &Api, door: &Door, mode: Mode) -> anyhow::Result<()> {
    api.answer(NAMESPACE, SERVICE, move |path, review| match Question::at(path) {
        Some(question) => answer(mode, question, review),
        None => json!({}),
    });
    // It cannot be absent while the server is there; where a server is started without it, on the
    // same directory, pods are as on any other.
    for configuration in configurations(|path| service(NAMESPACE, path), Failure::Ignore) {
        let kind = configuration["kind"].as_str().unwrap_or_default().to_lowercase();
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}s/{name}");
        let installed = door.install(&path, &configuration).await;
        installed.with_context(|| format!("could not install {path}"))?;
    }
    Ok(())
}

/// How a server reaches the service, at a path.
pub(crate) fn service(namespace: &str, path: &str) -> Value {
    json!({"service": {"namespace": namespace, "name": SERVICE, "port": 443, "path": path}})
}
