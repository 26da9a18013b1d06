//! Starts the controllers that are switched on, and says how they fare.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use gantry_controller::lease::{self, LeaseLost};
use gantry_controller::rate::Rate;
use gantry_controller::transport::{Gate, to_cluster, to_cluster_behind};
use gantry_controller::{Handle, Meters, Options, Permit};
use gantry_process::clock::Clock;
use gantry_process::health::{Peer, Probe};
use gantry_process::tasks::{Lost, OnLoss};
use gantry_queue::effects::admission::LeafAdmission;
use gantry_sim::effects::{PodRuntime, over_network};
use gantry_sim::kubelet::Profile;
use gantry_sim::logs::Logs;
use gantry_sim::pod_config::ApiServer;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Clients, Offers, Reconfigure};
use gantry_subsystem::{Host, Identity, Parts, Setup, StartError};
use jiff::Timestamp;
use serde_json::Value;

use super::reload::Board;
use super::{Shell, Start};
use crate::config::operator::{LeaderElection, Operator};
use crate::status_page::{StatusPage, caches_filled};
use crate::subsystems::{self, CONTROLLERS};

/// How long writes that are under way may take when the operator is told to stop. The rest of its
/// time is for the last events and for giving the lease back.
const LAST_WRITES: Duration = Duration::from_secs(4);

/// How the controllers fare, for probes and people. Clones see the same.
#[derive(Clone)]
pub(super) struct Standing {
    clock: Clock,
    started: Timestamp,
    controllers: Arc<OnceLock<Result<Handle, String>>>,
    /// Applies settings that changed to the subsystems.
    reconfigure: Arc<OnceLock<Vec<Reconfigure>>>,
    /// What the API server is answered about the leaves of AppWrappers.
    pub(super) leaves: LeafAdmission,
    /// How the configuration fares.
    pub(super) configuration: Board,
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Standing({:?})", self.ready())
    }
}

impl Standing {
    /// Of an operator that starts now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            started: clock.now(),
            controllers: Arc::default(),
            reconfigure: Arc::default(),
            leaves: LeafAdmission::default(),
            configuration: Board::default(),
        }
    }

    /// Whether the controllers have seen the cluster. One that waits for the lease is as ready as the
    /// one that holds it: it would act at once.
    pub(super) fn ready(&self) -> Result<(), String> {
        let handle = match self.controllers.get() {
            None => return Err("the start is not done".to_owned()),
            Some(Err(why)) => return Err(why.clone()),
            Some(Ok(handle)) => handle,
        };
        caches_filled(handle)
    }

    /// Whether this replica leads; none if no controller runs.
    pub(super) fn permit(&self) -> Option<Permit> {
        let controllers = self.controllers.get().and_then(|it| it.as_ref().ok());
        controllers.map(|handle| handle.permit().clone())
    }

    /// Lets the controllers ask at another rate from now on.
    pub(super) fn set_rate(&self, rate: Option<Rate>) {
        if let Some(Ok(handle)) = self.controllers.get() {
            handle.set_rate(rate);
        }
    }

    /// Lets other settings of subsystems apply from now on.
    pub(super) fn reconfigure(&self, values: &Values) {
        if let (Some(all), Some(Ok(handle))) = (self.reconfigure.get(), self.controllers.get()) {
            subsystems::reconfigure(all, values, handle);
        }
    }

    /// The page `/status`, for callers on this machine or in this pod: it names objects. Others read it
    /// where metrics are served, with a token.
    pub(super) fn router(&self) -> Router {
        let standing = self.clone();
        let page = async move |Extension(peer): Extension<Peer>| standing.page_for(peer);
        Router::new().route("/status", get(page))
    }

    fn page_for(&self, peer: Peer) -> Response {
        match peer.is_local() {
            true => Json(self.page()).into_response(),
            false => {
                let text = "only from within the pod, as with kubectl port-forward; with a token it is \
                            at metrics.bindAddress\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
        }
    }

    pub(super) fn page(&self) -> Value {
        let page = StatusPage {
            started: self.started,
            now: self.clock.now(),
            ready: self.ready(),
            handle: self.controllers.get().and_then(|it| it.as_ref().ok()),
            configuration: &self.configuration.show(),
        };
        page.to_json()
    }
}

/// Finds out what is to run, and with what: the part of the start that asks the cluster.
///
/// # Errors
/// A client could not be made, or a subsystem cannot start.
pub(super) async fn prepare(
    start: &Start,
    shell: &Shell,
    standing: &Standing,
) -> anyhow::Result<Prepared> {
    let gate = Gate::default();
    let clients = OperatorClients::new(start, &gate)?;
    let settings = &start.checked.settings;
    let runs = |name: &str| is_chosen(settings, name);
    let namespace = || Ok(start.follow.sources.own_namespace()?);
    let mut offers = Offers::default().with(standing.leaves.clone());
    if start.checked.values.is_on("simulation.enabled") {
        offers = offers.with(pod_runtime(start)?);
    }
    let setup = Setup {
        values: &start.checked.values,
        host: Host::Cluster,
        namespace: &namespace,
        clock: shell.tasks.clock(),
        metrics: &shell.metrics,
        clients: &clients,
        runs: &runs,
        offers: &offers,
    };
    Ok(Prepared { parts: subsystems::start(setup).await?, gate })
}

/// What is to run.
#[derive(Debug)]
pub(super) struct Prepared {
    parts: Parts,
    gate: Gate,
}

/// Starts every controller that is switched on; their tasks belong to the shell.
///
/// An operator in which nothing runs is alive and never ready: nobody shall think otherwise.
///
/// # Errors
/// A client could not be made, or two parts were wired to the same thing.
pub(super) fn start(
    start: &Start,
    shell: &mut Shell,
    standing: &Standing,
    prepared: Prepared,
) -> anyhow::Result<()> {
    let Prepared { parts, gate } = prepared;
    if parts.is_empty() {
        let why = "no controllers are switched on";
        // Nothing else is ever said.
        let _ = standing.controllers.set(Err(why.to_owned()));
        tracing::warn!("{why}: nothing will be reconciled");
        return Ok(());
    }
    let Parts { seats, outside, filters, background, reconfigure } = parts;
    let reader = to_cluster(start.config.clone()).context("could not make a client for reads")?;
    let mut jitter = fastrand::Rng::new();
    let options = Options { outside, filters, ..options(start, &mut jitter)? };
    let meters = Meters::register(&shell.metrics)?;
    let clock = shell.tasks.clock().clone();
    let controllers = gantry_controller::Shell::new(clock, jitter, reader, seats, options, meters)?;
    let handle = controllers.handle();
    gate.obey(handle.permit().clone());
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

/// The clients of the operator, shared by all subsystems: every request has the operator's own account.
struct OperatorClients {
    writer: kube::Client,
    reader: kube::Client,
}

impl OperatorClients {
    /// Writes pass `gate` where replicas compete for the lease.
    fn new(start: &Start, gate: &Gate) -> anyhow::Result<Self> {
        let config = || start.config.clone();
        let writer = match start.lease_namespace {
            Some(_) => to_cluster_behind(config(), gate.clone()),
            None => to_cluster(config()),
        };
        Ok(Self {
            writer: writer.context("could not make a client for writes")?,
            reader: to_cluster(config()).context("could not make a client for questions")?,
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

/// Whether a controller is switched on by itself.
fn is_chosen(settings: &Operator, name: &str) -> bool {
    CONTROLLERS.iter().find(|it| it.name == name).is_some_and(|it| settings.runs(*it))
}

/// What programs in simulated pods are run with: they show the API server their own tokens, and nothing else.
fn pod_runtime(start: &Start) -> anyhow::Result<PodRuntime> {
    let server = &start.config.cluster_url;
    let port = if server.scheme_str() == Some("http") { 80 } else { 443 };
    let api_server = server
        .host()
        .map(|host| ApiServer { host: host.to_owned(), port: server.port_u16().unwrap_or(port) });
    let mut bare = start.config.clone();
    bare.auth_info = kube::config::AuthInfo::default();
    let bare = to_cluster(bare).context("could not make a client for programs")?;
    let runtime = PodRuntime::new(Profile::default(), Logs::new());
    Ok(PodRuntime { api_server, transport: Some(over_network(bare)), ..runtime })
}

fn options(start: &Start, jitter: &mut fastrand::Rng) -> anyhow::Result<Options> {
    let settings = &start.checked.settings;
    let rate = settings.client_connection.rate();
    let lease = match &start.lease_namespace {
        None => None,
        Some(namespace) => Some(lease::Settings {
            // Its own, so that it waits behind nothing.
            client: to_cluster(start.config.clone())
                .context("could not make a client for the lease")?,
            namespace: namespace.clone(),
            name: settings.leader_election.resource_name.clone(),
            identity: identity(jitter),
            timing: timing(&settings.leader_election),
        }),
    };
    Ok(Options {
        rate: rate.map(|(per_second, burst)| Rate { per_second, burst }),
        grace: LAST_WRITES,
        lease,
        ..Options::default()
    })
}

/// The times of an election as the configuration has them.
pub(crate) fn timing(election: &LeaderElection) -> lease::Timing {
    lease::Timing {
        lease: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry: election.retry_period,
    }
}

/// Who competes: the machine, for people, and chance, so that no two starts are the same.
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

/// Fails the liveness of a process that held the lease, does not any more, and is still there.
fn watch_lease(shell: &mut Shell, handle: &Handle) -> anyhow::Result<()> {
    let held = Arc::new(OnceLock::new());
    let (seen, permit) = (Arc::clone(&held), handle.permit().clone());
    shell.health.add(Probe::Live, "lease", move || match seen.get() {
        Some(()) => permit.check().map_err(|_| "the lease was held and is not any more".to_owned()),
        None => Ok(()),
    })?;
    let permit = handle.permit().clone();
    shell.tasks.spawn("lease of the controllers", OnLoss::CarryOn, move |stop| async move {
        tokio::select! {
            // Either may be dropped: both only wait.
            () = stop.cancelled() => {}
            granted = permit.granted() => if granted.is_ok() {
                let _ = held.set(());
            },
        }
        Ok(())
    });
    Ok(())
}

/// How the lease was lost, if that is why something was.
#[must_use]
pub fn lost_lease(lost: &[Lost]) -> Option<&LeaseLost> {
    let causes = |lost| {
        std::iter::successors(Some(lost), |error: &&(dyn std::error::Error + 'static)| {
            error.source()
        })
    };
    let mut all = lost.iter().flat_map(|lost| causes(lost as &(dyn std::error::Error + 'static)));
    all.find_map(|error| error.downcast_ref::<LeaseLost>())
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::{Build, Metrics};
    use gantry_process::tasks::Failure;

    use super::*;
    use crate::config::document;
    use crate::config::operator::{Checked, settle};

    fn checked(text: &str) -> Checked {
        let (layer, report) = document::read(text, "f");
        settle([&layer], report, &CONTROLLERS).unwrap()
    }

    #[tokio::test]
    async fn what_runs_is_what_is_switched_on() {
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
                    "device-books",
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
        let clients = Scripted(client);
        let clock = Clock::system();
        for (why, text, runs, queued) in table {
            let Checked { settings, values, .. } = checked(text);
            let setup = Setup {
                values: &values,
                host: Host::Cluster,
                namespace: &|| Ok("gantry-system".to_owned()),
                clock: &clock,
                metrics: &Metrics::new(&Build::default()),
                clients: &clients,
                runs: &|name: &str| is_chosen(&settings, name),
                offers: &Offers::default(),
            };
            let parts = subsystems::start(setup).await.unwrap();
            let names: Vec<_> = parts.seats.iter().map(|it| it.controller.name()).collect();
            let expected: Vec<_> = queued.into_iter().chain(runs).collect();
            assert_eq!(names, expected, "{why}");
        }
    }

    /// Clients of a server that never answers.
    struct Scripted(kube::Client);

    impl Clients for Scripted {
        fn writer(&self, _: &Identity) -> Result<kube::Client, StartError> {
            Ok(self.0.clone())
        }

        fn reader(&self, _: &Identity) -> Result<kube::Client, StartError> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn what_is_held_back_is_shown_to_nobody_outside_of_the_pod() {
        let table = [
            ("127.0.0.1:9", 200),
            ("[::1]:9", 200),
            ("[::ffff:127.0.0.1]:9", 200),
            ("10.1.2.3:9", 403),
            ("[::ffff:10.1.2.3]:9", 403),
            ("[fd00::1]:9", 403),
        ];
        for (address, expected) in table {
            let answer = Standing::new(&Clock::system()).page_for(Peer(address.parse().unwrap()));
            assert_eq!(answer.status().as_u16(), expected, "{address}");
        }
    }

    #[test]
    fn no_two_starts_compete_under_one_name() {
        let mut jitter = fastrand::Rng::with_seed(1);
        let (one, two) = (identity(&mut jitter), identity(&mut jitter));
        assert_ne!(one, two);
        let (host, rest) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty(), "{one}");
        let parts: Vec<_> = rest.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{one}");
    }

    #[test]
    fn a_lost_lease_is_told_from_other_losses() {
        let lost = |error: gantry_process::tasks::TaskError| Lost {
            task: "t".into(),
            cause: Failure::Failed(error),
        };
        let lease = LeaseLost { lease: "n/l".to_owned(), why: lease::Ended::Late };
        let inner = gantry_controller::ShellError::from(lost(lease.clone().into()));
        assert_eq!(lost_lease(&[lost("other".into()), lost(inner.into())]), Some(&lease));
        assert_eq!(lost_lease(&[lost("other".into())]), None);
    }
}
