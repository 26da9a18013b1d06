//! `gantry status`: one screen about a cluster.

use std::collections::BTreeMap;

use clap::ValueEnum;
use gantry_api::object::KINDS;
use gantry_reconcile::{ApiPath, Parameter};

use super::reach::{AskError, Place, Reach};
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
const OTHERS: [(&str, ApiPath); 5] = [
    ("deployments", ApiPath::from_static("/apis/apps/v1/deployments")),
    ("statefulsets", ApiPath::from_static("/apis/apps/v1/statefulsets")),
    ("daemonsets", ApiPath::from_static("/apis/apps/v1/daemonsets")),
    ("jobs", ApiPath::from_static("/apis/batch/v1/jobs")),
    ("cronjobs", ApiPath::from_static("/apis/batch/v1/cronjobs")),
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
    let cluster = reach.reach().await?;
    let version = cluster.get(&ApiPath::from_static("/version")).await?;
    let version = version["gitVersion"].as_str().unwrap_or("unknown version").to_owned();
    let mut others = BTreeMap::new();
    for (kind, path) in OTHERS {
        others.insert(kind.to_owned(), cluster.items(&path).await?);
    }
    let mut own = BTreeMap::new();
    for kind in KINDS {
        let path = ApiPath::collection(&kind.api_version(), "", kind.plural)?;
        let path = path.with(Parameter::Limit(1));
        let page = match cluster.get(&path).await {
            Ok(page) => page,
            // A cluster need not have all of Gantry's kinds, nor show them to everybody.
            Err(AskError::Absent { .. } | AskError::Forbidden { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let shown = page["items"].as_array().map_or(0, Vec::len) as u64;
        let rest = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        own.insert(kind.kind.to_owned(), shown + rest);
    }
    // Only `gantry up` has it, and only shows it to those who may see it.
    let process = match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => Some(page),
        Err(AskError::Absent { .. } | AskError::Forbidden { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let nodes = cluster.items(&ApiPath::from_static("/api/v1/nodes")).await?;
    let pods = cluster.items(&ApiPath::from_static("/api/v1/pods")).await?;
    let Place { server, context, kubeconfig } = cluster.place;
    Ok(Seen { server, context, kubeconfig, version, nodes, pods, others, own, process })
}
