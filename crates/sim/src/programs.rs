//! Programs that really run: what is inside the containers of Gantry's own images.
//!
//! A container whose image is in the [`Registry`] is a program in this process, which listens on the
//! pod's own address in 127.0.0.0/8. A [`ProgramObserver`] follows pods: when their kubelet says that such
//! a container runs, the [`ProgramRunner`] starts the program; when the container is to stop, it stops the
//! program. What becomes of a program is a fact
//! ([`view::Program`](crate::view::Program)) by which the kubelet decides what to say next. So a
//! program that ends with a code is seen like any container that does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use gantry_process::tasks::Tasks;
use gantry_reconcile::Key;
use jiff::Timestamp;

use crate::view;

mod echo;
mod runner;

pub use echo::Echo;
pub use runner::{ProgramObserver, ProgramRunner, programs};

/// What an image does when it runs.
pub trait Binary: Send + Sync + fmt::Debug {
    /// Runs until it is done or the token of `tasks` is cancelled, and answers with its exit code.
    /// Whatever it starts is one of `tasks`, and is joined before it ends.
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
    /// Its environment, as far as the pod writes it out.
    pub environment: BTreeMap<String, String>,
    /// What it is told.
    pub args: Vec<String>,
    /// Where it listens: the pod's own address.
    pub address: Ipv4Addr,
    /// The ports its container names.
    pub ports: Vec<u16>,
    /// Called once it does its work: the container is ready then.
    pub ready: Box<dyn Fn() + Send + Sync>,
    /// Called with what it says, a line or more.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Setting {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Setting({} of {} at {})", self.container, self.pod, self.address)
    }
}

/// Where it is recorded what becomes of programs and what they say.
pub trait Facts: Send + Sync {
    /// Records what became of a program.
    fn record(&self, container: view::ContainerKey, program: view::Program);
    /// Forgets a program whose pod is gone.
    fn forget(&self, container: &view::ContainerKey);
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
