//! The container runtime: its configuration, and its unit.

use std::borrow::Cow;
use std::fmt::Write as _;

use gantry_inventory::Backend;

use super::built_in;
use super::kernel::has_file;
use super::packages::containerd_package;
use crate::action::Action;
use crate::content::{Content, Digest};
use crate::facts::{CgroupDriver, Version};
use crate::state::{Observed, State, Want};
use crate::step::{Behavior, Change, Context, Stage, Step, Verdict};

const CONFIG: &str = "/etc/containerd/config.toml";
const PROXY: &str = "/etc/systemd/system/containerd.service.d/90-gantry-proxy.conf";
const UNIT: &str = "containerd.service";
/// The image of pods, as bundles name it.
const PAUSE_IMAGE: &str = "gantry.local/k8s/pause:3.10.1";
/// Older versions do not speak CRI v1.
const OLDEST: Version = Version(1, 6, 0);

pub(super) fn steps() -> Vec<Step> {
    vec![
        Step {
            about: Cow::Borrowed("Configures containerd for the kubelet."),
            owns: Cow::Borrowed("/etc/containerd/config.toml, /etc/containerd/certs.d"),
            ..built_in(
                "runtime.config",
                Stage::AllHosts,
                &["runtime"],
                Behavior::BuiltIn { when, wants, plan: plan_config },
            )
        },
        Step {
            about: Cow::Borrowed("Runs containerd, with the configuration that it has."),
            owns: Cow::Borrowed(UNIT),
            ..built_in(
                "runtime.unit",
                Stage::AllHosts,
                &["runtime"],
                Behavior::BuiltIn { when, wants, plan: plan_unit },
            )
        },
    ]
}

fn when(context: &Context<'_>) -> Result<(), String> {
    match context.settings.backend {
        Backend::Kind => Err("gantry_backend: the node of kind has its own runtime".to_owned()),
        Backend::K3s => Err("gantry_backend: k3s has its own runtime".to_owned()),
        Backend::Kubeadm | Backend::Bare | Backend::Existing | Backend::Embedded => {
            super::makes_cluster(context)
        }
    }
}

fn package(context: &Context<'_>) -> Want {
    Want::Package(containerd_package(context.facts.distribution.family).to_owned())
}

fn wants(context: &Context<'_>) -> Vec<Want> {
    let mut wants = vec![package(context), Want::Unit(UNIT.to_owned())];
    wants.extend([CONFIG, PROXY].map(|it| Want::Path(it.to_owned())));
    wants.extend(registries(context).into_iter().map(|(path, _)| Want::Path(path)));
    wants
}

/// The version of containerd: that of its package, else of the program.
fn version(context: &Context<'_>, observed: &Observed) -> Option<Version> {
    match observed.get(&package(context)) {
        State::Package { version } => {
            // An epoch is before the version: `5:2.0.1-1`.
            let version = version.rsplit_once(':').map_or(version.as_str(), |(_, it)| it);
            Version::find(version)
        }
        _ => context.facts.containerd,
    }
}

/// The files that containerd reads, with their contents.
fn files(context: &Context<'_>, version: Version) -> Vec<(String, Content)> {
    let mut files = vec![(CONFIG.to_owned(), Content::public(config(context, version)))];
    files.extend(registries(context));
    files.extend(proxy(context).map(|it| (PROXY.to_owned(), it)));
    files
}

fn config(context: &Context<'_>, version: Version) -> String {
    let facts = context.facts;
    let driver = match context.settings.text("gantry_cgroup_driver", "auto") {
        "systemd" => CgroupDriver::Systemd,
        "cgroupfs" => CgroupDriver::Cgroupfs,
        _ => facts.cgroup.driver(&facts.init),
    };
    let is_systemd = driver == CgroupDriver::Systemd;
    let restricts = facts.restricts_oom_score();
    let no_apparmor = !facts.has_apparmor;
    if version >= Version(2, 0, 0) {
        return format!(
            "# Written by gantry.
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = \"{PAUSE_IMAGE}\"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = \"/etc/containerd/certs.d\"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = {restricts}
disable_apparmor = {no_apparmor}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = {is_systemd}
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [\"/usr/lib/cni\"]
conf_dir = \"/etc/cni/net.d\"
"
        );
    }
    format!(
        "# Written by gantry.
version = 2
[plugins.\"io.containerd.grpc.v1.cri\"]
sandbox_image = \"{PAUSE_IMAGE}\"
restrict_oom_score_adj = {restricts}
disable_apparmor = {no_apparmor}
[plugins.\"io.containerd.grpc.v1.cri\".registry]
config_path = \"/etc/containerd/certs.d\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
SystemdCgroup = {is_systemd}
[plugins.\"io.containerd.grpc.v1.cri\".cni]
bin_dir = \"/usr/lib/cni\"
conf_dir = \"/etc/cni/net.d\"
"
    )
}

/// The mirrors of each registry, where containerd looks for them.
fn registries(context: &Context<'_>) -> Vec<(String, Content)> {
    let all = context.settings.variables.get("gantry_registries");
    let Some(all) = all.and_then(serde_json::Value::as_object) else { return Vec::new() };
    all.iter()
        .map(|(host, settings)| {
            let mut text = "# Written by gantry.\n".to_owned();
            let mirrors = settings.get("mirrors").and_then(serde_json::Value::as_array);
            for mirror in mirrors.into_iter().flatten().filter_map(serde_json::Value::as_str) {
                let quoted = serde_json::Value::from(mirror);
                let _ = writeln!(text, "[host.{quoted}]\ncapabilities = [\"pull\", \"resolve\"]");
                if let Some(ca) = settings.get("ca").filter(|ca| ca.is_string()) {
                    let _ = writeln!(text, "ca = {ca}");
                }
            }
            (format!("/etc/containerd/certs.d/{host}/hosts.toml"), Content::public(text))
        })
        .collect()
}

fn proxy(context: &Context<'_>) -> Option<Content> {
    let settings = context.settings;
    let http = settings.text("gantry_http_proxy", "");
    let https = settings.text("gantry_https_proxy", "");
    if http.is_empty() && https.is_empty() {
        return None;
    }
    let pods = settings.text("gantry_pod_cidr", "10.244.0.0/16");
    let services = settings.text("gantry_service_cidr", "10.96.0.0/16");
    let mut all = vec!["localhost", "127.0.0.1", pods, services, ".svc", ".cluster.local"];
    let without = settings.text("gantry_no_proxy", "");
    all.extend(without.split(',').filter(|it| !it.is_empty()));
    let all = all.join(",");
    let mut text = "# Written by gantry.\n[Service]\n".to_owned();
    for (name, value) in [("HTTP_PROXY", http), ("HTTPS_PROXY", https), ("NO_PROXY", &all)] {
        if !value.is_empty() {
            let _ = writeln!(text, "Environment=\"{name}={value}\"");
        }
    }
    // A proxy's address may have a password in it.
    let is_secret = http.contains('@') || https.contains('@');
    Some(if is_secret { Content::secret(text) } else { Content::public(text) })
}

fn unusable(version: Version) -> Option<Verdict> {
    (version < OLDEST).then(|| Verdict::Failed {
        message: format!("containerd {version} does not speak CRI v1"),
        remedy: format!("install containerd {OLDEST} or newer"),
    })
}

fn plan_config(context: &Context<'_>, observed: &Observed) -> Verdict {
    let Some(version) = version(context, observed) else {
        return Verdict::Later("depends on the version of containerd, after packages".to_owned());
    };
    if let Some(verdict) = unusable(version) {
        return verdict;
    }
    let mode = |content: &Content| if content.is_secret() { 0o600 } else { 0o644 };
    let changes: Vec<Change> = files(context, version)
        .into_iter()
        .filter(|(path, content)| !has_file(observed, path, content, mode(content)))
        .map(|(path, content)| Change::file(&path, mode(&content), content))
        .collect();
    if changes.is_empty() {
        return Verdict::Satisfied(format!("configured for containerd {version}"));
    }
    Verdict::Change(changes)
}

fn plan_unit(context: &Context<'_>, observed: &Observed) -> Verdict {
    let Some(version) = version(context, observed) else {
        return Verdict::Later("depends on the version of containerd, after packages".to_owned());
    };
    let unit = observed.get(&Want::Unit(UNIT.to_owned()));
    if *unit == State::Absent {
        return Verdict::Later(format!("there is no {UNIT} yet"));
    }
    let files = files(context, version);
    let all: Vec<u8> = files.iter().flat_map(|(_, it)| it.bytes().to_vec()).collect();
    let wanted = Digest::of(&all);
    match unit {
        State::Unit { enabled: true, active: true, config: Some(config) } if *config == wanted => {
            Verdict::Satisfied("runs with its configuration".to_owned())
        }
        _ => Verdict::Change(vec![Change::of(Action::Unit {
            name: UNIT.to_owned(),
            enabled: true,
            active: true,
            config: Some(wanted),
        })]),
    }
}
