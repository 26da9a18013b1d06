//! Decides whether pods that were placed on nodes can all have their devices at the same time.
//!
//! Nodes that share a pool compete for its devices, so they are solved together: one problem with
//! the pools of all of them, in which each claim sees those of its own node only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Gang;
use crate::allocate::solve;
use crate::prepare::Prepared;
use crate::problem::{
    Allocation, Budget, Inventory, Node, PoolDevices, Refusal, Request, Signature, Undecided,
    Verdict,
};

/// The users of claims: a member, or beyond those a shared claim; and how many of them.
pub(super) type ClaimUsers = (usize, usize);

/// The users of claims on the nodes of one region, by node.
pub(super) type RegionClaims = BTreeMap<usize, Vec<ClaimUsers>>;

/// Devices, and the regions of nodes that compete for them.
#[derive(Debug)]
pub(super) struct DeviceRegions<'a> {
    inventory: &'a Inventory,
    gang: &'a Gang<'a>,
    /// For each node, the region it is in.
    regions: Vec<usize>,
    /// How many nodes each region has.
    sizes: Vec<usize>,
    /// For each node a number that is equal for nodes that are equal for every claim.
    kinds: Vec<usize>,
    /// Results of earlier calls.
    cache: HashMap<Vec<usize>, Result<bool, Undecided>>,
}

impl<'a> DeviceRegions<'a> {
    pub(super) fn new(inventory: &'a Inventory, gang: &'a Gang<'a>) -> Self {
        let count = gang.free_capacity.len();
        let mut equipment = Self {
            inventory,
            gang,
            regions: (0..count).collect(),
            sizes: vec![1; count],
            kinds: vec![0; count],
            cache: HashMap::new(),
        };
        if gang.members.iter().any(|it| it.request.is_some()) || !gang.shared.is_empty() {
            equipment.partition();
        }
        equipment
    }

    /// Finds out which nodes compete, and which are equal.
    fn partition(&mut self) {
        let nothing = Node::default();
        let node = |at: usize| self.inventory.nodes().get(at).unwrap_or(&nothing);
        let mut reached: HashMap<usize, usize> = HashMap::new();
        let mut roots: Vec<usize> = (0..self.regions.len()).collect();
        for at in 0..roots.len() {
            for pool in &node(at).pools {
                let other = *reached.entry(*pool).or_insert(at);
                let (one, two) = (root(&mut roots, at), root(&mut roots, other));
                roots[one.max(two)] = one.min(two);
            }
        }
        self.regions = (0..roots.len()).map(|at| root(&mut roots, at)).collect();
        self.sizes = vec![0; roots.len()];
        for region in &self.regions {
            self.sizes[*region] += 1;
        }
        let mut kinds: HashMap<(bool, Vec<usize>), usize> = HashMap::new();
        for at in 0..roots.len() {
            let alone = self.sizes[self.regions[at]] == 1;
            let look = match self.inventory.shapes().of_node(at).filter(|_| alone) {
                Some(shape) => (true, vec![shape]),
                None => (false, node(at).pools.clone()),
            };
            let next = kinds.len();
            self.kinds[at] = *kinds.entry(look).or_insert(next);
        }
    }

    /// Returns the region of a node.
    pub(super) fn region(&self, node: usize) -> usize {
        self.regions[node]
    }

    /// Returns a number that is equal for nodes that are equal for every claim.
    pub(super) fn kind(&self, node: usize) -> usize {
        self.kinds[node]
    }

    /// Whether some nodes compete for devices.
    pub(super) fn is_contested(&self) -> bool {
        self.sizes.iter().any(|size| *size > 1)
    }

    /// Whether everything that was placed on the nodes of a region can have its devices. Returns
    /// how many steps that took as well.
    pub(super) fn can_allocate(
        &mut self,
        given: &RegionClaims,
        budget: Budget<'_>,
    ) -> (Result<bool, Undecided>, u64) {
        let mut key = Vec::new();
        for (node, users) in given {
            for (user, count) in users {
                key.extend([*node, *user, *count]);
            }
        }
        if let Some(known) = self.cache.get(&key) {
            return (*known, 0);
        }
        let (found, steps) = match self.allocate(given, budget) {
            Ok((allocation, steps)) => (Ok(allocation.is_some()), steps),
            Err(Undecided::Steps(steps)) => (Err(Undecided::Steps(steps)), steps),
            Err(undecided) => (Err(undecided), 0),
        };
        self.cache.insert(key, found);
        (found, steps)
    }

    /// Allocates the devices of everything that was placed on the nodes of a region, claim by claim
    /// in the order of `given`.
    pub(super) fn allocate(
        &self,
        given: &RegionClaims,
        budget: Budget<'_>,
    ) -> Result<(Option<Allocation>, u64), Undecided> {
        let mut users = given.iter();
        match (users.next(), users.next()) {
            (None, _) => Ok((Some(Allocation::default()), 0)),
            (Some((node, users)), None) => {
                let mut request = Request::default();
                for (user, count) in users {
                    let own = self.request(*user)?;
                    append(&mut request, own, *count, own.verdicts.iter().cloned());
                }
                let nowhere = Node::default();
                let node = self.inventory.nodes().get(*node).unwrap_or(&nowhere);
                let prepared = Prepared::new(self.inventory.symbols(), &request);
                solve(&prepared, self.inventory, node, budget)
            }
            (Some(_), Some(_)) => self.allocate_region(given, budget),
        }
    }

    /// Allocates one problem of several nodes. Devices get new signatures, so that the verdict of a
    /// claim about a device may depend on the pool that has it.
    fn allocate_region(
        &self,
        given: &RegionClaims,
        budget: Budget<'_>,
    ) -> Result<(Option<Allocation>, u64), Undecided> {
        let nowhere = Node::default();
        let node = |at: usize| self.inventory.nodes().get(at).unwrap_or(&nowhere);
        let mut places: Vec<usize> =
            given.keys().flat_map(|at| &node(*at).pools).copied().collect();
        places.sort_unstable();
        places.dedup();
        places.retain(|place| *place < self.inventory.pools().len());
        let mut columns: Vec<(usize, Signature)> = Vec::new();
        let mut numbers: HashMap<(usize, Signature), Signature> = HashMap::new();
        let mut pools = Vec::with_capacity(places.len());
        for place in &places {
            let mut pool = self.inventory.pools()[*place].clone();
            let mut renew = |signature: &mut Signature| {
                let old = (*place, *signature);
                *signature = *numbers.entry(old).or_insert_with(|| {
                    columns.push(old);
                    Signature(u32::try_from(columns.len() - 1).unwrap_or(u32::MAX))
                });
            };
            match &mut pool.devices {
                PoolDevices::Listed(devices) => {
                    devices.iter_mut().for_each(|device| renew(&mut device.signature));
                }
                PoolDevices::Counted(counted) => renew(&mut counted.signature),
            }
            pools.push(pool);
        }
        let mut request = Request::default();
        for (at, users) in given {
            let reached = &node(*at).pools;
            for (user, count) in users {
                let own = self.request(*user)?;
                let rows = (0..own.verdicts.len()).map(|row| -> Arc<[Verdict]> {
                    let judge =
                        |(place, signature): &(usize, Signature)| match reached.contains(place) {
                            true => own.verdict(row, *signature).clone(),
                            false => Verdict::Refused(Refusal::Constraints),
                        };
                    columns.iter().map(judge).collect()
                });
                append(&mut request, own, *count, rows);
            }
        }
        let all = Node { name: String::new(), pools: (0..pools.len()).collect() };
        let inventory = Inventory::new(self.inventory.symbols().clone(), pools, vec![all.clone()]);
        let prepared = Prepared::new(inventory.symbols(), &request);
        let (found, steps) = solve(&prepared, &inventory, &all, budget)?;
        let found = found.map(|mut allocation| {
            let terms = allocation.claims.iter_mut().flat_map(|claim| &mut claim.terms);
            for hold in terms.flat_map(|term| &mut term.holds) {
                hold.pool = places[hold.pool];
            }
            allocation
        });
        Ok((found, steps))
    }

    /// Returns what a user requests.
    fn request(&self, user: usize) -> Result<&'a Request, Undecided> {
        const NOTHING: &Request = &Request {
            claims: Vec::new(),
            verdicts: Vec::new(),
            topologies: Vec::new(),
            policy: crate::problem::Policy::FewestPools,
        };
        let members = &self.gang.members;
        let request = match user.checked_sub(members.len()) {
            None => members[user].request.unwrap_or(NOTHING),
            Some(shared) => self.gang.shared[shared],
        };
        // Only the oldest files have topology rules that all claims of a pod share. Nothing here
        // could say which claims those are.
        if request.topologies.is_empty() { Ok(request) } else { Err(Undecided::TooLarge) }
    }
}

/// Appends the claims of some equal pods to those that are there.
fn append(
    request: &mut Request,
    own: &Request,
    count: usize,
    rows: impl Iterator<Item = Arc<[Verdict]>>,
) {
    let first = request.verdicts.len();
    request.verdicts.extend(rows);
    request.policy = own.policy;
    for _ in 0..count {
        for claim in &own.claims {
            let mut claim = claim.clone();
            for alternative in claim.terms.iter_mut().flat_map(|term| &mut term.alternatives) {
                alternative.selector += first;
            }
            request.claims.push(claim);
        }
    }
}

/// Returns the representative of all that are connected (union-find).
fn root(roots: &mut [usize], mut at: usize) -> usize {
    while roots[at] != at {
        roots[at] = roots[roots[at]];
        at = roots[at];
    }
    at
}
