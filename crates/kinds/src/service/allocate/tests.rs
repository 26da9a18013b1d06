use std::collections::BTreeSet;

use super::*;

/// Allocates from one upwards; 10.0.0.9 and 30009 are allocated already.
struct CountingAllocator {
    last: u8,
    ports: BTreeSet<i64>,
}

impl CountingAllocator {
    fn new() -> Self {
        Self { last: 0, ports: BTreeSet::from([30_009]) }
    }
}

impl ServiceAllocator for CountingAllocator {
    fn reserve_cluster_ip(&mut self, wanted: IpAddr) -> Result<(), AllocationError> {
        match wanted.to_string().as_str() {
            "10.0.0.9" => Err(AllocationError::IpAllocated),
            ip if ip.starts_with("10.0.0.") => Ok(()),
            _ => Err(AllocationError::IpNotInNetwork),
        }
    }

    fn allocate_cluster_ip(&mut self) -> Result<IpAddr, AllocationError> {
        self.last += 1;
        Ok(IpAddr::from([10, 0, 0, self.last]))
    }

    fn reserve_node_port(&mut self, wanted: i64) -> Result<(), AllocationError> {
        if !(30_000..=32_767).contains(&wanted) {
            return Err(AllocationError::PortNotInRange("30000-32767".to_owned()));
        }
        if self.ports.insert(wanted) { Ok(()) } else { Err(AllocationError::PortAllocated) }
    }

    fn allocate_node_port(&mut self) -> Result<i64, AllocationError> {
        let free =
            (30_001..).find(|port| !self.ports.contains(port)).ok_or(AllocationError::RangeFull)?;
        self.ports.insert(free);
        Ok(free)
    }
}

fn service(spec: &Value) -> Value {
    json!({ "metadata": { "name": "s" }, "spec": spec })
}

/// Returns node ports by protocol, or the error text.
fn ports(spec: &Value, old: Option<&Value>) -> Result<Vec<i64>, String> {
    let mut service = service(spec);
    allocate(&mut service, old, &mut CountingAllocator::new()).map_err(error_text)?;
    let numbers = list(&service, "spec.ports").iter().map(|port| port_numbers(port).1);
    let health = int(&service, "spec.healthCheckNodePort");
    Ok(numbers.chain(health).collect())
}

fn error_text(refusal: ServiceAllocationError) -> String {
    match refusal {
        ServiceAllocationError::Invalid(faults) => {
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        ServiceAllocationError::Internal(words) => format!("internal: {words}"),
        ServiceAllocationError::Failure(words) => format!("failure: {words}"),
    }
}

#[test]
fn allocations_are_made_and_kept() {
    let spec = json!({ "type": "NodePort", "ports": [{ "port": 1, "protocol": "TCP" }] });
    let mut stored = service(&spec);
    let mut from = CountingAllocator::new();
    allocate(&mut stored, None, &mut from).unwrap();
    assert_eq!(at(&stored, "spec.clusterIPs"), &json!(["10.0.0.1"]));
    assert_eq!(node_ports(&stored), [30_001]);
    let mut again = stored.clone();
    allocate(&mut again, Some(&stored), &mut from).unwrap();
    assert_eq!(again, stored, "nothing is allocated twice");
    assert_eq!(cluster_ips(&stored).collect::<Vec<_>>(), [IpAddr::from([10, 0, 0, 1])]);
}

#[test]
fn protocols_of_one_service_share_a_node_port() {
    let two = |tcp: Value, udp: Value| {
        let port = |name: &str, protocol: &str, (port, node): (i64, i64)| json!({ "name": name, "protocol": protocol, "port": port, "nodePort": node });
        let of = |it: Value| (it[0].as_i64().unwrap(), it[1].as_i64().unwrap());
        json!({ "type": "NodePort", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
            "ports": [port("t", "TCP", of(tcp)), port("u", "UDP", of(udp))] })
    };
    let taken = "Invalid value: 30080: provided port is already allocated";
    // By service port, node port: what each gets.
    let table: [(Value, Value, Result<Vec<i64>, String>); 7] = [
        (json!([53, 0]), json!([53, 0]), Ok(vec![30_001, 30_001])),
        (json!([53, 30_080]), json!([53, 30_080]), Ok(vec![30_080, 30_080])),
        (json!([53, 30_080]), json!([53, 0]), Ok(vec![30_080, 30_080])),
        (json!([53, 0]), json!([53, 30_080]), Ok(vec![30_080, 30_080])),
        (json!([53, 30_080]), json!([53, 30_081]), Ok(vec![30_080, 30_081])),
        (json!([53, 0]), json!([54, 0]), Ok(vec![30_001, 30_002])),
        // Upstream shares by service port alone when a service is created.
        (json!([53, 30_080]), json!([54, 30_080]), Err(format!("spec.ports[1].nodePort: {taken}"))),
    ];
    for (tcp, udp, expected) in table {
        assert_eq!(ports(&two(tcp.clone(), udp.clone()), None), expected, "{tcp} {udp}");
    }
    // An update may share any port it requests.
    let old = service(&json!({ "type": "ClusterIP", "clusterIP": "10.0.0.5",
        "clusterIPs": ["10.0.0.5"] }));
    let shared = two(json!([53, 30_080]), json!([54, 30_080]));
    assert_eq!(ports(&shared, Some(&old)), Ok(vec![30_080, 30_080]));
    let mut twice = two(json!([53, 30_080]), json!([54, 30_080]));
    twice["ports"][1]["protocol"] = json!("TCP");
    assert_eq!(
        ports(&twice, Some(&old)),
        Err("failure: duplicate nodePort: {TCP 30080}".to_owned())
    );
}

#[test]
fn health_checks_have_a_port_of_their_own() {
    let balancer = |policy: &str, health: i64| {
        json!({ "type": "LoadBalancer", "externalTrafficPolicy": policy,
            "healthCheckNodePort": health, "ports": [{ "port": 1, "protocol": "TCP" }] })
    };
    assert_eq!(ports(&balancer("Local", 0), None), Ok(vec![30_001, 30_002]));
    assert_eq!(ports(&balancer("Local", 30_500), None), Ok(vec![30_001, 30_500]));
    let words = "internal: failed to allocate requested HealthCheck NodePort 30009: provided port \
                 is already allocated";
    assert_eq!(ports(&balancer("Local", 30_009), None), Err(words.to_owned()));
    let mut without = balancer("Cluster", 0);
    without["allocateLoadBalancerNodePorts"] = json!(false);
    assert_eq!(ports(&without, None), Ok(vec![0, 0]), "nothing was asked for");
}

#[test]
fn allocation_errors_match_kubernetes() {
    let table = [
        (
            json!({ "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"] }),
            "spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: \
             provided IP is already allocated",
        ),
        (
            json!({ "clusterIP": "10.1.0.1", "clusterIPs": ["10.1.0.1"] }),
            "spec.clusterIPs: Invalid value: [\"10.1.0.1\"]: failed to allocate IP 10.1.0.1: the \
             provided network does not match the current range",
        ),
        (
            json!({ "clusterIP": "nonsense", "clusterIPs": ["nonsense"] }),
            "spec.clusterIPs[0]: Invalid value: \"nonsense\": must be a valid IP address, (e.g. \
             10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({ "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"] }),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this \
             cluster",
        ),
        (
            json!({ "ipFamilies": ["IPv6"] }),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4"] }),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
             configured for dual-stack services",
        ),
        (
            json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"] }),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
             'PreferDualStack' when multiple IP families are specified",
        ),
        (
            json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": 80 }] }),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. \
             The range of valid ports is 30000-32767",
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(ports(&spec, None), Err(expected.to_owned()), "{spec}");
    }
}

#[test]
fn headless_and_external_allocate_none() {
    let headless = json!({ "clusterIP": "None", "clusterIPs": ["None"] });
    for spec in [json!({ "type": "ExternalName" }), headless] {
        let mut service = service(&spec);
        allocate(&mut service, None, &mut CountingAllocator::new()).unwrap();
        assert_eq!(at(&service, "spec"), &spec);
    }
}
