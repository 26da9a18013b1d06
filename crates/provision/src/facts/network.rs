//! The network of a host: addresses, ports in use, and packet filters.

use serde::{Deserialize, Serialize};

use super::sections::Sections;

/// The network of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Addresses, but for those of the loopback interface.
    pub addresses: Vec<Address>,
    /// The interface of the default route.
    pub default_interface: Option<String>,
    /// The largest packet of that interface.
    pub mtu: Option<u32>,
    /// Name servers.
    pub name_servers: Vec<String>,
    /// TCP ports on which something listens.
    pub listeners: Vec<Listener>,
    /// Who manages packet filters.
    pub firewall: Firewall,
}

/// An address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address with the length of its prefix.
    pub address: String,
}

/// A process that listens on a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// The address.
    pub address: String,
    /// The name of the process, which only root sees.
    pub process: Option<String>,
    /// Its id.
    pub pid: Option<u32>,
}

/// Who manages packet filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firewall {
    /// Nobody, as far as is known.
    #[default]
    None,
    /// ufw.
    Ufw,
    /// firewalld.
    Firewalld,
    /// The unit of nftables.
    Nftables,
}

impl Network {
    pub(super) fn parse(sections: &Sections<'_>) -> Self {
        let route = sections.line("routes");
        let default_interface = after(&route, "dev").map(str::to_owned);
        let links = sections.lines("links");
        let mtu = default_interface.as_deref().and_then(|interface| {
            let is_it = |line: &&&str| {
                line.split_whitespace().nth(1).is_some_and(|name| {
                    name.trim_end_matches(':').split('@').next() == Some(interface)
                })
            };
            links.iter().find(is_it).and_then(|line| after(line, "mtu")?.parse().ok())
        });
        let resolv = sections.lines("resolv");
        let servers = resolv.iter().filter_map(|line| line.strip_prefix("nameserver"));
        let active = super::active_units(sections);
        let firewall = [
            ("ufw", Firewall::Ufw),
            ("firewalld", Firewall::Firewalld),
            ("nftables", Firewall::Nftables),
        ];
        let firewall = firewall.into_iter().find(|(unit, _)| active.contains(*unit));
        Self {
            addresses: sections.lines("addresses").iter().filter_map(|it| address(it)).collect(),
            default_interface,
            mtu,
            name_servers: servers.map(|it| it.trim().to_owned()).collect(),
            listeners: sections.lines("listeners").iter().filter_map(|it| listener(it)).collect(),
            firewall: firewall.map_or(Firewall::None, |(_, it)| it),
        }
    }

    /// What listens on a port.
    #[must_use]
    pub fn listener(&self, port: u16) -> Option<&Listener> {
        self.listeners.iter().find(|it| it.port == port)
    }
}

fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|it| *it == word)?;
    words.next()
}

/// Reads a line of `ip -o addr`: `2: eth0    inet 10.0.0.1/24 brd …`.
fn address(line: &str) -> Option<Address> {
    let interface = line.split_whitespace().nth(1)?;
    let address = after(line, "inet").or_else(|| after(line, "inet6"))?;
    (interface != "lo")
        .then(|| Address { interface: interface.to_owned(), address: address.to_owned() })
}

/// Reads a line of `ss -Hltnp`: `LISTEN 0 4096 *:10250 *:* users:(("kubelet",pid=812,fd=15))`.
fn listener(line: &str) -> Option<Listener> {
    let local = line.split_whitespace().nth(3)?;
    let (address, port) = local.rsplit_once(':')?;
    let process = line.split_once("((\"").and_then(|(_, rest)| rest.split('"').next());
    let pid = line.split_once("pid=").and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    });
    Some(Listener {
        port: port.parse().ok()?,
        address: address.trim_matches(['[', ']']).to_owned(),
        process: process.map(str::to_owned),
        pid,
    })
}
