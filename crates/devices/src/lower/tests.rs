use gantry_api::devices::{ClaimSpec, DeviceClass, DeviceDriver, DevicePool, PrivilegedClaimSpec};
use gantry_api::finding::Source;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::constraint::Constraints;
use crate::problem::{Count, Draws, Granularity, PoolDevices, Refusal, Request, Verdict};

fn object<T: DeserializeOwned>(kind: &str, name: &str, rest: &Value) -> T {
    let mut object = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
    });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn driver(name: &str, types: &[&str]) -> DeviceDriver {
    object("DeviceDriver", name, &json!({"deviceTypes": types}))
}

fn class(name: &str, spec: &Value) -> DeviceClass {
    object("DeviceClass", name, &json!({"spec": spec}))
}

fn pool(name: &str, spec: &Value) -> DevicePool {
    object("DevicePool", name, &json!({"spec": spec}))
}

fn catalog(source: Source, classes: &[DeviceClass]) -> Catalog {
    let drivers = [driver("d.example.com", &["gpu"]), driver("e.example.com", &["gpu", "nic"])];
    Catalog::new(source, &drivers, classes)
}

fn node() -> NodeLabels {
    NodeLabels { name: "node-a".to_owned(), ..NodeLabels::default() }
}

fn snapshot(catalog: &Catalog, pools: &[DevicePool]) -> Snapshot {
    Snapshot::new(catalog, &[node()], pools)
}

/// The request of a claim with one term.
fn request(
    catalog: &Catalog,
    snapshot: &mut Snapshot,
    term: &Value,
) -> Result<LoweredRequest, ClaimError> {
    let mut term = term.clone();
    term["name"] = json!("main");
    let spec: ClaimSpec = serde_json::from_value(json!({"claims": [term]})).unwrap();
    snapshot.request(catalog, &Constraints::default(), &[("claim", ClaimSpecRef::Claim(&spec))])
}

/// Returns the problem of a term, given a class of this spec.
fn term_problem(class_spec: &Value, term: &Value) -> Option<String> {
    let catalog = catalog(Source::Server, &[class("gold", class_spec)]);
    let lowered = request(&catalog, &mut Snapshot::default(), term);
    lowered.err().map(|error| error.to_string())
}

#[test]
fn a_term_must_not_contradict_its_class() {
    let gold = json!({
        "deviceType": "gpu", "driver": "d.example.com", "minDeviceCount": 2, "maxDeviceCount": 4,
        "accessMode": "ReadWriteShared",
    });
    let table = [
        ("nothing said", json!({"deviceClass": "gold"}), None),
        (
            "another class",
            json!({"deviceClass": "silver"}),
            Some("claim claim, entry main: device class \"silver\" not found"),
        ),
        ("the same driver", json!({"deviceClass": "gold", "driver": "d.example.com"}), None),
        (
            "another driver",
            json!({"deviceClass": "gold", "driver": "e.example.com"}),
            Some(
                "claim claim, entry main: driver \"e.example.com\" is not \"d.example.com\", the driver of the device class",
            ),
        ),
        ("the same mode", json!({"deviceClass": "gold", "accessMode": "ReadWriteShared"}), None),
        (
            "another mode",
            json!({"deviceClass": "gold", "accessMode": "WriteExclusive"}),
            Some(
                "claim claim, entry main: accessMode WriteExclusive is not ReadWriteShared, the accessMode of the device class",
            ),
        ),
        ("a number within", json!({"deviceClass": "gold", "requests": {"count": "4"}}), None),
        (
            "too few",
            json!({"deviceClass": "gold", "requests": {"count": "1"}}),
            Some(
                "claim claim, entry main: requests.count 1 is outside of what the device class allows: 2 to 4",
            ),
        ),
        (
            "too many",
            json!({"deviceClass": "gold", "requests": {"count": "5"}}),
            Some(
                "claim claim, entry main: requests.count 5 is outside of what the device class allows: 2 to 4",
            ),
        ),
        (
            "a limit too far",
            json!({"deviceClass": "gold", "limits": {"count": "9"}}),
            Some(
                "claim claim, entry main: limits.count 9 is outside of what the device class allows: 2 to 4",
            ),
        ),
        (
            "no number",
            json!({"deviceClass": "gold", "requests": {"count": "1500m"}}),
            Some("claim claim, entry main: requests.count 1500m is not a number of devices"),
        ),
        (
            "all of a bounded class",
            json!({"deviceClass": "gold", "allocationMode": "All"}),
            Some(
                "claim claim, entry main: allocationMode All takes any number of devices, and the device class allows 2 to 4",
            ),
        ),
    ];
    for (why, term, expected) in table {
        assert_eq!(term_problem(&gold, &term).as_deref(), expected, "{why}");
    }
}

#[test]
fn a_term_is_completed_by_its_class() {
    let gold = json!({
        "deviceType": "gpu", "minDeviceCount": 2, "maxDeviceCount": 4, "adminAccess": true,
        "accessMode": "ReadWriteShared", "matchAttributes": ["root", "numa"],
    });
    let catalog = catalog(Source::Server, &[class("gold", &gold)]);
    let lower = |term: Value| {
        let lowered = request(&catalog, &mut Snapshot::default(), &term).unwrap();
        lowered.request.claims[0].terms[0].alternatives[0].clone()
    };
    let plain = lower(json!({"deviceClass": "gold", "matchAttributes": ["numa", "model"]}));
    assert_eq!(plain.count, Count::Between { least: 2, most: 4 });
    assert_eq!(plain.match_attributes, ["root", "numa", "model"]);
    assert_eq!(plain.mode, Some(gantry_api::devices::AccessMode::ReadWriteShared));
    assert!(plain.admin && plain.draws.is_empty());
    let more = lower(json!({
        "deviceClass": "gold", "requests": {"count": "3", "memory": "1Gi"}, "limits": {"count": "3"},
    }));
    assert_eq!(more.count, Count::exactly(3));
    assert_eq!(more.draws, Draws::Together(vec![("memory".to_owned(), "1Gi".parse().unwrap())]));
    let typed = lower(json!({"deviceClass": "gold", "requests": [
        {"name": "count", "counter": {"request": 2}}, {"name": "memory", "quantity": {"request": "1"}},
    ]}));
    assert_eq!(typed.count, Count::Between { least: 2, most: 4 });
    assert_eq!(typed.draws.names().collect::<Vec<_>>(), ["memory"]);
    let all = lower(json!({"deviceType": "gpu", "allocationMode": "All"}));
    assert_eq!((all.count, all.admin), (Count::All, false));
    let any = lower(json!({"deviceType": "gpu"}));
    assert_eq!(any.count, Count::Between { least: 1, most: u32::MAX });
}

#[test]
fn ignored_fields_become_warnings() {
    let lowered = |source, classes: &[DeviceClass], term: Value| {
        request(&catalog(source, classes), &mut Snapshot::default(), &term)
    };
    let notes = |lowered: Result<LoweredRequest, ClaimError>| {
        lowered.unwrap().warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let limits = json!({"deviceType": "gpu", "limits": {"count": "1", "memory": "1Gi"}});
    let expected = ["claim claim, entry main: the limit on \"memory\" is not enforced"];
    assert_eq!(notes(lowered(Source::Server, &[], limits)), expected);
    let never = json!({"deviceClass": "not implemented yet", "driver": "d.example.com"});
    let expected = [
        "claim claim, entry main: there are no classes here, so \"not implemented yet\" is ignored",
    ];
    assert_eq!(notes(lowered(Source::File, &[], never.clone())), expected);
    let missing = TermProblem::NoClass("not implemented yet".to_owned());
    let other = [class("gold", &json!({"deviceType": "gpu"}))];
    assert_eq!(lowered(Source::File, &other, never.clone()).unwrap_err().fault, missing);
    assert_eq!(lowered(Source::Server, &[], never).unwrap_err().fault, missing);
}

/// Returns the verdict of the only term about the devices of each pool, by its first device.
fn verdicts(snapshot: &Snapshot, request: &Request) -> Vec<Verdict> {
    let selector = request.claims[0].terms[0].alternatives[0].selector;
    let pools = snapshot.inventory.pools().iter();
    let signatures = pools.map(|pool| match &pool.devices {
        PoolDevices::Listed(devices) => devices[0].signature,
        PoolDevices::Counted(counted) => counted.signature,
    });
    signatures.map(|signature| request.verdict(selector, signature).clone()).collect()
}

#[test]
fn types_come_from_the_pool_or_else_from_its_driver() {
    use Refusal::{Constraints as False, DeviceType, Driver, Error};
    let refused = Verdict::Refused;
    let pools = [
        pool("a", &json!({"driver": "d.example.com", "deviceCount": 1})),
        pool("b", &json!({"driver": "e.example.com", "deviceCount": 1})),
        pool("c", &json!({"driver": "e.example.com", "deviceType": "nic", "deviceCount": 1})),
        pool("d", &json!({"driver": "d.example.com", "deviceType": "nic", "deviceCount": 1})),
        pool("e", &json!({"driver": "f.example.com", "deviceType": "gpu", "deviceCount": 1})),
        pool("f", &json!({"driver": "f.example.com", "deviceCount": 1})),
    ];
    let judge = |source, classes: &[DeviceClass], term: &Value| {
        let catalog = catalog(source, classes);
        let mut snapshot = snapshot(&catalog, &pools);
        let lowered = request(&catalog, &mut snapshot, term).unwrap();
        verdicts(&snapshot, &lowered.request)
    };
    let type_no = || refused(DeviceType);
    let met = || Verdict::Met;
    let by_type = json!({"deviceType": "gpu"});
    let on_server = vec![met(), met(), type_no(), type_no(), type_no(), type_no()];
    assert_eq!(judge(Source::Server, &[], &by_type), on_server, "unknown drivers have no types");
    let in_files = vec![met(), met(), type_no(), type_no(), met(), type_no()];
    assert_eq!(judge(Source::File, &[], &by_type), in_files, "files need not have the driver");
    let by_driver = json!({"deviceType": "gpu", "driver": "d.example.com"});
    let other = || refused(Driver);
    let expected = vec![met(), other(), other(), type_no(), other(), other()];
    assert_eq!(judge(Source::Server, &[], &by_driver), expected, "the driver is reported first");
    let narrow = json!({"deviceType": "gpu", "driver": "d.example.com", "constraints": "false"});
    let no = vec![refused(False), other(), other(), type_no(), other(), other()];
    assert_eq!(judge(Source::Server, &[], &narrow), no);
    // Any class of the type without administrator access gives access to its devices.
    let class_of = |name, constraints: &str, admin: bool| {
        class(name, &json!({"deviceType": "gpu", "constraints": constraints, "adminAccess": admin}))
    };
    let both = [
        class_of("a", "device.driver == 'd.example.com'", false),
        class_of("b", "device.x", false),
    ];
    let error = || refused(Error("no such key: x".to_owned()));
    let expected = vec![met(), error(), type_no(), type_no(), type_no(), type_no()];
    assert_eq!(judge(Source::Server, &both, &by_type), expected, "one class is enough");
    let admins = [class_of("a", "true", true)];
    let expected = vec![refused(False), refused(False), type_no(), type_no(), type_no(), type_no()];
    assert_eq!(
        judge(Source::Server, &admins, &by_type),
        expected,
        "administrators' classes do not count"
    );
    let mut driven = class_of("a", "true", false);
    driven.spec.driver = Some("e.example.com".to_owned());
    let expected = vec![other(), met(), type_no(), other(), other(), other()];
    assert_eq!(judge(Source::Server, &[driven], &by_type), expected, "a class may name a driver");
}

#[test]
fn a_class_is_served_by_the_drivers_of_its_type() {
    let catalog = catalog(Source::Server, &[]);
    let table = [
        ("any driver", json!({"deviceType": "gpu"}), vec!["d.example.com", "e.example.com"]),
        (
            "one driver",
            json!({"deviceType": "gpu", "driver": "e.example.com"}),
            vec!["e.example.com"],
        ),
        (
            "a driver of another type",
            json!({"deviceType": "nic", "driver": "d.example.com"}),
            vec![],
        ),
        ("no driver", json!({"deviceType": "vlan"}), vec![]),
    ];
    for (why, spec, expected) in table {
        assert_eq!(catalog.drivers_of(&class("c", &spec).spec), expected, "{why}");
    }
    let ambiguous = |spec: Value| catalog.is_ambiguous(&pool("p", &spec).spec);
    assert!(ambiguous(json!({"driver": "e.example.com"})));
    assert!(!ambiguous(json!({"driver": "e.example.com", "deviceType": "nic"})));
    assert!(!ambiguous(json!({"driver": "d.example.com"})));
}

#[test]
fn devices_share_a_profile_until_names_matter() {
    let listed = json!({"driver": "d.example.com", "nodeName": "node-a", "devices": [
        {"name": "x"}, {"name": "y"}, {"name": "z", "attributes": [{"name": "a", "intValue": 1}]},
    ]});
    let catalog = catalog(Source::Server, &[]);
    let mut snapshot = snapshot(&catalog, &[pool("p", &listed), pool("q", &listed)]);
    let columns = |snapshot: &Snapshot| -> Vec<Vec<u32>> {
        let pools = snapshot.inventory.pools().iter();
        pools
            .map(|pool| match &pool.devices {
                PoolDevices::Listed(devices) => devices.iter().map(|d| d.signature.0).collect(),
                PoolDevices::Counted(_) => Vec::new(),
            })
            .collect()
    };
    assert_eq!(columns(&snapshot), [[0, 0, 1], [0, 0, 1]]);
    let mut ask = |constraints: &str| {
        let term = json!({"deviceType": "gpu", "constraints": constraints});
        let lowered = request(&catalog, &mut snapshot, &term).unwrap();
        (columns(&snapshot), lowered.request.verdicts[0].to_vec())
    };
    let no = || Verdict::Refused(Refusal::Constraints);
    assert_eq!(ask("has(device.a)").1, [no(), Verdict::Met]);
    let (columns, verdicts) = ask("device.pool == 'q' && device.name == 'y'");
    assert_eq!(columns, [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(verdicts, [no(), no(), no(), no(), Verdict::Met, no()]);
    assert_eq!(ask("has(device.a)").1.iter().filter(|v| **v == Verdict::Met).count(), 2);
}

#[test]
fn pools_are_ordered_and_reached() {
    let at = |name: &str, nodes: &Value| {
        let mut spec = json!({"driver": "d.example.com", "deviceCount": 1});
        spec.as_object_mut().unwrap().extend(nodes.as_object().unwrap().clone());
        pool(name, &spec)
    };
    let pools = [
        at("b", &json!({"nodeName": "node-a"})),
        at("a", &json!({"allNodes": true})),
        at("c", &json!({"nodeName": "node-b"})),
        at("d", &json!({})),
    ];
    let reached = |source| {
        let snapshot = snapshot(&catalog(source, &[]), &pools);
        let names = |at: &usize| snapshot.inventory.pools()[*at].name.clone();
        snapshot.inventory.nodes()[0].pools.iter().map(names).collect::<Vec<_>>()
    };
    assert_eq!(reached(Source::File), ["b", "a"], "as given");
    assert_eq!(reached(Source::Server), ["a", "b"], "by name");
}

#[test]
fn an_inconsistent_pool_is_invalid() {
    let device = |device: Value| json!({"driver": "d.example.com", "devices": [device]});
    let table = [
        ("nothing wrong", device(json!({"name": "x"})), None),
        (
            "two ways to nodes",
            json!({"driver": "d.example.com", "nodeName": "a", "allNodes": true, "deviceCount": 1}),
            Some(
                "spec.allNodes: set beside \"nodeName\"; keep one of nodeName, nodeSelector, allNodes",
            ),
        ),
        (
            "numbers that differ",
            json!({"driver": "d.example.com", "deviceCount": 2, "devices": [{"name": "x"}]}),
            Some("spec.deviceCount: Invalid value: 2: spec.devices lists 1"),
        ),
        (
            "one name twice",
            json!({"driver": "d.example.com", "devices": [{"name": "x"}, {"name": "x"}]}),
            Some("spec.devices[1].name: Duplicate value: \"x\""),
        ),
        (
            "a charge on nothing",
            device(json!({"name": "x", "requests": {"mem": "1"}})),
            Some("device \"x\" uses \"mem\", which the pool does not list"),
        ),
        (
            "a charge on access",
            json!({"driver": "d.example.com", "resources": [{"name": "mem", "accessMode": {}}],
                "devices": [{"name": "x", "requests": {"mem": "1"}}]}),
            Some("device \"x\" uses \"mem\", which is not an amount"),
        ),
        (
            "a block of nothing",
            device(
                json!({"name": "x", "resources": [{"name": "m", "capacity": "1", "blockSize": "0"}]}),
            ),
            Some(
                "spec.devices[0].resources[0].blockSize: Invalid value: \"0\": a block must be above 0",
            ),
        ),
        (
            "two kinds of access",
            device(json!({"name": "x", "resources": [
                {"name": "a", "accessMode": {}}, {"name": "b", "accessMode": {}},
            ]})),
            Some("device \"x\" has two capacities of kind accessMode"),
        ),
    ];
    for (why, spec, expected) in table {
        let snapshot = snapshot(&catalog(Source::Server, &[]), &[pool("p", &spec)]);
        assert_eq!(snapshot.inventory.pools()[0].invalid_reason.as_deref(), expected, "{why}");
    }
}

#[test]
fn capacities_and_charges_become_amounts() {
    let spec = json!({
        "driver": "d.example.com",
        "resources": [{"name": "mem", "capacity": "8"}, {"name": "sm", "quantity": {"capacity": "7"}}],
        "devices": [{"name": "x", "requests": {"mem": "1500m", "sm": "1500m"}, "resources": [
            {"name": "a", "capacity": "3"},
            {"name": "b", "counter": {"capacity": 2}},
            {"name": "c", "quantity": {"capacity": "1500m"}},
            {"name": "d", "block": {"capacity": "4", "size": "2"},
                "topologies": [{"type": "numa", "name": "0", "groupInDevice": false}]},
            {"name": "e", "accessMode": {"allowReadOnlyShared": true, "readOnlyShared": 2}},
        ]}],
    });
    let snapshot = snapshot(&catalog(Source::Server, &[]), &[pool("p", &spec)]);
    let only = &snapshot.inventory.pools()[0];
    let PoolDevices::Listed(devices) = &only.devices else { panic!("{only:?}") };
    let unit = Granularity::UNIT;
    let charges: Vec<i128> = devices[0].charges.iter().map(|charge| charge.amount).collect();
    assert_eq!(
        charges,
        [2 * unit, 3 * unit / 2],
        "whole units by default, any amount of a quantity"
    );
    let entries: Vec<_> = devices[0]
        .capacities
        .iter()
        .map(|e| (e.granularity, e.capacity, e.domains.len(), e.splits))
        .collect();
    let expected = [
        (Granularity::Block(unit), 3 * unit, 0, true),
        (Granularity::Counter, 2 * unit, 0, true),
        (Granularity::Any, 3 * unit / 2, 0, true),
        (Granularity::Block(2 * unit), 4 * unit, 1, false),
    ];
    assert_eq!(entries, expected);
    let access = devices[0].access.map(|name| snapshot.inventory.symbols().name(name));
    assert_eq!((access, devices[0].sharing.read_only_shared), (Some("e"), 2));
}

#[test]
fn ledger_entries_become_holds() {
    let entry = |rest: Value| {
        let mut entry = json!({
            "claimRef": {"namespace": "n", "name": "c", "uid": "u"}, "term": "main",
            "accessMode": "ReadWriteShared", "state": "Bound", "since": "2026-01-01T00:00:00Z",
        });
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        entry
    };
    let listed: DevicePool = object(
        "DevicePool",
        "listed",
        &json!({
            "spec": {"driver": "d.example.com", "resources": [{"name": "mem", "capacity": "8"}],
                "devices": [{"name": "x", "requests": {"mem": "3"}, "resources": [
                    {"name": "m", "quantity": {"capacity": "4"}, "topologies": [{"type": "numa", "name": "0"}]},
                    {"name": "m", "quantity": {"capacity": "4"}, "topologies": [{"type": "numa", "name": "1"}]},
                ]}]},
            "status": {"allocations": [
                entry(json!({"deviceName": "x", "allocations": [
                    {"name": "m", "allocation": "1", "topologies": [{"type": "numa", "name": "1"}]},
                    {"name": "gone", "allocation": "1"},
                ]})),
                entry(json!({"deviceName": "x"})),
                entry(json!({"deviceName": "lost"})),
            ]},
        }),
    );
    let counted: DevicePool = object(
        "DevicePool",
        "counted",
        &json!({
            "spec": {"driver": "d.example.com", "deviceCount": 4},
            "status": {"allocations": [entry(json!({"count": 3}))]},
        }),
    );
    let mut snapshot = snapshot(&catalog(Source::File, &[]), &[listed, counted]);
    let pools = snapshot.inventory.pools();
    let (PoolDevices::Listed(devices), PoolDevices::Counted(count)) =
        (&pools[0].devices, &pools[1].devices)
    else {
        panic!("{pools:?}")
    };
    assert_eq!((devices[0].holds, devices[0].sharing.read_write_shared), (2, 2));
    let used: Vec<i128> =
        devices[0].capacities.iter().map(|entry| entry.used / Granularity::UNIT).collect();
    assert_eq!(used, [0, 1]);
    assert_eq!(pools[0].resources[0].used, 3 * Granularity::UNIT, "charged once");
    assert_eq!(count.held, 3);
    let lost = |device: &str, capacity: Option<&str>| LostHold {
        pool: "listed".to_owned(),
        device: Some(device.to_owned()),
        capacity: capacity.map(ToOwned::to_owned),
    };
    assert_eq!(snapshot.lost_holds, [lost("x", Some("gone")), lost("lost", None)]);
    let more = json!({"devicePoolName": "counted", "deviceCount": 1});
    snapshot.hold_allocation(&serde_json::from_value(more).unwrap());
    let PoolDevices::Counted(count) = &snapshot.inventory.pools()[1].devices else { panic!() };
    assert_eq!(count.held, 4);
}

#[test]
fn a_privileged_claim_takes_everything_of_a_driver() {
    let spec: PrivilegedClaimSpec = serde_json::from_value(json!({
        "driver": "d.example.com", "constraints": "has(device.a)",
        "tolerations": [{"operator": "Exists"}],
    }))
    .unwrap();
    let catalog = catalog(Source::Server, &[]);
    let wanted = [("watch", ClaimSpecRef::Privileged(&spec))];
    let lowered = Snapshot::default().request(&catalog, &Constraints::default(), &wanted).unwrap();
    let all = &lowered.request.claims[0].terms[0].alternatives[0];
    assert_eq!((all.count, all.admin, all.tolerations.len()), (Count::All, true, 1));
}

#[test]
fn pod_claims_are_resolved_or_generated() {
    use gantry_api::devices::{DeviceClaim, DeviceClaimTemplate, DevicePrivilegedClaim, PodClaims};
    let spec = json!({"claims": [{"name": "main", "deviceType": "gpu"}]});
    let claim: DeviceClaim = object("DeviceClaim", "shared", &json!({"spec": spec}));
    let template: DeviceClaimTemplate = object(
        "DeviceClaimTemplate",
        "made",
        &json!({"spec": {"metadata": {"labels": {"a": "b"}}, "claimSpec": spec}}),
    );
    let privileged: DevicePrivilegedClaim =
        object("DevicePrivilegedClaim", "watch", &json!({"spec": {"driver": "d.example.com"}}));
    let claims = [("shared".to_owned(), claim.clone()), ("both".to_owned(), claim)].into();
    let templates = [("made".to_owned(), template.clone()), ("both".to_owned(), template)].into();
    let privileged = [("watch".to_owned(), privileged)].into();
    let objects = ClaimObjects { claims: &claims, privileged: &privileged, templates: &templates };
    let pod = |source: Value| -> PodClaims {
        serde_json::from_value(json!({"deviceClaims": [source]})).unwrap()
    };
    let shown = |source: Value| {
        resolve(&pod(source), &objects).map(|entries| match &entries[0] {
            PodClaimEntry::Claim { name, .. } => format!("claim {name}"),
            PodClaimEntry::Privileged { name, .. } => format!("privileged {name}"),
            PodClaimEntry::Generate { entry, metadata, copied, .. } => {
                format!("make {entry} metadata {} copied {copied}", metadata.is_some())
            }
            PodClaimEntry::GeneratePrivileged { entry, .. } => format!("make privileged {entry}"),
        })
    };
    let table = [
        (json!({"claimName": "shared"}), Ok("claim shared")),
        (json!({"claimName": "watch"}), Ok("privileged watch")),
        (
            json!({"name": "x", "claimTemplateName": "made"}),
            Ok("make x metadata true copied false"),
        ),
        (
            json!({"name": "x", "claimTemplateName": "both"}),
            Ok("make x metadata true copied false"),
        ),
        (
            json!({"name": "x", "claimTemplateName": "shared"}),
            Ok("make x metadata false copied true"),
        ),
        (json!({"claim": spec}), Ok("make 0 metadata false copied false")),
        (json!({"claimName": "made"}), Err(ResolveError::NoClaim("made".to_owned()))),
        (json!({"claimTemplateName": "no"}), Err(ResolveError::NoTemplate("no".to_owned()))),
    ];
    for (source, expected) in table {
        let expected = expected.map(ToOwned::to_owned);
        assert_eq!(shown(source.clone()), expected, "{source}");
    }
}

#[test]
fn generated_names_keep_part_of_both() {
    let table = [
        ("short", "a", "b", "a-b-".to_owned()),
        ("just fits", &"p".repeat(50), "entry", format!("{}-entry-", "p".repeat(50))),
        ("a long pod", &"p".repeat(100), "e", format!("{}-e-", "p".repeat(54))),
        (
            "both long",
            &"p".repeat(110),
            &"e".repeat(55),
            format!("{}-{}-", "p".repeat(36), "e".repeat(19)),
        ),
        ("no dash at a cut", &format!("{}-{}", "p".repeat(53), "x".repeat(9)), "e", {
            format!("{}-e-", "p".repeat(53))
        }),
    ];
    for (why, pod, entry, expected) in table {
        let name = generated_name(pod, entry);
        assert_eq!(name, expected, "{why}");
        assert!(name.len() <= 57, "{why}: {}", name.len());
    }
}
