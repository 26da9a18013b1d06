//! `gantry status`: shows the state of a cluster on one screen.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::ValueEnum;
use gantry_api::kind::Scope;
use gantry_api::object::KINDS;
use gantry_reconcile::{ApiPath, Parameter};
use serde_json::Value;

use super::cluster_client::{ClusterClient, ClusterFlags, ClusterLocation, ClusterRequestError};
use super::{CommandOutcome, OutputFormat, render};
use crate::output::Output;
use crate::overview::{ClusterSnapshot, Overview};
use crate::up::STATUS_PATH;

/// Show what runs in a cluster, what is held, and why.
///
/// It reads any cluster. For a cluster that `gantry up` runs it also shows what the controllers
/// hold and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry status
  gantry status -o wide
  gantry status -n team-a                     what a user of one namespace may read
  gantry status --kubeconfig prod.kubeconfig -o json")]
pub(super) struct Arguments {
    /// Show only objects of this namespace. The totals of the cluster are shown if the user may
    /// read them.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "screen")]
    output: StatusOutputFormat,

    #[command(flatten)]
    reach: ClusterFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusOutputFormat {
    /// One screen.
    Screen,
    /// One screen with everything that is held.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// The workload kinds that are read, beside nodes and pods.
const WORKLOAD_KINDS: [(&str, &str); 5] = [
    ("apps/v1", "deployments"),
    ("apps/v1", "statefulsets"),
    ("apps/v1", "daemonsets"),
    ("batch/v1", "jobs"),
    ("batch/v1", "cronjobs"),
];

/// The maximum number of held objects on one screen.
const MAX_HELD_LINES: usize = 12;

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(read_cluster(&arguments.reach, arguments.namespace.as_deref()))?;
    let overview = Overview::from_snapshot(&seen);
    let text = match arguments.output {
        StatusOutputFormat::Screen => overview.render(MAX_HELD_LINES),
        StatusOutputFormat::Wide => overview.render(usize::MAX),
        StatusOutputFormat::Yaml => render(&overview, OutputFormat::Yaml)?,
        StatusOutputFormat::Json => render(&overview, OutputFormat::Json)?,
    };
    output.result_text(&text)?;
    Ok(CommandOutcome::Success)
}

async fn read_cluster(
    reach: &ClusterFlags,
    namespace: Option<&str>,
) -> anyhow::Result<ClusterSnapshot> {
    let cluster = reach.connect().await?;
    if let Some(namespace) = namespace {
        cluster.check_namespace(namespace).await?;
    }
    let within = namespace.unwrap_or_default();
    let version = cluster.get(&ApiPath::from_static("/version")).await?;
    let version = version["gitVersion"].as_str().unwrap_or("unknown version").to_owned();
    let mut others = BTreeMap::new();
    for (api_version, kind) in WORKLOAD_KINDS {
        let path = ApiPath::collection(api_version, within, kind)?;
        others.insert(kind.to_owned(), list_kind(&cluster, &path, namespace).await?);
    }
    let mut own = BTreeMap::new();
    for kind in KINDS {
        let within = if kind.scope == Scope::Namespaced { within } else { "" };
        let path = ApiPath::collection(&kind.api_version(), within, kind.plural)?;
        let path = path.with(Parameter::Limit(1));
        let page = match cluster.get(&path).await {
            Ok(page) => page,
            // A cluster need not serve all of Gantry's kinds, and the user need not be allowed to
            // list them.
            Err(ClusterRequestError::NotFound { .. } | ClusterRequestError::Forbidden { .. }) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let shown = page["items"].as_array().map_or(0, Vec::len) as u64;
        let rest = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        own.insert(kind.kind.to_owned(), shown + rest);
    }
    // Only `gantry up` serves it, and only to users with the permission.
    let process = match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => Some(page),
        Err(ClusterRequestError::NotFound { .. } | ClusterRequestError::Forbidden { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let nodes = match cluster.items(&ApiPath::from_static("/api/v1/nodes")).await {
        Ok(nodes) => Some(nodes),
        Err(ClusterRequestError::Forbidden { .. }) if namespace.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let pods = ApiPath::collection("v1", within, "pods")?;
    let pods = list_kind(&cluster, &pods, namespace).await?;
    let ClusterLocation { server, context, kubeconfig } = cluster.location;
    let namespace = namespace.map(str::to_owned);
    Ok(ClusterSnapshot {
        namespace,
        server,
        context,
        kubeconfig,
        version,
        nodes,
        pods,
        others,
        own,
        process,
    })
}

/// Lists all objects of a kind. If the user may not list all namespaces, the error says how to read
/// one.
async fn list_kind(
    cluster: &ClusterClient,
    path: &ApiPath,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let listed = cluster.items(path).await;
    match (&listed, namespace) {
        (Err(ClusterRequestError::Forbidden { .. }), None) => {
            listed.context("cannot list all namespaces; show one with `gantry status -n NAME`")
        }
        _ => Ok(listed?),
    }
}
