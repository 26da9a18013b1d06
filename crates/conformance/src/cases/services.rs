//! Cluster addresses and node ports of services.

use serde_json::{Value, json};

use super::objects::{SERVICES, object_path, with_query};
use crate::case::{Case, Outcome, case};
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("service-addresses-refused", [], addresses),
    case!("service-node-ports-refused", [], node_ports),
    case!("service-node-ports-shared", [], shared_node_ports),
    case!("service-allocations-undone", [], rollback),
    case!("service-health-check-ports", [], health_checks),
];

fn service(name: &str, spec: &Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "ports": [{ "port": 80 }] },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

/// A service with one node port. The numbers are of the band that no server chooses itself.
fn node_port(name: &str, number: u16) -> Value {
    service(name, &json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": number }] }))
}

async fn addresses(talk: &mut Session) -> Outcome {
    let table = [
        (
            json!({ "clusterIP": "10.96.0.1" }),
            "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: failed to allocate IP 10.96.0.1: \
             provided IP is already allocated",
        ),
        (
            json!({ "clusterIP": "192.0.2.1" }),
            "spec.clusterIPs: Invalid value: [\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: the \
             provided network does not match the current range",
        ),
        (
            json!({ "clusterIP": "fd00::1" }),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this \
             cluster",
        ),
        (
            json!({ "ipFamilies": ["IPv6"] }),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({ "ipFamilyPolicy": "RequireDualStack" }),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
             configured for dual-stack services",
        ),
    ];
    for (spec, words) in table {
        let message = format!("Service \"a\" is invalid: {words}");
        talk.post(SERVICES, &service("a", &spec)).await?.expect_error(422, "Invalid", &message)?;
    }
    let dry = with_query(SERVICES, "dryRun=All");
    let outside = service("a", &json!({ "clusterIP": "192.0.2.1" }));
    let message = "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"192.0.2.1\"]: \
                   failed to allocate IP 192.0.2.1: the provided IP (192.0.2.1) is not in the \
                   valid range. The range of valid IPs is 10.96.0.0/16";
    talk.post(&dry, &outside).await?.expect_error(422, "Invalid", message)?;
    Ok(())
}

async fn node_ports(talk: &mut Session) -> Outcome {
    talk.create(SERVICES, &node_port("a", 30_050)).await?;
    for (number, words) in [
        (30_050, "provided port is already allocated"),
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ] {
        let message = format!(
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: {number}: {words}"
        );
        let answer = talk.post(SERVICES, &node_port("b", number)).await?;
        answer.expect_error(422, "Invalid", &message)?;
    }
    talk.delete(&object_path(SERVICES, "a")).await?.expect(200)?;
    talk.create(SERVICES, &node_port("b", 30_050)).await?;
    Ok(())
}

async fn shared_node_ports(talk: &mut Session) -> Outcome {
    let dns = |tcp: u16, udp: u16| {
        service(
            "dns",
            &json!({ "type": "NodePort", "ports": [
                { "name": "tcp", "protocol": "TCP", "port": 53, "nodePort": tcp },
                { "name": "udp", "protocol": "UDP", "port": 53, "nodePort": udp },
            ] }),
        )
    };
    for (tcp, udp) in [(30_051, 30_051), (30_051, 0), (0, 30_051)] {
        let made = talk.create(SERVICES, &dns(tcp, udp)).await?;
        made.has_value("/spec/ports/0/nodePort", &json!(30_051))?;
        made.has_value("/spec/ports/1/nodePort", &json!(30_051))?;
        talk.post(SERVICES, &node_port("other", 30_051)).await?.expect(422)?;
        talk.delete(&object_path(SERVICES, "dns")).await?.expect(200)?;
    }
    Ok(())
}

async fn rollback(talk: &mut Session) -> Outcome {
    talk.create(SERVICES, &service("there", &json!({ "clusterIP": "None" }))).await?;
    // Each asks for the port and does not get stored.
    let mut invalid = node_port("a", 30_052);
    invalid["spec"]["ports"][0]["targetPort"] = json!("~");
    talk.post(SERVICES, &invalid).await?.expect(422)?;
    talk.post(SERVICES, &node_port("there", 30_052)).await?.expect(409)?;
    let mut second = node_port("a", 30_052);
    second["spec"]["ports"] = json!([
        { "name": "one", "port": 1, "nodePort": 30_052 },
        { "name": "two", "port": 2, "nodePort": 80 },
    ]);
    talk.post(SERVICES, &second).await?.expect(422)?;
    let dry = RequestSpec::post(with_query(SERVICES, "dryRun=All"), &node_port("a", 30_052));
    talk.send_unrecorded(dry).await?.expect(201)?;
    talk.create(SERVICES, &node_port("a", 30_052)).await?;
    Ok(())
}

async fn health_checks(talk: &mut Session) -> Outcome {
    let balancer = |name: &str, port: u16| {
        service(
            name,
            &json!({
                "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "externalTrafficPolicy": "Local", "healthCheckNodePort": port,
            }),
        )
    };
    let made = talk.create(SERVICES, &balancer("a", 30_053)).await?;
    made.has_value("/spec/healthCheckNodePort", &json!(30_053))?;
    let message = "Internal error occurred: failed to allocate requested HealthCheck NodePort \
                   30053: provided port is already allocated";
    let answer = talk.post(SERVICES, &balancer("b", 30_053)).await?;
    answer.expect_error(500, "InternalError", message)?;
    let only =
        "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
    let message =
        format!("Service \"b\" is invalid: spec.healthCheckNodePort: Invalid value: 30054: {only}");
    let plain = service("b", &json!({ "healthCheckNodePort": 30_054 }));
    talk.post(SERVICES, &plain).await?.expect_error(422, "Invalid", &message)?;
    let cluster = json!({ "spec": { "externalTrafficPolicy": "Cluster" } });
    let merge = crate::session::PatchType::Merge;
    let changed = talk.patch(&object_path(SERVICES, "a"), merge, &cluster).await?.expect(200)?;
    changed.has_no_value("/spec/healthCheckNodePort")?;
    talk.create(SERVICES, &balancer("c", 30_053)).await?;
    Ok(())
}
