//! What devices there are, and what pods that do not exist yet will claim of them.
//!
//! A pod that is still to come has no claims of its own. What it says about devices is read as the
//! scheduler of devices will read it, and what it refers to is found where it will be: among the objects
//! of its namespace, or in the AppWrapper that brings them along.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_api::devices::{
    Carried, ClaimSource, ClaimSpec, DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver,
    DevicePool, DevicePrivilegedClaim, LedgerEntry, PodClaims, PodDevices, PrivilegedClaimSpec,
    TemplateSource,
};
use gantry_api::finding::Source;
use gantry_devices::constraint::Constraints;
use gantry_devices::lower::{Catalog, NodeLabels, Snapshot, Wanted};
use gantry_devices::problem::{Inventory, Request};
use gantry_pods::devices::{Published, Seen, is_hold, used_by};
use gantry_pods::fit;
use gantry_pods::gang::Claims;
use gantry_pods::view::{Node, NodeSelector, Pod};
use gantry_reconcile::{Key, Kind, View as _, World};
use serde_json::{Value, json};

/// The kinds that must be seen to know what pods claim, and of what.
pub(crate) fn kinds() -> [Kind; 7] {
    [
        Kind::of::<Seen<DeviceClaim>>(),
        Kind::of::<Seen<DevicePrivilegedClaim>>(),
        Kind::of::<Seen<DeviceClaimTemplate>>(),
        Kind::of::<Seen<PodDevices>>(),
        Kind::of::<Seen<DevicePool>>(),
        Kind::of::<Seen<DeviceClass>>(),
        Kind::of::<Seen<DeviceDriver>>(),
    ]
}

/// The devices of a world, and how claims are read.
pub(crate) struct Equipment {
    catalog: Catalog,
    constraints: Arc<Constraints>,
    /// What there is, and what is held of it.
    all: Snapshot,
    /// The same without what those hold who are treated as gone.
    now: Option<Snapshot>,
}

/// What each of some equal pods claims.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// For itself alone.
    pub(crate) request: Option<Request>,
    /// Together with others: claims that are there and have no devices yet.
    pub(crate) shared: Vec<(Key, Request)>,
    /// Where the devices are of claims that have some.
    pins: Vec<Pin>,
}

#[derive(Debug)]
struct Pin {
    node: Option<String>,
    selector: Option<NodeSelector>,
}

impl Asked {
    /// Whether a node reaches the devices that the pods' claims have already.
    pub(crate) fn allows(&self, node: &Node) -> bool {
        self.pins.iter().all(|pin| {
            pin.node.as_ref().is_none_or(|it| *it == node.metadata.name)
                && pin.selector.as_ref().is_none_or(|it| fit::matches_node(it, node))
        })
    }
}

impl Equipment {
    /// What these nodes have, by the pools of the world and some that are not in it.
    pub(crate) fn new(
        world: &World,
        nodes: &[Arc<Node>],
        added: &[DevicePool],
        constraints: Arc<Constraints>,
    ) -> Self {
        let drivers = world.shelf::<Seen<DeviceDriver>>().all();
        let classes = world.shelf::<Seen<DeviceClass>>().all();
        let drivers = drivers.iter().filter_map(|it| it.object.as_ref().ok());
        let classes = classes.iter().filter_map(|it| it.object.as_ref().ok());
        let catalog = Catalog::new(Source::Server, drivers, classes);
        let labels = nodes.iter().map(|node| NodeLabels {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
        });
        let pools = world.shelf::<Seen<DevicePool>>().all();
        let whole = pools.iter().filter_map(|it| it.whole());
        let labels: Vec<NodeLabels> = labels.collect();
        let whole: Vec<DevicePool> = whole.chain(added.iter().cloned()).collect();
        let mut all = Snapshot::new(&catalog, &labels, &whole);
        // A pool that was made anew has lost its ledger. Who has devices of it still has them.
        let listed: BTreeSet<(&str, &str)> = pools
            .iter()
            .flat_map(|pool| pool.status.allocations.iter().map(move |it| (pool, it)))
            .map(|(pool, it)| (it.claim_ref.uid.as_str(), pool.metadata.name.as_str()))
            .collect();
        for claim in world.shelf::<Seen<DeviceClaim>>().all() {
            for allocation in claim.status.allocations.iter().filter(|it| is_hold(it)) {
                let entry = (claim.metadata.uid.as_str(), allocation.device_pool_name.as_str());
                if !listed.contains(&entry) {
                    all.hold(allocation);
                }
            }
        }
        Self { catalog, constraints, all, now: None }
    }

    /// Begins a question in which these AppWrappers are gone, with all that their pods have.
    pub(crate) fn begin(&mut self, world: &World, gone: &BTreeSet<Key>) {
        self.now = None;
        let claims = world.shelf::<Seen<DeviceClaim>>();
        let mut free: BTreeSet<String> = BTreeSet::new();
        for wrapper in gone {
            for pod in world.shelf::<Pod>().tagged(&crate::progress::pods_of(wrapper)) {
                for claim in claims.tagged(&used_by(&pod.metadata.uid)) {
                    // Somebody else may use it as well.
                    if claim.status.reserved_for.len() == 1 {
                        free.insert(claim.metadata.uid.as_str().to_owned());
                    }
                }
            }
        }
        if free.is_empty() {
            return;
        }
        let mut now = self.all.clone();
        for pool in world.shelf::<Seen<DevicePool>>().all() {
            let of_gone = |it: &&LedgerEntry| free.contains(&it.claim_ref.uid);
            for entry in pool.status.allocations.iter().filter(of_gone) {
                now.release(&pool.metadata.name, entry);
            }
        }
        self.now = Some(now);
    }

    /// The devices, for the question that was begun.
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.now.as_ref().unwrap_or(&self.all).inventory
    }

    /// What pods claim.
    ///
    /// # Errors
    /// What keeps it from being known, or makes it impossible.
    pub(crate) fn read(&mut self, world: &World, claims: &Claims) -> Result<Asked, String> {
        let own = Own::of(claims);
        let carried = carried(world, claims, &own)?;
        let mut asked = Asked::default();
        let mut wishes: Vec<(String, Wish)> = Vec::new();
        for (at, entry) in carried.device_claims.iter().enumerate() {
            let name = entry.name.clone().unwrap_or_else(|| at.to_string());
            let wish = match &entry.source {
                ClaimSource::Claim(spec) => Wish::Plain(spec.clone()),
                ClaimSource::Template(template) => Wish::Plain(template.spec.clone()),
                ClaimSource::ClaimTemplateName(of) => template(world, claims, &own, of)?,
                ClaimSource::ClaimName(of) => {
                    let key = Key::new(&claims.namespace, of);
                    match existing(world, &key, &own)? {
                        Existing::Has(pin) => asked.pins.push(pin),
                        Existing::Wants(wish) => {
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

    fn request(&mut self, wishes: &[(String, Wish)]) -> Result<Request, String> {
        let wanted: Vec<(&str, Wanted<'_>)> =
            wishes.iter().map(|(name, wish)| (name.as_str(), wish.wanted())).collect();
        let snapshot = self.now.as_mut().unwrap_or(&mut self.all);
        let lowered = snapshot.request(&self.catalog, &self.constraints, &wanted);
        lowered.map(|it| it.request).map_err(|error| error.to_string())
    }
}

/// What a claim asks for.
#[derive(Clone, Debug)]
enum Wish {
    Plain(ClaimSpec),
    Privileged(PrivilegedClaimSpec),
}

impl Wish {
    fn wanted(&self) -> Wanted<'_> {
        match self {
            Self::Plain(spec) => Wanted::Claim(spec),
            Self::Privileged(spec) => Wanted::Privileged(spec),
        }
    }
}

/// A claim that pods name.
enum Existing {
    /// It has devices, and they are there.
    Has(Pin),
    /// It has none yet.
    Wants(Wish),
}

/// The objects that an AppWrapper brings along.
struct Own(Vec<Value>);

impl Own {
    fn of(claims: &Claims) -> Self {
        // They were texts of trees before.
        Self(claims.own.iter().filter_map(|it| serde_json::from_str(it).ok()).collect())
    }

    /// The object of a kind with this name, read as a server would have it.
    fn find<T: Published>(&self, name: &str) -> Option<Seen<T>> {
        let kind = Seen::<T>::RESOURCE.kind;
        let is_it = |it: &&Value| it["kind"] == *kind && it["metadata"]["name"] == name;
        serde_json::from_value(self.0.iter().find(is_it)?.clone()).ok()
    }
}

/// What pods say about devices, wherever they say it.
fn carried(world: &World, claims: &Claims, own: &Own) -> Result<PodClaims, String> {
    let pod: Value = serde_json::from_str(&claims.pod).unwrap_or_else(|_| json!({}));
    let carried = Carried::of(&pod).map_err(|findings| {
        let texts = findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text));
        texts.collect::<Vec<_>>().join("; ")
    })?;
    let name = match carried {
        None => return Ok(PodClaims::default()),
        Some(Carried::Claims(claims)) => return Ok(claims),
        Some(Carried::Named(name)) => name,
    };
    let key = Key::new(&claims.namespace, &name);
    let object = match own.find::<PodDevices>(&name) {
        Some(seen) => seen.object,
        None => match world.shelf::<Seen<PodDevices>>().get(&key) {
            Some(seen) => seen.object.clone(),
            None => return Err(format!("PodDevices \"{name}\" not found")),
        },
    };
    object.map(|it| it.spec).map_err(|why| format!("PodDevices \"{name}\": {why}"))
}

/// What a template makes.
fn template(world: &World, claims: &Claims, own: &Own, name: &str) -> Result<Wish, String> {
    let key = Key::new(&claims.namespace, name);
    let wrong = |why: String| format!("claim template \"{name}\": {why}");
    let shelf = world.shelf::<Seen<DeviceClaimTemplate>>();
    let found = own.find::<DeviceClaimTemplate>(name).map(|it| it.object);
    if let Some(object) = found.or_else(|| shelf.get(&key).map(|it| it.object.clone())) {
        return Ok(match object.map_err(wrong)?.spec.source {
            TemplateSource::ClaimSpec(spec) => Wish::Plain(spec),
            TemplateSource::PrivilegedClaimSpec(spec) => Wish::Privileged(spec),
        });
    }
    // A claim may stand in for a template.
    let found = own.find::<DeviceClaim>(name).map(|it| it.object);
    let shelf = world.shelf::<Seen<DeviceClaim>>();
    match found.or_else(|| shelf.get(&key).map(|it| it.object.clone())) {
        Some(object) => Ok(Wish::Plain(object.map_err(wrong)?.spec)),
        None => Err(format!("claim template \"{name}\" not found")),
    }
}

/// A claim that pods name, of either kind.
fn existing(world: &World, key: &Key, own: &Own) -> Result<Existing, String> {
    let name = key.name();
    let wrong = |why: String| format!("claim \"{name}\": {why}");
    // The same fields in the words of the server; what it does not have matches no node.
    let read = |it: &_| serde_json::from_value(json!(it)).unwrap_or_default();
    if let Some(claim) = world.shelf::<Seen<DeviceClaim>>().get(key) {
        if claim.status.allocations.is_empty() {
            return Ok(Existing::Wants(Wish::Plain(claim.object.clone().map_err(wrong)?.spec)));
        }
        let (node, selector) =
            (claim.status.node_name.clone(), claim.status.node_selector.as_ref());
        return Ok(Existing::Has(Pin { node, selector: selector.map(read) }));
    }
    if let Some(claim) = world.shelf::<Seen<DevicePrivilegedClaim>>().get(key) {
        if claim.status.allocations.is_empty() {
            let spec = claim.object.clone().map_err(wrong)?.spec;
            return Ok(Existing::Wants(Wish::Privileged(spec)));
        }
        let (node, selector) =
            (claim.status.node_name.clone(), claim.status.node_selector.as_ref());
        return Ok(Existing::Has(Pin { node, selector: selector.map(read) }));
    }
    if let Some(claim) = own.find::<DeviceClaim>(name) {
        return Ok(Existing::Wants(Wish::Plain(claim.object.map_err(wrong)?.spec)));
    }
    if let Some(claim) = own.find::<DevicePrivilegedClaim>(name) {
        return Ok(Existing::Wants(Wish::Privileged(claim.object.map_err(wrong)?.spec)));
    }
    Err(format!("claim \"{name}\" not found"))
}

#[cfg(test)]
mod tests;
