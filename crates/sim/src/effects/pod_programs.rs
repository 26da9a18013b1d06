//! Runs the programs of simulated pods.
//!
//! `gantry up` and the simulation of the operator differ in how the API server is reached and in
//! nothing else.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::image::{ImageFiles, ImagePull, PodImageInquiry};
use crate::kernel::KernelState;
use crate::kubelet::{self, SourcePolicy};
use crate::logs::Logs;
use crate::pod_config::{ApiServer, PodSourceInquiry};
use crate::programs::{
    Accounts, PodNetwork, ProgramHost, ProgramObserver, ProgramRecorder, ProgramRegistry,
    ProgramRunner,
};
use crate::view::{
    ContainerKey, DevicePluginKey, ProbeKey, ProbeKind, ProbeResult, Program, PulledImage,
    RegisteredDevices,
};
use gantry_controller::external::{BoxFuture, InquiryWithResponder, Responder, ResponderContext};
use gantry_controller::{ExternalSystems, ManagerHandle};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::Key;
use jiff::Timestamp;

mod accounts;
mod sources;

pub use accounts::{PodAccounts, Transport, over_network};
use sources::SourceReader;

/// The programs of simulated pods, before they are started.
#[derive(Debug)]
pub struct PodPrograms {
    kubelet: kubelet::Settings,
    observer: ProgramObserver,
    runner: ProgramRunner,
}

impl PodPrograms {
    /// Creates the programs of a runtime, for its nodes.
    #[must_use]
    pub fn new(runtime: &PodRuntime) -> Self {
        let registry = runtime.programs.clone();
        let kubelet = kubelet::Settings {
            profile: runtime.profile,
            programs: Arc::new(registry.images()),
            registries: Arc::new(match &runtime.images {
                Some(images) => images.registries.clone(),
                None => BTreeSet::new(),
            }),
            sources: SourcePolicy::Read,
            api_server: runtime.api_server.clone(),
            ..kubelet::Settings::default()
        };
        let (observer, runner) = crate::programs::programs(registry, kubelet.clone());
        Self { kubelet, observer, runner }
    }

    /// Returns the settings of the simulated nodes the programs run on.
    #[must_use]
    pub fn kubelet(&self) -> &kubelet::Settings {
        &self.kubelet
    }

    /// Returns the observer of their pods.
    #[must_use]
    pub fn observer(&self) -> &ProgramObserver {
        &self.observer
    }

    /// Registers the observers of the pods, of the ConfigMaps and Secrets that pods reference,
    /// which `client` reads, and of images that are pulled.
    pub fn register_observers(
        &self,
        outside: &mut ExternalSystems,
        client: kube::Client,
        clock: &Clock,
        images: Option<&PulledImages>,
    ) {
        outside.observers.push(Arc::new(self.observer.clone()));
        let reader = SourceReader { client, clock: clock.clone() };
        let asks = InquiryWithResponder::new(PodSourceInquiry::new(self.kubelet.clone()), reader);
        outside.inquiries.push(Arc::new(asks));
        if let Some(images) = images {
            let puller = ImagePuller { images: Arc::clone(&images.files) };
            let asks = PodImageInquiry::new(self.kubelet.clone());
            outside.inquiries.push(Arc::new(InquiryWithResponder::new(asks, puller)));
        }
    }

    /// Runs the programs as soon as this process leads, until `tasks` stop. `client` requests their
    /// tokens.
    pub fn spawn(
        self,
        tasks: &mut Tasks,
        handle: &ManagerHandle,
        runtime: PodRuntime,
        client: kube::Client,
    ) {
        let PodRuntime { transport, logs, directory, network, images, .. } = runtime;
        let clock = tasks.clock().clone();
        let accounts = transport
            .map(|it| -> Arc<dyn Accounts> { Arc::new(PodAccounts::new(client, clock, it)) });
        let (directory, scratch) = match directory {
            Some(directory) => (Some(directory), None),
            None => {
                let scratch = tempfile::Builder::new().prefix("gantry-pods-").tempdir();
                let scratch = scratch.inspect_err(|error| {
                    tracing::warn!(%error, "programs in simulated pods have no files: mount an \
                                            emptyDir at /tmp");
                });
                let scratch = scratch.ok();
                (scratch.as_ref().map(|it| it.path().join("pods")), scratch)
            }
        };
        let facts = ProgramFacts { handle: handle.clone(), logs, clock: tasks.clock().clone() };
        let facts: Arc<dyn ProgramRecorder> = Arc::new(facts);
        let images = images.map(|it| it.files);
        let host = ProgramHost { facts, accounts, directory, network, images };
        let (inner, world) = (tasks.child(), Arc::clone(handle.world()));
        let (permit, runner) = (handle.permit().clone(), self.runner);
        tasks.spawn("programs", OnLoss::EndOwner, |stop| async move {
            // Two processes that both run a pod's programs would both use its address.
            let leads = tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = stop.cancelled() => false,
                granted = permit.granted() => granted.is_ok(),
            };
            if leads {
                runner.run(inner, world, host).await;
            }
            drop(scratch);
            Ok(())
        });
    }
}

/// What the host provides to the programs in simulated pods. Clones share it.
#[derive(Clone)]
pub struct PodRuntime {
    /// How long the steps of a pod take.
    pub profile: kubelet::Profile,
    /// Where pods reach the API server.
    pub api_server: Option<ApiServer>,
    /// How requests with tokens of pods are sent to the API server; without it programs have no
    /// client.
    pub transport: Option<Transport>,
    /// Where the output of programs is kept.
    pub logs: Logs,
    /// Where the files of pods are. Without it they are in a temporary directory.
    pub directory: Option<PathBuf>,
    /// The network of pods.
    pub network: PodNetwork,
    /// The images that are pulled; nodes have all others.
    pub images: Option<PulledImages>,
    /// The programs, by image.
    pub programs: ProgramRegistry,
    /// The observer of the programs of pods, once they are started.
    pub observer: Arc<OnceLock<ProgramObserver>>,
}

/// The images of registries whose content can be read here.
#[derive(Clone, Debug)]
pub struct PulledImages {
    /// The registries, as images name them: `registry.example:5000`.
    pub registries: BTreeSet<String>,
    /// Opens the images.
    pub files: Arc<dyn ImageFiles>,
}

/// Pulls images.
struct ImagePuller {
    images: Arc<dyn ImageFiles>,
}

impl Responder<PulledImage> for ImagePuller {
    fn answer<'a>(
        &'a self,
        question: &'a ImagePull,
        _: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<PulledImage, String>> {
        Box::pin(async move {
            Ok(match self.images.resolve(question).await {
                Ok(digest) => PulledImage::Present { digest },
                Err(error) => PulledImage::Unavailable { message: error.message(&question.image) },
            })
        })
    }
}

impl PodRuntime {
    /// Creates a runtime with the built-in programs, without an API server and without its own
    /// directory.
    #[must_use]
    pub fn new(profile: kubelet::Profile, logs: Logs) -> Self {
        Self {
            profile,
            api_server: None,
            transport: None,
            logs,
            directory: None,
            network: PodNetwork::default(),
            images: None,
            programs: ProgramRegistry::built_in(),
            observer: Arc::default(),
        }
    }
}

impl std::fmt::Debug for PodRuntime {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "PodRuntime({:?})", self.directory)
    }
}

/// Records facts, and appends to logs.
#[derive(Debug)]
struct ProgramFacts {
    handle: ManagerHandle,
    logs: Logs,
    clock: Clock,
}

impl ProgramRecorder for ProgramFacts {
    fn record(&self, container: ContainerKey, program: Program) {
        self.handle.record(container, program, self.clock.now());
    }

    fn forget(&self, container: &ContainerKey) {
        for probe in ProbeKind::ALL {
            let key = ProbeKey { container: container.clone(), probe };
            self.handle.forget::<ProbeResult>(&key);
        }
        self.handle.forget::<Program>(container);
    }

    fn record_probe(&self, probe: ProbeKey, result: ProbeResult) {
        self.handle.record(probe, result, self.clock.now());
    }

    fn record_kernel(&self, node: &str, state: Option<KernelState>) {
        let node = Key::cluster(node);
        match state {
            Some(state) => self.handle.record(node, state, self.clock.now()),
            None => self.handle.forget::<KernelState>(&node),
        }
    }

    fn record_devices(&self, registration: DevicePluginKey, devices: Option<RegisteredDevices>) {
        match devices {
            Some(devices) => self.handle.record(registration, devices, self.clock.now()),
            None => self.handle.forget::<RegisteredDevices>(&registration),
        }
    }

    // The log observer writes the first and last lines, as for simulated containers.
    fn run_started(&self, _: &str, _: &str, _: Timestamp) {}

    fn append_log(&self, uid: &str, container: &str, now: Timestamp, text: &str) {
        self.logs.append(uid, container, now, text);
    }

    fn run_ended(&self, _: &str, _: &str) {}
}
