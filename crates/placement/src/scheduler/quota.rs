//! How many devices of a class a namespace may have, and has.

use std::collections::BTreeMap;

use gantry_api::devices::{DeviceAllocation, DeviceClaim};
use gantry_devices::lower::Wanted;
use gantry_pods::view::Namespace;
use gantry_reconcile::{Key, World};

use crate::carrier::Trouble;
use crate::claim::Claim;
use crate::seen::{Quota, Seen};

/// How the name of a limit ends, after the name of the class.
const LIMIT: &str = ".deviceclass.devmgmtproto.k8s.io/devices";
/// The label of namespaces that may look on.
pub(crate) const ADMIN_LABEL: &str = "devmgmtproto.k8s.io/admin-access";

/// What this plan gave, by namespace and class.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    given: BTreeMap<(String, String), u64>,
}

/// Devices by class.
pub(super) type Counts = BTreeMap<String, u64>;

impl Quotas {
    /// Whether a namespace may have so many more devices of each class.
    pub(super) fn check(
        &self,
        world: &World,
        namespace: &str,
        more: &Counts,
    ) -> Result<(), Trouble> {
        let quotas = world.shelf::<Quota>().within(namespace);
        let limits = quotas.iter().flat_map(|it| it.spec.hard.iter().map(move |hard| (it, hard)));
        for (quota, (name, most)) in limits {
            let Some(class) = name.strip_suffix(LIMIT) else { continue };
            let Some(more) = more.get(class).filter(|it| **it > 0) else { continue };
            let given = self.given.get(&(namespace.to_owned(), class.to_owned()));
            let used = used(world, namespace, class) + given.copied().unwrap_or_default();
            let most = u64::try_from(most.value_rounded_up()).unwrap_or_default();
            if used + more > most {
                return Err(Trouble::new(
                    "QuotaExceeded",
                    format!(
                        "quota \"{}\" allows {most} devices of class {class}: {used} are used, {more} more are wanted",
                        quota.metadata.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Counts what a pod of a namespace is given.
    pub(super) fn give(&mut self, namespace: &str, more: &Counts) {
        for (class, more) in more {
            *self.given.entry((namespace.to_owned(), class.clone())).or_default() += more;
        }
    }
}

/// How many devices of a class the claims of a namespace have.
fn used(world: &World, namespace: &str, class: &str) -> u64 {
    let claims = world.shelf::<Seen<DeviceClaim>>().within(namespace);
    let count = |seen: std::sync::Arc<Seen<DeviceClaim>>| {
        let selected =
            seen.status.selected.iter().map(|(term, at)| (term.clone(), usize_of(*at))).collect();
        let claim = Claim::Plain(seen);
        counts(&claim, &selected, claim.allocations()).get(class).copied().unwrap_or_default()
    };
    claims.into_iter().map(count).sum()
}

fn usize_of(at: u32) -> usize {
    at.try_into().unwrap_or(usize::MAX)
}

/// How many devices of each class an allocation has.
pub(super) fn counts(
    claim: &Claim,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
) -> Counts {
    let mut counts = Counts::new();
    let Ok(Wanted::Claim(spec)) = claim.wanted() else { return counts };
    for term in &spec.claims {
        let nth = selected.get(&term.name).copied().unwrap_or_default();
        let class = term.alternatives().nth(nth).and_then(|ask| ask.device_class.clone());
        let Some(class) = class else { continue };
        let of_term = got.iter().filter(|it| it.claim_name.as_ref() == Some(&term.name));
        let devices: u64 = of_term.map(|it| u64::from(it.device_count.unwrap_or(1))).sum();
        *counts.entry(class).or_default() += devices;
    }
    counts
}

/// Whether a namespace may have access that others do not see.
pub(super) fn may_look_on(world: &World, namespace: &str) -> bool {
    let namespace = world.shelf::<Namespace>().get(&Key::cluster(namespace));
    namespace.is_some_and(|it| it.metadata.labels.get(ADMIN_LABEL).is_some_and(|it| it == "true"))
}
