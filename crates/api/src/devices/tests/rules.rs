//! The rules of each kind, one manifest per way to break them.

use super::{error_paths, manifest, only, warning_paths};
use crate::decode;

fn check(kind: &str, table: &[(&str, &str, &[&str])]) {
    for (why, rest, paths) in table {
        let document = only(&manifest(kind, rest));
        assert_eq!(error_paths(&document), *paths, "{why}: {:?}", document.errors);
    }
}

#[test]
fn drivers() {
    check(
        "DeviceDriver",
        &[
            ("no types", "", &["deviceTypes"]),
            ("an empty list", "deviceTypes: []\n", &["deviceTypes"]),
            ("a type twice", "deviceTypes: [a, a]\n", &["deviceTypes[1]"]),
            ("no label", "deviceTypes: [A, a.b]\n", &["deviceTypes[0]", "deviceTypes[1]"]),
            ("an unknown field", "deviceTypes: [a]\ndeviceType: b\n", &["deviceType"]),
        ],
    );
    let long = manifest("DeviceDriver", "deviceTypes: [a]\n")
        .replace("name: x", &format!("name: {}", "x".repeat(64)));
    assert_eq!(error_paths(&only(&long)), ["metadata.name"]);
    let types: Vec<String> = (0..65).map(|number| format!("t{number}")).collect();
    let many = manifest("DeviceDriver", &format!("deviceTypes: [{}]\n", types.join(", ")));
    assert_eq!(error_paths(&only(&many)), ["deviceTypes"]);
}

#[test]
fn classes() {
    check(
        "DeviceClass",
        &[
            ("no type", "spec: {}\n", &["spec.deviceType"]),
            ("a type that is no label", "spec: {deviceType: a.b}\n", &["spec.deviceType"]),
            ("a driver that is no name", "spec: {deviceType: a, driver: a b}\n", &["spec.driver"]),
            (
                "least above most",
                "spec: {deviceType: a, minDeviceCount: 2, maxDeviceCount: 1}\n",
                &["spec.maxDeviceCount"],
            ),
            ("none at all", "spec: {deviceType: a, minDeviceCount: 0}\n", &["spec.minDeviceCount"]),
            (
                "a config without its namespace",
                "spec: {deviceType: a, configs: [{apiVersion: v1, kind: ConfigMap, name: x}]}\n",
                &["spec.configs[0].namespace"],
            ),
            (
                "a Secret as config",
                "spec: {deviceType: a, configs: [{apiVersion: v1, kind: Secret, namespace: ns, name: x}]}\n",
                &["spec.configs[0].kind"],
            ),
            (
                "a config that addresses something else",
                "spec: {deviceType: a, configs: [{apiVersion: '../v1', kind: 'Config/Map', namespace: '..', name: '?watch=1'}]}\n",
                &[
                    "spec.configs[0].apiVersion",
                    "spec.configs[0].kind",
                    "spec.configs[0].name",
                    "spec.configs[0].namespace",
                ],
            ),
            (
                "every problem at once",
                "spec: {driver: 1, x: 2}\n",
                &["spec.deviceType", "spec.driver", "spec.x"],
            ),
        ],
    );
    let long = format!("spec: {{deviceType: a, constraints: {}}}\n", "é".repeat(6000));
    assert_eq!(
        error_paths(&only(&manifest("DeviceClass", &long))),
        ["spec.constraints"],
        "bytes count"
    );
}

#[test]
fn terms() {
    check(
        "DeviceClaim",
        &[
            ("no entries", "spec: {claims: []}\n", &["spec.claims"]),
            ("nothing", "spec: {}\n", &["spec.claims"]),
            ("nothing asked for", "spec: {claims: [{name: a}]}\n", &["spec.claims[0].deviceClass"]),
            (
                "class and type",
                "spec: {claims: [{deviceClass: a, deviceType: b}]}\n",
                &["spec.claims[0].deviceType"],
            ),
            (
                "two entries of one name",
                "spec: {claims: [{name: a, deviceClass: c}, {name: a, deviceClass: c}]}\n",
                &["spec.claims[1].name"],
            ),
            (
                "a name that is no label",
                "spec: {claims: [{name: A, deviceClass: c}]}\n",
                &["spec.claims[0].name"],
            ),
            (
                "fields beside oneOf",
                "spec: {claims: [{deviceClass: x, count: 2, oneOf: [{deviceClass: a}, {deviceClass: b}]}]}\n",
                &["spec.claims[0].deviceClass", "spec.claims[0].requests"],
            ),
            (
                "one alternative",
                "spec: {claims: [{oneOf: [{deviceClass: a}]}]}\n",
                &["spec.claims[0].oneOf"],
            ),
            (
                "alternatives of an alternative",
                "spec: {claims: [{oneOf: [{deviceClass: a}, {oneOf: [{deviceClass: b}]}]}]}\n",
                &["spec.claims[0].oneOf[1].oneOf"],
            ),
            (
                "an alternative that asks for nothing",
                "spec: {claims: [{oneOf: [{deviceClass: a}, {constraints: x}]}]}\n",
                &["spec.claims[0].oneOf[1].deviceClass"],
            ),
            (
                "counts that are none",
                "spec: {claims: [{deviceClass: a, requests: {count: 0}}, {deviceClass: a, requests: {count: 500m}}, {deviceClass: a, limits: {count: -1}}]}\n",
                &[
                    "spec.claims[0].requests.count",
                    "spec.claims[1].requests.count",
                    "spec.claims[2].limits.count",
                ],
            ),
            (
                "amounts below zero",
                "spec: {claims: [{deviceClass: a, requests: {memory: -1Gi}, limits: {power: -1}}]}\n",
                &["spec.claims[0].requests.memory", "spec.claims[0].limits.power"],
            ),
            (
                "a request above its limit",
                "spec: {claims: [{deviceClass: a, requests: {count: 3}, limits: {count: 2}}]}\n",
                &["spec.claims[0].limits.count"],
            ),
            (
                "counts with All",
                "spec: {claims: [{deviceClass: a, allocationMode: All, requests: {count: 2}, limits: {count: 2}}]}\n",
                &["spec.claims[0].requests.count", "spec.claims[0].limits.count"],
            ),
            (
                "requests that are neither map nor list",
                "spec: {claims: [{deviceClass: a, requests: 4}]}\n",
                &["spec.claims[0].requests"],
            ),
            (
                "an amount that is none",
                "spec: {claims: [{deviceClass: a, requests: {memory: lots}}]}\n",
                &["spec.claims[0].requests.memory"],
            ),
            (
                "an amount that is out of range",
                "spec: {claims: [{deviceClass: a, requests: {memory: 1e30}, limits: {power: 9000E}}]}\n",
                &["spec.claims[0].requests.memory", "spec.claims[0].limits.power"],
            ),
            (
                "typed requests of no kind, of two, below zero and unknown",
                "spec: {claims: [{deviceClass: a, requests: [{name: a}, {name: b, counter: {request: 1}, quantity: {request: 1}}, {name: c, counter: {request: -1}}, {nam: d, counter: {request: 1}}]}]}\n",
                &[
                    "spec.claims[0].requests[0]",
                    "spec.claims[0].requests[1].quantity",
                    "spec.claims[0].requests[2].counter.request",
                    "spec.claims[0].requests[3].name",
                    "spec.claims[0].requests[3].nam",
                ],
            ),
            (
                "a count that is no counter",
                "spec: {claims: [{deviceClass: a, requests: [{name: count, quantity: {request: 1}}]}]}\n",
                &["spec.claims[0].requests[0]"],
            ),
            (
                "tolerations that cannot match",
                "spec: {claims: [{deviceClass: a, tolerations: [{value: x}, {operator: Exists, value: x}]}]}\n",
                &["spec.claims[0].tolerations[0].key", "spec.claims[0].tolerations[1].value"],
            ),
            (
                "a config elsewhere",
                "spec: {claims: [{deviceClass: a, configs: [{apiVersion: v1, kind: ConfigMap, name: x, namespace: y}]}]}\n",
                &["spec.claims[0].configs[0].namespace"],
            ),
            (
                "a list in the place of a name",
                "spec: {claims: [{deviceClass: a, configs: [{apiVersion: v1, kind: ConfigMap, name: '?limit=5'}]}]}\n",
                &["spec.claims[0].configs[0].name"],
            ),
            (
                "a version with a query",
                "spec: {claims: [{deviceClass: a, configs: [{apiVersion: 'v1?x=y', kind: ConfigMap, name: x}, {apiVersion: /v1, kind: Foo, name: x}]}]}\n",
                &["spec.claims[0].configs[0].apiVersion", "spec.claims[0].configs[1].apiVersion"],
            ),
            (
                "a kind of the core group that may not be copied",
                "spec: {claims: [{oneOf: [{deviceClass: a, configs: [{apiVersion: v1, kind: Pod, name: x}]}, {deviceClass: b}]}]}\n",
                &["spec.claims[0].oneOf[0].configs[0].kind"],
            ),
        ],
    );
    let entries = |count: usize| vec!["{deviceClass: a}"; count].join(", ");
    let claim = |spec: String| only(&manifest("DeviceClaim", &format!("spec: {{{spec}}}\n")));
    assert_eq!(error_paths(&claim(format!("claims: [{}]", entries(33)))), ["spec.claims"]);
    assert_eq!(
        error_paths(&claim(format!("claims: [{{oneOf: [{}]}}]", entries(9)))),
        ["spec.claims[0].oneOf"]
    );
    let names: Vec<String> = (0..17).map(|number| format!("a{number}")).collect();
    let spec = format!("deviceClass: a, matchAttributes: [{}]", names.join(", "));
    assert_eq!(error_paths(&claim(spec)), ["spec.matchAttributes"]);
    let config = ["{apiVersion: v1, kind: ConfigMap, name: x}"; 9].join(", ");
    let spec = format!("deviceClass: a, configs: [{config}]");
    assert_eq!(error_paths(&claim(spec)), ["spec.claims[0].configs"]);
}

#[test]
fn a_driver_alone_or_with_a_slash_is_for_files_only() {
    for (spec, path) in [
        (r#"{"driver": "d"}"#, "spec.claims[0].deviceClass"),
        (r#"{"deviceClass": "a", "driver": "example.com/d"}"#, "spec.claims[0].driver"),
    ] {
        let value = manifest("DeviceClaim", &format!("spec: {spec}\n"));
        assert_eq!(error_paths(&only(&value)), Vec::<String>::new(), "{spec}");
        let value = gantry_yaml::read(&value).unwrap()[0].to_json();
        let findings = decode::object(&value).unwrap_err();
        assert_eq!(findings.errors[0].path.to_string(), path, "{spec}");
    }
}

#[test]
fn privileged_claims_and_templates() {
    check(
        "DevicePrivilegedClaim",
        &[
            ("no driver", "spec: {}\n", &["spec.driver"]),
            ("a class", "spec: {driver: d, deviceClass: a}\n", &["spec.deviceClass"]),
            (
                "a toleration without key",
                "spec: {driver: d, tolerations: [{value: x}]}\n",
                &["spec.tolerations[0].key"],
            ),
        ],
    );
    check(
        "DeviceClaimTemplate",
        &[
            ("no spec to make", "spec: {}\n", &["spec"]),
            (
                "two specs to make",
                "spec: {claimSpec: {deviceClass: a}, privilegedClaimSpec: {driver: d}}\n",
                &["spec.privilegedClaimSpec"],
            ),
            (
                "an old spec beside the new",
                "spec: {claimSpec: {deviceClass: a}, setClaimSpec: {claimSpec: [{deviceClass: a}]}}\n",
                &["spec.setClaimSpec"],
            ),
            (
                "a name for the claim",
                "spec: {metadata: {name: x}, claimSpec: {deviceClass: a}}\n",
                &["spec.metadata.name"],
            ),
            (
                "a wrong entry",
                "spec: {claimSpec: {claims: [{name: a}]}}\n",
                &["spec.claimSpec.claims[0].deviceClass"],
            ),
            (
                "a wrong driver",
                "spec: {privilegedClaimSpec: {driver: A_B}}\n",
                &["spec.privilegedClaimSpec.driver"],
            ),
        ],
    );
    check(
        "PodDevices",
        &[
            (
                "a reference to nothing",
                "spec: {deviceClaims: [{name: a, claimName: b}], containers: {main: [{name: c}]}}\n",
                &["spec.containers.main[0].name"],
            ),
            ("no source", "spec: {deviceClaims: [{name: a}]}\n", &["spec.deviceClaims[0]"]),
        ],
    );
}

#[test]
fn pools() {
    check(
        "DevicePool",
        &[
            ("no driver", "spec: {}\n", &["spec.driver"]),
            (
                "two places",
                "spec: {driver: d, nodeName: node, allNodes: true}\n",
                &["spec.allNodes"],
            ),
            ("a false place", "spec: {driver: d, nodeName: node, allNodes: false}\n", &[]),
            ("no place", "spec: {driver: d}\n", &[]),
            (
                "numbers that differ",
                "spec: {driver: d, deviceCount: 2, devices: [{name: a}]}\n",
                &["spec.deviceCount"],
            ),
            ("a negative number", "spec: {driver: d, deviceCount: -1}\n", &["spec.deviceCount"]),
            (
                "a device twice",
                "spec: {driver: d, devices: [{name: a}, {name: a}]}\n",
                &["spec.devices[1]"],
            ),
            (
                "attributes of no kind, of two and without a name",
                "spec: {driver: d, attributes: [{name: a}, {name: b, intValue: 1, boolValue: true}, {name: '', intValue: 1}]}\n",
                &["spec.attributes[0]", "spec.attributes[1].boolValue", "spec.attributes[2].name"],
            ),
            (
                "an attribute twice in a device",
                "spec: {driver: d, devices: [{name: x, attributes: [{name: a, intValue: 1}, {name: a, intValue: 2}]}]}\n",
                &["spec.devices[0].attributes[1]"],
            ),
            (
                "capacities of no shape and of two",
                "spec: {driver: d, resources: [{name: a}, {name: b, capacity: 1, counter: {capacity: 1}}, {name: c, blockSize: 1, quantity: {capacity: 1}}]}\n",
                &["spec.resources[0]", "spec.resources[1].counter", "spec.resources[2].blockSize"],
            ),
            (
                "amounts below zero and blocks of nothing",
                "spec: {driver: d, resources: [{name: a, capacity: -1, blockSize: 0}, {name: b, quantity: {capacity: -1}}, {name: c, block: {capacity: -1, size: 0}}]}\n",
                &[
                    "spec.resources[0].capacity",
                    "spec.resources[0].blockSize",
                    "spec.resources[1].quantity.capacity",
                    "spec.resources[2].block.capacity",
                    "spec.resources[2].block.size",
                ],
            ),
            (
                "a counter below zero",
                "spec: {driver: d, resources: [{name: a, counter: {capacity: -1}}]}\n",
                &["spec.resources[0].counter.capacity"],
            ),
            (
                "topologies of the final form",
                "spec: {driver: d, resources: [{name: a, capacity: 1, topologies: [{type: numa, name: a}]}]}\n",
                &["spec.resources[0].topologies"],
            ),
            (
                "the same part of a resource twice",
                "spec: {driver: d, devices: [{name: x, resources: [{name: a, counter: {capacity: 1}}, {name: a, counter: {capacity: 1}}]}]}\n",
                &["spec.devices[0].resources[1]"],
            ),
            (
                "two places of one type",
                "spec: {driver: d, resources: [{name: a, counter: {capacity: 1}, topologies: [{type: numa, name: a}, {type: numa, name: b}]}]}\n",
                &["spec.resources[0].topologies[1].type"],
            ),
            (
                "an effect that is none",
                "spec: {driver: d, devices: [{name: x, taints: [{key: a, effect: Never}]}]}\n",
                &["spec.devices[0].taints[0].effect"],
            ),
            (
                "a negative charge",
                "spec: {driver: d, resources: [{name: m, capacity: 1}], devices: [{name: x, requests: {m: -1}}]}\n",
                &["spec.devices[0].requests.m"],
            ),
        ],
    );
    let unknown = only(&manifest(
        "DevicePool",
        "spec: {driver: d, resources: [{name: m, capacity: 1}], devices: [{name: x, requests: {m: 1, other: 1}}]}\n",
    ));
    assert_eq!(
        warning_paths(&unknown),
        ["spec.devices[0].requests.other"],
        "the pool loads and is not used"
    );
    assert_eq!(error_paths(&unknown), Vec::<String>::new());
}
