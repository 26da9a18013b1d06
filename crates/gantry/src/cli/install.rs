//! `gantry install`: the objects that many installations share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_sharing::conditional_apply::{Foreign, Mode};
use gantry_sharing::inventory::NODE_VIEW;

use super::reach::Reach;
use super::{End, Form, render};
use crate::config::duration;
use crate::output::Output;
use gantry_sharing::effects::install::{self, NodeView, Options};
use gantry_sharing::effects::report::Report;
use gantry_sharing::effects::server::Server;
use gantry_sharing::effects::source::Source;

/// Install what installations in one cluster share: definitions, admission policies, roles.
///
/// A definition is applied if it is absent or lacks the version this build uses, and is never changed
/// in a way that takes away a version of others unasked. Policies are applied whatever is there.
/// Everything is read and written by its name, so that the ClusterRoles fma-crd-admin,
/// fma-policy-admin and gantry-crd-admin suffice; roles are for an administrator.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry install all --group fma.llm-d.ai
  gantry install crds --dry-run --diff
  gantry install crds --merge-versions          keep the versions of others
  gantry install crds --mode if-differs --config-dir ../change/config
  gantry install roles --release blue --namespace team-blue

Exit codes:
  0  done
  1  the command line is wrong, or the server refused or did not answer
  2  a right is missing: the output says which ClusterRole to ask for
  3  refused: it would take something from others, such as a version
  4  not in effect in time")]
pub(super) struct Arguments {
    /// What to install.
    part: Part,

    #[command(flatten)]
    contents: Contents,

    /// Change nothing: the server only says what it would do.
    #[arg(long)]
    dry_run: bool,

    /// Show what changes.
    #[arg(long)]
    diff: bool,

    /// How long to wait until all is in effect.
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = time)]
    timeout: Duration,

    #[command(flatten)]
    nodes: Nodes,

    /// Print what became of each object in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,

    #[command(flatten)]
    reach: Reach,
}

/// What is wanted, and when it is applied.
#[derive(Debug, clap::Args)]
pub(super) struct Contents {
    /// Only this API group; may be repeated. The policies belong to fma.llm-d.ai.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,

    /// Take definitions and policies from the folder `config` of another commit.
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,

    /// When a definition is applied.
    #[arg(long, value_name = "MODE", default_value = "if-version-missing")]
    mode: ModeFlag,

    /// Keep versions of definitions that this build does not know.
    #[arg(long, conflicts_with = "allow_version_removal")]
    merge_versions: bool,

    /// Remove them, as far as no object may be stored in them.
    #[arg(long)]
    allow_version_removal: bool,
}

/// Reading nodes: the one right beyond its namespace that an installation needs.
#[derive(Debug, clap::Args)]
struct Nodes {
    /// Make this ClusterRole, or extend it, so that it lets nodes be read.
    #[arg(long, value_name = "NAME", default_value = NODE_VIEW)]
    ensure_node_view_cluster_role: String,

    /// Use this ClusterRole as it is.
    #[arg(long, value_name = "NAME", conflicts_with = "ensure_node_view_cluster_role")]
    existing_node_view_cluster_role: Option<String>,

    /// Bind it to the controllers of this release.
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,

    /// The namespace of the release; by default that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The CustomResourceDefinitions of Gantry's kinds.
    Crds,
    /// The admission policies that protect dual pods.
    Policies,
    /// The ClusterRoles for people and administrators, and for reading nodes.
    Roles,
    /// All of these. Roles are left to the administrator if the caller is none.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeFlag {
    /// If it is absent or lacks the version.
    IfVersionMissing,
    /// If it is absent or says something else.
    IfDiffers,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Contents {
    pub(super) fn mode(&self) -> Mode {
        match self.mode {
            ModeFlag::IfVersionMissing => Mode::IfVersionMissing,
            ModeFlag::IfDiffers => Mode::IfDiffers,
            ModeFlag::Always => Mode::Always,
            ModeFlag::Never => Mode::Never,
        }
    }

    pub(super) fn foreign(&self) -> Foreign {
        match (self.merge_versions, self.allow_version_removal) {
            (true, _) => Foreign::Keep,
            (false, true) => Foreign::Remove,
            (false, false) => Foreign::Refuse,
        }
    }

    pub(super) fn source(&self) -> anyhow::Result<Source> {
        match &self.config_dir {
            Some(folder) => Ok(Source::folder(folder, &self.group)?),
            None => Ok(Source::built_in(&self.group)?),
        }
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let source = arguments.contents.source()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(install(arguments, &source))?;
    finish(&report, arguments.output, output)
}

/// Prints a report, and ends with its code.
pub(super) fn finish(
    report: &Report,
    form: Option<Form>,
    output: &mut Output,
) -> anyhow::Result<End> {
    match form {
        None => output.result_text(&report.render())?,
        Some(form) => output.result_text(&render(report, form)?)?,
    }
    Ok(match report.exit_code() {
        0 => End::Done,
        code => End::Failed(code),
    })
}

async fn install(arguments: &Arguments, source: &Source) -> anyhow::Result<Report> {
    let Arguments { part, contents, dry_run, diff, timeout, nodes, .. } = arguments;
    let client = arguments.reach.reach().await?.client;
    let server = Server::new(client, Clock::system(), *dry_run);
    let options = Options {
        mode: contents.mode(),
        foreign: contents.foreign(),
        diff: *diff,
        timeout: *timeout,
    };
    let mut objects = Vec::new();
    if matches!(part, Part::Crds | Part::All) {
        objects.extend(install::definitions(&server, &source.definitions, &options).await);
    }
    if matches!(part, Part::Policies | Part::All) {
        objects.extend(install::policies(&server, &source.policies, *diff).await);
    }
    let roles = match part {
        Part::Roles => true,
        Part::All if install::may_install_roles(&server).await? => true,
        Part::All => {
            objects.extend(install::left_to_administrator());
            false
        }
        Part::Crds | Part::Policies => false,
    };
    if roles {
        let nodes = nodes.settle(server.own_namespace());
        objects.extend(install::roles(&server, &nodes, *diff).await);
    }
    Ok(Report { dry_run: *dry_run, objects, stays: Vec::new() })
}

impl Nodes {
    fn settle(&self, own: &str) -> NodeView {
        let namespace = self.namespace.clone().unwrap_or_else(|| own.to_owned());
        let ensured = &self.ensure_node_view_cluster_role;
        NodeView {
            role: self.existing_node_view_cluster_role.as_ref().unwrap_or(ensured).clone(),
            ensure: self.existing_node_view_cluster_role.is_none(),
            release: self.release.clone().map(|release| (release, namespace)),
        }
    }
}

/// Reads a time such as `90s` or `2m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "write a number and a unit, such as 90s or 2m".to_owned())
}
