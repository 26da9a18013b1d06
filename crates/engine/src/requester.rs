//! The requester: the stub that holds an allocation of accelerators for an engine elsewhere.
//!
//! It answers readiness probes as controllers tell it to, reports its accelerators, prints the log
//! that is relayed to it, and forwards connections to the engine once its address is configured.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::tasks::Tasks;
use gantry_serve::Body;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::confinement;
use crate::exchange::{self, Call, ServerBounds};
use crate::host::Host;

pub mod accelerators;
mod log_relay;
mod proxy;

use accelerators::{AcceleratorSource, Accelerators};
use log_relay::{LogRelay, LogRelayError};
use proxy::{Configured, Proxy, Target};

/// The exit code when the SPI port cannot be listened on.
pub const SPI_FAILED_EXIT_CODE: u8 = 10;
/// The exit code when the probes port cannot be listened on.
pub const PROBES_FAILED_EXIT_CODE: u8 = 11;
/// The exit code of wrong settings.
const USAGE_EXIT_CODE: u8 = 2;
/// How long requests may take when it stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest chunk of a log.
const MAX_BODY_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  gantry requester
  gantry requester --probes-port 8080 --spi-port 8081 --proxy-port 8082
  gantry requester --accelerators config-maps --node n1 --pod-uid $POD_UID --namespace default

Exit codes:
  0   stopped
  2   the command line or a variable is wrong
  10  the SPI port cannot be listened on
  11  the probes port cannot be listened on";

/// Hold an allocation of accelerators for an engine that runs elsewhere.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The port of readiness probes [default: $PROBES_PORT, or 8080].
    #[arg(long)]
    pub probes_port: Option<u16>,
    /// The port for controllers [default: $SPI_PORT, or 8081].
    #[arg(long)]
    pub spi_port: Option<u16>,
    /// The port of the proxy to the engine [default: $PROXY_PORT, or 8082].
    #[arg(long)]
    pub proxy_port: Option<u16>,
    /// How long the proxy tries to connect, like 10s or 500ms [default: $PROXY_DIAL_TIMEOUT, or
    /// 10s].
    #[arg(long, value_name = "TIME")]
    pub proxy_dial_timeout: Option<String>,
    /// The file of a token that callers of the port for controllers must present [default:
    /// $GANTRY_TOKEN_FILE, or none].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where accelerators are found: `vendor-tool`, `config-maps`, or `claims`.
    #[arg(long, value_name = "SOURCE", value_enum)]
    pub accelerators: Option<AcceleratorSource>,
    /// The node, for ConfigMaps [default: $NODE_NAME].
    #[arg(long)]
    pub node: Option<String>,
    /// The UID of the pod, for ConfigMaps [default: $POD_UID].
    #[arg(long)]
    pub pod_uid: Option<String>,
    /// The namespace, for ConfigMaps [default: $NAMESPACE].
    #[arg(long)]
    pub namespace: Option<String>,
    /// How many accelerators to allocate by ConfigMaps [default: what the container requests, or
    /// 1].
    #[arg(long, value_name = "COUNT")]
    pub num_gpus: Option<usize>,
    /// Ignored: accepted for manifests that set it.
    #[arg(long, hide = true)]
    pub metrics_port: Option<u16>,
    /// Ignored: accepted for manifests that set it.
    #[arg(long, hide = true)]
    pub debug_port: Option<u16>,
    /// Accepted: the verbosity of the log of the original's test requester.
    #[arg(short = 'v', long = "v", hide = true, value_name = "LEVEL")]
    pub verbosity: Option<i32>,
}

/// The checked settings.
struct Ports {
    probes: u16,
    spi: u16,
    proxy: u16,
    dial_timeout: Duration,
}

impl Ports {
    fn resolve(arguments: &Arguments, host: &Host) -> Result<Self, String> {
        let port = |given: Option<u16>, variable: &str, default: u16| match given {
            Some(port) => Ok(port),
            None => match host.variable(variable) {
                None => Ok(default),
                Some(text) => text.parse::<u16>().ok().filter(|it| *it != 0).ok_or_else(|| {
                    format!("{variable} is {text:?}: set it to a port from 1 to 65535")
                }),
            },
        };
        let given = arguments.proxy_dial_timeout.as_deref();
        let dial = given.or_else(|| host.variable("PROXY_DIAL_TIMEOUT")).unwrap_or("10s");
        let dial_timeout = dial.parse::<jiff::SignedDuration>().ok();
        let dial_timeout = dial_timeout.and_then(|it| Duration::try_from(it).ok());
        Ok(Self {
            probes: port(arguments.probes_port, "PROBES_PORT", 8080)?,
            spi: port(arguments.spi_port, "SPI_PORT", 8081)?,
            proxy: port(arguments.proxy_port, "PROXY_PORT", 8082)?,
            dial_timeout: dial_timeout.filter(|it| !it.is_zero()).ok_or_else(|| {
                format!("--proxy-dial-timeout is {dial:?}: write a time like 10s or 500ms")
            })?,
        })
    }
}

/// What its requests read and change.
struct State {
    host: Host,
    ready: Mutex<bool>,
    log: Mutex<LogRelay>,
    accelerators: Accelerators,
    proxy: Proxy,
    token: Option<String>,
}

/// Runs until the tasks stop, and returns the exit code.
pub async fn run(arguments: Arguments, host: Host, mut tasks: Tasks) -> u8 {
    let usage = |message: &str| {
        host.log(message);
        USAGE_EXIT_CODE
    };
    let ports = match Ports::resolve(&arguments, &host) {
        Ok(ports) => ports,
        Err(message) => return usage(&message),
    };
    let token = match host.token(arguments.token_file.as_ref()) {
        Ok(token) => token,
        Err(error) => return usage(&error.to_string()),
    };
    let accelerators = match Accelerators::prepare(&arguments, &host, &mut tasks) {
        Ok(accelerators) => accelerators,
        Err(message) => return usage(&message),
    };
    let address = host.listen_address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let proxy =
        Proxy::new(SocketAddr::from((address, ports.proxy)), ports.dial_timeout, &mut tasks);
    let state = Arc::new(State {
        host: host.clone(),
        ready: Mutex::new(false),
        log: Mutex::default(),
        accelerators,
        proxy,
        token,
    });
    let max_body_bytes = match host.confinement() {
        Some(_) => confinement::MAX_BODY_BYTES,
        None => MAX_BODY_BYTES,
    };
    let bounds = ServerBounds { max_body_bytes, drain: DRAIN_TIMEOUT };
    let (spi, probes) = (Arc::clone(&state), Arc::clone(&state));
    let answer = move |call: Call| {
        let state = Arc::clone(&spi);
        async move { state.spi(call).await }
    };
    let listening =
        exchange::listen(&mut tasks, "spi", (address, ports.spi).into(), bounds, answer);
    if let Err(error) = listening.await {
        host.log(&gantry_process::error_chain(&error));
        return SPI_FAILED_EXIT_CODE;
    }
    let answer = move |call: Call| std::future::ready(probes.probe(&call));
    let listening =
        exchange::listen(&mut tasks, "probes", (address, ports.probes).into(), bounds, answer);
    if let Err(error) = listening.await {
        host.log(&gantry_process::error_chain(&error));
        tasks.token().cancel();
        while tasks.join().await.is_err() {}
        return PROBES_FAILED_EXIT_CODE;
    }
    (host.set_ready)(true);
    host.log(&format!("requester: probes on {}, controllers on {}", ports.probes, ports.spi));
    let lost = tasks.join().await.is_err();
    while tasks.join().await.is_err() {}
    u8::from(lost)
}

impl State {
    fn is_ready(&self) -> bool {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_ready(&self, ready: bool) {
        let mut current = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != ready {
            *current = ready;
            self.host.log(if ready { "became ready" } else { "became unready" });
        }
    }

    fn probe(&self, call: &Call) -> Response<Body> {
        match (call.path.as_str(), &call.method) {
            ("/ready", &Method::GET | &Method::HEAD) => match self.is_ready() {
                true => exchange::text(StatusCode::OK, "OK\n"),
                false => exchange::text(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable\n"),
            },
            ("/ready", _) => exchange::method_not_allowed("GET, HEAD"),
            _ => not_found(),
        }
    }

    async fn spi(&self, call: Call) -> Response<Body> {
        if let Some(token) = &self.token
            && !call.presents(token)
        {
            return exchange::text(StatusCode::UNAUTHORIZED, "a bearer token is required\n");
        }
        let (get, post) = (call.method == Method::GET, call.method == Method::POST);
        match call.path.as_str() {
            "/v1/dual-pods/accelerators" if get => match self.accelerators.known() {
                uuids if uuids.is_empty() => exchange::text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("{}\n", self.accelerators.why_none()),
                ),
                uuids => exchange::json(StatusCode::OK, &json!(uuids)),
            },
            "/v1/dual-pods/accelerator-memory-usage" if get => {
                match self.accelerators.memory_usage(&self.host).await {
                    Ok(usage) => exchange::json(StatusCode::OK, &usage),
                    Err(message) => {
                        exchange::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{message}\n"))
                    }
                }
            }
            "/v1/become-ready" | "/v1/become-unready" if post => {
                self.set_ready(call.path == "/v1/become-ready");
                exchange::text(StatusCode::OK, "OK\n")
            }
            "/v1/set-log" if post => self.relay_log(&call),
            "/v1/proxy/config" if get => match self.proxy.target() {
                Some(target) => exchange::json(StatusCode::OK, &target.to_json()),
                None => exchange::text(StatusCode::NOT_FOUND, "proxy not configured\n"),
            },
            "/v1/proxy/config" if call.method == Method::PUT => self.configure_proxy(&call).await,
            "/v1/proxy/config" => exchange::method_not_allowed("GET, PUT"),
            "/v1/dual-pods/accelerators" | "/v1/dual-pods/accelerator-memory-usage" => {
                exchange::method_not_allowed("GET")
            }
            "/v1/become-ready" | "/v1/become-unready" | "/v1/set-log" => {
                exchange::method_not_allowed("POST")
            }
            _ => not_found(),
        }
    }

    fn relay_log(&self, call: &Call) -> Response<Body> {
        let position = call.query("startPos");
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = match log.accept(position.as_deref(), &call.body) {
            Ok(accepted) => accepted,
            Err(error) => return exchange::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let fresh = &call.body[call.body.len() - accepted..];
        match (self.host.output)(fresh) {
            Ok(()) => {
                log.commit(accepted);
                exchange::text(StatusCode::OK, "OK\n")
            }
            Err(error) => exchange::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{}\n", LogRelayError::NotWritten(error.to_string())),
            ),
        }
    }

    async fn configure_proxy(&self, call: &Call) -> Response<Body> {
        let value: Result<Value, _> = serde_json::from_slice(&call.body);
        let target = value.map_err(|error| error.to_string());
        let target = target.and_then(|it| Target::parse(&it));
        let target = match target.and_then(|it| it.allowed(self.host.confinement().is_some())) {
            Ok(target) => target,
            Err(message) => {
                return exchange::text(StatusCode::BAD_REQUEST, format!("{message}\n"));
            }
        };
        match self.proxy.configure(target.clone()).await {
            Configured::Listening => {
                self.host.log(&format!("proxy to {target}"));
                exchange::text(StatusCode::OK, "OK\n")
            }
            Configured::Same => exchange::text(StatusCode::OK, "OK\n"),
            Configured::Other(current) => exchange::text(
                StatusCode::CONFLICT,
                format!("the proxy is configured already, to {current}\n"),
            ),
            Configured::Failed(message) => {
                exchange::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{message}\n"))
            }
            Configured::Stopping => {
                exchange::text(StatusCode::SERVICE_UNAVAILABLE, "the requester is stopping\n")
            }
        }
    }
}

fn not_found() -> Response<Body> {
    exchange::text(StatusCode::NOT_FOUND, "404 page not found\n")
}
