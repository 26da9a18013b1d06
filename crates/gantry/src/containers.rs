//! Pretend containers as the server reaches them: what is asked of nodes, put to crate `sim`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use gantry_apiserver::nodes::{
    Action, Chunks, Duplex, Ends, Exit, Fault, Later, LogOptions, Nodes, Session, Target,
};
use gantry_process::clock::Clock;
use gantry_sim::kubelet::{PodAddress, annotation, pod_address};
use gantry_sim::logs::{Logs, Options, Reader, Run, readable};
use gantry_sim::programs::{PodNetwork, ProgramObserver};
use gantry_sim::shell::{self, Setting, Stdio};
use tokio::net::TcpStream;

/// How long a program on this machine may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The containers of all pretend nodes.
#[derive(Clone, Debug)]
pub struct Containers {
    logs: Logs,
    clock: Clock,
    network: PodNetwork,
    programs: Arc<OnceLock<ProgramObserver>>,
}

impl Containers {
    /// Containers that say what is in `logs`.
    #[must_use]
    pub fn new(logs: Logs, clock: Clock) -> Self {
        Self { logs, clock, network: PodNetwork::default(), programs: Arc::default() }
    }

    /// The network of pods, through which programs are reached.
    #[must_use]
    pub fn network(&self) -> &PodNetwork {
        &self.network
    }

    /// Lets commands in containers that are programs see the variables of those.
    pub fn show_environments_of(&self, programs: &ProgramObserver) {
        // Only the first counts, and there is only one.
        let _ = self.programs.set(programs.clone());
    }

    /// The variables of a container: those its program was started with, or else what its pod says.
    fn variables(&self, target: &Target) -> Vec<(String, String)> {
        let programs = self.programs.get();
        match programs.and_then(|it| it.environment(&target.uid, &target.container)) {
            Some(known) => {
                known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            None => shell::variables(&target.object, &target.container),
        }
    }

    async fn attach(&self, target: &Target, ends: Ends) -> Result<Exit, Fault> {
        let (pod, namespace) = (&target.pod, &target.namespace);
        if !is_running(target) {
            let words =
                format!("container {} not found in pod {pod}_{namespace}", target.container);
            return Err(Fault::Unknown(words));
        }
        let options = Options { follow: true, tail: Some(0), ..Options::default() };
        let reader = self.logs.read(&target.uid, &target.container, Run::Current, &options);
        // What is typed goes nowhere: no pretend program reads.
        drop(ends.stdin);
        if let (Some(mut reader), Some(stdout)) = (reader, ends.stdout) {
            while let Some(bytes) = reader.next().await {
                if stdout.send(bytes).await.is_err() {
                    break;
                }
            }
        }
        Ok(Exit(0))
    }

    async fn exec(
        &self,
        target: &Target,
        command: &[String],
        tty: bool,
        ends: Ends,
    ) -> Result<Exit, Fault> {
        if !is_running(target) {
            return Err(Fault::Unknown(format!("container not found ({:?})", target.container)));
        }
        let setting = Setting {
            hostname: shell::hostname(&target.object),
            variables: self.variables(target),
            tty,
            clock: self.clock.clone(),
            files: self
                .programs
                .get()
                .map(|it| it.files(&target.uid, &target.container))
                .unwrap_or_default(),
        };
        let Ends { stdin, stdout, stderr, size: _, gone } = ends;
        let stdio = Stdio { stdin, stdout, stderr };
        match shell::run(command, &setting, stdio, &gone).await {
            Ok(code) => Ok(Exit(code)),
            Err(words) => Err(Fault::Failed(words)),
        }
    }
}

impl Nodes for Containers {
    fn logs(
        &self,
        target: Target,
        options: LogOptions,
    ) -> Later<'_, Result<Box<dyn Chunks>, Fault>> {
        Box::pin(async move {
            let path = format!("containerLogs/{}/{}", target.namespace, target.pod);
            is_reachable(&target).map_err(|(address, words)| {
                let url = format!("https://{address}/{path}/{}", target.container);
                Fault::Unreachable(format!("Get {url:?}: {words}"))
            })?;
            let LogOptions { follow, previous, timestamps, since, tail, limit } = options;
            let run =
                readable(&target.object, &target.container, previous).map_err(Fault::NotNow)?;
            let options = Options { follow, timestamps, since, tail, limit };
            let reader = self.logs.read(&target.uid, &target.container, run, &options);
            // It runs, says its status, but has said nothing yet that is kept.
            Ok(Box::new(Log(reader)) as Box<dyn Chunks>)
        })
    }

    fn run(&self, target: Target, session: Session, ends: Ends) -> Later<'_, Result<Exit, Fault>> {
        Box::pin(async move {
            is_reachable(&target).map_err(|(_, words)| Fault::Unreachable(words))?;
            match session.action {
                Action::Exec(command) => self.exec(&target, &command, session.tty, ends).await,
                Action::Attach => self.attach(&target, ends).await,
            }
        })
    }

    fn dial(&self, target: Target, port: u16) -> Later<'_, Result<Box<dyn Duplex>, Fault>> {
        Box::pin(async move {
            is_reachable(&target).map_err(|(_, words)| Fault::Unreachable(words))?;
            let at = program_address(&target)?;
            let in_memory = self.network.dial_in_memory(SocketAddrV4::new(at.address, port));
            if let Some(dialled) = in_memory {
                let refused = |_| refused(at.address, port, "connection refused");
                return Ok(Box::new(dialled.map_err(refused)?) as Box<dyn Duplex>);
            }
            let stream = dial_tcp(at, port, &self.clock).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// Connects to a program that listens on the address of its pod.
///
/// Addresses in 127.0.0.0/8 also lead to whatever listens on all addresses of this machine. Its port
/// cannot be a program's as well, so it is found out at an address that no program has.
async fn dial_tcp(at: PodAddress, port: u16, clock: &Clock) -> Result<TcpStream, Fault> {
    if connect(at.never_assigned, port, clock).await.is_ok() {
        return Err(refused(at.address, port, "connection refused"));
    }
    let stream = connect(at.address, port, clock).await?;
    // What is forwarded was waited for once already.
    stream.set_nodelay(true).map_err(|error| Fault::Failed(error.to_string()))?;
    Ok(stream)
}

async fn connect(address: Ipv4Addr, port: u16, clock: &Clock) -> Result<TcpStream, Fault> {
    let connecting = TcpStream::connect(SocketAddrV4::new(address, port));
    match clock.timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            Err(refused(address, port, "connection refused"))
        }
        Ok(Err(error)) => Err(refused(address, port, &error.to_string())),
        Err(_) => Err(Fault::Unreachable(format!("dial tcp {address}:{port}: i/o timeout"))),
    }
}

fn refused(address: Ipv4Addr, port: u16, why: &str) -> Fault {
    Fault::Unreachable(format!("dial tcp {address}:{port}: connect: {why}"))
}

/// Where the programs of a pod listen.
fn program_address(target: &Target) -> Result<PodAddress, Fault> {
    let (pod, host) = (&target.object, &target.host);
    if pod["status"]["phase"] != "Running" {
        return Err(Fault::NotNow(format!("pod {:?} is not running", target.pod)));
    }
    let is_simulated = host["metadata"]["annotations"][annotation::FAKE] == "fake";
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let in_host_network = pod["spec"]["hostNetwork"] == true;
    let range = host["spec"]["podCIDR"].as_str().unwrap_or_default();
    let address = pod_address(address, in_host_network, range).filter(|_| is_simulated);
    address.ok_or_else(|| Fault::Forbidden("address not allowed".to_owned()))
}

/// A log as the server reads it; none is an empty one.
struct Log(Option<Reader>);

impl Chunks for Log {
    fn next(&mut self) -> Later<'_, Option<Bytes>> {
        Box::pin(async move { self.0.as_mut()?.next().await })
    }
}

/// Whether the container runs, by what its pod says.
fn is_running(target: &Target) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| target.object["status"][list].as_array());
    let mut found = statuses.flatten().filter(|status| status["name"] == target.container);
    found.any(|status| status["state"]["running"].is_object())
}

/// Whether the node has power; its address and the words of who tries in vain if not.
fn is_reachable(target: &Target) -> Result<(), (String, String)> {
    let host = &target.host;
    if host["metadata"]["annotations"][annotation::POWER] != "down" {
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

    fn target(state: &Value, host: &Value) -> Target {
        let object = json!({ "metadata": { "name": "p" }, "status": { "containerStatuses": [
            { "name": "c", "state": state },
        ] } });
        Target {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            container: "c".to_owned(),
            object: Arc::new(object),
            host: Arc::new(host.clone()),
        }
    }

    async fn run(target: Target, action: Action) -> Result<Exit, Fault> {
        let containers = Containers::new(Logs::new(), Clock::system());
        let (stdout, _out) = mpsc::channel(8);
        let ends = Ends {
            stdin: None,
            stdout: Some(stdout),
            stderr: None,
            size: watch::channel(None).1,
            gone: CancellationToken::new(),
        };
        containers.run(target, Session { action, tty: false }, ends).await
    }

    #[tokio::test]
    async fn what_does_not_run_cannot_be_spoken_to() {
        let (running, waiting) = (json!({ "running": {} }), json!({ "waiting": {} }));
        let up = json!({});
        let down = json!({
            "metadata": { "annotations": { annotation::POWER: "down" } },
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
        let unknown = |words: &str| Err(Fault::Unknown(words.to_owned()));
        let table = [
            (&running, &up, exec("true"), Ok(Exit(0))),
            (&running, &up, exec("false"), Ok(Exit(1))),
            (&running, &up, exec("x"), Err(Fault::Failed(missing.to_owned()))),
            (&running, &down, exec("true"), Err(Fault::Unreachable(route.to_owned()))),
            (&waiting, &up, exec("true"), unknown("container not found (\"c\")")),
            (&waiting, &up, Action::Attach, unknown("container c not found in pod p_ns")),
            // It runs and says nothing.
            (&running, &up, Action::Attach, Ok(Exit(0))),
        ];
        for (state, host, action, expected) in table {
            let words = format!("{state} {action:?}");
            assert_eq!(run(target(state, host), action).await, expected, "{words}");
        }
        let containers = Containers::new(Logs::new(), Clock::system());
        let fault = containers.logs(target(&running, &down), LogOptions::default()).await.err();
        let words = format!("Get \"https://127.1.0.1:10251/containerLogs/ns/p/c\": {route}");
        assert_eq!(fault, Some(Fault::Unreachable(words)));
        let opened = containers.logs(target(&running, &up), LogOptions::default()).await;
        assert_eq!(opened.unwrap().next().await, None);
    }

    /// A pod at `address`, on a node with this range.
    fn pod(address: Ipv4Addr, phase: &str, range: &str, annotations: &Value) -> Target {
        let host =
            json!({ "metadata": { "annotations": annotations }, "spec": { "podCIDR": range } });
        let mut target = target(&json!({ "running": {} }), &host);
        let status = json!({ "phase": phase, "podIP": address });
        target.object = Arc::new(json!({ "metadata": { "name": "p" }, "status": status }));
        target
    }

    #[tokio::test]
    async fn only_what_listens_on_the_pods_own_address_is_reached() {
        let containers = Containers::new(Logs::new(), Clock::system());
        let range = "127.77.16.0/20";
        let own = Ipv4Addr::new(127, 77, 16, 9);
        let program = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
        // What listens on all addresses also does at one that no program has.
        let last = Ipv4Addr::new(127, 77, 31, 255);
        let everywhere = tokio::net::TcpListener::bind((last, 0)).await.unwrap();
        let open = everywhere.local_addr().unwrap().port();
        let _too = tokio::net::TcpListener::bind((own, open)).await.unwrap();
        let local = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [port, inner] = [&program, &local].map(|it| it.local_addr().unwrap().port());
        let fake = json!({ annotation::FAKE: "fake" });
        let down = json!({ annotation::FAKE: "fake", annotation::POWER: "down" });
        let forbidden = Some(Fault::Forbidden("address not allowed".to_owned()));
        let nobody = |port| Some(refused(own, port, "connection refused"));
        let route = "dial tcp n:10250: connect: no route to host".to_owned();
        let home = Ipv4Addr::LOCALHOST;
        let table = [
            ("its program", own, "Running", range, &fake, port, None),
            ("another's, on all addresses", own, "Running", range, &fake, open, nobody(open)),
            ("nobody", own, "Running", range, &fake, inner, nobody(inner)),
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
                Some(Fault::NotNow("pod \"p\" is not running".to_owned())),
            ),
            ("no power", own, "Running", range, &down, port, Some(Fault::Unreachable(route))),
        ];
        for (why, address, phase, range, annotations, port, expected) in table {
            let dialled = containers.dial(pod(address, phase, range, annotations), port).await;
            assert_eq!(dialled.err(), expected, "{why}");
        }
    }
}
