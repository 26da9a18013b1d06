//! Addresses and ports that a server hands out.

use gantry_schema::Invalid;
use serde_json::{Value, json};

use super::{is_headless, needs_node_port};
use crate::tree::{at, each, int, is_empty, list, put, text};

/// Where addresses and ports come from. Implementations remember what is taken.
pub trait Allocate {
    /// Takes this address, or any free one.
    ///
    /// # Errors
    ///
    /// When the address is taken or outside the range, or none is left.
    fn cluster_ip(&mut self, wanted: Option<&str>) -> Result<String, Refusal>;

    /// Takes this port of every node, or any free one.
    ///
    /// # Errors
    ///
    /// When the port is taken or outside the range, or none is left.
    fn node_port(&mut self, wanted: Option<i64>, protocol: &str) -> Result<i64, Refusal>;
}

/// Why an address or a port cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Someone else has it.
    #[error("provided {what} is already allocated")]
    Taken {
        /// `IP` or `port`.
        what: &'static str,
    },
    /// It is not the server's to give.
    #[error("the provided {what} is not in the valid range. The range of valid {what}s is {range}")]
    OutOfRange {
        /// `IP` or `port`.
        what: &'static str,
        /// What would do.
        range: String,
    },
    /// All are taken.
    #[error("range is full")]
    Full,
}

/// Gives a service the addresses and ports it needs. To be called last, when everything else about
/// the object is known to be fine; `old` is the stored object of an update.
///
/// # Errors
///
/// When something cannot be had; what was taken before is the caller's to give back.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    from: &mut dyn Allocate,
) -> Result<(), Vec<Invalid>> {
    if text(service, "spec.type") == "ExternalName" {
        return Ok(());
    }
    let had_ip = old.is_some_and(|old| !is_empty(old, "spec.clusterIP"));
    if !is_headless(service) && !had_ip {
        let wanted = list(service, "spec.clusterIPs").first().and_then(Value::as_str);
        let wanted = wanted.map(str::to_owned);
        match from.cluster_ip(wanted.as_deref()) {
            Ok(ip) => {
                put(service, "spec.clusterIP", ip.as_str());
                put(service, "spec.clusterIPs", vec![json!(ip)]);
            }
            Err(refusal) => {
                let ips: Vec<&str> = wanted.as_deref().into_iter().collect();
                let detail = match &wanted {
                    Some(ip) => format!("failed to allocate IP {ip}: {refusal}"),
                    None => format!("failed to allocate a serviceIP: {refusal}"),
                };
                return Err(vec![Invalid::value("spec.clusterIPs", &json!(ips), &detail)]);
            }
        }
    }
    if !needs_node_port(service) {
        return Ok(());
    }
    let before: Vec<(String, i64)> = old.map(node_ports).unwrap_or_default();
    for (place, port) in each(service, "spec.ports").enumerate() {
        let wanted = int(port, "nodePort").filter(|number| *number != 0);
        let protocol = text(port, "protocol").to_owned();
        if wanted.is_some_and(|number| before.contains(&(protocol.clone(), number))) {
            continue;
        }
        match from.node_port(wanted, &protocol) {
            Ok(number) => put(port, "nodePort", number),
            Err(refusal) => {
                let field = format!("spec.ports[{place}].nodePort");
                let value = at(port, "nodePort").clone();
                return Err(vec![Invalid::value(field, &value, &refusal.to_string())]);
            }
        }
    }
    Ok(())
}

/// The addresses and node ports that `old` had and `new` has no longer. Without `new` the service
/// is gone.
#[must_use]
pub fn released(old: &Value, new: Option<&Value>) -> (Vec<String>, Vec<i64>) {
    let ips = |service: &Value| -> Vec<String> {
        let all = list(service, "spec.clusterIPs").iter().filter_map(Value::as_str);
        all.filter(|ip| *ip != "None").map(str::to_owned).collect()
    };
    let kept_ips = new.map(ips).unwrap_or_default();
    let kept_ports = new.map(node_ports).unwrap_or_default();
    let gone = ips(old).into_iter().filter(|ip| !kept_ips.contains(ip)).collect();
    let ports = node_ports(old).into_iter().filter(|port| !kept_ports.contains(port));
    (gone, ports.map(|(_, number)| number).collect())
}

fn node_ports(service: &Value) -> Vec<(String, i64)> {
    let ports = list(service, "spec.ports").iter();
    ports
        .filter_map(|port| Some((text(port, "protocol").to_owned(), int(port, "nodePort")?)))
        .filter(|(_, number)| *number != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out numbers from one upwards; 9 is taken.
    struct Counter(u8);

    impl Allocate for Counter {
        fn cluster_ip(&mut self, wanted: Option<&str>) -> Result<String, Refusal> {
            match wanted {
                Some("10.0.0.9") => Err(Refusal::Taken { what: "IP" }),
                Some(ip) => Ok(ip.to_owned()),
                None => {
                    self.0 += 1;
                    Ok(format!("10.0.0.{}", self.0))
                }
            }
        }

        fn node_port(&mut self, wanted: Option<i64>, _: &str) -> Result<i64, Refusal> {
            self.0 += 1;
            Ok(wanted.unwrap_or_else(|| 30_000 + i64::from(self.0)))
        }
    }

    #[test]
    fn a_service_gets_what_it_needs_and_keeps_it() {
        let mut service = json!({ "spec": {
            "type": "NodePort", "ports": [{ "port": 1, "protocol": "TCP" }],
        } });
        let mut from = Counter(0);
        allocate(&mut service, None, &mut from).unwrap();
        assert_eq!(at(&service, "spec.clusterIPs"), &json!(["10.0.0.1"]));
        assert_eq!(
            at(&service, "spec.ports"),
            &json!([
                { "port": 1, "protocol": "TCP", "nodePort": 30_002 },
            ])
        );
        let stored = service.clone();
        allocate(&mut service, Some(&stored), &mut from).unwrap();
        assert_eq!(service, stored, "nothing is taken twice");
        assert_eq!(released(&stored, Some(&service)), (vec![], vec![]));
        assert_eq!(released(&stored, None), (vec!["10.0.0.1".to_owned()], vec![30_002]));
    }

    #[test]
    fn a_taken_address_is_refused_in_the_words_of_a_server() {
        let mut service = json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.0.0.9",
            "clusterIPs": ["10.0.0.9"] } });
        let refused = allocate(&mut service, None, &mut Counter(0)).unwrap_err();
        assert_eq!(
            refused[0].to_string(),
            "spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: \
             provided IP is already allocated"
        );
    }

    #[test]
    fn headless_and_external_services_take_nothing() {
        for spec in [json!({ "type": "ExternalName" }), json!({ "clusterIP": "None" })] {
            let mut service = json!({ "spec": spec });
            allocate(&mut service, None, &mut Counter(0)).unwrap();
            assert_eq!(at(&service, "spec"), &spec);
        }
    }
}
