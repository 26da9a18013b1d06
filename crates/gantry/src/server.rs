//! Starts the API server: a store, the service on it, and a TLS listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gantry_apiserver::api::ClientAddress;
use gantry_apiserver::request::route::{Route, route};
use gantry_apiserver::resource::stored::{EncodedEvent, EntryCache};
use gantry_apiserver::{
    AnonymousAccess, Api, AuthorizationMode, Body, Caller, ClientCertificate, Settings,
};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::Tasks;
use gantry_serve::limits::{Limits, RequestBody, RequestClass, RequestLimits};
use gantry_serve::pki::{Identity, Pki, RequestSigner};
use gantry_serve::tls::{ClientAuthority, ServerCertificate};
use gantry_serve::{Options, Peer, TransportSecurity, counters::Counters};
use gantry_sim::pod_config::ApiServer;
use gantry_store::{Durability, OnDamage, OpenError, Recovery, Store};
use gantry_token::{Key, StaticTokens};
use http::{Request, Response};
use hyper::body::Incoming;

use crate::endpoint::Endpoint;
use crate::image_registry::{self, ImageRegistry};

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The directory for keys, objects and the kubeconfig. Only its owner may read it.
    pub directory: PathBuf,
    /// Whether objects are kept in memory only.
    pub ephemeral: bool,
    /// The address to listen on.
    pub address: SocketAddr,
    /// More names and addresses that clients use for the server.
    pub names: Vec<String>,
    /// What to do about a damaged log.
    pub damage: OnDamage,
    /// The authorizers, in this order.
    pub authorization: Vec<AuthorizationMode>,
    /// Static tokens and their users.
    pub tokens: StaticTokens,
    /// More certificate authorities for client certificates, in PEM.
    pub client_authority: Option<String>,
    /// The serving certificate, instead of the server's own.
    pub certificate: Option<Identity>,
    /// The issuer of service account tokens.
    pub issuer: String,
    /// How anonymous requests are handled.
    pub anonymous_access: AnonymousAccess,
    /// The network of service addresses, and its prefix length.
    pub service_network: (Ipv4Addr, u8),
    /// The version of this program.
    pub version: &'static str,
    /// The enabled admission plugins.
    pub plugins: gantry_apiserver::AdmissionPlugins,
    /// Connects to containers on nodes, if there are nodes.
    pub nodes: Option<Arc<dyn gantry_apiserver::streams::kubelet_client::KubeletClient>>,
    /// Whether Secrets with tokens of service accounts are filled in.
    pub token_secrets: bool,
    /// The directory of the registry of container images, if there is one.
    pub registry: Option<PathBuf>,
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    /// The service, for components of the same process.
    pub api: Api,
    /// The store under it.
    pub store: Store<EntryCache, EncodedEvent>,
    /// The address it listens on.
    pub address: SocketAddr,
    /// What was found when the store was opened.
    pub recovery: Recovery,
    /// The kubeconfig of the owner. It contains a private key.
    pub kubeconfig: String,
    /// The certificate authorities of its certificate, as PEM.
    pub authority: String,
    /// Signs client certificates for this server.
    pub signer: RequestSigner,
    /// The registry of container images, if there is one.
    pub registry: Option<ImageRegistry>,
}

/// Starts a server; its tasks belong to `tasks`.
///
/// # Errors
/// The directory, the keys, the log or the address cannot be used.
pub async fn start(
    plan: ServerConfig,
    tasks: &mut Tasks,
    metrics: Metrics,
) -> anyhow::Result<RunningServer> {
    let counters = Counters::register(&metrics)?;
    let clock = tasks.clock().clone();
    create_private_directory(&plan.directory)?;
    let pki = Pki::open_or_create(&plan.directory.join("pki"), &plan.names, clock.now())
        .context("could not open the keys")?;
    let durability = match plan.ephemeral {
        true => Durability::Ephemeral,
        false => Durability::Durable(plan.directory.join("store")),
    };
    let mut options = gantry_store::Options::new(durability);
    options.damage = plan.damage;
    // Small enough that a new server starts at once, large enough for every object.
    options.segment_bytes = 16 << 20;
    let (store, recovery) = open(&options, &clock).await?;
    // Clients must trust the certificate that the server serves.
    let shown = plan.certificate.as_ref().unwrap_or_else(|| pki.server());
    let authority = match &plan.certificate {
        Some(other) => format!("{}{}", pki.ca_certificate(), other.certificate),
        None => pki.ca_certificate().to_owned(),
    };
    let believed = format!("{}{}", pki.ca_certificate(), plan.client_authority.unwrap_or_default());
    let settings = Settings {
        address: plan.address.to_string(),
        version: plan.version.to_owned(),
        metrics,
        ca_certificate: authority.clone(),
        client_ca: believed.clone(),
        authorization: plan.authorization,
        plugins: plan.plugins,
        authenticator: gantry_apiserver::Authenticator::new(
            Key::from_pem(pki.signing_key())?,
            plan.issuer,
            plan.tokens,
            plan.anonymous_access,
        ),
        service_network: plan.service_network,
        kubelet_client: plan.nodes,
        token_secrets: plan.token_secrets,
    };
    let api = Api::start(store.clone(), settings, tasks).await?;
    let certificate = ServerCertificate::new(shown)?;
    let clients = Some(ClientAuthority::new(&believed)?);
    let security = TransportSecurity::Tls { certificate, clients };
    let registry =
        plan.registry.map(|path| image_registry::open(&path, &api, tasks)).transpose()?;
    let service = service(api.clone(), registry.clone(), clock, counters.clone());
    let options = Options::new(plan.address, security);
    let address = gantry_serve::serve(tasks, "apiserver", options, counters, service).await?;
    api.set_listen_address(&address.to_string());
    let endpoint = Endpoint { server: url(address), authority };
    store
        .record_address(&endpoint.server)
        .context("could not record the address of the server in the store")?;
    endpoint.write(&plan.directory)?;
    let names = gantry_serve::kubeconfig::KubeconfigNames::default();
    let Endpoint { server, authority } = &endpoint;
    let kubeconfig = gantry_serve::kubeconfig::kubeconfig(server, authority, pki.admin(), &names);
    let (authority, signer) = (endpoint.authority, pki.request_signer());
    Ok(RunningServer { api, store, address, recovery, kubeconfig, authority, signer, registry })
}

/// How long a start waits for the previous process to release the store. A process that was killed
/// may take a while to end, as long as its memory takes to be freed.
const STORE_LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the lock is tried meanwhile.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Opens the store. If it is in use, waits: a process that was just killed holds it until it has
/// ended.
async fn open(
    options: &gantry_store::Options,
    clock: &Clock,
) -> anyhow::Result<(Store<EntryCache, EncodedEvent>, Recovery)> {
    let deadline = clock.moment() + STORE_LOCK_TIMEOUT;
    let mut waits = false;
    loop {
        let options = options.clone();
        let opening = tokio::task::spawn_blocking(move || Store::open(&options));
        match opening.await.context("the store's opening ended early")? {
            Err(error @ OpenError::InUse { .. }) if clock.moment() < deadline => {
                if !std::mem::replace(&mut waits, true) {
                    let seconds = STORE_LOCK_TIMEOUT.as_secs();
                    tracing::info!(reason = %error, seconds, "waiting for the store");
                }
                clock.sleep(LOCK_RETRY_INTERVAL).await;
            }
            opened => return opened.map_err(open_error),
        }
    }
}

/// Adds the remedy to the error of a store that does not open.
fn open_error(error: OpenError) -> anyhow::Error {
    let remedy = match &error {
        OpenError::Damaged(_) => {
            "could not open the store, which is damaged; --repair continues with the undamaged part"
        }
        OpenError::InUse { .. } => {
            "could not open the store; choose another folder with --data-dir to run beside it"
        }
        OpenError::InsecureMode { .. }
        | OpenError::NewerFormat { .. }
        | OpenError::DamagedCheckpoint { .. }
        | OpenError::Failed(_)
        | OpenError::Options(_)
        | OpenError::Io { .. } => "could not open the store",
    };
    anyhow::Error::new(error).context(remedy)
}

/// Returns the address of a server for pods on this machine.
#[must_use]
pub fn pod_api_server(address: SocketAddr) -> ApiServer {
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    ApiServer { host: ip.to_string(), port: address.port() }
}

/// Returns the URL of a server for this machine.
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

/// Creates a directory that only its owner can read. An existing directory must not be writable by
/// others, who could replace the keys and the store.
fn create_private_directory(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    const OTHERS_WRITE: u32 = 0o002;
    if path.is_dir() {
        let named = || format!("could not read the mode of {}", path.display());
        let mode = std::fs::metadata(path).with_context(named)?.mode() & 0o7777;
        anyhow::ensure!(
            mode & OTHERS_WRITE == 0,
            "the data directory {0} has mode {mode:04o}: every user can replace the keys and the \
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

/// Handles requests from the network: limits first, then authentication, then the API.
fn service(
    api: Api,
    registry: Option<ImageRegistry>,
    clock: Clock,
    counters: Counters,
) -> impl Fn(Request<Incoming>, Arc<Peer>) -> ResponseFuture + Clone + Send + Sync + 'static {
    let limits = Limits::new(RequestLimits::default(), clock, counters, classify);
    move |request, peer| {
        if let Some(registry) = &registry
            && image_registry::serves(request.uri().path())
        {
            // The registry has limits of its own: images are larger than objects.
            let (registry, api) = (registry.clone(), api.clone());
            return Box::pin(async move {
                let user = match certificate(&peer) {
                    ClientCertificate::Verified(caller) => Some(caller),
                    ClientCertificate::Rejected | ClientCertificate::Absent => None,
                };
                image_registry::handle(&registry, &api, request, user).await
            });
        }
        let (api, limits) = (api.clone(), limits.clone());
        Box::pin(async move {
            let headers = request.headers().clone();
            let answer = limits.handle(request, |request| answer(api, request, peer)).await;
            gantry_serve::gzip::compress(answer, &headers)
        })
    }
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

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

/// The client certificate of a connection.
fn certificate(peer: &Peer) -> ClientCertificate {
    match &peer.certificate {
        Some(subject) => {
            let groups = &subject.organizations;
            ClientCertificate::Verified(Caller::certified(
                &subject.common_name,
                groups,
                &subject.sha256_hex,
            ))
        }
        None if peer.presented_unverified => ClientCertificate::Rejected,
        None => ClientCertificate::Absent,
    }
}

/// Returns the request class for the limits.
fn classify(parts: &http::request::Parts) -> RequestClass {
    let path = parts.uri.path();
    let query = parts.uri.query().unwrap_or_default();
    let watches = path.contains("/watch/")
        || query.split('&').any(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            name == "watch" && !matches!(value, "0" | "false")
        });
    let streams = ["/log", "/exec", "/attach", "/portforward", "/proxy"];
    if watches || streams.iter().any(|it| path.ends_with(it)) || is_proxied(path) {
        RequestClass::LongRunning
    } else if RequestClass::is_exempt(path) {
        RequestClass::Exempt
    } else {
        RequestClass::of_method(&parts.method)
    }
}

/// Returns whether a path continues inside a program, as with a proxy.
fn is_proxied(path: &str) -> bool {
    path.contains("/proxy/")
        && matches!(
            route(path),
            Route::Resource(target) if target.subresource.starts_with("proxy/")
        )
}
