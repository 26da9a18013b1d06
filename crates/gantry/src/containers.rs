//! Simulated containers: answers the server's requests to nodes with crate `sim`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use gantry_apiserver::streams::kubelet_client::{
    Action, BoxFuture, Duplex, ExitCode, KubeletClient, KubeletError, LogOptions, LogStream,
    PodTarget, Session, SessionStreams,
};
use gantry_process::clock::Clock;
use gantry_sim::kernel::KernelAccess;
use gantry_sim::kubelet::{PodAddress, annotation, pod_address};
use gantry_sim::logs::{ContainerRun, LogReadOptions, LogReader, Logs, select_run};
use gantry_sim::programs::{PodNetwork, ProgramObserver};
use gantry_sim::shell::{self, ShellContext, Stdio};
use gantry_sim::view::{Container, Node, Pod};
use tokio::net::TcpStream;

/// How long a program on this machine may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The containers of all simulated nodes.
#[derive(Clone, Debug)]
pub struct Containers {
    logs: Logs,
    clock: Clock,
    network: PodNetwork,
    programs: Arc<OnceLock<ProgramObserver>>,
}

impl Containers {
    /// Creates containers whose output is in `logs`.
    #[must_use]
    pub fn new(logs: Logs, clock: Clock) -> Self {
        Self { logs, clock, network: PodNetwork::default(), programs: Arc::default() }
    }

    /// Returns the network of pods, through which programs are reached.
    #[must_use]
    pub fn network(&self) -> &PodNetwork {
        &self.network
    }

    /// Sets the observer that gives commands in containers the environment of their program.
    pub fn set_program_observer(&self, programs: &ProgramObserver) {
        // Only the first one counts, and there is only one.
        let _ = self.programs.set(programs.clone());
    }

    /// Returns the environment of a container: that of its running program, or else that of its
    /// pod.
    fn environment(&self, target: &PodTarget) -> Vec<(String, String)> {
        let programs = self.programs.get();
        match programs.and_then(|it| it.environment(&target.uid, &target.container)) {
            Some(known) => {
                known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            None => shell::variables(&target.pod_object, &target.container),
        }
    }

    /// Returns the kernel of a container's node; `None` if nodes have none or it is unreadable.
    fn kernel(&self, target: &PodTarget) -> Option<KernelAccess> {
        let node: Node = serde_json::from_value((*target.node_object).clone()).ok()?;
        let pod: Pod = serde_json::from_value((*target.pod_object).clone()).ok()?;
        let mut containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let container = containers.find(|it| it.name == target.container);
        let may_load_modules = container.is_some_and(Container::may_load_modules);
        self.programs.get()?.kernel(&node, may_load_modules)
    }

    async fn attach(
        &self,
        target: &PodTarget,
        ends: SessionStreams,
    ) -> Result<ExitCode, KubeletError> {
        let (pod, namespace) = (&target.pod, &target.namespace);
        if !is_running(target) {
            let words =
                format!("container {} not found in pod {pod}_{namespace}", target.container);
            return Err(KubeletError::NotFound(words));
        }
        let options = LogReadOptions { follow: true, tail: Some(0), ..LogReadOptions::default() };
        let reader =
            self.logs.read(&target.uid, &target.container, ContainerRun::Current, &options);
        // Input is discarded: no simulated program reads it.
        drop(ends.stdin);
        if let (Some(mut reader), Some(stdout)) = (reader, ends.stdout) {
            while let Some(bytes) = reader.next().await {
                if stdout.send(bytes).await.is_err() {
                    break;
                }
            }
        }
        Ok(ExitCode(0))
    }

    async fn exec(
        &self,
        target: &PodTarget,
        command: &[String],
        tty: bool,
        ends: SessionStreams,
    ) -> Result<ExitCode, KubeletError> {
        if !is_running(target) {
            return Err(KubeletError::NotFound(format!(
                "container not found ({:?})",
                target.container
            )));
        }
        let setting = ShellContext {
            hostname: shell::hostname(&target.pod_object),
            variables: self.environment(target),
            tty,
            clock: self.clock.clone(),
            files: self
                .programs
                .get()
                .map(|it| it.files(&target.uid, &target.container))
                .unwrap_or_default(),
            root: self
                .programs
                .get()
                .map(|it| it.root(&target.uid, &target.container))
                .unwrap_or_default(),
            kernel: self.kernel(target),
        };
        let SessionStreams { stdin, stdout, stderr, size: _, disconnected: gone } = ends;
        let stdio = Stdio { stdin, stdout, stderr };
        match shell::run(command, &setting, stdio, &gone).await {
            Ok(code) => Ok(ExitCode(code)),
            Err(words) => Err(KubeletError::Failed(words)),
        }
    }
}

impl KubeletClient for Containers {
    fn logs(
        &self,
        target: PodTarget,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<Box<dyn LogStream>, KubeletError>> {
        Box::pin(async move {
            let path = format!("containerLogs/{}/{}", target.namespace, target.pod);
            check_node_reachable(&target).map_err(|(address, words)| {
                let url = format!("https://{address}/{path}/{}", target.container);
                KubeletError::Unreachable(format!("Get {url:?}: {words}"))
            })?;
            let LogOptions { follow, previous, timestamps, since, tail, limit } = options;
            let run = select_run(&target.pod_object, &target.container, previous)
                .map_err(KubeletError::NotReady)?;
            let options = LogReadOptions { follow, timestamps, since, tail, limit };
            let reader = self.logs.read(&target.uid, &target.container, run, &options);
            // It runs and reports its status, but has no output yet.
            Ok(Box::new(ContainerLog(reader)) as Box<dyn LogStream>)
        })
    }

    fn run(
        &self,
        target: PodTarget,
        session: Session,
        ends: SessionStreams,
    ) -> BoxFuture<'_, Result<ExitCode, KubeletError>> {
        Box::pin(async move {
            check_node_reachable(&target).map_err(|(_, words)| KubeletError::Unreachable(words))?;
            match session.action {
                Action::Exec(command) => self.exec(&target, &command, session.tty, ends).await,
                Action::Attach => self.attach(&target, ends).await,
            }
        })
    }

    fn dial(
        &self,
        target: PodTarget,
        port: u16,
    ) -> BoxFuture<'_, Result<Box<dyn Duplex>, KubeletError>> {
        Box::pin(async move {
            check_node_reachable(&target).map_err(|(_, words)| KubeletError::Unreachable(words))?;
            let at = program_address(&target)?;
            let in_memory = self.network.dial_in_memory(SocketAddrV4::new(at.address, port));
            if let Some(dialled) = in_memory {
                let refused = |_| connection_refused(at.address, port, "connection refused");
                return Ok(Box::new(dialled.map_err(refused)?) as Box<dyn Duplex>);
            }
            let stream = dial_tcp(at, port, &self.clock).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// Connects to a program that listens on the address of its pod.
///
/// Addresses in 127.0.0.0/8 also lead to a program that listens on all addresses of this machine.
/// Its port cannot be that of a pod's program as well, so it is detected by connecting to an
/// address that no program has.
async fn dial_tcp(at: PodAddress, port: u16, clock: &Clock) -> Result<TcpStream, KubeletError> {
    if connect(at.never_assigned, port, clock).await.is_ok() {
        return Err(connection_refused(at.address, port, "connection refused"));
    }
    let stream = connect(at.address, port, clock).await?;
    // Connections that are forwarded were already waited for.
    stream.set_nodelay(true).map_err(|error| KubeletError::Failed(error.to_string()))?;
    Ok(stream)
}

async fn connect(address: Ipv4Addr, port: u16, clock: &Clock) -> Result<TcpStream, KubeletError> {
    let connecting = TcpStream::connect(SocketAddrV4::new(address, port));
    match clock.timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            Err(connection_refused(address, port, "connection refused"))
        }
        Ok(Err(error)) => Err(connection_refused(address, port, &error.to_string())),
        Err(_) => Err(KubeletError::Unreachable(format!("dial tcp {address}:{port}: i/o timeout"))),
    }
}

fn connection_refused(address: Ipv4Addr, port: u16, why: &str) -> KubeletError {
    KubeletError::Unreachable(format!("dial tcp {address}:{port}: connect: {why}"))
}

/// Returns the address on which the programs of a pod listen.
fn program_address(target: &PodTarget) -> Result<PodAddress, KubeletError> {
    let (pod, host) = (&target.pod_object, &target.node_object);
    if pod["status"]["phase"] != "Running" {
        return Err(KubeletError::NotReady(format!("pod {:?} is not running", target.pod)));
    }
    let is_simulated = host["metadata"]["annotations"][annotation::KWOK_NODE] == "fake";
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let in_host_network = pod["spec"]["hostNetwork"] == true;
    let range = host["spec"]["podCIDR"].as_str().unwrap_or_default();
    let address = pod_address(address, in_host_network, range).filter(|_| is_simulated);
    address.ok_or_else(|| KubeletError::Forbidden("address not allowed".to_owned()))
}

/// A log as the server reads it; `None` is an empty one.
struct ContainerLog(Option<LogReader>);

impl LogStream for ContainerLog {
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.0.as_mut()?.next().await })
    }
}

/// Returns whether the container runs, according to the status of its pod.
fn is_running(target: &PodTarget) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| target.pod_object["status"][list].as_array());
    let mut found = statuses.flatten().filter(|status| status["name"] == target.container);
    found.any(|status| status["state"]["running"].is_object())
}

/// Checks that the node has power; the error has its address and the message of a failed
/// connection.
fn check_node_reachable(target: &PodTarget) -> Result<(), (String, String)> {
    let host = &target.node_object;
    if host["metadata"]["annotations"][annotation::NODE_POWER] != "down" {
        return Ok(());
    }
    let addresses = host["status"]["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|it| it["type"] == "InternalIP");
    let address = internal.find_map(|it| it["address"].as_str()).unwrap_or(&target.node);
    let port = host["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let address = format!("{address}:{}", port.unwrap_or(10_250));
    let words = format!("dial tcp {address}: connect: no route to host");
    Err((address, words))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn target(state: &Value, host: &Value) -> PodTarget {
        let object = json!({ "metadata": { "name": "p" }, "status": { "containerStatuses": [
            { "name": "c", "state": state },
        ] } });
        PodTarget {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            container: "c".to_owned(),
            pod_object: Arc::new(object),
            node_object: Arc::new(host.clone()),
        }
    }

    async fn run(target: PodTarget, action: Action) -> Result<ExitCode, KubeletError> {
        let containers = Containers::new(Logs::new(), Clock::system());
        let (stdout, _out) = mpsc::channel(8);
        let ends = SessionStreams {
            stdin: None,
            stdout: Some(stdout),
            stderr: None,
            size: watch::channel(None).1,
            disconnected: CancellationToken::new(),
        };
        containers.run(target, Session { action, tty: false }, ends).await
    }

    #[tokio::test]
    async fn stopped_containers_refuse_sessions() {
        let (running, waiting) = (json!({ "running": {} }), json!({ "waiting": {} }));
        let up = json!({});
        let down = json!({
            "metadata": { "annotations": { annotation::NODE_POWER: "down" } },
            "status": {
                "addresses": [
                    { "type": "Hostname", "address": "n" },
                    { "type": "InternalIP", "address": "127.1.0.1" },
                ],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10251 } },
            },
        });
        let exec = |name: &str| Action::Exec(vec![name.to_owned()]);
        let route = "dial tcp 127.1.0.1:10251: connect: no route to host";
        let missing = "OCI runtime exec failed: exec failed: unable to start container process: \
                       exec: \"x\": executable file not found in $PATH";
        let unknown = |words: &str| Err(KubeletError::NotFound(words.to_owned()));
        let table = [
            (&running, &up, exec("true"), Ok(ExitCode(0))),
            (&running, &up, exec("false"), Ok(ExitCode(1))),
            (&running, &up, exec("x"), Err(KubeletError::Failed(missing.to_owned()))),
            (&running, &down, exec("true"), Err(KubeletError::Unreachable(route.to_owned()))),
            (&waiting, &up, exec("true"), unknown("container not found (\"c\")")),
            (&waiting, &up, Action::Attach, unknown("container c not found in pod p_ns")),
            // It runs and has no output.
            (&running, &up, Action::Attach, Ok(ExitCode(0))),
        ];
        for (state, host, action, expected) in table {
            let words = format!("{state} {action:?}");
            assert_eq!(run(target(state, host), action).await, expected, "{words}");
        }
        let containers = Containers::new(Logs::new(), Clock::system());
        let fault = containers.logs(target(&running, &down), LogOptions::default()).await.err();
        let words = format!("Get \"https://127.1.0.1:10251/containerLogs/ns/p/c\": {route}");
        assert_eq!(fault, Some(KubeletError::Unreachable(words)));
        let opened = containers.logs(target(&running, &up), LogOptions::default()).await;
        assert_eq!(opened.unwrap().next().await, None);
    }

    /// A pod at `address`, on a node with this range.
    fn pod(address: Ipv4Addr, phase: &str, range: &str, annotations: &Value) -> PodTarget {
        let host =
            json!({ "metadata": { "annotations": annotations }, "spec": { "podCIDR": range } });
        let mut target = target(&json!({ "running": {} }), &host);
        let status = json!({ "phase": phase, "podIP": address });
        target.pod_object = Arc::new(json!({ "metadata": { "name": "p" }, "status": status }));
        target
    }

    #[tokio::test]
    async fn only_listeners_on_the_pod_address_are_reached() {
        let containers = Containers::new(Logs::new(), Clock::system());
        let range = "127.77.16.0/20";
        let own = Ipv4Addr::new(127, 77, 16, 9);
        let program = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
        // A listener on all addresses also accepts connections at an address that no program has.
        let last = Ipv4Addr::new(127, 77, 31, 255);
        let everywhere = tokio::net::TcpListener::bind((last, 0)).await.unwrap();
        let open = everywhere.local_addr().unwrap().port();
        let _too = tokio::net::TcpListener::bind((own, open)).await.unwrap();
        let local = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [port, inner] = [&program, &local].map(|it| it.local_addr().unwrap().port());
        let fake = json!({ annotation::KWOK_NODE: "fake" });
        let down = json!({ annotation::KWOK_NODE: "fake", annotation::NODE_POWER: "down" });
        let forbidden = Some(KubeletError::Forbidden("address not allowed".to_owned()));
        let refused = |port| Some(connection_refused(own, port, "connection refused"));
        let route = "dial tcp n:10250: connect: no route to host".to_owned();
        let home = Ipv4Addr::LOCALHOST;
        let table = [
            ("its program", own, "Running", range, &fake, port, None),
            ("another's, on all addresses", own, "Running", range, &fake, open, refused(open)),
            ("no listener", own, "Running", range, &fake, inner, refused(inner)),
            ("this machine", home, "Running", range, &fake, inner, forbidden.clone()),
            ("with its range", home, "Running", "127.0.0.0/20", &fake, inner, forbidden.clone()),
            ("a real node", own, "Running", range, &json!({}), port, forbidden),
            (
                "not yet",
                own,
                "Pending",
                range,
                &fake,
                port,
                Some(KubeletError::NotReady("pod \"p\" is not running".to_owned())),
            ),
            (
                "no power",
                own,
                "Running",
                range,
                &down,
                port,
                Some(KubeletError::Unreachable(route)),
            ),
        ];
        for (why, address, phase, range, annotations, port, expected) in table {
            let dialled = containers.dial(pod(address, phase, range, annotations), port).await;
            assert_eq!(dialled.err(), expected, "{why}");
        }
    }
}
