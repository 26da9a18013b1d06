//! The programs of simulated pods: what they are run with, and who answers for them.
//!
//! `gantry up` and the simulation of the operator differ in how the API server is reached and in nothing
//! else.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::kubelet::{self, SourcePolicy};
use crate::logs::Logs;
use crate::pod_config::{ApiServer, PodSources};
use crate::programs::{
    Accounts, Facts, PodNetwork, ProgramObserver, ProgramRunner, Registry, Site,
};
use crate::view::{ContainerKey, ProbeKey, ProbeKind, ProbeResult, Program};
use gantry_controller::outside::Asks;
use gantry_controller::{Handle, Outside};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use jiff::Timestamp;

mod accounts;
mod sources;

pub use accounts::{PodAccounts, Transport, over_network};
use sources::SourceReader;

/// The programs of simulated pods, before they run.
#[derive(Debug)]
pub struct Programs {
    kubelet: kubelet::Settings,
    observer: ProgramObserver,
    runner: ProgramRunner,
}

impl Programs {
    /// The programs Gantry comes with, on nodes that are simulated like this.
    #[must_use]
    pub fn new(profile: kubelet::Profile, api_server: Option<ApiServer>) -> Self {
        let registry = Registry::own();
        let kubelet = kubelet::Settings {
            profile,
            programs: Arc::new(registry.images()),
            sources: SourcePolicy::Read,
            api_server,
            ..kubelet::Settings::default()
        };
        let (observer, runner) = crate::programs::programs(registry, kubelet.clone());
        Self { kubelet, observer, runner }
    }

    /// How the nodes are simulated on which they run.
    #[must_use]
    pub fn kubelet(&self) -> &kubelet::Settings {
        &self.kubelet
    }

    /// What follows their pods.
    #[must_use]
    pub fn observer(&self) -> &ProgramObserver {
        &self.observer
    }

    /// Has their pods followed, and the ConfigMaps and Secrets that pods name read by `client`.
    pub fn follow(&self, outside: &mut Outside, client: kube::Client, clock: &Clock) {
        outside.observers.push(Arc::new(self.observer.clone()));
        let reader = SourceReader { client, clock: clock.clone() };
        let asks = Asks::new(PodSources::new(self.kubelet.clone()), reader);
        outside.inquiries.push(Arc::new(asks));
    }

    /// Runs them as soon as this process may act, until `tasks` stop.
    /// `client` asks for their tokens.
    pub fn spawn(
        self,
        tasks: &mut Tasks,
        handle: &Handle,
        runtime: PodRuntime,
        client: kube::Client,
    ) {
        let PodRuntime { transport, logs, directory, network, .. } = runtime;
        let clock = tasks.clock().clone();
        let accounts = transport
            .map(|it| -> Arc<dyn Accounts> { Arc::new(PodAccounts::new(client, clock, it)) });
        let (directory, scratch) = match directory {
            Some(directory) => (Some(directory), None),
            None => {
                let scratch = tempfile::Builder::new().prefix("gantry-pods-").tempdir();
                let scratch = scratch.inspect_err(|error| {
                    tracing::warn!(%error, "programs in simulated pods have no files: mount an emptyDir at /tmp");
                });
                let scratch = scratch.ok();
                (scratch.as_ref().map(|it| it.path().join("pods")), scratch)
            }
        };
        let facts = ProgramFacts { handle: handle.clone(), logs, clock: tasks.clock().clone() };
        let facts: Arc<dyn Facts> = Arc::new(facts);
        let site = Site { facts, accounts, directory, network };
        let (inner, world) = (tasks.child(), Arc::clone(handle.world()));
        let (permit, runner) = (handle.permit().clone(), self.runner);
        tasks.spawn("programs", OnLoss::EndOwner, |stop| async move {
            // Two processes that both run a pod's programs would both be that pod.
            let leads = tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = stop.cancelled() => false,
                granted = permit.granted() => granted.is_ok(),
            };
            if leads {
                runner.run(inner, world, site).await;
            }
            drop(scratch);
            Ok(())
        });
    }
}

/// What a host gives the programs in simulated pods. Clones are the same one.
#[derive(Clone)]
pub struct PodRuntime {
    /// How long things take in pods.
    pub profile: kubelet::Profile,
    /// Where pods reach the API server.
    pub api_server: Option<ApiServer>,
    /// How requests with tokens of pods get to the API server; without it programs have no client.
    pub transport: Option<Transport>,
    /// Where what programs say is kept.
    pub logs: Logs,
    /// Where the files of pods are. Without it they are in a temporary directory.
    pub directory: Option<PathBuf>,
    /// The network of pods.
    pub network: PodNetwork,
    /// What follows the programs of pods, once that is started.
    pub observer: Arc<OnceLock<ProgramObserver>>,
}

impl PodRuntime {
    /// Without an API server and a directory of its own.
    #[must_use]
    pub fn new(profile: kubelet::Profile, logs: Logs) -> Self {
        Self {
            profile,
            api_server: None,
            transport: None,
            logs,
            directory: None,
            network: PodNetwork::default(),
            observer: Arc::default(),
        }
    }
}

impl std::fmt::Debug for PodRuntime {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "PodRuntime({:?})", self.directory)
    }
}

/// Records facts, and adds to logs.
#[derive(Debug)]
struct ProgramFacts {
    handle: Handle,
    logs: Logs,
    clock: Clock,
}

impl Facts for ProgramFacts {
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

    // Logs begin and end with what is said of the container, as those of simulated ones do.
    fn begins(&self, _: &str, _: &str, _: Timestamp) {}

    fn says(&self, uid: &str, container: &str, now: Timestamp, text: &str) {
        self.logs.append(uid, container, now, text);
    }

    fn ends(&self, _: &str, _: &str) {}
}
