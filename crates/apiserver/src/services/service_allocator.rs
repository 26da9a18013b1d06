//! Allocates cluster addresses and node ports to services.
//!
//! An address is in use when a stored service has it, or when a pending write has claimed it. The
//! addresses of stored services are read from the changes of the store, and a claim is held by a
//! [`ServiceClaims`] that releases it when it is dropped. There is no other state, so there is
//! nothing to undo: however a write ends (refused, in conflict, cancelled or lost with the
//! process), its claims end with it. The store holds them too until the write is decided,
//! because a write goes on when its caller no longer waits.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_kinds::service::{self, AllocationError, ServiceAllocator as AllocateService};
use gantry_store::Watch;
use serde_json::Value;

use crate::api::ObjectStore;
use crate::resource::stored::{EncodedEvent, EntryCache};

/// The space of services in the store.
const SPACE: &str = "services";
/// Events that are read from the store at once.
const EVENT_BATCH: usize = 1_024;
/// How often the stored services are counted again when changes arrive faster than they are read.
const MAX_RECOUNTS: usize = 3;
/// Ports that nodes open for services; the end is excluded.
const NODE_PORTS: Range<u32> = 30_000..32_768;
/// The number that Kubernetes shows for a node port in a dry run, which allocates none.
const DRY_RUN_PORT: i64 = 32_769;

/// Tracks which addresses and ports are in use. Clones share one state.
#[derive(Clone)]
pub(crate) struct ServiceAllocator(Arc<Shared>);

struct Shared {
    network: u32,
    /// The network as text, such as `10.96.0.0/16`.
    range: String,
    /// Addresses that can be allocated to services; the end is excluded.
    addresses: Range<u32>,
    store: ObjectStore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stored: InUse,
    /// The position in the store's changes; `None` before the first use.
    watch: Option<Watch<EntryCache, EncodedEvent>>,
    claimed: InUse,
}

/// Reference counts, because what two services share is free only when both are gone.
#[derive(Debug, Default)]
struct InUse {
    addresses: HashMap<u32, usize>,
    ports: HashMap<u32, usize>,
}

impl std::fmt::Debug for ServiceAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("addresses", &self.0.addresses).finish_non_exhaustive()
    }
}

impl ServiceAllocator {
    /// Makes an allocator of addresses in `network/bits` for the services of a store. The first and
    /// the last address are reserved for the network, and the second is the server's.
    pub(crate) fn new(network: Ipv4Addr, bits: u8, store: ObjectStore) -> Self {
        let count = 1_u32.checked_shl(32 - u32::from(bits.clamp(8, 30))).unwrap_or(4);
        let range = format!("{network}/{bits}");
        let network = u32::from(network);
        let addresses = network + 1..network + count - 1;
        Self(Arc::new(Shared { network, range, addresses, store, state: Mutex::default() }))
    }

    /// Returns the server's own address.
    pub(crate) fn server_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.0.addresses.start)
    }

    /// Claims the addresses and ports of a write. A dry run claims nothing.
    pub(crate) fn claim(&self, dry_run: bool) -> ServiceClaims {
        ServiceClaims { allocator: self.clone(), dry_run, addresses: Vec::new(), ports: Vec::new() }
    }

    /// Returns what is in use now, with everything that is stored.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.catch_up(&self.0.store);
        state
    }
}

impl State {
    /// Reads the changes since the last call.
    fn catch_up(&mut self, store: &ObjectStore) {
        for _ in 0..MAX_RECOUNTS {
            while let Some(watch) = &mut self.watch {
                let Ok(events) = watch.try_next(EVENT_BATCH) else {
                    // Too many changes since then: everything is counted again.
                    self.watch = None;
                    break;
                };
                if events.is_empty() {
                    return;
                }
                for event in events {
                    if let Some(previous) = &event.previous {
                        self.stored.remove_service(&previous.value);
                    }
                    if event.kind == gantry_store::EventKind::Put {
                        self.stored.add_service(&event.entry.value);
                    }
                }
            }
            let services = store.space(SPACE);
            self.stored = InUse::default();
            for entry in services.iter() {
                self.stored.add_service(&entry.value);
            }
            self.watch = store.watch(SPACE, services.revision()).ok();
        }
    }
}

impl InUse {
    fn add_service(&mut self, service: &[u8]) {
        let (addresses, ports) = allocated(service);
        addresses.into_iter().for_each(|it| increment(&mut self.addresses, it));
        ports.into_iter().for_each(|it| increment(&mut self.ports, it));
    }

    fn remove_service(&mut self, service: &[u8]) {
        let (addresses, ports) = allocated(service);
        addresses.into_iter().for_each(|it| decrement(&mut self.addresses, &it));
        ports.into_iter().for_each(|it| decrement(&mut self.ports, &it));
    }
}

/// Returns the addresses and ports of a stored service.
fn allocated(service: &[u8]) -> (Vec<u32>, Vec<u32>) {
    let service: Value = serde_json::from_slice(service).unwrap_or_default();
    let addresses = service::cluster_ips(&service).filter_map(number).collect();
    let ports = service::node_ports(&service).into_iter();
    (addresses, ports.filter_map(|port| u32::try_from(port).ok()).collect())
}

fn number(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(u32::from(address)),
        IpAddr::V6(_) => None,
    }
}

fn increment<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The claims of one write, until they are dropped.
#[derive(Debug)]
pub(crate) struct ServiceClaims {
    allocator: ServiceAllocator,
    dry_run: bool,
    addresses: Vec<u32>,
    ports: Vec<u32>,
}

impl Drop for ServiceClaims {
    fn drop(&mut self) {
        if self.addresses.is_empty() && self.ports.is_empty() {
            return;
        }
        let mut state = self.allocator.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.addresses.drain(..).for_each(|it| decrement(&mut state.claimed.addresses, &it));
        self.ports.drain(..).for_each(|it| decrement(&mut state.claimed.ports, &it));
    }
}

impl AllocateService for ServiceClaims {
    fn reserve_cluster_ip(&mut self, wanted: IpAddr) -> Result<(), AllocationError> {
        let allocator = self.allocator.clone();
        let ours = number(wanted).filter(|it| allocator.0.addresses.contains(it));
        let Some(address) = ours else {
            let range = allocator.0.range.clone();
            let outside = AllocationError::IpNotInRange { ip: wanted, range };
            return Err(if self.dry_run { outside } else { AllocationError::IpNotInNetwork });
        };
        if self.dry_run {
            // As upstream: it is not checked whether it is free.
            return Ok(());
        }
        let mut state = allocator.state();
        if state.has_address(address) {
            return Err(AllocationError::IpAllocated);
        }
        increment(&mut state.claimed.addresses, address);
        self.addresses.push(address);
        Ok(())
    }

    fn allocate_cluster_ip(&mut self) -> Result<IpAddr, AllocationError> {
        let allocator = self.allocator.clone();
        if self.dry_run {
            // As upstream: an address that no service can have.
            return Ok(IpAddr::V4(Ipv4Addr::from(allocator.0.network)));
        }
        let mut state = allocator.state();
        let addresses = &allocator.0.addresses;
        // As upstream: by the size of the network.
        let band = static_band_size(addresses.end - addresses.start + 2, 16, 256);
        let free = pick_free(addresses, band, |address| !state.has_address(address));
        let free = free.ok_or(AllocationError::RangeFull)?;
        increment(&mut state.claimed.addresses, free);
        self.addresses.push(free);
        Ok(IpAddr::V4(Ipv4Addr::from(free)))
    }

    fn reserve_node_port(&mut self, wanted: i64) -> Result<(), AllocationError> {
        let allocator = self.allocator.clone();
        let port = u32::try_from(wanted).ok().filter(|port| NODE_PORTS.contains(port));
        let mut state = allocator.state();
        if self.dry_run {
            // As upstream: any number that is not in use, also one out of range.
            let Some(port) = port else { return Ok(()) };
            if state.has_port(port) || self.ports.contains(&port) {
                return Err(AllocationError::PortAllocated);
            }
            return Ok(());
        }
        let Some(port) = port else {
            let range = format!("{}-{}", NODE_PORTS.start, NODE_PORTS.end - 1);
            return Err(AllocationError::PortNotInRange(range));
        };
        if state.has_port(port) {
            return Err(AllocationError::PortAllocated);
        }
        increment(&mut state.claimed.ports, port);
        self.ports.push(port);
        Ok(())
    }

    fn allocate_node_port(&mut self) -> Result<i64, AllocationError> {
        if self.dry_run {
            return Ok(DRY_RUN_PORT);
        }
        let allocator = self.allocator.clone();
        let mut state = allocator.state();
        let band = static_band_size(NODE_PORTS.end - NODE_PORTS.start, 32, 128);
        let free = pick_free(&NODE_PORTS, band, |port| !state.has_port(port))
            .ok_or(AllocationError::RangeFull)?;
        increment(&mut state.claimed.ports, free);
        self.ports.push(free);
        Ok(i64::from(free))
    }
}

impl State {
    fn has_address(&self, address: u32) -> bool {
        let uses = [&self.stored.addresses, &self.claimed.addresses];
        uses.iter().any(|it| it.contains_key(&address))
    }

    fn has_port(&self, port: u32) -> bool {
        [&self.stored.ports, &self.claimed.ports].iter().any(|it| it.contains_key(&port))
    }
}

/// Returns how many numbers at the start of a range are left for users who choose one themselves: a
/// fraction of it within bounds, as in Kubernetes.
fn static_band_size(size: u32, fraction: u32, most: u32) -> u32 {
    const MIN_BAND: u32 = 16;
    if size <= MIN_BAND { 0 } else { (size / fraction).clamp(MIN_BAND, most) }
}

/// Returns a random free number: from the static band only when there is none above it.
fn pick_free(range: &Range<u32>, band: u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let border = (range.start + band).min(range.end);
    [border..range.end, range.start..border].into_iter().find_map(|part| {
        let size = part.end - part.start;
        let start = if size == 0 { 0 } else { fastrand::u32(..size) };
        (0..size).map(|step| part.start + (start + step) % size).find(|it| is_free(*it))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gantry_store::{Change, Durability, Options, Precondition, Store, Write};
    use serde_json::json;

    use super::*;

    fn allocator(bits: u8) -> (ServiceAllocator, ObjectStore) {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).unwrap();
        (ServiceAllocator::new(Ipv4Addr::new(10, 96, 0, 0), bits, store.clone()), store)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn every_address_is_allocated_once_and_released_with_its_claim() {
        let (allocator, _store) = allocator(28);
        let mut claims = allocator.claim(false);
        let given: BTreeSet<_> = std::iter::from_fn(|| claims.allocate_cluster_ip().ok()).collect();
        assert_eq!(given.len(), 14, "sixteen without network and broadcast");
        let mut others = allocator.claim(false);
        assert_eq!(others.allocate_cluster_ip(), Err(AllocationError::RangeFull));
        assert_eq!(others.reserve_cluster_ip(ip("10.96.0.5")), Err(AllocationError::IpAllocated));
        drop(claims);
        assert_eq!(others.reserve_cluster_ip(ip("10.96.0.5")), Ok(()));
        for outside in ["10.96.0.0", "10.96.0.15", "10.97.0.5", "fd00::1"] {
            assert_eq!(
                others.reserve_cluster_ip(ip(outside)),
                Err(AllocationError::IpNotInNetwork)
            );
        }
    }

    #[test]
    fn automatic_numbers_avoid_the_static_band_while_others_are_free() {
        let (allocator, _store) = allocator(24);
        let mut claims = allocator.claim(false);
        let given: Vec<_> = std::iter::from_fn(|| claims.allocate_cluster_ip().ok()).collect();
        assert_eq!(given.len(), 254);
        let above = given.iter().filter(|it| **it >= ip("10.96.0.17")).count();
        assert_eq!(above, 238, "a /24 has a band of sixteen");
        assert!(given[..238].iter().all(|it| *it >= ip("10.96.0.17")), "the band comes last");
        let ports: Vec<_> = std::iter::from_fn(|| claims.allocate_node_port().ok()).collect();
        assert_eq!(ports.len(), 2_768);
        assert!(ports[..2_768 - 86].iter().all(|it| *it >= 30_086), "the band comes last");
        for (size, fraction, most, band) in [
            (16, 16, 256, 0),
            (32, 16, 256, 16),
            (1_024, 16, 256, 64),
            (65_536, 16, 256, 256),
            (2_768, 32, 128, 86),
        ] {
            assert_eq!(static_band_size(size, fraction, most), band, "{size}");
        }
    }

    #[test]
    fn a_dry_run_claims_nothing() {
        let (allocator, _store) = allocator(28);
        let mut dry = allocator.claim(true);
        assert_eq!(dry.allocate_cluster_ip(), Ok(ip("10.96.0.0")));
        assert_eq!(dry.reserve_cluster_ip(ip("10.96.0.5")), Ok(()));
        let outside = ip("10.97.0.5");
        let range = "10.96.0.0/28".to_owned();
        let refused = Err(AllocationError::IpNotInRange { ip: outside, range });
        assert_eq!(dry.reserve_cluster_ip(outside), refused);
        assert_eq!(dry.reserve_node_port(30_080), Ok(()));
        let mut claims = allocator.claim(false);
        assert_eq!(claims.reserve_cluster_ip(ip("10.96.0.5")), Ok(()));
        assert_eq!(claims.reserve_node_port(30_080), Ok(()));
        assert_eq!(dry.reserve_node_port(30_080), Err(AllocationError::PortAllocated));
    }

    #[tokio::test]
    async fn stored_addresses_are_in_use_until_deleted() {
        let (allocator, store) = allocator(28);
        let service = |port: i64| {
            let spec = json!({ "clusterIPs": ["10.96.0.5"], "ports": [{ "nodePort": port }] });
            let head = format!("{{\"spec\":{spec},\"revision\":");
            gantry_store::Value { head: head.into(), tail: "}".into() }
        };
        let write = |change| Write {
            space: SPACE.into(),
            key: "n/s".into(),
            precondition: Precondition::Any,
            change,
            hold: None,
        };
        for round in 0..3 {
            store.commit(write(Change::Put(service(30_080)))).await.unwrap();
            let mut claims = allocator.claim(false);
            assert_eq!(
                claims.reserve_cluster_ip(ip("10.96.0.5")),
                Err(AllocationError::IpAllocated)
            );
            assert_eq!(
                claims.reserve_node_port(30_080),
                Err(AllocationError::PortAllocated),
                "{round}"
            );
            store.commit(write(Change::Put(service(30_081)))).await.unwrap();
            assert_eq!(claims.reserve_node_port(30_080), Ok(()), "given up by a change");
            assert_eq!(claims.reserve_node_port(30_081), Err(AllocationError::PortAllocated));
            store.commit(write(Change::Delete(service(30_081)))).await.unwrap();
            assert_eq!(
                claims.reserve_cluster_ip(ip("10.96.0.5")),
                Ok(()),
                "given up by a deletion"
            );
            assert_eq!(claims.reserve_node_port(30_081), Ok(()));
        }
    }
}
