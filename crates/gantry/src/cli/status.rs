//! `gantry status`: one screen about a cluster.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::ValueEnum;
use gantry_api::object::KINDS;
use http::Request;
use serde_json::Value;

use super::reach::Reach;
use super::{End, Form, render};
use crate::output::Output;
use crate::overview::{Overview, Seen};
use crate::up::STATUS_PATH;

/// Show what runs in a cluster, what is held, and why.
///
/// It reads any cluster. Of one that `gantry up` runs it also shows what the controllers hold back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry status
  gantry status -o wide
  gantry status --kubeconfig prod.kubeconfig -o json")]
pub(super) struct Arguments {
    /// The form of the output.
    #[arg(short, long, value_name = "FORM", default_value = "screen")]
    output: StatusForm,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusForm {
    /// One screen.
    Screen,
    /// The same with everything that is held.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// What is looked at beside nodes and pods.
const OTHERS: [(&str, &str); 5] = [
    ("deployments", "/apis/apps/v1/deployments"),
    ("statefulsets", "/apis/apps/v1/statefulsets"),
    ("daemonsets", "/apis/apps/v1/daemonsets"),
    ("jobs", "/apis/batch/v1/jobs"),
    ("cronjobs", "/apis/batch/v1/cronjobs"),
];

/// How much is held on one screen.
const LINES: usize = 12;

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(look(&arguments.reach))?;
    let overview = Overview::of(&seen);
    let text = match arguments.output {
        StatusForm::Screen => overview.render(LINES),
        StatusForm::Wide => overview.render(usize::MAX),
        StatusForm::Yaml => render(&overview, Form::Yaml)?,
        StatusForm::Json => render(&overview, Form::Json)?,
    };
    output.result_text(&text)?;
    Ok(End::Done)
}

async fn look(reach: &Reach) -> anyhow::Result<Seen> {
    let (client, server) = reach.client().await?;
    let version = get(&client, "/version").await?;
    let version = version["gitVersion"].as_str().unwrap_or("unknown version").to_owned();
    let mut others = BTreeMap::new();
    for (kind, path) in OTHERS {
        others.insert(kind.to_owned(), items(&client, path).await?);
    }
    let mut own = BTreeMap::new();
    for kind in KINDS {
        let path = format!("/apis/{}/{}?limit=1", kind.api_version(), kind.plural);
        // A cluster need not have all of Gantry's kinds.
        if let Ok(page) = get(&client, &path).await {
            let shown = page["items"].as_array().map_or(0, Vec::len) as u64;
            let rest = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
            own.insert(kind.kind.to_owned(), shown + rest);
        }
    }
    Ok(Seen {
        server,
        version,
        nodes: items(&client, "/api/v1/nodes").await?,
        pods: items(&client, "/api/v1/pods").await?,
        others,
        own,
        // Only `gantry up` has it, and only shows it to those who may see it.
        process: get(&client, STATUS_PATH).await.ok(),
    })
}

/// All objects of a kind, page by page.
async fn items(client: &kube::Client, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut next = String::new();
    loop {
        let page = get(client, &format!("{path}?limit=500{next}")).await?;
        all.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["metadata"]["continue"].as_str() {
            Some(more) if !more.is_empty() => next = format!("&continue={more}"),
            _ => return Ok(all),
        }
    }
}

async fn get(client: &kube::Client, path: &str) -> anyhow::Result<Value> {
    let request = Request::get(path).body(Vec::new())?;
    let answer = client.request(request).await;
    answer.with_context(|| format!("could not read {path}"))
}
