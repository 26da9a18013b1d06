//! `gantry uninstall`: takes away what is shared, as far as nobody else needs it.

use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_sharing::removal::Force;

use super::install::{finish, time};
use super::reach::Reach;
use super::{End, Form};
use crate::output::Output;
use gantry_sharing::effects::install::{left_to_administrator, may_install_roles};
use gantry_sharing::effects::report::Report;
use gantry_sharing::effects::server::Server;
use gantry_sharing::effects::source::Source;
use gantry_sharing::effects::uninstall::{self, Bindings, Options};

/// Remove what installations in one cluster share, as far as nobody else needs it.
///
/// First delete what uses it: requesters and population policies, then, when their pods are gone,
/// launcher and server configs, then the release of the controllers. Pods that cannot go because their
/// controllers are gone are freed by `finalizers`, which lets the server pretend first.
///
/// Definitions and policies stay while others have objects of the group in other namespaces, and a
/// definition stays while it has versions that this build does not know. What stays is said.
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
  2  a right is missing: the output says which ClusterRole to ask for
  3  refused: others would lose something
  4  not gone in time")]
pub(super) struct Arguments {
    /// What to remove.
    part: Part,

    /// Only definitions of this API group; may be repeated.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,

    /// The namespace whose objects keep nothing, and whose pods are freed; by default that of the
    /// context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// With roles: the release whose right to read nodes goes.
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,

    /// With roles: the ClusterRole for reading nodes.
    #[arg(long, value_name = "NAME")]
    node_view_cluster_role: Option<String>,

    /// With roles: also remove bindings of ClusterRole view that older charts made.
    #[arg(long)]
    old_view_bindings: bool,

    /// Change nothing: the server only says what it would do.
    #[arg(long)]
    dry_run: bool,

    /// Remove it though others may need it.
    #[arg(long)]
    force: bool,

    /// How long to wait until all is gone.
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = time)]
    timeout: Duration,

    /// Print what became of each object in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The CustomResourceDefinitions of Gantry's kinds, and with them every object.
    Crds,
    /// The admission policies that protect dual pods.
    Policies,
    /// The ClusterRoles for people and administrators, and for reading nodes.
    Roles,
    /// The finalizers of controllers that are gone, on pods of one namespace.
    Finalizers,
    /// All of these. Roles are left to the administrator if the caller is none.
    All,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let source = Source::built_in(&arguments.group)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(uninstall(arguments, &source))?;
    finish(&report, arguments.output, output)
}

async fn uninstall(arguments: &Arguments, source: &Source) -> anyhow::Result<Report> {
    let Arguments { part, dry_run, .. } = arguments;
    let client = arguments.reach.reach().await?.client;
    let server = Server::new(client, Clock::system(), *dry_run);
    let options = Options {
        namespace: arguments.namespace.clone().unwrap_or_else(|| server.own_namespace().to_owned()),
        force: if arguments.force { Force::Yes } else { Force::No },
        timeout: arguments.timeout,
    };
    let all = *part == Part::All;
    let mut objects = Vec::new();
    if all || *part == Part::Finalizers {
        objects.extend(uninstall::pod_finalizers(&server, &options).await);
    }
    let mut roles = *part == Part::Roles;
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
    if (all || *part == Part::Policies) && !source.policies.is_empty() {
        objects.extend(uninstall::policies(&server, &options).await);
    }
    if all || *part == Part::Crds {
        objects.extend(uninstall::definitions(&server, &source.definitions, &options).await);
    }
    let removed = |it: Part| all || *part == it;
    let stays = match part {
        Part::Finalizers => Vec::new(),
        Part::Crds | Part::Policies | Part::Roles | Part::All => uninstall::stays(
            removed(Part::Crds),
            removed(Part::Policies),
            roles,
            &options.namespace,
        ),
    };
    Ok(Report { dry_run: *dry_run, objects, stays })
}
