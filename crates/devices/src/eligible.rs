//! Whether a device is a candidate, by itself.

use gantry_api::devices::{
    AccessMode, Taint, TaintEffect, Toleration, TolerationEffect, TolerationOperator,
};

use crate::capacity::bears;
use crate::parts::{self, Scarcity};
use crate::prepare::{Ask, Prepared};
use crate::problem::{Device, Inventory, Pool, Reason, Signature, Verdict};

/// What driver, type and constraints say.
pub(crate) fn judged(
    prepared: &Prepared<'_>,
    ask: &Ask<'_>,
    signature: Signature,
) -> Result<(), Reason> {
    match prepared.request.verdict(ask.source.selector, signature) {
        Verdict::Met => Ok(()),
        Verdict::Refused(refusal) => Err(Reason::Refused(refusal.clone())),
    }
}

/// Whether a listed device is a candidate; why not, if it is none. The reason is only written down
/// if someone wants to read it.
pub(crate) fn eligible(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    pool: &Pool,
    device: &Device,
    ask: &Ask<'_>,
) -> Result<(), Reason> {
    judged(prepared, ask, device.signature)?;
    if let Some(fault) = &pool.fault {
        return Err(Reason::Invalid(fault.clone()));
    }
    if let Some(key) = untolerated(device, &ask.source.tolerations) {
        return Err(Reason::Tainted { key: key.to_owned() });
    }
    published(device, ask)?;
    if ask.source.admin {
        return Ok(());
    }
    if !bears(&device.sharing, mode(device, ask)) {
        return Err(match ask.access.first() {
            Some((name, _)) => {
                Reason::Insufficient { name: (*name).to_owned(), device: device.name.clone() }
            }
            None => Reason::NoneAvailable,
        });
    }
    for want in ask.wants.iter().filter(|_| ask.each) {
        if parts::scarcity(&device.entries, want) == Scarcity::Short {
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

/// How a device is held, after it had its say.
pub(crate) fn mode(device: &Device, ask: &Ask<'_>) -> AccessMode {
    device.sharing.upgrade(ask.mode)
}

fn published(device: &Device, ask: &Ask<'_>) -> Result<(), Reason> {
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
            Some(name) if device.entries.iter().any(|entry| entry.name == *name) => {
                return Err(mismatch(text));
            }
            Some(_) | None => return Err(missing(text)),
        }
    }
    for want in &ask.wants {
        let Some(name) = want.name else { return Err(missing(want.text)) };
        let mut entries = device.entries.iter().filter(|entry| entry.name == name).peekable();
        if entries.peek().is_none() {
            let access = device.access == Some(name);
            return Err(if access { mismatch(want.text) } else { missing(want.text) });
        }
        if !entries.all(|entry| want.fits(entry.grain)) {
            return Err(mismatch(want.text));
        }
    }
    Ok(())
}

/// The key of the first taint that keeps the device from being given away.
fn untolerated<'a>(device: &'a Device, tolerations: &[Toleration]) -> Option<&'a str> {
    let kept = device.taints.iter().find(|taint| !tolerates(tolerations, taint));
    kept.map(|taint| taint.key.as_str())
}

/// Whether one of these tolerations puts up with a taint. One that only informs needs none.
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
