//! `gantry install`: installs the objects that all installations in a cluster share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_sharing::conditional_apply::{ApplyMode, ForeignVersions};
use gantry_sharing::inventory::NODE_VIEW;

use super::cluster_client::ClusterFlags;
use super::{CommandOutcome, OutputFormat, render};
use crate::config::duration;
use crate::output::Output;
use gantry_sharing::effects::cluster_client::ClusterClient;
use gantry_sharing::effects::install::{self, NodeView, Options};
use gantry_sharing::effects::report::Report;
use gantry_sharing::effects::source::InstallSource;

/// Install what installations in one cluster share: definitions, admission policies, roles.
///
/// A definition is applied if it does not exist or lacks the version this build uses. A version
/// that others use is never removed unless requested. Policies are always applied. Everything is
/// read and written by its name, so that the ClusterRoles fma-crd-admin, fma-policy-admin and
/// gantry-crd-admin suffice; roles need an administrator.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry install all --group fma.llm-d.ai
  gantry install crds --dry-run --diff
  gantry install crds --merge-versions          keep versions that others use
  gantry install crds --mode if-differs --config-dir ../change/config
  gantry install roles --release blue --namespace team-blue

Exit codes:
  0  done
  1  the command line is wrong, or the server refused or did not answer
  2  a permission is missing: the output names the ClusterRole to request
  3  refused: it would remove something that others use, such as a version
  4  not in effect in time")]
pub(super) struct Arguments {
    /// What to install.
    part: InstallTarget,

    #[command(flatten)]
    contents: InstallOptions,

    /// Change nothing: send dry-run requests and print what would be done.
    #[arg(long)]
    dry_run: bool,

    /// Print the differences.
    #[arg(long)]
    diff: bool,

    /// How long to wait until everything is in effect.
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = time)]
    timeout: Duration,

    #[command(flatten)]
    nodes: NodeViewFlags,

    /// Print the result for each object in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    reach: ClusterFlags,
}

/// What to install, and when to apply it.
#[derive(Debug, clap::Args)]
pub(super) struct InstallOptions {
    /// Install only this API group; may be repeated. The policies belong to fma.llm-d.ai.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,

    /// Read definitions and policies from the folder `config` of another commit.
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,

    /// When a definition is applied.
    #[arg(long, value_name = "MODE", default_value = "if-version-missing")]
    mode: ModeFlag,

    /// Keep versions of definitions that this build does not know.
    #[arg(long, conflicts_with = "allow_version_removal")]
    merge_versions: bool,

    /// Remove versions of definitions that this build does not know, if no object may be stored in
    /// them.
    #[arg(long)]
    allow_version_removal: bool,
}

/// Reading nodes: the only cluster-wide permission that an installation needs.
#[derive(Debug, clap::Args)]
struct NodeViewFlags {
    /// Create or extend this ClusterRole, so that it allows reading nodes.
    #[arg(long, value_name = "NAME", default_value = NODE_VIEW)]
    ensure_node_view_cluster_role: String,

    /// Use this ClusterRole as it is.
    #[arg(long, value_name = "NAME", conflicts_with = "ensure_node_view_cluster_role")]
    existing_node_view_cluster_role: Option<String>,

    /// Bind the ClusterRole to the controllers of this release.
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,

    /// The namespace of the release; by default that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InstallTarget {
    /// The CustomResourceDefinitions of Gantry's kinds.
    Crds,
    /// The admission policies that protect dual pods.
    Policies,
    /// The ClusterRoles for users and administrators, and for reading nodes.
    Roles,
    /// All of these. Roles are skipped if the caller is not an administrator.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeFlag {
    /// If it does not exist or lacks the version.
    IfVersionMissing,
    /// If it does not exist or differs.
    IfDiffers,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl InstallOptions {
    pub(super) fn mode(&self) -> ApplyMode {
        match self.mode {
            ModeFlag::IfVersionMissing => ApplyMode::IfVersionMissing,
            ModeFlag::IfDiffers => ApplyMode::IfDiffers,
            ModeFlag::Always => ApplyMode::Always,
            ModeFlag::Never => ApplyMode::Never,
        }
    }

    pub(super) fn foreign(&self) -> ForeignVersions {
        match (self.merge_versions, self.allow_version_removal) {
            (true, _) => ForeignVersions::Keep,
            (false, true) => ForeignVersions::Remove,
            (false, false) => ForeignVersions::Refuse,
        }
    }

    pub(super) fn source(&self) -> anyhow::Result<InstallSource> {
        match &self.config_dir {
            Some(folder) => Ok(InstallSource::folder(folder, &self.group)?),
            None => Ok(InstallSource::built_in(&self.group)?),
        }
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let source = arguments.contents.source()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(install(arguments, &source))?;
    print_report(&report, arguments.output, output)
}

/// Prints a report, and returns its exit code.
pub(super) fn print_report(
    report: &Report,
    form: Option<OutputFormat>,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    match form {
        None => output.result_text(&report.render())?,
        Some(form) => output.result_text(&render(report, form)?)?,
    }
    Ok(match report.exit_code() {
        0 => CommandOutcome::Success,
        code => CommandOutcome::FailureWithCode(code),
    })
}

async fn install(arguments: &Arguments, source: &InstallSource) -> anyhow::Result<Report> {
    let Arguments { part, contents, dry_run, diff, timeout, nodes, .. } = arguments;
    let client = arguments.reach.connect().await?.client;
    let server = ClusterClient::new(client, Clock::system(), *dry_run);
    let options = Options {
        mode: contents.mode(),
        foreign: contents.foreign(),
        diff: *diff,
        timeout: *timeout,
    };
    let mut objects = Vec::new();
    if matches!(part, InstallTarget::Crds | InstallTarget::All) {
        objects.extend(install::definitions(&server, &source.definitions, &options).await);
    }
    if matches!(part, InstallTarget::Policies | InstallTarget::All) {
        objects.extend(install::policies(&server, &source.policies, *diff).await);
    }
    let roles = match part {
        InstallTarget::Roles => true,
        InstallTarget::All if install::may_install_roles(&server).await? => true,
        InstallTarget::All => {
            objects.extend(install::left_to_administrator());
            false
        }
        InstallTarget::Crds | InstallTarget::Policies => false,
    };
    if roles {
        let nodes = nodes.node_view(server.own_namespace());
        objects.extend(install::roles(&server, &nodes, *diff).await);
    }
    Ok(Report { dry_run: *dry_run, objects, stays: Vec::new() })
}

impl NodeViewFlags {
    fn node_view(&self, own: &str) -> NodeView {
        let namespace = self.namespace.clone().unwrap_or_else(|| own.to_owned());
        let ensured = &self.ensure_node_view_cluster_role;
        NodeView {
            role: self.existing_node_view_cluster_role.as_ref().unwrap_or(ensured).clone(),
            ensure: self.existing_node_view_cluster_role.is_none(),
            release: self.release.clone().map(|release| (release, namespace)),
        }
    }
}

/// Parses a duration such as `90s` or `2m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "write a number and a unit, such as 90s or 2m".to_owned())
}
