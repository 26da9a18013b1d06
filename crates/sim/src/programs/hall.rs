//! Who starts and stops programs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Uid, World};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Facts, Registry, Setting};
use crate::kubelet::Settings;
use crate::view::{Container, Node, Pod, Program, ProgramState};

/// Orders that wait for the hall. When there are more, whoever has one looks again later.
const ORDERS: usize = 1024;
/// How much later.
const LATER: Duration = Duration::from_millis(50);

/// Who looks at pods, and who runs their programs.
#[must_use]
pub fn hall(registry: Registry, settings: Settings) -> (Watcher, Hall) {
    let (send, receive) = mpsc::channel(ORDERS);
    let watcher = Watcher { registry: registry.clone(), settings, orders: send };
    (watcher, Hall { registry, orders: receive, live: BTreeMap::new() })
}

/// What is to run of one pod.
#[derive(Debug)]
struct Order {
    pod: Key,
    /// Whether the pod is gone for good.
    gone: bool,
    wanted: Vec<Wanted>,
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

/// Looks at pods and tells the hall what is to run. It writes nothing.
#[derive(Clone, Debug)]
pub struct Watcher {
    registry: Registry,
    settings: Settings,
    orders: mpsc::Sender<Order>,
}

impl Watcher {
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

impl Controller for Watcher {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            let any = change.both::<Pod>().any(|it| self.has_programs(it));
            return if any { vec![change.key.clone()] } else { Vec::new() };
        }
        let up = |it: &Node| self.settings.is_up(it);
        if change.before::<Node>().map(up) == change.after::<Node>().map(up) {
            return Vec::new();
        }
        let pods = world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name()));
        pods.iter().filter(|it| self.has_programs(it)).map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let pod = world.shelf::<Pod>().get(key);
        let up = |pod: &Pod| {
            let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
            node.is_some_and(|it| self.settings.is_up(&it))
        };
        // Without power nothing runs; with it, what is said to run runs again.
        let wanted = match &pod {
            Some(pod) if up(pod) => self.wanted(pod),
            Some(_) | None => Vec::new(),
        };
        let order = Order { pod: key.clone(), gone: pod.is_none(), wanted };
        match self.orders.try_send(order) {
            Err(mpsc::error::TrySendError::Full(_)) => plan.look_within(LATER),
            // A hall that is closed belongs to a process that ends.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
        plan
    }
}

/// Runs programs.
#[derive(Debug)]
pub struct Hall {
    registry: Registry,
    orders: mpsc::Receiver<Order>,
    live: BTreeMap<Key, Live>,
}

/// A program that was started.
#[derive(Debug)]
struct Live {
    pod: Key,
    uid: Uid,
    run: i64,
    stop: CancellationToken,
    /// Cancelled when it has ended.
    ended: CancellationToken,
}

impl Hall {
    /// Carries out orders until the token of `tasks` is cancelled; then all programs stop.
    pub async fn run(mut self, mut tasks: Tasks, facts: Arc<dyn Facts>) {
        let stop = tasks.token().clone();
        loop {
            tokio::select! {
                biased;
                // Each may be dropped: an order is taken whole or not at all.
                () = stop.cancelled() => break,
                _ = tasks.join(), if !tasks.is_empty() => {}
                order = self.orders.recv() => match order {
                    Some(order) => self.carry_out(order, &mut tasks, &facts),
                    None => break,
                },
            }
        }
        tasks.token().cancel();
        // Programs carry on after the loss of one of them.
        while tasks.join().await.is_err() {}
    }

    fn carry_out(&mut self, order: Order, tasks: &mut Tasks, facts: &Arc<dyn Facts>) {
        let Order { pod, gone, wanted } = order;
        let is_wanted = |live: &Live, key: &Key| {
            let same = |it: &Wanted| {
                Program::key(&pod, &it.container) == *key
                    && it.uid == live.uid
                    && it.run == live.run
            };
            wanted.iter().any(same)
        };
        for (key, live) in self.live.iter().filter(|(_, live)| live.pod == pod) {
            if !is_wanted(live, key) {
                live.stop.cancel();
            }
        }
        for want in wanted.iter() {
            let key = Program::key(&pod, &want.container);
            let before = self.live.get(&key);
            let runs = before.is_some_and(|it| {
                it.uid == want.uid && it.run == want.run && !it.stop.is_cancelled()
            });
            if !runs {
                let before = before.map(|it| it.ended.clone());
                let live = self.start(&pod, want, before, tasks, facts);
                self.live.extend(live.map(|it| (key, it)));
            }
        }
        if gone {
            let of_pod = |key: &Key| self.live.get(key).is_some_and(|it| it.pod == pod);
            let keys: Vec<Key> = self.live.keys().filter(|key| of_pod(key)).cloned().collect();
            for key in keys {
                self.live.remove(&key);
                facts.forget(&key);
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
        let binary = Arc::clone(self.registry.find(&want.image)?);
        let own = tasks.child();
        let (stop, ended) = (own.token().clone(), CancellationToken::new());
        let live = Live {
            pod: pod.clone(),
            uid: want.uid.clone(),
            run: want.run,
            stop,
            ended: ended.clone(),
        };
        let (pod, want, facts) = (pod.clone(), want.clone(), Arc::clone(facts));
        let clock = own.clock().clone();
        tasks.spawn("program", OnLoss::CarryOn, move |_| async move {
            // However it ends, whoever waits for its address goes on.
            let _ended = ended.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            let tell = {
                let (facts, pod, want) = (Arc::clone(&facts), pod.clone(), want.clone());
                move |state| {
                    let program = Program::new(&pod, &want.uid, &want.container, want.run, state);
                    facts.tell(program);
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
