//! Starts a whole cluster: everything that runs in the same process as the API server.

pub mod accelerators;
pub mod accounts;
mod certificates;
mod default_storage_class;
pub mod demo_module;
mod gantry_program;
mod host_registry;
mod in_process_client;
mod installation;
mod metrics_api;
mod node_groups;
mod node_notifier;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_apiserver::{Api, Caller, ClientCertificate};
use gantry_controller::{
    Actor, ControllerManager, ControllerMetrics, ManagerHandle, ManagerOptions, Registration,
};
use gantry_kernel_modules::effects::{HostRegistry as _, HostRegistryExtension};
use gantry_kube_controllers::effects::scale_inquiry;
use gantry_kube_controllers::{ClusterController, ControlPlaneSettings, control_plane_controllers};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_queue::effects::admission::LeafAdmission;
use gantry_reconcile::{ApiPath, Parameter};
use gantry_scaling::subsystem::EMBEDDED_NAMESPACE;
use gantry_serve::pki::RequestSigner;
use gantry_sim::effects::{PodRuntime, PulledImages, Transport};
use gantry_sim::kubelet;
use gantry_sim::logs::Logs;
use gantry_sim::node_shape::NodeShape;
use gantry_sim::pod_config::ApiServer;
use gantry_sim::programs::{PodNetwork, ProgramRegistry};
use gantry_sim::usage::Sampling;
use gantry_sim::view::Node;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::{Clients, HostExtensions};
use gantry_subsystem::{Host, Identity, Setup, StartError, SubsystemComponents};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use crate::cli::modules::ImageBuilder;
use crate::model_programs;
use crate::status_page::{ConfigurationStatus, SettingsScope, StatusPage, caches_filled};
use crate::subsystems::{self};
use certificates::EmbeddedAuthority;
use gantry_program::GantryProgram;
use host_registry::EmbeddedRegistry;
pub use in_process_client::InProcessClient;
pub use installation::{DEMO, DEMO_MODELS, apply, install_kinds};
use node_notifier::NodeNotifier;

/// The path of the controllers' status page.
pub const STATUS_PATH: &str = "/gantry/status";

/// The taint of a node that has not been found ready yet.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

/// The annotation with the source of an object that Gantry installs; an object from the same source
/// is left alone.
pub(crate) use gantry_queue::author::SOURCE_ANNOTATION;

/// The settings of an embedded cluster.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// How long pods take for each step.
    pub profile: kubelet::Profile,
    /// The certificates with which pods verify the server, in PEM.
    pub certificates: String,
    /// Signs certificates with the server's authority.
    pub signer: RequestSigner,
    /// Whether the scheduler runs.
    pub scheduler: bool,
    /// The settings of the subsystems.
    pub values: Values,
    /// The directory for the files of pods with programs.
    pub pods: PathBuf,
    /// The address of the server for pods.
    pub api_server: ApiServer,
    /// The network of pods.
    pub network: PodNetwork,
    /// The images that nodes pull; they have all others.
    pub images: Option<PulledImages>,
    /// The buildah that builds images of Modules; without one, `RUN` is simulated.
    pub buildah: Option<PathBuf>,
}

/// An embedded cluster: everything that runs beside the API server.
#[derive(Debug)]
pub struct Cluster {
    handle: ManagerHandle,
    kubelet: kubelet::Settings,
    runtime: PodRuntime,
    node_notifier: Arc<NodeNotifier>,
    controllers: usize,
}

/// Starts the nodes, the scheduler and the controllers. Their tasks belong to `tasks`. The output
/// of containers goes to `logs`.
///
/// # Errors
/// A mistake in the wiring.
pub async fn start(
    api: &Api,
    settings: &EmbeddedSettings,
    logs: &Logs,
    tasks: &mut Tasks,
    metrics: &Metrics,
    leaves: &LeafAdmission,
) -> anyhow::Result<Cluster> {
    let clock = tasks.clock().clone();
    let started = clock.now();
    let registry = EmbeddedRegistry::new(api, settings.api_server.port, &settings.certificates);
    let builder = settings.buildah.clone().map_or(ImageBuilder::Simulated, ImageBuilder::Buildah);
    let program = GantryProgram::new(registry.addresses(), registry.roots(), builder);
    let runtime = PodRuntime {
        programs: model_programs::register(
            ProgramRegistry::built_in().with(gantry_program::IMAGE, program),
            &settings.pods,
            None,
            tasks,
        )?,
        api_server: Some(settings.api_server.clone()),
        transport: Some(in_process_transport(api)),
        directory: Some(settings.pods.clone()),
        network: settings.network.clone(),
        images: settings.images.clone(),
        ..PodRuntime::new(settings.profile, logs.clone())
    };
    let setup = Setup {
        values: &settings.values,
        host: Host::Embedded,
        namespace: &|| Ok(EMBEDDED_NAMESPACE.to_owned()),
        clock: &clock,
        metrics,
        clients: &EmbeddedClients(api),
        is_controller_enabled: &|_| true,
        extensions: &HostExtensions::default()
            .with(leaves.clone())
            .with(runtime.clone())
            .with(HostRegistryExtension(Arc::new(registry))),
    };
    let components = subsystems::start(setup).await?;
    let SubsystemComponents { mut registrations, mut outside, filters, background, .. } =
        components;
    registrations.extend(control_plane(api, settings, started));
    let arrivals = Arc::new(NodeNotifier::default());
    outside.observers.push(Arc::<NodeNotifier>::clone(&arrivals));
    let sampling = Sampling::of_profile(settings.profile);
    let autoscaler = accounts::autoscaler(api).kube_client();
    outside.inquiries.push(scale_inquiry(autoscaler, clock.clone(), sampling.window));
    let controllers = registrations.len();
    let meters = ControllerMetrics::register(metrics)?;
    let reader = accounts::reader(api).kube_client();
    let options = ManagerOptions {
        max_in_flight_writes: 64,
        external: outside,
        filters,
        ..ManagerOptions::default()
    };
    let shell = ControllerManager::new(
        clock.clone(),
        fastrand::Rng::new(),
        reader,
        registrations,
        options,
        meters,
    )?;
    let handle = shell.handle();
    let inner = tasks.child();
    tasks.spawn("controllers", OnLoss::EndOwner, |_| async move { Ok(shell.run(inner).await?) });
    metrics_api::serve(api, &handle, &clock, sampling);
    background.into_iter().for_each(|begin| begin(tasks, &handle));
    // `gantry queue` and `gantry explain` evaluate with the same settings; the keys are the
    // operator's.
    let configuration = ConfigurationStatus {
        source: "gantry up".to_owned(),
        values: Some(settings.values.clone()),
        scope: SettingsScope::Subsystems,
        ..ConfigurationStatus::default()
    };
    let shown = handle.clone();
    api.serve_page(STATUS_PATH, move || {
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
    Ok(Cluster { handle, kubelet, runtime, node_notifier: arrivals, controllers })
}

/// The clients of service accounts on the embedded server.
struct EmbeddedClients<'a>(&'a Api);

impl Clients for EmbeddedClients<'_> {
    fn writer(&self, account: &Identity) -> Result<kube::Client, StartError> {
        let api_client = InProcessClient::as_caller(
            self.0,
            Caller::authenticated(&account.user, &account.groups),
        );
        Ok(if account.impersonates_users {
            api_client.impersonating_client()
        } else {
            api_client.kube_client()
        })
    }

    fn reader(&self, account: &Identity) -> Result<kube::Client, StartError> {
        let caller = Caller::authenticated(&account.user, &account.groups);
        Ok(InProcessClient::as_caller(self.0, caller).kube_client())
    }
}

/// Returns a transport to the server in the same process, for requests of pods with their own
/// tokens.
fn in_process_transport(api: &Api) -> Transport {
    let api = api.clone();
    Arc::new(move |request| {
        let api = api.clone();
        Box::pin(async move {
            let caller = api.authenticate(request.headers(), ClientCertificate::Absent);
            let answer = api.handle(request, caller).await;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    })
}

/// Returns the scheduler and the controllers of every Kubernetes cluster, and their accounts.
fn control_plane(api: &Api, settings: &EmbeddedSettings, started: Timestamp) -> Vec<Registration> {
    let mut members = control_plane_controllers(&ControlPlaneSettings {
        metrics: Arc::new(Sampling::of_profile(settings.profile)),
        started,
        certificates: settings.certificates.clone(),
        zones: jiff::tz::db().clone(),
        authority: Some(Arc::new(EmbeddedAuthority::new(settings.signer.clone()))),
    });
    members.retain(|member| settings.scheduler || member.controller.name() != "scheduler");
    let register = |member: ClusterController| {
        let ClusterController { controller, user, groups, manager, component, workers } = member;
        let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
        let caller = Caller::authenticated(&user, &groups);
        let actor =
            Actor::new(InProcessClient::as_caller(api, caller).kube_client(), manager, component);
        Registration { controller, actor: Arc::new(actor), workers }
    };
    members.into_iter().map(register).collect()
}

impl Cluster {
    /// Returns the runtime of programs in simulated pods.
    #[must_use]
    pub fn runtime(&self) -> &PodRuntime {
        &self.runtime
    }

    /// Returns the number of running controllers.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.controllers
    }

    /// Waits until the caches of the controllers have synced.
    ///
    /// # Errors
    /// It takes too long; the error says what is missing.
    pub async fn wait_for_cache_sync(&self, clock: &Clock) -> anyhow::Result<()> {
        let Err(late) =
            clock.timeout(CLUSTER_READY_TIMEOUT, self.handle.wait_for_cache_sync()).await
        else {
            return Ok(());
        };
        let missing = self.handle.unsynced_kinds();
        let missing = missing.iter().map(|it| {
            format!("{} ({})", it.resource, it.why.as_deref().unwrap_or("no response yet"))
        });
        let missing: Vec<String> = missing.collect();
        Err(late).with_context(|| format!("could not read {}", missing.join(", ")))
    }

    /// Declares the groups of the shapes, and adds missing nodes: those of the shapes, or the
    /// usual ones if the cluster has no nodes. Returns the resulting number of nodes.
    ///
    /// # Errors
    /// The server rejects one.
    pub async fn make_nodes(
        &self,
        api_client: &InProcessClient,
        shapes: Option<&[NodeShape]>,
        usual: &[NodeShape],
    ) -> anyhow::Result<usize> {
        let known = self.handle.world().store::<Node>().len();
        let shapes = match shapes {
            Some(shapes) => shapes,
            None if known > 0 => return Ok(known),
            None => usual,
        };
        for (name, group) in shapes.iter().filter_map(node_groups::group) {
            let path = ApiPath::object("v1", EMBEDDED_NAMESPACE, "configmaps", name)?;
            let installed = api_client.install(&path, &group).await;
            installed.with_context(|| format!("could not create {path}"))?;
        }
        let mut count = known;
        let numbered = |shape: &'_ NodeShape| {
            (0..shape.count).map(|number| shape.node(number)).collect::<Vec<_>>()
        };
        for node in shapes.iter().flat_map(numbered) {
            let kind = "application/json";
            let path = ApiPath::from_static("/api/v1/nodes");
            let path = path.with(Parameter::FieldManager("gantry"));
            let (status, answer) =
                api_client.request(Method::POST, &path, kind, Some(&node)).await?;
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

    /// Waits until this number of nodes is ready, and describes them.
    ///
    /// # Errors
    /// It takes too long; the error names the nodes that are not ready.
    pub async fn wait_for_ready_nodes(
        &self,
        clock: &Clock,
        count: usize,
    ) -> anyhow::Result<String> {
        let nodes = || self.handle.world().store::<Node>().list();
        // Nodes with a simulated power failure are not waited for.
        let untainted = |node: &Node| !node.spec.taints.iter().any(|it| it.key == NOT_READY_TAINT);
        let settled =
            |node: &Node| (node.is_ready() && untainted(node)) || !self.kubelet.is_up(node);
        let ready = async {
            loop {
                let news = self.node_notifier.changed.notified();
                if nodes().iter().filter(|node| settled(node)).count() >= count {
                    return;
                }
                news.await;
            }
        };
        if let Err(late) = clock.timeout(CLUSTER_READY_TIMEOUT, ready).await {
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

/// How long a cluster may take to be ready before the start fails with the reason.
pub const CLUSTER_READY_TIMEOUT: Duration = Duration::from_secs(30);
