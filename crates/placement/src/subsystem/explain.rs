//! The `explain` page for device claims.

use gantry_api::devices::DeviceClaim;
use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use serde_json::json;

use crate::views::DeviceObject;

/// The page about claims.
pub(super) const CLAIM: ExplainPage = ExplainPage {
    resource: || DeviceObject::<DeviceClaim>::RESOURCE,
    kinds: || vec![Kind::of::<DeviceObject<DeviceClaim>>()],
    explain,
};

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    let ExplainRequest { key, world, values, .. } = request;
    let claim = world.store::<DeviceObject<DeviceClaim>>().get(key)?;
    let status = &claim.status;
    let mut lines = Vec::new();
    if let Err(problem) = &claim.object {
        lines.push(format!("is invalid: {problem}"));
    }
    if !values.is_on("devices.enabled") {
        lines.push("the operator's devices.enabled is false: nothing is allocated".to_owned());
    }
    let place = status.node_name.as_deref().map_or_else(String::new, |it| format!(" on node {it}"));
    match status.allocations.as_slice() {
        [] => {
            let pod = "nothing is allocated; gantry schedule POD --explain shows which devices a \
                       pod that uses it would get, and why not others";
            lines.push(pod.to_owned());
        }
        held => {
            for it in held {
                let what = match (&it.device_name, it.device_count) {
                    (Some(name), _) => name.clone(),
                    (None, Some(count)) => format!("{count} devices"),
                    (None, None) => "devices".to_owned(),
                };
                lines.push(format!("holds {what} of pool {}{place}", it.device_pool_name));
            }
        }
    }
    match status.pod_names.as_slice() {
        [] => {}
        pods => lines.push(format!("used by {}", pods.join(", "))),
    }
    Some(Explanation {
        title: "devices",
        lines,
        facts: json!({
            "allocations": status.allocations,
            "nodeName": status.node_name,
            "podNames": status.pod_names,
        }),
    })
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Key, World};
    use gantry_subsystem::settings::{Layer, Origin, Values};
    use jiff::Timestamp;

    use super::*;
    use crate::subsystem::configuration::KEYS;

    #[test]
    fn a_claim_shows_its_devices_and_consumers() {
        let world = World::new((CLAIM.kinds)());
        let claim = |name: &str, status: serde_json::Value| {
            json!({"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim",
                "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
                "spec": {"claims": [{"name": "a", "deviceClass": "gpu"}]}, "status": status})
        };
        let held = json!({"nodeName": "node-1", "podNames": ["p"],
            "allocations": [{"devicePoolName": "pool", "deviceName": "gpu-0"}]});
        let store = world.single_store_for(&DeviceObject::<DeviceClaim>::RESOURCE).unwrap();
        for object in [claim("held", held), claim("open", json!({}))] {
            store.observe(&object.to_string()).unwrap().unwrap();
        }
        let mut on = Layer::default();
        on.set("devices.enabled", true.into(), Origin::Default);
        let ask = |name: &str, layers: &[Layer]| {
            let values = Values::from_layers(KEYS, layers);
            let (key, now) = (Key::new("n", name), Timestamp::UNIX_EPOCH);
            explain(&ExplainRequest {
                key: &key,
                world: &world,
                unread: &[],
                reports: &[],
                values: &values,
                now,
            })
        };
        let said = ask("held", std::slice::from_ref(&on)).unwrap();
        assert_eq!(said.lines, ["holds gpu-0 of pool pool on node node-1", "used by p"]);
        let said = ask("open", &[]).unwrap();
        assert!(said.lines[0].contains("devices.enabled is false"), "{said:?}");
        assert!(said.lines[1].contains("gantry schedule POD --explain"), "{said:?}");
        assert_eq!(ask("gone", &[on]), None);
    }
}
