//! Decides which addresses a client may connect to.

use std::net::{IpAddr, Ipv6Addr};

/// Which addresses a client may connect to.
///
/// Link-local addresses are never called: clouds serve credentials there to every process of an
/// instance. The address of such a service outside the link-local range (Amazon's on IPv6) is
/// treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Neither link-local addresses nor those of this machine: for hosts that users name, because
    /// such requests must not reach services of this machine.
    NoLoopback,
    /// No link-local addresses. Loopback is allowed.
    AllowLoopback,
}

/// Why an address may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// It is link-local, or the metadata service of a cloud.
    #[error("connections to link-local addresses are not allowed")]
    LinkLocal,
    /// It is this machine.
    #[error("connections to this machine are not allowed")]
    Loopback,
    /// It is another machine, and the request is not encrypted.
    #[error("connections without TLS are only allowed to this machine")]
    PlainHttp,
}

/// The metadata service of Amazon on IPv6 networks; elsewhere it has link-local addresses.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

impl AddressPolicy {
    /// Checks an address that a name resolved to.
    ///
    /// # Errors
    /// It may not be called.
    pub fn check(self, address: IpAddr) -> Result<(), AddressRefusal> {
        // `::ffff:169.254.169.254` is 169.254.169.254 for the kernel.
        let address = address.to_canonical();
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA_V6,
        };
        if link_local {
            return Err(AddressRefusal::LinkLocal);
        }
        // Connecting to the unspecified address reaches this machine.
        let own = address.is_loopback() || address.is_unspecified();
        match self {
            Self::NoLoopback if own => Err(AddressRefusal::Loopback),
            Self::NoLoopback | Self::AllowLoopback => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_refused_however_they_are_written_and_loopback_unless_allowed() {
        let (link, own) = (Err(AddressRefusal::LinkLocal), Err(AddressRefusal::Loopback));
        let table = [
            // address, with loopback allowed, without
            ("169.254.169.254", link, link),
            ("169.254.0.1", link, link),
            ("::ffff:169.254.169.254", link, link),
            ("fe80::1", link, link),
            ("febf::1", link, link),
            ("fd00:ec2::254", link, link),
            ("127.0.0.1", Ok(()), own),
            ("127.255.0.9", Ok(()), own),
            ("::ffff:127.0.0.1", Ok(()), own),
            ("::1", Ok(()), own),
            ("0.0.0.0", Ok(()), own),
            ("::", Ok(()), own),
            ("10.0.0.1", Ok(()), Ok(())),
            ("169.253.255.255", Ok(()), Ok(())),
            ("fd00:ec2::255", Ok(()), Ok(())),
        ];
        for (text, allowed, refused) in table {
            let address = text.parse().unwrap();
            assert_eq!(AddressPolicy::AllowLoopback.check(address), allowed, "{text}");
            assert_eq!(AddressPolicy::NoLoopback.check(address), refused, "{text}");
        }
    }
}
