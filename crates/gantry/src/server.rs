//! Wires the API server: a store, the service on it, and a door with TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gantry_apiserver::api::ClientAddress;
use gantry_apiserver::route::{Route, route};
use gantry_apiserver::stored::{Known, Line};
use gantry_apiserver::{Api, Body, Caller, Certificate, Mode, Settings, Strangers};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::Tasks;
use gantry_serve::limits::{Class, Figures, Limits, RequestBody};
use gantry_serve::pki::{Identity, Pki, RequestSigner};
use gantry_serve::tls::{ClientAuthority, ServerCertificate};
use gantry_serve::{Door, Options, Peer, counters::Counters};
use gantry_sim::pod_config::ApiServer;
use gantry_store::{Durability, OnDamage, OpenError, Recovery, Store};
use gantry_token::{Key, StaticTokens};
use http::{Request, Response};
use hyper::body::Incoming;

use crate::endpoint::Endpoint;

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where keys, objects and the kubeconfig are kept. Only its owner may read it.
    pub directory: PathBuf,
    /// Objects are kept in memory only.
    pub ephemeral: bool,
    /// Where to listen.
    pub address: SocketAddr,
    /// More names and addresses clients may reach it by.
    pub names: Vec<String>,
    /// What to do about a damaged log.
    pub damage: OnDamage,
    /// Who decides about requests, in this order.
    pub authorization: Vec<Mode>,
    /// Tokens that stand for somebody.
    pub tokens: StaticTokens,
    /// More authorities whose client certificates are believed, in PEM.
    pub client_authority: Option<String>,
    /// What the server shows instead of its own certificate.
    pub certificate: Option<Identity>,
    /// Who signs the tokens of service accounts.
    pub issuer: String,
    /// What becomes of requests that show nothing.
    pub strangers: Strangers,
    /// The network services have their addresses in, and how many bits of it are fixed.
    pub service_network: (Ipv4Addr, u8),
    /// The version of this program.
    pub version: &'static str,
    /// The plug-ins of admission that are on.
    pub plugins: gantry_apiserver::Plugins,
    /// Reaches what runs on nodes, if anything does.
    pub nodes: Option<Arc<dyn gantry_apiserver::nodes::Nodes>>,
    /// Whether Secrets with tokens of service accounts are filled in.
    pub token_secrets: bool,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    /// The service, for parts of the same process.
    pub api: Api,
    /// The store under it.
    pub store: Store<Known, Line>,
    /// Where it listens.
    pub address: SocketAddr,
    /// What was found when the store was opened.
    pub recovery: Recovery,
    /// What the owner needs to reach it. It holds a private key.
    pub kubeconfig: String,
    /// The authorities that vouch for its certificate, as PEM.
    pub authority: String,
    /// Signs certificates by which clients of this server are known.
    pub signer: RequestSigner,
}

/// Starts a server; its tasks belong to `tasks`.
///
/// # Errors
/// What is wrong with the directory, the keys, the log or the address.
pub async fn start(plan: Plan, tasks: &mut Tasks, metrics: Metrics) -> anyhow::Result<Running> {
    let counters = Counters::register(&metrics)?;
    let clock = tasks.clock().clone();
    make_private(&plan.directory)?;
    let pki = Pki::open_or_create(&plan.directory.join("pki"), &plan.names, clock.now())
        .context("could not open the keys")?;
    let durability = match plan.ephemeral {
        true => Durability::Ephemeral,
        false => Durability::Durable(plan.directory.join("store")),
    };
    let mut options = gantry_store::Options::new(durability);
    options.damage = plan.damage;
    // Small enough that a new server is there at once, large enough for every object.
    options.segment_bytes = 16 << 20;
    let (store, recovery) = open(&options, &clock).await?;
    // Who reaches the server must believe in what it shows.
    let shown = plan.certificate.as_ref().unwrap_or_else(|| pki.server());
    let authority = match &plan.certificate {
        Some(other) => format!("{}{}", pki.authority(), other.certificate),
        None => pki.authority().to_owned(),
    };
    let believed = format!("{}{}", pki.authority(), plan.client_authority.unwrap_or_default());
    let settings = Settings {
        address: plan.address.to_string(),
        version: plan.version.to_owned(),
        metrics,
        authority: authority.clone(),
        client_authority: believed.clone(),
        authorization: plan.authorization,
        plugins: plan.plugins,
        identity: gantry_apiserver::Identity::new(
            Key::from_pem(pki.signing_key())?,
            plan.issuer,
            plan.tokens,
            plan.strangers,
        ),
        service_network: plan.service_network,
        nodes: plan.nodes,
        token_secrets: plan.token_secrets,
    };
    let api = Api::start(store.clone(), settings, tasks).await?;
    let certificate = ServerCertificate::new(shown)?;
    let clients = Some(ClientAuthority::new(&believed)?);
    let door = Door::Tls { certificate, clients };
    let service = service(api.clone(), clock, counters.clone());
    let options = Options::new(plan.address, door);
    let address = gantry_serve::serve(tasks, "apiserver", options, counters, service).await?;
    api.listens_at(&address.to_string());
    let endpoint = Endpoint { server: url(address), authority };
    store.announce(&endpoint.server).context("could not say in the store where the server is")?;
    endpoint.write(&plan.directory)?;
    let names = gantry_serve::kubeconfig::Names::default();
    let Endpoint { server, authority } = &endpoint;
    let kubeconfig = gantry_serve::kubeconfig::kubeconfig(server, authority, pki.admin(), &names);
    let (authority, signer) = (endpoint.authority, pki.request_signer());
    Ok(Running { api, store, address, recovery, kubeconfig, authority, signer })
}

/// How long a start waits for the process before it to give up the store. One that was killed may
/// take a while to end, as long as its memory takes to be freed.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How often it looks meanwhile.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Opens the store. One that is in use is waited for: a process that was just killed holds it until it
/// has ended.
async fn open(
    options: &gantry_store::Options,
    clock: &Clock,
) -> anyhow::Result<(Store<Known, Line>, Recovery)> {
    let deadline = clock.moment() + LOCK_WAIT;
    let mut waits = false;
    loop {
        let options = options.clone();
        let opening = tokio::task::spawn_blocking(move || Store::open(&options));
        match opening.await.context("the store's opening ended early")? {
            Err(error @ OpenError::InUse { .. }) if clock.moment() < deadline => {
                if !std::mem::replace(&mut waits, true) {
                    let seconds = LOCK_WAIT.as_secs();
                    tracing::info!(reason = %error, seconds, "waiting for the store");
                }
                clock.sleep(LOCK_RETRY_INTERVAL).await;
            }
            opened => return opened.map_err(unopened),
        }
    }
}

/// What the user can do about a store that does not open.
fn unopened(error: OpenError) -> anyhow::Error {
    let remedy = match &error {
        OpenError::Damaged(_) => {
            "could not open the store, which is damaged; --repair goes on with what is sound"
        }
        OpenError::InUse { .. } => {
            "could not open the store; choose another folder with --data-dir to run beside it"
        }
        OpenError::Exposed { .. }
        | OpenError::NewerFormat { .. }
        | OpenError::DamagedCheckpoint { .. }
        | OpenError::Failed(_)
        | OpenError::Options(_)
        | OpenError::Io { .. } => "could not open the store",
    };
    anyhow::Error::new(error).context(remedy)
}

/// Where pods on this machine reach a server that listens there.
#[must_use]
pub fn reached_at(address: SocketAddr) -> ApiServer {
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    ApiServer { host: ip.to_string(), port: address.port() }
}

/// Where this machine reaches a server that listens there.
fn url(address: SocketAddr) -> String {
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { host(address) };
    format!("https://{host}:{}", address.port())
}

fn host(address: SocketAddr) -> String {
    match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Makes a directory that only its owner can read. One that is there must be nobody else's to change:
/// whoever may write in it may put other keys and another store in their place.
fn make_private(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    const OTHERS_WRITE: u32 = 0o002;
    if path.is_dir() {
        let named = || format!("could not look at {}", path.display());
        let mode = std::fs::metadata(path).with_context(named)?.mode() & 0o7777;
        anyhow::ensure!(
            mode & OTHERS_WRITE == 0,
            "the data directory {0} has mode {mode:04o}: everybody can replace the keys and the \
             objects in it; run `chmod o-w {0}`, or choose another folder with --data-dir",
            path.display()
        );
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let named = || format!("could not create {}; choose a folder with --data-dir", path.display());
    builder.create(path).with_context(named)
}

/// What answers requests from the network: limits first, then who it is, then the API.
fn service(
    api: Api,
    clock: Clock,
    counters: Counters,
) -> impl Fn(Request<Incoming>, Arc<Peer>) -> Answer + Clone + Send + Sync + 'static {
    let limits = Limits::new(Figures::default(), clock, counters, classify);
    move |request, peer| {
        let (api, limits) = (api.clone(), limits.clone());
        Box::pin(async move {
            let headers = request.headers().clone();
            let answer = limits.answer(request, |request| answer(api, request, peer)).await;
            gantry_serve::gzip::compress(answer, &headers)
        })
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

async fn answer(api: Api, request: Request<RequestBody>, peer: Arc<Peer>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(ClientAddress(peer.address.ip()));
    let body: Bytes = match body.read().await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let caller = api.authenticate(&parts.headers, certificate(&peer));
    api.handle(Request::from_parts(parts, body), caller).await
}

/// What a connection showed.
fn certificate(peer: &Peer) -> Certificate {
    match &peer.certificate {
        Some(subject) => {
            let groups = &subject.organizations;
            Certificate::Of(Caller::certified(&subject.common_name, groups, &subject.sha256_hex))
        }
        None if peer.presented_unverified => Certificate::Refused,
        None => Certificate::Absent,
    }
}

/// What a request counts as.
fn classify(parts: &http::request::Parts) -> Class {
    let path = parts.uri.path();
    let query = parts.uri.query().unwrap_or_default();
    let watches = path.contains("/watch/")
        || query.split('&').any(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            name == "watch" && !matches!(value, "0" | "false")
        });
    let streams = ["/log", "/exec", "/attach", "/portforward", "/proxy"];
    if watches || streams.iter().any(|it| path.ends_with(it)) || is_proxied(path) {
        Class::LongRunning
    } else if Class::is_exempt(path) {
        Class::Exempt
    } else {
        Class::of_method(&parts.method)
    }
}

/// Whether a path goes on inside of a program.
fn is_proxied(path: &str) -> bool {
    path.contains("/proxy/")
        && matches!(route(path), Route::Resource(target) if target.subresource.starts_with("proxy/"))
}
