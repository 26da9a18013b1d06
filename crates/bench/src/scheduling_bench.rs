//! Creates pods and waits until they are bound.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Request, Stream, Target};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::objects::{
    SchedulerKind, allocated_claim, node, node_name, orphaned_claim, pod_with_claims,
};
use crate::sample::{Samples, Summary};
use crate::usage;

/// How long no event may arrive before the run is given up.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(180);
/// Concurrent requests; more would only wait in the server.
const MAX_CONCURRENT_REQUESTS: usize = 16;
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const ORPHANS: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/namespaces/default/deviceclaims";

/// A cluster, and the observed states of its pods.
pub(crate) struct SchedulingBench<'run> {
    side: SchedulerKind,
    clock: &'run Clock,
    tasks: &'run mut Tasks,
    clients: Vec<Client>,
    bound: mpsc::Receiver<anyhow::Result<(String, Moment)>>,
}

/// The result of a run.
pub(crate) struct Outcome {
    /// Pods bound per second.
    pub(crate) rate: f64,
    /// Time from the creation of a pod to its binding.
    pub(crate) times: Summary,
}

/// The fields of an event that are needed.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: ObservedPod,
}

#[derive(Deserialize)]
struct ObservedPod {
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
}

/// A watch on pods, without gaps.
struct Watch {
    client: Client,
    /// The revision up to which all events were received.
    revision: String,
}

impl Watch {
    async fn open(&self) -> anyhow::Result<Stream> {
        let path =
            format!("{PODS}?watch=true&timeoutSeconds=3600&resourceVersion={}", self.revision);
        let stream = self.client.open(Request::get(path)).await.context("could not watch")?;
        ensure!(stream.status.is_success(), "watch: {}", stream.status);
        Ok(stream)
    }

    /// Returns the next pod. A server ends the watch of a client that does not keep up, and the
    /// watch resumes from its last revision.
    async fn next(&mut self, stream: &mut Stream) -> anyhow::Result<ObservedPod> {
        loop {
            let line =
                stream.next_line(Duration::from_secs(3600)).await.context("the watch failed")?;
            let Some(line) = line else {
                *stream = self.open().await?;
                continue;
            };
            let event: Event = serde_json::from_slice(&line).with_context(|| {
                format!("the event holds no pod: {}", String::from_utf8_lossy(&line))
            })?;
            ensure!(
                event.kind != "ERROR",
                "the watch returned an error: {}",
                String::from_utf8_lossy(&line)
            );
            self.revision.clone_from(&event.object.metadata.resource_version);
            return Ok(event.object);
        }
    }
}

impl<'run> SchedulingBench<'run> {
    pub(crate) async fn open(
        target: &Target,
        side: SchedulerKind,
        clock: &'run Clock,
        tasks: &'run mut Tasks,
    ) -> anyhow::Result<Self> {
        let client = || Client::new(target, Protocol::Http2, clock.clone());
        let clients = (0..MAX_CONCURRENT_REQUESTS).map(|_| client()).collect::<Result<_, _>>()?;
        let mut watch =
            Watch { client: client()?.with_timeout(PROGRESS_TIMEOUT), revision: String::new() };
        let mut stream = watch.open().await?;
        let (sender, bound) = mpsc::channel(100_000);
        let now = clock.clone();
        // The watch ends with the server; the waiting code then reports the error.
        tasks.spawn("watcher", OnLoss::CarryOn, move |stop| async move {
            loop {
                let next = tokio::select! {
                    next = watch.next(&mut stream) => next,
                    () = stop.cancelled() => return Ok(()),
                };
                let sent = match next {
                    Ok(pod) if pod.spec.node_name.is_empty() => continue,
                    Ok(pod) => Ok((pod.metadata.name, now.moment())),
                    Err(error) => Err(error),
                };
                let over = sent.is_err();
                if sender.send(sent).await.is_err() || over {
                    return Ok(());
                }
            }
        });
        Ok(Self { side, clock, tasks, clients, bound })
    }

    /// Creates nodes and devices.
    pub(crate) async fn create_nodes_and_devices(
        &mut self,
        nodes: usize,
        devices: usize,
    ) -> anyhow::Result<()> {
        if self.side == SchedulerKind::Gantry {
            for kind in gantry_api::object::KINDS {
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                create(&self.clients[0], path, &serde_json::to_value(kind.crd())?).await?;
            }
            // A CRD is served a moment after it is created.
            let begun = self.clock.moment();
            let (path, _) = self.side.device_object("", 0);
            while !self.clients[0].send(Request::get(path)).await?.status.is_success() {
                ensure!(self.clock.moment() - begun < PROGRESS_TIMEOUT, "{path} is not served");
                self.clock.sleep(Duration::from_millis(50)).await;
            }
        }
        for (path, object) in self.side.shared_objects() {
            create(&self.clients[0], path, &object).await?;
        }
        if self.side == SchedulerKind::Gantry {
            self.wait_for_garbage_collector().await?;
        }
        let mut work = Vec::new();
        for index in 0..nodes {
            let name = node_name(index);
            work.push(Request::post("/api/v1/nodes", &node(&name)));
            let (path, object) = self.side.device_object(&name, devices);
            work.push(Request::post(path, &object));
        }
        self.send_all(work).await
    }

    /// Waits until the garbage collector watches Gantry's claims, as it does in any cluster that is
    /// older than half a minute: it discovers new kinds at that interval, and until then orphaned
    /// claims pile up.
    async fn wait_for_garbage_collector(&self) -> anyhow::Result<()> {
        let (client, begun) = (&self.clients[0], self.clock.moment());
        create(client, ORPHANS, &orphaned_claim("orphan")).await?;
        while client.send(Request::get(format!("{ORPHANS}/orphan"))).await?.status.is_success() {
            ensure!(
                self.clock.moment() - begun < PROGRESS_TIMEOUT,
                "the garbage collector does not delete orphaned claims"
            );
            self.clock.sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Allocates this many devices, those of one node before those of the next.
    pub(crate) async fn allocate_devices(
        &mut self,
        count: usize,
        each: usize,
    ) -> anyhow::Result<()> {
        match self.side {
            // Allocated claims without pods, as in Kubernetes' own benchmark: its scheduler would
            // need minutes to allocate them.
            SchedulerKind::Kubernetes => {
                let all = (0..count)
                    .map(|index| allocated_claim(index, &node_name(index / each), index % each));
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
            // A Gantry claim that no pod uses has no devices. Creates as many claims as for
            // Kubernetes, with few pods.
            SchedulerKind::Gantry => {
                let pods = (0..count.div_ceil(each)).map(|index| {
                    let name = format!("held-{index}");
                    let pod = pod_with_claims(&name, each.min(count - index * each));
                    (name, pod)
                });
                self.create_and_wait(pods.collect()).await.map(|_| ())
            }
        }
    }

    /// Creates this many pods with a device each, as quickly as the server takes them, and waits
    /// until all are bound.
    pub(crate) async fn schedule_pods(
        &mut self,
        prefix: &str,
        count: usize,
    ) -> anyhow::Result<Outcome> {
        let pods = (0..count).map(|index| {
            let name = format!("{prefix}-{index}");
            let pod = self.side.pod(&name, 1);
            (name, pod)
        });
        self.create_and_wait(pods.collect()).await
    }

    /// Does the same for these pods, by their names.
    async fn create_and_wait(&mut self, pods: Vec<(String, Value)>) -> anyhow::Result<Outcome> {
        let start = self.clock.moment();
        let count = pods.len();
        let work = pods.iter().map(|(_, pod)| Request::post(PODS, pod)).collect();
        let mut lanes = self.spawn_requests(work);
        let mut times = Samples::default();
        let mut waiting: HashSet<String> = pods.into_iter().map(|(name, _)| name).collect();
        let mut last = start;
        while !waiting.is_empty() {
            let (name, when) = self.next_bound(waiting.len()).await?;
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

    /// Waits until these processes have finished earlier work, such as writing events.
    pub(crate) async fn wait_until_idle(&self, processes: &[u32]) -> anyhow::Result<()> {
        let (begun, second) = (self.clock.moment(), Duration::from_secs(1));
        loop {
            let before = usage::cpu(processes);
            self.clock.sleep(second).await;
            if usage::cpu(processes) - before < second / 4 {
                return Ok(());
            }
            ensure!(
                self.clock.moment() - begun < PROGRESS_TIMEOUT,
                "the processes did not become idle in time"
            );
        }
    }

    /// Keeps this many pods in the cluster for a while: each is deleted once it is bound, and
    /// another is created. Deletions are not waited for.
    pub(crate) async fn churn(
        &mut self,
        at_a_time: usize,
        devices: usize,
        time: Duration,
    ) -> anyhow::Result<Outcome> {
        let start = self.clock.moment();
        let mut tasks = self.tasks.child();
        let (sender, mut receiver) = mpsc::channel::<Duration>(100_000);
        let mut lanes = Vec::new();
        for lane in 0..at_a_time {
            let (bound, is_bound) = mpsc::channel::<Moment>(1);
            lanes.push(bound);
            let lane = ChurnWorker {
                lane,
                devices,
                side: self.side,
                client: self.clients[lane % MAX_CONCURRENT_REQUESTS].clone(),
                clock: self.clock.clone(),
                is_bound,
                durations: sender.clone(),
            };
            tasks.spawn("lane", OnLoss::EndOwner, move |_| async move {
                lane.run(start, time).await.map_err(Into::into)
            });
        }
        drop(sender);
        let mut seen = HashSet::new();
        while self.clock.moment() - start < time {
            let (name, when) = self.next_bound(at_a_time).await?;
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
        while let Some(time) = receiver.recv().await {
            times.add(time);
        }
        let times = times.summary();
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        let rate = times.count as f64 / took.as_secs_f64();
        Ok(Outcome { rate, times })
    }

    async fn next_bound(&mut self, waiting: usize) -> anyhow::Result<(String, Moment)> {
        let next = self.clock.timeout(PROGRESS_TIMEOUT, self.bound.recv()).await;
        let next =
            next.map_err(|_| anyhow::anyhow!("{waiting} pods are pending, and none is bound"))?;
        next.context("the watch ended")?
    }

    async fn send_all(&mut self, requests: Vec<Request>) -> anyhow::Result<()> {
        self.spawn_requests(requests).join().await.map_err(Into::into)
    }

    /// Sends all of these requests, a few at a time.
    fn spawn_requests(&mut self, requests: Vec<Request>) -> Tasks {
        let mut lanes: Vec<Vec<Request>> = vec![Vec::new(); MAX_CONCURRENT_REQUESTS];
        for (index, request) in requests.into_iter().enumerate() {
            lanes[index % MAX_CONCURRENT_REQUESTS].push(request);
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

/// Creates one pod after the other.
struct ChurnWorker {
    lane: usize,
    devices: usize,
    side: SchedulerKind,
    client: Client,
    clock: Clock,
    /// Returns when the current pod was bound.
    is_bound: mpsc::Receiver<Moment>,
    durations: mpsc::Sender<Duration>,
}

impl ChurnWorker {
    async fn run(mut self, start: Moment, time: Duration) -> anyhow::Result<()> {
        let mut nth = 0;
        while self.clock.moment() - start < time {
            let name = format!("steady-{}-{nth}", self.lane);
            let asked = self.clock.moment();
            create(&self.client, PODS, &self.side.pod(&name, self.devices)).await?;
            // The time is over, and the receiver has ended.
            let Some(when) = self.is_bound.recv().await else { return Ok(()) };
            self.durations.send(when - asked).await?;
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
