//! Tests that every Rust value survives being written and read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

use crate::alias;
use crate::decode::{self, Decoded, Options};
use crate::devices::*;
use crate::finding::Findings;
use crate::meta::ObjectMeta;
use crate::object::Object;
use crate::quantity::Quantity;
use gantry_yaml::node::Node;

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,5}"
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just("yes".to_owned()), Just("1e3".to_owned()), "[ -~é]{1,12}"]
}

fn amount() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        (0_u32..5000).prop_map(Quantity::from),
        (1_u32..9, prop::sample::select(vec!["m", "G", "Mi", "Ti", "e3"]))
            .prop_map(|(number, suffix)| Quantity::parse(&format!("{number}{suffix}")).unwrap()),
    ]
}

fn count() -> impl Strategy<Value = Quantity> {
    (1_u32..9).prop_map(Quantity::from)
}

fn access_mode() -> impl Strategy<Value = AccessMode> {
    prop::sample::select(AccessMode::UPGRADE_ORDER.to_vec())
}

fn attribute() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        text().prop_map(AttributeValue::String),
        any::<i64>().prop_map(AttributeValue::Int),
        amount().prop_map(AttributeValue::Quantity),
        "[0-9]\\.[0-9]\\.[0-9](-gen[0-9])?".prop_map(AttributeValue::SemVer),
        any::<bool>().prop_map(AttributeValue::Bool),
    ]
}

/// Attributes of different names.
fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    btree_map(text(), attribute(), 0..3)
        .prop_map(|map| map.into_iter().map(|(name, value)| Attribute { name, value }).collect())
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (amount(), option::of(count()))
            .prop_map(|(capacity, block_size)| Shape::Capacity { capacity, block_size }),
        (0_i64..i64::MAX).prop_map(|capacity| Shape::Counter { counter: Counter { capacity } }),
        amount().prop_map(|capacity| Shape::Quantity { quantity: QuantityCapacity { capacity } }),
        (amount(), count())
            .prop_map(|(capacity, size)| Shape::Block { block: Block { capacity, size } }),
        (any::<(bool, bool, bool)>(), 0_u32..4, 0_u32..4).prop_map(|(allow, read, write)| {
            Shape::AccessMode {
                access_mode: Sharing {
                    allow_read_only_shared: allow.0,
                    allow_read_write_shared: allow.1,
                    allow_write_exclusive: allow.2,
                    read_only_shared: read,
                    read_write_exclusive: write,
                    ..Sharing::default()
                },
            }
        }),
    ]
}

/// Capacities of different names, those that may with a place.
fn capacities() -> impl Strategy<Value = Vec<ResourceCapacity>> {
    let place = (name(), name(), any::<bool>())
        .prop_map(|(r#type, name, group_in_device)| Topology { r#type, name, group_in_device });
    let capacity = (shape(), vec(place, 0..2)).prop_map(|(shape, mut topologies)| {
        if let Shape::Capacity { .. } = shape {
            topologies.clear();
        }
        ResourceCapacity { name: String::new(), shape, topologies }
    });
    btree_map(name(), capacity, 0..3).prop_map(|map| {
        map.into_iter().map(|(name, capacity)| ResourceCapacity { name, ..capacity }).collect()
    })
}

fn draw() -> impl Strategy<Value = RequestedCapacity> {
    prop_oneof![
        (0_i64..i64::MAX).prop_map(|request| RequestedCapacity::Counter { request }),
        amount().prop_map(|request| RequestedCapacity::Quantity { request }),
        access_mode().prop_map(|request| RequestedCapacity::AccessMode { request }),
    ]
}

fn requests() -> impl Strategy<Value = Requests> {
    let amounts = (option::of(count()), btree_map("[a-b][a-z]{0,4}", amount(), 0..3));
    prop_oneof![
        amounts.prop_map(|(count, mut amounts)| {
            amounts.extend(count.map(|count| ("count".to_owned(), count)));
            Requests::Amounts(amounts)
        }),
        vec(("[a-b][a-z]{0,4}", draw()), 0..3).prop_map(|list| {
            let request = |(name, draw)| TypedRequest { name, draw };
            Requests::Typed(list.into_iter().map(request).collect())
        }),
    ]
}

fn tolerations() -> impl Strategy<Value = Vec<Toleration>> {
    let effect = option::of(prop::sample::select(vec![
        TolerationEffect::NoSchedule,
        TolerationEffect::NoExecute,
    ]));
    let toleration = (name(), option::of(name()), effect).prop_map(|(key, value, effect)| {
        let operator = match value {
            Some(_) => TolerationOperator::Equal,
            None => TolerationOperator::Exists,
        };
        Toleration { key: Some(key), operator, value, effect }
    });
    vec(toleration, 0..3)
}

fn configs() -> impl Strategy<Value = Vec<TermConfig>> {
    let config = (name(), name()).prop_map(|(kind, name)| TermConfig {
        api_version: "example.com/v1".to_owned(),
        kind,
        name,
    });
    vec(config, 0..3)
}

fn ask() -> impl Strategy<Value = DeviceRequest> {
    let what = (any::<bool>(), name(), option::of(name()), option::of("[a-z .&']{0,9}"));
    let how_many = (option::of(requests()), btree_map(name(), amount(), 0..2), any::<bool>());
    let lists = (vec(text(), 0..3), vec(text(), 0..3));
    let rest = (option::of(access_mode()), vec(name(), 0..2), tolerations(), configs());
    (what, how_many, lists, rest).prop_map(|(what, how_many, lists, rest)| {
        let (by_class, name, driver, constraints) = what;
        let (requests, limits, exact) = how_many;
        let (class, kind) = if by_class { (Some(name), None) } else { (None, Some(name)) };
        let all = !exact && requests.as_ref().and_then(Requests::count).is_none();
        DeviceRequest {
            device_class: class,
            device_type: kind,
            driver,
            constraints,
            requests,
            limits: limits.into_iter().filter(|(name, _)| name != "count").collect(),
            allocation_mode: all.then_some(AllocationMode::All),
            match_attributes: lists.0,
            distinct_attributes: lists.1,
            access_mode: rest.0,
            topologies: rest
                .1
                .into_iter()
                .map(|r#type| TopologyRule { r#type, policy: TopologyPolicy::Require })
                .collect(),
            tolerations: rest.2,
            configs: rest.3,
        }
    })
}

fn term() -> impl Strategy<Value = (DeviceRequest, Vec<Alternative>)> {
    let alternative = (option::of(name()), ask()).prop_map(|(name, ask)| Alternative { name, ask });
    prop_oneof![
        ask().prop_map(|ask| (ask, Vec::new())),
        vec(alternative, 2..4).prop_map(|one_of| (DeviceRequest::default(), one_of)),
    ]
}

fn claim_spec() -> impl Strategy<Value = ClaimSpec> {
    (vec(text(), 0..3), vec(text(), 0..3), btree_map(name(), term(), 1..3)).prop_map(
        |(match_attributes, distinct_attributes, terms)| ClaimSpec {
            match_attributes,
            distinct_attributes,
            claims: terms
                .into_iter()
                .map(|(name, (ask, one_of))| Term { name, ask, one_of })
                .collect(),
        },
    )
}

fn privileged_spec() -> impl Strategy<Value = PrivilegedClaimSpec> {
    (name(), option::of(name()), configs(), tolerations()).prop_map(
        |(driver, constraints, configs, tolerations)| PrivilegedClaimSpec {
            driver,
            constraints,
            configs,
            tolerations,
        },
    )
}

fn condition() -> Condition {
    Condition {
        type_: "Allocated".to_owned(),
        status: "True".to_owned(),
        reason: "Allocated".to_owned(),
        message: String::new(),
        last_transition_time: timestamp(),
        observed_generation: Some(1),
    }
}

fn timestamp() -> Time {
    Time("2024-04-29T12:00:00Z".parse().unwrap())
}

fn resource_allocations() -> impl Strategy<Value = Vec<ResourceAllocation>> {
    let part =
        (name(), amount(), option::of((name(), name()))).prop_map(|(name, amount, place)| {
            let place = place.map(|(r#type, name)| TopologyAssignment { r#type, name });
            ResourceAllocation { name, allocation: amount, topologies: place.into_iter().collect() }
        });
    vec(part, 0..3)
}

fn allocation() -> impl Strategy<Value = DeviceAllocation> {
    (name(), name(), option::of(1_u32..9), access_mode(), resource_allocations()).prop_map(
        |(claim, pool, count, mode, allocations)| DeviceAllocation {
            claim_name: Some(claim),
            device_name: count.is_none().then(|| "dev-0".to_owned()),
            device_pool_name: pool,
            device_count: count,
            access_mode: Some(mode),
            allocations,
        },
    )
}

fn claim_status() -> impl Strategy<Value = ClaimStatus> {
    (
        vec(allocation(), 0..3),
        option::of(name()),
        resource_allocations(),
        btree_map(name(), 0_u32..8, 0..2),
    )
        .prop_map(|(allocations, node_name, taken, selected)| ClaimStatus {
            allocations,
            node_name,
            selected,
            class_configs: vec![
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null}}),
            ],
            reserved_for: vec![Consumer { name: "p".to_owned(), uid: "u".to_owned() }],
            pod_names: vec!["p".to_owned()],
            device_statuses: vec![DeviceStatus {
                device_pool_name: "pool".to_owned(),
                device_name: "dev-0".to_owned(),
                conditions: vec![condition()],
                device_ip: Some("10.0.0.1".to_owned()),
                device_ips: vec![DeviceAddress { ip: "10.0.0.1".to_owned() }],
                device_info: vec![json!({"any": ["thing"]})],
                allocations: taken,
            }],
            conditions: vec![condition()],
            ..ClaimStatus::default()
        })
}

fn pool() -> impl Strategy<Value = DevicePool> {
    let taint = prop::sample::select(vec![
        TaintEffect::NoSchedule,
        TaintEffect::NoExecute,
        TaintEffect::None,
    ]);
    let taints = vec((name(), option::of(name()), taint), 0..2).prop_map(|list| {
        let taint = |(key, value, effect)| Taint { key, value, effect };
        list.into_iter().map(taint).collect::<Vec<_>>()
    });
    let device = (attributes(), capacities(), taints, amount());
    let spec = (
        prop::sample::select(vec![0, 1, 2, 3]),
        name(),
        option::of(name()),
        attributes(),
        capacities(),
        btree_map(name(), device, 0..3),
        any::<bool>(),
    );
    (spec, option::of((0_u32..9, resource_allocations()))).prop_map(|(spec, status)| {
        let (place, driver, device_type, attributes, resources, devices, count) = spec;
        let charge = resources.first().map(|resource| resource.name.clone());
        let devices: Vec<Device> = devices
            .into_iter()
            .map(|(name, (attributes, resources, taints, amount))| Device {
                name,
                attributes,
                requests: charge.iter().map(|name| (name.clone(), amount)).collect(),
                resources,
                taints,
            })
            .collect();
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        DevicePool {
            metadata: named("pool"),
            spec: PoolSpec {
                node_name: (place == 1).then(|| "node".to_owned()),
                node_selector: (place == 2).then(|| serde_json::from_value(selector).unwrap()),
                all_nodes: place == 3,
                driver,
                device_type,
                attributes,
                resources,
                device_count: count.then_some(u32::try_from(devices.len()).unwrap()),
                devices,
            },
            status: status.map(|(available, allocations)| PoolStatus {
                available_devices: Some(available),
                allocations: vec![LedgerEntry {
                    claim_ref: ClaimReference::default(),
                    term: "main".to_owned(),
                    device_name: Some("dev-0".to_owned()),
                    count: None,
                    access_mode: AccessMode::ReadWriteExclusive,
                    allocations,
                    state: HoldState::Reserved,
                    since: timestamp(),
                }],
                refusals: vec![NodeRefusal {
                    owner_uid: "uid".to_owned(),
                    node_name: "node".to_owned(),
                    until: timestamp(),
                }],
                conditions: vec![condition()],
            }),
            ..DevicePool::default()
        }
    })
}

fn class() -> impl Strategy<Value = DeviceClass> {
    let counts = (option::of(1_u32..4), option::of(4_u32..9));
    let rest = (vec(text(), 0..3), option::of(access_mode()), any::<bool>());
    (name(), option::of(name()), option::of(name()), counts, rest).prop_map(
        |(device_type, driver, constraints, counts, rest)| DeviceClass {
            metadata: named("class"),
            spec: ClassSpec {
                device_type,
                driver,
                constraints,
                min_device_count: counts.0,
                max_device_count: counts.1,
                match_attributes: rest.0,
                access_mode: rest.1,
                admin_access: rest.2,
                configs: vec![ClassConfig {
                    api_version: "v1".to_owned(),
                    kind: "ConfigMap".to_owned(),
                    namespace: "ns".to_owned(),
                    name: "a".to_owned(),
                }],
            },
            status: Some(ClassStatus {
                drivers: vec!["d".to_owned()],
                conditions: vec![condition()],
            }),
            ..DeviceClass::default()
        },
    )
}

fn pod_claims() -> impl Strategy<Value = PodClaims> {
    let source = prop_oneof![
        name().prop_map(ClaimSource::ClaimName),
        name().prop_map(ClaimSource::ClaimTemplateName),
        claim_spec().prop_map(ClaimSource::Claim),
        (option::of(btree_map(name(), text(), 1..2)), claim_spec()).prop_map(|(labels, spec)| {
            let metadata =
                labels.map(|labels| TemplateMetadata { labels, annotations: BTreeMap::new() });
            ClaimSource::Template(InlineTemplate { metadata, spec })
        }),
    ];
    (btree_map(name(), source, 0..3), name()).prop_map(|(claims, container)| {
        let device_claims: Vec<PodClaim> = claims
            .into_iter()
            .map(|(name, source)| PodClaim { name: Some(name), source })
            .collect();
        let references: Vec<DeviceReference> = device_claims
            .iter()
            .filter_map(|claim| Some(DeviceReference { name: claim.name.clone()? }))
            .collect();
        PodClaims { device_claims, containers: BTreeMap::from([(container, references)]) }
    })
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn object() -> impl Strategy<Value = Object> {
    let claim = (claim_spec(), option::of(claim_status())).prop_map(|(spec, status)| {
        let claim =
            DeviceClaim { metadata: named("claim"), spec, status, ..DeviceClaim::default() };
        Object::DeviceClaim(Box::new(claim))
    });
    let privileged =
        (privileged_spec(), vec(allocation(), 0..2)).prop_map(|(spec, allocations)| {
            let status = PrivilegedClaimStatus { allocations, ..PrivilegedClaimStatus::default() };
            Object::DevicePrivilegedClaim(Box::new(DevicePrivilegedClaim {
                metadata: named("privileged"),
                spec,
                status: Some(status),
                ..DevicePrivilegedClaim::default()
            }))
        });
    let source = prop_oneof![
        claim_spec().prop_map(TemplateSource::ClaimSpec),
        privileged_spec().prop_map(TemplateSource::PrivilegedClaimSpec),
    ];
    let template = source.prop_map(|source| {
        let spec = TemplateSpec { metadata: Some(TemplateMetadata::default()), source };
        Object::DeviceClaimTemplate(Box::new(DeviceClaimTemplate {
            metadata: named("template"),
            spec,
            ..DeviceClaimTemplate::default()
        }))
    });
    let driver = prop::collection::btree_set(name(), 1..4).prop_map(|types| {
        Object::DeviceDriver(Box::new(DeviceDriver {
            metadata: named("driver"),
            device_types: types.into_iter().collect(),
            status: Some(DriverStatus { conditions: vec![condition()] }),
            ..DeviceDriver::default()
        }))
    });
    let companion = pod_claims().prop_map(|spec| {
        let devices = PodDevices { metadata: named("devices"), spec, ..PodDevices::default() };
        Object::PodDevices(Box::new(devices))
    });
    prop_oneof![
        claim,
        privileged,
        template,
        driver,
        companion,
        class().prop_map(|class| Object::DeviceClass(Box::new(class))),
        pool().prop_map(|pool| Object::DevicePool(Box::new(pool))),
    ]
}

fn nodes() -> impl Strategy<Value = Vec<NodeDevices>> {
    let device = (attributes(), capacities());
    let pool = (name(), attributes(), btree_map(name(), device, 0..3));
    btree_map(name(), btree_map(name(), pool, 0..3), 0..3).prop_map(|nodes| {
        let device = |(name, (attributes, capacities))| NodeDevice { name, attributes, capacities };
        let pool = |(name, (driver, attributes, devices)): (_, (_, _, BTreeMap<_, _>))| NodePool {
            name,
            driver,
            attributes,
            devices: devices.into_iter().map(device).collect(),
        };
        let node = |(name, pools): (_, BTreeMap<_, _>)| NodeDevices {
            name,
            pools: pools.into_iter().map(pool).collect(),
        };
        nodes.into_iter().map(node).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Writing and reading gives the same object, without findings.
    #[test]
    fn objects_come_back(object in object()) {
        let value = object.to_value().unwrap();
        let (read, findings) = decode::object(&value)
            .map_err(|findings| TestCaseError::fail(format!("{findings:?} in {value}")))?;
        prop_assert_eq!(&read, &object);
        prop_assert_eq!(findings.warnings, Vec::new());

        let text = gantry_yaml::write(&value).unwrap();
        let documents = decode::documents(&text, Options::default()).unwrap();
        prop_assert_eq!(&documents[0].content, &Decoded::Object(object), "{}", text);
        prop_assert_eq!(&documents[0].warnings, &Vec::new());
    }

    /// Canonical objects are not rewritten.
    #[test]
    fn canonical_form_is_a_fixed_point(object in object()) {
        let value = object.to_value().unwrap();
        let mut node = Node::from_json(&value);
        let mut findings = Findings::default();
        alias::rewrite(object.kind().aliases, &mut node, &mut findings);
        (object.kind().normalise)(&mut node, &mut findings);
        prop_assert_eq!(node.to_json(), value);
        prop_assert_eq!(findings, Findings::default());
    }

    #[test]
    fn inventories_come_back(nodes in nodes()) {
        let text = gantry_yaml::write(&nodes).unwrap();
        let documents = decode::documents(&text, Options::default()).unwrap();
        prop_assert_eq!(&documents[0].content, &Decoded::Nodes(nodes), "{}", text);
        prop_assert_eq!(&documents[0].warnings, &Vec::new());
    }

    #[test]
    fn capacity_claims_come_back(entries in claim_spec(), topology in name()) {
        let topology = TopologyRule { r#type: topology, policy: TopologyPolicy::Prefer };
        let part = CapacityClaim {
            name: "c".to_owned(),
            claims: entries.claims,
            topologies: vec![topology.clone()],
        };
        let claim = PodCapacityClaim {
            pod_claim: Some(part.clone()),
            container_claims: vec![part],
            topologies: vec![topology],
        };
        let text = gantry_yaml::write(&claim).unwrap();
        let documents = decode::documents(&text, Options::default()).unwrap();
        prop_assert_eq!(&documents[0].content, &Decoded::CapacityClaim(Box::new(claim)), "{}", text);
    }
}
