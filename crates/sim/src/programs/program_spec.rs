//! Decides which programs run, with which settings, and when they stop. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{Key, Uid, World};
use jiff::Timestamp;

use super::AllocatedDevice;
use super::account::PodIdentity;
use super::action::{self, ResolvedAction};
use super::files::Volumes;
use crate::image::{self, ImagePull};
use crate::kernel;
use crate::kubelet::Settings;
use crate::kubelet::health::{PodHealth, StopReason};
use crate::pod_config::{self, Command, ResolveContext, Unresolved, VolumeContent, expand};
use crate::view::{
    Container, ContainerKey, ContainerStatus, Handler, Node, Pod, Probe, ProbeKind, ResourceClaim,
    TerminationMessagePolicy, VolumeMount,
};

/// The grace period of a pod that names none.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// The termination message file of a container that names none.
const DEFAULT_TERMINATION_LOG: &str = "/dev/termination-log";

/// The settings of one run of a program.
#[derive(Clone, Debug)]
pub(super) struct ProgramSpec {
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
    pub(super) devices: Vec<AllocatedDevice>,
    pub(super) extended_resources: BTreeMap<String, i64>,
    pub(super) volumes: Volumes,
    pub(super) mounts: Vec<MountSpec>,
    pub(super) termination_log: String,
    pub(super) termination_policy: TerminationMessagePolicy,
    pub(super) probes: Vec<(ProbeKind, Probe, ResolvedAction)>,
    pub(super) has_startup_probe: bool,
    /// The image, if its files are to be read.
    pub(super) pull: Option<ImagePull>,
    /// The directories of the node that are mounted, each with the path of the mount.
    pub(super) host_paths: Vec<(String, String)>,
    /// The node, whose kernel it has.
    pub(super) node: Option<Arc<Node>>,
    pub(super) may_load_modules: bool,
    pub(super) post_start: Option<Result<ResolvedAction, String>>,
    pub(super) pre_stop: Option<Result<ResolvedAction, String>>,
}

/// A volume that is mounted in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountSpec {
    pub(super) path: String,
    pub(super) volume: String,
    pub(super) sub_path: String,
}

/// The annotation that maps containers to the devices that DeviceClaims allocated to them.
const ALLOCATIONS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-allocations";

/// A program that runs according to its kubelet.
#[derive(Clone, Debug)]
pub(super) struct DueProgram {
    pub(super) container: String,
    pub(super) uid: Uid,
    pub(super) run: i64,
    /// The settings of the run, or why they cannot be resolved.
    pub(super) spec: Result<Box<ProgramSpec>, Unresolved>,
}

/// The desired state of a program that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DesiredState {
    /// The program keeps running.
    Run,
    /// The program gets a stop signal, and is killed after this time.
    Stop(Duration),
    /// The program is killed immediately.
    Kill,
    /// Its node has no power: the program is killed immediately, and nothing is recorded.
    PowerLoss,
    /// Its pod is gone: the program is killed immediately.
    PodDeleted,
}

fn statuses(pod: &Pod) -> impl Iterator<Item = (&Container, &ContainerStatus)> {
    let inits = pod.spec.init_containers.iter().zip(&pod.status.init_container_statuses);
    inits.chain(pod.spec.containers.iter().zip(&pod.status.container_statuses))
}

fn is_node_up(settings: &Settings, world: &World, pod: &Pod) -> bool {
    let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
    node.is_some_and(|it| settings.runs_pods(&it))
}

/// Returns when the node of a pod was rebooted, if it ever was.
fn boot_time(world: &World, pod: &Pod) -> Option<Timestamp> {
    let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
    node.and_then(|it| kernel::boot_time(&it))
}

/// Returns whether a run of a container was ended by a reboot of its node.
fn is_before_boot(status: &ContainerStatus, boot: Option<Timestamp>) -> bool {
    let running = status.state.running.as_ref();
    let started = running.and_then(|it| it.started_at);
    started.is_some_and(|it| boot.is_some_and(|boot| it < boot))
}

/// Returns the desired state of a run of a program.
pub(super) fn desired_state(
    settings: &Settings,
    world: &World,
    key: &ContainerKey,
    (uid, run): (&Uid, i64),
) -> DesiredState {
    let pod = world.store::<Pod>().get(&key.pod).filter(|it| it.metadata.uid == *uid);
    let Some(pod) = pod else { return DesiredState::PodDeleted };
    if !is_node_up(settings, world, &pod) {
        return DesiredState::PowerLoss;
    }
    let own = pod.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS);
    let stop = |seconds: i64| match u64::try_from(seconds) {
        Ok(0) | Err(_) => DesiredState::Kill,
        Ok(seconds) => DesiredState::Stop(Duration::from_secs(seconds)),
    };
    if pod.metadata.is_terminating() {
        // Counted from when the deletion is observed, as kubelets count: clocks of servers differ.
        return stop(pod.metadata.deletion_grace_period_seconds.unwrap_or(own));
    }
    let found = statuses(&pod).find(|(container, _)| container.name == key.container);
    let runs = found.filter(|(_, it)| it.state.running.is_some() && it.restart_count == run);
    let boot = boot_time(world, &pod);
    if runs.is_some_and(|(_, it)| is_before_boot(it, boot)) {
        return DesiredState::PowerLoss;
    }
    let Some((container, _)) = runs.filter(|_| !pod.is_terminal()) else { return stop(own) };
    let grace = |probe: Option<&Probe>| {
        probe.and_then(|it| it.termination_grace_period_seconds).unwrap_or(own)
    };
    match PodHealth::of(world, &pod).stop_reason(&pod, container, run) {
        None => DesiredState::Run,
        Some(StopReason::Killed) => DesiredState::Kill,
        Some(StopReason::PostStartHookFailed) => stop(own),
        Some(StopReason::StartupProbeFailed) => stop(grace(container.startup_probe.as_deref())),
        Some(StopReason::LivenessProbeFailed) => stop(grace(container.liveness_probe.as_deref())),
    }
}

/// Returns the programs of a pod that run according to its kubelet.
///
/// A pod that has its volumes keeps them while an object they are created from is missing or cannot
/// be read, as with kubelets: `mounted` has those of the pod with this UID.
pub(super) fn due_programs(
    settings: &Settings,
    world: &World,
    pod: &Key,
    mounted: impl Fn(&Uid) -> Option<Volumes>,
) -> Vec<DueProgram> {
    let Some(pod) = world.store::<Pod>().get(pod) else { return Vec::new() };
    let Ok(address) = pod.status.pod_ip.parse::<Ipv4Addr>() else { return Vec::new() };
    if pod.metadata.is_terminating() || pod.is_terminal() || !is_node_up(settings, world, &pod) {
        return Vec::new();
    }
    let health = PodHealth::of(world, &pod);
    let boot = boot_time(world, &pod);
    let runs = statuses(&pod).filter(|(container, status)| {
        let run = status.restart_count;
        status.state.running.is_some()
            && !is_before_boot(status, boot)
            && settings.is_program(container)
            && health.stop_reason(&pod, container, run).is_none()
    });
    let mounted = mounted(&pod.metadata.uid);
    let due = runs.map(|(container, status)| {
        let volumes = match (volumes(settings, world, &pod), &mounted) {
            (Err(_), Some(mounted)) => Ok(Arc::clone(mounted)),
            (volumes, _) => volumes,
        };
        let with = volumes
            .and_then(|it| program_spec(settings, world, &pod, container, status, address, &it));
        DueProgram {
            container: container.name.clone(),
            uid: pod.metadata.uid.clone(),
            run: status.restart_count,
            spec: with.map(Box::new),
        }
    });
    due.collect()
}

/// Returns the files of a pod's volumes.
pub(super) fn volumes(
    settings: &Settings,
    world: &World,
    pod: &Pod,
) -> Result<Volumes, Unresolved> {
    let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
    let context = resolve_context(settings, world, pod, node.as_deref());
    pod_config::volumes(&context).map(Arc::new)
}

fn resolve_context<'a>(
    settings: &'a Settings,
    world: &'a World,
    pod: &'a Pod,
    node: Option<&'a Node>,
) -> ResolveContext<'a> {
    ResolveContext { pod, node, sources: world, api_server: settings.api_server.as_ref() }
}

/// Returns the devices that are allocated to a container: by the ResourceClaims that it uses, and
/// by DeviceClaims as its pod's annotation has them.
fn devices(world: &World, pod: &Pod, container: &Container) -> Vec<AllocatedDevice> {
    let claims = world.store::<ResourceClaim>();
    let mut allocated = Vec::new();
    for used in &container.resources.claims {
        let entry = pod.spec.resource_claims.iter().find(|it| it.name == used.name);
        let made = pod.status.resource_claim_statuses.iter().find(|it| it.name == used.name);
        let name = entry.and_then(|it| it.resource_claim_name.as_ref());
        let name = name.or_else(|| made.and_then(|it| it.resource_claim_name.as_ref()));
        let claim = name.and_then(|it| claims.get(&Key::new(&pod.metadata.namespace, it)));
        let Some(claim) = claim.filter(|it| it.is_reserved_for(&pod.metadata.uid)) else {
            continue;
        };
        let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
        // The result of alternatives is `request/alternative`.
        let of = |request: &str| request.split('/').next() == Some(used.request.as_str());
        let results = results.filter(|it| used.request.is_empty() || of(&it.request));
        allocated.extend(results.map(|it| AllocatedDevice {
            claim: used.name.clone(),
            request: it.request.clone(),
            driver: Some(it.driver.clone()),
            pool: it.pool.clone(),
            device: it.device.clone(),
            count: None,
        }));
    }
    let by_container = pod.metadata.annotations.get(ALLOCATIONS_ANNOTATION);
    // Only the device controller may write it, so an unreadable annotation counts as absent.
    let by_container = by_container.and_then(|it| serde_json::from_str(it).ok());
    let mut by_container: BTreeMap<String, Vec<AllocatedDevice>> = by_container.unwrap_or_default();
    allocated.extend(by_container.remove(&container.name).unwrap_or_default());
    allocated
}

/// Returns the whole units of extended resources that a container has.
fn extended_resources(container: &Container) -> BTreeMap<String, i64> {
    // Their requests are their limits; a name with a domain is no resource of the node itself.
    let limits = container.resources.limits.iter().filter(|(name, _)| name.contains('/'));
    limits.filter_map(|(name, amount)| Some((name.clone(), amount.to_int()?))).collect()
}

fn program_spec(
    settings: &Settings,
    world: &World,
    pod: &Pod,
    container: &Container,
    status: &ContainerStatus,
    address: Ipv4Addr,
    volumes: &Volumes,
) -> Result<ProgramSpec, Unresolved> {
    let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
    let context = resolve_context(settings, world, pod, node.as_deref());
    let mut environment = pod_config::environment(&context, container)?;
    let Command { program, args, variables } = pod_config::command(container, &environment);
    environment.extend(variables);
    let mounts = container.volume_mounts.iter();
    // Volumes that simulated nodes do not provide are not mounted.
    let provided = |it: &&VolumeMount| {
        volumes.get(&it.name).is_some_and(|it| *it != VolumeContent::NotProvided)
    };
    let mounts = mounts.filter(provided).map(|it| MountSpec {
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
    // Unsupported probes are held reasons of the kubelet, which reports why.
    let probes = probes.into_iter().filter_map(|(kind, probe)| {
        let probe = probe.as_deref()?;
        Some((
            kind,
            probe.clone(),
            action::resolve_action(&pod.status.pod_ip, container, &probe.action).ok()?,
        ))
    });
    let hook = |action: Option<&Handler>| {
        action.map(|it| action::resolve_action(&pod.status.pod_ip, container, it))
    };
    let lifecycle = container.lifecycle.as_deref();
    let pull = settings.pulls(container).then(|| ImagePull {
        // Exactly what was pulled, whatever the tag means by now.
        image: match status.image_id.as_str() {
            "" => container.image.clone(),
            image_id => image_id.to_owned(),
        },
        ..image::pull_of(pod, container)
    });
    let host_path = |mount: &VolumeMount| {
        let volume = pod.spec.volumes.iter().find(|it| it.name == mount.name)?;
        Some((volume.host_path.as_ref()?.path.clone(), mount.mount_path.clone()))
    };
    let host_paths = container.volume_mounts.iter().filter_map(host_path).collect();
    Ok(ProgramSpec {
        pull,
        host_paths,
        node: node.clone(),
        may_load_modules: container.may_load_modules(),
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
        devices: devices(world, pod, container),
        extended_resources: extended_resources(container),
        mounts: mounts.collect(),
        volumes: Arc::clone(volumes),
        termination_log: match container.termination_message_path.as_str() {
            "" => DEFAULT_TERMINATION_LOG.to_owned(),
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::kubelet::{SimulatedPods, SourcePolicy};
    use crate::test_world::TestWorld;
    use crate::view::{SourceKey, SourceKind, SourceObject};

    /// A container that is restarted while a Secret is missing finds the files that its pod has.
    #[test]
    fn volumes_stay_while_their_objects_are_missing() {
        let settings = Settings {
            programs: Arc::new(["gantry.dev/echo".to_owned()].into()),
            sources: SourcePolicy::Read,
            ..Settings::default()
        };
        let pods = SimulatedPods::new(settings.clone());
        let mut test_world = TestWorld::new(&[&pods]);
        test_world.put::<Node>(json!({
            "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        }));
        test_world.put::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "e", "image": "gantry.dev/echo"}],
                "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
            },
            "status": {"podIP": "127.1.2.3", "phase": "Running", "containerStatuses": [
                {"name": "e", "restartCount": 1, "state": {"running": {}}},
            ]},
        }));
        let pod = Key::new("default", "p");
        let with = |test_world: &TestWorld<'_>, mounted: Option<Volumes>| {
            let mut due = due_programs(&settings, &test_world.world, &pod, |_| mounted.clone());
            assert_eq!(due.len(), 1);
            due.remove(0).spec
        };
        let secret = SourceKey {
            kind: SourceKind::Secret,
            namespace: "default".to_owned(),
            name: "s".to_owned(),
        };
        let data = BTreeMap::from([("k".to_owned(), Bytes::from_static(b"v"))]);
        let present = SourceObject::Present(Arc::new(data));
        test_world.world.facts().record(secret.clone(), present, test_world.now);
        let mounted = with(&test_world, None).unwrap().volumes;
        test_world.world.facts().record(secret, SourceObject::Absent, test_world.now);
        assert!(matches!(with(&test_world, None), Err(Unresolved::Invalid(_))));
        assert_eq!(with(&test_world, Some(Arc::clone(&mounted))).unwrap().volumes, mounted);
    }

    #[test]
    fn extended_resources_are_whole_limits() {
        let container: Container = serde_json::from_value(json!({
            "name": "a",
            "resources": {
                "limits": {"nvidia.com/gpu": "2", "cpu": "1", "example.com/none": 0},
                "requests": {"nvidia.com/gpu": "2", "example.com/other": "1"},
            },
        }))
        .unwrap();
        let expected = [("example.com/none", 0), ("nvidia.com/gpu", 2)];
        let expected: BTreeMap<String, i64> =
            expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(extended_resources(&container), expected);
    }

    /// Each container has the devices of the claims it uses, and no others.
    #[test]
    fn containers_have_the_devices_that_are_allocated_to_them() {
        let pods = SimulatedPods::new(Settings::default());
        let mut test_world = TestWorld::new(&[&pods]);
        let given = json!({"a": [
            {"driver": "d", "pool": "node-gpus", "claim": "train", "device": "gpu-1"},
            {"driver": null, "pool": "gone", "claim": "train", "count": 2},
        ]});
        test_world.put::<Pod>(json!({
            "metadata": {
                "name": "p", "namespace": "default",
                "annotations": {ALLOCATIONS_ANNOTATION: given.to_string()},
            },
            "spec": {
                "resourceClaims": [
                    {"name": "one", "resourceClaimName": "c1"},
                    {"name": "two", "resourceClaimTemplateName": "t"},
                ],
                "containers": [
                    {"name": "a", "resources": {"claims": [{"name": "two"}]}},
                    {"name": "b", "resources": {"claims": [{"name": "one", "request": "x"}]}},
                    {"name": "c", "resources": {"claims": [{"name": "one"}]}},
                    {"name": "d"},
                ],
            },
            "status": {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "p-two"}]},
        }));
        let claim = |test_world: &mut TestWorld<'_>, name: &str, of: &str, requests: &[&str]| {
            let results = requests.iter().map(|it| {
                json!({"request": it, "driver": "d", "pool": "n1", "device": format!("{name}-{it}")})
            });
            let results: Vec<serde_json::Value> = results.collect();
            test_world.put::<ResourceClaim>(json!({
                "metadata": {"name": name, "namespace": "default"},
                "status": {
                    "allocation": {"devices": {"results": results}},
                    "reservedFor": [{"resource": "pods", "name": of, "uid": format!("uid-{of}")}],
                },
            }));
        };
        claim(&mut test_world, "c1", "p", &["x/first", "y"]);
        claim(&mut test_world, "p-two", "p", &["z"]);
        let devices = |test_world: &TestWorld<'_>, container: usize| -> Vec<String> {
            let pod = test_world.world.store::<Pod>().get(&Key::new("default", "p")).unwrap();
            let all = devices(&test_world.world, &pod, &pod.spec.containers[container]);
            let named = |it: &AllocatedDevice| {
                let count = it.count.map(|it| it.to_string()).unwrap_or_default();
                format!("{} {} {}{count}", it.claim, it.pool, it.device)
            };
            all.iter().map(named).collect()
        };
        assert_eq!(
            devices(&test_world, 0),
            ["two n1 p-two-z", "train node-gpus gpu-1", "train gone 2"]
        );
        assert_eq!(devices(&test_world, 1), ["one n1 c1-x/first"]);
        assert_eq!(devices(&test_world, 2), ["one n1 c1-x/first", "one n1 c1-y"]);
        assert!(devices(&test_world, 3).is_empty());
        // A claim that is reserved for another pod allocates nothing.
        claim(&mut test_world, "c1", "other", &["x"]);
        assert!(devices(&test_world, 1).is_empty());
    }
}
