//! The server: what it holds, and the way from a request to its handler.

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
use crate::answer::{self, Style};
use crate::authority::{Authority, Mode};
use crate::body::Body;
use crate::collect::Collector;
use crate::definitions::Definitions;
use crate::discovery::aggregation;
use crate::identity::{self, Identity};
use crate::janitor::Janitor;
use crate::negotiate::{self, Format};
use crate::query::{Query, decode, duration_millis};
use crate::resource::{Lookup, Registry, Resource};
use crate::route::{Route, Target, Verb, route};
use crate::status::Refusal;
use crate::stored::{Known, Line};
use crate::{access, documents, impersonation};

/// The store as this server uses it.
pub(crate) type Shelf = Store<Known, Line>;
/// A stored object.
pub(crate) type Entry = gantry_store::Entry<Known>;

/// The server. Cheap to clone; all clones are one server.
#[derive(Clone, Debug)]
pub struct Api(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Shelf,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) definitions: Definitions,
    pub(crate) collector: Collector,
    pub(crate) janitor: Janitor,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) settings: Settings,
    pub(crate) allocator: crate::addresses::Allocator,
    pub(crate) policies: crate::policies::Policies,
    pub(crate) quotas: Arc<crate::quotas::Quotas>,
    pub(crate) token_secrets: crate::tokens::secrets::TokenSecrets,
    pub(crate) openapi: gantry_openapi::Documents,
    pub(crate) authority: Authority,
    /// The admission webhooks in effect.
    pub(crate) admission_webhooks: crate::webhooks::Webhooks,
    /// Calls webhooks.
    pub(crate) webhooks: gantry_webhook::Client,
    /// Places for conversations with containers.
    pub(crate) sessions: Arc<tokio::sync::Semaphore>,
    /// Places for connections to ports of pods.
    pub(crate) forwarded: Arc<tokio::sync::Semaphore>,
    /// What other parts of the process show.
    pub(crate) pages: crate::pages::Pages,
    /// The groups that other parts of the process answer.
    pub(crate) aggregations: aggregation::Aggregations,
    /// Where it listens, once it does.
    pub(crate) listens: OnceLock<String>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What a server is told when it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients reach it, as discovery says it: `127.0.0.1:6443`.
    pub address: String,
    /// The version of this program, for `/version`.
    pub version: String,
    /// What is measured.
    pub metrics: Metrics,
    /// The authority that signed the server's certificate, in PEM; namespaces get a copy.
    pub authority: String,
    /// The authorities whose client certificates are believed, in PEM, for servers behind this one.
    pub client_authority: String,
    /// Who decides about requests, in this order.
    pub authorization: Vec<Mode>,
    /// The plug-ins of admission that are on.
    pub plugins: crate::plugins::Plugins,
    /// How callers are known.
    pub identity: Identity,
    /// The network services have their addresses in, and how many bits of it are fixed.
    pub service_network: (Ipv4Addr, u8),
    /// Reaches what runs on nodes, if anything does.
    pub nodes: Option<Arc<dyn crate::nodes::Nodes>>,
    /// Whether Secrets of type `kubernetes.io/service-account-token` are filled in here, as the
    /// token controller of a controller manager does.
    pub token_secrets: bool,
}

impl Settings {
    /// A server on this machine as kube-apiserver would be without flags, which knows callers by
    /// `identity`.
    #[must_use]
    pub fn new(identity: Identity, metrics: Metrics) -> Self {
        Self {
            address: "127.0.0.1:6443".to_owned(),
            version: String::new(),
            metrics,
            authority: String::new(),
            client_authority: String::new(),
            authorization: vec![Mode::Rbac],
            plugins: crate::plugins::Plugins::default(),
            identity,
            service_network: (Ipv4Addr::new(10, 96, 0, 0), 16),
            nodes: None,
            token_secrets: false,
        }
    }
}

/// Where a request came from, in its extensions.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// One request about a resource, read so far that handlers need not look at headers again.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) resource: Arc<Resource>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// Where the request came from, if it came over a network.
    pub(crate) client: Option<IpAddr>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
    pub(crate) format: Format,
    pub(crate) style: Style,
    pub(crate) now: Timestamp,
}

impl Ask {
    /// Who writes, as managed fields name it.
    pub(crate) fn manager(&self, named: &str) -> String {
        if !named.is_empty() {
            return named.to_owned();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default().split('/').next().unwrap_or_default();
        let printable: String = agent.chars().filter(|it| !it.is_control()).take(128).collect();
        if printable.is_empty() { "unknown".to_owned() } else { printable }
    }

    /// The refusal of an object that is not there.
    pub(crate) fn not_found(&self) -> Refusal {
        let Self { resource, target, .. } = self;
        Refusal::not_found(&resource.group, &resource.plural, &target.name)
    }
}

impl Api {
    /// Answers a request whose body was read.
    pub async fn handle(&self, request: Request<Bytes>, caller: Option<Caller>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let misplaced = identity::misplaces_token(&parts.headers);
        // It has said what it had to say: nobody further on can keep or show it.
        parts.headers.remove(AUTHORIZATION);
        let style = style(&parts.headers, parts.uri.query());
        let audit = audit_id(&parts.headers);
        let mut response = match self.dispatch(parts, body, caller, style).await {
            Ok(response) => response,
            Err(refusal) => answer::refusal(&refusal, style),
        };
        if misplaced {
            answer::warn(&mut response, &[identity::MISPLACED_TOKEN.to_owned()]);
        }
        response.headers_mut().insert("audit-id", audit);
        response
    }

    /// Takes note of where clients reach the server, if that was not known when it started.
    pub fn listens_at(&self, address: &str) {
        // Who knew it first knew it.
        let _ = self.0.listens.set(address.to_owned());
    }

    /// Where clients reach the server.
    pub(crate) fn address(&self) -> &str {
        self.0.listens.get().unwrap_or(&self.0.settings.address)
    }

    /// What is served now.
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
        style: Style,
    ) -> Result<Response<Body>, Refusal> {
        let path = decode(parts.uri.path(), false);
        let query = Query::read(parts.uri.query());
        let route = route(&path);
        check_timeout(&route, &query)?;
        let caller = caller.ok_or_else(Refusal::unauthorized)?;
        let guises = match impersonation::read(&parts.headers) {
            Ok(guises) => guises,
            Err(words) => return Ok(answer::broken(&parts.uri, &words)),
        };
        let caller = self.impersonate(caller, guises)?;
        let target = match route {
            Route::Resource(target) => target,
            other => {
                self.permit(&caller, &access::of_path(&parts.method, &path))?;
                return documents::answer(self, &other, &parts, style).await;
            }
        };
        self.permit(&caller, &access::of_target(&parts.method, &target, &query))?;
        if matches!(target.name.as_str(), "." | "..") {
            let name = &target.name;
            let words = format!("Name parameter invalid: \"{name}\": may not be '{name}'");
            return Err(Refusal::bad_request(words));
        }
        if let Some(api) = self.aggregated(&target.group, &target.version) {
            return aggregation::respond(api.as_ref(), &parts, &target, &query, style.pretty);
        }
        let registry = self.registry();
        let resource = match registry.find(&target.group, &target.version, &target.resource) {
            Lookup::Found(resource) => Arc::clone(resource),
            Lookup::NotInGroup if is_builtin(&registry, &target.group) => {
                return Err(Refusal::unknown_resource());
            }
            Lookup::NotInGroup | Lookup::NoGroup => return Ok(answer::no_page()),
        };
        let watch = query.flag("watch").unwrap_or(false);
        let verb = Verb::of(&parts.method, &target, watch)
            .or_else(|| proxied_verb(&parts.method, &target))
            .ok_or_else(Refusal::method_not_allowed)?;
        check_place(&resource, &target, verb)?;
        let format = if target.subresource.is_empty() && !resource.has_table() {
            negotiate::format_without_tables(&parts.headers)?
        } else {
            negotiate::format_of_part(&parts.headers, &target.subresource)?
        };
        let ask = Ask {
            resource,
            method: parts.method,
            uri: parts.uri,
            client: parts.extensions.get().map(|ClientAddress(address)| *address),
            target,
            query,
            headers: parts.headers,
            body,
            caller,
            style: Style { encoding: format.encoding, pretty: style.pretty },
            format,
            now: self.now(),
        };
        let warning = ask.resource.deprecation();
        let style = ask.style;
        let answer = self.serve(verb, ask).await;
        let Some(warning) = warning else { return answer };
        let mut response = answer.unwrap_or_else(|refusal| answer::refusal(&refusal, style));
        answer::warn(&mut response, &[warning]);
        Ok(response)
    }

    /// Hands a request to the one who knows.
    async fn serve(&self, verb: Verb, ask: Ask) -> Result<Response<Body>, Refusal> {
        if !ask.target.subresource.is_empty() {
            return Box::pin(self.part(verb, ask)).await;
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

/// The verb of methods that nothing but the proxy serves: whatever they mean, a program knows it.
fn proxied_verb(method: &Method, target: &Target) -> Option<Verb> {
    let is_proxy = target.subresource.split('/').next() == Some("proxy") && !target.watch_prefix;
    (is_proxy && matches!(*method, Method::HEAD | Method::OPTIONS)).then_some(Verb::Get)
}

/// Refuses a time limit that is none. It is looked at before anything else about a request, who asks
/// for it included; what runs for long has none.
fn check_timeout(route: &Route, query: &Query) -> Result<(), Refusal> {
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
        Refusal::bad_request(format!("{words}{fault}"))
    })
}

/// Whether a group is one of Kubernetes itself: those answer for what they do not have.
pub(crate) fn is_builtin(registry: &Registry, group: &str) -> bool {
    let versions = registry.group(group).into_iter().flat_map(|group| &group.versions);
    versions.flat_map(|version| &version.resources).any(|it| it.custom().is_none())
}

/// Whether the resource can be asked this, at this place.
fn check_place(resource: &Resource, target: &Target, verb: Verb) -> Result<(), Refusal> {
    if !resource.namespaced && !target.namespace.is_empty() {
        return Err(Refusal::unknown_resource());
    }
    // One object needs its namespace; without one the path names nothing.
    let whole = target.namespace.is_empty() && resource.namespaced;
    if whole && !target.name.is_empty() {
        return Err(Refusal::unknown_resource());
    }
    if !target.subresource.is_empty() {
        return Ok(());
    }
    let named = !target.name.is_empty();
    // What is only ever made, as reviews are, has no objects that could be named.
    let objects = ["get", "update", "patch", "delete", "watch"];
    if named && !objects.iter().any(|verb| resource.has_verb(verb)) {
        return Err(Refusal::unknown_resource());
    }
    let fits = match verb {
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named,
        Verb::List | Verb::DeleteCollection => !named,
        Verb::Create => !named && !whole,
        Verb::Watch => true,
    };
    if fits && resource.has_verb(verb.word()) { Ok(()) } else { Err(Refusal::method_not_allowed()) }
}

/// How documents are written for this caller before more is known.
fn style(headers: &HeaderMap, query: Option<&str>) -> Style {
    let asked = Query::read(query).flag("pretty");
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let person = ["curl/", "Wget/", "Mozilla/"].iter().any(|it| agent.starts_with(it));
    let encoding = negotiate::format(headers).map_or(negotiate::Encoding::Json, |it| it.encoding);
    Style { encoding, pretty: asked.unwrap_or(person) }
}

/// The caller's own id of the request, or a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let own = headers.get("audit-id").filter(|value| !value.is_empty() && value.len() <= 64);
    own.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&crate::names::uid()).unwrap_or(HeaderValue::from_static("-"))
    })
}

/// The methods that change nothing.
#[must_use]
pub fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
