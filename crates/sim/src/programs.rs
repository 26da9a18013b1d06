//! Programs that really run: the content of the containers of Gantry's own images.
//!
//! A container whose image is in the [`ProgramRegistry`] is a program in this process, which
//! listens on the pod's own address in 127.0.0.0/8. A [`ProgramObserver`] observes pods: when their
//! kubelet reports that such a container runs, the [`ProgramRunner`] starts the program; when the
//! container is to stop, it stops the program. The state of a program is a fact
//! ([`crate::view::Program`]) by which the kubelet updates the pod's status. So a
//! program that exits with a code looks like any container that does.
//!
//! A program has what its container would have: variables, files of volumes ([`Mounts`]), probes,
//! hooks, a termination message, and access to the API server as its pod's service account
//! ([`PodApi`]). Probes and hooks reach the program's own pod and no other host.
//!
//! A container that may load kernel modules and whose image is pulled
//! ([`Settings::registries`](crate::kubelet::Settings::registries)) is a program, too: its command
//! and its hooks run in the simulated shell with the image's files and the node's
//! [kernel](crate::kernel).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_process::tasks::Tasks;
use gantry_reconcile::Key;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::kernel::KernelState;
use crate::shell::ShellContext;
use crate::view;

mod account;
pub(crate) mod action;
mod child;
mod container_files;
mod device_plugin;
mod driver;
mod echo;
mod files;
mod mounts;
mod network;
mod probe;
mod program_spec;
mod run;
mod runner;

pub use account::{Accounts, ApiBody, PodApi, PodIdentity, Token};
pub use child::ChildProcess;
pub use device_plugin::{DevicePlugin, DevicePluginSocket, DeviceRegistration};
pub use echo::Echo;
pub use mounts::Mounts;
pub use network::{BoxFuture, Dial, Duplex, PodListener, PodNetwork};
pub use runner::{ProgramHost, ProgramObserver, ProgramRunner, programs};

/// The implementation of an image.
pub trait Binary: Send + Sync + fmt::Debug {
    /// Runs until it is done or the token of `tasks` is cancelled, and returns its exit code.
    /// Everything it starts is one of `tasks`, and is joined before it ends. It is dropped, and
    /// with it its tasks, when it does not end in time or its node loses power.
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>>;
}

/// The environment of a program.
pub struct ProgramContext {
    /// Its pod.
    pub pod: Key,
    /// The UID of its pod.
    pub uid: String,
    /// Its container.
    pub container: String,
    /// Its node.
    pub node: String,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// The program that its container names; `None` when it is the image's own.
    pub program: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// The address it listens on: the pod's own.
    pub address: Ipv4Addr,
    /// The ports of its container.
    pub ports: Vec<u16>,
    /// The devices that were allocated to its pod when it started.
    pub devices: Vec<AllocatedDevice>,
    /// The whole units of extended resources that its container has, by name.
    pub extended_resources: BTreeMap<String, i64>,
    /// Where its volumes are on this machine.
    pub mounts: Mounts,
    /// The directory of its pod on this machine, if there is one.
    pub directory: Option<PathBuf>,
    /// Listens and dials without sockets.
    pub network: PodNetwork,
    /// Access to the API server as the pod's service account, if there is one.
    pub api: Option<Box<dyn PodApi>>,
    /// Called when the program becomes ready or unready; the container is ready accordingly.
    pub set_ready: Box<dyn Fn(bool) + Send + Sync>,
    /// Called with its output, a line or more.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
    /// Its termination message.
    pub termination_message: TerminationMessage,
    /// The simulated shell of its container.
    pub shell: Option<ShellContext>,
    /// Where it registers devices, if its container mounts the directory of the kubelet's socket.
    pub device_plugins: Option<DevicePluginSocket>,
}

/// A device that is allocated to a container, by a ResourceClaim or by a DeviceClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedDevice {
    /// The claim: a ResourceClaim by its name in the pod, a DeviceClaim by its own.
    pub claim: String,
    /// The request of a ResourceClaim.
    #[serde(default)]
    pub request: String,
    /// The driver of the device; `None` if its pool is gone.
    pub driver: Option<String>,
    /// The pool it is in.
    pub pool: String,
    /// The device; empty for a pool of identical ones.
    #[serde(default)]
    pub device: String,
    /// How many of a pool of identical ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
}

impl ProgramContext {
    /// Creates a minimal context for tests: a pod, a container and an address.
    #[must_use]
    pub fn minimal(pod: Key, container: &str, address: Ipv4Addr) -> Self {
        Self {
            pod,
            uid: String::new(),
            container: container.to_owned(),
            node: String::new(),
            environment: BTreeMap::new(),
            program: None,
            args: Vec::new(),
            address,
            ports: Vec::new(),
            devices: Vec::new(),
            extended_resources: BTreeMap::new(),
            mounts: Mounts::default(),
            directory: None,
            network: PodNetwork::default(),
            api: None,
            set_ready: Box::new(|_| {}),
            log: Box::new(|_| {}),
            termination_message: TerminationMessage::default(),
            shell: None,
            device_plugins: None,
        }
    }
}

impl fmt::Debug for ProgramContext {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Setting({} of {} at {})", self.container, self.pod, self.address)
    }
}

/// The termination message of a container: `status.containerStatuses[].state.terminated.message`.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TerminationMessage(Arc<Mutex<String>>);

impl TerminationMessage {
    /// The most bytes that are kept.
    pub const MAX_BYTES: usize = 4096;

    /// Sets the message; what is too long is cut off.
    pub fn set(&self, text: &str) {
        let text = truncate(text, Self::MAX_BYTES).to_owned();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the beginning of a text, at most this many bytes.
fn truncate(text: &str, most_bytes: usize) -> &str {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Records the states and the output of programs.
pub trait ProgramRecorder: Send + Sync {
    /// Records the state of a program.
    fn record(&self, container: view::ContainerKey, program: view::Program);
    /// Removes the state and the probe results of a program whose pod is gone or whose node has no
    /// power.
    fn forget(&self, container: &view::ContainerKey);
    /// Records the result of a probe.
    fn record_probe(&self, probe: view::ProbeKey, result: view::ProbeResult);
    /// Records the state of a node's kernel after it changed; `None` when the node is gone.
    fn record_kernel(&self, node: &str, state: Option<KernelState>);
    /// Records the devices of a registration; `None` when it has ended.
    fn record_devices(
        &self,
        registration: view::DevicePluginKey,
        devices: Option<view::RegisteredDevices>,
    );
    /// Records that a run of a container started.
    fn run_started(&self, uid: &str, container: &str, now: Timestamp);
    /// Appends to the log of a container.
    fn append_log(&self, uid: &str, container: &str, now: Timestamp, text: &str);
    /// Records that a run of a container ended.
    fn run_ended(&self, uid: &str, container: &str);
}

/// The programs by image.
#[derive(Clone, Debug, Default)]
pub struct ProgramRegistry(BTreeMap<String, Arc<dyn Binary>>);

impl ProgramRegistry {
    /// Returns the programs Gantry comes with.
    #[must_use]
    pub fn built_in() -> Self {
        Self::default().with("gantry.dev/echo", Echo).with("gantry.dev/device-plugin", DevicePlugin)
    }

    /// Returns the same registry with one more program. The image is named without a tag: every tag
    /// is the same program.
    #[must_use]
    pub fn with(mut self, image: &str, binary: impl Binary + 'static) -> Self {
        self.0.insert(image.to_owned(), Arc::new(binary));
        self
    }

    /// Returns the images, for [`kubelet::Settings`](crate::kubelet::Settings).
    #[must_use]
    pub fn images(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    fn find(&self, image: &str) -> Option<&Arc<dyn Binary>> {
        self.0.get(repository(image))
    }
}

/// Returns an image without its tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    let tag = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    &image[..tag.unwrap_or(image.len())]
}

#[cfg(test)]
mod tests;
