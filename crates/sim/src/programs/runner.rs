//! Starts and stops programs as the pods' kubelet says that their containers run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, FactChange, FactKind, Key, Kind, Observer, Uid, World};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::files::{self, PodFiles};
use super::run::{Order, Run};
use super::wanted::{self, Due, Fate, Wanted};
use super::{Accounts, Facts, Mounts, PodNetwork, Registry};
use crate::kubelet::Settings;
use crate::pod_config::{Unresolved, sources_of};
use crate::view::{ContainerKey, Node, Pod, ProbeResult, Program, ProgramState, SourceObject};

/// What follows pods, and what runs their programs.
#[must_use]
pub fn programs(registry: Registry, settings: Settings) -> (ProgramObserver, ProgramRunner) {
    let changed = Arc::new(Changed::default());
    let observer = ProgramObserver { settings, changed };
    let live = BTreeMap::new();
    let runner =
        ProgramRunner { registry, observer: observer.clone(), live, files: BTreeMap::new() };
    (observer, runner)
}

/// What programs are run with.
#[derive(Clone)]
pub struct Site {
    /// Where it is recorded what becomes of them.
    pub facts: Arc<dyn Facts>,
    /// Who they are to the API server; without it they cannot ask it.
    pub accounts: Option<Arc<dyn Accounts>>,
    /// Where the files of pods are; without it they have none. Whatever is in it is removed first.
    pub directory: Option<PathBuf>,
    /// The network of pods.
    pub network: PodNetwork,
}

impl Site {
    /// A place where programs only have their address.
    #[must_use]
    pub fn new(facts: Arc<dyn Facts>) -> Self {
        Self { facts, accounts: None, directory: None, network: PodNetwork::default() }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Site({:?})", self.directory)
    }
}

/// The variables of a program.
type Environment = Arc<BTreeMap<String, String>>;

/// The pods whose programs may have to be started or stopped: as many as there are pods at most.
#[derive(Debug, Default)]
struct Changed {
    pods: Mutex<BTreeSet<Key>>,
    news: Notify,
    /// The environments that programs were started with, by pod and container.
    environments: Mutex<BTreeMap<(String, String), Environment>>,
    /// Their volumes, likewise.
    files: Mutex<BTreeMap<(String, String), Mounts>>,
}

impl Changed {
    fn add(&self, pods: impl IntoIterator<Item = Key>) {
        // No code of others runs under the lock, so a poisoned one is still good.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).extend(pods);
        self.news.notify_one();
    }

    fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows pods, nodes and what is known of programs, and notifies the runner of pods with programs.
#[derive(Clone, Debug)]
pub struct ProgramObserver {
    settings: Settings,
    changed: Arc<Changed>,
}

impl ProgramObserver {
    /// The variables that the program of a container was last started with, by the identity of its pod.
    #[must_use]
    pub fn environment(&self, uid: &str, container: &str) -> Option<Arc<BTreeMap<String, String>>> {
        let known = self.changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid.to_owned(), container.to_owned())).cloned()
    }

    /// The volumes of that program; none where it was not started.
    #[must_use]
    pub fn files(&self, uid: &str, container: &str) -> Mounts {
        let known = self.changed.files.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid.to_owned(), container.to_owned())).cloned().unwrap_or_default()
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
        let up = |it: &Node| self.settings.is_up(it);
        if change.before::<Node>().map(up) != change.after::<Node>().map(up) {
            let pods = world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name()));
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
        if let Some(source) = change.of::<SourceObject>().filter(|it| it.is_news()) {
            let pods = world.shelf::<Pod>().within(&source.subject.namespace);
            let naming = pods
                .iter()
                .filter(|it| self.has_programs(it) && sources_of(it).contains(source.subject));
            self.changed.add(naming.map(|it| it.metadata.key()));
        }
        if let Some(program) = change.of::<Program>().filter(|it| it.is_news()) {
            self.changed.add([program.subject.pod.clone()]);
        }
        if let Some(probe) = change.of::<ProbeResult>().filter(|it| it.is_news()) {
            self.changed.add([probe.subject.container.pod.clone()]);
        }
    }
}

/// Runs programs.
#[derive(Debug)]
pub struct ProgramRunner {
    registry: Registry,
    observer: ProgramObserver,
    live: BTreeMap<ContainerKey, Live>,
    /// The files of each pod, by its identity.
    files: BTreeMap<Uid, Arc<PodFiles>>,
}

/// A program that was started.
#[derive(Debug)]
struct Live {
    uid: Uid,
    run: i64,
    order: watch::Sender<Order>,
    /// Cancelled when it has ended.
    ended: CancellationToken,
    /// Whether nothing is recorded about it any more: its pod is gone, or its node has no power.
    silent: Arc<Mutex<bool>>,
}

impl Live {
    /// Makes sure that nothing is recorded about it any more, and forgets what was.
    fn silence(&self, key: &ContainerKey, facts: &dyn Facts) {
        // While nothing can be recorded.
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        *silent = true;
        facts.forget(key);
    }

    fn give(&self, order: Order) {
        self.order.send_if_modified(|now| {
            let next = order.after(*now);
            let differs = next != *now;
            *now = next;
            differs
        });
    }
}

impl ProgramRunner {
    /// Starts and stops programs until the token of `tasks` is cancelled; then all of them stop.
    pub async fn run(mut self, mut tasks: Tasks, world: Arc<World>, site: Site) {
        let (stop, changed) = (tasks.token().clone(), Arc::clone(&self.observer.changed));
        let site = swept(site).await;
        loop {
            for pod in changed.take() {
                self.settle(&pod, &world, &mut tasks, &site);
            }
            tokio::select! {
                biased;
                // Each may be dropped: a notice is kept, and joining forgets nothing.
                () = stop.cancelled() => break,
                _ = tasks.join(), if !tasks.is_empty() => {}
                () = changed.news.notified() => {}
            }
        }
        self.files.clear();
        tasks.token().cancel();
        // Programs carry on after the loss of one of them.
        while tasks.join().await.is_err() {}
    }

    /// Stops the programs of a pod that are not to run any more, starts those that are, and has its files
    /// be as they should.
    fn settle(&mut self, pod: &Key, world: &World, tasks: &mut Tasks, site: &Site) {
        let clock = tasks.clock().clone();
        let settings = &self.observer.settings;
        let mut gone = Vec::new();
        for (key, live) in self.live.iter().filter(|(key, _)| key.pod == *pod) {
            let fate = wanted::fate(settings, world, key, (&live.uid, live.run));
            match fate {
                Fate::Run => {}
                Fate::Stop(grace) => live.give(Order::Stop(clock.moment() + grace)),
                Fate::Kill => live.give(Order::Kill),
                Fate::PowerLoss | Fate::Gone => {
                    live.silence(key, site.facts.as_ref());
                    live.give(Order::Kill);
                    gone.push((key.clone(), live.uid.clone(), fate));
                }
            }
        }
        for due in wanted::due(settings, world, pod) {
            let key = ContainerKey::new(pod, &due.container);
            let before = self.live.get(&key);
            let is_same = |it: &&Live| it.uid == due.uid && it.run == due.run;
            let is_lost = gone.iter().any(|(it, ..)| *it == key);
            if before.as_ref().is_some_and(is_same) && !is_lost {
                continue;
            }
            let before = before.map(|it| it.ended.clone());
            let live = self.start(pod, due, before, tasks, site);
            if let Some(live) = live {
                gone.retain(|(it, ..)| *it != key);
                self.live.insert(key, live);
            }
        }
        for (key, uid, fate) in gone {
            self.live.remove(&key);
            if fate == Fate::Gone {
                self.forget(&uid);
            }
        }
        self.renew_files(pod, world);
    }

    /// Forgets a pod that is gone. Its files are removed when its last program has ended.
    fn forget(&mut self, uid: &Uid) {
        self.files.remove(uid);
        let changed = &self.observer.changed;
        let mut known = changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != uid.as_str());
        drop(known);
        let mut known = changed.files.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != uid.as_str());
    }

    /// Lets programs see what changed in the objects that their volumes are made of. While an object cannot
    /// be read or is missing, its files stay as they are.
    fn renew_files(&self, pod: &Key, world: &World) {
        let Some(pod) = world.shelf::<Pod>().get(pod) else { return };
        let Some(files) = self.files.get(&pod.metadata.uid) else { return };
        if let Ok(volumes) = wanted::volumes(&self.observer.settings, world, &pod) {
            files.want(volumes);
        }
    }

    fn start(
        &mut self,
        pod: &Key,
        due: Due,
        before: Option<CancellationToken>,
        tasks: &mut Tasks,
        site: &Site,
    ) -> Option<Live> {
        let Due { container, uid, run, with } = due;
        let (order, orders) = watch::channel(Order::Run);
        let ended = CancellationToken::new();
        let silent = Arc::<Mutex<bool>>::default();
        let live = Live {
            uid: uid.clone(),
            run,
            order,
            ended: ended.clone(),
            silent: Arc::clone(&silent),
        };
        let prepared = match with {
            // Its objects were not read yet: the next fact about them leads here again.
            Err(Unresolved::Pending) => return None,
            Err(Unresolved::Fault(message)) => Err(message),
            Ok(want) => self.files_of(&want, tasks, site).map(|files| (want, files)),
        };
        let (want, files) = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                let at = tasks.clock().now();
                let state = ProgramState::Exited { code: 128, at, message };
                let program = Program { uid, run, state, failed_hook: None };
                site.facts.record(ContainerKey::new(pod, &container), program);
                ended.cancel();
                return Some(live);
            }
        };
        let binary = Arc::clone(self.registry.find(&want.image)?);
        let environment = Arc::new(want.environment.clone());
        let changed = &self.observer.changed;
        let mut known = changed.environments.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((uid.to_string(), container), environment);
        drop(known);
        let own = tasks.child();
        let (changed, started) = (Arc::clone(changed), (uid.to_string(), want.container.clone()));
        let show_files = Box::new(move |mounts: &Mounts| {
            let mut known = changed.files.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(started, mounts.clone());
        });
        let (want, site) = (*want, site.clone());
        let run = Run { want, binary, site, files, order: orders, silent, show_files };
        tasks.spawn("program", OnLoss::CarryOn, move |_| async move {
            // However it ends, the next run of the container may bind its address.
            let _ended = ended.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            run.run(own).await;
            Ok(())
        });
        Some(live)
    }

    /// The files of a pod, which are made with its first program.
    fn files_of(
        &mut self,
        want: &Wanted,
        tasks: &mut Tasks,
        site: &Site,
    ) -> Result<Option<Arc<PodFiles>>, String> {
        let Some(base) = &site.directory else { return Ok(None) };
        let uid = &want.identity.uid;
        if let Some(files) = self.files.get(uid) {
            return Ok(Some(Arc::clone(files)));
        }
        let accounts = site.accounts.clone();
        let volumes = Arc::clone(&want.volumes);
        let (files, keeper) = files::files(base, want.identity.clone(), volumes, accounts)?;
        let (files, clock) = (Arc::new(files), tasks.clock().clone());
        self.files.insert(uid.clone(), Arc::clone(&files));
        tasks.spawn("files of a pod", OnLoss::CarryOn, move |stop| async move {
            keeper.run(&clock, stop).await;
            Ok(())
        });
        Ok(Some(files))
    }
}

/// A site whose directory is empty. Without one, programs have no files and are told so when they start.
async fn swept(mut site: Site) -> Site {
    if let Some(directory) = site.directory.clone() {
        let named = directory.display().to_string();
        let done = tokio::task::spawn_blocking(move || files::sweep(&directory)).await;
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
            site.directory = None;
        }
    }
    site
}
