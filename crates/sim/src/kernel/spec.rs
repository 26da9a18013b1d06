//! What the annotations of a node say about its kernel. Pure.

use gantry_kmod::verify::Enforcement;
use gantry_kmod::{Certificate, KernelRelease};
use gantry_kube_controllers::deterministic_random;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Kernel, KernelState};
use crate::kubelet::annotation;
use crate::view::Node;

/// The kernel version of nodes that name none.
const DEFAULT_RELEASE: &str = "6.8.0-gantry";

/// How long a simulated node takes to reboot. Times of containers have whole seconds: at least one
/// of them lies between the last run before the reboot and the boot.
const REBOOT_DURATION: SignedDuration = SignedDuration::from_secs(2);

/// The most certificates that a kernel trusts.
const MAX_TRUSTED_KEYS: usize = 32;

/// The kernel of a node, as its annotations and its status describe it.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// The release.
    pub release: String,
    /// The boot.
    pub boot_id: String,
    /// When it was booted.
    pub booted_at: Timestamp,
    /// How strict it is about signatures of modules.
    pub enforcement: Enforcement,
    /// The certificates it trusts.
    pub trusted: Vec<Certificate>,
    /// What this boot had loaded when it was last written.
    pub state: Option<KernelState>,
}

impl KernelSpec {
    /// Reads the kernel of a node.
    ///
    /// # Errors
    /// What is wrong with an annotation, and what to write instead.
    pub fn of(node: &Node) -> Result<Self, String> {
        let annotations = &node.metadata.annotations;
        let enforcement = annotations.get(annotation::MODULE_SIGNATURES);
        let enforcement = enforcement.map_or(Ok(Enforcement::Off), |text| {
            parse_enforcement(text).ok_or_else(|| {
                let name = annotation::MODULE_SIGNATURES;
                format!("annotation {name} is {text:?}: write off, enforce or lockdown")
            })
        })?;
        let trusted = annotations.get(annotation::TRUSTED_KEYS);
        let trusted = trusted.map_or(Ok(Vec::new()), |text| {
            parse_certificates(text).map_err(|why| {
                let name = annotation::TRUSTED_KEYS;
                format!("annotation {name}: {why}; write certificates in PEM")
            })
        })?;
        let boot_id = boot_id(node);
        let state = annotations.get(annotation::LOADED_MODULES);
        let state = state.map(|text| serde_json::from_str::<KernelState>(text)).transpose();
        let state = state.map_err(|error| {
            let name = annotation::LOADED_MODULES;
            format!("annotation {name} cannot be read ({error}): remove it")
        })?;
        Ok(Self {
            release: running_release(node).to_owned(),
            booted_at: boot_time(node).or(node.metadata.creation_timestamp).unwrap_or_default(),
            enforcement,
            trusted,
            state: state.filter(|it| it.boot_id == boot_id),
            boot_id,
        })
    }

    /// Creates the kernel, with what it had loaded.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        let mut kernel = Kernel::new(&self.release, self.booted_at);
        kernel.set_signature_policy(self.enforcement, self.trusted.clone());
        if let Some(state) = &self.state {
            kernel.restore(state);
        }
        kernel
    }
}

/// Reads how strict a kernel is about signatures: `off`, `enforce` or `lockdown`.
#[must_use]
pub fn parse_enforcement(text: &str) -> Option<Enforcement> {
    match text {
        "off" => Some(Enforcement::Off),
        "enforce" => Some(Enforcement::Enforce),
        "lockdown" => Some(Enforcement::Lockdown),
        _ => None,
    }
}

/// Writes how strict a kernel is about signatures.
pub(crate) fn enforcement_text(enforcement: Enforcement) -> &'static str {
    match enforcement {
        Enforcement::Off => "off",
        Enforcement::Enforce => "enforce",
        Enforcement::Lockdown => "lockdown",
    }
}

/// Reads certificates in PEM.
///
/// # Errors
/// There is none, there are too many, or one cannot be read.
pub fn parse_certificates(text: &str) -> Result<Vec<Certificate>, String> {
    const BEGIN: &str = "-----BEGIN ";
    let blocks: Vec<&str> = text.split(BEGIN).skip(1).collect();
    if blocks.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    if blocks.len() > MAX_TRUSTED_KEYS {
        return Err(format!(
            "it has {} certificates, and {MAX_TRUSTED_KEYS} is the limit",
            blocks.len()
        ));
    }
    let parse = |block: &str| Certificate::parse(format!("{BEGIN}{block}").as_bytes());
    blocks.into_iter().map(parse).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The last reboot of a node with another kernel, as its annotation has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Boot {
    /// The release.
    pub(crate) kernel: String,
    /// When the reboot began.
    pub(crate) begun_at: Timestamp,
}

impl Boot {
    /// Reads the annotation of a node. An unreadable one counts as absent: it is written again.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        serde_json::from_str(node.metadata.annotations.get(annotation::BOOT)?).ok()
    }

    /// Returns when the kernel runs.
    pub(crate) fn time(&self) -> Timestamp {
        self.begun_at.checked_add(REBOOT_DURATION).unwrap_or(Timestamp::MAX)
    }
}

/// Returns the release that a node is to run.
pub(crate) fn desired_release(node: &Node) -> &str {
    let running = node.status.node_info.kernel_version.as_str();
    let otherwise = if running.is_empty() { DEFAULT_RELEASE } else { running };
    node.metadata.annotations.get(annotation::KERNEL).map_or(otherwise, String::as_str)
}

fn running_release(node: &Node) -> &str {
    match node.status.node_info.kernel_version.as_str() {
        "" => desired_release(node),
        running => running,
    }
}

/// Returns whether a node reboots with another kernel: nothing runs on it.
#[must_use]
pub fn is_rebooting(node: &Node) -> bool {
    running_release(node) != desired_release(node)
}

/// Returns when the running kernel of a node was booted, in whole seconds; `None` if it never was
/// rebooted. Containers that were started before are gone.
///
/// Times of containers have whole seconds as well: one that is started right after the boot was
/// not started before it.
#[must_use]
pub fn boot_time(node: &Node) -> Option<Timestamp> {
    let boot = Boot::of(node).filter(|it| it.kernel == running_release(node));
    boot.and_then(|it| Timestamp::from_second(it.time().as_second()).ok())
}

/// Returns the ID of the current boot of a node.
#[must_use]
pub fn boot_id(node: &Node) -> String {
    match node.status.node_info.boot_id.as_str() {
        "" => new_boot_id(node),
        known => known.to_owned(),
    }
}

/// Returns the ID of the boot of the release that a node is to run.
pub(crate) fn new_boot_id(node: &Node) -> String {
    let (uid, release) = (node.metadata.uid.as_str(), desired_release(node));
    match Boot::of(node).filter(|it| it.kernel == release) {
        Some(boot) => {
            let begun = boot.begun_at.to_string();
            deterministic_random::uuid(&[uid, "boot", release, &begun])
        }
        None => deterministic_random::uuid(&[uid, "boot", release]),
    }
}

/// Checks a release that a user wrote.
///
/// # Errors
/// What is wrong with it.
pub fn check_release(text: &str) -> Result<(), String> {
    text.parse::<KernelRelease>().map(|_| ()).map_err(|error| error.to_string())
}
