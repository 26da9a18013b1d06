//! `gantry node`: changes the nodes of a running cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use gantry_api::quantity::Quantity;
use gantry_controller::Actor;
use gantry_controller::writer::Writer;
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, Outcome, Write};
use gantry_sim::kernel;
use gantry_sim::node_shape::{self, NodeShape};
use gantry_sim::view::Node;

use super::cluster_client::{ClusterClient, ClusterFlags};
use super::up::read_shapes;
use super::{CommandOutcome, amounts};
use crate::output::Output;

/// Add and remove nodes of a running cluster, and simulate failures and upgrades.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry node add big --cpu 96 --memory 1Ti --accelerators nvidia.com/gpu=8 --count 2
  gantry node add --nodes more.yaml
  gantry node kill gpu-0                  power failure: its pods are evicted after a while
  gantry node revive gpu-0
  gantry node upgrade-kernel gpu-0 6.11.0-9-generic")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    reach: ClusterFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(Add),
    /// Mark nodes as unschedulable.
    Cordon(Names),
    /// Mark nodes as schedulable.
    Uncordon(Names),
    /// Simulate a power failure: nodes stop reporting, and their pods stay as they are.
    Kill(Names),
    /// End the simulated power failure of nodes.
    Revive(Names),
    /// Restart a node with another kernel.
    UpgradeKernel {
        /// The node.
        name: String,
        /// The release of the kernel, as `uname -r` prints it.
        release: String,
    },
    /// Delete nodes. Their pods are deleted when the controllers notice.
    Remove(Names),
}

#[derive(Debug, clap::Args)]
struct Names {
    /// The nodes.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Add nodes of one shape, or of the shapes in a file.
#[derive(Debug, clap::Args)]
struct Add {
    /// The prefix of the names; numbering continues after existing nodes.
    #[arg(required_unless_present = "nodes")]
    name: Option<String>,

    /// A file of node shapes, as `gantry up --nodes` reads it.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    nodes: Option<PathBuf>,

    /// The number of nodes.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    // Negative numbers are accepted as values, so that the error says what is wrong with them.
    #[arg(value_parser = amounts::nodes, allow_hyphen_values = true)]
    count: u32,

    /// The CPU of each node.
    #[arg(
        long,
        value_name = "AMOUNT",
        value_parser = amounts::quantity,
        allow_hyphen_values = true
    )]
    cpu: Option<Quantity>,

    /// The memory of each node.
    #[arg(
        long,
        value_name = "AMOUNT",
        value_parser = amounts::quantity,
        allow_hyphen_values = true
    )]
    memory: Option<Quantity>,

    /// The accelerators of each node, as RESOURCE=NUMBER; may be repeated.
    #[arg(long, value_name = "RESOURCE=NUMBER", value_parser = amounts::accelerators)]
    accelerators: Vec<(String, u32)>,

    /// The kernel release of the nodes.
    #[arg(long, value_name = "RELEASE")]
    kernel_version: Option<String>,

    /// Which modules the kernels load: off (all), enforce or lockdown (only signed ones).
    #[arg(long, value_name = "POLICY")]
    module_signatures: Option<String>,

    /// A file with the certificates that the kernels trust, in PEM.
    #[arg(long, value_name = "FILE")]
    trusted_keys: Option<PathBuf>,

    /// A label, as NAME=VALUE; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
}

/// How long one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(act(arguments, output))
}

async fn act(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let cluster = arguments.reach.connect().await?;
    let nodes = read(&cluster).await?;
    let (writes, done) = match &arguments.command {
        Command::Add(add) => (creation_writes(add, &nodes)?, "added"),
        Command::Cordon(names) => (writes_for_each(names, &nodes, node_shape::cordon)?, "cordoned"),
        Command::Uncordon(names) => {
            (writes_for_each(names, &nodes, node_shape::uncordon)?, "uncordoned")
        }
        Command::Kill(names) => {
            (writes_for_each(names, &nodes, node_shape::power_off)?, "powered off")
        }
        Command::Revive(names) => {
            (writes_for_each(names, &nodes, node_shape::power_on)?, "powered on")
        }
        Command::UpgradeKernel { name, release } => {
            check_release("RELEASE", release)?;
            (vec![node_shape::upgrade_kernel(find(name, &nodes)?, release)], "restarting")
        }
        Command::Remove(names) => (writes_for_each(names, &nodes, node_shape::remove)?, "removed"),
    };
    let actor = Arc::new(Actor::new(cluster.client, "gantry", "gantry"));
    let writer = Writer::standalone(Clock::system(), WRITE_TIMEOUT);
    for write in &writes {
        let name = write.key();
        match writer.write(&actor, write, None).await.outcome {
            Outcome::Done(_) => output.result(format_args!("node/{name} {done}"))?,
            Outcome::NotFound => bail!("node {name} was deleted"),
            Outcome::Conflict(why) => {
                bail!("node {name} was changed by another client: {why}; try again")
            }
            Outcome::Refused(refusal) => {
                return Err(anyhow::Error::new(refusal))
                    .with_context(|| format!("could not {} node {name}", write.verb()));
            }
            Outcome::Unknown(why) => {
                bail!("the write to node {name} has an unknown result: {why}; check it, and retry")
            }
        }
    }
    Ok(CommandOutcome::Success)
}

/// Lists the nodes of the cluster.
async fn read(cluster: &ClusterClient) -> anyhow::Result<Vec<Arc<Node>>> {
    let list = cluster.get(&ApiPath::from_static("/api/v1/nodes")).await?;
    let nodes = list["items"].as_array().into_iter().flatten();
    let nodes = nodes.map(|node| serde_json::from_value(node.clone()).map(Arc::new));
    nodes.collect::<Result<_, _>>().context("could not decode the nodes")
}

fn find<'a>(name: &str, nodes: &'a [Arc<Node>]) -> anyhow::Result<&'a Node> {
    let found = nodes.iter().find(|node| node.metadata.name == name);
    found.map(AsRef::as_ref).with_context(|| {
        let names: Vec<&str> = nodes.iter().map(|it| it.metadata.name.as_str()).take(20).collect();
        match names.as_slice() {
            [] => format!("there is no node {name}, nor any other; `gantry node add` adds some"),
            names => format!("there is no node {name}; there are {}", names.join(", ")),
        }
    })
}

fn writes_for_each(
    names: &Names,
    nodes: &[Arc<Node>],
    order: fn(&Node) -> Write,
) -> anyhow::Result<Vec<Write>> {
    // All nodes are looked up before anything is written.
    names.names.iter().map(|name| find(name, nodes).map(order)).collect()
}

fn creation_writes(add: &Add, nodes: &[Arc<Node>]) -> anyhow::Result<Vec<Write>> {
    let Add {
        name,
        nodes: file,
        count,
        cpu,
        memory,
        accelerators,
        kernel_version,
        module_signatures,
        trusted_keys,
        labels,
    } = add;
    if let Some(file) = file {
        let writes: Vec<Write> =
            read_shapes(file)?.iter().flat_map(|it| node_shape::add(it, nodes)).collect();
        if writes.is_empty() {
            bail!("--nodes {}: adds no nodes: every `count` in it is 0; raise one", file.display());
        }
        return Ok(writes);
    }
    let mut shape = NodeShape::new(name.as_deref().unwrap_or_default());
    shape.count = *count;
    shape.cpu = cpu.unwrap_or(shape.cpu);
    shape.memory = memory.unwrap_or(shape.memory);
    for (resource, count) in accelerators {
        let accelerator = node_shape::Accelerator { count: *count, model: None };
        if shape.accelerators.insert(resource.clone(), accelerator).is_some() {
            bail!("--accelerators {resource}: given twice; name each resource once");
        }
    }
    if let Some(release) = kernel_version {
        check_release("--kernel-version", release)?;
    }
    shape.kernel_version.clone_from(kernel_version);
    if let Some(text) = module_signatures {
        let policy = kernel::parse_enforcement(text).with_context(|| {
            format!("--module-signatures {text}: write off, enforce or lockdown")
        })?;
        shape.module_signatures = Some(policy);
    }
    if let Some(file) = trusted_keys {
        let named = || format!("cannot use --trusted-keys {}", file.display());
        let text = std::fs::read_to_string(file).with_context(named)?;
        let read = kernel::parse_certificates(&text).map_err(anyhow::Error::msg);
        read.with_context(named)?;
        shape.trusted_keys = Some(text);
    }
    for text in labels {
        let (name, value) = pair("label", text, "zone=a")?;
        shape.labels.insert(name.to_owned(), value.to_owned());
    }
    Ok(node_shape::add(&shape, nodes))
}

fn check_release(what: &str, release: &str) -> anyhow::Result<()> {
    kernel::check_release(release).map_err(anyhow::Error::msg).with_context(|| what.to_owned())
}

fn pair<'a>(flag: &str, text: &'a str, like: &str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once('=').with_context(|| format!("--{flag} {text}: write it like {like}"))
}
