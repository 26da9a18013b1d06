//! Chooses free ports.

use std::net::{Ipv4Addr, TcpListener};

/// Below the range from which Linux takes the local ends of connections (32768 and up), and below
/// that of node ports (30000 to 32767): otherwise a connection of one of our own programs could
/// take the port of another before it starts.
const PORT_RANGE: std::ops::Range<u16> = 20_000..30_000;

/// How many ports are tried before we give up; this is enough even if half the range is taken.
const MAX_PORT_TRIES: u32 = 200;

/// One port for each program that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) api_server: u16,
    pub(super) controller_manager: u16,
    pub(super) scheduler: u16,
    pub(super) kubelet: u16,
}

impl Ports {
    /// Chooses six free ports. They are held open together, so they differ, and then released:
    /// another process may take one before its program does, which the start notices and handles by
    /// choosing again.
    pub(super) fn choose(random: &mut fastrand::Rng) -> Option<Self> {
        let mut held = Vec::new();
        for _ in 0..MAX_PORT_TRIES {
            let port = random.u16(PORT_RANGE);
            held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|it| (port, it)));
            if let [(a, _), (b, _), (c, _), (d, _), (e, _), (f, _)] = held.as_slice() {
                let [etcd, etcd_peer, api_server] = [*a, *b, *c];
                let [controller_manager, scheduler, kubelet] = [*d, *e, *f];
                return Some(Self {
                    etcd,
                    etcd_peer,
                    api_server,
                    controller_manager,
                    scheduler,
                    kubelet,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ_and_avoid_what_is_taken() {
        // Tests of another process would have the same luck at the same time.
        let seed = u64::from(std::process::id());
        let choose = || Ports::choose(&mut fastrand::Rng::with_seed(seed)).unwrap();
        let first = choose();
        let Ports { etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet } = first;
        let all = [etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet];
        assert_eq!(BTreeSet::from(all).len(), all.len());
        assert!(all.iter().all(|port| PORT_RANGE.contains(port)), "{all:?}");
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, etcd)).unwrap();
        assert_ne!(choose().etcd, etcd, "the same luck, but the port is taken");
    }
}
