//! Kernel modules, settings and swap.

use std::borrow::Cow;

use super::{built_in, makes_cluster};
use crate::action::Action;
use crate::content::Content;
use crate::state::{Observed, State, Want};
use crate::step::{Behavior, Change, Context, Stage, Step, Verdict};

const MODULES_FILE: &str = "/etc/modules-load.d/90-gantry.conf";
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-gantry.conf";
const FSTAB: &str = "/etc/fstab";
const MODULES: [&str; 2] = ["overlay", "br_netfilter"];

/// Settings that a node needs; the last four are those that a kubelet sets by itself.
const SETTINGS: [(&str, &str); 7] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
];

pub(super) fn steps() -> Vec<Step> {
    vec![
        Step {
            about: Cow::Borrowed("Loads overlay and br_netfilter, now and at boot."),
            owns: Cow::Borrowed(MODULES_FILE),
            ..built_in(
                "kernel.modules",
                Stage::AllHosts,
                &["kernel"],
                Behavior::BuiltIn { when: makes_cluster, wants: modules_wants, plan: modules_plan },
            )
        },
        Step {
            about: Cow::Borrowed("Sets what a node needs, now and at boot."),
            owns: Cow::Borrowed(SYSCTL_FILE),
            ..built_in(
                "kernel.sysctl",
                Stage::AllHosts,
                &["kernel"],
                Behavior::BuiltIn { when: makes_cluster, wants: sysctl_wants, plan: sysctl_plan },
            )
        },
        Step {
            about: Cow::Borrowed("Reports swap, or turns it off, as gantry_swap says."),
            owns: Cow::Borrowed("lines of swap in /etc/fstab"),
            ..built_in(
                "kernel.swap",
                Stage::AllHosts,
                &["kernel"],
                Behavior::BuiltIn { when: makes_cluster, wants: swap_wants, plan: swap_plan },
            )
        },
    ]
}

fn path(name: &str) -> Want {
    Want::Path(name.to_owned())
}

/// Whether a file has this content and these permissions.
pub(super) fn has_file(observed: &Observed, name: &str, content: &Content, mode: u32) -> bool {
    let wanted = content.digest();
    matches!(observed.get(&path(name)),
        State::File { digest, mode: current, owner: _ } if *digest == wanted && *current == mode)
}

fn modules_wants(_: &Context<'_>) -> Vec<Want> {
    let modules = MODULES.iter().map(|name| Want::Module((*name).to_owned()));
    std::iter::once(path(MODULES_FILE)).chain(modules).collect()
}

fn modules_plan(_: &Context<'_>, observed: &Observed) -> Verdict {
    let state = |name: &str| observed.get(&Want::Module(name.to_owned()));
    let there: Vec<&str> =
        MODULES.into_iter().filter(|name| *state(name) != State::Absent).collect();
    let lines = there.iter().map(|name| format!("{name}\n"));
    let content = Content::public(format!("# Written by gantry.\n{}", lines.collect::<String>()));
    let mut changes = Vec::new();
    if !has_file(observed, MODULES_FILE, &content, 0o644) {
        changes.push(Change::file(MODULES_FILE, 0o644, content));
    }
    let to_load = there.iter().filter(|name| *state(name) == State::Loadable);
    changes.extend(to_load.map(|name| Change::of(Action::Module { name: (*name).to_owned() })));
    if changes.is_empty() {
        return Verdict::Satisfied(format!("loaded: {}", there.join(", ")));
    }
    Verdict::Change(changes)
}

fn sysctl_wants(_: &Context<'_>) -> Vec<Want> {
    let settings = SETTINGS.iter().map(|(key, _)| Want::Sysctl((*key).to_owned()));
    std::iter::once(path(SYSCTL_FILE)).chain(settings).collect()
}

fn sysctl_plan(_: &Context<'_>, observed: &Observed) -> Verdict {
    // A setting that is not there is written to the file: its module may be loaded later.
    let lines = SETTINGS.iter().map(|(key, value)| format!("-{key} = {value}\n"));
    let content = Content::public(format!("# Written by gantry.\n{}", lines.collect::<String>()));
    let mut changes = Vec::new();
    if !has_file(observed, SYSCTL_FILE, &content, 0o644) {
        changes.push(Change::file(SYSCTL_FILE, 0o644, content));
    }
    for (key, value) in SETTINGS {
        let differs = match observed.get(&Want::Sysctl(key.to_owned())) {
            State::Value { value: current } => current != value,
            _ => false,
        };
        if differs {
            let (key, value) = (key.to_owned(), value.to_owned());
            changes.push(Change::of(Action::Sysctl { key, value }));
        }
    }
    if changes.is_empty() {
        return Verdict::Satisfied("settings are as they have to be".to_owned());
    }
    Verdict::Change(changes)
}

fn swap_wants(context: &Context<'_>) -> Vec<Want> {
    if context.settings.text("gantry_swap", "report") != "off" {
        return vec![Want::Swap];
    }
    vec![Want::Swap, path(FSTAB), Want::Text(FSTAB.to_owned())]
}

fn swap_plan(context: &Context<'_>, observed: &Observed) -> Verdict {
    let is_on = *observed.get(&Want::Swap) != State::Absent;
    match context.settings.text("gantry_swap", "report") {
        "keep" => return Verdict::Satisfied("gantry_swap: keep; failSwapOn is false".to_owned()),
        "off" => {}
        _ if is_on => {
            return Verdict::Satisfied(
                "swap is on: the kubelet does not start with it; set gantry_swap: off or keep"
                    .to_owned(),
            );
        }
        _ => return Verdict::Satisfied("swap is off".to_owned()),
    }
    let mut changes = Vec::new();
    if let (State::Text { text }, State::File { mode, .. }) =
        (observed.get(&Want::Text(FSTAB.to_owned())), observed.get(&path(FSTAB)))
    {
        let without = without_swap(text);
        if without != *text {
            changes.push(Change::file(FSTAB, *mode, Content::public(without)));
        }
    }
    if is_on {
        changes.push(Change::of(Action::Swap { on: false }));
    }
    if changes.is_empty() {
        return Verdict::Satisfied("swap is off".to_owned());
    }
    Verdict::Change(changes)
}

/// The table with the lines of swap as comments.
fn without_swap(text: &str) -> String {
    let line = |line: &str| {
        let is_swap =
            !line.trim_start().starts_with('#') && line.split_whitespace().nth(2) == Some("swap");
        if is_swap { format!("# gantry: {line}") } else { line.to_owned() }
    };
    text.split_inclusive('\n').map(line).collect()
}
