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
use gantry_placement::effects::config_inquiry;
use gantry_process::clock::Clock;
use gantry_process::health::{Peer, Probe};
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{Lost, OnLoss};
use gantry_queue::Live;
use gantry_queue::subsystem::configuration;
use gantry_reconcile::{Observer, Place, Resource};
use gantry_scaling::subsystem::configuration::Configuration;
use gantry_sim::kubelet;
use gantry_sim::members::{self, Member};
use gantry_sim::subsystem::NODE_LEASES;
use gantry_sim::view::Lease;
use jiff::Timestamp;
use serde_json::Value;

use super::reload::Board;
use super::scaling::Part;
use super::{Shell, Start};
use crate::config::operator::{Checked, LeaderElection, Operator};
use crate::config::values::Values;
use crate::devices;
use crate::jobs::admission::LeafAdmission;
use crate::jobs::{self, Rights};
use crate::status_page::StatusPage;
use crate::subsystems::CONTROLLERS;

/// How long writes that are under way may take when the operator is told to stop. The rest of its
/// time is for the last events and for giving the lease back.
const LAST_WRITES: Duration = Duration::from_secs(4);

/// How the controllers fare, for probes and people. Clones see the same.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    clock: Clock,
    started: Timestamp,
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
    /// Of an operator that starts now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            started: clock.now(),
            controllers: Arc::default(),
            queue: Arc::default(),
            leaves: LeafAdmission::default(),
            scaling: Arc::default(),
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
    pub(super) fn set_limits(&self, values: &Values) {
        // Both it is made of were valid, and no rule spans them: a test says so.
        let failed = |error: serde_json::Error| {
            tracing::error!(%error, "could not use the configuration in force");
        };
        if let Some(queue) = self.queue.get() {
            configuration::settings(values).map_or_else(failed, |it| queue.set(it));
        }
        if let Some(scaling) = self.scaling.get() {
            let limits = Configuration::read(values).map(|it| it.limits());
            limits.map_or_else(failed, |it| scaling.set_limits(it));
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
    let values = &start.checked.values;
    let members = chosen(&start.checked)?;
    let queue = queue(&start.checked, &shell.metrics)?;
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
    let actor = Arc::new(jobs::actor(client.clone()));
    seats
        .extend(queue.iter().flat_map(|part| part.seats(&actor, |name| is_chosen(settings, name))));
    let live = match &queue {
        Some(part) => part.live(),
        None => Live::new(configuration::settings(values)?),
    };
    if let Some(part) = &scaling {
        seats.extend(part.seats(&client, live));
    }
    let reader = to_cluster(start.config.clone()).context("could not make a client for reads")?;
    let mut jitter = fastrand::Rng::new();
    let mut options = options(start, &mut jitter)?;
    scaling.iter().for_each(|part| part.settle(&mut options));
    let stock = scaling.as_ref().map(|part| part.stock(&shell.metrics)).transpose()?;
    options.outside.observers.extend(stock.iter().map(|it| Arc::clone(it) as Arc<dyn Observer>));
    options.outside.observers.extend(queue.iter().flat_map(jobs::Part::observers));
    options.outside.inquiries.extend(queue.iter().flat_map(jobs::Part::inquiries));
    let meters = Meters::register(&shell.metrics)?;
    let clock = shell.tasks.clock().clone();
    if values.is_on("devices.enabled") {
        let client =
            to_cluster(start.config.clone()).context("could not make a client for configs")?;
        options.outside.inquiries.push(config_inquiry(client, clock.clone()));
    }
    let controllers = gantry_controller::Shell::new(clock, jitter, reader, seats, options, meters)?;
    let handle = controllers.handle();
    gate.obey(handle.permit().clone());
    if start.lease_namespace.is_some() {
        watch_lease(shell, &handle)?;
    }
    if let Some(part) = queue {
        part.follow(&mut shell.tasks, &handle);
        standing.leaves.follow(part.admission());
        let _ = standing.queue.set(part);
    }
    if let Some(stock) = stock {
        stock.spawn(&mut shell.tasks, &handle);
    }
    if let Some(part) = scaling {
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
fn queue(checked: &Checked, metrics: &Metrics) -> anyhow::Result<Option<jobs::Part>> {
    let Checked { settings, values, .. } = checked;
    let mut controllers = gantry_queue::subsystem::SUBSYSTEM.features[0].controllers.iter();
    if !configuration::is_enabled(values) || !controllers.any(|it| settings.runs(*it)) {
        return Ok(None);
    }
    Ok(Some(jobs::Part::new(configuration::settings(values)?, metrics)?))
}

/// Whether a controller is switched on by itself.
fn is_chosen(settings: &Operator, name: &str) -> bool {
    CONTROLLERS.iter().find(|it| it.name == name).is_some_and(|it| settings.runs(*it))
}

/// The controllers that are switched on, with their part and by themselves.
fn chosen(checked: &Checked) -> anyhow::Result<Vec<Member>> {
    let Checked { settings, values, .. } = checked;
    let mut members = Vec::new();
    if values.is_on("simulation.enabled") {
        members.extend(members::nodes(&kubelet::Settings::default()));
    }
    let devices = gantry_placement::subsystem::configuration::Configuration::read(values)?;
    if devices.enabled {
        members.extend(devices::members(devices.admin_quota()));
    }
    members.retain(|member| is_chosen(settings, member.controller.name()));
    Ok(members)
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
        facts: BTreeSet::<Resource>::from_iter(jobs::FACTS),
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
    use gantry_placement::AdminQuota;
    use gantry_process::metrics::Build;
    use gantry_process::tasks::Failure;
    use gantry_subsystem::Subsystem;

    use super::*;
    use crate::config::document;
    use crate::config::operator::settle;

    fn checked(text: &str) -> Checked {
        let (layer, report) = document::read(text, "f");
        settle([&layer], report, &CONTROLLERS).unwrap()
    }

    fn switches(subsystem: &Subsystem) -> BTreeSet<&'static str> {
        let all = subsystem.features.iter().flat_map(|it| it.controllers);
        all.map(|it| it.name).collect()
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
            let checked = checked(text);
            let members = chosen(&checked).unwrap();
            let names: Vec<_> = members.iter().map(|it| it.controller.name()).collect();
            assert_eq!(names, runs, "{why}");
            let part = queue(&checked, &Metrics::new(&Build::default())).unwrap();
            let seats = part.map(|it| {
                it.seats(&Arc::new(jobs::actor(client.clone())), |name| {
                    is_chosen(&checked.settings, name)
                })
            });
            let names: Vec<_> = seats.iter().flatten().map(|it| it.controller.name()).collect();
            let own: Vec<_> = names
                .into_iter()
                .filter(|it| CONTROLLERS.iter().any(|known| known.name == *it))
                .collect();
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
            let answer = Standing::new(&Clock::system()).page_for(Peer(address.parse().unwrap()));
            assert_eq!(answer.status().as_u16(), expected, "{address}");
        }
    }

    #[test]
    fn every_controller_of_the_nodes_can_be_switched() {
        let members = members::nodes(&kubelet::Settings::default());
        let names: BTreeSet<_> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names, switches(&gantry_sim::subsystem::SUBSYSTEM));
    }

    #[test]
    fn every_controller_of_devices_can_be_switched() {
        let members = devices::members(AdminQuota::Optional);
        let names: BTreeSet<_> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names, switches(&gantry_placement::subsystem::SUBSYSTEM));
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
