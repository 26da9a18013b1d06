//! The server on which a measurement plays, and what stands on it before anything arrives.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::embedded::{self, Embedded};
use gantry_testkit::http::{Client, Protocol, Request, Target};
use http::HeaderValue;
use http::header::ACCEPT;
use serde_json::{Value, json};

use super::program::{Program, beside_this_program};
use super::watch::PATIENCE;
use super::wrapper::{self, DEFINITIONS};

const NODES: &str = "/api/v1/nodes";
/// Requests at a time; more only wait in the server.
const CLIENTS: usize = 16;
/// The form of discovery that has everything in one answer.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// How long a controller has to look around before anything arrives.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// A server with nothing on it but what is put there.
pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) clients: Vec<Client>,
    pub(crate) clock: Clock,
    server: Server,
}

enum Server {
    Real(Box<RealCluster>),
    Embedded(Box<Embedded>),
}

/// How often a controller may ask: so many times a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<(u32, u32)>);

impl std::str::FromStr for Limit {
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

impl std::fmt::Display for Limit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some((rate, burst)) => write!(formatter, "{rate}/{burst}"),
            None => formatter.write_str("no limit"),
        }
    }
}

/// What our operator shall do: the keys below `mcad`, as text.
pub(crate) struct Operator<'a> {
    pub(crate) limit: Limit,
    pub(crate) queue: &'a str,
}

impl Stage {
    /// etcd and kube-apiserver alone, durable, with the limits of Kueue's own measurement. Nodes are
    /// there without a kubelet, so nobody taints them.
    pub(crate) async fn real(clock: &Clock) -> anyhow::Result<Self> {
        let plan = RealCluster::plan()
            .durable()
            .clock(clock.clone())
            .api_server_flag("--disable-admission-plugins=TaintNodesByCondition")
            .api_server_flag("--max-requests-inflight=5000")
            .api_server_flag("--max-mutating-requests-inflight=2500");
        Self::on(Server::Real(Box::new(plan.start().await?)), clock)
    }

    /// A whole Kubernetes, with kwok to play the nodes that come.
    pub(crate) async fn whole(clock: &Clock) -> anyhow::Result<Self> {
        let plan = RealCluster::plan().durable().clock(clock.clone());
        let plan = plan.controllers().nodes(Nodes::Simulated(0));
        Self::on(Server::Real(Box::new(plan.start().await?)), clock)
    }

    /// Our own API server, durable.
    pub(crate) async fn embedded(clock: &Clock) -> anyhow::Result<Self> {
        let plan = embedded::Plan::new(beside_this_program("gantry")?);
        Self::on(Server::Embedded(Box::new(plan.start(clock).await?)), clock)
    }

    fn on(server: Server, clock: &Clock) -> anyhow::Result<Self> {
        let (target, kubeconfig) = match &server {
            Server::Real(cluster) => {
                (cluster.admin().target().clone(), cluster.admin().kubeconfig().to_owned())
            }
            Server::Embedded(server) => (server.target().clone(), server.kubeconfig().to_owned()),
        };
        let client = || Client::new(&target, Protocol::Http2, clock.clone());
        let clients = (0..CLIENTS).map(|_| client()).collect::<Result<_, _>>()?;
        Ok(Self { target, kubeconfig, clients, clock: clock.clone(), server })
    }

    /// A folder that goes with the server.
    pub(crate) fn folder(&self) -> PathBuf {
        match &self.server {
            Server::Real(cluster) => cluster.folder(),
            Server::Embedded(_) => {
                let folder = self.kubeconfig.parent().map(PathBuf::from);
                folder.unwrap_or_else(std::env::temp_dir)
            }
        }
    }

    /// Sends all of these, a few at a time.
    pub(crate) async fn send_all(
        &self,
        requests: impl IntoIterator<Item = Request>,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let mut lanes: Vec<Vec<Request>> = vec![Vec::new(); CLIENTS];
        for (index, request) in requests.into_iter().enumerate() {
            lanes[index % CLIENTS].push(request);
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

    /// Puts objects at a path.
    pub(crate) async fn create(
        &self,
        path: &str,
        objects: &[Value],
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        self.send_all(objects.iter().map(|it| Request::post(path, it)), tasks).await
    }

    /// Brings nodes with so many cpus, open for pods: some servers let each begin with a taint that a controller
    /// takes away, and none runs here.
    pub(crate) async fn nodes(&self, cpus: u64, tasks: &mut Tasks) -> anyhow::Result<()> {
        let nodes = wrapper::nodes(cpus);
        self.create(NODES, &nodes, tasks).await?;
        let open = json!({"spec": {"taints": null}});
        let opened = nodes.iter().filter_map(|it| it["metadata"]["name"].as_str()).map(|name| {
            Request::patch(format!("{NODES}/{name}"), "application/merge-patch+json", &open)
        });
        self.send_all(opened, tasks).await
    }

    /// Brings our own kinds and the one that is played, and waits until they are served.
    pub(crate) async fn define(&self, tasks: &mut Tasks) -> anyhow::Result<()> {
        self.create(DEFINITIONS, &wrapper::definitions()?, tasks).await?;
        self.served().await
    }

    /// Brings the definitions that are files in a folder, and waits until they are served.
    pub(crate) async fn apply(&self, folder: &Path) -> anyhow::Result<()> {
        let Server::Real(cluster) = &self.server else {
            anyhow::bail!("only a real cluster has kubectl");
        };
        let mut kubectl = cluster.admin().kubectl();
        let folder = fs::canonicalize(folder)
            .with_context(|| format!("there is no {}", folder.display()))?;
        kubectl.args(["apply", "--server-side", "--filename"]).arg(folder);
        let answer = kubectl.output().context("could not run kubectl")?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        ensure!(answer.status.success(), "could not apply definitions: {said}");
        self.served().await
    }

    /// Waits until every definition is served, and told of in the discovery that clients read. That is
    /// a moment after it is there.
    async fn served(&self) -> anyhow::Result<()> {
        let begun = self.clock.moment();
        loop {
            let definitions = self.read(Request::get(DEFINITIONS)).await?;
            let told = Request::get("/apis").header(ACCEPT, HeaderValue::from_static(AGGREGATED));
            let missing = missing(&definitions, &self.read(told).await?);
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(self.clock.moment() - begun < PATIENCE, "not served: {}", missing.join(", "));
            self.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    async fn read(&self, request: Request) -> anyhow::Result<Value> {
        let path = request.path_and_query.clone();
        let answer = self.clients[0].send(request).await?;
        ensure!(answer.status.is_success(), "{path}: {}: {}", answer.status, answer.text());
        Ok(answer.json()?)
    }

    /// Starts our operator with the queue alone.
    pub(crate) fn operator(&self, settings: &Operator<'_>) -> anyhow::Result<Program> {
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

/// Which versions of which definitions the discovery does not have yet.
fn missing(definitions: &Value, discovery: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut told = HashSet::new();
    for group in list(&discovery["items"]) {
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let [group, version, resource] =
                    [&group["metadata"]["name"], &version["version"], &resource["resource"]];
                told.insert(format!("{group} {version} {resource}"));
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
    wanted.filter(|it| !told.contains(it)).collect()
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
        assert_eq!(missing(&definitions, &discovery), [r#""g" "v2" "things""#]);
        assert_eq!(missing(&json!({"items": []}), &discovery), [""; 0]);
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        assert_eq!("50/100".parse::<Limit>().unwrap(), Limit(Some((50, 100))));
        assert_eq!("none".parse::<Limit>().unwrap(), Limit(None));
        assert_eq!(Limit(Some((50, 100))).to_string(), "50/100");
        for wrong in ["", "50", "a/b", "50/"] {
            wrong.parse::<Limit>().unwrap_err();
        }
    }
}
