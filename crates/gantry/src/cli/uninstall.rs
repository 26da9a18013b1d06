//! `gantry uninstall`: removes shared objects that no other installation needs.

use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_sharing::removal::RemovalForce;

use super::cluster_client::ClusterFlags;
use super::install::{print_report, time};
use super::{CommandOutcome, OutputFormat};
use crate::output::Output;
use gantry_sharing::effects::cluster_client::ClusterClient;
use gantry_sharing::effects::install::{left_to_administrator, may_install_roles};
use gantry_sharing::effects::report::Report;
use gantry_sharing::effects::source::InstallSource;
use gantry_sharing::effects::uninstall::{self, Bindings, Options};

/// Remove what installations in one cluster share, unless another installation needs it.
///
/// First delete what uses it: requesters and population policies, then, when their pods are gone,
/// launcher and server configs, then the release of the controllers. Pods that are stuck because
/// their controllers are gone are released by `finalizers`, which sends dry-run requests first.
///
/// Definitions and policies are kept while other namespaces have objects of the group, and a
/// definition is kept while it has versions that this build does not know. The output names what is
/// kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry uninstall finalizers --namespace team-blue --dry-run
  gantry uninstall all --namespace team-blue --dry-run
  gantry uninstall policies --namespace team-blue
  gantry uninstall roles --release blue
  gantry uninstall crds --group fma.llm-d.ai --force

Exit codes:
  0  done
  1  the command line is wrong, or the server refused or did not answer
  2  a permission is missing: the output names the ClusterRole to request
  3  refused: other installations would lose something
  4  not deleted in time")]
pub(super) struct Arguments {
    /// What to remove.
    part: UninstallTarget,

    /// Only definitions of this API group; may be repeated.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,

    /// The namespace whose objects do not block the removal, and whose pods are released; by
    /// default that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// With roles: the release that loses its permission to read nodes.
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,

    /// With roles: the ClusterRole for reading nodes.
    #[arg(long, value_name = "NAME")]
    node_view_cluster_role: Option<String>,

    /// With roles: also remove bindings of ClusterRole view that older charts created.
    #[arg(long)]
    old_view_bindings: bool,

    /// Change nothing: send dry-run requests and print what would be done.
    #[arg(long)]
    dry_run: bool,

    /// Remove it even if others may need it.
    #[arg(long)]
    force: bool,

    /// How long to wait until everything is deleted.
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = time)]
    timeout: Duration,

    /// Print the result for each object in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    reach: ClusterFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UninstallTarget {
    /// The CustomResourceDefinitions of Gantry's kinds, and with them every object.
    Crds,
    /// The admission policies that protect dual pods.
    Policies,
    /// The ClusterRoles for users and administrators, and for reading nodes.
    Roles,
    /// The finalizers of deleted controllers, on pods of one namespace.
    Finalizers,
    /// All of these. Roles are skipped if the caller is not an administrator.
    All,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let source = InstallSource::built_in(&arguments.group)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(uninstall(arguments, &source))?;
    print_report(&report, arguments.output, output)
}

async fn uninstall(arguments: &Arguments, source: &InstallSource) -> anyhow::Result<Report> {
    let Arguments { part, dry_run, .. } = arguments;
    let client = arguments.reach.connect().await?.client;
    let server = ClusterClient::new(client, Clock::system(), *dry_run);
    let options = Options {
        namespace: arguments.namespace.clone().unwrap_or_else(|| server.own_namespace().to_owned()),
        force: if arguments.force { RemovalForce::Yes } else { RemovalForce::No },
        timeout: arguments.timeout,
    };
    let all = *part == UninstallTarget::All;
    let mut objects = Vec::new();
    if all || *part == UninstallTarget::Finalizers {
        objects.extend(uninstall::pod_finalizers(&server, &options).await);
    }
    let mut roles = *part == UninstallTarget::Roles;
    if all {
        roles = may_install_roles(&server).await?;
        if !roles {
            objects.extend(left_to_administrator());
        }
    }
    if roles {
        let bindings = Bindings {
            release: arguments.release.clone(),
            node_view: arguments.node_view_cluster_role.clone(),
            old_views: arguments.old_view_bindings,
        };
        objects.extend(uninstall::roles(&server, &bindings, &options).await);
    }
    if (all || *part == UninstallTarget::Policies) && !source.policies.is_empty() {
        objects.extend(uninstall::policies(&server, &options).await);
    }
    if all || *part == UninstallTarget::Crds {
        objects.extend(uninstall::definitions(&server, &source.definitions, &options).await);
    }
    let removed = |it: UninstallTarget| all || *part == it;
    let stays = match part {
        UninstallTarget::Finalizers => Vec::new(),
        UninstallTarget::Crds
        | UninstallTarget::Policies
        | UninstallTarget::Roles
        | UninstallTarget::All => uninstall::left_in_place(
            removed(UninstallTarget::Crds),
            removed(UninstallTarget::Policies),
            roles,
            &options.namespace,
        ),
    };
    Ok(Report { dry_run: *dry_run, objects, stays })
}
