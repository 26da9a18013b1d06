//! Hypothetical changes: nodes that are added or removed, devices that are used or tainted.

use std::fmt;
use std::str::FromStr;

use gantry_api::devices::{
    AccessMode, ClaimReference, DevicePool, HoldState, LedgerEntry, PoolStatus, Taint, TaintEffect,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Objects;
use crate::lower::NodeLabels;

/// A hypothetical change.
///
/// ```
/// use gantry_devices::schedule::WhatIfChange;
///
/// let change: WhatIfChange = "tainted=node-a-gpus/gpu-0:NoSchedule".parse()?;
/// assert_eq!(change.to_string(), "tainted=node-a-gpus/gpu-0:NoSchedule");
/// assert!("used=everything".parse::<WhatIfChange>().is_err());
/// # Ok::<(), gantry_devices::schedule::ParseWhatIfError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIfChange {
    /// One more node exists.
    AddNode {
        /// Its name.
        name: String,
        /// The node whose labels it has, and copies of whose pools, with nothing held.
        like: Option<String>,
    },
    /// A node is removed, with its pools.
    RemoveNode {
        /// Its name.
        name: String,
    },
    /// Devices are in use.
    Used(DevicePattern),
    /// Devices are tainted.
    Tainted {
        /// The devices.
        devices: DevicePattern,
        /// The effect of the taint.
        effect: TaintEffect,
    },
}

/// Devices of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePattern {
    /// The node of the pool, if its name is not enough.
    node: Option<String>,
    pool: String,
    /// The device; `*` for all of them, and a number if the pool only counts.
    device: String,
}

impl fmt::Display for DevicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, pool, device } = self;
        match node {
            Some(node) => write!(f, "{node}/{pool}/{device}"),
            None => write!(f, "{pool}/{device}"),
        }
    }
}

impl fmt::Display for WhatIfChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddNode { name, like: None } => write!(f, "add-node={name}"),
            Self::AddNode { name, like: Some(like) } => write!(f, "add-node={name}:like={like}"),
            Self::RemoveNode { name } => write!(f, "remove-node={name}"),
            Self::Used(devices) => write!(f, "used={devices}"),
            Self::Tainted { devices, effect } => {
                write!(f, "tainted={devices}:{}", effect_name(*effect))
            }
        }
    }
}

const fn effect_name(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::NoExecute => "NoExecute",
        TaintEffect::None => "None",
    }
}

/// Why a text is not a valid change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read \"{text}\": {problem}")]
pub struct ParseWhatIfError {
    text: String,
    problem: String,
}

impl FromStr for WhatIfChange {
    type Err = ParseWhatIfError;

    fn from_str(text: &str) -> Result<Self, ParseWhatIfError> {
        parse(text).map_err(|problem| ParseWhatIfError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<WhatIfChange, String> {
    const FORMS: &str = "write add-node=NAME[:like=NODE], remove-node=NAME, used=POOL/DEVICE or \
                         tainted=POOL/DEVICE:EFFECT";
    let (verb, rest) = text.split_once('=').ok_or(FORMS)?;
    if rest.is_empty() {
        return Err(FORMS.to_owned());
    }
    match verb {
        "add-node" => match rest.split_once(':') {
            None => Ok(WhatIfChange::AddNode { name: rest.to_owned(), like: None }),
            Some((name, like)) => {
                let like = like.strip_prefix("like=").filter(|like| !like.is_empty());
                let like = like.ok_or("after the colon write like=NODE")?;
                Ok(WhatIfChange::AddNode { name: name.to_owned(), like: Some(like.to_owned()) })
            }
        },
        "remove-node" => Ok(WhatIfChange::RemoveNode { name: rest.to_owned() }),
        "used" => devices(rest).map(WhatIfChange::Used),
        "tainted" => {
            let (named, effect) =
                rest.rsplit_once(':').ok_or("write the effect after a colon, as in :NoSchedule")?;
            let effects = [TaintEffect::NoSchedule, TaintEffect::NoExecute, TaintEffect::None];
            let known = effects.into_iter().find(|known| effect_name(*known) == effect);
            let effect = known.ok_or_else(|| {
                format!("\"{effect}\" is not a taint effect; write NoSchedule, NoExecute or None")
            })?;
            Ok(WhatIfChange::Tainted { devices: devices(named)?, effect })
        }
        _ => Err(FORMS.to_owned()),
    }
}

fn devices(text: &str) -> Result<DevicePattern, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (node, pool, device) = match parts.as_slice() {
        [pool, device] => (None, *pool, *device),
        [node, pool, device] => (Some((*node).to_owned()), *pool, *device),
        _ => return Err("write POOL/DEVICE, or NODE/POOL/DEVICE".to_owned()),
    };
    if pool.is_empty() || device.is_empty() {
        return Err("write POOL/DEVICE, or NODE/POOL/DEVICE".to_owned());
    }
    Ok(DevicePattern { node, pool: pool.to_owned(), device: device.to_owned() })
}

/// Why a change cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot apply {change}: {problem}")]
pub struct WhatIfError {
    change: String,
    problem: String,
}

impl WhatIfChange {
    /// Applies the change, in these objects only.
    ///
    /// # Errors
    /// What it is about does not exist, or its name is ambiguous.
    pub fn apply(&self, objects: &mut Objects) -> Result<(), WhatIfError> {
        let done = match self {
            Self::AddNode { name, like } => add_node(objects, name, like.as_deref()),
            Self::RemoveNode { name } => match objects.remove_node(name) {
                true => Ok(()),
                false => Err(format!("there is no node {name}")),
            },
            Self::Used(devices) => {
                devices.pool(objects).and_then(|pool| mark_used(pool, &devices.device))
            }
            Self::Tainted { devices, effect } => {
                devices.pool(objects).and_then(|pool| add_taint(pool, &devices.device, *effect))
            }
        };
        done.map_err(|problem| WhatIfError { change: self.to_string(), problem })
    }
}

fn add_node(objects: &mut Objects, name: &str, like: Option<&str>) -> Result<(), String> {
    let nodes = objects.all_nodes();
    if nodes.iter().any(|node| node.name == name) {
        return Err(format!("there is a node {name}"));
    }
    let Some(like) = like else {
        objects.nodes.push(NodeLabels { name: name.to_owned(), ..NodeLabels::default() });
        return Ok(());
    };
    let Some(model) = nodes.iter().find(|node| node.name == like) else {
        return Err(format!("there is no node {like}"));
    };
    let mut labels = model.labels.clone();
    for value in labels.values_mut().filter(|value| *value == like) {
        name.clone_into(value);
    }
    objects.nodes.push(NodeLabels { name: name.to_owned(), labels });
    let of_model = |pool: &&DevicePool| pool.spec.node_name.as_deref() == Some(like);
    let copies: Vec<DevicePool> = objects
        .pools
        .iter()
        .filter(of_model)
        .map(|pool| {
            let mut copy = pool.clone();
            copy.status = None;
            copy.spec.node_name = Some(name.to_owned());
            let old = pool.metadata.name.as_deref().unwrap_or_default();
            copy.metadata.name = Some(match old.contains(like) {
                true => old.replace(like, name),
                false => format!("{name}-{old}"),
            });
            copy
        })
        .collect();
    objects.pools.extend(copies);
    Ok(())
}

impl DevicePattern {
    /// Returns the pool, which must be unambiguous.
    fn pool<'a>(&self, objects: &'a mut Objects) -> Result<&'a mut DevicePool, String> {
        let Self { node, pool: name, .. } = self;
        let meant = |pool: &&mut DevicePool| {
            pool.metadata.name.as_ref() == Some(name)
                && node.as_ref().is_none_or(|node| pool.spec.node_name.as_ref() == Some(node))
        };
        let mut found: Vec<&mut DevicePool> = objects.pools.iter_mut().filter(meant).collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(match node {
                Some(node) => format!("node {node} has no pool {name}"),
                None => format!("there is no pool {name}"),
            }),
            _ => {
                Err(format!("several nodes have a pool {name}; write NODE/{name}/{}", self.device))
            }
        }
    }
}

/// The name of a hypothetical taint or claim.
const WHAT_IF_NAME: &str = "what-if";

/// Adds ledger entries to a pool that leave nothing for other claims.
fn mark_used(pool: &mut DevicePool, device: &str) -> Result<(), String> {
    let named = match_devices(pool, device)?;
    let entry = |device_name, count| LedgerEntry {
        claim_ref: ClaimReference { name: WHAT_IF_NAME.to_owned(), ..ClaimReference::default() },
        term: WHAT_IF_NAME.to_owned(),
        device_name,
        count,
        access_mode: AccessMode::ReadWriteExclusive,
        allocations: Vec::new(),
        state: HoldState::Bound,
        since: Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
    };
    let entries: Vec<LedgerEntry> = match named {
        MatchedDevices::Listed(names) => {
            names.into_iter().map(|name| entry(Some(name), None)).collect()
        }
        MatchedDevices::Counted(count) => vec![entry(None, Some(count))],
    };
    pool.status.get_or_insert_with(PoolStatus::default).allocations.extend(entries);
    Ok(())
}

fn add_taint(pool: &mut DevicePool, device: &str, effect: TaintEffect) -> Result<(), String> {
    let names = match match_devices(pool, device)? {
        MatchedDevices::Listed(names) => names,
        MatchedDevices::Counted(_) => {
            return Err("the pool only counts its devices, and they have no taints".to_owned());
        }
    };
    for device in pool.spec.devices.iter_mut().filter(|device| names.contains(&device.name)) {
        device.taints.push(Taint { key: WHAT_IF_NAME.to_owned(), value: None, effect });
    }
    Ok(())
}

enum MatchedDevices {
    Listed(Vec<String>),
    Counted(u32),
}

/// Returns the selected devices of a pool.
fn match_devices(pool: &DevicePool, device: &str) -> Result<MatchedDevices, String> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let spec = &pool.spec;
    if spec.devices.is_empty() {
        let all = spec.device_count.unwrap_or(0);
        return match (device, device.parse()) {
            ("*", _) => Ok(MatchedDevices::Counted(all)),
            (_, Ok(count)) if count > 0 && count <= all => Ok(MatchedDevices::Counted(count)),
            _ => Err(format!(
                "pool {name} counts {all} devices without names; write how many of them, or *"
            )),
        };
    }
    let names: Vec<String> = spec
        .devices
        .iter()
        .filter(|listed| device == "*" || listed.name == device)
        .map(|listed| listed.name.clone())
        .collect();
    match names.is_empty() {
        true => Err(format!("pool {name} has no device {device}")),
        false => Ok(MatchedDevices::Listed(names)),
    }
}
