//! Wires a whole cluster: what runs in the same process as the API server.

pub mod accelerators;
pub mod accounts;
mod arrivals;
mod certificates;
mod default_class;
mod metrics_api;
mod node_groups;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use gantry_api::object::KINDS;
use gantry_api::yaml;
use gantry_apiserver::{Api, Caller, Certificate};
use gantry_controller::{Actor, Handle, Meters, Options, Seat, Shell, transport};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_queue::effects::admission::LeafAdmission;
use gantry_reconcile::names::fingerprint;
use gantry_reconcile::{ApiPath, Key, Parameter, Resource, Scope};
use gantry_scaling::subsystem::EMBEDDED_NAMESPACE;
use gantry_serve::pki::RequestSigner;
use gantry_sim::effects::{PodRuntime, Transport, scale_inquiry};
use gantry_sim::logs::Logs;
use gantry_sim::pod_config::ApiServer;
use gantry_sim::programs::PodNetwork;
use gantry_sim::shape::Shape;
use gantry_sim::usage::Sampling;
use gantry_sim::view::Node;
use gantry_sim::{Brief, Member, kubelet};
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Clients, Offers};
use gantry_subsystem::{Host, Identity, Parts, Setup, StartError};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::status_page::{ConfigurationStatus, SettingsScope, StatusPage, caches_filled};
use crate::subsystems::{self, SUBSYSTEMS};
use arrivals::Arrivals;
use certificates::OwnAuthority;

/// Where the state of the controllers is shown.
pub const STATUS_PATH: &str = "/gantry/status";

/// The taint of a node that nobody has found ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What an object that Gantry installs was made from; one that was made from the same is left alone.
pub(crate) use gantry_queue::author::SOURCE;

/// The server in the same process, asked in somebody's name.
#[derive(Clone, Debug)]
pub struct Door {
    api: Api,
    caller: Caller,
}

impl Door {
    /// The door for the server itself, which may do everything.
    #[must_use]
    pub fn of_server(api: &Api) -> Self {
        Self { api: api.clone(), caller: Caller::server() }
    }

    /// A door for somebody else.
    #[must_use]
    pub fn of(api: &Api, caller: Caller) -> Self {
        Self { api: api.clone(), caller }
    }

    /// A client that comes through this door.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let Self { api, caller } = self.clone();
        transport::in_process(move |request: Request<Bytes>| {
            let (api, caller) = (api.clone(), caller.clone());
            async move { api.handle(request, Some(caller)).await }
        })
    }

    /// Asks for something and reads the whole answer.
    ///
    /// # Errors
    /// The answer breaks off or is no JSON.
    pub async fn ask(
        &self,
        method: Method,
        path: &ApiPath,
        kind: &'static str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder().method(method).uri(path.as_str());
        let request = request
            .header(http::header::CONTENT_TYPE, kind)
            .header(http::header::USER_AGENT, "gantry-up")
            .body(body)?;
        let answer = self.api.handle(request, Some(self.caller.clone())).await;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer breaks off: {error}"))?;
        Ok((status, serde_json::from_slice(&body.to_bytes())?))
    }

    /// Makes an object be as it is written. Returns whether that changed anything: what was made from
    /// the same text is left as users have changed it since.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn install(&self, path: &ApiPath, object: &Value) -> anyhow::Result<bool> {
        let source = fingerprint(&[&object.to_string()]);
        let (status, found) = self.ask(Method::GET, path, "application/json", None).await?;
        if status == StatusCode::OK && found["metadata"]["annotations"][SOURCE] == source.as_str() {
            return Ok(false);
        }
        let mut object = object.clone();
        object["metadata"]["annotations"][SOURCE] = json!(source);
        let (status, answer) = match status {
            StatusCode::NOT_FOUND => {
                let collection = path.collection_of_item().with(Parameter::FieldManager("gantry"));
                self.ask(Method::POST, &collection, "application/json", Some(&object)).await?
            }
            // Replaced as a whole: nothing of what it was made from before may stay.
            _ => {
                object["metadata"]["resourceVersion"] =
                    found["metadata"]["resourceVersion"].clone();
                let path = path.clone().with(Parameter::FieldManager("gantry"));
                self.ask(Method::PUT, &path, "application/json", Some(&object)).await?
            }
        };
        match status.is_success() {
            true => Ok(true),
            false => bail!("{}", answer["message"].as_str().unwrap_or("the server gave no reason")),
        }
    }
}

/// Makes the server serve Gantry's own kinds, and tells it the roles for them and the StorageClass that
/// claims get which name none.
///
/// # Errors
/// The server refuses one of them.
pub async fn install_kinds(door: &Door, values: &Values) -> anyhow::Result<usize> {
    for kind in KINDS {
        let definition = serde_json::to_value(kind.crd())?;
        let path = path_of(&definition)?;
        let installed = door.install(&path, &definition).await;
        installed.with_context(|| format!("could not install {}", kind.crd_name()))?;
    }
    let accounts = SUBSYSTEMS.iter().flat_map(|it| (it.accounts)(values));
    let rights = gantry_sim::rights::rights().into_iter().chain(accounts::rights());
    let rights = rights.chain(accounts.flat_map(|it| it.objects()));
    for object in gantry_api::roles::roles().into_iter().chain(rights) {
        let path = path_of(&object)?;
        let installed = door.install(&path, &object).await;
        installed.with_context(|| format!("could not install {path}"))?;
    }
    default_class::install(door).await?;
    Ok(KINDS.len())
}

/// Makes the objects of a text. Returns how many there are.
///
/// # Errors
/// The text is no YAML of objects, or the server refuses one of them.
pub async fn apply(door: &Door, clock: &Clock, text: &str) -> anyhow::Result<usize> {
    let documents = yaml::read(text)?;
    for document in &documents {
        let object = document.to_json();
        let path = path_of(&object)?;
        let installed = door.install(&path, &object).await;
        installed.with_context(|| format!("could not make {path}"))?;
        if object["kind"] == "Namespace" {
            account(door, clock, object["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
    }
    Ok(documents.len())
}

/// How long a controller may take to give a namespace its account, and how often it is looked at. It
/// takes milliseconds.
const ACCOUNT: [Duration; 2] = [Duration::from_secs(60), Duration::from_millis(10)];

/// Waits until a namespace has the account without which it takes no pods.
async fn account(door: &Door, clock: &Clock, namespace: &str) -> anyhow::Result<()> {
    let path = ApiPath::object("v1", namespace, "serviceaccounts", "default")?;
    let [patience, pause] = ACCOUNT;
    let begun = clock.moment();
    while door.ask(Method::GET, &path, "application/json", None).await?.0 != StatusCode::OK {
        if clock.moment() - begun >= patience {
            bail!("{path} did not come within {} seconds", patience.as_secs());
        }
        clock.sleep(pause).await;
    }
    Ok(())
}

/// Samples of what a cluster does.
pub const DEMO: &str = include_str!("up/demo.yaml");

/// Where an object of the samples lives. They are of few kinds, so no discovery is asked.
fn path_of(object: &Value) -> anyhow::Result<ApiPath> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    let (version, kind) = (version.as_str().unwrap_or_default(), kind.as_str().unwrap_or_default());
    let own = gantry_api::object::find(version, kind);
    let plural = match kind {
        "" => bail!("an object has no kind"),
        _ if own.is_some() => own.map_or("", |kind| kind.plural).to_owned(),
        "NetworkPolicy" | "PriorityClass" => format!("{}s", kind.to_lowercase().replace('y', "ie")),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let namespace = if kind == "Namespace" { "" } else { text("namespace") };
    let resource = Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: plural.into(),
        kind: kind.to_owned().into(),
        scope: if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced },
        status: false,
    };
    Ok(resource.path(&Key::new(namespace, text("name")))?)
}

/// How a cluster is to behave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long pods take.
    pub profile: kubelet::Profile,
    /// The certificates by which pods know the server, in PEM.
    pub certificates: String,
    /// Signs certificates in the name of the server's authority.
    pub signer: RequestSigner,
    /// Whether pods are given to nodes here.
    pub scheduler: bool,
    /// The settings of the subsystems.
    pub values: Values,
    /// Where the files of pods with programs are.
    pub pods: PathBuf,
    /// Where pods reach the server.
    pub api_server: ApiServer,
    /// The network of pods.
    pub network: PodNetwork,
}

/// What runs beside the API server.
#[derive(Debug)]
pub struct Cluster {
    handle: Handle,
    kubelet: kubelet::Settings,
    runtime: PodRuntime,
    arrivals: Arc<Arrivals>,
    controllers: usize,
}

/// Starts the nodes, the scheduler and the controllers. Their tasks belong to `tasks`. What containers
/// say is put into `logs`.
///
/// # Errors
/// A mistake in the wiring.
pub async fn start(
    api: &Api,
    settings: &Settings,
    logs: &Logs,
    tasks: &mut Tasks,
    metrics: &Metrics,
    leaves: &LeafAdmission,
) -> anyhow::Result<Cluster> {
    let clock = tasks.clock().clone();
    let started = clock.now();
    let runtime = PodRuntime {
        api_server: Some(settings.api_server.clone()),
        transport: Some(in_process(api)),
        directory: Some(settings.pods.clone()),
        network: settings.network.clone(),
        ..PodRuntime::new(settings.profile, logs.clone())
    };
    let setup = Setup {
        values: &settings.values,
        host: Host::Embedded,
        namespace: &|| Ok(EMBEDDED_NAMESPACE.to_owned()),
        clock: &clock,
        metrics,
        clients: &EmbeddedClients(api),
        runs: &|_| true,
        offers: &Offers::default().with(leaves.clone()).with(runtime.clone()),
    };
    let Parts { mut seats, mut outside, filters, background, reconfigure: _ } =
        subsystems::start(setup).await?;
    seats.extend(control_plane(api, settings, started));
    let arrivals = Arc::new(Arrivals::default());
    outside.observers.push(Arc::<Arrivals>::clone(&arrivals));
    let sampling = Sampling::of_profile(settings.profile);
    let autoscaler = accounts::autoscaler(api).client();
    outside.inquiries.push(scale_inquiry(autoscaler, clock.clone(), sampling));
    let controllers = seats.len();
    let meters = Meters::register(metrics)?;
    let reader = accounts::reader(api).client();
    let options = Options { in_flight: 64, outside, filters, ..Options::default() };
    let shell = Shell::new(clock.clone(), fastrand::Rng::new(), reader, seats, options, meters)?;
    let handle = shell.handle();
    let inner = tasks.child();
    tasks.spawn("controllers", OnLoss::EndOwner, |_| async move { Ok(shell.run(inner).await?) });
    metrics_api::serve(api, &handle, &clock, sampling);
    background.into_iter().for_each(|begin| begin(tasks, &handle));
    // `gantry queue` and `gantry explain` decide by the same settings; the keys are the operator's.
    let configuration = ConfigurationStatus {
        source: "gantry up".to_owned(),
        values: Some(settings.values.clone()),
        scope: SettingsScope::Subsystems,
        ..ConfigurationStatus::default()
    };
    let shown = handle.clone();
    api.show(STATUS_PATH, move || {
        let page = StatusPage {
            started,
            now: clock.now(),
            ready: caches_filled(&shown),
            handle: Some(&shown),
            configuration: &configuration,
        };
        page.to_json()
    });
    let kubelet = kubelet::Settings::default();
    Ok(Cluster { handle, kubelet, runtime, arrivals, controllers })
}

/// The clients of accounts on the embedded server.
struct EmbeddedClients<'a>(&'a Api);

impl Clients for EmbeddedClients<'_> {
    fn writer(&self, account: &Identity) -> Result<kube::Client, StartError> {
        let door = Door::of(self.0, Caller::authenticated(&account.user, &account.groups));
        Ok(if account.for_users { door.client_for_users() } else { door.client() })
    }

    fn reader(&self, account: &Identity) -> Result<kube::Client, StartError> {
        let caller = Caller::authenticated(&account.user, &account.groups);
        Ok(Door::of(self.0, caller).client())
    }
}

/// A way to the server in the same process, for requests of pods: each shows its own token.
fn in_process(api: &Api) -> Transport {
    let api = api.clone();
    Arc::new(move |request| {
        let api = api.clone();
        Box::pin(async move {
            let caller = api.authenticate(request.headers(), Certificate::Absent);
            let answer = api.handle(request, caller).await;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    })
}

/// The scheduler and the controllers that every Kubernetes has, and in whose name they act.
fn control_plane(api: &Api, settings: &Settings, started: Timestamp) -> Vec<Seat> {
    let mut members = gantry_sim::members::control_plane(&Brief {
        kubelet: kubelet::Settings { profile: settings.profile, ..kubelet::Settings::default() },
        started,
        certificates: settings.certificates.clone(),
        zones: jiff::tz::db().clone(),
        authority: Some(Arc::new(OwnAuthority::new(settings.signer.clone()))),
    });
    members.retain(|member| settings.scheduler || member.controller.name() != "scheduler");
    let seat = |member: Member| {
        let Member { controller, user, groups, manager, component, workers } = member;
        let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
        let caller = Caller::authenticated(&user, &groups);
        let actor = Actor::new(Door::of(api, caller).client(), manager, component);
        Seat { controller, actor: Arc::new(actor), workers }
    };
    members.into_iter().map(seat).collect()
}

impl Cluster {
    /// What programs in simulated pods are run with.
    #[must_use]
    pub fn runtime(&self) -> &PodRuntime {
        &self.runtime
    }

    /// How many controllers run.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.controllers
    }

    /// Waits until the controllers have seen everything there is.
    ///
    /// # Errors
    /// That takes too long; the error says what is missing.
    pub async fn filled(&self, clock: &Clock) -> anyhow::Result<()> {
        let Err(late) = clock.timeout(PATIENCE, self.handle.filled()).await else { return Ok(()) };
        let missing = self.handle.missing();
        let missing = missing.iter().map(|it| {
            format!("{} ({})", it.resource, it.why.as_deref().unwrap_or("no answer yet"))
        });
        let missing: Vec<String> = missing.collect();
        Err(late).with_context(|| format!("could not read {}", missing.join(", ")))
    }

    /// Declares the groups of the shapes, and adds the nodes that are missing: those of the shapes, or some to begin with if there are none
    /// at all. Returns how many nodes there are then.
    ///
    /// # Errors
    /// The server refuses one.
    pub async fn make_nodes(&self, door: &Door, shapes: Option<&[Shape]>) -> anyhow::Result<usize> {
        let known = self.handle.world().shelf::<Node>().len();
        let standard;
        let shapes = match shapes {
            Some(shapes) => shapes,
            None if known > 0 => return Ok(known),
            None => {
                standard = gantry_sim::shape::usual();
                &standard
            }
        };
        for (name, group) in shapes.iter().filter_map(node_groups::group) {
            let path = ApiPath::object("v1", EMBEDDED_NAMESPACE, "configmaps", name)?;
            let installed = door.install(&path, &group).await;
            installed.with_context(|| format!("could not make {path}"))?;
        }
        let mut count = known;
        let numbered = |shape: &'_ Shape| {
            (0..shape.count).map(|number| shape.node(number)).collect::<Vec<_>>()
        };
        for node in shapes.iter().flat_map(numbered) {
            let kind = "application/json";
            let path = ApiPath::from_static("/api/v1/nodes");
            let path = path.with(Parameter::FieldManager("gantry"));
            let (status, answer) = door.ask(Method::POST, &path, kind, Some(&node)).await?;
            match status {
                StatusCode::CONFLICT => {}
                status if status.is_success() => count += 1,
                _ => bail!(
                    "could not add node {}: {}",
                    node["metadata"]["name"].as_str().unwrap_or_default(),
                    answer["message"].as_str().unwrap_or("the server gave no reason")
                ),
            }
        }
        Ok(count)
    }

    /// Waits until as many nodes are ready, and says what they are.
    ///
    /// # Errors
    /// That takes too long; the error says which are not.
    pub async fn nodes_ready(&self, clock: &Clock, count: usize) -> anyhow::Result<String> {
        let nodes = || self.handle.world().shelf::<Node>().all();
        // A node that somebody took down is not waited for.
        let untainted = |node: &Node| !node.spec.taints.iter().any(|it| it.key == NOT_READY);
        let settled =
            |node: &Node| (node.is_ready() && untainted(node)) || !self.kubelet.is_up(node);
        let ready = async {
            loop {
                let news = self.arrivals.news.notified();
                if nodes().iter().filter(|node| settled(node)).count() >= count {
                    return;
                }
                news.await;
            }
        };
        if let Err(late) = clock.timeout(PATIENCE, ready).await {
            let nodes = nodes();
            let waiting = nodes.iter().filter(|node| !settled(node));
            let waiting: Vec<&str> = waiting.map(|it| it.metadata.name.as_str()).collect();
            let waiting = waiting.join(", ");
            return Err(late).with_context(|| format!("nodes are not ready: {waiting}"));
        }
        let nodes = nodes();
        let ready = nodes.iter().filter(|node| node.is_ready()).count();
        Ok(match ready == nodes.len() {
            true => format!("{ready} ready"),
            false => format!("{ready} of {} ready", nodes.len()),
        })
    }
}

/// How long a cluster may take to be ready before somebody is told why it is not.
pub const PATIENCE: Duration = Duration::from_secs(30);
