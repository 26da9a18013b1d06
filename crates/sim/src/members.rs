//! Everyone who makes a cluster run, and in whose name they act.

use std::sync::Arc;

use gantry_reconcile::Controller;
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

use crate::autoscaling::Autoscalers;
use crate::batch::{CronJobs, FinishedJobs, Jobs, TrackedPods};
use crate::certificates::{CertificateAuthority, CertificateSigner};
use crate::disruption::{Budgets, StaleDisruptions};
use crate::kubelet;
use crate::namespaces::{RootCertificates, ServiceAccounts};
use crate::node_lifecycle::{NodeLifecycle, TaintEviction};
use crate::pod_gc::PodCollector;
use crate::resource_claims::ResourceClaims;
use crate::rights;
use crate::scheduler::{self, Scheduler};
use crate::services::{EndpointSlices, EndpointsController};
use crate::storage;
use crate::storage::{
    ClaimBinder, ClaimProtection, EphemeralClaims, Provisioner, VolumeBinder, VolumeProtection,
};
use crate::usage::Sampling;
use crate::workloads;

/// A controller, and who it is to the server.
#[derive(Clone)]
pub struct Member {
    /// The controller.
    pub controller: Arc<dyn Controller>,
    /// The user it acts as.
    pub user: String,
    /// The groups that user is in.
    pub groups: Vec<&'static str>,
    /// Who owns the fields it writes.
    pub manager: &'static str,
    /// Who its events come from.
    pub component: &'static str,
    /// How many objects it decides about at once.
    pub workers: usize,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Member({} as {})", self.controller.name(), self.user)
    }
}

/// What the members of a cluster are told.
#[derive(Clone, Debug)]
pub struct Brief {
    /// How nodes are pretended.
    pub kubelet: kubelet::Settings,
    /// The certificates by which pods know the server, in PEM.
    pub certificates: String,
    /// When this process began to look.
    pub started: Timestamp,
    /// The time zones that cron jobs may name.
    pub zones: TimeZoneDatabase,
    /// Who signs certificates for requests that were approved, if anybody does.
    pub authority: Option<Arc<dyn CertificateAuthority>>,
}

/// The user that all simulated nodes act as: they trust each other.
pub const NODES_USER: &str = "system:node:gantry";

/// How many objects most controllers decide about at once.
const WORKERS: usize = 4;

/// Everyone.
#[must_use]
pub fn members(brief: &Brief) -> Vec<Member> {
    let mut members = control_plane(brief);
    members.extend(nodes(&brief.kubelet));
    members
}

/// Everyone but the nodes.
#[must_use]
pub fn control_plane(brief: &Brief) -> Vec<Member> {
    let mut members = controllers(brief);
    members.push(Member {
        controller: Arc::new(Scheduler),
        user: "system:kube-scheduler".to_owned(),
        groups: vec![rights::CONTROLLERS],
        manager: "kube-scheduler",
        component: scheduler::NAME,
        workers: 1,
    });
    members
}

/// The nodes alone, for a cluster that has a control plane of its own.
#[must_use]
pub fn nodes(settings: &kubelet::Settings) -> Vec<Member> {
    let node = |controller: Arc<dyn Controller>, workers| Member {
        controller,
        user: NODES_USER.to_owned(),
        groups: vec!["system:nodes", rights::NODES],
        manager: "kubelet",
        component: "kubelet",
        workers,
    };
    vec![
        node(Arc::new(kubelet::Nodes::new(settings.clone())), WORKERS),
        node(Arc::new(kubelet::Ranges::new(settings.clone())), 1),
        node(Arc::new(kubelet::Pods::new(settings.clone())), 2 * WORKERS),
    ]
}

/// The controllers of workloads, services, namespaces and nodes.
fn controllers(brief: &Brief) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    let mut add = |controller: Arc<dyn Controller>, account: &'static str| {
        let component = component(controller.name(), account);
        members.push(Member {
            controller,
            user: format!("system:serviceaccount:kube-system:{account}"),
            groups: vec![
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                rights::CONTROLLERS,
            ],
            manager: "kube-controller-manager",
            component,
            workers: WORKERS,
        });
    };
    for controller in workloads::controllers() {
        let actor = workloads::ACTORS.iter().find(|it| it.controller == controller.name());
        let account = actor.map_or("", |it| it.account);
        add(Arc::from(controller), account);
    }
    add(Arc::new(Jobs), Jobs::ACCOUNT);
    add(Arc::new(TrackedPods), TrackedPods::ACCOUNT);
    add(Arc::new(CronJobs::new(brief.zones.clone())), CronJobs::ACCOUNT);
    add(Arc::new(FinishedJobs), FinishedJobs::ACCOUNT);
    add(Arc::new(EndpointSlices), EndpointSlices::ACCOUNT);
    add(Arc::new(EndpointsController), EndpointsController::ACCOUNT);
    add(Arc::new(Budgets), Budgets::ACCOUNT);
    add(Arc::new(StaleDisruptions), StaleDisruptions::ACCOUNT);
    add(Arc::new(NodeLifecycle::new(brief.started)), NodeLifecycle::ACCOUNT);
    add(Arc::new(TaintEviction), TaintEviction::ACCOUNT);
    add(Arc::new(PodCollector::default()), PodCollector::ACCOUNT);
    add(Arc::new(ClaimBinder), ClaimBinder::ACCOUNT);
    add(Arc::new(VolumeBinder), VolumeBinder::ACCOUNT);
    add(Arc::new(Provisioner), Provisioner::ACCOUNT);
    add(Arc::new(ClaimProtection), ClaimProtection::ACCOUNT);
    add(Arc::new(VolumeProtection), VolumeProtection::ACCOUNT);
    add(Arc::new(EphemeralClaims), EphemeralClaims::ACCOUNT);
    add(Arc::new(ResourceClaims), ResourceClaims::ACCOUNT);
    add(Arc::new(autoscalers(brief.kubelet.profile)), Autoscalers::ACCOUNT);
    add(Arc::new(ServiceAccounts), ServiceAccounts::ACCOUNT);
    add(Arc::new(RootCertificates::new(brief.certificates.clone())), RootCertificates::ACCOUNT);
    members.extend(brief.authority.as_ref().map(|authority| signer(Arc::clone(authority))));
    members
}

/// The controller that signs certificates. It has the rights of its account and no others: who signs
/// can be anybody.
fn signer(authority: Arc<dyn CertificateAuthority>) -> Member {
    let account = CertificateSigner::ACCOUNT;
    Member {
        controller: Arc::new(CertificateSigner::new(authority)),
        user: format!("system:serviceaccount:kube-system:{account}"),
        groups: vec![
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            rights::CERTIFICATES,
        ],
        manager: "kube-controller-manager",
        component: account,
        workers: 1,
    }
}

/// Where pods take no time, neither does it take long to decide about their number.
fn autoscalers(profile: kubelet::Profile) -> Autoscalers {
    let sampling = Sampling::of_profile(profile);
    Autoscalers::new(sampling.window.unsigned_abs(), sampling)
}

/// Who a controller's events come from: whom it acts as, but for those whose originals have two names.
fn component(controller: &str, account: &'static str) -> &'static str {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everyone_has_a_name_and_an_identity_of_their_own() {
        let members = members(&Brief {
            kubelet: kubelet::Settings::default(),
            certificates: String::new(),
            started: Timestamp::UNIX_EPOCH,
            zones: TimeZoneDatabase::none(),
            authority: None,
        });
        let names: BTreeSet<&str> = members.iter().map(|it| it.controller.name()).collect();
        assert_eq!(names.len(), members.len());
        for member in &members {
            assert!(!member.user.ends_with(':') && !member.component.is_empty(), "{member:?}");
            assert!(member.workers > 0, "{member:?}");
        }
        let component = |name: &str| {
            let member = members.iter().find(|it| it.controller.name() == name);
            member.map(|it| it.component)
        };
        let two_names = [
            ("daemonset", "daemonset-controller"),
            ("deployment", "deployment-controller"),
            ("disruption", "controllermanager"),
            ("endpoint-slice", "endpoint-slice-controller"),
            ("taint-eviction", "taint-eviction-controller"),
        ];
        for (name, expected) in two_names {
            assert_eq!(component(name), Some(expected), "{name}");
        }
    }
}
