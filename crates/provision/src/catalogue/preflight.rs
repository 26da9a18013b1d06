//! Preflight: what would fail later is found before anything is changed.

use std::borrow::Cow;

use gantry_inventory::Backend;

use super::{always, built_in, makes_cluster};
use crate::facts::CgroupVersion;
use crate::state::Observed;
use crate::step::{Behavior, Context, Stage, Step, Verdict};

/// The step that gathers facts: they are there when it is planned.
pub(super) const FACTS: Behavior =
    Behavior::BuiltIn { when: always, wants: |_| Vec::new(), plan: plan_facts };

/// Free space that `/var` has to have, in KiB.
const MIN_VAR_KIB: u64 = 2 << 20;
/// Seconds by which the clocks of two hosts may differ.
const MAX_SKEW_SECONDS: u64 = 2;

type Check = fn(&Context<'_>, &Observed) -> Verdict;

pub(super) fn steps() -> Vec<Step> {
    let rows: [(&'static str, Check, &'static str); 6] = [
        ("preflight.kernel", kernel, "Finds control groups and kernel features that are missing."),
        ("preflight.ports", ports, "Finds ports that something else listens on."),
        ("preflight.space", space, "Finds disks without space."),
        ("preflight.time", time, "Finds clocks that differ, before certificates are made."),
        ("preflight.names", names, "Finds hosts with the same name or machine id."),
        ("preflight.existing", existing, "Finds a Kubernetes that runs already."),
    ];
    let step = |(id, plan, about): (&'static str, Check, &'static str)| Step {
        about: Cow::Borrowed(about),
        ..built_in(
            id,
            Stage::Preflight,
            &["preflight"],
            Behavior::BuiltIn { when: makes_cluster, wants: |_| Vec::new(), plan },
        )
    };
    rows.into_iter().map(step).collect()
}

fn plan_facts(context: &Context<'_>, _: &Observed) -> Verdict {
    let facts = context.facts;
    let distribution = &facts.distribution;
    Verdict::Satisfied(format!(
        "{} {}, {}, cgroup {}",
        distribution.id,
        distribution.version,
        facts.architecture,
        facts.cgroup.version.name()
    ))
}

fn failed(message: String, remedy: &str) -> Verdict {
    Verdict::Failed { message, remedy: remedy.to_owned() }
}

fn kernel(context: &Context<'_>, _: &Observed) -> Verdict {
    let facts = context.facts;
    if facts.cgroup.version == CgroupVersion::None {
        return failed("no control groups are mounted".to_owned(), "boot with systemd");
    }
    let missing = facts.cgroup.missing();
    if !missing.is_empty() {
        let message = format!("control groups lack {}", missing.join(", "));
        return failed(message, "enable them on the kernel's command line, and boot");
    }
    if !facts.has_module("overlay") && !facts.loadable.contains("overlay") {
        let message = "the kernel has no overlay file system".to_owned();
        return failed(message, "install the kernel's modules, or another kernel");
    }
    let bridge = facts.has_module("br_netfilter") || facts.loadable.contains("br_netfilter");
    Verdict::Satisfied(match (facts.cgroup.version, bridge) {
        (CgroupVersion::V2, true) => "kernel features are there".to_owned(),
        (CgroupVersion::V1 | CgroupVersion::Hybrid | CgroupVersion::None, true) => {
            "control groups of version 1: failCgroupV1 is set to false".to_owned()
        }
        (_, false) => "br_netfilter is missing: bridged traffic is not filtered".to_owned(),
    })
}

/// Ports of the programs of Kubernetes.
const KUBERNETES_PORTS: [u16; 7] = [6443, 2379, 2380, 10250, 10257, 10259, 10256];
/// Programs that may hold them if they are ours.
const KUBERNETES_PROGRAMS: [&str; 7] = [
    "kube-apiserver",
    "etcd",
    "kubelet",
    "kube-controller",
    "kube-scheduler",
    "kube-proxy",
    "docker-proxy",
];

fn ports(context: &Context<'_>, _: &Observed) -> Verdict {
    let mut needed = match context.settings.backend {
        Backend::Kind => vec![6443],
        Backend::Kubeadm | Backend::K3s | Backend::Bare | Backend::Existing | Backend::Embedded => {
            KUBERNETES_PORTS.to_vec()
        }
    };
    if context.settings.backend == Backend::Kind {
        needed.extend(context.settings.published_ports());
    }
    let began = |it: &str| it.starts_with("kubeadm") || it.starts_with("kind") || it == "etcd";
    let is_ours = context.journal.is_some_and(|journal| {
        journal.entries().any(|(intent, _)| began(&intent.step) || intent.step == "node")
    });
    let holds = |port: &u16| {
        let listener = context.facts.network.listener(*port)?;
        let process = listener.process.as_deref().unwrap_or("another process");
        if is_ours && KUBERNETES_PROGRAMS.iter().any(|it| process.starts_with(it)) {
            return None;
        }
        let pid = listener.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        Some(format!("port {port}/tcp is held by {process}{pid}"))
    };
    let held: Vec<String> = needed.iter().filter_map(holds).collect();
    if held.is_empty() {
        return Verdict::Satisfied(format!("{} ports are free or ours", needed.len()));
    }
    let remedy = if context.settings.backend == Backend::Kind {
        "stop it, or set gantry_port_mappings"
    } else {
        "stop it; kind with gantry_port_mappings can run beside another cluster"
    };
    failed(held.join("; "), remedy)
}

fn space(context: &Context<'_>, _: &Observed) -> Verdict {
    match context.facts.free_kib.get("/var").or_else(|| context.facts.free_kib.get("/")) {
        Some(free) if *free < MIN_VAR_KIB => failed(
            format!("/var has {} MiB free, and {} MiB are needed", free >> 10, MIN_VAR_KIB >> 10),
            "remove files, or mount a larger disk at /var",
        ),
        Some(free) => Verdict::Satisfied(format!("/var has {} MiB free", free >> 10)),
        None => Verdict::Held("free space of /var is not known; df printed nothing".to_owned()),
    }
}

fn time(context: &Context<'_>, _: &Observed) -> Verdict {
    let own = context.facts.time;
    let differs =
        context.peers.iter().find(|(_, facts)| facts.time.abs_diff(own) > MAX_SKEW_SECONDS);
    match differs {
        Some((peer, facts)) => failed(
            format!("the clock differs from that of {peer} by {} s", facts.time.abs_diff(own)),
            "synchronize the clocks: systemctl enable --now systemd-timesyncd or chrony",
        ),
        None => Verdict::Satisfied("clocks agree".to_owned()),
    }
}

fn names(context: &Context<'_>, _: &Observed) -> Verdict {
    let facts = context.facts;
    let others = context.peers.iter().filter(|(name, _)| *name != context.settings.host);
    for (peer, other) in others {
        if other.machine_id == facts.machine_id && !facts.machine_id.is_empty() {
            let message = format!("the machine id is that of {peer}");
            let remedy = "remove /etc/machine-id, run systemd-machine-id-setup, and boot";
            return failed(message, remedy);
        }
        if other.hostname == facts.hostname {
            let message = format!("the host is named {}, as is {peer}", facts.hostname);
            return failed(message, "hostnamectl set-hostname NAME");
        }
    }
    Verdict::Satisfied(format!("named {}", facts.hostname))
}

fn existing(context: &Context<'_>, _: &Observed) -> Verdict {
    if context.settings.backend == Backend::Kind {
        return Verdict::Satisfied("kind may run beside another cluster".to_owned());
    }
    let found = ["k3s", "rke2", "microk8s"];
    let found = found.iter().find(|it| context.facts.programs.contains_key(**it));
    match found {
        Some(name) => failed(
            format!("{name} is installed: another Kubernetes owns this host"),
            "remove it, or use gantry_backend: kind, or gantry_backend: existing",
        ),
        None => Verdict::Satisfied("no other Kubernetes".to_owned()),
    }
}
