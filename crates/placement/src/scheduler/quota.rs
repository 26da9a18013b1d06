//! Device quotas: how many devices of a class a namespace may have, and has.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::devices::{DeviceAllocation, DeviceClaim};
use gantry_devices::lower::{Catalog, ClaimSpecRef};
use gantry_pods::view::{Namespace, Pod};
use gantry_reconcile::{Key, Uid, World};

use crate::claim::Claim;
use crate::pod_claims::PendingReason;
use crate::views::{DeviceObject, ResourceQuota};

/// The suffix of the name of a limit, after the name of the class.
const QUOTA_NAME_SUFFIX: &str = ".deviceclass.devmgmtproto.k8s.io/devices";
/// The label of namespaces whose claims may have administrator access.
pub(crate) const ADMIN_ACCESS_LABEL: &str = "devmgmtproto.k8s.io/admin-access";

/// What a namespace may have of a class with administrator access when no quota names the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminQuota {
    /// Any number, as of any other class.
    #[default]
    Optional,
    /// Nothing.
    Required,
}

/// What this plan allocated, by namespace and class.
#[derive(Debug, Default)]
pub(super) struct QuotaUsage {
    admin: AdminQuota,
    granted: BTreeMap<(String, String), u64>,
    /// What claims had when the plan began, as far as it was looked up: many pending pods need the
    /// same numbers.
    used: BTreeMap<(String, String), u64>,
    /// Claims that exceed the quota of their namespace, by namespace.
    over_quota: BTreeMap<String, BTreeSet<Uid>>,
}

/// Devices by class.
pub(super) type DeviceCounts = BTreeMap<String, u64>;

impl QuotaUsage {
    pub(super) fn new(admin: AdminQuota) -> Self {
        Self { admin, ..Self::default() }
    }

    /// Checks whether a namespace may have so many more devices of each class.
    pub(super) fn check(
        &mut self,
        world: &World,
        catalog: &Catalog,
        namespace: &str,
        more: &DeviceCounts,
    ) -> Result<(), PendingReason> {
        self.require_quotas(world, catalog, namespace, more)?;
        let quotas = world.store::<ResourceQuota>().in_namespace(namespace);
        let limits = quotas.iter().flat_map(|it| it.spec.hard.iter().map(move |hard| (it, hard)));
        for (quota, (name, most)) in limits {
            let Some(class) = name.strip_suffix(QUOTA_NAME_SUFFIX) else { continue };
            let Some(more) = more.get(class).filter(|it| **it > 0) else { continue };
            let place = (namespace.to_owned(), class.to_owned());
            let given = self.granted.get(&place).copied().unwrap_or_default();
            let used = self
                .used
                .entry(place)
                .or_insert_with(|| allocated_devices(world, namespace, class));
            let used = *used + given;
            let most = u64::try_from(most.value_rounded_up()).unwrap_or_default();
            if used + more > most {
                return Err(PendingReason::new(
                    "QuotaExceeded",
                    format!(
                        "quota \"{}\" allows {most} devices of class {class}: {used} are used, \
                         {more} more are requested",
                        quota.metadata.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Checks whether a quota names each class that must have one.
    fn require_quotas(
        &self,
        world: &World,
        catalog: &Catalog,
        namespace: &str,
        more: &DeviceCounts,
    ) -> Result<(), PendingReason> {
        match self.admin {
            AdminQuota::Optional => return Ok(()),
            AdminQuota::Required => {}
        }
        let quotas = world.store::<ResourceQuota>().in_namespace(namespace);
        let is_named = |class: &str| {
            let mut names = quotas.iter().flat_map(|it| it.spec.hard.keys());
            names.any(|name| name.strip_suffix(QUOTA_NAME_SUFFIX) == Some(class))
        };
        let mut admin =
            more.keys().filter(|it| catalog.class(it).is_some_and(|class| class.admin_access));
        match admin.find(|class| !is_named(class)) {
            None => Ok(()),
            Some(class) => Err(PendingReason::new(
                "QuotaExceeded",
                format!(
                    "class {class} has administrator access, and no quota of the namespace \
                     allows any: set {class}{QUOTA_NAME_SUFFIX}"
                ),
            )),
        }
    }

    /// Whether a claim exceeds the quota of its namespace, and is not used yet.
    ///
    /// One process never exceeds a quota by itself, because it knows what it allocated. Two
    /// processes that both believe they are the leader may do so together, each before it sees what
    /// the other allocated. Then the younger allocation is revoked, unless its pod has a node by
    /// then.
    pub(super) fn is_over_quota(&mut self, world: &World, claim: &Claim) -> bool {
        let namespace = &claim.meta().namespace;
        if !self.over_quota.contains_key(namespace) {
            self.over_quota.insert(namespace.clone(), claims_over_quota(world, namespace));
        }
        self.over_quota.get(namespace).is_some_and(|it| it.contains(claim.uid()))
    }

    /// Charges what a pod of a namespace is allocated.
    pub(super) fn charge(&mut self, namespace: &str, more: &DeviceCounts) {
        for (class, more) in more {
            *self.granted.entry((namespace.to_owned(), class.clone())).or_default() += more;
        }
    }
}

/// Returns how many devices of a class the claims of a namespace have.
fn allocated_devices(world: &World, namespace: &str, class: &str) -> u64 {
    let claims = world.store::<DeviceObject<DeviceClaim>>().in_namespace(namespace);
    claims.into_iter().map(|seen| devices_of_class(&seen, &Claim::Plain(seen.clone()), class)).sum()
}

/// Returns how many devices of a class a claim has.
fn devices_of_class(seen: &DeviceObject<DeviceClaim>, claim: &Claim, class: &str) -> u64 {
    let selected =
        seen.status.selected.iter().map(|(term, at)| (term.clone(), usize_of(*at))).collect();
    device_counts(claim, &selected, claim.allocations()).get(class).copied().unwrap_or_default()
}

/// Returns the claims of a namespace that exceed its quota and whose pods have no node. Claims in
/// use count first, then the older ones.
fn claims_over_quota(world: &World, namespace: &str) -> BTreeSet<Uid> {
    let quotas = world.store::<ResourceQuota>().in_namespace(namespace);
    let limits = quotas.iter().flat_map(|it| &it.spec.hard);
    let mut beyond = BTreeSet::new();
    for (name, most) in limits {
        let Some(class) = name.strip_suffix(QUOTA_NAME_SUFFIX) else { continue };
        let mut left = u64::try_from(most.value_rounded_up()).unwrap_or_default();
        let claims = world.store::<DeviceObject<DeviceClaim>>().in_namespace(namespace).into_iter();
        let claims = claims.filter(|it| !it.status.allocations.is_empty());
        let mut claims: Vec<_> = claims
            .map(|seen| {
                let claim = Claim::Plain(seen.clone());
                let waits = !has_bound_pod(world, &claim);
                (
                    (waits, claim.allocation_changed_at(), claim.uid().clone()),
                    devices_of_class(&seen, &claim, class),
                )
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
fn has_bound_pod(world: &World, claim: &Claim) -> bool {
    claim.consumers().iter().any(|it| {
        let pod = world.store::<Pod>().get(&claim.meta().key().in_same_namespace(&it.name));
        pod.is_some_and(|pod| pod.metadata.uid.as_str() == it.uid && !pod.spec.node_name.is_empty())
    })
}

fn usize_of(at: u32) -> usize {
    at.try_into().unwrap_or(usize::MAX)
}

/// Returns how many devices of each class an allocation has.
pub(super) fn device_counts(
    claim: &Claim,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
) -> DeviceCounts {
    let mut counts = DeviceCounts::new();
    let Ok(ClaimSpecRef::Claim(spec)) = claim.spec() else { return counts };
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

/// Whether claims of a namespace may have administrator access.
pub(super) fn allows_admin_access(world: &World, namespace: &str) -> bool {
    let namespace = world.store::<Namespace>().get(&Key::cluster(namespace));
    namespace
        .is_some_and(|it| it.metadata.labels.get(ADMIN_ACCESS_LABEL).is_some_and(|it| it == "true"))
}
