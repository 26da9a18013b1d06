//! Wires the programs of simulated pods: what they are run with, and who answers for them.
//!
//! `gantry up` and the simulation of the operator differ in how the API server is reached and in nothing
//! else.

use std::path::PathBuf;
use std::sync::Arc;

use gantry_controller::outside::Asks;
use gantry_controller::{Handle, Outside};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_sim::kubelet::{self, SourcePolicy};
use gantry_sim::logs::Logs;
use gantry_sim::pod_config::{ApiServer, PodSources};
use gantry_sim::programs::{
    Accounts, Facts, PodNetwork, ProgramObserver, ProgramRunner, Registry, Site,
};
use gantry_sim::view::{ContainerKey, ProbeKey, ProbeKind, ProbeResult, Program};
use jiff::Timestamp;

mod accounts;
mod sources;

pub use accounts::{PodAccounts, Transport, in_process, over_network};
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
        let (observer, runner) = gantry_sim::programs::programs(registry, kubelet.clone());
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
    pub fn spawn(self, tasks: &mut Tasks, handle: &Handle, around: Around) {
        let Around { logs, accounts, directory, scratch, network } = around;
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

/// What programs are run with.
pub struct Around {
    /// Where what they say is kept.
    pub logs: Logs,
    /// Who they are to the API server.
    pub accounts: Option<Arc<dyn Accounts>>,
    /// Where the files of their pods are.
    pub directory: Option<PathBuf>,
    /// A directory around that one, which is removed when they have ended.
    pub scratch: Option<tempfile::TempDir>,
    /// The network of pods.
    pub network: PodNetwork,
}

impl std::fmt::Debug for Around {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Around({:?})", self.directory)
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
