//! How many devices of a class a namespace may have, and has.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::devices::{DeviceAllocation, DeviceClaim};
use gantry_devices::lower::{Catalog, Wanted};
use gantry_pods::view::{Namespace, Pod};
use gantry_reconcile::{Key, Uid, World};

use crate::carrier::Trouble;
use crate::claim::Claim;
use crate::seen::{Quota, Seen};

/// How the name of a limit ends, after the name of the class.
const LIMIT: &str = ".deviceclass.devmgmtproto.k8s.io/devices";
/// The label of namespaces that may look on.
pub(crate) const ADMIN_LABEL: &str = "devmgmtproto.k8s.io/admin-access";

/// What a namespace may have of a class that looks at devices of others when no quota names the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminQuota {
    /// As much as it likes, like of any other class.
    #[default]
    Optional,
    /// Nothing.
    Required,
}

/// What this plan gave, by namespace and class.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    admin: AdminQuota,
    given: BTreeMap<(String, String), u64>,
    /// What claims had when the plan began, of what was asked about: many pods that wait ask the same.
    used: BTreeMap<(String, String), u64>,
    /// Claims that have more than their namespace may have, by namespace.
    beyond: BTreeMap<String, BTreeSet<Uid>>,
}

/// Devices by class.
pub(super) type Counts = BTreeMap<String, u64>;

impl Quotas {
    pub(super) fn new(admin: AdminQuota) -> Self {
        Self { admin, ..Self::default() }
    }

    /// Whether a namespace may have so many more devices of each class.
    pub(super) fn check(
        &mut self,
        world: &World,
        catalog: &Catalog,
        namespace: &str,
        more: &Counts,
    ) -> Result<(), Trouble> {
        self.named(world, catalog, namespace, more)?;
        let quotas = world.shelf::<Quota>().within(namespace);
        let limits = quotas.iter().flat_map(|it| it.spec.hard.iter().map(move |hard| (it, hard)));
        for (quota, (name, most)) in limits {
            let Some(class) = name.strip_suffix(LIMIT) else { continue };
            let Some(more) = more.get(class).filter(|it| **it > 0) else { continue };
            let place = (namespace.to_owned(), class.to_owned());
            let given = self.given.get(&place).copied().unwrap_or_default();
            let used = self.used.entry(place).or_insert_with(|| used(world, namespace, class));
            let used = *used + given;
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

    /// Whether a quota names each class that must be named by one.
    fn named(
        &self,
        world: &World,
        catalog: &Catalog,
        namespace: &str,
        more: &Counts,
    ) -> Result<(), Trouble> {
        match self.admin {
            AdminQuota::Optional => return Ok(()),
            AdminQuota::Required => {}
        }
        let quotas = world.shelf::<Quota>().within(namespace);
        let is_named = |class: &str| {
            let mut names = quotas.iter().flat_map(|it| it.spec.hard.keys());
            names.any(|name| name.strip_suffix(LIMIT) == Some(class))
        };
        let mut admin =
            more.keys().filter(|it| catalog.class(it).is_some_and(|class| class.admin_access));
        match admin.find(|class| !is_named(class)) {
            None => Ok(()),
            Some(class) => Err(Trouble::new(
                "QuotaExceeded",
                format!(
                    "class {class} looks at devices of others, and no quota of the namespace allows \
                     any: set {class}{LIMIT}"
                ),
            )),
        }
    }

    /// Whether a claim has more than its namespace may have, and is not used yet.
    ///
    /// Nobody gives too much by itself, because it knows what it gave. Two who believe to lead may do so
    /// between them, each before it sees what the other gave. Then the younger is taken back, unless its
    /// pod has a node by then.
    pub(super) fn is_beyond(&mut self, world: &World, claim: &Claim) -> bool {
        let namespace = &claim.meta().namespace;
        if !self.beyond.contains_key(namespace) {
            self.beyond.insert(namespace.clone(), beyond(world, namespace));
        }
        self.beyond.get(namespace).is_some_and(|it| it.contains(claim.uid()))
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
    claims.into_iter().map(|seen| has(&seen, &Claim::Plain(seen.clone()), class)).sum()
}

/// How many devices of a class a claim has.
fn has(seen: &Seen<DeviceClaim>, claim: &Claim, class: &str) -> u64 {
    let selected =
        seen.status.selected.iter().map(|(term, at)| (term.clone(), usize_of(*at))).collect();
    counts(claim, &selected, claim.allocations()).get(class).copied().unwrap_or_default()
}

/// The claims of a namespace that have more than it may have, and whose pods have no node. Those in use
/// count first, then the older.
fn beyond(world: &World, namespace: &str) -> BTreeSet<Uid> {
    let quotas = world.shelf::<Quota>().within(namespace);
    let limits = quotas.iter().flat_map(|it| &it.spec.hard);
    let mut beyond = BTreeSet::new();
    for (name, most) in limits {
        let Some(class) = name.strip_suffix(LIMIT) else { continue };
        let mut left = u64::try_from(most.value_rounded_up()).unwrap_or_default();
        let claims = world.shelf::<Seen<DeviceClaim>>().within(namespace).into_iter();
        let claims = claims.filter(|it| !it.status.allocations.is_empty());
        let mut claims: Vec<_> = claims
            .map(|seen| {
                let claim = Claim::Plain(seen.clone());
                let waits = !is_used(world, &claim);
                ((waits, claim.horizon(), claim.uid().clone()), has(&seen, &claim, class))
            })
            .collect();
        claims.sort_unstable();
        for ((waits, _, uid), count) in claims.into_iter().filter(|(_, count)| *count > 0) {
            if waits && count > left {
                beyond.insert(uid);
            } else {
                left = left.saturating_sub(count);
            }
        }
    }
    beyond
}

/// Whether a pod that uses a claim has a node.
fn is_used(world: &World, claim: &Claim) -> bool {
    claim.consumers().iter().any(|it| {
        let pod = world.shelf::<Pod>().get(&claim.meta().key().beside(&it.name));
        pod.is_some_and(|pod| pod.metadata.uid.as_str() == it.uid && !pod.spec.node_name.is_empty())
    })
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
