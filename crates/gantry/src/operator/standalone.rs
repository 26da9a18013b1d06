//! Runs one controller of the original project as a process of its own: with its ports, without a
//! configuration file and without leader election.

use std::time::Duration;

use anyhow::Context as _;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use gantry_api::kind::Kind;
use gantry_controller::discovery::{self, DiscoveryError, ResourceList};
use gantry_controller::read::ReadBounds;
use gantry_controller::transport::to_cluster;
use gantry_controller::{ControllerManager, ControllerMetrics, ManagerHandle, ManagerOptions};
use gantry_process::clock::Clock;
use gantry_process::health::{self, BindAddress, Endpoints, PeerAddress, Probe};
use gantry_process::shutdown::{self, ShutdownResult, Signals};
use gantry_process::tasks::OnLoss;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use gantry_subsystem::{Host, Setup, SubsystemComponents};
use jiff::Timestamp;

use super::ProcessContext;
use super::controllers::OperatorClients;
use crate::status_page::{ConfigurationStatus, SettingsScope, StatusPage, caches_filled};
use crate::subsystems;

/// The exit code for kinds that the cluster does not define, as in the original's specification.
pub const EXIT_MISSING_KINDS: u8 = 78;

/// How long everything may take to finish when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
/// How long writes in progress may take then.
const SHUTDOWN_WRITE_TIMEOUT: Duration = Duration::from_secs(4);
/// The limits of one discovery request, and the delay before it is repeated when the server did not
/// answer.
const DISCOVERY_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 4 << 20 };
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How often discovery is repeated before the process gives up, so that it is restarted.
const MAX_DISCOVERY_ATTEMPTS: u32 = 30;

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
    pub kinds: Vec<&'static Kind>,
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
        missing = missing_kinds(&client, &clock, &options.kinds) => missing?,
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            shell.tasks.token().cancel();
            let end = shutdown::run(&mut shell.tasks, signals, SHUTDOWN_TIMEOUT).await;
            return Ok(StandaloneExit::Stopped(end));
        }
    };
    if let Some(missing) = missing {
        return Ok(StandaloneExit::MissingKinds(missing));
    }
    let handle = start_controllers(&options, &mut shell).await?;
    serve(&options, &mut shell, &handle).await?;
    let end = shutdown::run(&mut shell.tasks, signals, SHUTDOWN_TIMEOUT).await;
    Ok(StandaloneExit::Stopped(end))
}

async fn start_controllers(
    options: &StandaloneOptions,
    shell: &mut ProcessContext,
) -> anyhow::Result<ManagerHandle> {
    let clock = shell.tasks.clock().clone();
    let clients = OperatorClients::unfenced(&options.config)?;
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
        fastrand::Rng::new(),
        to_cluster(options.config.clone()).context("could not create a client for reads")?,
        registrations,
        ManagerOptions {
            external: outside,
            filters,
            shutdown_grace: SHUTDOWN_WRITE_TIMEOUT,
            ..ManagerOptions::default()
        },
        ControllerMetrics::register(&shell.metrics)?,
    )?;
    let handle = manager.handle();
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

/// Returns what the cluster does not serve of these kinds, as one line. Discovery is open to every
/// user, so that no right on definitions is needed. A server that does not answer is asked again.
///
/// # Errors
/// It never answered.
async fn missing_kinds(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[&'static Kind],
) -> anyhow::Result<Option<String>> {
    let Some(first) = kinds.first() else { return Ok(None) };
    let version = format!("{}/{}", first.group, first.version);
    let mut attempt = 0;
    let list = loop {
        attempt += 1;
        match discovery::list(client, clock, &version, DISCOVERY_BOUNDS).await {
            Ok(list) => break list,
            Err(error) if attempt >= MAX_DISCOVERY_ATTEMPTS || is_final(&error) => {
                return Err(error).with_context(|| format!("could not discover {version}"));
            }
            Err(error) => {
                tracing::warn!(%error, version, "could not discover the kinds; asks again");
                clock.sleep(DISCOVERY_RETRY_DELAY).await;
            }
        }
    };
    Ok(missing_message(&version, kinds, list.as_ref()))
}

/// Whether asking again cannot help.
fn is_final(error: &DiscoveryError) -> bool {
    match error {
        DiscoveryError::Refused { code, .. } => code.is_client_error(),
        DiscoveryError::NoResponse(_) | DiscoveryError::Malformed(_) => false,
        // What else there is are mistakes in a path.
        DiscoveryError::InvalidApiVersion(_) => true,
    }
}

fn missing_message(
    version: &str,
    kinds: &[&'static Kind],
    list: Option<&ResourceList>,
) -> Option<String> {
    let is_served = |name: &str| list.is_some_and(|it| it.resource_called(name).is_some());
    let missing = kinds.iter().filter(|it| !is_served(it.plural));
    let missing: Vec<String> = missing.map(|it| it.crd_name()).collect();
    if missing.is_empty() {
        return None;
    }
    let what = match list {
        Some(_) => format!("the cluster does not serve these kinds in {version}"),
        None => format!("the cluster does not serve {version}"),
    };
    Some(format!(
        "{what}: {}; ask an administrator to install them with: gantry crds | kubectl apply \
         --server-side -f -",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use gantry_api::object::KINDS;
    use serde_json::json;

    use super::*;

    #[test]
    fn as_41_kinds_that_are_not_served_are_named_with_the_remedy() {
        let named = |plural: &str| KINDS.iter().find(|it| it.plural == plural).unwrap();
        let kinds = [named("inferenceserverconfigs"), named("launcherconfigs")];
        let list = |names: &[&str]| {
            let resources: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "kind": name, "namespaced": true, "verbs": []}))
                .collect();
            let document = json!({"resources": resources});
            ResourceList::read("fma.llm-d.ai/v1alpha1", &document).unwrap()
        };
        let version = "fma.llm-d.ai/v1alpha1";
        let both = list(&["inferenceserverconfigs", "launcherconfigs"]);
        assert_eq!(missing_message(version, &kinds, Some(&both)), None);
        let one = missing_message(version, &kinds, Some(&list(&["launcherconfigs"]))).unwrap();
        assert!(
            one.contains(
                "these kinds in fma.llm-d.ai/v1alpha1: inferenceserverconfigs.fma.llm-d.ai;"
            ),
            "{one}"
        );
        let none = missing_message(version, &kinds, None).unwrap();
        assert!(none.contains("does not serve fma.llm-d.ai/v1alpha1: inference"), "{none}");
        assert!(none.ends_with("gantry crds | kubectl apply --server-side -f -"), "{none}");
    }
}
