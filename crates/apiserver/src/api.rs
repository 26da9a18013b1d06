//! The server: its state, and the dispatch of requests to their handlers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_store::Store;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::access::authentication::{self, Authenticator};
use crate::access::authorizer::{AuthorizationMode, Authorizer};
use crate::controllers::garbage_collector::OwnershipGraph;
use crate::controllers::termination_controller::TerminationController;
use crate::discovery::aggregation;
use crate::request::body::Body;
use crate::request::negotiate::{self, Format};
use crate::request::query::{Query, decode, duration_millis};
use crate::request::route::{RequestInfo, Route, Verb, route};
use crate::resource::definitions::Definitions;
use crate::resource::stored::{EncodedEvent, EntryCache};
use crate::resource::{Lookup, Registry, Resource};
use crate::response::status::StatusError;
use crate::response::{self, OutputStyle};
use crate::{access, access::impersonation, discovery::non_resource};

/// The store as this server uses it.
pub(crate) type ObjectStore = Store<EntryCache, EncodedEvent>;
/// A stored object.
pub(crate) type Entry = gantry_store::Entry<EntryCache>;

/// The API server. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct Api(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: ObjectStore,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) definitions: Definitions,
    pub(crate) garbage_collector: OwnershipGraph,
    pub(crate) termination_controller: TerminationController,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) settings: Settings,
    pub(crate) allocator: crate::services::service_allocator::ServiceAllocator,
    pub(crate) policies: crate::admission::policies::Policies,
    pub(crate) quotas: Arc<crate::admission::quotas::Quotas>,
    pub(crate) token_secrets: crate::tokens::secrets::TokenSecrets,
    pub(crate) openapi: gantry_openapi::Documents,
    pub(crate) authorizer: Authorizer,
    /// The admission webhooks in effect.
    pub(crate) admission_webhooks: crate::admission::webhooks::Webhooks,
    /// Calls webhooks.
    pub(crate) webhooks: gantry_webhook::Client,
    /// Permits for exec and attach sessions.
    pub(crate) session_permits: Arc<tokio::sync::Semaphore>,
    /// Permits for connections to ports of pods.
    pub(crate) forward_permits: Arc<tokio::sync::Semaphore>,
    /// Non-resource pages of other parts of the process.
    pub(crate) non_resource_pages: crate::discovery::non_resource_pages::NonResourcePages,
    /// API groups that other parts of the process serve.
    pub(crate) aggregated_apis: aggregation::AggregatedApis,
    /// The address it listens on, once it does.
    pub(crate) listen_address: OnceLock<String>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The settings a server starts with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address under which clients reach it, for discovery: `127.0.0.1:6443`.
    pub address: String,
    /// The version of this program, for `/version`.
    pub version: String,
    /// The metrics registry.
    pub metrics: Metrics,
    /// The authority that signed the server's certificate, in PEM; namespaces get a copy.
    pub ca_certificate: String,
    /// The authorities of trusted client certificates, in PEM, for servers behind this one.
    pub client_ca: String,
    /// The authorization modes, in order.
    pub authorization: Vec<AuthorizationMode>,
    /// The enabled admission plug-ins.
    pub plugins: crate::admission::admission_plugins::AdmissionPlugins,
    /// How callers are authenticated.
    pub authenticator: Authenticator,
    /// The network of cluster IPs, and its prefix length.
    pub service_network: (Ipv4Addr, u8),
    /// Reaches the containers on nodes, if there are any.
    pub kubelet_client: Option<Arc<dyn crate::streams::kubelet_client::KubeletClient>>,
    /// Whether Secrets of type `kubernetes.io/service-account-token` are filled in here, as the
    /// token controller of a controller manager does.
    pub token_secrets: bool,
}

impl Settings {
    /// Returns the settings of a local server as kube-apiserver would be without flags, which
    /// authenticates callers with `identity`.
    #[must_use]
    pub fn new(identity: Authenticator, metrics: Metrics) -> Self {
        Self {
            address: "127.0.0.1:6443".to_owned(),
            version: String::new(),
            metrics,
            ca_certificate: String::new(),
            client_ca: String::new(),
            authorization: vec![AuthorizationMode::Rbac],
            plugins: crate::admission::admission_plugins::AdmissionPlugins::default(),
            authenticator: identity,
            service_network: (Ipv4Addr::new(10, 96, 0, 0), 16),
            kubelet_client: None,
            token_secrets: false,
        }
    }
}

/// The address a request came from, in its extensions.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// A parsed request for a resource; handlers need not look at headers again.
#[derive(Debug)]
pub(crate) struct ResourceRequest {
    pub(crate) resource: Arc<Resource>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// The address the request came from, if it came over a network.
    pub(crate) client: Option<IpAddr>,
    pub(crate) target: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
    pub(crate) format: Format,
    pub(crate) style: OutputStyle,
    pub(crate) now: Timestamp,
}

impl ResourceRequest {
    /// Returns the field manager of the request.
    pub(crate) fn field_manager(&self, named: &str) -> String {
        if !named.is_empty() {
            return named.to_owned();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default().split('/').next().unwrap_or_default();
        let printable: String = agent.chars().filter(|it| !it.is_control()).take(128).collect();
        if printable.is_empty() { "unknown".to_owned() } else { printable }
    }

    /// Returns the refusal for an object that does not exist.
    pub(crate) fn not_found(&self) -> StatusError {
        let Self { resource, target, .. } = self;
        StatusError::not_found(&resource.group, &resource.plural, &target.name)
    }
}

impl Api {
    /// Serves a request whose body was read.
    pub async fn handle(&self, request: Request<Bytes>, caller: Option<Caller>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let misplaced = authentication::has_misplaced_token(&parts.headers);
        // The credential has been used; later handlers must not be able to keep or show it.
        parts.headers.remove(AUTHORIZATION);
        let style = style(&parts.headers, parts.uri.query());
        let audit = audit_id(&parts.headers);
        let mut response = match self.dispatch(parts, body, caller, style).await {
            Ok(response) => response,
            Err(refusal) => response::error(&refusal, style),
        };
        if misplaced {
            response::add_warnings(
                &mut response,
                &[authentication::MISPLACED_TOKEN_WARNING.to_owned()],
            );
        }
        response.headers_mut().insert("audit-id", audit);
        response
    }

    /// Sets the address under which clients reach the server, if it was not known when it started.
    pub fn set_listen_address(&self, address: &str) {
        // The first address stays.
        let _ = self.0.listen_address.set(address.to_owned());
    }

    /// Returns the address under which clients reach the server.
    pub(crate) fn address(&self) -> &str {
        self.0.listen_address.get().unwrap_or(&self.0.settings.address)
    }

    /// Returns the registry of served resources.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.0.registry.load_full()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    async fn dispatch(
        &self,
        parts: http::request::Parts,
        body: Bytes,
        caller: Option<Caller>,
        style: OutputStyle,
    ) -> Result<Response<Body>, StatusError> {
        let path = decode(parts.uri.path(), false);
        let query = Query::read(parts.uri.query());
        let route = route(&path);
        check_timeout(&route, &query)?;
        let caller = caller.ok_or_else(StatusError::unauthorized)?;
        let guises = match impersonation::parse_headers(&parts.headers) {
            Ok(guises) => guises,
            Err(words) => return Ok(response::malformed_request(&parts.uri, &words)),
        };
        let caller = self.impersonate(caller, guises)?;
        let target = match route {
            Route::Resource(target) => target,
            other => {
                self.check_authorized(&caller, &access::path_attributes(&parts.method, &path))?;
                return non_resource::handle(self, &other, &parts, style).await;
            }
        };
        self.check_authorized(
            &caller,
            &access::resource_attributes(&parts.method, &target, &query),
        )?;
        if matches!(target.name.as_str(), "." | "..") {
            let name = &target.name;
            let words = format!("Name parameter invalid: \"{name}\": may not be '{name}'");
            return Err(StatusError::bad_request(words));
        }
        if let Some(api) = self.aggregated_api(&target.group, &target.version) {
            return aggregation::respond(api.as_ref(), &parts, &target, &query, style.pretty);
        }
        let registry = self.registry();
        let resource = match registry.find(&target.group, &target.version, &target.resource) {
            Lookup::Found(resource) => Arc::clone(resource),
            Lookup::NotInGroup if is_builtin(&registry, &target.group) => {
                return Err(StatusError::unknown_resource());
            }
            Lookup::NotInGroup | Lookup::NoGroup => return Ok(response::page_not_found()),
        };
        let watch = query.flag("watch").unwrap_or(false);
        let verb = Verb::of(&parts.method, &target, watch)
            .or_else(|| proxied_verb(&parts.method, &target))
            .ok_or_else(StatusError::method_not_allowed)?;
        check_scope(&resource, &target, verb)?;
        let format = if target.subresource.is_empty() && !resource.has_table() {
            negotiate::format_without_tables(&parts.headers)?
        } else {
            negotiate::format_of_subresource(&parts.headers, &target.subresource)?
        };
        let ask = ResourceRequest {
            resource,
            method: parts.method,
            uri: parts.uri,
            client: parts.extensions.get().map(|ClientAddress(address)| *address),
            target,
            query,
            headers: parts.headers,
            body,
            caller,
            style: OutputStyle { encoding: format.encoding, pretty: style.pretty },
            format,
            now: self.now(),
        };
        let warning = ask.resource.deprecation();
        let style = ask.style;
        let response = self.serve(verb, ask).await;
        let Some(warning) = warning else { return response };
        let mut response = response.unwrap_or_else(|refusal| response::error(&refusal, style));
        response::add_warnings(&mut response, &[warning]);
        Ok(response)
    }

    /// Dispatches a request to its handler.
    async fn serve(&self, verb: Verb, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        if !ask.target.subresource.is_empty() {
            return Box::pin(self.dispatch_subresource(verb, ask)).await;
        }
        match verb {
            Verb::Get => self.get(&ask).await,
            Verb::List => self.list(ask).await,
            Verb::Watch => self.watch(ask).await,
            Verb::Create => Box::pin(self.create(ask)).await,
            Verb::Update => Box::pin(self.update(ask)).await,
            Verb::Patch => Box::pin(self.patch(ask)).await,
            Verb::Delete => Box::pin(self.delete(ask)).await,
            Verb::DeleteCollection => Box::pin(self.delete_collection(ask)).await,
        }
    }
}

/// Returns the verb of methods that only the proxy serves; their meaning is up to the backend.
fn proxied_verb(method: &Method, target: &RequestInfo) -> Option<Verb> {
    let is_proxy = target.subresource.split('/').next() == Some("proxy") && !target.watch_prefix;
    (is_proxy && matches!(*method, Method::HEAD | Method::OPTIONS)).then_some(Verb::Get)
}

/// Refuses an invalid `timeout` parameter. It is checked before anything else about a request,
/// including its caller; long-running requests have none.
fn check_timeout(route: &Route, query: &Query) -> Result<(), StatusError> {
    const STREAMS: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
    if let Route::Resource(target) = route {
        let part = target.subresource.split('/').next().unwrap_or_default();
        let watches = target.watch_prefix || query.flag("watch").unwrap_or(false);
        if watches || STREAMS.contains(&part) {
            return Ok(());
        }
    }
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
    duration_millis(text).map(drop).map_err(|fault| {
        let words = "invalid timeout specified in the request URL - ";
        StatusError::bad_request(format!("{words}{fault}"))
    })
}

/// Whether a group is one of Kubernetes itself: those respond for resources they do not have.
pub(crate) fn is_builtin(registry: &Registry, group: &str) -> bool {
    let versions = registry.group(group).into_iter().flat_map(|group| &group.versions);
    versions.flat_map(|version| &version.resources).any(|it| it.custom().is_none())
}

/// Checks whether the resource supports the request at this path.
fn check_scope(resource: &Resource, target: &RequestInfo, verb: Verb) -> Result<(), StatusError> {
    if !resource.namespaced && !target.namespace.is_empty() {
        return Err(StatusError::unknown_resource());
    }
    // A namespaced object needs its namespace; without one the path names nothing.
    let whole = target.namespace.is_empty() && resource.namespaced;
    if whole && !target.name.is_empty() {
        return Err(StatusError::unknown_resource());
    }
    if !target.subresource.is_empty() {
        return Ok(());
    }
    let named = !target.name.is_empty();
    // Resources that can only be created, such as reviews, have no named objects.
    let objects = ["get", "update", "patch", "delete", "watch"];
    if named && !objects.iter().any(|verb| resource.has_verb(verb)) {
        return Err(StatusError::unknown_resource());
    }
    let fits = match verb {
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named,
        Verb::List | Verb::DeleteCollection => !named,
        Verb::Create => !named && !whole,
        Verb::Watch => true,
    };
    if fits && resource.has_verb(verb.as_str()) {
        Ok(())
    } else {
        Err(StatusError::method_not_allowed())
    }
}

/// Returns the output style for this caller before more is known.
fn style(headers: &HeaderMap, query: Option<&str>) -> OutputStyle {
    let asked = Query::read(query).flag("pretty");
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let person = ["curl/", "Wget/", "Mozilla/"].iter().any(|it| agent.starts_with(it));
    let encoding = negotiate::format(headers).map_or(negotiate::Encoding::Json, |it| it.encoding);
    OutputStyle { encoding, pretty: asked.unwrap_or(person) }
}

/// Returns the caller's own audit ID of the request, or a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let own = headers.get("audit-id").filter(|value| !value.is_empty() && value.len() <= 64);
    own.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&crate::resource::names::uid())
            .unwrap_or(HeaderValue::from_static("-"))
    })
}

/// The methods that change nothing.
#[must_use]
pub fn is_read_only(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
