//! Allocates cluster addresses and node ports to services.
//!
//! An address is in use when a stored service has it, or when a write that is under way has claimed
//! it. What stored services have is read from the changes of the store, and a claim is held by a
//! [`Claims`] that releases it when it is dropped. Nothing else is remembered, so there is nothing to
//! undo: however a write ends, refused by anyone, overtaken, cancelled or lost with the process, its
//! claims end with it. The store holds them too until the write is decided
//! ([`gantry_store::Hold`]), because a write goes on when its caller no longer waits.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_kinds::service::{self, Allocate, Unavailable};
use gantry_store::Watch;
use serde_json::Value;

use crate::api::Shelf;
use crate::stored::{Known, Line};

/// The space of services in the store.
pub(crate) const SPACE: &str = "services";
/// Events that are read from the store at once.
const BATCH: usize = 1_024;
/// How often the stored services are counted again when changes are made faster than they are read.
const RECOUNTS: usize = 3;
/// Ports that nodes open for services; the end is excluded.
const PORTS: Range<u32> = 30_000..32_768;
/// The number that Kubernetes shows for a node port in a dry run, which allocates none.
const DRY_RUN_PORT: i64 = 32_769;

/// Knows which addresses and ports are in use. Clones are one allocator.
#[derive(Clone)]
pub(crate) struct Allocator(Arc<Shared>);

struct Shared {
    network: u32,
    /// The network as text, such as `10.96.0.0/16`.
    range: String,
    /// Addresses that can be given to services; the end is excluded.
    addresses: Range<u32>,
    store: Shelf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stored: InUse,
    /// Where the store is read on; nothing before the first use.
    watch: Option<Watch<Known, Line>>,
    claimed: InUse,
}

/// Counts, because what two services share is free only when both are gone.
#[derive(Debug, Default)]
struct InUse {
    addresses: HashMap<u32, usize>,
    ports: HashMap<u32, usize>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("addresses", &self.0.addresses).finish_non_exhaustive()
    }
}

impl Allocator {
    /// Allocates addresses of `network/bits` to the services of a store. The first address and the
    /// last are those of the network, and the second is the server's.
    pub(crate) fn new(network: Ipv4Addr, bits: u8, store: Shelf) -> Self {
        let count = 1_u32.checked_shl(32 - u32::from(bits.clamp(8, 30))).unwrap_or(4);
        let range = format!("{network}/{bits}");
        let network = u32::from(network);
        let addresses = network + 1..network + count - 1;
        Self(Arc::new(Shared { network, range, addresses, store, state: Mutex::default() }))
    }

    /// The server's own address.
    pub(crate) fn server(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.0.addresses.start)
    }

    /// Claims what a write asks for. A dry run claims nothing.
    pub(crate) fn claim(&self, dry_run: bool) -> Claims {
        Claims { allocator: self.clone(), dry_run, addresses: Vec::new(), ports: Vec::new() }
    }

    /// What is in use now, with everything that is stored.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.catch_up(&self.0.store);
        state
    }
}

impl State {
    /// Reads what was stored since the last time.
    fn catch_up(&mut self, store: &Shelf) {
        for _ in 0..RECOUNTS {
            while let Some(watch) = &mut self.watch {
                let Ok(events) = watch.ready(BATCH) else {
                    // Too much has happened since: all is counted anew.
                    self.watch = None;
                    break;
                };
                if events.is_empty() {
                    return;
                }
                for event in events {
                    if let Some(previous) = &event.previous {
                        self.stored.forget(&previous.value);
                    }
                    if event.kind == gantry_store::EventKind::Put {
                        self.stored.count(&event.entry.value);
                    }
                }
            }
            let services = store.space(SPACE);
            self.stored = InUse::default();
            for entry in services.iter() {
                self.stored.count(&entry.value);
            }
            self.watch = store.watch(SPACE, services.revision()).ok();
        }
    }
}

impl InUse {
    fn count(&mut self, service: &[u8]) {
        let (addresses, ports) = allocated(service);
        addresses.into_iter().for_each(|it| raise(&mut self.addresses, it));
        ports.into_iter().for_each(|it| raise(&mut self.ports, it));
    }

    fn forget(&mut self, service: &[u8]) {
        let (addresses, ports) = allocated(service);
        addresses.into_iter().for_each(|it| lower(&mut self.addresses, &it));
        ports.into_iter().for_each(|it| lower(&mut self.ports, &it));
    }
}

/// The addresses and ports of a stored service.
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

fn raise<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn lower<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// What one write has claimed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claims {
    allocator: Allocator,
    dry_run: bool,
    addresses: Vec<u32>,
    ports: Vec<u32>,
}

impl Drop for Claims {
    fn drop(&mut self) {
        if self.addresses.is_empty() && self.ports.is_empty() {
            return;
        }
        let mut state = self.allocator.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.addresses.drain(..).for_each(|it| lower(&mut state.claimed.addresses, &it));
        self.ports.drain(..).for_each(|it| lower(&mut state.claimed.ports, &it));
    }
}

impl Allocate for Claims {
    fn cluster_ip(&mut self, wanted: IpAddr) -> Result<(), Unavailable> {
        let allocator = self.allocator.clone();
        let ours = number(wanted).filter(|it| allocator.0.addresses.contains(it));
        let Some(address) = ours else {
            let range = allocator.0.range.clone();
            let outside = Unavailable::IpNotInRange { ip: wanted, range };
            return Err(if self.dry_run { outside } else { Unavailable::IpInNoNetwork });
        };
        if self.dry_run {
            // As upstream: whether it is free is not looked at.
            return Ok(());
        }
        let mut state = allocator.state();
        if state.has_address(address) {
            return Err(Unavailable::IpAllocated);
        }
        raise(&mut state.claimed.addresses, address);
        self.addresses.push(address);
        Ok(())
    }

    fn any_cluster_ip(&mut self) -> Result<IpAddr, Unavailable> {
        let allocator = self.allocator.clone();
        if self.dry_run {
            // As upstream: an address that no service can have.
            return Ok(IpAddr::V4(Ipv4Addr::from(allocator.0.network)));
        }
        let mut state = allocator.state();
        let addresses = &allocator.0.addresses;
        // The size that upstream goes by is that of the network.
        let band = static_band(addresses.end - addresses.start + 2, 16, 256);
        let free = free(addresses, band, |address| !state.has_address(address));
        let free = free.ok_or(Unavailable::Full)?;
        raise(&mut state.claimed.addresses, free);
        self.addresses.push(free);
        Ok(IpAddr::V4(Ipv4Addr::from(free)))
    }

    fn node_port(&mut self, wanted: i64) -> Result<(), Unavailable> {
        let allocator = self.allocator.clone();
        let port = u32::try_from(wanted).ok().filter(|port| PORTS.contains(port));
        let mut state = allocator.state();
        if self.dry_run {
            // As upstream: any number will do that nobody has.
            let Some(port) = port else { return Ok(()) };
            if state.has_port(port) || self.ports.contains(&port) {
                return Err(Unavailable::PortAllocated);
            }
            return Ok(());
        }
        let Some(port) = port else {
            let range = format!("{}-{}", PORTS.start, PORTS.end - 1);
            return Err(Unavailable::PortNotInRange(range));
        };
        if state.has_port(port) {
            return Err(Unavailable::PortAllocated);
        }
        raise(&mut state.claimed.ports, port);
        self.ports.push(port);
        Ok(())
    }

    fn any_node_port(&mut self) -> Result<i64, Unavailable> {
        if self.dry_run {
            return Ok(DRY_RUN_PORT);
        }
        let allocator = self.allocator.clone();
        let mut state = allocator.state();
        let band = static_band(PORTS.end - PORTS.start, 32, 128);
        let free = free(&PORTS, band, |port| !state.has_port(port)).ok_or(Unavailable::Full)?;
        raise(&mut state.claimed.ports, free);
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

/// How many numbers at the start of a range are left for those who choose one themselves: a fraction
/// of it within bounds, as in Kubernetes.
fn static_band(size: u32, fraction: u32, most: u32) -> u32 {
    const LEAST: u32 = 16;
    if size <= LEAST { 0 } else { (size / fraction).clamp(LEAST, most) }
}

/// A free number, at random: from the static band only when there is none above it.
fn free(range: &Range<u32>, band: u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
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

    use gantry_store::{Change, Durability, Expect, Options, Store, Write};
    use serde_json::json;

    use super::*;

    fn allocator(bits: u8) -> (Allocator, Shelf) {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).unwrap();
        (Allocator::new(Ipv4Addr::new(10, 96, 0, 0), bits, store.clone()), store)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn every_address_is_allocated_once_and_released_with_its_claim() {
        let (allocator, _store) = allocator(28);
        let mut claims = allocator.claim(false);
        let given: BTreeSet<_> = std::iter::from_fn(|| claims.any_cluster_ip().ok()).collect();
        assert_eq!(given.len(), 14, "sixteen without network and broadcast");
        let mut others = allocator.claim(false);
        assert_eq!(others.any_cluster_ip(), Err(Unavailable::Full));
        assert_eq!(others.cluster_ip(ip("10.96.0.5")), Err(Unavailable::IpAllocated));
        drop(claims);
        assert_eq!(others.cluster_ip(ip("10.96.0.5")), Ok(()));
        for outside in ["10.96.0.0", "10.96.0.15", "10.97.0.5", "fd00::1"] {
            assert_eq!(others.cluster_ip(ip(outside)), Err(Unavailable::IpInNoNetwork));
        }
    }

    #[test]
    fn automatic_numbers_avoid_the_static_band_while_others_are_free() {
        let (allocator, _store) = allocator(24);
        let mut claims = allocator.claim(false);
        let given: Vec<_> = std::iter::from_fn(|| claims.any_cluster_ip().ok()).collect();
        assert_eq!(given.len(), 254);
        let above = given.iter().filter(|it| **it >= ip("10.96.0.17")).count();
        assert_eq!(above, 238, "a /24 has a band of sixteen");
        assert!(given[..238].iter().all(|it| *it >= ip("10.96.0.17")), "the band comes last");
        let ports: Vec<_> = std::iter::from_fn(|| claims.any_node_port().ok()).collect();
        assert_eq!(ports.len(), 2_768);
        assert!(ports[..2_768 - 86].iter().all(|it| *it >= 30_086), "the band comes last");
        for (size, fraction, most, band) in [
            (16, 16, 256, 0),
            (32, 16, 256, 16),
            (1_024, 16, 256, 64),
            (65_536, 16, 256, 256),
            (2_768, 32, 128, 86),
        ] {
            assert_eq!(static_band(size, fraction, most), band, "{size}");
        }
    }

    #[test]
    fn a_dry_run_claims_nothing() {
        let (allocator, _store) = allocator(28);
        let mut dry = allocator.claim(true);
        assert_eq!(dry.any_cluster_ip(), Ok(ip("10.96.0.0")));
        assert_eq!(dry.cluster_ip(ip("10.96.0.5")), Ok(()));
        let outside = ip("10.97.0.5");
        let range = "10.96.0.0/28".to_owned();
        let refused = Err(Unavailable::IpNotInRange { ip: outside, range });
        assert_eq!(dry.cluster_ip(outside), refused);
        assert_eq!(dry.node_port(30_080), Ok(()));
        let mut claims = allocator.claim(false);
        assert_eq!(claims.cluster_ip(ip("10.96.0.5")), Ok(()));
        assert_eq!(claims.node_port(30_080), Ok(()));
        assert_eq!(dry.node_port(30_080), Err(Unavailable::PortAllocated));
    }

    #[tokio::test]
    async fn what_is_stored_is_in_use_until_it_is_gone() {
        let (allocator, store) = allocator(28);
        let service = |port: i64| {
            let spec = json!({ "clusterIPs": ["10.96.0.5"], "ports": [{ "nodePort": port }] });
            let head = format!("{{\"spec\":{spec},\"revision\":");
            gantry_store::Value { head: head.into(), tail: "}".into() }
        };
        let write = |change| Write {
            space: SPACE.into(),
            key: "n/s".into(),
            expect: Expect::Any,
            change,
            hold: None,
        };
        for round in 0..3 {
            store.commit(write(Change::Put(service(30_080)))).await.unwrap();
            let mut claims = allocator.claim(false);
            assert_eq!(claims.cluster_ip(ip("10.96.0.5")), Err(Unavailable::IpAllocated));
            assert_eq!(claims.node_port(30_080), Err(Unavailable::PortAllocated), "{round}");
            store.commit(write(Change::Put(service(30_081)))).await.unwrap();
            assert_eq!(claims.node_port(30_080), Ok(()), "given up by a change");
            assert_eq!(claims.node_port(30_081), Err(Unavailable::PortAllocated));
            store.commit(write(Change::Delete(service(30_081)))).await.unwrap();
            assert_eq!(claims.cluster_ip(ip("10.96.0.5")), Ok(()), "given up by a deletion");
            assert_eq!(claims.node_port(30_081), Ok(()));
        }
    }
}
