//! The controllers of a control plane, and the users they act as.

use std::sync::Arc;

use gantry_reconcile::Controller;
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

use crate::autoscaling::AutoscalerController;
use crate::batch::{
    CronJobController, JobController, JobFinalizerController, TtlAfterFinishedController,
};
use crate::certificates::{CertificateAuthority, CertificateSigner};
use crate::disruption::{DisruptionController, StaleDisruptionController};
use crate::metrics::PodMetrics;
use crate::namespaces::{RootCaCertPublisher, ServiceAccountController};
use crate::node_lifecycle::{NodeLifecycleController, TaintEvictionController};
use crate::pod_gc::PodGarbageCollector;
use crate::rbac;
use crate::resource_claims::ResourceClaimController;
use crate::scheduler::{self, Scheduler};
use crate::services::{EndpointSliceController, EndpointsController};
use crate::storage;
use crate::storage::{
    ClaimBinder, EphemeralVolumeController, PvProtectionController, PvcProtectionController,
    VolumeBinder, VolumeProvisioner,
};
use crate::workloads;

/// A controller, and its identity towards the API server.
#[derive(Clone)]
pub struct ClusterController {
    /// The controller.
    pub controller: Arc<dyn Controller>,
    /// The user it acts as.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<&'static str>,
    /// The field manager of its writes.
    pub manager: &'static str,
    /// The component of its events.
    pub component: &'static str,
    /// The number of its workers.
    pub workers: usize,
}

impl std::fmt::Debug for ClusterController {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "ClusterController({} as {})", self.controller.name(), self.user)
    }
}

/// The settings of the controllers of a control plane.
#[derive(Clone, Debug)]
pub struct ControlPlaneSettings {
    /// What autoscalers decide by.
    pub metrics: Arc<dyn PodMetrics>,
    /// The CA certificates with which pods verify the API server, in PEM.
    pub certificates: String,
    /// When this process started.
    pub started: Timestamp,
    /// The time zones that cron jobs may name.
    pub zones: TimeZoneDatabase,
    /// The authority that signs approved certificate signing requests, if there is one.
    pub authority: Option<Arc<dyn CertificateAuthority>>,
}

/// The number of workers of most controllers.
pub const DEFAULT_WORKERS: usize = 4;

/// The controllers and the scheduler of a control plane.
#[must_use]
pub fn control_plane_controllers(settings: &ControlPlaneSettings) -> Vec<ClusterController> {
    let mut members = controllers(settings);
    members.push(ClusterController {
        controller: Arc::new(Scheduler),
        user: "system:kube-scheduler".to_owned(),
        groups: vec![rbac::CONTROLLERS_GROUP],
        manager: "kube-scheduler",
        component: scheduler::SCHEDULER_NAME,
        workers: 1,
    });
    members
}

/// Returns the controllers of workloads, services, namespaces and nodes.
fn controllers(settings: &ControlPlaneSettings) -> Vec<ClusterController> {
    let mut members: Vec<ClusterController> = Vec::new();
    let mut add = |controller: Arc<dyn Controller>, account: &'static str| {
        let component = event_source(controller.name(), account);
        members.push(ClusterController {
            controller,
            user: format!("system:serviceaccount:kube-system:{account}"),
            groups: vec![
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                rbac::CONTROLLERS_GROUP,
            ],
            manager: "kube-controller-manager",
            component,
            workers: DEFAULT_WORKERS,
        });
    };
    for controller in workloads::controllers() {
        let actor =
            workloads::CONTROLLER_ACCOUNTS.iter().find(|it| it.controller == controller.name());
        let account = actor.map_or("", |it| it.account);
        add(Arc::from(controller), account);
    }
    add(Arc::new(JobController), JobController::ACCOUNT);
    add(Arc::new(JobFinalizerController), JobFinalizerController::ACCOUNT);
    add(Arc::new(CronJobController::new(settings.zones.clone())), CronJobController::ACCOUNT);
    add(Arc::new(TtlAfterFinishedController), TtlAfterFinishedController::ACCOUNT);
    add(Arc::new(EndpointSliceController), EndpointSliceController::ACCOUNT);
    add(Arc::new(EndpointsController), EndpointsController::ACCOUNT);
    add(Arc::new(DisruptionController), DisruptionController::ACCOUNT);
    add(Arc::new(StaleDisruptionController), StaleDisruptionController::ACCOUNT);
    add(Arc::new(NodeLifecycleController::new(settings.started)), NodeLifecycleController::ACCOUNT);
    add(Arc::new(TaintEvictionController), TaintEvictionController::ACCOUNT);
    add(Arc::new(PodGarbageCollector::default()), PodGarbageCollector::ACCOUNT);
    add(Arc::new(ClaimBinder), ClaimBinder::ACCOUNT);
    add(Arc::new(VolumeBinder), VolumeBinder::ACCOUNT);
    add(Arc::new(VolumeProvisioner), VolumeProvisioner::ACCOUNT);
    add(Arc::new(PvcProtectionController), PvcProtectionController::ACCOUNT);
    add(Arc::new(PvProtectionController), PvProtectionController::ACCOUNT);
    add(Arc::new(EphemeralVolumeController), EphemeralVolumeController::ACCOUNT);
    add(Arc::new(ResourceClaimController), ResourceClaimController::ACCOUNT);
    let window = settings.metrics.window().unsigned_abs();
    let autoscaler = AutoscalerController::new(window, Arc::clone(&settings.metrics));
    add(Arc::new(autoscaler), AutoscalerController::ACCOUNT);
    add(Arc::new(ServiceAccountController), ServiceAccountController::ACCOUNT);
    add(
        Arc::new(RootCaCertPublisher::new(settings.certificates.clone())),
        RootCaCertPublisher::ACCOUNT,
    );
    members.extend(
        settings.authority.as_ref().map(|authority| certificate_signer(Arc::clone(authority))),
    );
    members
}

/// Returns the controller that signs certificates. It has the permissions of its own service
/// account and no others, because the authority may be any implementation.
fn certificate_signer(authority: Arc<dyn CertificateAuthority>) -> ClusterController {
    let account = CertificateSigner::ACCOUNT;
    ClusterController {
        controller: Arc::new(CertificateSigner::new(authority)),
        user: format!("system:serviceaccount:kube-system:{account}"),
        groups: vec![
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            rbac::CERTIFICATE_SIGNER_GROUP,
        ],
        manager: "kube-controller-manager",
        component: account,
        workers: 1,
    }
}

/// Returns the component of a controller's events: its account, except where the original uses two
/// names.
fn event_source(controller: &str, account: &'static str) -> &'static str {
    match controller {
        "daemonset" => "daemonset-controller",
        "disruption" | "stale-disruption" => "controllermanager",
        "endpoint-slice" => "endpoint-slice-controller",
        "ephemeral-volume" => "ephemeral_volume",
        "persistent-volume-binder" | "persistent-volume-claim-binder" => {
            "persistentvolume-controller"
        }
        "resource-claim" => "resource_claim",
        "volume-provisioner" => storage::PROVISIONER,
        "taint-eviction" => "taint-eviction-controller",
        _ => account,
    }
}
