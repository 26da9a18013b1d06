//! Starts and stops programs as the pods' kubelet says that their containers run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Key, Kind, Observer, Uid, World};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Facts, Registry, Setting};
use crate::kubelet::Settings;
use crate::view::{Container, ContainerKey, Node, Pod, Program, ProgramState};

/// What follows pods, and what runs their programs.
#[must_use]
pub fn programs(registry: Registry, settings: Settings) -> (ProgramObserver, ProgramRunner) {
    let changed = Arc::new(Changed::default());
    let observer = ProgramObserver { registry, settings, changed };
    let runner = ProgramRunner { observer: observer.clone(), live: BTreeMap::new() };
    (observer, runner)
}

/// The pods whose programs may have to be started or stopped: as many as there are pods at most.
#[derive(Debug, Default)]
struct Changed {
    pods: Mutex<BTreeSet<Key>>,
    news: Notify,
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

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    uid: Uid,
    run: i64,
    container: String,
    image: String,
    environment: BTreeMap<String, String>,
    args: Vec<String>,
    address: Ipv4Addr,
    ports: Vec<u16>,
}

/// Follows pods and nodes, and notifies the runner of pods with programs.
#[derive(Clone, Debug)]
pub struct ProgramObserver {
    registry: Registry,
    settings: Settings,
    changed: Arc<Changed>,
}

impl ProgramObserver {
    fn has_programs(&self, pod: &Pod) -> bool {
        let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.into_iter().any(|it| self.registry.find(&it.image).is_some())
    }

    /// The programs of a pod that are to run now.
    fn wanted(&self, pod: &Pod) -> Vec<Wanted> {
        let Ok(address) = pod.status.pod_ip.parse::<Ipv4Addr>() else { return Vec::new() };
        if pod.metadata.is_going() || pod.is_over() {
            return Vec::new();
        }
        let inits = pod.spec.init_containers.iter().zip(&pod.status.init_container_statuses);
        let mains = pod.spec.containers.iter().zip(&pod.status.container_statuses);
        let runs = inits.chain(mains).filter(|(container, status)| {
            status.state.running.is_some() && self.registry.find(&container.image).is_some()
        });
        let wanted = runs.map(|(container, status)| Wanted {
            uid: pod.metadata.uid.clone(),
            run: status.restart_count,
            container: container.name.clone(),
            image: container.image.clone(),
            environment: environment(pod, container),
            args: [&container.command[..], &container.args[..]].concat(),
            address,
            ports: container
                .ports
                .iter()
                .filter_map(|it| it.container_port.try_into().ok())
                .collect(),
        });
        wanted.collect()
    }
}

fn environment(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let written = container.env.iter().map(|it| (it.name.clone(), it.value.clone()));
    let hostname = match pod.spec.hostname.as_str() {
        "" => &pod.metadata.name,
        named => named,
    };
    [("HOSTNAME".to_owned(), hostname.to_owned())].into_iter().chain(written).collect()
}

impl ProgramObserver {
    /// The programs of a pod that are to run now. Without power nothing runs; with it, what is said to run
    /// runs again.
    fn wanted_of(&self, world: &World, key: &Key) -> Option<Vec<Wanted>> {
        let pod = world.shelf::<Pod>().get(key)?;
        let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
        let is_up = node.is_some_and(|it| self.settings.is_up(&it));
        Some(if is_up { self.wanted(&pod) } else { Vec::new() })
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
}

/// Runs programs.
#[derive(Debug)]
pub struct ProgramRunner {
    observer: ProgramObserver,
    live: BTreeMap<ContainerKey, Live>,
}

/// A program that was started.
#[derive(Debug)]
struct Live {
    uid: Uid,
    run: i64,
    stop: CancellationToken,
    /// Cancelled when it has ended.
    ended: CancellationToken,
    /// Whether its pod is gone: nothing is recorded about it any more.
    gone: Arc<Mutex<bool>>,
}

impl ProgramRunner {
    /// Starts and stops programs until the token of `tasks` is cancelled; then all of them stop.
    pub async fn run(mut self, mut tasks: Tasks, world: Arc<World>, facts: Arc<dyn Facts>) {
        let (stop, changed) = (tasks.token().clone(), Arc::clone(&self.observer.changed));
        loop {
            for pod in changed.take() {
                self.settle(&pod, &world, &mut tasks, &facts);
            }
            tokio::select! {
                biased;
                // Each may be dropped: a notice is kept, and joining forgets nothing.
                () = stop.cancelled() => break,
                _ = tasks.join(), if !tasks.is_empty() => {}
                () = changed.news.notified() => {}
            }
        }
        tasks.token().cancel();
        // Programs carry on after the loss of one of them.
        while tasks.join().await.is_err() {}
    }

    /// Stops the programs of a pod that are not wanted any more, and starts those that are.
    fn settle(&mut self, pod: &Key, world: &World, tasks: &mut Tasks, facts: &Arc<dyn Facts>) {
        let found = self.observer.wanted_of(world, pod);
        let is_gone = found.is_none();
        let wanted = found.unwrap_or_default();
        let is_same = |live: &Live, want: &Wanted| want.uid == live.uid && want.run == live.run;
        let of_pod = |key: &ContainerKey| key.pod == *pod;
        for (key, live) in self.live.iter().filter(|(key, _)| of_pod(key)) {
            let is_wanted =
                wanted.iter().any(|it| it.container == key.container && is_same(live, it));
            if !is_wanted {
                live.stop.cancel();
            }
        }
        for want in &wanted {
            let key = ContainerKey::new(pod, &want.container);
            let before = self.live.get(&key);
            if before.is_some_and(|it| is_same(it, want) && !it.stop.is_cancelled()) {
                continue;
            }
            let before = before.map(|it| it.ended.clone());
            let live = self.start(pod, want, before, tasks, facts);
            self.live.extend(live.map(|it| (key, it)));
        }
        if is_gone {
            let gone: Vec<ContainerKey> =
                self.live.keys().filter(|it| of_pod(it)).cloned().collect();
            for key in gone {
                if let Some(live) = self.live.remove(&key) {
                    // While nothing can be recorded.
                    let mut gone = live.gone.lock().unwrap_or_else(PoisonError::into_inner);
                    *gone = true;
                    facts.forget(&key);
                }
            }
        }
    }

    fn start(
        &self,
        pod: &Key,
        want: &Wanted,
        before: Option<CancellationToken>,
        tasks: &mut Tasks,
        facts: &Arc<dyn Facts>,
    ) -> Option<Live> {
        let binary = Arc::clone(self.observer.registry.find(&want.image)?);
        let own = tasks.child();
        let (stop, ended) = (own.token().clone(), CancellationToken::new());
        let gone = Arc::<Mutex<bool>>::default();
        let (uid, run) = (want.uid.clone(), want.run);
        let live = Live { uid, run, stop, ended: ended.clone(), gone: Arc::clone(&gone) };
        let (pod, want, facts) = (pod.clone(), want.clone(), Arc::clone(facts));
        let clock = own.clock().clone();
        tasks.spawn("program", OnLoss::CarryOn, move |_| async move {
            // However it ends, the next run of the container may bind its address.
            let _ended = ended.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            let tell = {
                let (facts, pod, want) = (Arc::clone(&facts), pod.clone(), want.clone());
                move |state| {
                    let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
                    if *gone {
                        return;
                    }
                    let program = Program { uid: want.uid.clone(), run: want.run, state };
                    facts.record(ContainerKey::new(&pod, &want.container), program);
                }
            };
            let uid = want.uid.as_str();
            facts.begins(uid, &want.container, clock.now());
            let setting = setting(pod, &want, &facts, &own, tell.clone());
            let code = binary.run(setting, own).await;
            facts.ends(uid, &want.container);
            tell(ProgramState::Exited { code: code.into(), at: clock.now() });
            Ok(())
        });
        Some(live)
    }
}

fn setting(
    pod: Key,
    want: &Wanted,
    facts: &Arc<dyn Facts>,
    tasks: &Tasks,
    tell: impl Fn(ProgramState) + Send + Sync + 'static,
) -> Setting {
    let (facts, clock) = (Arc::clone(facts), tasks.clock().clone());
    let (uid, container) = (want.uid.clone(), want.container.clone());
    Setting {
        pod,
        uid: want.uid.to_string(),
        container: want.container.clone(),
        environment: want.environment.clone(),
        args: want.args.clone(),
        address: want.address,
        ports: want.ports.clone(),
        ready: Box::new(move || tell(ProgramState::Running)),
        say: Box::new(move |text| facts.says(uid.as_str(), &container, clock.now(), text)),
    }
}
