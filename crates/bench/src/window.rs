//! Pods are asked for, and seen to get a node.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Request, Stream, Target};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::objects::{Side, held, holder, node, node_name, orphan};
use crate::sample::{Samples, Summary};
use crate::usage;

/// How long nothing may happen before the run is given up.
const PATIENCE: Duration = Duration::from_secs(180);
/// Requests at a time; more only wait in the server.
const CLIENTS: usize = 16;
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const ORPHANS: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/namespaces/default/deviceclaims";

/// A cluster, and everything that is seen of its pods.
pub(crate) struct Window<'run> {
    side: Side,
    clock: &'run Clock,
    tasks: &'run mut Tasks,
    clients: Vec<Client>,
    bound: mpsc::Receiver<anyhow::Result<(String, Moment)>>,
}

/// What came of it.
pub(crate) struct Outcome {
    /// Pods that got a node, a second.
    pub(crate) rate: f64,
    /// From the request for a pod to its node.
    pub(crate) times: Summary,
}

/// As much of an event as is needed.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Seen,
}

#[derive(Deserialize)]
struct Seen {
    metadata: Name,
    #[serde(default)]
    spec: Place,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    #[serde(default)]
    node_name: String,
}

/// What happens to pods, without a gap.
struct Watch {
    client: Client,
    /// The revision up to which everything was seen.
    seen: String,
}

impl Watch {
    async fn open(&self) -> anyhow::Result<Stream> {
        let path = format!("{PODS}?watch=true&timeoutSeconds=3600&resourceVersion={}", self.seen);
        let stream = self.client.open(Request::get(path)).await.context("could not watch")?;
        ensure!(stream.status.is_success(), "watch: {}", stream.status);
        Ok(stream)
    }

    /// The next pod. A server ends the watch of who does not keep up, and lets it go on from there.
    async fn next(&mut self, stream: &mut Stream) -> anyhow::Result<Seen> {
        loop {
            let line =
                stream.next_line(Duration::from_secs(3600)).await.context("the watch broke")?;
            let Some(line) = line else {
                *stream = self.open().await?;
                continue;
            };
            let event: Event = serde_json::from_slice(&line)
                .with_context(|| format!("no pod: {}", String::from_utf8_lossy(&line)))?;
            ensure!(event.kind != "ERROR", "the watch: {}", String::from_utf8_lossy(&line));
            self.seen.clone_from(&event.object.metadata.resource_version);
            return Ok(event.object);
        }
    }
}

impl<'run> Window<'run> {
    pub(crate) async fn open(
        target: &Target,
        side: Side,
        clock: &'run Clock,
        tasks: &'run mut Tasks,
    ) -> anyhow::Result<Self> {
        let client = || Client::new(target, Protocol::Http2, clock.clone());
        let clients = (0..CLIENTS).map(|_| client()).collect::<Result<_, _>>()?;
        let mut watch = Watch { client: client()?.with_patience(PATIENCE), seen: String::new() };
        let mut stream = watch.open().await?;
        let (tell, bound) = mpsc::channel(100_000);
        let now = clock.clone();
        // It ends with the server, which is no loss: whoever waits is told why.
        tasks.spawn("watcher", OnLoss::CarryOn, move |stop| async move {
            loop {
                let next = tokio::select! {
                    next = watch.next(&mut stream) => next,
                    () = stop.cancelled() => return Ok(()),
                };
                let told = match next {
                    Ok(pod) if pod.spec.node_name.is_empty() => continue,
                    Ok(pod) => Ok((pod.metadata.name, now.moment())),
                    Err(error) => Err(error),
                };
                let over = told.is_err();
                if tell.send(told).await.is_err() || over {
                    return Ok(());
                }
            }
        });
        Ok(Self { side, clock, tasks, clients, bound })
    }

    /// Brings nodes and devices.
    pub(crate) async fn furnish(&mut self, nodes: usize, devices: usize) -> anyhow::Result<()> {
        if self.side == Side::Gantry {
            for kind in gantry_api::object::KINDS {
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                create(&self.clients[0], path, &serde_json::to_value(kind.crd())?).await?;
            }
            // A definition is served a moment after it is there.
            let begun = self.clock.moment();
            let (path, _) = self.side.devices("", 0);
            while !self.clients[0].send(Request::get(path)).await?.status.is_success() {
                ensure!(self.clock.moment() - begun < PATIENCE, "{path} is not served");
                self.clock.sleep(Duration::from_millis(50)).await;
            }
        }
        for (path, object) in self.side.once() {
            create(&self.clients[0], path, &object).await?;
        }
        if self.side == Side::Gantry {
            self.await_collector().await?;
        }
        let mut work = Vec::new();
        for index in 0..nodes {
            let name = node_name(index);
            work.push(Request::post("/api/v1/nodes", &node(&name)));
            let (path, object) = self.side.devices(&name, devices);
            work.push(Request::post(path, &object));
        }
        self.send_all(work).await
    }

    /// Waits until the garbage collector knows claims of ours, as it does in any cluster that is older than half
    /// a minute: it looks for new kinds that often, and until then they pile up.
    async fn await_collector(&self) -> anyhow::Result<()> {
        let (client, begun) = (&self.clients[0], self.clock.moment());
        create(client, ORPHANS, &orphan("orphan")).await?;
        while client.send(Request::get(format!("{ORPHANS}/orphan"))).await?.status.is_success() {
            ensure!(self.clock.moment() - begun < PATIENCE, "nobody collects claims");
            self.clock.sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Holds this many devices, the first of each node before those of the next.
    pub(crate) async fn hold(&mut self, count: usize, each: usize) -> anyhow::Result<()> {
        match self.side {
            // Allocated claims without pods, as in Kubernetes' own measurement: its scheduler would
            // need minutes to give them away.
            Side::Kubernetes => {
                let all =
                    (0..count).map(|index| held(index, &node_name(index / each), index % each));
                let (claims, statuses): (Vec<_>, Vec<_>) = all.unzip();
                let work = claims.iter().map(|claim| Request::post(CLAIMS, claim)).collect();
                self.send_all(work).await?;
                let statuses = statuses.into_iter().enumerate();
                let requests = statuses.map(|(index, status)| {
                    let path = format!("{CLAIMS}/held-{index}/status");
                    Request::patch(path, "application/merge-patch+json", &status)
                });
                self.send_all(requests.collect()).await
            }
            // A claim of ours that no pod uses has no devices. As many claims as there, with few pods.
            Side::Gantry => {
                let pods = (0..count.div_ceil(each)).map(|index| {
                    let name = format!("held-{index}");
                    let pod = holder(&name, each.min(count - index * each));
                    (name, pod)
                });
                self.ask(pods.collect()).await.map(|_| ())
            }
        }
    }

    /// Asks for this many pods with a device each, as quickly as the server takes them, and waits until
    /// all have a node.
    pub(crate) async fn place(&mut self, prefix: &str, count: usize) -> anyhow::Result<Outcome> {
        let pods = (0..count).map(|index| {
            let name = format!("{prefix}-{index}");
            let pod = self.side.pod(&name, 1);
            (name, pod)
        });
        self.ask(pods.collect()).await
    }

    /// The same for these pods, by their names.
    async fn ask(&mut self, pods: Vec<(String, Value)>) -> anyhow::Result<Outcome> {
        let start = self.clock.moment();
        let count = pods.len();
        let work = pods.iter().map(|(_, pod)| Request::post(PODS, pod)).collect();
        let mut lanes = self.lanes(work);
        let mut times = Samples::default();
        let mut waiting: HashSet<String> = pods.into_iter().map(|(name, _)| name).collect();
        let mut last = start;
        while !waiting.is_empty() {
            let (name, when) = self.next(waiting.len()).await?;
            if waiting.remove(&name) {
                times.add(when - start);
                last = when;
            }
        }
        lanes.join().await?;
        let times = times.summary();
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        let rate = count as f64 / (last - start).as_secs_f64();
        Ok(Outcome { rate, times })
    }

    /// Waits until these processes have nothing left to do of what came before, such as events.
    pub(crate) async fn settle(&self, processes: &[u32]) -> anyhow::Result<()> {
        let (begun, second) = (self.clock.moment(), Duration::from_secs(1));
        loop {
            let before = usage::cpu(processes);
            self.clock.sleep(second).await;
            if usage::cpu(processes) - before < second / 4 {
                return Ok(());
            }
            ensure!(self.clock.moment() - begun < PATIENCE, "it never comes to rest");
        }
    }

    /// Lets this many pods be there at a time, for a while: each goes when it has its node, and another
    /// comes. Nobody waits for another's to go.
    pub(crate) async fn come_and_go(
        &mut self,
        at_a_time: usize,
        devices: usize,
        time: Duration,
    ) -> anyhow::Result<Outcome> {
        let start = self.clock.moment();
        let mut tasks = self.tasks.child();
        let (tell, mut told) = mpsc::channel::<Duration>(100_000);
        let mut lanes = Vec::new();
        for lane in 0..at_a_time {
            let (bound, is_bound) = mpsc::channel::<Moment>(1);
            lanes.push(bound);
            let lane = Lane {
                lane,
                devices,
                side: self.side,
                client: self.clients[lane % CLIENTS].clone(),
                clock: self.clock.clone(),
                is_bound,
                tell: tell.clone(),
            };
            tasks.spawn("lane", OnLoss::EndOwner, move |_| async move {
                lane.run(start, time).await.map_err(Into::into)
            });
        }
        drop(tell);
        let mut seen = HashSet::new();
        while self.clock.moment() - start < time {
            let (name, when) = self.next(at_a_time).await?;
            let lane = name.strip_prefix("steady-").and_then(|it| it.split_once('-'));
            let Some(lane) = lane.and_then(|(lane, _)| lane.parse::<usize>().ok()) else {
                continue;
            };
            if seen.insert(name) && lanes[lane].send(when).await.is_err() {
                break;
            }
        }
        let took = self.clock.moment() - start;
        drop(lanes);
        tasks.join().await?;
        let mut times = Samples::default();
        while let Some(time) = told.recv().await {
            times.add(time);
        }
        let times = times.summary();
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        let rate = times.count as f64 / took.as_secs_f64();
        Ok(Outcome { rate, times })
    }

    async fn next(&mut self, waiting: usize) -> anyhow::Result<(String, Moment)> {
        let next = self.clock.timeout(PATIENCE, self.bound.recv()).await;
        let next =
            next.map_err(|_| anyhow::anyhow!("{waiting} pods wait, and none gets a node"))?;
        next.context("the watch ended")?
    }

    async fn send_all(&mut self, requests: Vec<Request>) -> anyhow::Result<()> {
        self.lanes(requests).join().await.map_err(Into::into)
    }

    /// Sends all of these, a few at a time.
    fn lanes(&mut self, requests: Vec<Request>) -> Tasks {
        let mut lanes: Vec<Vec<Request>> = vec![Vec::new(); CLIENTS];
        for (index, request) in requests.into_iter().enumerate() {
            lanes[index % CLIENTS].push(request);
        }
        let mut tasks = self.tasks.child();
        for (lane, client) in lanes.into_iter().zip(&self.clients) {
            let client = client.clone();
            tasks.spawn("lane", OnLoss::EndOwner, move |_| async move {
                for request in lane {
                    let path = request.path_and_query.clone();
                    let answer = client.send(request).await?;
                    if !answer.status.is_success() {
                        return Err(format!("{path}: {}: {}", answer.status, answer.text()).into());
                    }
                }
                Ok(())
            });
        }
        tasks
    }
}

/// One pod after the other.
struct Lane {
    lane: usize,
    devices: usize,
    side: Side,
    client: Client,
    clock: Clock,
    /// When the pod of this moment got its node.
    is_bound: mpsc::Receiver<Moment>,
    tell: mpsc::Sender<Duration>,
}

impl Lane {
    async fn run(mut self, start: Moment, time: Duration) -> anyhow::Result<()> {
        let mut nth = 0;
        while self.clock.moment() - start < time {
            let name = format!("steady-{}-{nth}", self.lane);
            let asked = self.clock.moment();
            create(&self.client, PODS, &self.side.pod(&name, self.devices)).await?;
            // Time is over, and nobody listens any more.
            let Some(when) = self.is_bound.recv().await else { return Ok(()) };
            self.tell.send(when - asked).await?;
            let gone = format!("{PODS}/{name}?gracePeriodSeconds=0");
            let answer = self.client.send(Request::delete(gone)).await?;
            ensure!(answer.status.is_success(), "delete {name}: {}", answer.text());
            nth += 1;
        }
        Ok(())
    }
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let answer = client.send(Request::post(path, object)).await?;
    ensure!(answer.status.is_success(), "create at {path}: {}", answer.text());
    Ok(())
}
