//! Addresses and ports of services: handed out once, taken back when the service goes.
//!
//! What is in use is read from the stored services; only what is being handed out at this moment is
//! remembered here, so a restart forgets nothing.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// Hands out addresses and ports.
#[derive(Debug)]
pub(crate) struct Addresses {
    first: u32,
    count: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<u16>,
}

/// Ports that nodes open for services.
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

impl Addresses {
    /// Hands out addresses of `network/bits`. The network's own, the first (which is the server's)
    /// and the last are not given away.
    pub(crate) fn new(network: Ipv4Addr, bits: u8) -> Self {
        let count = 1_u32.checked_shl(32 - u32::from(bits.clamp(8, 30))).unwrap_or(4);
        Self { first: u32::from(network), count, state: Mutex::default() }
    }

    /// The server's own address.
    pub(crate) fn server(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.first + 1)
    }

    /// Takes an address that someone chose; `false` if it is taken or not ours.
    pub(crate) fn take(&self, address: Ipv4Addr) -> bool {
        let number = u32::from(address);
        let ours = number > self.first && number < self.first + self.count - 1;
        ours && self.state().addresses.insert(number)
    }

    /// Hands out a free address.
    pub(crate) fn any(&self) -> Option<Ipv4Addr> {
        let mut state = self.state();
        let room = self.count - 3;
        let start = fastrand::u32(..room);
        let free = (0..room)
            .map(|step| self.first + 2 + (start + step) % room)
            .find(|number| !state.addresses.contains(number))?;
        state.addresses.insert(free);
        Some(Ipv4Addr::from(free))
    }

    /// Takes a port that someone chose; `false` if it is taken or out of range.
    pub(crate) fn take_port(&self, port: u16) -> bool {
        PORTS.contains(&port) && self.state().ports.insert(port)
    }

    /// Hands out a free port.
    pub(crate) fn any_port(&self) -> Option<u16> {
        let mut state = self.state();
        let room = PORTS.end() - PORTS.start() + 1;
        let start = fastrand::u16(..room);
        let free = (0..room)
            .map(|step| PORTS.start() + (start + step) % room)
            .find(|port| !state.ports.contains(port))?;
        state.ports.insert(free);
        Some(free)
    }

    /// Takes back what a service had.
    pub(crate) fn release(&self, addresses: &[Ipv4Addr], ports: &[u16]) {
        let mut state = self.state();
        for address in addresses {
            state.addresses.remove(&u32::from(*address));
        }
        for port in ports {
            state.ports.remove(port);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_handed_out_once() {
        let addresses = Addresses::new(Ipv4Addr::new(10, 96, 0, 0), 28);
        let given: BTreeSet<_> = std::iter::from_fn(|| addresses.any()).collect();
        assert_eq!(given.len(), 13, "sixteen without network, server and broadcast");
        assert!(!given.contains(&addresses.server()));
        addresses.release(&[Ipv4Addr::new(10, 96, 0, 5)], &[]);
        assert_eq!(addresses.any(), Some(Ipv4Addr::new(10, 96, 0, 5)));
        assert!(!addresses.take(Ipv4Addr::new(10, 96, 0, 5)), "taken");
        assert!(!addresses.take(Ipv4Addr::new(10, 97, 0, 5)), "not ours");
    }

    #[test]
    fn ports_are_handed_out_once() {
        let addresses = Addresses::new(Ipv4Addr::new(10, 96, 0, 0), 16);
        assert!(addresses.take_port(30080));
        assert!(!addresses.take_port(30080));
        assert!(!addresses.take_port(80));
        let given: BTreeSet<_> = std::iter::from_fn(|| addresses.any_port()).collect();
        assert_eq!(given.len(), 2767);
    }
}
