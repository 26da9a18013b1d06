//! Starts the enabled controllers, and reports their status.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use gantry_controller::lease::{self, LeaseLost};
use gantry_controller::rate::Rate;
use gantry_controller::transport::{WriteGate, to_cluster, to_cluster_with_gate};
use gantry_controller::{ControllerMetrics, ManagerHandle, ManagerOptions, Permit};
use gantry_process::clock::Clock;
use gantry_process::health::{PeerAddress, Probe};
use gantry_process::tasks::{LostTask, OnLoss, Tasks};
use gantry_queue::effects::admission::LeafAdmission;
use gantry_sim::effects::{PodRuntime, over_network};
use gantry_sim::kubelet::Profile;
use gantry_sim::logs::Logs;
use gantry_sim::pod_config::ApiServer;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Clients, HostExtensions, Reconfigure};
use gantry_subsystem::{Host, Identity, Setup, StartError, SubsystemComponents};
use jiff::Timestamp;
use serde_json::Value;

use super::reload::SharedConfigStatus;
use super::{ProcessContext, StartOptions};
use crate::config::operator::{LeaderElection, OperatorSettings};
use crate::model_programs;
use crate::status_page::{StatusPage, caches_filled};
use crate::subsystems::{self, CONTROLLERS};

/// How long writes in progress may take when the operator stops. The rest of its time is for the
/// last events and for releasing the lease.
const SHUTDOWN_WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// The status of the controllers, for probes and users. Clones share it.
#[derive(Clone)]
pub(super) struct OperatorStatus {
    clock: Clock,
    started: Timestamp,
    controllers: Arc<OnceLock<Result<ManagerHandle, String>>>,
    /// Applies changed settings to the subsystems.
    reconfigure: Arc<OnceLock<Vec<Reconfigure>>>,
    /// Answers admission reviews about the quota tree leaves of AppWrappers.
    pub(super) leaves: LeafAdmission,
    /// The status of the configuration.
    pub(super) configuration: SharedConfigStatus,
}

impl std::fmt::Debug for OperatorStatus {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Standing({:?})", self.ready())
    }
}

impl OperatorStatus {
    /// Creates the status of an operator that starts now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            started: clock.now(),
            controllers: Arc::default(),
            reconfigure: Arc::default(),
            leaves: LeafAdmission::default(),
            configuration: SharedConfigStatus::default(),
        }
    }

    /// Returns whether the caches of the controllers have synced. A replica that waits for the
    /// lease is as ready as the leader: it would act at once.
    pub(super) fn ready(&self) -> Result<(), String> {
        let handle = match self.controllers.get() {
            None => return Err("the start is not complete".to_owned()),
            Some(Err(why)) => return Err(why.clone()),
            Some(Ok(handle)) => handle,
        };
        caches_filled(handle)
    }

    /// Returns whether this replica is the leader; `None` if no controller runs.
    pub(super) fn permit(&self) -> Option<Permit> {
        let controllers = self.controllers.get().and_then(|it| it.as_ref().ok());
        controllers.map(|handle| handle.permit().clone())
    }

    /// Changes the request rate of the controllers.
    pub(super) fn set_rate(&self, rate: Option<Rate>) {
        if let Some(Ok(handle)) = self.controllers.get() {
            handle.set_rate(rate);
        }
    }

    /// Changes the settings of the subsystems.
    pub(super) fn reconfigure(&self, values: &Values) {
        if let (Some(all), Some(Ok(handle))) = (self.reconfigure.get(), self.controllers.get()) {
            subsystems::reconfigure(all, values, handle);
        }
    }

    /// Serves the page `/status` to callers on this machine or in this pod, because it names
    /// objects. Other callers read it from the metrics server, with a token.
    pub(super) fn router(&self) -> Router {
        let standing = self.clone();
        let page =
            async move |Extension(peer): Extension<PeerAddress>| standing.status_response(peer);
        Router::new().route("/status", get(page))
    }

    fn status_response(&self, peer: PeerAddress) -> Response {
        match peer.is_local() {
            true => Json(self.status_json()).into_response(),
            false => {
                let text = "served only inside the pod, as with kubectl port-forward; with a token \
                            it is at metrics.bindAddress\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
        }
    }

    pub(super) fn status_json(&self) -> Value {
        let page = StatusPage {
            started: self.started,
            now: self.clock.now(),
            ready: self.ready(),
            handle: self.controllers.get().and_then(|it| it.as_ref().ok()),
            configuration: &self.configuration.get(),
        };
        page.to_json()
    }
}

/// Determines what is to run, and with what: the part of the start that reads the cluster.
///
/// # Errors
/// A client could not be created, or a subsystem cannot start.
pub(super) async fn prepare(
    start: &StartOptions,
    shell: &mut ProcessContext,
    standing: &OperatorStatus,
) -> anyhow::Result<PreparedControllers> {
    let gate = WriteGate::default();
    let fence = start.lease_namespace.as_ref().map(|_| &gate);
    let clients = OperatorClients::new(&start.config, fence)?;
    let settings = &start.checked.settings;
    let runs = |name: &str| is_enabled(settings, name);
    let namespace = || Ok(start.config_watch.sources.own_namespace()?);
    let mut offers = HostExtensions::default().with(standing.leaves.clone());
    if start.checked.values.is_on("simulation.enabled") {
        offers = offers.with(pod_runtime(start, &mut shell.tasks)?);
    }
    let setup = Setup {
        values: &start.checked.values,
        host: Host::Cluster,
        namespace: &namespace,
        clock: shell.tasks.clock(),
        metrics: &shell.metrics,
        clients: &clients,
        is_controller_enabled: &runs,
        extensions: &offers,
    };
    Ok(PreparedControllers { components: subsystems::start(setup).await?, gate })
}

/// The controllers and what they run with.
#[derive(Debug)]
pub(super) struct PreparedControllers {
    components: SubsystemComponents,
    gate: WriteGate,
}

/// Starts every enabled controller; their tasks belong to the process context.
///
/// An operator in which no controller runs is alive and never ready, so that the mistake is
/// noticed.
///
/// # Errors
/// A client could not be created, or two components were wired to the same thing.
pub(super) fn start(
    start: &StartOptions,
    shell: &mut ProcessContext,
    standing: &OperatorStatus,
    prepared: PreparedControllers,
) -> anyhow::Result<()> {
    let PreparedControllers { components: parts, gate } = prepared;
    if parts.is_empty() {
        let why = "no controllers are enabled";
        // This status never changes.
        let _ = standing.controllers.set(Err(why.to_owned()));
        tracing::warn!("{why}: nothing will be reconciled");
        return Ok(());
    }
    let SubsystemComponents { registrations, outside, filters, background, reconfigure } = parts;
    let reader = to_cluster(start.config.clone()).context("could not create a client for reads")?;
    let mut jitter = fastrand::Rng::new();
    let options = ManagerOptions { external: outside, filters, ..options(start, &mut jitter)? };
    let meters = ControllerMetrics::register(&shell.metrics)?;
    let clock = shell.tasks.clock().clone();
    let controllers = gantry_controller::ControllerManager::new(
        clock,
        jitter,
        reader,
        registrations,
        options,
        meters,
    )?;
    let handle = controllers.handle();
    gate.set_permit(handle.permit().clone());
    if start.lease_namespace.is_some() {
        watch_lease(shell, &handle)?;
    }
    background.into_iter().for_each(|begin| begin(&mut shell.tasks, &handle));
    let _ = standing.reconfigure.set(reconfigure);
    let _ = standing.controllers.set(Ok(handle));
    let tasks = shell.tasks.child();
    shell.tasks.spawn("controllers", OnLoss::EndOwner, move |_| async move {
        Ok(controllers.run(tasks).await?)
    });
    Ok(())
}

/// The clients of an operator, shared by all subsystems: every request uses the operator's own
/// account.
pub(super) struct OperatorClients {
    writer: kube::Client,
    reader: kube::Client,
}

impl OperatorClients {
    /// Creates the clients. Writes are fenced by `gate` if replicas compete for a lease; those of a
    /// process that is alone are fenced by nothing but the revisions they were planned from.
    pub(super) fn new(config: &kube::Config, gate: Option<&WriteGate>) -> anyhow::Result<Self> {
        let writer = match gate {
            Some(gate) => to_cluster_with_gate(config.clone(), gate.clone()),
            None => to_cluster(config.clone()),
        };
        let reader = to_cluster(config.clone());
        Ok(Self {
            writer: writer.context("could not create a client for writes")?,
            reader: reader.context("could not create a client for reviews")?,
        })
    }
}

impl Clients for OperatorClients {
    fn writer(&self, _: &Identity) -> Result<kube::Client, StartError> {
        Ok(self.writer.clone())
    }

    fn reader(&self, _: &Identity) -> Result<kube::Client, StartError> {
        Ok(self.reader.clone())
    }
}

/// Returns whether a controller is enabled by name.
fn is_enabled(settings: &OperatorSettings, name: &str) -> bool {
    CONTROLLERS
        .iter()
        .find(|it| it.name == name)
        .is_some_and(|it| settings.is_controller_enabled(*it))
}

/// Returns the runtime of programs in simulated pods: they use their own tokens, and nothing else.
fn pod_runtime(start: &StartOptions, tasks: &mut Tasks) -> anyhow::Result<PodRuntime> {
    let server = &start.config.cluster_url;
    let port = if server.scheme_str() == Some("http") { 80 } else { 443 };
    let api_server = server
        .host()
        .map(|host| ApiServer { host: host.to_owned(), port: server.port_u16().unwrap_or(port) });
    let mut bare = start.config.clone();
    bare.auth_info = kube::config::AuthInfo::default();
    let bare = to_cluster(bare).context("could not create a client for programs")?;
    let runtime = PodRuntime::new(Profile::default(), Logs::new());
    let runtime = PodRuntime { api_server, transport: Some(over_network(bare)), ..runtime };
    let scratch = match tempfile::Builder::new().prefix("gantry-pods-").tempdir() {
        Ok(scratch) => scratch,
        Err(error) => {
            tracing::warn!(%error, "pods on simulated nodes have no files, and images of launchers \
                                    and engines run no program: mount an emptyDir at /tmp");
            return Ok(runtime);
        }
    };
    let pods = scratch.path().join("pods");
    let programs = model_programs::register(runtime.programs, &pods, Some(scratch), tasks)?;
    Ok(PodRuntime { programs, directory: Some(pods), ..runtime })
}

fn options(start: &StartOptions, jitter: &mut fastrand::Rng) -> anyhow::Result<ManagerOptions> {
    let settings = &start.checked.settings;
    let rate = settings.client_connection.rate();
    let election = &settings.leader_election;
    let lease = match &start.lease_namespace {
        None => None,
        Some(namespace) => Some(lease_settings(&start.config, election, namespace, jitter)?),
    };
    Ok(ManagerOptions {
        rate_limit: rate.map(|(per_second, burst)| Rate { per_second, burst }),
        shutdown_grace: SHUTDOWN_WRITE_TIMEOUT,
        lease,
        ..ManagerOptions::default()
    })
}

/// Returns the lease that replicas compete for.
pub(super) fn lease_settings(
    config: &kube::Config,
    election: &LeaderElection,
    namespace: &str,
    jitter: &mut fastrand::Rng,
) -> anyhow::Result<lease::LeaseSettings> {
    Ok(lease::LeaseSettings {
        // A client of its own, so that lease requests never queue behind others.
        client: to_cluster(config.clone()).context("could not create a client for the lease")?,
        namespace: namespace.to_owned(),
        name: election.resource_name.clone(),
        identity: identity(jitter),
        timing: timing(election),
    })
}

/// Returns the leader election times of the configuration.
pub(crate) fn timing(election: &LeaderElection) -> lease::Timing {
    lease::Timing {
        lease: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry: election.retry_period,
    }
}

/// Returns the lease identity: the host name, for readers, and a random part, unique per start.
fn identity(jitter: &mut fastrand::Rng) -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    let host = if host.is_empty() { "gantry".into() } else { host };
    let chance = jitter.u128(..);
    let part = |from: u32, digits: usize| {
        let mask = (1_u128 << (4 * digits)) - 1;
        format!("{:0digits$x}", (chance >> from) & mask)
    };
    let parts = [part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12)];
    format!("{host}_{}", parts.join("-"))
}

/// Fails the liveness of a process that lost the lease and is still running.
pub(super) fn watch_lease(
    shell: &mut ProcessContext,
    handle: &ManagerHandle,
) -> anyhow::Result<()> {
    let held = Arc::new(OnceLock::new());
    let (seen, permit) = (Arc::clone(&held), handle.permit().clone());
    shell.health.add(Probe::Live, "lease", move || match seen.get() {
        Some(()) => permit.check().map_err(|_| "the lease was lost".to_owned()),
        None => Ok(()),
    })?;
    let permit = handle.permit().clone();
    shell.tasks.spawn("lease of the controllers", OnLoss::CarryOn, move |stop| async move {
        tokio::select! {
            // Either future may be dropped: both only wait.
            () = stop.cancelled() => {}
            granted = permit.granted() => if granted.is_ok() {
                let _ = held.set(());
            },
        }
        Ok(())
    });
    Ok(())
}

/// Returns how the lease was lost, if that is the cause of an error.
#[must_use]
pub fn lost_lease(lost: &[LostTask]) -> Option<&LeaseLost> {
    cause_of_loss(lost)
}

/// Returns the first error of a type among the causes of lost tasks.
pub(super) fn cause_of_loss<E: std::error::Error + 'static>(lost: &[LostTask]) -> Option<&E> {
    lost.iter().find_map(|lost| {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(lost);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref::<E>() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::{BuildInfo, Metrics};
    use gantry_process::tasks::TaskFailure;

    use super::*;
    use crate::config::document;
    use crate::config::operator::{CheckedConfig, merge_and_check};

    fn checked(text: &str) -> CheckedConfig {
        let (layer, report) = document::read(text, "f");
        merge_and_check([&layer], report, &CONTROLLERS).unwrap()
    }

    #[tokio::test]
    async fn only_enabled_controllers_run() {
        let nodes = || vec!["kubelet-nodes", "node-ranges", "kubelet-pods"];
        let waiting = || vec!["queue-dispatch", "queue-progress"];
        let table = [
            ("the queue by default", "", vec![], waiting()),
            ("a part beside it", "simulation: {enabled: true}", nodes(), waiting()),
            (
                "all but one",
                "simulation: {enabled: true}\nmcadEnabled: false\ncontrollers: {kubelet-pods: false}",
                vec!["kubelet-nodes", "node-ranges"],
                vec![],
            ),
            (
                "one",
                "simulation: {enabled: true}\ncontrollers: [kubelet-nodes]",
                vec!["kubelet-nodes"],
                vec![],
            ),
            ("a name alone switches nothing on", "controllers: [kubelet-nodes]", vec![], vec![]),
            (
                "devices but for one",
                "devices: {enabled: true}\nmcadEnabled: false\ncontrollers: {device-results: false}",
                vec![
                    "device-scheduler",
                    "device-release",
                    "device-ledger",
                    "device-gate",
                    "device-classes",
                    "device-drivers",
                ],
                vec![],
            ),
            (
                "quotas",
                "mcad: {quotaEnabled: true}",
                vec![],
                vec!["queue-dispatch", "queue-progress", "quota-status"],
            ),
            (
                "half a queue",
                "mcad: {quotaEnabled: true}\ncontrollers: {queue-dispatch: false, quota-status: false}",
                vec![],
                vec!["queue-progress"],
            ),
            ("none by name", "simulation: {enabled: true}\ncontrollers: []", vec![], vec![]),
        ];
        let client = gantry_controller::transport::in_process(|_: http::Request<bytes::Bytes>| {
            std::future::pending::<http::Response<http_body_util::Full<bytes::Bytes>>>()
        });
        let clients = UnreachableClients(client);
        let clock = Clock::system();
        for (why, text, runs, queued) in table {
            let CheckedConfig { settings, values, .. } = checked(text);
            let setup = Setup {
                values: &values,
                host: Host::Cluster,
                namespace: &|| Ok("gantry-system".to_owned()),
                clock: &clock,
                metrics: &Metrics::new(&BuildInfo::default()),
                clients: &clients,
                is_controller_enabled: &|name: &str| is_enabled(&settings, name),
                extensions: &HostExtensions::default(),
            };
            let parts = subsystems::start(setup).await.unwrap();
            let names: Vec<_> = parts.registrations.iter().map(|it| it.controller.name()).collect();
            let expected: Vec<_> = queued.into_iter().chain(runs).collect();
            assert_eq!(names, expected, "{why}");
        }
    }

    /// Clients of a server that never responds.
    struct UnreachableClients(kube::Client);

    impl Clients for UnreachableClients {
        fn writer(&self, _: &Identity) -> Result<kube::Client, StartError> {
            Ok(self.0.clone())
        }

        fn reader(&self, _: &Identity) -> Result<kube::Client, StartError> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn status_is_served_only_inside_the_pod() {
        let table = [
            ("127.0.0.1:9", 200),
            ("[::1]:9", 200),
            ("[::ffff:127.0.0.1]:9", 200),
            ("10.1.2.3:9", 403),
            ("[::ffff:10.1.2.3]:9", 403),
            ("[fd00::1]:9", 403),
        ];
        for (address, expected) in table {
            let answer = OperatorStatus::new(&Clock::system())
                .status_response(PeerAddress(address.parse().unwrap()));
            assert_eq!(answer.status().as_u16(), expected, "{address}");
        }
    }

    #[test]
    fn every_start_has_its_own_lease_identity() {
        let mut jitter = fastrand::Rng::with_seed(1);
        let (one, two) = (identity(&mut jitter), identity(&mut jitter));
        assert_ne!(one, two);
        let (host, rest) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty(), "{one}");
        let parts: Vec<_> = rest.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{one}");
    }

    #[test]
    fn a_lost_lease_is_distinguished() {
        let lost = |error: gantry_process::tasks::TaskError| LostTask {
            task: "t".into(),
            cause: TaskFailure::Failed(error),
        };
        let lease =
            LeaseLost { lease: "n/l".to_owned(), why: lease::LossReason::RenewDeadlineExceeded };
        let inner = gantry_controller::ManagerError::from(lost(lease.clone().into()));
        assert_eq!(lost_lease(&[lost("other".into()), lost(inner.into())]), Some(&lease));
        assert_eq!(lost_lease(&[lost("other".into())]), None);
    }
}
