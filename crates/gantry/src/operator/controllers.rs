//! Starts the controllers that are switched on, and says how they fare.

use std::collections::{BTreeMap, BTreeSet};
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
use gantry_controller::{Actor, Filter, Handle, Meters, Options, Permit, Seat};
use gantry_placement::Configs;
use gantry_process::health::{Peer, Probe};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::{Lost, OnLoss, Tasks};
use gantry_queue::Live;
use gantry_reconcile::{Observer, Place, Resource, View as _};
use gantry_sim::kubelet;
use gantry_sim::logs::Logs;
use gantry_sim::members::{self, Member};
use gantry_sim::pod_config::ApiServer;
use gantry_sim::programs::{Accounts, PodNetwork};
use gantry_sim::view::Lease;
use serde_json::{Value, json};

use super::reload::Board;
use super::scaling::Part;
use super::{Shell, Start};
use crate::config::operator::{Controller, LeaderElection, Operator};
use crate::containers::LogObserver;
use crate::devices::{self, Reader};
use crate::jobs::admission::LeafAdmission;
use crate::jobs::{self, Rights};
use crate::programs::{self, Around, PodAccounts, Programs};

/// Every controller, part by part.
pub const ALL: &[Controller] = &[
    Controller { name: "queue-dispatch", usually: true },
    Controller { name: "queue-progress", usually: true },
    Controller { name: "quota-status", usually: true },
    Controller { name: "scaling", usually: true },
    Controller { name: "kubelet-nodes", usually: true },
    Controller { name: "node-ranges", usually: true },
    Controller { name: "kubelet-pods", usually: true },
    Controller { name: "device-scheduler", usually: true },
    Controller { name: "device-release", usually: true },
    Controller { name: "device-books", usually: true },
    Controller { name: "device-results", usually: true },
    Controller { name: "device-gate", usually: true },
    Controller { name: "device-classes", usually: true },
    Controller { name: "device-drivers", usually: true },
];
/// The controllers of the queue.
pub const QUEUE: &[Controller] = ALL.split_at(2).0;
/// The controller that tells what quota trees have handed out.
pub const QUOTA: &[Controller] = ALL.split_at(2).1.split_at(1).0;
/// The controller that buys nodes.
pub const SCALING: &[Controller] = ALL.split_at(3).1.split_at(1).0;
/// The controllers of the pretended nodes.
pub const SIMULATION: &[Controller] = ALL.split_at(4).1.split_at(3).0;
/// The controllers of pods that claim devices.
pub const DEVICES: &[Controller] = ALL.split_at(7).1;

/// How long writes that are under way may take when the operator is told to stop. The rest of its
/// time is for the last events and for giving the lease back.
const LAST_WRITES: Duration = Duration::from_secs(4);

/// The namespace in which kubelets renew their leases, and the only one that has any of interest.
pub const NODE_LEASES: &str = "kube-node-lease";

/// How the controllers fare, for probes and people. Clones see the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    controllers: Arc<OnceLock<Result<Handle, String>>>,
    /// The queue, if it runs.
    queue: Arc<OnceLock<jobs::Part>>,
    /// What the API server is answered about the leaves of AppWrappers.
    pub(super) leaves: LeafAdmission,
    /// Scaling, if it runs.
    scaling: Arc<OnceLock<Part>>,
    /// How the configuration fares.
    pub(super) configuration: Board,
}

impl Standing {
    /// Whether the controllers have seen the cluster. One that waits for the lease is as ready as the
    /// one that holds it: it would act at once.
    pub(super) fn ready(&self) -> Result<(), String> {
        let handle = match self.controllers.get() {
            None => return Err("the start is not done".to_owned()),
            Some(Err(why)) => return Err(why.clone()),
            Some(Ok(handle)) => handle,
        };
        let missing = handle.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let say = missing.iter().map(|it| match &it.why {
            Some(why) => format!("{} ({why})", it.resource),
            None => format!("{} (being listed)", it.resource),
        });
        let missing: Vec<_> = say.collect();
        Err(format!("not seen yet: {}", missing.join(", ")))
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

    /// Lets the queue decide by other settings, and scaling by other limits, from now on.
    pub(super) fn set_limits(&self, settings: &Operator) {
        if let Some(queue) = self.queue.get() {
            queue.set(jobs::settings(&settings.mcad, &settings.devices));
        }
        if let Some(scaling) = self.scaling.get() {
            scaling.set_limits(&settings.instascale);
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
        let ready = self.ready();
        let mut page = json!({ "ready": ready.is_ok(), "why": ready.err() });
        page["configuration"] = self.configuration.show();
        if let Some(Ok(handle)) = self.controllers.get() {
            page["leading"] = handle.permit().check().is_ok().into();
            page["waiting"] = json!(handle.waiting());
            let troubles = handle.troubles().into_iter().map(|(kind, why)| (kind.to_string(), why));
            page["troubles"] = json!(troubles.collect::<BTreeMap<_, _>>());
            page["heldCount"] = handle.ledger().count().into();
            page["held"] = held(handle);
        }
        page
    }
}

/// The most that one page shows: a person does not read more, and a program has the count.
const MOST_HELD: usize = 1000;

fn held(handle: &Handle) -> Value {
    let entries = handle.ledger().snapshot().into_iter();
    let lines = entries.flat_map(|entry| {
        let line = move |held: gantry_reconcile::Held| {
            json!({
                "controller": entry.controller,
                "kind": held.about.resource.to_string(),
                "object": held.about.key.to_string(),
                "reason": held.reason,
                "message": held.message,
                "until": held.until.map(|it| it.to_string()),
            })
        };
        entry.held.into_iter().map(line)
    });
    lines.take(MOST_HELD).collect()
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
    scaling: Option<Part>,
) -> anyhow::Result<()> {
    let settings = &start.checked.settings;
    let programs = programs_of(start);
    let simulated = programs.as_ref().map(Programs::kubelet).cloned().unwrap_or_default();
    let members = chosen(settings, &simulated);
    let queue = queue(settings, &shell.metrics)?;
    if members.is_empty() && scaling.is_none() && queue.is_none() {
        let why = "no controllers are switched on";
        // Nothing else is ever said.
        let _ = standing.controllers.set(Err(why.to_owned()));
        tracing::warn!("{why}: nothing will be reconciled");
        return Ok(());
    }
    let gate = Gate::default();
    let client = match start.lease_namespace {
        Some(_) => to_cluster_behind(start.config.clone(), gate.clone()),
        None => to_cluster(start.config.clone()),
    };
    let client = client.context("could not make a client for writes")?;
    let mut seats: Vec<Seat> = members.into_iter().map(|member| seat(member, &client)).collect();
    let configs = settings.devices.enabled.then(Reader::new);
    if let Some(configs) = &configs {
        let actor = Actor::new(client.clone(), devices::MANAGER, devices::COMPONENT);
        seats.push(Seat::new(configs.watcher(), Arc::new(actor)).alone());
    }
    let actor = Arc::new(jobs::actor(client.clone()));
    seats
        .extend(queue.iter().flat_map(|part| part.seats(&actor, |name| is_chosen(settings, name))));
    let live = queue.as_ref().map_or_else(
        || Live::new(jobs::settings(&settings.mcad, &settings.devices)),
        jobs::Part::live,
    );
    if let Some(part) = &scaling {
        seats.extend(part.seats(&client, live));
    }
    let reader = to_cluster(start.config.clone()).context("could not make a client for reads")?;
    let mut jitter = fastrand::Rng::new();
    let mut options = options(start, &mut jitter)?;
    scaling.iter().for_each(|part| part.settle(&mut options));
    let stock = scaling.as_ref().map(|part| part.stock(&shell.metrics)).transpose()?;
    options.outside.observers.extend(stock.iter().map(|it| Arc::clone(it) as Arc<dyn Observer>));
    options.outside.observers.extend(queue.iter().map(jobs::Part::observer));
    let meters = Meters::register(&shell.metrics)?;
    let clock = shell.tasks.clock().clone();
    let logs = Logs::new();
    if let Some(programs) = &programs {
        programs.follow(&mut options.outside, reader.clone(), &clock);
        let logs = LogObserver::new(logs.clone(), clock.clone());
        options.outside.observers.push(Arc::new(logs));
    }
    let controllers = gantry_controller::Shell::new(clock, jitter, reader, seats, options, meters)?;
    let handle = controllers.handle();
    gate.obey(handle.permit().clone());
    if start.lease_namespace.is_some() {
        watch_lease(shell, &handle)?;
    }
    if let Some(configs) = configs {
        let client =
            to_cluster(start.config.clone()).context("could not make a client for configs")?;
        configs.spawn(&mut shell.tasks, handle.clone(), client);
    }
    if let Some(part) = queue {
        let client =
            to_cluster(start.config.clone()).context("could not make a client for kinds")?;
        part.spawn(&mut shell.tasks, &handle, client, Rights::Asked);
        standing.leaves.follow(part.admission());
        let _ = standing.queue.set(part);
    }
    if let Some(stock) = stock {
        stock.spawn(&mut shell.tasks, &handle);
    }
    if let Some(programs) = programs {
        let around = around(start, logs, &shell.tasks)?;
        programs.spawn(&mut shell.tasks, &handle, around);
    }
    if let Some(part) = scaling {
        part.follow(&handle, shell);
        let _ = standing.scaling.set(part);
    }
    let _ = standing.controllers.set(Ok(handle));
    let tasks = shell.tasks.child();
    shell.tasks.spawn("controllers", OnLoss::EndOwner, move |_| async move {
        Ok(controllers.run(tasks).await?)
    });
    Ok(())
}

/// The queue, if it is switched on and one of its controllers is.
fn queue(settings: &Operator, metrics: &Metrics) -> Result<Option<jobs::Part>, RegisterError> {
    let runs = settings.mcad_enabled && QUEUE.iter().any(|it| settings.runs(*it));
    runs.then(|| jobs::Part::new(jobs::settings(&settings.mcad, &settings.devices), metrics))
        .transpose()
}

/// Whether a controller is switched on by itself.
fn is_chosen(settings: &Operator, name: &str) -> bool {
    ALL.iter().find(|it| it.name == name).is_some_and(|it| settings.runs(*it))
}

/// The controllers that are switched on, with their part and by themselves.
fn chosen(settings: &Operator, simulated: &kubelet::Settings) -> Vec<Member> {
    let mut members = Vec::new();
    if settings.simulation.enabled {
        members.extend(members::nodes(simulated));
    }
    if settings.devices.enabled {
        members.extend(devices::members(settings.devices.admin_quota()));
    }
    members.retain(|member| is_chosen(settings, member.controller.name()));
    members
}

/// The programs of simulated pods, if pods are simulated.
fn programs_of(start: &Start) -> Option<Programs> {
    let settings = &start.checked.settings;
    let runs = settings.simulation.enabled && is_chosen(settings, "kubelet-pods");
    runs.then(|| {
        let server = &start.config.cluster_url;
        let port = if server.scheme_str() == Some("http") { 80 } else { 443 };
        let api_server = server.host().map(|host| ApiServer {
            host: host.to_owned(),
            port: server.port_u16().unwrap_or(port),
        });
        Programs::new(kubelet::Profile::default(), api_server)
    })
}

/// What programs are run with: the operator's own account asks for their tokens, and they show nothing
/// else.
fn around(start: &Start, logs: Logs, tasks: &Tasks) -> anyhow::Result<Around> {
    let asks = to_cluster(start.config.clone()).context("could not make a client for tokens")?;
    let mut bare = start.config.clone();
    bare.auth_info = kube::config::AuthInfo::default();
    let bare = to_cluster(bare).context("could not make a client for programs")?;
    let accounts = PodAccounts::new(asks, tasks.clock().clone(), programs::over_network(bare));
    let scratch = tempfile::Builder::new().prefix("gantry-pods-").tempdir();
    let scratch = scratch.inspect_err(|error| {
        tracing::warn!(%error, "programs in simulated pods have no files: mount an emptyDir at /tmp");
    });
    let scratch = scratch.ok();
    let directory = scratch.as_ref().map(|it| it.path().join("pods"));
    let accounts: Option<Arc<dyn Accounts>> = Some(Arc::new(accounts));
    Ok(Around { logs, accounts, directory, scratch, network: PodNetwork::default() })
}

/// A member under the operator's own name: on a cluster of somebody else it is nobody but itself.
fn seat(member: Member, client: &kube::Client) -> Seat {
    let actor = Actor::new(client.clone(), member.manager, member.component);
    Seat { controller: member.controller, actor: Arc::new(actor), workers: member.workers }
}

fn options(start: &Start, jitter: &mut fastrand::Rng) -> anyhow::Result<Options> {
    let settings = &start.checked.settings;
    let rate = settings.client_connection.rate();
    let node_leases = Filter { namespace: NODE_LEASES.to_owned(), ..Filter::default() };
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
        filters: BTreeMap::from([(Place::of::<Lease>(), node_leases)]),
        facts: BTreeSet::<Resource>::from_iter([Configs::RESOURCE].into_iter().chain(jobs::FACTS)),
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
    use gantry_process::metrics::Build;
    use gantry_process::tasks::Failure;

    use super::*;
    use crate::config::document;
    use crate::config::operator::settle;
    use crate::operator::CONTROLLERS;

    fn settings(text: &str) -> Operator {
        let (layer, report) = document::read(text, "f");
        settle([&layer], report, CONTROLLERS).unwrap().settings
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
        for (why, text, runs, queued) in table {
            let settings = settings(text);
            let members = chosen(&settings, &kubelet::Settings::default());
            let names: Vec<_> = members.iter().map(|it| it.controller.name()).collect();
            assert_eq!(names, runs, "{why}");
            let part = queue(&settings, &Metrics::new(&Build::default())).unwrap();
            let seats = part.map(|it| {
                it.seats(&Arc::new(jobs::actor(client.clone())), |name| is_chosen(&settings, name))
            });
            let names: Vec<_> = seats.iter().flatten().map(|it| it.controller.name()).collect();
            let own: Vec<_> =
                names.into_iter().filter(|it| ALL.iter().any(|known| known.name == *it)).collect();
            assert_eq!(own, queued, "{why}");
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
            let answer = Standing::default().page_for(Peer(address.parse().unwrap()));
            assert_eq!(answer.status().as_u16(), expected, "{address}");
        }
    }

    #[test]
    fn every_controller_of_the_nodes_can_be_switched() {
        let members = members::nodes(&kubelet::Settings::default());
        let names: BTreeSet<_> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names, SIMULATION.iter().map(|it| it.name).collect());
    }

    #[test]
    fn every_controller_of_devices_can_be_switched() {
        let members = devices::members(settings("").devices.admin_quota());
        let names: BTreeSet<_> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names, DEVICES.iter().map(|it| it.name).collect());
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
