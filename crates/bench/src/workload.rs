//! The requests that are measured, and the objects they need.

use anyhow::{Context as _, ensure};
use gantry_testkit::http::{Client, Request};
use serde_json::{Value, json};

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Create a ConfigMap of 1 KiB.
    Create,
    /// Read one ConfigMap.
    Get,
    /// List 500 ConfigMaps.
    List,
    /// Change one key of a ConfigMap by merge patch.
    MergePatch,
    /// Change one key of a ConfigMap by server-side apply.
    Apply,
    /// Change the status of a Deployment.
    Status,
}

/// Objects that are read, and the size of the list that is read.
pub(crate) const STOCK: usize = 500;

impl Workload {
    /// Every kind, in the order they are measured.
    pub(crate) const ALL: [Self; 6] =
        [Self::Create, Self::Get, Self::List, Self::MergePatch, Self::Apply, Self::Status];

    /// Returns its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::List => "list of 500",
            Self::MergePatch => "merge patch",
            Self::Apply => "server-side apply",
            Self::Status => "status update",
        }
    }

    /// Returns request number `n` of client `client`. No two are equal, and clients write objects
    /// of their own, so that conflicts do not affect the figures.
    pub(crate) fn request(self, namespace: &str, client: usize, n: u64) -> Request {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let text = format!("{client}-{n}");
        match self {
            // Separate from the objects that others read: how many are created depends on the
            // server.
            Self::Create => Request::post(
                format!("/api/v1/namespaces/{namespace}-new/configmaps"),
                &config_map(&format!("new-{text}"), &text),
            ),
            Self::Get => {
                let index = (client as u64).wrapping_mul(7919).wrapping_add(n) % STOCK as u64;
                Request::get(format!("{maps}/stock-{index}"))
            }
            Self::List => Request::get(format!("{maps}?labelSelector=stock&limit={STOCK}")),
            Self::MergePatch => Request::patch(
                format!("{maps}/stock-{client}"),
                "application/merge-patch+json",
                &json!({"data": {"n": text}}),
            ),
            Self::Apply => Request::patch(
                format!("{maps}/applied-{client}?fieldManager=bench&force=true"),
                "application/apply-patch+yaml",
                &config_map(&format!("applied-{client}"), &text),
            ),
            Self::Status => Request::patch(
                format!("/apis/apps/v1/namespaces/{namespace}/deployments/d-{client}/status"),
                "application/merge-patch+json",
                &json!({"status": {"observedGeneration": 1, "replicas": n % 1_000_000}}),
            ),
        }
    }
}

/// Creates a namespace with the objects that the workloads need for this many clients.
pub(crate) async fn prepare(
    client: &Client,
    namespace: &str,
    clients: usize,
) -> anyhow::Result<()> {
    for name in [namespace.to_owned(), format!("{namespace}-new")] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(client, "/api/v1/namespaces", &body).await?;
    }
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for index in 0..STOCK {
        let mut map = config_map(&format!("stock-{index}"), "0");
        map["metadata"]["labels"] = json!({"stock": ""});
        create(client, &maps, &map).await?;
    }
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    for index in 0..clients {
        create(client, &deployments, &deployment(&format!("d-{index}"))).await?;
    }
    Ok(())
}

/// Creates one object, and returns the server's error if that fails.
pub(crate) async fn create(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let answer = client
        .send(Request::post(path, body))
        .await
        .with_context(|| format!("could not create {name} at {path}"))?;
    ensure!(
        answer.status.is_success(),
        "create {name} at {path}: {}: {}",
        answer.status,
        answer.text()
    );
    Ok(())
}

/// A ConfigMap whose serialised form is about 1 KiB.
pub(crate) fn config_map(name: &str, n: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"n": n, "fill": "x".repeat(900)},
    })
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "example.com/none:1"}]},
            },
        },
    })
}
