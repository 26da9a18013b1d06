//! The API server of a queue benchmark, and the objects that are created before any job arrives.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::embedded::{self, EmbeddedServer};
use gantry_testkit::http::{Client, Protocol, Request, Target};
use http::HeaderValue;
use http::header::ACCEPT;
use serde_json::{Value, json};

use super::program::{Program, beside_this_program};
use super::watch::EVENT_TIMEOUT;
use super::wrapper::{self, DEFINITIONS};

const NODES: &str = "/api/v1/nodes";
/// Concurrent requests; more would only wait in the server.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// The media type of aggregated discovery, which has everything in one answer.
const AGGREGATED_DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// How long a controller may fill its caches before the first job arrives.
pub(crate) const CONTROLLER_WARM_UP: Duration = Duration::from_secs(3);

/// A server that holds nothing but what the benchmark creates.
pub(crate) struct BenchServer {
    pub(crate) target: Target,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) clients: Vec<Client>,
    pub(crate) clock: Clock,
    server: ServerProcess,
}

enum ServerProcess {
    Real(Box<RealCluster>),
    Embedded(Box<EmbeddedServer>),
}

/// The client rate limit of a controller: queries per second, and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit(pub(crate) Option<(u32, u32)>);

impl std::str::FromStr for RateLimit {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = "write it as 50/100, or none";
        let (rate, burst) = text.split_once('/').context(wrong)?;
        Ok(Self(Some((rate.parse().context(wrong)?, burst.parse().context(wrong)?))))
    }
}

impl std::fmt::Display for RateLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some((rate, burst)) => write!(formatter, "{rate}/{burst}"),
            None => formatter.write_str("no limit"),
        }
    }
}

/// The configuration of the operator: the keys below `mcad`, as text.
pub(crate) struct OperatorSettings<'a> {
    pub(crate) limit: RateLimit,
    pub(crate) queue: &'a str,
}

impl BenchServer {
    /// Starts etcd and kube-apiserver alone, durable, with the limits of Kueue's own benchmark.
    /// Nodes have no kubelet and no node controller, so no taints are added to them.
    pub(crate) async fn real(clock: &Clock) -> anyhow::Result<Self> {
        let plan = RealCluster::plan()
            .durable()
            .clock(clock.clone())
            .api_server_flag("--disable-admission-plugins=TaintNodesByCondition")
            .api_server_flag("--max-requests-inflight=5000")
            .api_server_flag("--max-mutating-requests-inflight=2500");
        Self::new(ServerProcess::Real(Box::new(plan.start().await?)), clock)
    }

    /// Starts a whole Kubernetes, with kwok to simulate the nodes that are added.
    pub(crate) async fn real_with_controllers(clock: &Clock) -> anyhow::Result<Self> {
        let plan = RealCluster::plan().durable().clock(clock.clone());
        let plan = plan.controllers().nodes(Nodes::Simulated(0));
        Self::new(ServerProcess::Real(Box::new(plan.start().await?)), clock)
    }

    /// Starts Gantry's API server, durable.
    pub(crate) async fn embedded(clock: &Clock) -> anyhow::Result<Self> {
        let plan = embedded::Plan::new(beside_this_program("gantry")?);
        Self::new(ServerProcess::Embedded(Box::new(plan.start(clock).await?)), clock)
    }

    fn new(server: ServerProcess, clock: &Clock) -> anyhow::Result<Self> {
        let (target, kubeconfig) = match &server {
            ServerProcess::Real(cluster) => {
                (cluster.admin().target().clone(), cluster.admin().kubeconfig().to_owned())
            }
            ServerProcess::Embedded(server) => {
                (server.target().clone(), server.kubeconfig().to_owned())
            }
        };
        let client = || Client::new(&target, Protocol::Http2, clock.clone());
        let clients = (0..MAX_CONCURRENT_REQUESTS).map(|_| client()).collect::<Result<_, _>>()?;
        Ok(Self { target, kubeconfig, clients, clock: clock.clone(), server })
    }

    /// A folder that is removed with the server.
    pub(crate) fn folder(&self) -> PathBuf {
        match &self.server {
            ServerProcess::Real(cluster) => cluster.folder(),
            ServerProcess::Embedded(_) => {
                let folder = self.kubeconfig.parent().map(PathBuf::from);
                folder.unwrap_or_else(std::env::temp_dir)
            }
        }
    }

    /// Sends all of these requests, a few at a time.
    pub(crate) async fn send_all(
        &self,
        requests: impl IntoIterator<Item = Request>,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let mut lanes: Vec<Vec<Request>> = vec![Vec::new(); MAX_CONCURRENT_REQUESTS];
        for (index, request) in requests.into_iter().enumerate() {
            lanes[index % MAX_CONCURRENT_REQUESTS].push(request);
        }
        let mut tasks = tasks.child();
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
        tasks.join().await.map_err(Into::into)
    }

    /// Creates objects at a path.
    pub(crate) async fn create(
        &self,
        path: &str,
        objects: &[Value],
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        self.send_all(objects.iter().map(|it| Request::post(path, it)), tasks).await
    }

    /// Creates nodes with so many CPUs that accept pods: some servers create each node with a taint
    /// that a controller removes, and no such controller runs here.
    pub(crate) async fn create_nodes(&self, cpus: u64, tasks: &mut Tasks) -> anyhow::Result<()> {
        let nodes = wrapper::nodes(cpus);
        self.create(NODES, &nodes, tasks).await?;
        let open = json!({"spec": {"taints": null}});
        let opened = nodes.iter().filter_map(|it| it["metadata"]["name"].as_str()).map(|name| {
            Request::patch(format!("{NODES}/{name}"), "application/merge-patch+json", &open)
        });
        self.send_all(opened, tasks).await
    }

    /// Creates Gantry's CRDs and that of the simulated job, and waits until they are served.
    pub(crate) async fn create_definitions(&self, tasks: &mut Tasks) -> anyhow::Result<()> {
        self.create(DEFINITIONS, &wrapper::definitions()?, tasks).await?;
        self.wait_until_served().await
    }

    /// Creates the CRDs in the files of a folder, and waits until they are served.
    pub(crate) async fn apply(&self, folder: &Path) -> anyhow::Result<()> {
        let ServerProcess::Real(cluster) = &self.server else {
            anyhow::bail!("only a real cluster has kubectl");
        };
        let mut kubectl = cluster.admin().kubectl();
        let folder = fs::canonicalize(folder)
            .with_context(|| format!("there is no {}", folder.display()))?;
        kubectl.args(["apply", "--server-side", "--filename"]).arg(folder);
        let answer = kubectl.output().context("could not run kubectl")?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        ensure!(answer.status.success(), "could not apply CRDs: {said}");
        self.wait_until_served().await
    }

    /// Waits until every CRD is served and listed in the discovery that clients read. That happens
    /// a moment after the CRD is created.
    async fn wait_until_served(&self) -> anyhow::Result<()> {
        let begun = self.clock.moment();
        loop {
            let definitions = self.read(Request::get(DEFINITIONS)).await?;
            let discovery = Request::get("/apis")
                .header(ACCEPT, HeaderValue::from_static(AGGREGATED_DISCOVERY));
            let missing = unserved_definitions(&definitions, &self.read(discovery).await?);
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(
                self.clock.moment() - begun < EVENT_TIMEOUT,
                "not served: {}",
                missing.join(", ")
            );
            self.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    async fn read(&self, request: Request) -> anyhow::Result<Value> {
        let path = request.path_and_query.clone();
        let answer = self.clients[0].send(request).await?;
        ensure!(answer.status.is_success(), "{path}: {}: {}", answer.status, answer.text());
        Ok(answer.json()?)
    }

    /// Starts Gantry's operator with the queue alone.
    pub(crate) fn start_operator(
        &self,
        settings: &OperatorSettings<'_>,
    ) -> anyhow::Result<Program> {
        let connection = match settings.limit.0 {
            Some((rate, burst)) => format!("{{qps: {rate}, burst: {burst}}}"),
            None => "{qps: -1}".to_owned(),
        };
        let text = format!(
            "clientConnection: {connection}\n\
             metrics: {{bindAddress: \"0\"}}\n\
             health: {{bindAddress: \"0\"}}\n\
             mcadEnabled: true\n\
             mcad: {{{}}}\n",
            settings.queue
        );
        let file = self.folder().join("operator.yaml");
        fs::write(&file, text)?;
        let arguments: [OsString; 5] = [
            "operator".into(),
            "--kubeconfig".into(),
            self.kubeconfig.clone().into(),
            "--config-file".into(),
            file.into(),
        ];
        Program::start("operator", &beside_this_program("gantry")?, &arguments, &self.folder())
    }
}

/// Returns which versions of which CRDs are not in discovery yet.
fn unserved_definitions(definitions: &Value, discovery: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut listed = HashSet::new();
    for group in list(&discovery["items"]) {
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let [group, version, resource] =
                    [&group["metadata"]["name"], &version["version"], &resource["resource"]];
                listed.insert(format!("{group} {version} {resource}"));
            }
        }
    }
    let wanted = list(&definitions["items"]).into_iter().flat_map(|it| {
        let spec = &it["spec"];
        let served = list(&spec["versions"]).into_iter().filter(|it| it["served"] == true);
        let (group, plural) = (spec["group"].clone(), spec["names"]["plural"].clone());
        let name = |it: Value| format!("{group} {} {plural}", it["name"]);
        served.map(name).collect::<Vec<_>>()
    });
    wanted.filter(|it| !listed.contains(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn definitions_are_missing_until_the_discovery_has_each_version() {
        let definitions = json!({"items": [{"spec": {
            "group": "g", "names": {"plural": "things"},
            "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": true},
                         {"name": "v0", "served": false}]}}]});
        let discovery = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [{"resource": "things"}]}]}]});
        assert_eq!(unserved_definitions(&definitions, &discovery), [r#""g" "v2" "things""#]);
        assert_eq!(unserved_definitions(&json!({"items": []}), &discovery), [""; 0]);
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        assert_eq!("50/100".parse::<RateLimit>().unwrap(), RateLimit(Some((50, 100))));
        assert_eq!("none".parse::<RateLimit>().unwrap(), RateLimit(None));
        assert_eq!(RateLimit(Some((50, 100))).to_string(), "50/100");
        for wrong in ["", "50", "a/b", "50/"] {
            wrong.parse::<RateLimit>().unwrap_err();
        }
    }
}
