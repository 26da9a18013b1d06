//! The device inventory, and what pods that do not exist yet will claim of it.
//!
//! A pod that is not created yet has no claims of its own. Its device requests are read as the
//! device scheduler will read them, and the objects it refers to are looked up where they will be:
//! in its namespace, or in the AppWrapper that wraps them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::gang::PodClaimContext;
use gantry_api::devices::{
    ClaimSource, ClaimSpec, DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver,
    DevicePool, DevicePrivilegedClaim, LedgerEntry, PodClaims, PodDeviceClaims, PodDevices,
    PrivilegedClaimSpec, TemplateSource,
};
use gantry_api::finding::Source;
use gantry_devices::constraint::Constraints;
use gantry_devices::lower::{Catalog, ClaimSpecRef, NodeLabels, Snapshot};
use gantry_devices::problem::{Inventory, Request};
use gantry_pods::devices::{DeviceKind, DeviceObject, is_hold, reserved_for_pod_tag};
use gantry_pods::fit;
use gantry_pods::view::{Node, NodeSelector, Pod};
use gantry_reconcile::{Key, Kind, View as _, World};
use serde_json::{Value, json};

/// Returns the kinds that must be watched to know what pods claim, and of what.
pub(crate) fn kinds() -> [Kind; 7] {
    [
        Kind::of::<DeviceObject<DeviceClaim>>(),
        Kind::of::<DeviceObject<DevicePrivilegedClaim>>(),
        Kind::of::<DeviceObject<DeviceClaimTemplate>>(),
        Kind::of::<DeviceObject<PodDevices>>(),
        Kind::of::<DeviceObject<DevicePool>>(),
        Kind::of::<DeviceObject<DeviceClass>>(),
        Kind::of::<DeviceObject<DeviceDriver>>(),
    ]
}

/// The devices of a world, and the constraints to read claims with.
pub(crate) struct DeviceInventory {
    catalog: Catalog,
    constraints: Arc<Constraints>,
    /// The devices, and which of them are allocated.
    snapshot: Snapshot,
    /// The same without the devices of AppWrappers that are assumed gone.
    hypothetical: Option<Snapshot>,
}

/// What each of several identical pods claims.
#[derive(Debug, Default)]
pub(crate) struct PodDeviceRequests {
    /// Devices for itself alone.
    pub(crate) request: Option<Request>,
    /// Devices shared with others: existing claims without devices yet.
    pub(crate) shared: Vec<(Key, Request)>,
    /// The locations of the devices of allocated claims.
    locations: Vec<DeviceLocation>,
}

#[derive(Debug)]
struct DeviceLocation {
    node: Option<String>,
    selector: Option<NodeSelector>,
}

impl PodDeviceRequests {
    /// Returns whether a node reaches the devices that the pods' claims already have.
    pub(crate) fn allows(&self, node: &Node) -> bool {
        self.locations.iter().all(|pin| {
            pin.node.as_ref().is_none_or(|it| *it == node.metadata.name)
                && pin.selector.as_ref().is_none_or(|it| fit::matches_node(it, node))
        })
    }
}

impl DeviceInventory {
    /// Builds the inventory of these nodes, from the pools of the world and additional ones.
    pub(crate) fn new(
        world: &World,
        nodes: &[Arc<Node>],
        added: &[DevicePool],
        constraints: Arc<Constraints>,
    ) -> Self {
        let drivers = world.store::<DeviceObject<DeviceDriver>>().list();
        let classes = world.store::<DeviceObject<DeviceClass>>().list();
        let drivers = drivers.iter().filter_map(|it| it.object.as_ref().ok());
        let classes = classes.iter().filter_map(|it| it.object.as_ref().ok());
        let catalog = Catalog::new(Source::Server, drivers, classes);
        let labels = nodes.iter().map(|node| NodeLabels {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
        });
        let pools = world.store::<DeviceObject<DevicePool>>().list();
        let whole = pools.iter().filter_map(|it| it.with_ledger());
        let labels: Vec<NodeLabels> = labels.collect();
        let whole: Vec<DevicePool> = whole.chain(added.iter().cloned()).collect();
        let mut all = Snapshot::new(&catalog, &labels, &whole);
        // A pool that was recreated has lost its ledger. Claims with devices of it still have them.
        let listed: BTreeSet<(&str, &str)> = pools
            .iter()
            .flat_map(|pool| pool.status.allocations.iter().map(move |it| (pool, it)))
            .map(|(pool, it)| (it.claim_ref.uid.as_str(), pool.metadata.name.as_str()))
            .collect();
        for claim in world.store::<DeviceObject<DeviceClaim>>().list() {
            for allocation in claim.status.allocations.iter().filter(|it| is_hold(it)) {
                let entry = (claim.metadata.uid.as_str(), allocation.device_pool_name.as_str());
                if !listed.contains(&entry) {
                    all.hold_allocation(allocation);
                }
            }
        }
        Self { catalog, constraints, snapshot: all, hypothetical: None }
    }

    /// Begins a question in which these AppWrappers are gone, with all that their pods have.
    pub(crate) fn assume_gone(&mut self, world: &World, gone: &BTreeSet<Key>) {
        self.hypothetical = None;
        let claims = world.store::<DeviceObject<DeviceClaim>>();
        let mut free: BTreeSet<String> = BTreeSet::new();
        for wrapper in gone {
            for pod in world.store::<Pod>().by_index(&crate::progress::pods_tag(wrapper)) {
                for claim in claims.by_index(&reserved_for_pod_tag(&pod.metadata.uid)) {
                    // Other pods may use it as well.
                    if claim.status.reserved_for.len() == 1 {
                        free.insert(claim.metadata.uid.as_str().to_owned());
                    }
                }
            }
        }
        if free.is_empty() {
            return;
        }
        let mut now = self.snapshot.clone();
        for pool in world.store::<DeviceObject<DevicePool>>().list() {
            let of_gone = |it: &&LedgerEntry| free.contains(&it.claim_ref.uid);
            for entry in pool.status.allocations.iter().filter(of_gone) {
                now.release_entry(&pool.metadata.name, entry);
            }
        }
        self.hypothetical = Some(now);
    }

    /// Returns the devices, for the current question.
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.hypothetical.as_ref().unwrap_or(&self.snapshot).inventory
    }

    /// Returns what pods claim.
    ///
    /// # Errors
    /// Fails with what keeps it from being known, or makes it impossible.
    pub(crate) fn read(
        &mut self,
        world: &World,
        claims: &PodClaimContext,
    ) -> Result<PodDeviceRequests, String> {
        let own = BundledObjects::of(claims);
        let carried = pod_claims(world, claims, &own)?;
        let mut asked = PodDeviceRequests::default();
        let mut wishes: Vec<(String, ClaimRequest)> = Vec::new();
        for (at, entry) in carried.device_claims.iter().enumerate() {
            let name = entry.name.clone().unwrap_or_else(|| at.to_string());
            let wish = match &entry.source {
                ClaimSource::Claim(spec) => ClaimRequest::Plain(spec.clone()),
                ClaimSource::Template(template) => ClaimRequest::Plain(template.spec.clone()),
                ClaimSource::ClaimTemplateName(of) => template_request(world, claims, &own, of)?,
                ClaimSource::ClaimName(of) => {
                    let key = Key::new(&claims.namespace, of);
                    match existing_claim(world, &key, &own)? {
                        ExistingClaim::Allocated(pin) => asked.locations.push(pin),
                        ExistingClaim::Unallocated(wish) => {
                            let request = self.request(&[(of.clone(), wish)])?;
                            asked.shared.push((key, request));
                        }
                    }
                    continue;
                }
            };
            wishes.push((name, wish));
        }
        if !wishes.is_empty() {
            asked.request = Some(self.request(&wishes)?);
        }
        Ok(asked)
    }

    fn request(&mut self, wishes: &[(String, ClaimRequest)]) -> Result<Request, String> {
        let wanted: Vec<(&str, ClaimSpecRef<'_>)> =
            wishes.iter().map(|(name, wish)| (name.as_str(), wish.wanted())).collect();
        let snapshot = self.hypothetical.as_mut().unwrap_or(&mut self.snapshot);
        let lowered = snapshot.request(&self.catalog, &self.constraints, &wanted);
        lowered.map(|it| it.request).map_err(|error| error.to_string())
    }
}

/// What a claim requests.
#[derive(Clone, Debug)]
enum ClaimRequest {
    Plain(ClaimSpec),
    Privileged(PrivilegedClaimSpec),
}

impl ClaimRequest {
    fn wanted(&self) -> ClaimSpecRef<'_> {
        match self {
            Self::Plain(spec) => ClaimSpecRef::Claim(spec),
            Self::Privileged(spec) => ClaimSpecRef::Privileged(spec),
        }
    }
}

/// A claim that pods name.
enum ExistingClaim {
    /// It has devices, and they exist.
    Allocated(DeviceLocation),
    /// It has no devices yet.
    Unallocated(ClaimRequest),
}

/// The objects that an AppWrapper wraps beside its pods.
struct BundledObjects(Vec<Value>);

impl BundledObjects {
    fn of(claims: &PodClaimContext) -> Self {
        // They were serialized from values before.
        Self(claims.sibling_objects.iter().filter_map(|it| serde_json::from_str(it).ok()).collect())
    }

    /// Returns the object of a kind with this name, read as a server would return it.
    fn find<T: DeviceKind>(&self, name: &str) -> Option<DeviceObject<T>> {
        let kind = DeviceObject::<T>::RESOURCE.kind;
        let is_it = |it: &&Value| it["kind"] == *kind && it["metadata"]["name"] == name;
        serde_json::from_value(self.0.iter().find(is_it)?.clone()).ok()
    }
}

/// Returns what pods say about devices, wherever they say it.
fn pod_claims(
    world: &World,
    claims: &PodClaimContext,
    own: &BundledObjects,
) -> Result<PodClaims, String> {
    let pod: Value = serde_json::from_str(&claims.pod).unwrap_or_else(|_| json!({}));
    let carried = PodDeviceClaims::of(&pod).map_err(|findings| {
        let texts = findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text));
        texts.collect::<Vec<_>>().join("; ")
    })?;
    let name = match carried {
        None => return Ok(PodClaims::default()),
        Some(PodDeviceClaims::Claims(claims)) => return Ok(claims),
        Some(PodDeviceClaims::Named(name)) => name,
    };
    let key = Key::new(&claims.namespace, &name);
    let object = match own.find::<PodDevices>(&name) {
        Some(seen) => seen.object,
        None => match world.store::<DeviceObject<PodDevices>>().get(&key) {
            Some(seen) => seen.object.clone(),
            None => return Err(format!("PodDevices \"{name}\" not found")),
        },
    };
    object.map(|it| it.spec).map_err(|why| format!("PodDevices \"{name}\": {why}"))
}

/// Returns the request of claims made from a template.
fn template_request(
    world: &World,
    claims: &PodClaimContext,
    own: &BundledObjects,
    name: &str,
) -> Result<ClaimRequest, String> {
    let key = Key::new(&claims.namespace, name);
    let wrong = |why: String| format!("claim template \"{name}\": {why}");
    let store = world.store::<DeviceObject<DeviceClaimTemplate>>();
    let found = own.find::<DeviceClaimTemplate>(name).map(|it| it.object);
    if let Some(object) = found.or_else(|| store.get(&key).map(|it| it.object.clone())) {
        return Ok(match object.map_err(wrong)?.spec.source {
            TemplateSource::ClaimSpec(spec) => ClaimRequest::Plain(spec),
            TemplateSource::PrivilegedClaimSpec(spec) => ClaimRequest::Privileged(spec),
        });
    }
    // A claim may be used in place of a template.
    let found = own.find::<DeviceClaim>(name).map(|it| it.object);
    let store = world.store::<DeviceObject<DeviceClaim>>();
    match found.or_else(|| store.get(&key).map(|it| it.object.clone())) {
        Some(object) => Ok(ClaimRequest::Plain(object.map_err(wrong)?.spec)),
        None => Err(format!("claim template \"{name}\" not found")),
    }
}

/// Returns a claim that pods name, of either kind.
fn existing_claim(world: &World, key: &Key, own: &BundledObjects) -> Result<ExistingClaim, String> {
    let name = key.name();
    let wrong = |why: String| format!("claim \"{name}\": {why}");
    // The same fields in the types of the server; what it does not have matches no node.
    let read = |it: &_| serde_json::from_value(json!(it)).unwrap_or_default();
    if let Some(claim) = world.store::<DeviceObject<DeviceClaim>>().get(key) {
        if claim.status.allocations.is_empty() {
            return Ok(ExistingClaim::Unallocated(ClaimRequest::Plain(
                claim.object.clone().map_err(wrong)?.spec,
            )));
        }
        let (node, selector) =
            (claim.status.node_name.clone(), claim.status.node_selector.as_ref());
        return Ok(ExistingClaim::Allocated(DeviceLocation { node, selector: selector.map(read) }));
    }
    if let Some(claim) = world.store::<DeviceObject<DevicePrivilegedClaim>>().get(key) {
        if claim.status.allocations.is_empty() {
            let spec = claim.object.clone().map_err(wrong)?.spec;
            return Ok(ExistingClaim::Unallocated(ClaimRequest::Privileged(spec)));
        }
        let (node, selector) =
            (claim.status.node_name.clone(), claim.status.node_selector.as_ref());
        return Ok(ExistingClaim::Allocated(DeviceLocation { node, selector: selector.map(read) }));
    }
    if let Some(claim) = own.find::<DeviceClaim>(name) {
        return Ok(ExistingClaim::Unallocated(ClaimRequest::Plain(
            claim.object.map_err(wrong)?.spec,
        )));
    }
    if let Some(claim) = own.find::<DevicePrivilegedClaim>(name) {
        return Ok(ExistingClaim::Unallocated(ClaimRequest::Privileged(
            claim.object.map_err(wrong)?.spec,
        )));
    }
    Err(format!("claim \"{name}\" not found"))
}

#[cfg(test)]
mod tests;
