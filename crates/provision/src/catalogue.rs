//! The catalogue: every step that there is, in the order in which they run.

use std::borrow::Cow;

use gantry_inventory::{Backend, Role};

use crate::step::{Behavior, Context, Stage, Step, StepHosts};

mod bundled;
mod kernel;
mod packages;
mod preflight;
mod runtime;

/// Every step, in the order in which they run.
#[must_use]
pub fn catalogue() -> Vec<Step> {
    let mut steps = vec![Step {
        about: Cow::Borrowed("Learns what each host is, by a script that changes nothing."),
        ..built_in("facts", Stage::Facts, &["facts", "always"], preflight::FACTS)
    }];
    steps.extend(preflight::steps());
    steps.extend(packages::steps());
    steps.extend(kernel::steps());
    steps.extend(runtime::steps());
    steps.extend(bundled::steps());
    steps.extend(not_built());
    steps
}

fn built_in(
    id: &'static str,
    stage: Stage,
    tags: &'static [&'static str],
    behavior: Behavior,
) -> Step {
    Step {
        id: Cow::Borrowed(id),
        stage,
        tags: tags.iter().copied().map(Cow::Borrowed).collect(),
        hosts: StepHosts::All,
        needs_root: stage > Stage::Preflight,
        about: Cow::Borrowed(""),
        owns: Cow::Borrowed("nothing"),
        behavior,
    }
}

/// A cluster that runs already is configured, not made.
fn makes_cluster(context: &Context<'_>) -> Result<(), String> {
    match context.settings.backend {
        Backend::Existing | Backend::Embedded => {
            Err("gantry_backend: the cluster runs already".to_owned())
        }
        Backend::Kind | Backend::Kubeadm | Backend::K3s | Backend::Bare => Ok(()),
    }
}

fn always(_context: &Context<'_>) -> Result<(), String> {
    Ok(())
}

/// Steps of the stages that this version names and holds.
fn not_built() -> Vec<Step> {
    type Row =
        (&'static str, Stage, &'static [&'static str], StepHosts, &'static str, &'static str);
    let master = StepHosts::With(Role::Master);
    let rows: [Row; 20] = [
        (
            "certs",
            Stage::Identity,
            &["certs"],
            StepHosts::Nodes,
            "Makes the authorities and certificates of the cluster.",
            "/etc/kubernetes/pki",
        ),
        (
            "etcd",
            Stage::Etcd,
            &["etcd"],
            StepHosts::With(Role::Etcd),
            "Runs etcd.",
            "its unit or static pod, and its data folder",
        ),
        (
            "control-plane",
            Stage::ControlPlane,
            &["control-plane"],
            master,
            "Runs the API server, the controller manager and the scheduler.",
            "/etc/kubernetes",
        ),
        (
            "node",
            Stage::Join,
            &["node"],
            StepHosts::Nodes,
            "Runs the kubelet, which joins the cluster.",
            "kubelet.service, /var/lib/kubelet",
        ),
        (
            "network",
            Stage::Network,
            &["network"],
            StepHosts::Nodes,
            "Connects pods across nodes.",
            "/etc/cni/net.d",
        ),
        ("dns", Stage::Network, &["dns"], master, "Resolves names of services.", "CoreDNS"),
        (
            "storage.class",
            Stage::Storage,
            &["storage", "config", "apply"],
            master,
            "Provisions volumes on NFS.",
            "StorageClass nfs and its provisioner",
        ),
        (
            "rbac.profiles",
            Stage::Access,
            &["rbac", "config", "apply"],
            master,
            "Gives each profile its namespace, accounts and permissions.",
            "namespaces, accounts, roles and bindings of gantry_profiles",
        ),
        (
            "rbac.platform",
            Stage::Access,
            &["rbac", "config", "apply"],
            master,
            "Lets the platform run pipelines in every namespace.",
            "ClusterRole pipeline-runner, ClusterRoleBinding ml-pipeline",
        ),
        (
            "expose.gateway",
            Stage::Expose,
            &["expose", "config", "apply"],
            master,
            "Gives Deployments of gantry_expose a port of the host.",
            "hostPort of these Deployments",
        ),
        (
            "front",
            Stage::Expose,
            &["front", "config", "apply"],
            StepHosts::With(Role::Front),
            "Routes requests to services by host name.",
            "the balancer's configuration and unit",
        ),
        (
            "firewall",
            Stage::Expose,
            &["firewall", "config", "apply"],
            StepHosts::All,
            "Compares or writes packet filters.",
            "table inet gantry",
        ),
        (
            "addons",
            Stage::Addons,
            &["addons", "config", "apply"],
            master,
            "Installs what gantry_addons names, from manifests that are checked in.",
            "the objects of the add-ons",
        ),
        (
            "backup.schedule",
            Stage::Backup,
            &["backup"],
            master,
            "Makes backups when gantry_backup says.",
            "a timer and its service",
        ),
        (
            "verify.nodes",
            Stage::Verify,
            &["verify", "always"],
            StepHosts::Nodes,
            "Waits for every node to be ready.",
            "nothing",
        ),
        (
            "kind.config",
            Stage::ControlPlane,
            &["control-plane", "kind"],
            master,
            "Declares mounts and ports of the node of kind.",
            "/etc/gantry/kind",
        ),
        (
            "kind.create",
            Stage::ControlPlane,
            &["control-plane", "kind"],
            master,
            "Makes a cluster in a container.",
            "the container of the node",
        ),
        (
            "kubeadm.init",
            Stage::ControlPlane,
            &["control-plane", "kubeadm"],
            master,
            "Makes the first master with kubeadm.",
            "/etc/gantry/kubeadm, /etc/kubernetes",
        ),
        (
            "kubeadm.join",
            Stage::Join,
            &["node", "kubeadm"],
            StepHosts::Nodes,
            "Joins further nodes with kubeadm.",
            "/etc/kubernetes, /var/lib/kubelet",
        ),
        (
            "accelerators.runtime",
            Stage::Addons,
            &["accelerators"],
            StepHosts::Nodes,
            "Lets pods use accelerators.",
            "runtime handler, RuntimeClass, device plugin",
        ),
    ];
    let mut steps: Vec<Step> = rows
        .into_iter()
        .map(|(id, stage, tags, hosts, about, owns)| Step {
            hosts,
            about: Cow::Borrowed(about),
            owns: Cow::Borrowed(owns),
            ..built_in(id, stage, tags, Behavior::NotBuilt)
        })
        .collect();
    steps.sort_by_key(|step| step.stage);
    steps
}
