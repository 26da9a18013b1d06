//! Real hosts with sshd and sudo, for tests that connect to some: Debian in containers of
//! systemd-nspawn, on a network of their own.
//!
//! Each host is a process of a [`Run`], with an overlay of the root file system that
//! `testbed/hosts` makes. Network, mounts and processes are in namespaces that end with the
//! recorded processes, so nothing of a host outlives its run, even if this process is killed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use gantry_process::clock::Clock;

use crate::programs;
use crate::run::{Run, RunError, cgroups};

/// The names of hosts.
const NAMES: [&str; 5] = ["host-0", "host-1", "host-2", "host-3", "host-4"];

/// The user that logs in; sudo asks this user for no password.
pub const USER: &str = "ops";

/// Longer than a boot takes on a busy machine; reached only by a test that fails.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a host that boots is asked. Nothing outside of it says that it is ready.
const BOOT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Where the new hierarchy of control groups is, if the old ones are mounted as well.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// How many networks are tried, of the 256 below 10.231.
const NETWORK_ATTEMPTS: usize = 64;

/// Holds the network: a bridge to which all hosts and this machine are connected.
const NETWORK: &str = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up && \
                       : >\"$1\" && exec sleep infinity";

/// Boots one host, in namespaces that end with it: folder, base, name of the container, its control
/// groups.
const BOOT: &str = r#"set -e
folder=$1 base=$2 machine=$3 name=$4; shift 4
for group; do
    mkdir -p "$group"
    # A group of cgroup v1 starts without processors and memory.
    for setting in cpuset.cpus cpuset.mems; do
        if [ -e "$group/$setting" ] && [ -e "$group/cgroup.clone_children" ]; then
            cat "$group/../../$setting" >"$group/../$setting"
            cat "$group/../$setting" >"$group/$setting"
        fi
    done
    echo $$ >"$group/cgroup.procs"
done
layers=lowerdir=$base,upperdir=$folder/upper,workdir=$folder/work
mount -t overlay overlay -o "$layers" "$folder/root"
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
exec nsenter --net="/proc/self/fd/3" unshare --pid --fork --kill-child --mount-proc \
    systemd-nspawn --directory="$folder/root" --machine="$machine" --hostname="$name" --boot \
    --register=no --keep-unit --link-journal=no --network-bridge=br0 --capability=all \
    --system-call-filter='@keyring bpf perf_event_open open_by_handle_at name_to_handle_at' \
    --bind=/dev/kmsg --bind=/dev/fuse"#;

/// Hosts that run. They end with this value.
#[derive(Debug)]
pub struct TestHosts {
    run: Run,
    hosts: Vec<TestHost>,
    took: Duration,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestHost {
    /// Its name.
    pub name: &'static str,
    /// Its address, reachable from this machine alone.
    pub address: Ipv4Addr,
    /// What it has changed in its root file system, as seen from outside.
    pub upper: PathBuf,
}

impl TestHosts {
    /// Boots hosts, and waits until they can be logged in to.
    ///
    /// # Errors
    /// Something is missing here ([`HostsError::is_requirement`]), or they do not boot.
    pub async fn start(count: usize) -> Result<Self, HostsError> {
        let clock = Clock::system();
        let begin = clock.moment();
        let base = requirements()?;
        let runs = programs::cache_folder().ok_or(HostsError::NoCache)?.join("testbed/runs");
        let mut run = Run::begin(&runs, &clock).await?;
        let network = Network::create(&mut run, &clock).await?;
        let key = run.folder().join("key");
        keygen(&key)?;
        let mut hosts = Vec::new();
        let mut known_hosts = String::new();
        for (name, number) in NAMES.into_iter().zip(10..).take(count) {
            let [one, two, three, _] = network.gateway.octets();
            let address = Ipv4Addr::new(one, two, three, number);
            let folder = run.folder().join(name);
            let host = TestHost { name, address, upper: folder.join("upper") };
            let host_key = prepare(&host, &folder, &key, network.gateway)?;
            known_hosts.push_str(&format!("{address} {host_key}"));
            boot(&mut run, &host, &folder, &base, &network)?;
            hosts.push(host);
        }
        run.write("known_hosts", &known_hosts)?;
        let mut booted = Self { run, hosts, took: Duration::ZERO };
        booted.wait_until_ready(&clock, begin + BOOT_TIMEOUT).await?;
        booted.took = clock.moment() - begin;
        Ok(booted)
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[TestHost] {
        &self.hosts
    }

    /// How long it took until all of them could be logged in to.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// A folder for files of the test, which is removed at the end.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.run.folder()
    }

    /// The key of [`USER`].
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.run.folder().join("key")
    }

    /// The keys of the hosts.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.run.folder().join("known_hosts")
    }

    /// The argument with which ssh knows the hosts.
    #[must_use]
    pub fn known_hosts_argument(&self) -> String {
        format!("-oUserKnownHostsFile={}", self.known_hosts().display())
    }

    /// The hosts as an inventory.
    #[must_use]
    pub fn inventory(&self) -> String {
        let mut text = format!(
            "all:\n  vars:\n    ansible_user: {USER}\n    ansible_ssh_private_key_file: {}\n    \
             ansible_ssh_common_args: {}\n  children:\n    master:\n      hosts:\n",
            self.key().display(),
            self.known_hosts_argument(),
        );
        for host in &self.hosts {
            text.push_str(&format!("        {}: {{ansible_host: {}}}\n", host.name, host.address));
        }
        text
    }

    /// Runs a shell script on a host as [`USER`], with the system's ssh, to prepare a test.
    ///
    /// # Errors
    /// ssh does not start, or the script fails.
    pub fn prepare(&self, host: &TestHost, script: &str) -> Result<String, HostsError> {
        let mut command = Command::new("ssh");
        command
            .args(["-n", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oConnectTimeout=5"])
            .arg(self.known_hosts_argument())
            .arg("-i")
            .arg(self.key())
            .arg(format!("{USER}@{}", host.address))
            .arg(script);
        output("ssh", &mut command)
    }

    async fn wait_until_ready(
        &mut self,
        clock: &Clock,
        deadline: gantry_process::clock::Moment,
    ) -> Result<(), HostsError> {
        for host in self.hosts.clone() {
            // Users may not log in before the end of the boot, so a port that listens is too early.
            while let Err(error) = self.prepare(&host, "true") {
                if clock.moment() > deadline || self.run.exited_process().is_some() {
                    let tails = self.run.tails();
                    return Err(HostsError::Boot {
                        name: host.name,
                        tails,
                        why: error.to_string(),
                    });
                }
                clock.sleep(BOOT_POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// The network of one run.
struct Network {
    /// This machine's address in it.
    gateway: Ipv4Addr,
    /// The process that holds it.
    holder: u32,
    number: u8,
}

impl Network {
    async fn create(run: &mut Run, clock: &Clock) -> Result<Self, HostsError> {
        let ready = run.folder().join("network-is-ready");
        let words = ["--net", "sh", "-c", NETWORK, "sh", &ready.display().to_string()];
        run.start("network", &program("unshare")?, &words.map(str::to_owned))?;
        let deadline = clock.moment() + BOOT_TIMEOUT;
        while !ready.exists() {
            if clock.moment() > deadline || run.exited_process().is_some() {
                let (tails, why) = (run.tails(), "the network was not made".to_owned());
                return Err(HostsError::Boot { name: "network", tails, why });
            }
            clock.sleep(BOOT_POLL_INTERVAL).await;
        }
        let holder = run.processes().first().map_or(0, |(_, id)| *id);
        let ip = program("ip")?;
        let mut last = None;
        for _ in 0..NETWORK_ATTEMPTS {
            let number = fastrand::u8(..);
            // The name says which network it is, so no two runs have the same: the second of two
            // links with one name cannot be made. It disappears with its other end.
            let link = format!("gthosts{number}");
            let words = ["link", "add", &link, "type", "veth", "peer", "name", "up0", "netns"];
            let mut command = Command::new(&ip);
            if let Err(error) = output("ip", command.args(words).arg(holder.to_string())) {
                last = Some(error);
                continue;
            }
            let gateway = Ipv4Addr::new(10, 231, number, 1);
            let address = format!("{gateway}/24");
            output("ip", Command::new(&ip).args(["address", "add", &address, "dev", &link]))?;
            output("ip", Command::new(&ip).args(["link", "set", &link, "up"]))?;
            let mut inside = Command::new(program("nsenter")?);
            inside.arg(format!("--net=/proc/{holder}/ns/net")).arg(&ip);
            output("nsenter", inside.args(["link", "set", "up0", "master", "br0", "up"]))?;
            return Ok(Self { gateway, holder, number });
        }
        Err(last.unwrap_or(HostsError::NoCache))
    }
}

/// Writes what makes one copy of the base this host, and returns the public key of its sshd.
fn prepare(
    host: &TestHost,
    folder: &Path,
    key: &Path,
    gateway: Ipv4Addr,
) -> Result<String, HostsError> {
    for part in ["work", "root"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).map_err(|source| HostsError::File { path, source })?;
    }
    let write = |name: &str, text: &str| {
        let path = host.upper.join(name);
        let parent = path.parent().unwrap_or_else(|| Path::new("/")).to_path_buf();
        let written = fs::create_dir_all(&parent).and_then(|()| fs::write(&path, text));
        written.map_err(|source| HostsError::File { path, source })
    };
    let public = format!("{}.pub", key.display());
    let public = fs::read_to_string(&public)
        .map_err(|source| HostsError::File { path: public.into(), source })?;
    write(&format!("etc/ssh/authorized_keys.d/{USER}"), &public)?;
    write("etc/hostname", &format!("{}\n", host.name))?;
    write("etc/hosts", &format!("127.0.0.1 localhost\n{} {}\n", host.address, host.name))?;
    write("etc/machine-id", "")?;
    let network = "[Match]\nName=host0\n[Network]\n";
    let network = format!("{network}Address={}/24\nGateway={gateway}\n", host.address);
    // Its name sorts before that of the file which systemd has for containers.
    write("etc/systemd/network/10-host0.network", &network)?;
    let host_key = host.upper.join("etc/ssh/ssh_host_ed25519_key");
    keygen(&host_key)?;
    // Folders of the overlay hide the mode of those below them.
    for folder in ["", "etc", "etc/ssh", "etc/ssh/authorized_keys.d", "etc/systemd"] {
        let path = host.upper.join(folder);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, mode).map_err(|source| HostsError::File { path, source })?;
    }
    let path = host_key.with_extension("pub");
    fs::read_to_string(&path).map_err(|source| HostsError::File { path, source })
}

fn boot(
    run: &mut Run,
    host: &TestHost,
    folder: &Path,
    base: &Path,
    network: &Network,
) -> Result<(), HostsError> {
    let group = run.cgroup()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|_| RunError::NoProc)?;
    let mut hierarchies = cgroups::hierarchies(&mounts).map_err(RunError::from)?;
    // Beside the old hierarchies systemd tracks units in the new one. Hosts that share a group
    // there remove one another's.
    let unified = PathBuf::from(UNIFIED);
    if unified.join("cgroup.procs").exists() {
        hierarchies.push(unified);
    }
    let groups =
        hierarchies.iter().map(|hierarchy| format!("{}{group}/{}", hierarchy.display(), host.name));
    // The name of its end of the network is made of the machine's, and has at most 15 characters.
    let machine = format!("gt{}-{}", network.number, host.name.trim_start_matches("host-"));
    // The network's file is opened before the mounts and processes of the host are separated.
    let script = format!("exec 3</proc/{}/ns/net; {BOOT}", network.holder);
    let mut words: Vec<String> =
        ["--mount", "--propagation=private", "sh", "-c", &script, "sh"].map(str::to_owned).into();
    words.extend([
        folder.display().to_string(),
        base.display().to_string(),
        machine,
        host.name.to_owned(),
    ]);
    words.extend(groups);
    Ok(run.start(host.name, &program("unshare")?, &words)?)
}

fn keygen(path: &Path) -> Result<(), HostsError> {
    let mut command = Command::new(program("ssh-keygen")?);
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f"]).arg(path);
    output("ssh-keygen", &mut command).map(drop)
}

/// Runs a program to its end, and returns its output.
fn output(name: &'static str, command: &mut Command) -> Result<String, HostsError> {
    let started = command.output();
    let Output { status, stdout, stderr } =
        started.map_err(|source| HostsError::Start { name, source })?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let messages = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(HostsError::Failed { name, messages })
}

/// Where systems keep programs, whatever the search path of the user is.
const PROGRAM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

fn program(name: &'static str) -> Result<PathBuf, HostsError> {
    let mut paths = PROGRAM_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    paths.find(|path| path.is_file()).ok_or(HostsError::NoProgram { name })
}

/// Checks that hosts can run here, and returns the folder of their root file system.
fn requirements() -> Result<PathBuf, HostsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(HostsError::NotRoot);
    }
    for name in ["systemd-nspawn", "ssh", "ssh-keygen", "ip", "unshare", "nsenter"] {
        program(name)?;
    }
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !systems.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") {
        return Err(HostsError::NoOverlay);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|_| RunError::NoProc)?;
    cgroups::hierarchies(&mounts).map_err(HostsError::Cgroups)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/hosts");
    let base = output("testbed/hosts", Command::new(&script).arg(OsStr::new("--print-dir")))?;
    let base = PathBuf::from(base.trim_end());
    if base.is_dir() { Ok(base) } else { Err(HostsError::NoBase) }
}

/// Why hosts do not run.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// Containers need root.
    #[error("only root can boot hosts")]
    NotRoot,
    /// A program is missing.
    #[error("there is no program {name}: run `testbed/hosts` as root")]
    NoProgram {
        /// The program.
        name: &'static str,
    },
    /// The kernel has no overlays.
    #[error("this kernel has no file system overlay")]
    NoOverlay,
    /// Control groups cannot be made.
    #[error("hosts need control groups")]
    Cgroups(#[source] cgroups::CgroupsError),
    /// The root file system was not made.
    #[error("there is no root file system for hosts: run `testbed/hosts` as root")]
    NoBase,
    /// No cache folder is known.
    #[error("cannot find a cache folder: set HOME or GANTRY_CACHE")]
    NoCache,
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file cannot be written.
    #[error("could not write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program did not start.
    #[error("could not start {name}")]
    Start {
        /// The program.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A program failed.
    #[error("{name} failed: {messages}")]
    Failed {
        /// The program.
        name: &'static str,
        /// What it printed.
        messages: String,
    },
    /// A host did not boot.
    #[error("{name} did not boot: {why}\n{tails}")]
    Boot {
        /// The host.
        name: &'static str,
        /// Why.
        why: String,
        /// The ends of the logs.
        tails: String,
    },
}

impl HostsError {
    /// Whether something is missing on this machine, for which tests are skipped.
    #[must_use]
    pub fn is_requirement(&self) -> bool {
        match self {
            Self::NotRoot
            | Self::NoProgram { .. }
            | Self::NoOverlay
            | Self::Cgroups(_)
            | Self::NoBase
            | Self::NoCache => true,
            Self::Run(_)
            | Self::File { .. }
            | Self::Start { .. }
            | Self::Failed { .. }
            | Self::Boot { .. } => false,
        }
    }
}
