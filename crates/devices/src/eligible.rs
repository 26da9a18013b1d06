//! Decides whether a device is a candidate, by itself.

use gantry_api::devices::{
    AccessMode, Taint, TaintEffect, Toleration, TolerationEffect, TolerationOperator,
};

use crate::capacity::allows_holder;
use crate::capacity_split::{self, Sufficiency};
use crate::prepare::{Prepared, PreparedAlternative};
use crate::problem::{Device, Inventory, Pool, Reason, Signature, Verdict};

/// Returns the verdict of driver, type and constraints.
pub(crate) fn check_selector(
    prepared: &Prepared<'_>,
    ask: &PreparedAlternative<'_>,
    signature: Signature,
) -> Result<(), Reason> {
    match prepared.request.verdict(ask.source.selector, signature) {
        Verdict::Met => Ok(()),
        Verdict::Refused(refusal) => Err(Reason::Refused(refusal.clone())),
    }
}

/// Checks whether a listed device is a candidate, and why not. The reason is only formatted if it
/// is requested.
pub(crate) fn check_eligible(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    pool: &Pool,
    device: &Device,
    ask: &PreparedAlternative<'_>,
) -> Result<(), Reason> {
    check_selector(prepared, ask, device.signature)?;
    if let Some(fault) = &pool.invalid_reason {
        return Err(Reason::Invalid(fault.clone()));
    }
    if let Some(key) = untolerated(device, &ask.source.tolerations) {
        return Err(Reason::Tainted { key: key.to_owned() });
    }
    check_published(device, ask)?;
    if ask.source.admin {
        return Ok(());
    }
    if !allows_holder(&device.sharing, effective_mode(device, ask)) {
        return Err(match ask.access.first() {
            Some((name, _)) => {
                Reason::Insufficient { name: (*name).to_owned(), device: device.name.clone() }
            }
            None => Reason::NoneAvailable,
        });
    }
    for want in ask.amounts.iter().filter(|_| ask.each) {
        if capacity_split::sufficiency(&device.capacities, want) == Sufficiency::Short {
            let (name, device) = (want.text.to_owned(), device.name.clone());
            return Err(Reason::Insufficient { name, device });
        }
    }
    for charge in device.charges.iter().filter(|_| device.holds == 0) {
        let resource = pool.resources.get(charge.resource);
        if resource.is_none_or(|resource| resource.used + charge.amount > resource.capacity) {
            let name = resource.map_or("", |resource| inventory.symbols().name(resource.name));
            return Err(Reason::PoolExhausted { name: name.to_owned() });
        }
    }
    Ok(())
}

/// Returns how a device is held, after the device has upgraded the mode.
pub(crate) fn effective_mode(device: &Device, ask: &PreparedAlternative<'_>) -> AccessMode {
    device.sharing.upgrade(ask.mode)
}

fn check_published(device: &Device, ask: &PreparedAlternative<'_>) -> Result<(), Reason> {
    let missing =
        |name: &str| Reason::NoCapacity { name: name.to_owned(), device: device.name.clone() };
    let mismatch = |name: &str| Reason::Mismatch {
        name: name.to_owned(),
        device: device.name.clone(),
        problem: crate::capacity::CapacityError::Mismatch.to_string(),
    };
    for (text, name) in &ask.access {
        match name {
            Some(name) if device.access == Some(*name) => {}
            Some(name) if device.capacities.iter().any(|entry| entry.name == *name) => {
                return Err(mismatch(text));
            }
            Some(_) | None => return Err(missing(text)),
        }
    }
    for want in &ask.amounts {
        let Some(name) = want.name else { return Err(missing(want.text)) };
        let mut entries = device.capacities.iter().filter(|entry| entry.name == name).peekable();
        if entries.peek().is_none() {
            let access = device.access == Some(name);
            return Err(if access { mismatch(want.text) } else { missing(want.text) });
        }
        if !entries.all(|entry| want.fits(entry.granularity)) {
            return Err(mismatch(want.text));
        }
    }
    Ok(())
}

/// Returns the key of the first taint that keeps the device from being allocated.
fn untolerated<'a>(device: &'a Device, tolerations: &[Toleration]) -> Option<&'a str> {
    let kept = device.taints.iter().find(|taint| !tolerates(tolerations, taint));
    kept.map(|taint| taint.key.as_str())
}

/// Whether one of these tolerations tolerates a taint. A taint that only informs needs none.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => TolerationEffect::NoSchedule,
        TaintEffect::NoExecute => TolerationEffect::NoExecute,
        TaintEffect::None => return true,
    };
    tolerations.iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let value = match toleration.operator {
            TolerationOperator::Exists => key.is_empty() || key == taint.key,
            TolerationOperator::Equal => {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                key == taint.key && text(&toleration.value) == text(&taint.value)
            }
        };
        value && toleration.effect.is_none_or(|tolerated| tolerated == effect)
    })
}
