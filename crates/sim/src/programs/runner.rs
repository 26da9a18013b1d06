//! Starts and stops programs as the pods' kubelet reports that their containers run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, FactChange, FactKind, Key, Kind, Observer, Uid, World};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::driver::DriverContainer;
use super::files::{self, PodFiles};
use super::program_spec::{self, DesiredState, DueProgram, ProgramSpec};
use super::run::{ProgramRun, RunSignal};
use super::{Accounts, Binary, Mounts, PodNetwork, ProgramRecorder, ProgramRegistry};
use crate::image::{ImageFiles, RootFiles};
use crate::kernel::{KernelAccess, NodeKernels, boot_time};
use crate::kubelet::Settings;
use crate::pod_config::{Unresolved, sources_of};
use crate::view::{ContainerKey, Node, Pod, ProbeResult, Program, ProgramState, SourceObject};

/// Returns the observer of pods, and the runner of their programs.
#[must_use]
pub fn programs(registry: ProgramRegistry, settings: Settings) -> (ProgramObserver, ProgramRunner) {
    let changed = Arc::new(ChangedPods::default());
    let observer = ProgramObserver { settings, changed, kernels: NodeKernels::default() };
    let live = BTreeMap::new();
    let runner = ProgramRunner {
        registry,
        observer: observer.clone(),
        running: live,
        files: BTreeMap::new(),
        next_registration: Arc::default(),
    };
    (observer, runner)
}

/// What the host provides to programs.
#[derive(Clone)]
pub struct ProgramHost {
    /// Records the states of programs.
    pub facts: Arc<dyn ProgramRecorder>,
    /// The service accounts of pods; without them programs have no access to the API server.
    pub accounts: Option<Arc<dyn Accounts>>,
    /// The directory of the files of pods; without it they have none. Its content is removed first.
    pub directory: Option<PathBuf>,
    /// The network of pods.
    pub network: PodNetwork,
    /// The images whose files are read; without them no driver container starts.
    pub images: Option<Arc<dyn ImageFiles>>,
}

impl ProgramHost {
    /// Creates a host that provides only addresses to programs.
    #[must_use]
    pub fn new(facts: Arc<dyn ProgramRecorder>) -> Self {
        let network = PodNetwork::default();
        Self { facts, accounts: None, directory: None, network, images: None }
    }
}

impl fmt::Debug for ProgramHost {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Site({:?})", self.directory)
    }
}

/// The variables of a program.
type Environment = Arc<BTreeMap<String, String>>;

/// The pods whose programs may have to be started or stopped: at most as many as there are pods.
#[derive(Debug, Default)]
struct ChangedPods {
    pods: Mutex<BTreeSet<Key>>,
    notify: Notify,
    /// The environments that programs were started with, by pod and container.
    environments: Mutex<BTreeMap<(String, String), Environment>>,
    /// The volumes that programs were started with, likewise.
    files: Mutex<BTreeMap<(String, String), Mounts>>,
    /// The images that programs were started with, likewise.
    roots: Mutex<BTreeMap<(String, String), RootFiles>>,
}

impl ChangedPods {
    fn add(&self, pods: impl IntoIterator<Item = Key>) {
        // No foreign code runs under the lock, so a poisoned one is still consistent.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).extend(pods);
        self.notify.notify_one();
    }

    fn drain(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Observes pods, nodes and the states of programs, and notifies the runner of pods with programs.
#[derive(Clone, Debug)]
pub struct ProgramObserver {
    settings: Settings,
    changed: Arc<ChangedPods>,
    kernels: NodeKernels,
}

impl ProgramObserver {
    /// Returns the variables that the program of a container was last started with, by the UID of
    /// its pod.
    #[must_use]
    pub fn environment(&self, uid: &str, container: &str) -> Option<Arc<BTreeMap<String, String>>> {
        let known = self.changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid.to_owned(), container.to_owned())).cloned()
    }

    /// Returns the volumes of that program; empty where it was not started.
    #[must_use]
    pub fn files(&self, uid: &str, container: &str) -> Mounts {
        let known = self.changed.files.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid.to_owned(), container.to_owned())).cloned().unwrap_or_default()
    }

    /// Returns the files of that program's image; empty where they are not read.
    #[must_use]
    pub fn root(&self, uid: &str, container: &str) -> RootFiles {
        let known = self.changed.roots.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid.to_owned(), container.to_owned())).cloned().unwrap_or_default()
    }

    /// Returns the kernel of a node for a container; `None` while the node's annotations cannot be
    /// read.
    #[must_use]
    pub fn kernel(&self, node: &Node, may_load_modules: bool) -> Option<KernelAccess> {
        let kernel = self.kernels.of(node)?;
        Some(KernelAccess { kernel, may_load_modules })
    }

    fn has_programs(&self, pod: &Pod) -> bool {
        self.settings.has_programs(pod)
    }
}

impl Observer for ProgramObserver {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn observe(&self, world: &World, change: &Change) {
        if change.is::<Pod>() {
            if change.both::<Pod>().any(|it| self.has_programs(it)) {
                self.changed.add([change.key.clone()]);
            }
            return;
        }
        if change.is_removal() {
            self.kernels.forget(change.key.name());
        }
        let up = |it: &Node| (self.settings.runs_pods(it), boot_time(it));
        if change.before::<Node>().map(up) != change.after::<Node>().map(up) {
            let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
            let pods = pods.iter().filter(|it| self.has_programs(it));
            self.changed.add(pods.map(|it| it.metadata.key()));
        }
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![
            FactKind::of::<Program>(),
            FactKind::of::<ProbeResult>(),
            FactKind::of::<SourceObject>(),
        ]
    }

    fn observe_fact(&self, world: &World, change: &FactChange) {
        if let Some(source) = change.of::<SourceObject>().filter(|it| it.is_significant()) {
            let pods = world.store::<Pod>().in_namespace(&source.subject.namespace);
            let naming = pods
                .iter()
                .filter(|it| self.has_programs(it) && sources_of(it).contains(source.subject));
            self.changed.add(naming.map(|it| it.metadata.key()));
        }
        if let Some(program) = change.of::<Program>().filter(|it| it.is_significant()) {
            self.changed.add([program.subject.pod.clone()]);
        }
        if let Some(probe) = change.of::<ProbeResult>().filter(|it| it.is_significant()) {
            self.changed.add([probe.subject.container.pod.clone()]);
        }
    }
}

/// Runs programs.
#[derive(Debug)]
pub struct ProgramRunner {
    registry: ProgramRegistry,
    observer: ProgramObserver,
    running: BTreeMap<ContainerKey, RunningProgram>,
    /// The files of each pod, by its UID.
    files: BTreeMap<Uid, Arc<PodFiles>>,
    /// The number of the next registration of a device plugin.
    next_registration: Arc<AtomicU64>,
}

/// A program that was started.
#[derive(Debug)]
struct RunningProgram {
    uid: Uid,
    run: i64,
    signal: watch::Sender<RunSignal>,
    /// Cancelled when the program has ended.
    ended: CancellationToken,
    /// Whether nothing is recorded about it any more: its pod is gone, or its node has no power.
    silent: Arc<Mutex<bool>>,
}

impl RunningProgram {
    /// Ensures that nothing is recorded about the program any more, and removes what was.
    fn stop_recording(&self, key: &ContainerKey, facts: &dyn ProgramRecorder) {
        // While nothing can be recorded.
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        *silent = true;
        facts.forget(key);
    }

    fn send_signal(&self, order: RunSignal) {
        self.signal.send_if_modified(|now| {
            let next = order.escalated_from(*now);
            let differs = next != *now;
            *now = next;
            differs
        });
    }
}

impl ProgramRunner {
    /// Starts and stops programs until the token of `tasks` is cancelled; then all of them stop.
    pub async fn run(mut self, mut tasks: Tasks, world: Arc<World>, host: ProgramHost) {
        let (stop, changed) = (tasks.token().clone(), Arc::clone(&self.observer.changed));
        let facts = Arc::clone(&host.facts);
        self.observer
            .kernels
            .set_observer(Box::new(move |node, state| facts.record_kernel(node, state)));
        let host = with_clean_directory(host).await;
        loop {
            for pod in changed.drain() {
                self.sync_pod(&pod, &world, &mut tasks, &host);
            }
            tokio::select! {
                biased;
                // Each may be dropped: a notification is kept, and joining loses nothing.
                () = stop.cancelled() => break,
                _ = tasks.join(), if !tasks.is_empty() => {}
                () = changed.notify.notified() => {}
            }
        }
        self.files.clear();
        tasks.token().cancel();
        // Other programs keep running when one of them panics.
        while tasks.join().await.is_err() {}
    }

    /// Stops the programs of a pod that are not to run any more, starts those that are, and updates
    /// its files.
    fn sync_pod(&mut self, pod: &Key, world: &World, tasks: &mut Tasks, host: &ProgramHost) {
        let clock = tasks.clock().clone();
        let settings = &self.observer.settings;
        let mut gone = Vec::new();
        for (key, live) in self.running.iter().filter(|(key, _)| key.pod == *pod) {
            let fate = program_spec::desired_state(settings, world, key, (&live.uid, live.run));
            match fate {
                DesiredState::Run => {}
                DesiredState::Stop(grace) => {
                    live.send_signal(RunSignal::Stop(clock.moment() + grace));
                }
                DesiredState::Kill => live.send_signal(RunSignal::Kill),
                DesiredState::PowerLoss | DesiredState::PodDeleted => {
                    live.stop_recording(key, host.facts.as_ref());
                    live.send_signal(RunSignal::Kill);
                    gone.push((key.clone(), live.uid.clone(), fate));
                }
            }
        }
        let mounted = |uid: &Uid| self.files.get(uid).map(|it| it.volumes());
        for due in program_spec::due_programs(settings, world, pod, mounted) {
            let key = ContainerKey::new(pod, &due.container);
            let before = self.running.get(&key);
            let is_same = |it: &&RunningProgram| it.uid == due.uid && it.run == due.run;
            let is_lost = gone.iter().any(|(it, ..)| *it == key);
            if before.as_ref().is_some_and(is_same) && !is_lost {
                continue;
            }
            let before = before.map(|it| it.ended.clone());
            let live = self.start(pod, due, before, tasks, host);
            if let Some(live) = live {
                gone.retain(|(it, ..)| *it != key);
                self.running.insert(key, live);
            }
        }
        for (key, uid, fate) in gone {
            self.running.remove(&key);
            if fate == DesiredState::PodDeleted {
                self.forget_pod(&uid);
            }
        }
        self.refresh_files(pod, world);
    }

    /// Forgets a pod that is gone. Its files are removed when its last program has ended.
    fn forget_pod(&mut self, uid: &Uid) {
        self.files.remove(uid);
        let changed = &self.observer.changed;
        let mut known = changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != uid.as_str());
        drop(known);
        let mut known = changed.files.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != uid.as_str());
        drop(known);
        let mut known = changed.roots.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != uid.as_str());
    }

    /// Updates the files of programs from the changed objects of their volumes. While an object
    /// cannot be read or is missing, its files stay as they are.
    fn refresh_files(&self, pod: &Key, world: &World) {
        let Some(pod) = world.store::<Pod>().get(pod) else { return };
        let Some(files) = self.files.get(&pod.metadata.uid) else { return };
        if let Ok(volumes) = program_spec::volumes(&self.observer.settings, world, &pod) {
            files.set_volumes(volumes);
        }
    }

    fn start(
        &mut self,
        pod: &Key,
        due: DueProgram,
        before: Option<CancellationToken>,
        tasks: &mut Tasks,
        host: &ProgramHost,
    ) -> Option<RunningProgram> {
        let DueProgram { container, uid, run, spec: with } = due;
        let (order, orders) = watch::channel(RunSignal::Run);
        let ended = CancellationToken::new();
        let silent = Arc::<Mutex<bool>>::default();
        let live = RunningProgram {
            uid: uid.clone(),
            run,
            signal: order,
            ended: ended.clone(),
            silent: Arc::clone(&silent),
        };
        let prepared = match with {
            // Its objects were not read yet: the next fact about them causes another sync.
            Err(Unresolved::Pending) => return None,
            Err(Unresolved::Invalid(message)) => Err(message),
            Ok(want) => self.files_of(&want, tasks, host).map(|files| (want, files)),
        };
        let (want, files) = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                let at = tasks.clock().now();
                let state = ProgramState::Exited { code: 128, at, message };
                let program = Program { uid, run, state, failed_hook: None };
                host.facts.record(ContainerKey::new(pod, &container), program);
                ended.cancel();
                return Some(live);
            }
        };
        let binary: Arc<dyn Binary> = match self.registry.find(&want.image) {
            Some(binary) => Arc::clone(binary),
            None if want.pull.is_some() => Arc::new(DriverContainer),
            None => return None,
        };
        let node = want.node.as_deref();
        let kernel = node.and_then(|it| self.observer.kernel(it, want.may_load_modules));
        let environment = Arc::new(want.environment.clone());
        let changed = &self.observer.changed;
        let mut known = changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((uid.to_string(), container), environment);
        drop(known);
        let own = tasks.child();
        let (changed, started) = (Arc::clone(changed), (uid.to_string(), want.container.clone()));
        let show_files = Box::new(move |mounts: &Mounts, root: &RootFiles| {
            let mut known = changed.files.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(started.clone(), mounts.clone());
            drop(known);
            let mut known = changed.roots.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(started, root.clone());
        });
        let (want, host) = (*want, host.clone());
        let run = ProgramRun {
            spec: want,
            binary,
            host,
            files,
            kernel,
            signal: orders,
            silent,
            next_registration: Arc::clone(&self.next_registration),
            show_files,
        };
        tasks.spawn("program", OnLoss::CarryOn, move |_| async move {
            // However the program ends, the next run of the container may bind its address.
            let _ended = ended.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            run.run(own).await;
            Ok(())
        });
        Some(live)
    }

    /// Returns the files of a pod, which are created with its first program.
    fn files_of(
        &mut self,
        want: &ProgramSpec,
        tasks: &mut Tasks,
        host: &ProgramHost,
    ) -> Result<Option<Arc<PodFiles>>, String> {
        let Some(base) = &host.directory else { return Ok(None) };
        let uid = &want.identity.uid;
        if let Some(files) = self.files.get(uid) {
            return Ok(Some(Arc::clone(files)));
        }
        let accounts = host.accounts.clone();
        let volumes = Arc::clone(&want.volumes);
        let (files, keeper) = files::pod_files(base, want.identity.clone(), volumes, accounts)?;
        let (files, clock) = (Arc::new(files), tasks.clock().clone());
        self.files.insert(uid.clone(), Arc::clone(&files));
        tasks.spawn("files of a pod", OnLoss::CarryOn, move |stop| async move {
            keeper.run(&clock, stop).await;
            Ok(())
        });
        Ok(Some(files))
    }
}

/// Returns the host with an empty directory. Without a directory, programs have no files, which
/// they report at start.
async fn with_clean_directory(mut host: ProgramHost) -> ProgramHost {
    if let Some(directory) = host.directory.clone() {
        let named = directory.display().to_string();
        let done = tokio::task::spawn_blocking(move || files::remove_stale(&directory)).await;
        let failed = match done {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failed {
            tracing::warn!(
                directory = named,
                error,
                "programs have no files: could not use their directory"
            );
            host.directory = None;
        }
    }
    host
}
