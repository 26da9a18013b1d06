//! Loads files, and allocates their claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gantry_api::decode::{self, Decoded, Options};
use gantry_api::devices::{
    DeviceClaim, DeviceClass, DeviceDriver, DevicePool, PodCapacityClaim, PodDeviceClaims,
};
use gantry_api::finding::Source;
use gantry_api::object::Object;
use gantry_api::quantity::{Format, Quantity};
use gantry_devices::allocate;
use gantry_devices::constraint::Constraints;
use gantry_devices::lower::{
    Catalog, ClaimObjects, ClaimSpecRef, LoweredRequest, NodeLabels, PodClaimEntry, Snapshot,
    file_pools, resolve,
};
use gantry_devices::problem::{
    Allocation, AllocationOutcome, Budget, Hold, PoolDevices, Request, UnsatisfiableReport,
};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");

/// The content of some files.
#[derive(Default)]
pub(crate) struct LoadedFiles {
    drivers: Vec<DeviceDriver>,
    classes: Vec<DeviceClass>,
    pools: Vec<DevicePool>,
    claims: Vec<DeviceClaim>,
    nodes: Vec<NodeLabels>,
    pod: Option<PodCapacityClaim>,
    carrier: Option<Value>,
}

/// A request that can be tried on each node.
pub(crate) struct AllocationQuery {
    pub(crate) snapshot: Snapshot,
    pub(crate) request: Request,
}

impl LoadedFiles {
    pub(crate) fn load(files: &[&str]) -> Self {
        let mut stage = Self::default();
        for file in files {
            let text = fs::read_to_string(format!("{FOLDER}/{file}.yaml")).expect(file);
            for document in decode::documents(&text, Options::default()).expect(file) {
                assert_eq!(document.errors, [], "{file}: {}", document.subject);
                stage.add(document.content);
            }
        }
        if stage.nodes.is_empty() {
            let names = stage.pools.iter().filter_map(|pool| pool.spec.node_name.clone());
            let names: BTreeSet<String> = names.collect();
            stage.nodes = names
                .into_iter()
                .map(|name| NodeLabels { name, ..NodeLabels::default() })
                .collect();
        }
        stage
    }

    fn add(&mut self, content: Decoded) {
        match content {
            Decoded::Object(Object::DeviceDriver(driver)) => self.drivers.push(*driver),
            Decoded::Object(Object::DeviceClass(class)) => self.classes.push(*class),
            Decoded::Object(Object::DevicePool(pool)) => self.pools.push(*pool),
            Decoded::Object(Object::DeviceClaim(claim)) => self.claims.push(*claim),
            Decoded::Nodes(nodes) => {
                let (nodes, pools) = file_pools(&nodes);
                self.nodes.extend(nodes);
                self.pools.extend(pools);
            }
            Decoded::CapacityClaim(pod) => self.pod = Some(*pod),
            Decoded::Foreign(pod) => self.carrier = Some(pod),
            other => panic!("nothing here looks at {other:?}"),
        }
    }

    /// Adds a node that no pool names.
    pub(crate) fn with_node(mut self, name: &str) -> Self {
        self.nodes.push(NodeLabels { name: name.to_owned(), ..NodeLabels::default() });
        self
    }

    /// Leaves only the claims with these names.
    pub(crate) fn with_claims(mut self, names: &[&str]) -> Self {
        self.claims.retain(|claim| names.contains(&claim.metadata.name.as_deref().unwrap()));
        self
    }

    /// Returns the request of all claims together, or those of the pod, for each node.
    pub(crate) fn query(&self) -> AllocationQuery {
        let catalog = Catalog::new(Source::File, &self.drivers, &self.classes);
        let constraints = Constraints::default();
        let mut snapshot = Snapshot::new(&catalog, &self.nodes, &self.pools);
        let LoweredRequest { request, .. } = match (&self.pod, &self.carrier) {
            (Some(pod), _) => snapshot.file_request(&catalog, &constraints, pod),
            (None, Some(pod)) => {
                let Some(PodDeviceClaims::Claims(carried)) = PodDeviceClaims::of(pod).unwrap()
                else {
                    panic!("{pod} says nothing of devices")
                };
                let (claims, privileged, templates) =
                    (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
                let objects = ClaimObjects {
                    claims: &claims,
                    privileged: &privileged,
                    templates: &templates,
                };
                let entries = resolve(&carried, &objects).unwrap();
                let wanted: Vec<_> = entries
                    .iter()
                    .map(|entry| match entry {
                        PodClaimEntry::Claim { name, spec } => (*name, ClaimSpecRef::Claim(spec)),
                        PodClaimEntry::Generate { entry, spec, .. } => {
                            (entry.as_str(), ClaimSpecRef::Claim(spec))
                        }
                        PodClaimEntry::Privileged { name, spec } => {
                            (*name, ClaimSpecRef::Privileged(spec))
                        }
                        PodClaimEntry::GeneratePrivileged { entry, spec, .. } => {
                            (entry.as_str(), ClaimSpecRef::Privileged(spec))
                        }
                    })
                    .collect();
                snapshot.request(&catalog, &constraints, &wanted)
            }
            (None, None) => {
                let name = |claim: &DeviceClaim| claim.metadata.name.clone().unwrap();
                let names: Vec<String> = self.claims.iter().map(name).collect();
                let specs = self.claims.iter().map(|claim| ClaimSpecRef::Claim(&claim.spec));
                let wanted: Vec<_> = names.iter().map(String::as_str).zip(specs).collect();
                snapshot.request(&catalog, &constraints, &wanted)
            }
        }
        .unwrap();
        AllocationQuery { snapshot, request }
    }

    /// Returns what the best node allocates: `node (score)`, then a line for each term. `None` if
    /// no node fits.
    pub(crate) fn placed(&self) -> Option<String> {
        let question = self.query();
        let (node, allocation) = question.best()?;
        Some(question.show(node, &allocation))
    }
}

impl AllocationQuery {
    pub(crate) fn allocate(&self, node: usize) -> AllocationOutcome {
        allocate(&self.snapshot.inventory, node, &self.request, &Budget::default())
    }

    /// Returns why a node does not fit.
    pub(crate) fn report(&self, node: &str) -> UnsatisfiableReport {
        match self.allocate(self.snapshot.node_index(node).unwrap()) {
            AllocationOutcome::Unsatisfiable(report) => report,
            answer => panic!("{node}: {answer:?}"),
        }
    }

    /// Returns why the pools of a node cannot be used for a term, each as `pool: reason`.
    pub(crate) fn reasons(&self, node: &str, term: usize) -> Vec<String> {
        let report = self.report(node);
        let pools = report.terms[term].alternatives[0].pools.iter();
        let told = pools.filter_map(|pool| {
            let name = &self.snapshot.inventory.pools()[pool.pool].name;
            pool.reason.as_ref().map(|reason| format!("{name}: {reason}"))
        });
        told.collect()
    }

    /// Returns the node with the highest score, the first of several.
    pub(crate) fn best(&self) -> Option<(usize, Allocation)> {
        let mut best: Option<(usize, Allocation)> = None;
        for node in 0..self.snapshot.inventory.nodes().len() {
            match self.allocate(node) {
                AllocationOutcome::Allocated(given)
                    if best.as_ref().is_none_or(|b| b.1.score < given.score) =>
                {
                    best = Some((node, given));
                }
                AllocationOutcome::Allocated(_) | AllocationOutcome::Unsatisfiable(_) => {}
                AllocationOutcome::Indeterminate(why) => panic!("not decided: {why:?}"),
            }
        }
        best
    }

    fn show(&self, node: usize, allocation: &Allocation) -> String {
        let name = &self.snapshot.inventory.nodes()[node].name;
        let mut lines = vec![format!("{name} ({})", allocation.score)];
        for (claim, given) in self.request.claims.iter().zip(&allocation.claims) {
            for (term, given) in claim.terms.iter().zip(&given.terms) {
                let holds: Vec<String> = self.holds(&given.holds);
                let way = match given.alternative {
                    0 => String::new(),
                    way => format!(" #{way}"),
                };
                lines.push(format!("{}/{}{way}: {}", claim.name, term.name, holds.join(", ")));
            }
        }
        lines.join("\n")
    }

    /// Formats holds as `pool/device amounts`, or `count of pool`.
    fn holds(&self, holds: &[Hold]) -> Vec<String> {
        let mut shown: Vec<String> = Vec::new();
        let mut counted: BTreeMap<usize, usize> = BTreeMap::new();
        let symbols = self.snapshot.inventory.symbols();
        for hold in holds {
            let pool = &self.snapshot.inventory.pools()[hold.pool];
            match (&pool.devices, hold.device) {
                (PoolDevices::Listed(devices), Some(at)) => {
                    let parts = hold.parts.iter().map(|part| {
                        let entry = &devices[at].capacities[part.capacity_index];
                        let amount = Quantity::parse(&format!("{}n", part.amount)).unwrap();
                        let places =
                            entry.domains.iter().map(|p| format!("@{}", symbols.name(p.name)));
                        let amount = amount.with_format(Format::BinarySi);
                        let places: String = places.collect();
                        format!(" {}={amount}{places}", symbols.name(entry.name))
                    });
                    let parts: String = parts.collect();
                    shown.push(format!("{}/{}{parts}", pool.name, devices[at].name));
                }
                _ => *counted.entry(hold.pool).or_default() += 1,
            }
        }
        let pools = self.snapshot.inventory.pools();
        shown.extend(counted.iter().map(|(at, count)| format!("{count} of {}", pools[*at].name)));
        shown
    }
}
