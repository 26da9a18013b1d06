//! Starts the operator: its checks, the servers for probes and metrics, the controllers.

pub mod cluster;
pub mod controllers;
pub mod definitions;
mod metrics;
mod publish;
pub mod reload;
pub mod standalone;
pub mod webhook;

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::health::{self, BindAddress, Health, Probe};
use gantry_process::metrics::Metrics;
use gantry_process::shutdown::{self, ShutdownResult, Signals};
use gantry_process::tasks::Tasks;
use gantry_serve::counters::Counters;
use gantry_subsystem::Feature;

use self::controllers::OperatorStatus;
use self::definitions::{MissingDefinition, missing_definitions};
use self::reload::{ConfigWatch, ReloadMetrics};
use crate::config::operator::CheckedConfig;
use crate::subsystems;
use crate::version::VERSION;

/// The exit code for missing definitions: they must be installed, a restart does not help.
pub const EXIT_MISSING_DEFINITIONS: u8 = 3;
/// The exit code for a lost lease: after a restart the process is a candidate again.
pub const EXIT_LOST_LEADERSHIP: u8 = 4;

/// How long everything may take to finish when the operator stops: less than the ten seconds of its
/// pod's grace period.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);

/// The options of the operator's start.
pub struct StartOptions {
    /// The configuration.
    pub checked: CheckedConfig,
    /// The client configuration, with the operator's permissions.
    pub config: kube::Config,
    /// The namespace of the lease; none without leader election.
    pub lease_namespace: Option<String>,
    /// How the configuration is watched.
    pub config_watch: ConfigWatch,
}

impl std::fmt::Debug for StartOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client configuration contains secrets.
        let Self { checked, config: _, lease_namespace, config_watch: follow } = self;
        let mut fields = f.debug_struct("Start");
        fields.field("checked", checked).field("lease_namespace", lease_namespace);
        fields.field("follow", follow).finish_non_exhaustive()
    }
}

/// The context that all components of the process share.
#[derive(Debug)]
pub struct ProcessContext {
    /// The owner of all tasks.
    pub tasks: Tasks,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The liveness and readiness checks.
    pub health: Health,
}

/// How the operator ended.
#[derive(Debug)]
pub enum OperatorExit {
    /// It was stopped, or lost something that it needs.
    Stopped(ShutdownResult),
    /// It did not start: the cluster lacks these definitions.
    MissingDefinitions(Vec<MissingDefinition>),
}

/// Logs what starts, before anything can fail.
pub fn announce() {
    // All components have one version: they are one binary.
    let part = |part: &Feature| format!("{} {}", part.name, VERSION.version);
    let parts: Vec<_> = subsystems::features().map(part).collect();
    tracing::info!(
        version = VERSION.version,
        commit = VERSION.commit,
        date = VERSION.commit_date,
        subsystems = parts.join(", "),
        "starting the operator"
    );
}

/// Runs the operator until it is stopped.
///
/// # Errors
/// An address is in use, or the API server did not answer the requests of the start.
pub async fn run(
    start: StartOptions,
    mut shell: ProcessContext,
    signals: &mut Signals,
) -> anyhow::Result<OperatorExit> {
    let StartOptions { checked, config, config_watch: follow, .. } = &start;
    let counts = ReloadMetrics::register(&shell.metrics)?;
    report(checked, &counts);
    let settings = &checked.settings;
    reload::apply_verbosity(follow, settings);
    // Before probes are served: an operator is not ready until everything has been checked.
    let standing = OperatorStatus::new(shell.tasks.clock());
    let ready = standing.clone();
    shell.health.add(Probe::Ready, "controllers", move || ready.ready())?;
    let client = cluster::client(config)?;
    let served = Counters::register(&shell.metrics)?;
    listen(&start, &client, &served, &mut shell, &standing).await?;
    let clock = shell.tasks.clock().clone();
    let kinds = subsystems::needed_kinds(&checked.values);
    let missing = tokio::select! {
        // Either future may be dropped: one only reads, the other only waits.
        found = missing_definitions(&client, &clock, &kinds) => found?,
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            shell.tasks.token().cancel();
            Vec::new()
        }
    };
    if !missing.is_empty() {
        return Ok(OperatorExit::MissingDefinitions(missing));
    }
    let prepared = tokio::select! {
        biased;
        // Either future may be dropped: one only reads, the other only waits.
        () = std::future::ready(()), if shell.tasks.token().is_cancelled() => None,
        prepared = controllers::prepare(&start, &mut shell, &standing) => Some(prepared?),
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            shell.tasks.token().cancel();
            None
        }
    };
    let token = shell.tasks.token().clone();
    tokio::select! {
        biased;
        // Each future may be dropped: a partial write is found by the next start.
        () = std::future::ready(()), if token.is_cancelled() => {}
        started = webhook::start(&start, served, &mut shell, standing.leaves.clone()) => started?,
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            token.cancel();
        }
    }
    if let Some(prepared) = prepared.filter(|_| !shell.tasks.token().is_cancelled()) {
        controllers::start(&start, &mut shell, &standing, prepared)?;
        let published = publish::start(&start, client, &mut shell, &standing);
        let StartOptions { checked, config_watch: follow, .. } = start;
        reload::start(follow, &checked, counts, published, &mut shell, &standing);
    }
    Ok(OperatorExit::Stopped(shutdown::run(&mut shell.tasks, signals, SHUTDOWN_TIMEOUT).await))
}

/// Logs warnings about the configuration, and counts unknown keys.
fn report(checked: &CheckedConfig, counts: &ReloadMetrics) {
    for warning in &checked.warnings {
        tracing::warn!(key = warning.key, "configuration: {warning}");
    }
    counts.count_unknown_keys(&checked.unknown);
}

/// Serves probes and metrics: metrics with TLS and tokens at an address of their own, or without on
/// loopback, where both may share one address.
async fn listen(
    start: &StartOptions,
    client: &kube::Client,
    served: &Counters,
    shell: &mut ProcessContext,
    standing: &OperatorStatus,
) -> anyhow::Result<()> {
    let settings = &start.checked.settings;
    let (probes, scraped) = (settings.health.bind_address, settings.metrics.bind_address);
    let mut probe_pages = shell.health.router(&settings.health.endpoints());
    if settings.health.serves_probe("status") {
        tracing::warn!("a probe is served at /status: the status page is not served");
    } else {
        probe_pages = probe_pages.merge(standing.router());
    }
    let secure = settings.metrics.secure_serving;
    let metric_pages = || health::metrics_router(shell.metrics.clone());
    let shared = !secure && probes == scraped && !matches!(probes, BindAddress::Disabled);
    let serving = match (shared, secure) {
        (true, _) => vec![("probes and metrics", probes, probe_pages.merge(metric_pages()))],
        (false, false) => {
            vec![("probes", probes, probe_pages), ("metrics", scraped, metric_pages())]
        }
        (false, true) => vec![("probes", probes, probe_pages)],
    };
    for (name, address, pages) in serving {
        health::serve(&mut shell.tasks, name, &address, pages)
            .await
            .with_context(|| format!("could not serve {name}"))?;
    }
    if secure {
        metrics::serve(start, client.clone(), served.clone(), standing, shell).await?;
    }
    Ok(())
}
