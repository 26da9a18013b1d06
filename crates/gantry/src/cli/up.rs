//! `gantry up`: runs a whole cluster in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgAction;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use gantry_process::clock::{Clock, Moment};
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::Signals;
use gantry_process::tasks::{self, Tasks};
use gantry_queue::effects::admission::LeafAdmission;
use gantry_sim::logs::Logs;
use gantry_store::{Durability, OpenError, Store};
use gantry_subsystem::start::HostExtensions;
use tokio_util::sync::CancellationToken;

use super::apiserver::{self, ServerFlags};
use super::modules::find_buildah;
use super::{CommandOutcome, run_to_end};
use crate::admission_hooks::{self, AdmissionHooks};
use crate::config::keys::KEYS;
use crate::config::values::{Layer, Origin, Values};
use crate::containers::Containers;
use crate::image_registry::node_images::node_images;
use crate::kubeconfig::MergeResult;
use crate::output::Output;
use crate::server::{self, RunningServer, ServerConfig};
use crate::up::{self, InProcessClient, demo_module};
use crate::version::VERSION;
use crate::{config, kubeconfig};

/// Run a whole cluster on this machine: API server, nodes, scheduler and controllers.
///
/// The nodes are simulated: pods are scheduled, start, become ready, log, fail and end as on real
/// nodes, but container images do not run, except Gantry's own. Everything is stored in a
/// directory; the next `gantry up` continues from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry up
  gantry up --demo
  gantry up --nodes nodes.yaml --ephemeral --port 0
  gantry up --builder buildah             images of Modules are built for real
  gantry up --merge-kubeconfig            then simply: kubectl get nodes

Then, in another terminal:
  export KUBECONFIG=~/.local/share/gantry/apiserver/kubeconfig
  kubectl get nodes
  gantry status")]
#[expect(clippy::struct_excessive_bools, reason = "these are flags, one by one")]
pub(super) struct Arguments {
    /// A file with the nodes of the cluster, by shape; missing nodes are added.
    ///
    /// Without it, a cluster that has no nodes gets three, one of them with eight accelerators.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    nodes: Option<PathBuf>,

    /// How long pods take for each step: `fast` takes no time, `general` some seconds.
    #[arg(long, value_name = "PROFILE", default_value = "fast", help_heading = "Cluster")]
    profile: Profile,

    /// Do not run a scheduler, so that you can run your own.
    #[arg(long, help_heading = "Cluster")]
    no_scheduler: bool,

    /// Let quota trees decide which AppWrappers of the queue are admitted.
    #[arg(long, help_heading = "Cluster")]
    quota: bool,

    /// Whether the objects in an AppWrapper are created on behalf of its author, with the author's
    /// permissions.
    ///
    /// The author of an AppWrapper is recorded when it is created: an AppWrapper without a recorded
    /// author is held. When off (`=false`), a user who may create AppWrappers in a namespace may
    /// create objects of every kind there, whatever their roles allow.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    #[arg(default_value_t = true, default_missing_value = "true", help_heading = "Cluster")]
    check_user_access: bool,

    /// How pods that claim devices are scheduled, if they do not say.
    ///
    /// `scheduler`: by the scheduler `gantry`. `gate`: by their own scheduler; a scheduling gate
    /// holds them until their devices are chosen.
    #[arg(long, value_name = "MODE", default_value = "scheduler", help_heading = "Cluster")]
    devices_mode: DevicesMode,

    /// Choose node shapes for AppWrappers that wait for capacity and name none, from the shapes
    /// that may grow.
    #[arg(long, help_heading = "Cluster")]
    infer_shapes: bool,

    /// Do not run the queue, so that a separate `gantry operator` can, with its own settings.
    #[arg(
        long,
        conflicts_with_all = ["quota", "check_user_access", "infer_shapes"],
        help_heading = "Cluster"
    )]
    no_queue: bool,

    /// Do not pair pods that request models, so that separate controllers can.
    #[arg(long, help_heading = "Cluster")]
    no_actuation: bool,

    /// What builds the images of Modules.
    ///
    /// `simulated` runs no commands: `RUN` only says what it would do. `buildah` runs the buildah
    /// of this machine, with network: users who may create Modules run commands here.
    #[arg(long, value_name = "BUILDER", default_value = "simulated", help_heading = "Cluster")]
    builder: Builder,

    /// Fill the cluster with sample objects.
    #[arg(long, help_heading = "Cluster")]
    demo: bool,

    /// Delete all objects before starting. Keys are kept, so that kubeconfigs stay valid.
    #[arg(long, conflicts_with = "ephemeral", help_heading = "Cluster")]
    reset: bool,

    /// Add the context `gantry` to a kubeconfig and make it the current one.
    ///
    /// Without a file it is the first of KUBECONFIG, or ~/.kube/config. A symbolic link is
    /// followed; a backup of the original file is kept beside it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, help_heading = "Cluster")]
    // Not a path, for which clap rejects an empty value: an empty value stands for no value.
    #[arg(default_missing_value = "", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    merge_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    /// Every step takes no time.
    Fast,
    /// Every step takes one to five seconds, as on real nodes.
    General,
}

impl From<Profile> for gantry_sim::kubelet::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Fast => Self::Fast,
            Profile::General => Self::General,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Builder {
    /// Gantry itself, which runs no commands.
    Simulated,
    /// The buildah of this machine.
    Buildah,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DevicesMode {
    /// Pods get `schedulerName: gantry`.
    Scheduler,
    /// Pods get the scheduling gate `devmgmtproto.k8s.io/devices`.
    Gate,
}

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    run_to_end(serve(arguments, output))
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Arguments {
        nodes,
        profile,
        no_scheduler,
        quota,
        check_user_access,
        devices_mode,
        infer_shapes,
        no_queue,
        no_actuation,
        builder,
        demo,
        reset,
        merge_kubeconfig,
        server: flags,
    } = arguments;
    let shapes = nodes.as_deref().map(read_shapes).transpose()?;
    let buildah = match builder {
        Builder::Simulated => None,
        Builder::Buildah => Some(find_buildah(config::program_path().as_deref())?),
    };
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let metrics = Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::TaskMetrics::register(&metrics)?;
    let clock = Clock::system();
    let mut tasks =
        Tasks::new(clock.clone(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let mut progress = Progress::new(&clock);
    let scratch = flags.temporary_directory()?;
    let disabled = flags.disabled_webhook_plugin().map(str::to_owned);
    let (mut plan, kubeconfig_file) = apiserver::server_config(flags, scratch.as_ref())?;
    if let Some(name) = disabled {
        anyhow::bail!(
            "--disable-admission-plugins: {name} cannot be disabled in gantry up: without it any \
             user could forge the authors of AppWrappers and the devices of pods; remove it, or \
             run gantry apiserver, which has no controllers"
        );
    }
    let logs = Logs::new();
    let containers = Containers::new(logs.clone(), clock.clone());
    plan.nodes = Some(Arc::new(containers.clone()));
    plan.token_secrets = true;
    if reset {
        remove_objects(&plan).await?;
        progress.done(output, "reset", "all objects were deleted");
    }
    let (ephemeral, directory) = (plan.ephemeral, plan.directory.clone());
    // Images of an ephemeral cluster are kept in files that go with it.
    let images = ephemeral.then(tempfile::tempdir).transpose();
    let images = images.context("could not create a directory for container images")?;
    plan.registry = Some(match &images {
        Some(images) => images.path().join("registry"),
        None => directory.join("registry"),
    });
    let RunningServer { api, store, address, recovery, kubeconfig, authority, signer, registry } =
        server::start(plan, &mut tasks, metrics.clone()).await?;
    apiserver::report_recovery(&recovery, output);
    apiserver::exit_on_store_failure(&store, &mut tasks);
    progress.done(output, "api server", &format!("https://{address}"));
    let api_client = InProcessClient::as_server(&api);
    let values = values(&SubsystemSwitches {
        quota,
        check_user_access,
        infer_shapes,
        no_queue,
        no_actuation,
        devices_mode,
    });
    let kinds = up::install_kinds(&api_client, &values).await?;
    let leaves = LeafAdmission::default();
    // If a separate operator runs the queue, it also records authors.
    let hooks = AdmissionHooks::new(&values, &HostExtensions::default().with(leaves.clone()))?;
    admission_hooks::install_webhooks(&api, &api_client, &hooks).await?;
    progress.done(output, "kinds", &format!("{kinds} CRDs installed"));
    let settings = up::EmbeddedSettings {
        profile: profile.into(),
        certificates: authority,
        signer,
        scheduler: !no_scheduler,
        values,
        pods: directory.join("pods"),
        api_server: server::pod_api_server(address),
        network: containers.network().clone(),
        images: registry.map(|it| node_images(it, &api, address)),
        buildah,
    };
    let cluster = up::start(&api, &settings, &logs, &mut tasks, &metrics, &leaves).await?;
    if let Some(programs) = cluster.runtime().observer.get() {
        containers.set_program_observer(programs);
    }
    let count = cluster.controllers();
    cluster.wait_for_cache_sync(&clock).await?;
    progress.done(output, "controllers", &format!("{count} running"));
    // Samples are created as a user: the queue creates what they wrap on behalf of their author.
    let admin = up::accounts::administrator(&api);
    let usual = match demo {
        true => {
            let certificate = demo_module::signing_certificate(&admin, &clock).await?;
            demo_module::node_shapes(&certificate)
        }
        false => gantry_sim::node_shape::default_shapes(),
    };
    let nodes = cluster.make_nodes(&api_client, shapes.as_deref(), &usual).await?;
    let nodes = cluster.wait_for_ready_nodes(&clock, nodes).await?;
    progress.done(output, "nodes", &nodes);
    if demo {
        let devices = cluster.publish_devices(&api, &mut tasks)?;
        progress.done(output, "devices", &format!("{devices}; show them with: gantry devices top"));
        let module = demo_module::module(&format!("127.0.0.1:{}", address.port()));
        let mut count = 0;
        // Without their controllers, requesters would wait for ever.
        let models = if settings.values.is_on("actuation.enabled") { up::DEMO_MODELS } else { "" };
        for samples in [up::DEMO, &module, models] {
            count += up::apply(&admin, &clock, samples).await?;
        }
        progress.done(output, "demo", &format!("{count} objects; show them with: gantry status"));
    }
    // The file is written last: a process that waits for it finds a cluster that is ready.
    gantry_serve::files::write_private(&kubeconfig_file, kubeconfig.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", kubeconfig_file.display()))?;
    output.result(format_args!("ready in {} on https://{address}", progress.total()))?;
    match merge_kubeconfig {
        Some(file) => merge(&clock, &file, &kubeconfig, output).await?,
        None => {
            let file = kubeconfig_file.display();
            output.note(format_args!("  export KUBECONFIG={file}"));
        }
    }
    output.note("  kubectl get nodes");
    if ephemeral {
        output.note("objects are kept in memory only: they are lost when this process ends");
    }
    output.finish()?;
    let end = apiserver::until_stopped(&store, &mut tasks, &mut signals, output).await?;
    if end == CommandOutcome::Success {
        match ephemeral {
            true => output.note("stopped; nothing was stored"),
            false => output.note(format_args!(
                "stopped; everything is stored in {}, and `gantry up` continues from it",
                directory.display()
            )),
        }
    }
    Ok(end)
}

/// The flags about subsystems.
#[expect(clippy::struct_excessive_bools, reason = "these are flags, one by one")]
struct SubsystemSwitches {
    quota: bool,
    check_user_access: bool,
    infer_shapes: bool,
    no_queue: bool,
    no_actuation: bool,
    devices_mode: DevicesMode,
}

/// Returns the settings of the subsystems: those of an operator in which all of them run, with the
/// flags applied.
fn values(switches: &SubsystemSwitches) -> Values {
    let SubsystemSwitches {
        quota,
        check_user_access,
        infer_shapes,
        no_queue,
        no_actuation,
        devices_mode,
    } = *switches;
    let mode = match devices_mode {
        DevicesMode::Scheduler => "scheduler",
        DevicesMode::Gate => "gate",
    };
    let up = || Origin::Object("gantry up".to_owned());
    let mut layer = Layer::default();
    let enabled = [
        "instascale.enabled",
        "devices.enabled",
        "devices.webhook.enabled",
        "modules.enabled",
        "modules.webhook.enabled",
        // Modules ask for it one by one.
        "modules.upgrade.drain",
    ];
    for path in enabled {
        layer.set(path, true.into(), up());
    }
    layer.set("simulation.enabled", true.into(), up());
    // Long enough to read what a build has said.
    layer.set("modules.job.gcDelay", "5m".into(), up());
    layer.set("actuation.enabled", (!no_actuation).into(), Origin::Flag("no-actuation"));
    layer.set("mcadEnabled", (!no_queue).into(), Origin::Flag("no-queue"));
    layer.set("mcad.quotaEnabled", quota.into(), Origin::Flag("quota"));
    layer.set("mcad.checkUserAccess", check_user_access.into(), Origin::Flag("check-user-access"));
    layer.set("instascale.inferShapes", infer_shapes.into(), Origin::Flag("infer-shapes"));
    layer.set("devices.mode", mode.into(), Origin::Flag("devices-mode"));
    Values::from_layers(KEYS.as_slice(), [&layer])
}

/// Reads the node shapes in a file.
pub(super) fn read_shapes(path: &Path) -> anyhow::Result<Vec<gantry_sim::node_shape::NodeShape>> {
    let named = || format!("cannot use --nodes {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    gantry_sim::node_shape::parse(&text).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", faults.join("; ")).context(named())
    })
}

/// Deletes the objects of a server that is not running.
async fn remove_objects(plan: &ServerConfig) -> anyhow::Result<()> {
    let path = plan.directory.join("store");
    if !path.is_dir() {
        return Ok(());
    }
    let options = gantry_store::Options::new(Durability::Durable(path.clone()));
    let forget = move || -> anyhow::Result<()> {
        // Opened only to learn whether another process has it open; other errors do not matter,
        // because the store is deleted.
        match Store::<
            gantry_apiserver::resource::stored::EntryCache,
            gantry_apiserver::resource::stored::EncodedEvent,
        >::open(&options)
        {
            Err(error @ OpenError::InUse { .. }) => return Err(error.into()),
            Ok((store, _)) => store.close()?,
            Err(_) => {}
        }
        Ok(std::fs::remove_dir_all(&path)?)
    };
    let forgotten = tokio::task::spawn_blocking(forget).await?;
    forgotten.context("could not delete the objects; is another `gantry up` running?")
}

/// Adds the context to the user's own kubeconfig.
async fn merge(clock: &Clock, file: &Path, text: &str, output: &mut Output) -> anyhow::Result<()> {
    let file = match file.as_os_str().is_empty() {
        true => config::kubeconfig()?,
        false => file.to_owned(),
    };
    let MergeResult { backup, exposed } = kubeconfig::merge_into_file(clock, &file, text).await?;
    output.note(format_args!("context `gantry` is the current one in {}", file.display()));
    if let Some(backup) = backup {
        output.note(format_args!("backup of the original file: {}", backup.display()));
    }
    if let Some(mode) = exposed {
        output.warning(format_args!(
            "{} has mode {mode:o}: others can read the keys in it; run `chmod 600 {}`",
            file.display(),
            file.display()
        ));
    }
    Ok(())
}

/// Prints each finished step and how long it took.
struct Progress {
    clock: Clock,
    begun: Moment,
    last: Moment,
}

impl Progress {
    fn new(clock: &Clock) -> Self {
        let now = clock.moment();
        Self { clock: clock.clone(), begun: now, last: now }
    }

    fn done(&mut self, output: &mut Output, what: &str, detail: &str) {
        let now = self.clock.moment();
        let took = shown(now - self.last);
        self.last = now;
        output.note(format_args!("  {what:<12} {detail:<48} {took:>8}"));
    }

    fn total(&self) -> String {
        shown(self.clock.moment() - self.begun)
    }
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
