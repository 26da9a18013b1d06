//! `gantry apiserver`: the embedded API server alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use gantry_apiserver::{Mode, Plugins};
use gantry_process::clock::Clock;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::shutdown::{self, Signals};
use gantry_process::tasks::{self, Tasks};
use gantry_store::{OnDamage, Recovery};
use tokio_util::sync::CancellationToken;

use super::End;
use crate::config;
use crate::output::Output;
use crate::server::{self, Plan, Running};
use crate::version::VERSION;

/// Run a durable, Kubernetes-compatible API server.
///
/// It keeps its objects in a directory and serves them to kubectl, helm and every client of
/// Kubernetes. Nothing else runs: no nodes, no workload controllers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry apiserver
  gantry apiserver --data-dir /var/lib/gantry --port 6443
  gantry apiserver --ephemeral --port 0 --kubeconfig /tmp/kubeconfig

Then, in another terminal:
  kubectl --kubeconfig ~/.local/share/gantry/apiserver/kubeconfig get namespaces")]
pub(super) struct Arguments {
    /// Where objects and keys are kept.
    ///
    /// Only its owner may read it. By default it is gantry/apiserver in XDG_DATA_HOME.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// Keep objects in memory only; they are gone when the server ends.
    #[arg(long)]
    ephemeral: bool,

    /// The port to listen on; 0 takes any that is free.
    #[arg(long, visible_alias = "secure-port", value_name = "PORT", default_value_t = 6443)]
    port: u16,

    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,

    /// Another name or address that clients reach the server by; may be repeated.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// Where to write the kubeconfig; by default it is in the data directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Who decides about requests, in this order.
    ///
    /// The first that allows one is asked no further. Members of system:masters may do everything.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "RBAC")]
    authorization_mode: Vec<Authorization>,

    /// Plug-ins of admission to switch on, by the names that Kubernetes has for them.
    ///
    /// What this server has is on by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,

    /// Plug-ins of admission to switch off.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,

    /// Open a damaged store: keep what precedes the damage and move the rest aside.
    #[arg(long)]
    repair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Authorization {
    /// By the roles and bindings that are stored.
    #[value(name = "RBAC")]
    Rbac,
    /// Everyone may do everything.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nobody else may do anything.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}

/// How long requests may take to finish when the server is told to stop.
const GRACE: Duration = Duration::from_secs(15);

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ending = runtime.block_on(serve(arguments, output));
    // What still runs was given its time; nothing is written after the store is closed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ending
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let metrics = Metrics::new(&Build { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::Counters::register(&metrics)?;
    let mut tasks =
        Tasks::new(Clock::system(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let scratch = match (&arguments.data_dir, arguments.ephemeral) {
        (None, true) => Some(tempfile::tempdir().context("could not create a directory")?),
        _ => None,
    };
    let (plan, kubeconfig) = plan(arguments, scratch.as_ref())?;
    let ephemeral = plan.ephemeral;
    let Running { store, address, recovery, kubeconfig: text, .. } =
        server::start(plan, &mut tasks, metrics).await?;
    report_recovery(&recovery, output);
    // Last: whoever waits for this file finds a server that has said all it has to say.
    gantry_serve::files::write_private(&kubeconfig, text.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", kubeconfig.display()))?;
    output.result(format_args!("listening on https://{address}"))?;
    output.note(format_args!("kubeconfig: {}", kubeconfig.display()));
    output.note(format_args!("try: kubectl --kubeconfig {} get namespaces", kubeconfig.display()));
    if ephemeral {
        output.note("objects are kept in memory only: they are gone when this process ends");
    }
    watch_store(&store, &mut tasks);
    let ending = shutdown::run(&mut tasks, &mut signals, GRACE).await;
    let closing = store.clone();
    let closed = tokio::task::spawn_blocking(move || closing.close()).await?;
    if let Some(failure) = store.failed() {
        return Err(anyhow::Error::new(failure)
            .context("the store failed; start again to find out what the disk holds"));
    }
    closed.context("could not close the store")?;
    for loss in &ending.lost {
        output.error(format_args!("{loss}"));
    }
    if ending.is_clean() {
        output.note("stopped; start again with the same directory to go on");
        Ok(End::Done)
    } else {
        Ok(End::Refused)
    }
}

/// Ends the process when the store fails: what the disk holds is only known after opening it anew.
fn watch_store(
    store: &gantry_store::Store<gantry_apiserver::stored::Known, gantry_apiserver::stored::Line>,
    tasks: &mut Tasks,
) {
    let store = store.clone();
    tasks.spawn("store", tasks::OnLoss::EndOwner, |stop| async move {
        // Both may be dropped: they only wait.
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = store.ended() => match ended {
                Some(failure) => Err(failure.into()),
                None => Ok(()),
            },
        }
    });
}

/// What the server is to be, and where its kubeconfig goes.
fn plan(
    arguments: Arguments,
    scratch: Option<&tempfile::TempDir>,
) -> anyhow::Result<(Plan, PathBuf)> {
    let Arguments {
        data_dir,
        ephemeral,
        port,
        bind_address,
        names,
        kubeconfig,
        authorization_mode,
        enable_admission_plugins,
        disable_admission_plugins,
        repair,
    } = arguments;
    let plugins = Plugins::choose(&enable_admission_plugins, &disable_admission_plugins)?;
    let directory = match (data_dir, scratch) {
        (Some(directory), _) => directory,
        (None, Some(scratch)) => scratch.path().to_owned(),
        (None, None) => config::data_home()?.join("gantry/apiserver"),
    };
    let mut names = names;
    if !bind_address.is_unspecified() && !bind_address.is_loopback() {
        names.push(bind_address.to_string());
    }
    let kubeconfig = kubeconfig.unwrap_or_else(|| directory.join("kubeconfig"));
    let plan = Plan {
        directory,
        ephemeral,
        address: SocketAddr::new(bind_address, port),
        names,
        damage: if repair { OnDamage::Repair } else { OnDamage::Refuse },
        authorization: modes(&authorization_mode)?,
        plugins,
        version: VERSION.version,
    };
    Ok((plan, kubeconfig))
}

/// The ways to decide about requests; each may be named once.
fn modes(named: &[Authorization]) -> anyhow::Result<Vec<Mode>> {
    let mut modes = Vec::new();
    for mode in named {
        let mode = match mode {
            Authorization::Rbac => Mode::Rbac,
            Authorization::AlwaysAllow => Mode::AlwaysAllow,
            Authorization::AlwaysDeny => Mode::AlwaysDeny,
        };
        anyhow::ensure!(!modes.contains(&mode), "--authorization-mode names {mode} more than once");
        modes.push(mode);
    }
    Ok(modes)
}

fn report_recovery(recovery: &Recovery, output: &mut Output) {
    let Recovery { revision, checkpoint, changes, segments: _, cut, repaired } = recovery;
    tracing::info!(
        revision = revision.get(),
        checkpoint = checkpoint.map(|it| it.get()),
        changes,
        "opened the store"
    );
    if let Some(cut) = cut {
        output.note(format_args!(
            "the last writes before a crash were unfinished and are dropped; none of them had been \
             acknowledged ({} from byte {})",
            cut.path.display(),
            cut.offset
        ));
    }
    if let Some(repaired) = repaired {
        output.warning(format_args!("repaired: {}", repaired.damage));
        for path in &repaired.aside {
            output.warning(format_args!("moved aside: {}", path.display()));
        }
        let resumed = repaired.resumed.get();
        output.warning(format_args!("the store goes on from revision {resumed}"));
    }
}
