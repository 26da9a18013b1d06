//! Wires the operator: the checks of the start, the servers for probes and metrics, the controllers.

pub mod cluster;
pub mod controllers;
pub mod definitions;
pub mod reload;
pub mod scaling;
pub(crate) mod stock;
pub mod webhook;

use std::time::Duration;

use anyhow::Context as _;
use gantry_api::kind::Kind;
use gantry_api::object::KINDS;
use gantry_process::health::{self, BindAddress, Health, Probe};
use gantry_process::metrics::Metrics;
use gantry_process::shutdown::{self, Ending, Signals};
use gantry_process::tasks::Tasks;

use self::controllers::Standing;
use self::definitions::{Missing, missing_definitions};
use self::reload::{Counts, Follow};
use crate::config::operator::{Checked, Controller, Operator};
use crate::version::VERSION;

/// The exit code when definitions are missing: installing them is what helps, not a restart.
pub const MISSING_DEFINITIONS: u8 = 3;
/// The exit code when the lease was lost: a restart stands in line again.
pub const LOST_LEADERSHIP: u8 = 4;

/// How long everything may take to finish when the operator is told to stop: less than the ten
/// seconds its pod is given.
const GRACE: Duration = Duration::from_secs(8);

/// The controllers that can be switched by name.
pub const CONTROLLERS: &[Controller] = controllers::ALL;

/// A part of the operator that is switched as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Subsystem {
    /// What logs call it.
    pub name: &'static str,
    /// Whether it is to run.
    pub enabled: fn(&Operator) -> bool,
    /// The kinds it cannot do without, by the names of their definitions.
    pub definitions: &'static [&'static str],
    /// What does its work.
    pub controllers: &'static [Controller],
}

/// The parts, each with the kinds it works on.
pub const SUBSYSTEMS: &[Subsystem] = &[
    Subsystem {
        name: "queue",
        enabled: |settings| settings.mcad_enabled,
        definitions: &["appwrappers.workload.codeflare.dev"],
        controllers: controllers::QUEUE,
    },
    Subsystem {
        name: "quota",
        enabled: |settings| settings.mcad_enabled && settings.mcad.quota_enabled,
        definitions: &["quotasubtrees.quota.codeflare.dev"],
        controllers: controllers::QUOTA,
    },
    Subsystem {
        name: "scaling",
        enabled: |settings| settings.instascale.enabled,
        definitions: &["appwrappers.workload.codeflare.dev"],
        controllers: controllers::SCALING,
    },
    Subsystem {
        name: "simulation",
        enabled: |settings| settings.simulation.enabled,
        definitions: &[],
        controllers: controllers::SIMULATION,
    },
    Subsystem {
        name: "devices",
        enabled: |settings| settings.devices.enabled,
        definitions: &[
            "devicedrivers.devmgmtproto.k8s.io",
            "deviceclasses.devmgmtproto.k8s.io",
            "deviceclaims.devmgmtproto.k8s.io",
            "deviceprivilegedclaims.devmgmtproto.k8s.io",
            "devicepools.devmgmtproto.k8s.io",
            "deviceclaimtemplates.devmgmtproto.k8s.io",
            "poddevices.devmgmtproto.k8s.io",
        ],
        controllers: controllers::DEVICES,
    },
];

/// The kinds that the parts that are switched on cannot do without, each once.
#[must_use]
pub fn needed_kinds(settings: &Operator) -> Vec<&'static Kind> {
    let enabled = || SUBSYSTEMS.iter().filter(|part| (part.enabled)(settings));
    let needed = |name: &str| enabled().any(|part| part.definitions.contains(&name));
    KINDS.iter().filter(|kind| needed(&kind.crd_name())).collect()
}

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
    let part = |part: &Subsystem| format!("{} {}", part.name, VERSION.version);
    let parts: Vec<_> = SUBSYSTEMS.iter().map(part).collect();
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
    let standing = Standing::default();
    let ready = standing.clone();
    shell.health.add(Probe::Ready, "controllers", move || ready.ready())?;
    listen(settings, &mut shell, &standing).await?;
    let client = cluster::client(config)?;
    let clock = shell.tasks.clock().clone();
    let kinds = needed_kinds(settings);
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
    let scaling = tokio::select! {
        biased;
        // Either may be dropped: one only reads, the other only waits.
        () = std::future::ready(()), if shell.tasks.token().is_cancelled() => None,
        prepared = scaling::prepare(&start, &clock) => prepared?,
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
        started = webhook::start(&start, &mut shell, standing.leaves.clone()) => started?,
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before the start was done");
            token.cancel();
        }
    }
    if !shell.tasks.token().is_cancelled() {
        controllers::start(&start, &mut shell, &standing, scaling)?;
        let Start { checked, follow, .. } = start;
        reload::start(follow, &checked, counts, &mut shell, &standing);
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

/// Answers probes and serves metrics, at one address if both are told the same.
async fn listen(settings: &Operator, shell: &mut Shell, standing: &Standing) -> anyhow::Result<()> {
    let (probes, metrics) = (settings.health.bind_address, settings.metrics.bind_address);
    let mut probe_pages = shell.health.router(&settings.health.endpoints());
    if settings.health.answers("status") {
        tracing::warn!("a probe is answered at /status: the page of that name is not shown");
    } else {
        probe_pages = probe_pages.merge(standing.router());
    }
    let metric_pages = health::metrics_router(shell.metrics.clone());
    let shared = probes == metrics && !matches!(probes, BindAddress::Disabled);
    let serving = match shared {
        true => vec![("probes and metrics", probes, probe_pages.merge(metric_pages))],
        false => vec![("probes", probes, probe_pages), ("metrics", metrics, metric_pages)],
    };
    for (name, address, pages) in serving {
        health::serve(&mut shell.tasks, name, &address, pages)
            .await
            .with_context(|| format!("could not serve {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::operator::settle;

    fn needed(text: &str) -> Vec<&'static str> {
        let (layer, report) = document::read(text, "f");
        let checked = settle([&layer], report, CONTROLLERS).unwrap();
        needed_kinds(&checked.settings).iter().map(|kind| kind.plural).collect()
    }

    #[test]
    fn only_what_is_switched_on_needs_its_kinds() {
        let table = [
            ("the queue is on", "", vec!["appwrappers"]),
            ("quotas", "mcad: {quotaEnabled: true}", vec!["quotasubtrees", "appwrappers"]),
            ("nothing", "mcadEnabled: false", vec![]),
            ("no quotas without a queue", "mcadEnabled: false\nmcad: {quotaEnabled: true}", vec![]),
            ("scaling", "mcadEnabled: false\ninstascale: {enabled: true}", vec!["appwrappers"]),
            ("nodes", "mcadEnabled: false\nsimulation: {enabled: true}", vec![]),
            (
                "devices",
                "mcadEnabled: false\ndevices: {enabled: true}",
                vec![
                    "deviceclaims",
                    "deviceclaimtemplates",
                    "deviceclasses",
                    "devicedrivers",
                    "devicepools",
                    "deviceprivilegedclaims",
                    "poddevices",
                ],
            ),
        ];
        for (why, text, expected) in table {
            assert_eq!(needed(text), expected, "{why}");
        }
    }

    #[test]
    fn every_controller_belongs_to_one_part() {
        let all: Vec<_> = SUBSYSTEMS.iter().flat_map(|part| part.controllers).collect();
        assert_eq!(all, CONTROLLERS.iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_definition_is_one_of_ours() {
        for part in SUBSYSTEMS {
            for name in part.definitions {
                assert!(KINDS.iter().any(|kind| kind.crd_name() == *name), "{name}");
            }
        }
    }
}
