//! Runs one controller of the original project as a process of its own: with its ports, and without
//! a configuration file.

mod kinds;

use std::time::Duration;

use anyhow::Context as _;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use gantry_controller::transport::{WriteGate, to_cluster};
use gantry_controller::{ControllerManager, ControllerMetrics, ManagerHandle, ManagerOptions};
use gantry_process::health::{self, BindAddress, Endpoints, PeerAddress, Probe};
use gantry_process::shutdown::{self, ShutdownResult, Signals};
use gantry_process::tasks::OnLoss;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use gantry_subsystem::{Host, Setup, SubsystemComponents};
use jiff::Timestamp;

use super::ProcessContext;
use super::controllers::{OperatorClients, cause_of_loss, lease_settings, watch_lease};
use crate::config::operator::LeaderElection;
use crate::status_page::{ConfigurationStatus, SettingsScope, StatusPage, caches_filled};
use crate::subsystems;

use self::kinds::MissingKinds;
pub use self::kinds::NeededKind;

/// The exit code for kinds that the cluster does not define, as in the original's specification.
pub const EXIT_MISSING_KINDS: u8 = 78;

/// How long everything may take to finish when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
/// How long writes in progress may take then.
const SHUTDOWN_WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// What runs.
#[derive(Debug)]
pub struct StandaloneOptions {
    /// The controllers, by name.
    pub controllers: Vec<&'static str>,
    /// The settings of the subsystems.
    pub values: Values,
    /// The client configuration.
    pub config: kube::Config,
    /// The namespace of everything but nodes.
    pub namespace: String,
    /// The kinds that must be defined.
    pub kinds: Vec<NeededKind>,
    /// Whether replicas compete for a lease, and for which.
    pub election: LeaderElection,
    /// The port of metrics and probes.
    pub metrics_port: u16,
    /// The port of the page with the state of the process.
    pub debug_port: u16,
}

/// How the process ended.
#[derive(Debug)]
pub enum StandaloneExit {
    /// It was stopped, or lost something that it needs.
    Stopped(ShutdownResult),
    /// The cluster does not define what it needs; the text says what.
    MissingKinds(String),
}

/// Runs until it is stopped.
///
/// # Errors
/// A port is in use, or the API server did not answer.
pub async fn run(
    options: StandaloneOptions,
    mut shell: ProcessContext,
    signals: &mut Signals,
) -> anyhow::Result<StandaloneExit> {
    let clock = shell.tasks.clock().clone();
    let client = to_cluster(options.config.clone()).context("could not create a client")?;
    let missing = tokio::select! {
        // Either may be dropped: one only reads, the other only waits.
        missing = kinds::missing(&client, &clock, &options.kinds) => missing?,
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            shell.tasks.token().cancel();
            let end = shutdown::run(&mut shell.tasks, signals, SHUTDOWN_TIMEOUT).await;
            return Ok(StandaloneExit::Stopped(end));
        }
    };
    if let Some(missing) = missing {
        return Ok(StandaloneExit::MissingKinds(missing.to_string()));
    }
    let handle = start_controllers(&options, &mut shell).await?;
    kinds::watch(&mut shell.tasks, &handle, client, options.kinds.clone());
    serve(&options, &mut shell, &handle).await?;
    let end = shutdown::run(&mut shell.tasks, signals, SHUTDOWN_TIMEOUT).await;
    Ok(match cause_of_loss::<MissingKinds>(&end.lost) {
        Some(missing) => StandaloneExit::MissingKinds(missing.to_string()),
        None => StandaloneExit::Stopped(end),
    })
}

async fn start_controllers(
    options: &StandaloneOptions,
    shell: &mut ProcessContext,
) -> anyhow::Result<ManagerHandle> {
    let clock = shell.tasks.clock().clone();
    let (gate, mut jitter) = (WriteGate::default(), fastrand::Rng::new());
    let election = Some(&options.election).filter(|it| it.leader_elect);
    let clients = OperatorClients::new(&options.config, election.map(|_| &gate))?;
    let lease = match election {
        None => None,
        Some(election) => {
            let namespace = election.resource_namespace.as_ref().unwrap_or(&options.namespace);
            Some(lease_settings(&options.config, election, namespace, &mut jitter)?)
        }
    };
    let setup = Setup {
        values: &options.values,
        host: Host::Cluster,
        namespace: &|| Ok(options.namespace.clone()),
        clock: &clock,
        metrics: &shell.metrics,
        clients: &clients,
        is_controller_enabled: &|name: &str| options.controllers.contains(&name),
        extensions: &HostExtensions::default(),
    };
    let components = subsystems::start(setup).await?;
    let SubsystemComponents { registrations, outside, filters, background, .. } = components;
    let manager = ControllerManager::new(
        clock,
        jitter,
        to_cluster(options.config.clone()).context("could not create a client for reads")?,
        registrations,
        ManagerOptions {
            external: outside,
            filters,
            shutdown_grace: SHUTDOWN_WRITE_TIMEOUT,
            lease,
            ..ManagerOptions::default()
        },
        ControllerMetrics::register(&shell.metrics)?,
    )?;
    let handle = manager.handle();
    gate.set_permit(handle.permit().clone());
    if election.is_some() {
        watch_lease(shell, &handle)?;
    }
    background.into_iter().for_each(|begin| begin(&mut shell.tasks, &handle));
    let tasks = shell.tasks.child();
    shell.tasks.spawn("controllers", OnLoss::EndOwner, move |_| async move {
        Ok(manager.run(tasks).await?)
    });
    Ok(handle)
}

/// Serves metrics and probes to everyone, as the original does, and the state to this pod only,
/// because it names objects.
async fn serve(
    options: &StandaloneOptions,
    shell: &mut ProcessContext,
    handle: &ManagerHandle,
) -> anyhow::Result<()> {
    let ready = handle.clone();
    shell.health.add(Probe::Ready, "controllers", move || caches_filled(&ready))?;
    let pages = health::metrics_router(shell.metrics.clone())
        .merge(shell.health.router(&Endpoints::default()));
    listen(shell, "metrics", options.metrics_port, pages).await?;
    let (clock, handle) = (shell.tasks.clock().clone(), handle.clone());
    let (started, values) = (clock.now(), options.values.clone());
    let state = async move |Extension(peer): Extension<PeerAddress>| {
        state_response(peer, &handle, &values, (started, clock.now()))
    };
    let pages = Router::new().route("/debug/state", get(state));
    listen(shell, "debug", options.debug_port, pages).await
}

async fn listen(
    shell: &mut ProcessContext,
    name: &str,
    port: u16,
    pages: Router,
) -> anyhow::Result<()> {
    let address: BindAddress = format!(":{port}").parse().context("not an address")?;
    let served = health::serve(&mut shell.tasks, name, &address, pages).await;
    served.map(|_| ()).with_context(|| format!("could not serve {name} on port {port}"))
}

fn state_response(
    peer: PeerAddress,
    handle: &ManagerHandle,
    values: &Values,
    (started, now): (Timestamp, Timestamp),
) -> Response {
    if !peer.is_local() {
        let text = "served only inside the pod, as with kubectl port-forward\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let configuration = ConfigurationStatus {
        source: "command line".to_owned(),
        values: Some(values.clone()),
        scope: SettingsScope::Subsystems,
        ..ConfigurationStatus::default()
    };
    let ready = caches_filled(handle);
    let page =
        StatusPage { started, now, ready, handle: Some(handle), configuration: &configuration };
    Json(page.to_json()).into_response()
}
