//! Runs a node that starts real containers: a real kubelet and containerd, on this machine.
//!
//! Both live in PID and mount namespaces of their own. When the first process in there exits, Linux
//! kills all others, containers included, and the mounts disappear with the last of them. So
//! nothing has to be found and undone but the control groups, which are named after the run.
//! Settings that a kubelet would change for the whole machine already have the values it wants: see
//! [`ISOLATE_SCRIPT`].
//!
//! Every pod uses the network of the machine, also without `hostNetwork: true`: nothing is created
//! in it that somebody would have to remove. See [`SHARE_NETWORK_SCRIPT`].

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::{StartError, User, text};
use crate::run::{Run, RunError};

mod image;
mod requirements;

pub use image::IMAGE;
pub(super) use requirements::Machine;
pub use requirements::NodeRequirementError;

/// The first process in the namespaces. The directories it hides are
/// [`requirements::HIDDEN_DIRECTORIES`]. The kubelet writes these six kernel settings unless it
/// reads the values it wants: it reads them from files of ours.
const ISOLATE_SCRIPT: &str = r#"
set -e
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$place"; done
mkdir /var/lib/kubelet
mount --bind "$0/kubelet" /var/lib/kubelet
while read -r setting value; do
    [ -e "/proc/sys/$setting" ] || continue
    echo "$value" >"$0/settings/${setting##*/}"
    mount --bind "$0/settings/${setting##*/}" "/proc/sys/$setting"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
: >"$0/enclosed"
sleep infinity &
wait
"#;

/// Enters the namespaces as soon as they are prepared, and executes a program.
const ENTER_SCRIPT: &str = r#"
until [ -e "$0/enclosed" ]; do sleep 0.05; done
namespaces=/proc/$1/ns
shift
exec nsenter --mount="$namespaces/mnt" --pid="$namespaces/pid_for_children" "$@"
"#;

/// Imports the images as soon as containerd answers, and executes the kubelet.
const IMPORT_SCRIPT: &str = r#"
until "$0" --namespace k8s.io image import --snapshotter native "$1"; do sleep 0.1; done
shift
exec "$@"
"#;

/// A network plugin that gives pods the network of the machine: it replaces the namespace that
/// containerd has created for a pod. Pods report the address of loopback.
const SHARE_NETWORK_SCRIPT: &str = r#"#!/bin/sh
set -e
case $CNI_COMMAND in
    ADD)
        umount "$CNI_NETNS"
        mount --bind /proc/self/ns/net "$CNI_NETNS"
        printf '{"cniVersion":"0.4.0","interfaces":[{"name":"%s","sandbox":"%s"}],' \
            "$CNI_IFNAME" "$CNI_NETNS"
        echo '"ips":[{"version":"4","interface":0,"address":"127.0.0.1/32"}]}'
        ;;
    VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}' ;;
esac
"#;

/// The plugin that containerd calls for the loopback interface of every pod: the machine has one.
const LOOPBACK_SCRIPT: &str = r#"#!/bin/sh
case $CNI_COMMAND in
    ADD)
        printf '{"cniVersion":"0.3.1","interfaces":[{"name":"lo","sandbox":"%s"}],' "$CNI_NETNS"
        echo '"ips":[{"version":"4","interface":0,"address":"127.0.0.1/8"}]}'
        ;;
    VERSION) echo '{"cniVersion":"0.3.1","supportedVersions":["0.3.1","0.4.0"]}' ;;
esac
"#;

/// The socket of containerd; in a private `/run`, as a longer path would not fit a socket address.
const SOCKET: &str = "/run/containerd/containerd.sock";

/// What the cluster provides for its node.
#[derive(Debug)]
pub(super) struct Node<'start> {
    pub(super) name: &'start str,
    /// The user of the kubelet.
    pub(super) user: &'start User,
    /// The port of the kubelet.
    pub(super) port: u16,
}

/// Starts all programs. The node itself reports when it is ready.
pub(super) fn start(run: &mut Run, machine: &Machine, node: &Node<'_>) -> Result<(), StartError> {
    let folder = run.folder().join("node");
    for part in ["kubelet", "settings", "network", "plugins", "registries", "temporary"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).map_err(|source| RunError::Folder { path, source })?;
    }
    let images = image::write(&folder, &machine.busybox)?;
    run.write("node/containerd.toml", &containerd(&folder, machine))?;
    run.write("node/network/machine.conflist", &network())?;
    for (name, script) in [("machine", SHARE_NETWORK_SCRIPT), ("loopback", LOOPBACK_SCRIPT)] {
        let path = run.write(&format!("node/plugins/{name}"), script)?;
        let executable = fs::set_permissions(&path, Permissions::from_mode(0o700));
        executable.map_err(|source| RunError::Folder { path, source })?;
    }
    // Pods that ask for the machine's own name service get none.
    run.write("node/resolv.conf", "")?;
    let cgroup = run.cgroup()?;
    let config = run.write("node/kubelet.json", &kubelet(&folder, node, &cgroup))?;

    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let folder = text(&folder);
    let enclose = ["--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c"];
    let mut arguments = words(&enclose);
    arguments.extend([ISOLATE_SCRIPT.to_owned(), folder.clone()]);
    run.start("node", Path::new("unshare"), &arguments)?;
    let pid = run.processes().last().map(|(_, pid)| pid.to_string()).unwrap_or_default();
    let enter = words(&["-c", ENTER_SCRIPT, &folder, &pid]);

    let mut arguments = enter.clone();
    arguments.extend([text(&machine.containerd), format!("--config={folder}/containerd.toml")]);
    run.start("containerd", Path::new("sh"), &arguments)?;

    let mut arguments = enter;
    arguments.extend(words(&["sh", "-c", IMPORT_SCRIPT]));
    arguments.extend([text(&machine.ctr), text(&images), text(&machine.kubelet)]);
    arguments.extend([
        format!("--config={}", text(&config)),
        format!("--kubeconfig={}", text(node.user.kubeconfig())),
        format!("--hostname-override={}", node.name),
        // The kubelet does not accept loopback as its own address, but leaves an address alone that
        // a cloud provider set.
        "--cloud-provider=external".to_owned(),
    ]);
    Ok(run.start("kubelet", Path::new("sh"), &arguments)?)
}

/// The configuration of containerd. It copies file systems instead of using overlays, which works
/// wherever the run's folder is.
fn containerd(folder: &Path, machine: &Machine) -> String {
    let path = |name: &str| folder.join(name);
    format!(
        r#"version = 2
root = {root:?}
state = "/run/containerd/state"
temp = {temporary:?}
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = {opt:?}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins:?}
conf_dir = {network:?}
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {registries:?}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc:?}
"#,
        root = path("containerd"),
        temporary = path("temporary"),
        opt = path("opt"),
        plugins = path("plugins"),
        network = path("network"),
        registries = path("registries"),
        pause = image::PAUSE,
        runc = machine.runc,
    )
}

/// Lets containerd pull from a registry on this machine that speaks plain HTTP. containerd reads
/// the file whenever it pulls.
pub(super) fn allow_plain_registry(run: &Path, address: &str) -> Result<(), RunError> {
    let folder = run.join("node/registries").join(address);
    let path = folder.join("hosts.toml");
    // Some releases of containerd accept no file without a host.
    let hosts = format!("server = \"http://{address}\"\n[host.\"http://{address}\"]\n");
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, hosts));
    written.map_err(|source| RunError::Folder { path, source })
}

/// The network of pods. containerd is ready only when there is one.
fn network() -> String {
    let plugins = json!([{"type": "machine"}]);
    json!({"cniVersion": "0.4.0", "name": "testbed", "plugins": plugins}).to_string()
}

/// The configuration of the kubelet. JSON is YAML.
fn kubelet(folder: &Path, node: &Node<'_>, cgroup: &str) -> String {
    let run = folder.parent().unwrap_or(folder);
    let own = |name: &str| text(&folder.join(name));
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": node.port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": text(&run.join("ca.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": text(&run.join("server.crt")),
        "tlsPrivateKeyFile": text(&run.join("server.key")),
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupRoot": cgroup,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "resolvConf": own("resolv.conf"),
        "podLogsDir": own("pods"),
        "volumePluginDir": own("volumes"),
        // It would write firewall rules for the whole machine.
        "makeIPTablesUtilChains": false,
        // A machine with a full disk is no reason to evict pods or to remove the images.
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    });
    format!("{config:#}\n")
}
