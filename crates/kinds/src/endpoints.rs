//! Validates Endpoints and EndpointSlices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, each, int, is_empty, list, put, set_default, text};

pub(crate) const ENDPOINTS_RULES: Rules = Rules {
    default: |object| {
        for subset in each(object, "subsets") {
            for port in each(subset, "ports") {
                set_default(port, "protocol", "TCP");
            }
        }
    },
    validate: |object| check_endpoints(object).into_vec(),
    validate_update: |new, _| check_endpoints(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const SLICE_RULES: Rules = Rules {
    default: |object| {
        for port in each(object, "ports") {
            if !port.get("name").is_some_and(Value::is_string) {
                put(port, "name", "");
            }
            set_default(port, "protocol", "TCP");
        }
    },
    validate: |object| check_slice(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_slice(new);
        faults.immutable(new, old, &Path::new(""), "addressType");
        faults.into_vec()
    },
    ..Rules::NONE
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

fn check_endpoints(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    for (place, subset) in list(object, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(place);
        if is_empty(subset, "addresses") && is_empty(subset, "notReadyAddresses") {
            faults.required(path.clone(), "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (place, address) in list(subset, field).iter().enumerate() {
                let path = path.child(field).index(place);
                let ip = text(address, "ip");
                faults.invalid_text(&path.child("ip"), ip, names::ip(ip));
                let host = text(address, "hostname");
                if !host.is_empty() {
                    faults.invalid_text(&path.child("hostname"), host, names::label(host));
                }
                if let Some(node) = at(address, "nodeName").as_str() {
                    faults.invalid_text(&path.child("nodeName"), node, names::subdomain(node));
                }
                check_endpoint_ip(ip, &path.child("ip"), &mut faults);
            }
        }
        let ports = list(subset, "ports");
        for (place, port) in ports.iter().enumerate() {
            let path = path.child("ports").index(place);
            let name = text(port, "name");
            if !name.is_empty() {
                faults.invalid_text(&path.child("name"), name, names::label(name));
            } else if ports.len() > 1 {
                faults.required(path.child("name"), "");
            }
            let number = int(port, "port").unwrap_or_default();
            for complaint in names::port_number(number) {
                faults.value(path.child("port"), number, &complaint);
            }
            faults.require_one_of(port, &path, "protocol", &PROTOCOLS);
        }
    }
    faults
}

/// Checks an address that other hosts can reach.
pub(crate) fn check_endpoint_ip(ip: &str, path: &Path, faults: &mut FieldErrors) {
    let Ok(address) = ip.parse::<IpAddr>() else {
        faults.value(path.clone(), ip, "must be a valid IP address");
        return;
    };
    let link_local = match address {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.segments()[0] & 0xffc0 == 0xfe80,
    };
    let link_multicast = match address {
        IpAddr::V4(it) => it.octets()[..3] == [224, 0, 0],
        IpAddr::V6(it) => it.segments()[0] & 0xff0f == 0xff02,
    };
    let table = [
        (address.is_unspecified(), format!("may not be unspecified ({ip})")),
        (
            address.is_loopback() && !is_simulated_pod_address(address),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
        ),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (
            link_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ];
    for (applies, detail) in table {
        if applies {
            faults.value(path.clone(), ip, &detail);
        }
    }
}

/// Returns whether a simulated pod may have the address: all of 127.0.0.0/8 but its first
/// sixteenth, where everything else on this machine listens. Kubernetes rejects these too, but its
/// pods have networks of their own.
fn is_simulated_pod_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_loopback() && it.octets()[1] >= 16,
        IpAddr::V6(_) => false,
    }
}

fn check_slice(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let root = Path::new("");
    let kind = text(object, "addressType");
    faults.require_one_of(object, &root, "addressType", &["FQDN", "IPv4", "IPv6"]);
    for (place, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = Path::new("endpoints").index(place);
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            faults.required(path.child("addresses"), "must contain at least 1 address");
        } else if addresses.len() > 100 {
            faults.add(gantry_schema::FieldError::too_many(
                path.child("addresses"),
                addresses.len(),
                100,
            ));
        }
        for (place, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let all = path.child("addresses");
            check_slice_address(kind, address, &all, &all.index(place), &mut faults);
        }
        if let Some(host) = at(endpoint, "hostname").as_str() {
            faults.invalid_text(&path.child("hostname"), host, names::label(host));
        }
        if let Some(node) = at(endpoint, "nodeName").as_str() {
            faults.invalid_text(&path.child("nodeName"), node, names::subdomain(node));
        }
    }
    let mut seen = BTreeSet::new();
    for (place, port) in list(object, "ports").iter().enumerate() {
        let path = Path::new("ports").index(place);
        let name = text(port, "name");
        if !name.is_empty() {
            faults.invalid_text(&path.child("name"), name, names::label(name));
        }
        if !seen.insert(name) {
            faults.duplicate(path.child("name"), name);
        }
        faults.require_one_of(port, &path, "protocol", &PROTOCOLS);
        if let Some(protocol) = at(port, "appProtocol").as_str() {
            faults.invalid_text(&path.child("appProtocol"), protocol, names::qualified(protocol));
        }
    }
    faults
}

fn check_slice_address(
    kind: &str,
    address: &str,
    all: &Path,
    path: &Path,
    faults: &mut FieldErrors,
) {
    match kind {
        "IPv4" | "IPv6" => {
            if !names::ip(address).is_empty() {
                faults.invalid_text(path, address, names::ip(address));
                return;
            }
            let is_four = address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4());
            if is_four != (kind == "IPv4") {
                faults.value(all.clone(), address, &format!("must be an {kind} address"));
            }
            check_endpoint_ip(address, path, faults);
        }
        "FQDN" => faults.invalid_text(path, address, names::subdomain(address)),
        _ => {}
    }
}
