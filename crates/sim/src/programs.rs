//! Programs that really run: what is inside the containers of Gantry's own images.
//!
//! A container whose image is in the [`Registry`] is a program in this process, which listens on the
//! pod's own address in 127.0.0.0/8. A [`ProgramObserver`] follows pods: when their kubelet says that such
//! a container runs, the [`ProgramRunner`] starts the program; when the container is to stop, it stops the
//! program. What becomes of a program is a fact
//! ([`view::Program`](crate::view::Program)) by which the kubelet decides what to say next. So a
//! program that ends with a code is seen like any container that does.
//!
//! A program has what its container would have: variables, files of volumes ([`Mounts`]), probes, hooks, a
//! last message, and the API server in the name of its pod's account ([`PodApi`]). Probes and hooks reach
//! the program's own pod and nobody else.

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

use crate::view;

mod account;
pub(crate) mod action;
mod child;
mod echo;
mod files;
mod mounts;
mod network;
mod probe;
mod run;
mod runner;
mod wanted;

pub use account::{Accounts, ApiBody, PodApi, PodIdentity, Token};
pub use child::ChildProcess;
pub use echo::Echo;
pub use mounts::Mounts;
pub use network::{Dial, Duplex, Later, PodListener, PodNetwork};
pub use runner::{ProgramObserver, ProgramRunner, Site, programs};

/// What an image does when it runs.
pub trait Binary: Send + Sync + fmt::Debug {
    /// Runs until it is done or the token of `tasks` is cancelled, and answers with its exit code.
    /// Whatever it starts is one of `tasks`, and is joined before it ends. It is dropped, and with it its
    /// tasks, when it does not end in time or its node loses power.
    fn run(&self, setting: Setting, tasks: Tasks) -> Pin<Box<dyn Future<Output = u8> + Send>>;
}

/// What a program finds around it.
pub struct Setting {
    /// Its pod.
    pub pod: Key,
    /// The identity of its pod.
    pub uid: String,
    /// Its container.
    pub container: String,
    /// Its node.
    pub node: String,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// The program that its container names; none when it is the image's own.
    pub program: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it listens: the pod's own address.
    pub address: Ipv4Addr,
    /// The ports its container names.
    pub ports: Vec<u16>,
    /// The devices that its pod was given by ResourceClaims, when it started.
    pub devices: Vec<GivenDevice>,
    /// Where its volumes are on this machine.
    pub mounts: Mounts,
    /// The directory of its pod on this machine, if there is one.
    pub directory: Option<PathBuf>,
    /// Listens and dials without sockets.
    pub network: PodNetwork,
    /// The API server in the name of the pod's account, if there is one.
    pub api: Option<Box<dyn PodApi>>,
    /// Called when it can do its work, and when it cannot any more: the container is ready accordingly.
    pub set_ready: Box<dyn Fn(bool) + Send + Sync>,
    /// Called with what it says, a line or more.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
    /// Its last words.
    pub last_words: LastWords,
}

/// A device that a pod was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenDevice {
    /// The claim, by its name in the pod.
    pub claim: String,
    /// The request of the claim.
    pub request: String,
    /// Whose device it is.
    pub driver: String,
    /// The pool it is in.
    pub pool: String,
    /// The device.
    pub device: String,
}

impl Setting {
    /// Almost nothing: a pod, a container and an address. For tests of programs.
    #[must_use]
    pub fn bare(pod: Key, container: &str, address: Ipv4Addr) -> Self {
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
            mounts: Mounts::default(),
            directory: None,
            network: PodNetwork::default(),
            api: None,
            set_ready: Box::new(|_| {}),
            say: Box::new(|_| {}),
            last_words: LastWords::default(),
        }
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Setting({} of {} at {})", self.container, self.pod, self.address)
    }
}

/// What a container says last: `status.containerStatuses[].state.terminated.message`. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LastWords(Arc<Mutex<String>>);

impl LastWords {
    /// The most that is kept, in bytes.
    pub const MOST_BYTES: usize = 4096;

    /// Sets them; what is too long is cut off.
    pub fn set(&self, text: &str) {
        let text = cut(text, Self::MOST_BYTES).to_owned();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The beginning of a text, of so many bytes at most.
fn cut(text: &str, most_bytes: usize) -> &str {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Where it is recorded what becomes of programs and what they say.
pub trait Facts: Send + Sync {
    /// Records what became of a program.
    fn record(&self, container: view::ContainerKey, program: view::Program);
    /// Forgets a program whose pod is gone or whose node has no power, and what its probes found.
    fn forget(&self, container: &view::ContainerKey);
    /// Records what a probe found.
    fn record_probe(&self, probe: view::ProbeKey, result: view::ProbeResult);
    /// A run of a container begins.
    fn begins(&self, uid: &str, container: &str, now: Timestamp);
    /// A container says something.
    fn says(&self, uid: &str, container: &str, now: Timestamp, text: &str);
    /// A run of a container is over.
    fn ends(&self, uid: &str, container: &str);
}

/// Which images are programs.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<String, Arc<dyn Binary>>);

impl Registry {
    /// The programs Gantry comes with.
    #[must_use]
    pub fn own() -> Self {
        Self::default().with("gantry.dev/echo", Echo)
    }

    /// The same, and one more. The image is named without a tag: every tag is the same program.
    #[must_use]
    pub fn with(mut self, image: &str, binary: impl Binary + 'static) -> Self {
        self.0.insert(image.to_owned(), Arc::new(binary));
        self
    }

    /// The images, for [`kubelet::Settings`](crate::kubelet::Settings).
    #[must_use]
    pub fn images(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    fn find(&self, image: &str) -> Option<&Arc<dyn Binary>> {
        self.0.get(repository(image))
    }
}

/// An image without its tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    let tag = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    &image[..tag.unwrap_or(image.len())]
}

#[cfg(test)]
mod tests;
