//! Internet addresses and ranges of them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

const OF_IP: &[&str] = &["net.IP.() bool"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "ip",
        signatures: &["(string) net.IP", "net.CIDR.() net.IP"],
        charge: CostRule::Conversion,
        run: ip,
    },
    LibraryFunction {
        name: "isIP",
        signatures: &["(string) bool"],
        charge: CostRule::Text,
        run: is_ip,
    },
    LibraryFunction {
        name: "ip.isCanonical",
        signatures: &["(string) bool"],
        charge: CostRule::TextTwice,
        run: is_canonical,
    },
    LibraryFunction {
        name: "family",
        signatures: &["net.IP.() int"],
        charge: CostRule::Nominal,
        run: family,
    },
    LibraryFunction {
        name: "isUnspecified",
        signatures: OF_IP,
        charge: CostRule::Nominal,
        run: is_unspecified,
    },
    LibraryFunction {
        name: "isLoopback",
        signatures: OF_IP,
        charge: CostRule::Nominal,
        run: is_loopback,
    },
    LibraryFunction {
        name: "isLinkLocalMulticast",
        signatures: OF_IP,
        charge: CostRule::Nominal,
        run: is_link_local_multicast,
    },
    LibraryFunction {
        name: "isLinkLocalUnicast",
        signatures: OF_IP,
        charge: CostRule::Nominal,
        run: is_link_local_unicast,
    },
    LibraryFunction {
        name: "isGlobalUnicast",
        signatures: OF_IP,
        charge: CostRule::Nominal,
        run: is_global_unicast,
    },
    LibraryFunction {
        name: "cidr",
        signatures: &["(string) net.CIDR"],
        charge: CostRule::Text,
        run: cidr,
    },
    LibraryFunction {
        name: "isCIDR",
        signatures: &["(string) bool"],
        charge: CostRule::Text,
        run: is_cidr,
    },
    LibraryFunction {
        name: "containsIP",
        signatures: &["net.CIDR.(net.IP) bool", "net.CIDR.(string) bool"],
        charge: CostRule::Addresses(0),
        run: contains_ip,
    },
    LibraryFunction {
        name: "containsCIDR",
        signatures: &["net.CIDR.(net.CIDR) bool", "net.CIDR.(string) bool"],
        charge: CostRule::Addresses(1),
        run: contains_cidr,
    },
    LibraryFunction {
        name: "prefixLength",
        signatures: &["net.CIDR.() int"],
        charge: CostRule::Nominal,
        run: prefix_length,
    },
    LibraryFunction {
        name: "masked",
        signatures: &["net.CIDR.() net.CIDR"],
        charge: CostRule::Nominal,
        run: masked,
    },
];

/// An internet address, neither with a zone nor one family inside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip(IpAddr);

impl Ip {
    /// The address that `text` spells.
    ///
    /// # Errors
    /// In the words of a server when it spells none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((address, _)) = text.split_once('%')
            && address.parse::<Ipv6Addr>().is_ok()
        {
            return Err(format!("IP address {text:?} with zone value is not allowed"));
        }
        match text.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
                Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
            }
            Ok(address) => Ok(Self(address)),
            Err(_) => Err(format!(
                "IP Address {text:?} parse error during conversion from string: \
                 ParseAddr({text:?}): unable to parse IP"
            )),
        }
    }

    /// How many bytes it has.
    pub(crate) fn size(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of addresses: those that start as one of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u32,
}

impl Cidr {
    /// The range that `text` spells.
    ///
    /// # Errors
    /// In the words of a server when it spells none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fault = |what: &str| {
            let twice = "network address parse error during conversion from string: ";
            format!("{twice}{twice}netip.ParsePrefix({text:?}): {what}")
        };
        let (address, bits) = text.rsplit_once('/').ok_or_else(|| fault("no '/'"))?;
        let address: IpAddr = address
            .parse()
            .map_err(|_| fault(&format!("ParseAddr({address:?}): unable to parse IP")))?;
        let written = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        if !written || (bits.len() > 1 && bits.starts_with('0')) {
            return Err(fault(&format!("bad bits after slash: {bits:?}")));
        }
        if let IpAddr::V6(inner) = address
            && inner.to_ipv4_mapped().is_some()
        {
            return Err(format!(
                "network address parse error during conversion from string: IPv4-mapped IPv6 \
                 address {text:?} is not allowed"
            ));
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        match bits.parse() {
            Ok(bits) if bits <= most => Ok(Self { address, bits }),
            _ => Err(fault("prefix length out of range")),
        }
    }

    /// How many bytes of addresses it looks at.
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.bits.div_ceil(8)).unwrap_or(0)
    }

    /// The address with everything behind the prefix set to zero.
    fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, bits: self.bits }.network() == self.network()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn ip<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text)] => Ip::parse(text).map(Value::Ip).map_err(EvalError::failed),
        [Value::Cidr(range)] => Ok(Value::Ip(Ip(range.address))),
        _ => no_overload(),
    }
}

fn is_ip<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Ip::parse(text).is_ok()))
}

fn is_canonical<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    let address = Ip::parse(text).map_err(EvalError::failed)?;
    Ok(Value::Bool(address.to_string() == **text))
}

fn family<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Int(if address.0.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Bool(address.0.is_unspecified()))
}

fn is_loopback<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Bool(address.0.is_loopback()))
}

fn is_link_local_multicast<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Bool(match address.0 {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }))
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_unicast<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Bool(link_local_unicast(address.0)))
}

fn is_global_unicast<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Ip(Ip(address))] = args else { return no_overload() };
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    Ok(Value::Bool(
        !broadcast
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !link_local_unicast(*address),
    ))
}

fn cidr<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Cidr::parse(text).map(Value::Cidr).map_err(EvalError::failed)
}

fn is_cidr<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Cidr::parse(text).is_ok()))
}

fn contains_ip<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (range, address) = match args {
        [Value::Cidr(range), Value::Ip(address)] => (range, *address),
        [Value::Cidr(range), Value::String(text)] => {
            (range, Ip::parse(text).map_err(|_| EvalError::NoSuchOverload)?)
        }
        _ => return no_overload(),
    };
    Ok(Value::Bool(range.contains(address.0)))
}

fn contains_cidr<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (outer, inner) = match args {
        [Value::Cidr(outer), Value::Cidr(inner)] => (outer, *inner),
        [Value::Cidr(outer), Value::String(text)] => {
            (outer, Cidr::parse(text).map_err(|_| EvalError::NoSuchOverload)?)
        }
        _ => return no_overload(),
    };
    Ok(Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
}

fn prefix_length<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Int(range.bits.into()))
}

fn masked<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Cidr(Cidr { address: range.network(), bits: range.bits }))
}
