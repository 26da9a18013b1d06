//! The actions of probes and hooks of programs: resolved here, executed by [`ActionRunner`].

use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use http_body_util::Empty;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::network::Dial;
use crate::kubelet::Settings;
use crate::shell;
use crate::view::{Container, Exec, Handler, HttpGet, Pod, PortName, Sleep, TcpSocket};

/// An action with its names and defaults resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedAction {
    /// A GET request to the pod itself.
    Http { port: u16, path: String, headers: Vec<(String, String)> },
    /// A connection to the pod itself.
    Tcp { port: u16 },
    /// A command in the simulated shell of the container.
    Exec { command: Vec<String> },
    /// A pause.
    Sleep { time: Duration },
}

/// The most output bytes of a command that are reported.
const MAX_OUTPUT_BYTES: usize = 10 << 10;

/// Resolves an action for a pod with an address.
///
/// # Errors
/// Why simulated nodes do not support it, and what to write instead.
pub(crate) fn resolve_action(
    address: &str,
    container: &Container,
    action: &Handler,
) -> Result<ResolvedAction, String> {
    let Handler { http_get, tcp_socket, exec, grpc, sleep } = action;
    if let Some(HttpGet { path, port, host, scheme, http_headers }) = http_get {
        check_own_host(address, "httpGet.host", host)?;
        if !matches!(scheme.as_str(), "" | "HTTP") {
            return Err(format!(
                "httpGet.scheme {scheme:?} is not simulated: write HTTP, tcpSocket or exec"
            ));
        }
        let path = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
        if let Err(error) = path.parse::<Uri>() {
            return Err(format!("httpGet.path {path:?} is not a request path: {error}"));
        }
        let headers = http_headers.iter().map(|it| (it.name.clone(), it.value.clone()));
        let headers: Vec<(String, String)> = headers.collect();
        for (name, value) in &headers {
            let good = name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok();
            if !good {
                return Err(format!("httpGet.httpHeaders: {name:?} cannot be sent as a header"));
            }
        }
        let port = port_number(container, "httpGet.port", port)?;
        return Ok(ResolvedAction::Http { port, path, headers });
    }
    if let Some(TcpSocket { port, host }) = tcp_socket {
        check_own_host(address, "tcpSocket.host", host)?;
        return Ok(ResolvedAction::Tcp { port: port_number(container, "tcpSocket.port", port)? });
    }
    if let Some(Exec { command }) = exec {
        return Ok(ResolvedAction::Exec { command: command.clone() });
    }
    if let Some(Sleep { seconds }) = sleep {
        let seconds = u64::try_from(*seconds).unwrap_or_default();
        return Ok(ResolvedAction::Sleep { time: Duration::from_secs(seconds) });
    }
    Err(match grpc {
        Some(_) => "grpc is not simulated: write httpGet, tcpSocket or exec".to_owned(),
        None => "no action is named: write httpGet, tcpSocket or exec".to_owned(),
    })
}

/// Rejects hosts other than the pod itself: the author of a pod must not make this process connect
/// to addresses that only it can reach.
fn check_own_host(address: &str, field: &str, host: &str) -> Result<(), String> {
    match host.is_empty() || host == address {
        true => Ok(()),
        false => Err(format!(
            "{field} {host:?}: simulated nodes reach only the pod itself; leave it out"
        )),
    }
}

fn port_number(container: &Container, field: &str, port: &PortName) -> Result<u16, String> {
    let found = match port {
        PortName::Number(number) => u16::try_from(*number).ok(),
        PortName::Name(name) => match name.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                let named = container.ports.iter().find(|it| it.name == *name);
                named.and_then(|it| u16::try_from(it.container_port).ok())
            }
        },
    };
    let found = found.filter(|it| *it != 0);
    found.ok_or_else(|| match port {
        PortName::Number(number) => format!("{field} {number} is not a port: write 1 to 65535"),
        PortName::Name(name) => format!(
            "{field} {name:?} is not a port of container {}: name one of its ports",
            container.name
        ),
    })
}

/// Returns the probes of a pod's programs that simulated nodes do not support.
pub(crate) fn unsupported_probes(settings: &Settings, pod: &Pod, address: &str) -> Vec<String> {
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let mut found = Vec::new();
    for container in all.filter(|it| settings.is_program(it)) {
        let probes = [
            ("startupProbe", &container.startup_probe),
            ("readinessProbe", &container.readiness_probe),
            ("livenessProbe", &container.liveness_probe),
        ];
        for (name, probe) in probes {
            let fault =
                probe.as_ref().and_then(|it| resolve_action(address, container, &it.action).err());
            found.extend(fault.map(|why| format!("container {}: {name}: {why}", container.name)));
        }
    }
    found
}

/// Executes actions for one container.
#[derive(Clone)]
pub(super) struct ActionRunner {
    pub(super) network: Arc<dyn Dial>,
    pub(super) address: Ipv4Addr,
    pub(super) shell: shell::ShellContext,
    pub(super) clock: Clock,
}

impl ActionRunner {
    /// Executes an action within a timeout. The error is the message of a kubelet.
    pub(super) async fn run(&self, attempt: &ResolvedAction, time: Duration) -> Result<(), String> {
        match self.clock.timeout(time, self.run_unbounded(attempt)).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout_message(attempt, time)),
        }
    }

    fn timeout_message(&self, attempt: &ResolvedAction, time: Duration) -> String {
        let address = self.address;
        match attempt {
            ResolvedAction::Http { port, path, .. } => format!(
                "Get \"http://{address}:{port}{path}\": context deadline exceeded (Client.Timeout \
                 exceeded while awaiting headers)"
            ),
            ResolvedAction::Tcp { port } => format!("dial tcp {address}:{port}: i/o timeout"),
            ResolvedAction::Exec { command } => {
                format!("command {:?} timed out after {}s", command.join(" "), time.as_secs())
            }
            ResolvedAction::Sleep { .. } => "context deadline exceeded".to_owned(),
        }
    }

    async fn run_unbounded(&self, attempt: &ResolvedAction) -> Result<(), String> {
        match attempt {
            ResolvedAction::Http { port, path, headers } => self.get(*port, path, headers).await,
            ResolvedAction::Tcp { port } => {
                let stream = self.network.dial(self.address, *port).await;
                stream.map(drop).map_err(|error| self.dial_error(*port, &error))
            }
            ResolvedAction::Exec { command } => self.exec(command).await,
            ResolvedAction::Sleep { time } => {
                self.clock.sleep(*time).await;
                Ok(())
            }
        }
    }

    fn dial_error(&self, port: u16, error: &std::io::Error) -> String {
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {}:{port}: {why}", self.address)
    }

    async fn get(&self, port: u16, path: &str, headers: &[(String, String)]) -> Result<(), String> {
        let address = self.address;
        let failed = |why: String| format!("Get \"http://{address}:{port}{path}\": {why}");
        let stream = self.network.dial(address, port).await;
        let stream = stream.map_err(|error| failed(self.dial_error(port, &error)))?;
        let mut request = Request::get(path).header(header::CONNECTION, "close");
        let named = |name: &HeaderName| {
            headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name.as_str()))
        };
        for (name, value) in [
            (header::HOST, format!("{address}:{port}")),
            (header::USER_AGENT, "kube-probe/1.34".to_owned()),
            (header::ACCEPT, "*/*".to_owned()),
        ] {
            if !named(&name) {
                request = request.header(name, value);
            }
        }
        let request = headers.iter().fold(request, |it, (name, value)| it.header(name, value));
        let request = request.body(Empty::<Bytes>::new()).map_err(|it| failed(it.to_string()))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|it| failed(it.to_string()))?;
        let mut answer = pin!(sender.send_request(request));
        let answer = tokio::select! {
            biased;
            // May be dropped: only the response counts.
            answer = answer.as_mut() => answer,
            // A peer may close as soon as it has responded: what it sent before is available.
            _ = connection => answer.await,
        };
        let answer = answer.map_err(|it| failed(it.to_string()))?;
        match answer.status().as_u16() {
            200..400 => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        }
    }

    async fn exec(&self, command: &[String]) -> Result<(), String> {
        let (sender, mut output) = mpsc::channel::<Bytes>(8);
        let stdio =
            shell::Stdio { stdin: None, stdout: Some(sender.clone()), stderr: Some(sender) };
        let never = CancellationToken::new();
        let said = async {
            let mut said = Vec::new();
            while let Some(bytes) = output.recv().await {
                let left = MAX_OUTPUT_BYTES.saturating_sub(said.len());
                said.extend_from_slice(&bytes[..bytes.len().min(left)]);
            }
            said
        };
        let (code, said) = tokio::join!(shell::run(command, &self.shell, stdio, &never), said);
        match code? {
            0 => Ok(()),
            _ => Err(String::from_utf8_lossy(&said).trim_end().to_owned()),
        }
    }
}
