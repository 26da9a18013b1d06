//! Packages of the distribution.

use std::borrow::Cow;

use gantry_inventory::Backend;

use super::{built_in, makes_cluster};
use crate::action::Action;
use crate::facts::Family;
use crate::state::{Observed, State, Want};
use crate::step::{Behavior, Change, Context, Stage, Step, Verdict};

pub(super) fn steps() -> Vec<Step> {
    vec![Step {
        about: Cow::Borrowed("Installs what a node needs, if it is not there."),
        owns: Cow::Borrowed("the packages that were not there"),
        ..built_in(
            "packages",
            Stage::AllHosts,
            &["packages"],
            Behavior::BuiltIn {
                when: makes_cluster,
                wants: |context| needed(context).into_iter().map(package).collect(),
                plan,
            },
        )
    }]
}

fn package(name: &'static str) -> Want {
    Want::Package(name.to_owned())
}

/// The package that containerd is in.
pub(super) fn containerd_package(family: Family) -> &'static str {
    match family {
        Family::Redhat => "containerd.io",
        Family::Debian | Family::Suse | Family::Arch | Family::Other => "containerd",
    }
}

/// The packages of a family of distributions, by the names that they have there.
fn needed(context: &Context<'_>) -> Vec<&'static str> {
    let family = context.facts.distribution.family;
    let mut names = vec!["curl", "iptables", "nftables", "socat", "ethtool", "ca-certificates"];
    match family {
        Family::Debian => names.extend(["conntrack", "nfs-common"]),
        Family::Redhat => names.extend(["conntrack-tools", "nfs-utils"]),
        Family::Suse => names.extend(["conntrack-tools", "nfs-client"]),
        Family::Arch | Family::Other => return Vec::new(),
    }
    let from_distribution = context.settings.text("gantry_packages", "distro") != "bundle";
    if context.settings.backend == Backend::Kind {
        if !context.facts.programs.contains_key("dockerd") {
            names.push(if family == Family::Debian { "docker.io" } else { "docker-ce" });
        }
    } else if from_distribution {
        names.push(containerd_package(family));
        match family {
            Family::Debian => names.extend(["runc", "containernetworking-plugins"]),
            // `containerd.io` has its own runc.
            Family::Redhat => names.push("containernetworking-plugins"),
            Family::Suse => names.extend(["runc", "cni-plugins"]),
            Family::Arch | Family::Other => {}
        }
    }
    names
}

fn plan(context: &Context<'_>, observed: &Observed) -> Verdict {
    let names = needed(context);
    if names.is_empty() {
        return Verdict::Held(format!(
            "packages of {} are not known; install the list of docs/provision.md, and set \
             gantry_packages: none",
            context.facts.distribution.id
        ));
    }
    let is_missing =
        |name: &&&str| *observed.get(&Want::Package((**name).to_owned())) == State::Absent;
    let missing: Vec<String> =
        names.iter().filter(is_missing).map(|name| (*name).to_owned()).collect();
    if missing.is_empty() {
        return Verdict::Satisfied(format!("satisfied: {}", names.join(", ")));
    }
    if context.settings.text("gantry_packages", "distro") == "none" {
        return Verdict::Failed {
            message: format!("packages are missing: {}", missing.join(", ")),
            remedy: "install them, or set gantry_packages: distro".to_owned(),
        };
    }
    Verdict::Change(vec![Change::of(Action::Packages { names: missing })])
}
