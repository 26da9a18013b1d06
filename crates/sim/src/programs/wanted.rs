//! Which programs run, with what, and what becomes of those that run. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{Key, Uid, World};

use super::GivenDevice;
use super::account::PodIdentity;
use super::action::{self, Attempt};
use super::files::Volumes;
use crate::kubelet::Settings;
use crate::kubelet::health::{Condemned, Health};
use crate::pod_config::{self, Command, Surroundings, Unresolved, VolumeContent, expand};
use crate::view::{
    Action, Container, ContainerKey, ContainerStatus, Node, Pod, Probe, ProbeKind, ResourceClaim,
    TerminationMessagePolicy, VolumeMount,
};

/// How long a pod may take to end that does not say.
const GRACE_SECONDS: i64 = 30;
/// The file of last words of a container that names none.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// One run of a program.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) identity: PodIdentity,
    pub(super) run: i64,
    pub(super) container: String,
    pub(super) image: String,
    pub(super) hostname: String,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) program: Option<String>,
    pub(super) args: Vec<String>,
    pub(super) address: Ipv4Addr,
    pub(super) ports: Vec<u16>,
    pub(super) devices: Vec<GivenDevice>,
    pub(super) volumes: Volumes,
    pub(super) mounts: Vec<WantedMount>,
    pub(super) termination_log: String,
    pub(super) termination_policy: TerminationMessagePolicy,
    pub(super) probes: Vec<(ProbeKind, Probe, Attempt)>,
    pub(super) has_startup_probe: bool,
    pub(super) post_start: Option<Result<Attempt, String>>,
    pub(super) pre_stop: Option<Result<Attempt, String>>,
}

/// A volume that a container finds at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedMount {
    pub(super) path: String,
    pub(super) volume: String,
    pub(super) sub_path: String,
}

/// A program that its kubelet says to run.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) container: String,
    pub(super) uid: Uid,
    pub(super) run: i64,
    /// What it is run with; an error if that cannot be had.
    pub(super) with: Result<Box<Wanted>, Unresolved>,
}

/// What becomes of a program that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Run,
    /// It is told to stop, and ended after this time.
    Stop(Duration),
    /// It is ended at once.
    Kill,
    /// Its node has no power: it is ended at once, and nobody learns of it.
    PowerLoss,
    /// Its pod is gone: it is ended at once.
    Gone,
}

fn statuses(pod: &Pod) -> impl Iterator<Item = (&Container, &ContainerStatus)> {
    let inits = pod.spec.init_containers.iter().zip(&pod.status.init_container_statuses);
    inits.chain(pod.spec.containers.iter().zip(&pod.status.container_statuses))
}

fn is_up(settings: &Settings, world: &World, pod: &Pod) -> bool {
    let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
    node.is_some_and(|it| settings.is_up(&it))
}

/// What becomes of a run of a program.
pub(super) fn fate(
    settings: &Settings,
    world: &World,
    key: &ContainerKey,
    (uid, run): (&Uid, i64),
) -> Fate {
    let pod = world.shelf::<Pod>().get(&key.pod).filter(|it| it.metadata.uid == *uid);
    let Some(pod) = pod else { return Fate::Gone };
    if !is_up(settings, world, &pod) {
        return Fate::PowerLoss;
    }
    let own = pod.spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS);
    let stop = |seconds: i64| match u64::try_from(seconds) {
        Ok(0) | Err(_) => Fate::Kill,
        Ok(seconds) => Fate::Stop(Duration::from_secs(seconds)),
    };
    if pod.metadata.is_going() {
        // From when it is noticed, as kubelets count: clocks of servers differ.
        return stop(pod.metadata.deletion_grace_period_seconds.unwrap_or(own));
    }
    let found = statuses(&pod).find(|(container, _)| container.name == key.container);
    let runs = found.filter(|(_, it)| it.state.running.is_some() && it.restart_count == run);
    let Some((container, _)) = runs.filter(|_| !pod.is_over()) else { return stop(own) };
    let grace = |probe: Option<&Probe>| {
        probe.and_then(|it| it.termination_grace_period_seconds).unwrap_or(own)
    };
    match Health::of(world, &pod).condemned(&pod, container, run) {
        None => Fate::Run,
        Some(Condemned::Killed) => Fate::Kill,
        Some(Condemned::PostStart) => stop(own),
        Some(Condemned::NotStarted) => stop(grace(container.startup_probe.as_deref())),
        Some(Condemned::NotLive) => stop(grace(container.liveness_probe.as_deref())),
    }
}

/// The programs of a pod that its kubelet says to run.
pub(super) fn due(settings: &Settings, world: &World, pod: &Key) -> Vec<Due> {
    let Some(pod) = world.shelf::<Pod>().get(pod) else { return Vec::new() };
    let Ok(address) = pod.status.pod_ip.parse::<Ipv4Addr>() else { return Vec::new() };
    if pod.metadata.is_going() || pod.is_over() || !is_up(settings, world, &pod) {
        return Vec::new();
    }
    let health = Health::of(world, &pod);
    let runs = statuses(&pod).filter(|(container, status)| {
        let run = status.restart_count;
        status.state.running.is_some()
            && settings.is_program(container)
            && health.condemned(&pod, container, run).is_none()
    });
    let due = runs.map(|(container, status)| Due {
        container: container.name.clone(),
        uid: pod.metadata.uid.clone(),
        run: status.restart_count,
        with: wanted(settings, world, &pod, container, status, address).map(Box::new),
    });
    due.collect()
}

/// The files of a pod's volumes.
pub(super) fn volumes(
    settings: &Settings,
    world: &World,
    pod: &Pod,
) -> Result<Volumes, Unresolved> {
    let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
    let around = surroundings(settings, world, pod, node.as_deref());
    pod_config::volumes(&around).map(Arc::new)
}

fn surroundings<'a>(
    settings: &'a Settings,
    world: &'a World,
    pod: &'a Pod,
    node: Option<&'a Node>,
) -> Surroundings<'a> {
    Surroundings { pod, node, sources: world, api_server: settings.api_server.as_ref() }
}

/// The devices that the ResourceClaims of a pod were given.
fn devices(world: &World, pod: &Pod) -> Vec<GivenDevice> {
    let claims = world.shelf::<ResourceClaim>();
    let mut given = Vec::new();
    for entry in &pod.spec.resource_claims {
        let made = pod.status.resource_claim_statuses.iter().find(|it| it.name == entry.name);
        let name = entry.resource_claim_name.as_ref();
        let name = name.or_else(|| made.and_then(|it| it.resource_claim_name.as_ref()));
        let claim = name.and_then(|it| claims.get(&Key::new(&pod.metadata.namespace, it)));
        let Some(claim) = claim.filter(|it| it.is_reserved_for(&pod.metadata.uid)) else {
            continue;
        };
        let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
        given.extend(results.map(|it| GivenDevice {
            claim: entry.name.clone(),
            request: it.request.clone(),
            driver: it.driver.clone(),
            pool: it.pool.clone(),
            device: it.device.clone(),
        }));
    }
    given
}

fn wanted(
    settings: &Settings,
    world: &World,
    pod: &Pod,
    container: &Container,
    status: &ContainerStatus,
    address: Ipv4Addr,
) -> Result<Wanted, Unresolved> {
    let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
    let around = surroundings(settings, world, pod, node.as_deref());
    let mut environment = pod_config::environment(&around, container)?;
    let volumes = pod_config::volumes(&around)?;
    let Command { program, args, variables } = pod_config::command(container, &environment);
    environment.extend(variables);
    let mounts = container.volume_mounts.iter();
    // What simulated nodes do not provide is found nowhere.
    let provided = |it: &&VolumeMount| {
        volumes.get(&it.name).is_some_and(|it| *it != VolumeContent::NotProvided)
    };
    let mounts = mounts.filter(provided).map(|it| WantedMount {
        path: it.mount_path.clone(),
        volume: it.name.clone(),
        sub_path: match it.sub_path_expr.as_str() {
            "" => it.sub_path.clone(),
            text => expand(text, |name| environment.get(name).map(String::as_str)),
        },
    });
    let probes = [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
    ];
    // What cannot be asked is held by the kubelet, which says why.
    let probes = probes.into_iter().filter_map(|(kind, probe)| {
        let probe = probe.as_deref()?;
        Some((kind, probe.clone(), action::attempt(pod, container, &probe.action).ok()?))
    });
    let hook = |action: Option<&Action>| action.map(|it| action::attempt(pod, container, it));
    let lifecycle = container.lifecycle.as_deref();
    Ok(Wanted {
        identity: PodIdentity {
            pod: pod.metadata.key(),
            uid: pod.metadata.uid.clone(),
            account: match pod.spec.service_account_name.as_str() {
                "" => "default".to_owned(),
                name => name.to_owned(),
            },
            node: pod.spec.node_name.clone(),
        },
        run: status.restart_count,
        container: container.name.clone(),
        image: container.image.clone(),
        hostname: environment.get("HOSTNAME").cloned().unwrap_or_default(),
        program,
        args,
        address,
        ports: container.ports.iter().filter_map(|it| it.container_port.try_into().ok()).collect(),
        devices: devices(world, pod),
        mounts: mounts.collect(),
        volumes: Arc::new(volumes),
        termination_log: match container.termination_message_path.as_str() {
            "" => TERMINATION_LOG.to_owned(),
            path => path.to_owned(),
        },
        termination_policy: container.termination_message_policy,
        probes: probes.collect(),
        has_startup_probe: container.startup_probe.is_some(),
        post_start: lifecycle.and_then(|it| hook(it.post_start.as_ref())),
        pre_stop: lifecycle.and_then(|it| hook(it.pre_stop.as_ref())),
        environment,
    })
}
