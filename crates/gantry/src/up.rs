//! Wires a whole cluster: what runs in the same process as the API server.

pub mod accelerators;
pub mod accounts;
mod arrivals;
mod certificates;
mod default_class;
mod metrics_api;
mod node_groups;
mod scales;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use gantry_api::object::KINDS;
use gantry_api::yaml;
use gantry_apiserver::{Api, Caller};
use gantry_controller::{Actor, Handle, Meters, Options, Outside, Seat, Shell, transport};
use gantry_placement::{AdminQuota, Configs};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_queue::UserAccess;
use gantry_reconcile::names::fingerprint;
use gantry_reconcile::{ApiPath, Key, Parameter, Resource, Scope, View as _};
use gantry_serve::pki::RequestSigner;
use gantry_sim::logs::Logs;
use gantry_sim::pod_config::ApiServer;
use gantry_sim::programs::{PodNetwork, ProgramObserver};
use gantry_sim::shape::Shape;
use gantry_sim::usage::Sampling;
use gantry_sim::view::{Node, TargetScale};
use gantry_sim::{Brief, Member, kubelet};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::containers::LogObserver;
use crate::devices::{self, Reader};
use crate::jobs::admission::LeafAdmission;
use crate::jobs::{self, Rights};
use crate::operator::stock::StockMetrics;
use crate::programs::{self, Around, PodAccounts, Programs};
use arrivals::Arrivals;
use certificates::OwnAuthority;
use node_groups::NodeGroups;
use scales::Scales;
use status::status;

/// Where the state of the controllers is shown.
pub const STATUS_PATH: &str = "/gantry/status";

/// The taint of a node that nobody has found ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What an object that Gantry installs was made from; one that was made from the same is left alone.
pub(crate) const SOURCE: &str = "gantry.dev/source";

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
pub async fn install_kinds(door: &Door, access: UserAccess) -> anyhow::Result<usize> {
    for kind in KINDS {
        let definition = serde_json::to_value(kind.crd())?;
        let path = path_of(&definition)?;
        let installed = door.install(&path, &definition).await;
        installed.with_context(|| format!("could not install {}", kind.crd_name()))?;
    }
    let rights = gantry_sim::rights::rights().into_iter().chain(devices::rights());
    let rights = rights.chain(accounts::rights(access));
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
    /// How the queue decides; none if it is left to an operator.
    pub queue: Option<Queue>,
    /// Where the files of pods with programs are.
    pub pods: PathBuf,
    /// Where pods reach the server.
    pub api_server: ApiServer,
    /// The network of pods.
    pub network: PodNetwork,
}

/// How the queue of a cluster decides.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Whether quota trees decide who runs.
    pub quota: bool,
    /// With whose rights items of AppWrappers are created.
    pub access: UserAccess,
    /// Whether nodes are chosen for jobs that name none.
    pub infer_shapes: bool,
}

/// What runs beside the API server.
#[derive(Debug)]
pub struct Cluster {
    handle: Handle,
    kubelet: kubelet::Settings,
    programs: ProgramObserver,
    arrivals: Arc<Arrivals>,
    controllers: usize,
}

/// Starts the nodes, the scheduler and the controllers. Their tasks belong to `tasks`. What containers
/// say is put into `logs`.
///
/// # Errors
/// A mistake in the wiring.
pub fn start(
    api: &Api,
    settings: &Settings,
    logs: &Logs,
    tasks: &mut Tasks,
    metrics: &Metrics,
    leaves: &LeafAdmission,
) -> anyhow::Result<Cluster> {
    let clock = tasks.clock().clone();
    let started = clock.now();
    let programs = Programs::new(settings.profile, Some(settings.api_server.clone()));
    let (kubelet, shown) = (programs.kubelet().clone(), programs.observer().clone());
    let nodes = accounts::nodes(api).client();
    let arrivals = Arc::new(Arrivals::default());
    let configs = Reader::new();
    let mut outside = Outside::default();
    outside.observers.push(Arc::new(LogObserver::new(logs.clone(), clock.clone())));
    outside.observers.push(Arc::<Arrivals>::clone(&arrivals));
    programs.follow(&mut outside, nodes.clone(), &clock);
    let reader = accounts::reader(api).client();
    let watches = Arc::new(Actor::new(reader.clone(), "gantry", "gantry"));
    let mut seats = vec![Seat::new(configs.watcher(), watches).alone()];
    let members = members(api, settings, &kubelet, started);
    let controllers = members.len();
    seats.extend(members);
    let meters = Meters::register(metrics)?;
    let queued = |Queue { quota, access, .. }| gantry_queue::Settings {
        quota,
        user_access: access,
        devices: true,
        ..Default::default()
    };
    let queue = settings.queue.map(|it| jobs::Part::new(queued(it), metrics)).transpose()?;
    let chooses = settings.queue.filter(|it| it.infer_shapes).and(queue.as_ref());
    let live = chooses.map(jobs::Part::live);
    let NodeGroups { seats: groups, filter, stock } =
        node_groups::seats(&accounts::scaling(api), live, metrics)?;
    outside.observers.push(Arc::<StockMetrics>::clone(&stock));
    seats.extend(groups);
    let account = accounts::queue(api).client_for_users();
    let actor = Arc::new(jobs::actor(account.clone()).acting_for_users());
    seats.extend(queue.iter().flat_map(|part| part.seats(&actor, |_| true)));
    outside.observers.extend(queue.iter().map(jobs::Part::observer));
    let options = Options {
        in_flight: 64,
        outside,
        facts: [Configs::RESOURCE, TargetScale::RESOURCE].into_iter().chain(jobs::FACTS).collect(),
        filters: [filter].into(),
        ..Options::default()
    };
    let shell = Shell::new(clock.clone(), fastrand::Rng::new(), reader, seats, options, meters)?;
    let handle = shell.handle();
    let inner = tasks.child();
    tasks.spawn("controllers", OnLoss::EndOwner, |_| async move { Ok(shell.run(inner).await?) });
    configs.spawn(tasks, handle.clone(), devices::door(api).client());
    let sampling = Sampling::of_profile(settings.profile);
    metrics_api::serve(api, &handle, &clock, sampling);
    Scales::new(api, &handle, sampling).spawn(tasks);
    if let Some(part) = queue {
        part.spawn(tasks, &handle, account, Rights::All);
        leaves.follow(part.admission());
    }
    stock.spawn(tasks, &handle);
    let accounts = PodAccounts::new(nodes, clock.clone(), programs::in_process(api));
    let (accounts, directory) = (Some(Arc::new(accounts) as _), Some(settings.pods.clone()));
    let (logs, network) = (logs.clone(), settings.network.clone());
    let around = Around { logs, accounts, directory, scratch: None, network };
    programs.spawn(tasks, &handle, around);
    // `gantry queue` and `gantry explain` decide by the same settings; the keys are the operator's.
    let configuration = settings.queue.map(|it| {
        let mcad = json!({"quotaEnabled": it.quota, "checkUserAccess": it.access.is_checked()});
        json!({"mcad": mcad, "devices": {"enabled": true}})
    });
    let page_of = handle.clone();
    api.show(STATUS_PATH, move || {
        let mut page = status(&page_of, controllers, started, &clock);
        page["configuration"] = configuration.clone().unwrap_or_default();
        page
    });
    Ok(Cluster { handle, kubelet, programs: shown, arrivals, controllers })
}

/// Which controllers run, and in whose name.
fn members(
    api: &Api,
    settings: &Settings,
    kubelet: &kubelet::Settings,
    started: Timestamp,
) -> Vec<Seat> {
    let mut members = gantry_sim::members(&Brief {
        kubelet: kubelet.clone(),
        started,
        certificates: settings.certificates.clone(),
        zones: jiff::tz::db().clone(),
        authority: Some(Arc::new(OwnAuthority::new(settings.signer.clone()))),
    });
    members.retain(|member| settings.scheduler || member.controller.name() != "scheduler");
    members.extend(devices::members(AdminQuota::Optional));
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
    /// What follows the programs of pods.
    #[must_use]
    pub fn programs(&self) -> &ProgramObserver {
        &self.programs
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
            let path = ApiPath::object("v1", node_groups::NAMESPACE, "configmaps", name)?;
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
