//! Wires the operator: the checks of the start, the servers for probes and metrics, the controllers.

pub mod cluster;
pub mod controllers;
pub mod definitions;
mod metrics;
mod publish;
pub mod reload;
pub mod webhook;

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::health::{self, BindAddress, Health, Probe};
use gantry_process::metrics::Metrics;
use gantry_process::shutdown::{self, Ending, Signals};
use gantry_process::tasks::Tasks;
use gantry_serve::counters::Counters;
use gantry_subsystem::Feature;

use self::controllers::Standing;
use self::definitions::{Missing, missing_definitions};
use self::reload::{Counts, Follow};
use crate::config::operator::Checked;
use crate::subsystems;
use crate::version::VERSION;

/// The exit code when definitions are missing: installing them is what helps, not a restart.
pub const MISSING_DEFINITIONS: u8 = 3;
/// The exit code when the lease was lost: a restart stands in line again.
pub const LOST_LEADERSHIP: u8 = 4;

/// How long everything may take to finish when the operator is told to stop: less than the ten
/// seconds its pod is given.
const GRACE: Duration = Duration::from_secs(8);

/// What the operator is to do, and where.
pub struct Start {
    /// The configuration.
    pub checked: Checked,
    /// How the API server is reached, with the operator's rights.
    pub config: kube::Config,
    /// The namespace of the lease; none if there is no election.
    pub lease_namespace: Option<String>,
    /// How the configuration is followed.
    pub follow: Follow,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What the configuration of a client holds is secret.
        let Self { checked, config: _, lease_namespace, follow } = self;
        let mut fields = f.debug_struct("Start");
        fields.field("checked", checked).field("lease_namespace", lease_namespace);
        fields.field("follow", follow).finish_non_exhaustive()
    }
}

/// What the operator stands on.
#[derive(Debug)]
pub struct Shell {
    /// The owner of everything that runs.
    pub tasks: Tasks,
    /// What is counted.
    pub metrics: Metrics,
    /// Who is alive and ready.
    pub health: Health,
}

/// How the operator ended.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to, or lost something that it needs.
    Stopped(Ending),
    /// It did not begin: the cluster lacks these.
    Missing(Vec<Missing>),
}

/// Says what starts, before anything can go wrong.
pub fn announce() {
    // One version for all of them: they are one binary.
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

/// Runs the operator until it is told to stop.
///
/// # Errors
/// An address is taken, or the API server did not answer the questions of the start.
pub async fn run(start: Start, mut shell: Shell, signals: &mut Signals) -> anyhow::Result<Ended> {
    let Start { checked, config, follow, .. } = &start;
    let counts = Counts::register(&shell.metrics)?;
    report(checked, &counts);
    let settings = &checked.settings;
    reload::apply(follow, settings);
    // Before anybody can ask: an operator is not ready because nothing has been checked yet.
    let standing = Standing::new(shell.tasks.clock());
    let ready = standing.clone();
    shell.health.add(Probe::Ready, "controllers", move || ready.ready())?;
    let client = cluster::client(config)?;
    let served = Counters::register(&shell.metrics)?;
    listen(&start, &client, &served, &mut shell, &standing).await?;
    let clock = shell.tasks.clock().clone();
    let kinds = subsystems::needed_kinds(&checked.values);
    let missing = tokio::select! {
        // Either may be dropped: one only reads, the other only waits.
        found = missing_definitions(&client, &clock, &kinds) => found?,
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before the start was done");
            shell.tasks.token().cancel();
            Vec::new()
        }
    };
    if !missing.is_empty() {
        return Ok(Ended::Missing(missing));
    }
    let prepared = tokio::select! {
        biased;
        // Either may be dropped: one only reads, the other only waits.
        () = std::future::ready(()), if shell.tasks.token().is_cancelled() => None,
        prepared = controllers::prepare(&start, &shell, &standing) => Some(prepared?),
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before the start was done");
            shell.tasks.token().cancel();
            None
        }
    };
    let token = shell.tasks.token().clone();
    tokio::select! {
        biased;
        // Each may be dropped: what is half written is found by the next start.
        () = std::future::ready(()), if token.is_cancelled() => {}
        started = webhook::start(&start, served, &mut shell, standing.leaves.clone()) => started?,
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before the start was done");
            token.cancel();
        }
    }
    if let Some(prepared) = prepared.filter(|_| !shell.tasks.token().is_cancelled()) {
        controllers::start(&start, &mut shell, &standing, prepared)?;
        let published = publish::start(&start, client, &mut shell, &standing);
        let Start { checked, follow, .. } = start;
        reload::start(follow, &checked, counts, published, &mut shell, &standing);
    }
    Ok(Ended::Stopped(shutdown::run(&mut shell.tasks, signals, GRACE).await))
}

/// Logs what may not be meant, and counts the keys nobody knows.
fn report(checked: &Checked, counts: &Counts) {
    for warning in &checked.warnings {
        tracing::warn!(key = warning.key, "configuration: {warning}");
    }
    counts.unknown(&checked.unknown);
}

/// Answers probes, and serves metrics: with TLS and tokens at an address of their own, or without on
/// loopback, where both may have the same.
async fn listen(
    start: &Start,
    client: &kube::Client,
    served: &Counters,
    shell: &mut Shell,
    standing: &Standing,
) -> anyhow::Result<()> {
    let settings = &start.checked.settings;
    let (probes, scraped) = (settings.health.bind_address, settings.metrics.bind_address);
    let mut probe_pages = shell.health.router(&settings.health.endpoints());
    if settings.health.answers("status") {
        tracing::warn!("a probe is answered at /status: the page of that name is not shown");
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
