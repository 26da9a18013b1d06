//! Compares the wire format with Kubernetes' own encoder.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_builtin::wire::{self, WireError};
use gantry_builtin::{kind_type, read};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::golden;

#[derive(Deserialize)]
struct Golden {
    special: BTreeMap<String, Pair>,
    every: Vec<Pair>,
}

#[derive(Clone, Deserialize)]
struct Pair {
    wire: String,
    json: Value,
}

impl Pair {
    fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.wire).unwrap()
    }
}

fn pairs() -> Golden {
    golden(include_bytes!("golden/wire.json.gz"))
}

#[test]
fn special_values_come_off_the_wire_as_json_has_them() {
    let pairs = pairs().special;
    assert_eq!(pairs.len(), 20);
    for (name, pair) in pairs {
        let decoded = wire::decode(&pair.bytes()).unwrap();
        assert_eq!(decoded.value.to_string(), pair.json.to_string(), "{name}");
    }
}

/// One object of every kind, filled with random values by Kubernetes' own types: this checks each
/// number, each name and each index in the table, for JSON and for the wire.
#[test]
fn every_kind_comes_off_the_wire_and_out_of_json() {
    let pairs = pairs().every;
    assert!(pairs.len() > 70, "{}", pairs.len());
    for pair in pairs {
        let decoded = wire::decode(&pair.bytes()).unwrap();
        let name = format!("{} {}", decoded.api_version, decoded.kind);
        assert_eq!(decoded.value.to_string(), pair.json.to_string(), "{name}");
        let (group, version) =
            decoded.api_version.split_once('/').unwrap_or(("", &decoded.api_version));
        let again =
            read(kind_type(group, version, &decoded.kind).unwrap(), pair.json.clone()).unwrap();
        assert_eq!(again.value.to_string(), pair.json.to_string(), "{name}");
        assert_eq!(again.unknown, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn hostile_bodies_are_refused() {
    let pod = kind_type("", "v1", "Pod").unwrap();
    let schema = gantry_builtin::named_type(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    )
    .unwrap();

    // Each level is `not`, field 28, around the one before.
    let mut deep = Vec::new();
    for _ in 0..1000 {
        let mut outer = vec![0xe2, 0x01];
        let mut length = deep.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend(&deep);
        deep = outer;
    }
    assert!(matches!(wire::decode_message(schema, &deep), Err(WireError::TooDeep)));

    // A pod whose spec is nothing but empty containers, two bytes each.
    let containers = [0x12, 0].repeat(300_000);
    let mut many = vec![0x12, 0xc0, 0xcf, 0x24];
    many.extend(&containers);
    assert!(matches!(wire::decode_message(pod, &many), Err(WireError::TooMany)));

    assert!(matches!(wire::decode(b"{}"), Err(WireError::NotAnEnvelope)));
    assert!(matches!(wire::decode(b"k8s\0"), Err(WireError::UnknownKind { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Randomly corrupted objects are rejected or read, but never cause a panic.
    #[test]
    fn broken_bytes_do_no_harm(
        which in any::<prop::sample::Index>(),
        breaks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local!(static BODIES: Vec<Vec<u8>> = {
            let golden = pairs();
            golden.special.values().chain(&golden.every).map(Pair::bytes).collect()
        });
        let mut body = BODIES.with(|bodies| which.get(bodies).clone());
        for (at, byte) in breaks {
            let at = 4 + at.index(body.len() - 4);
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        if let Ok(decoded) = wire::decode(&body) {
            let (group, version) =
                decoded.api_version.split_once('/').unwrap_or(("", &decoded.api_version));
            let id = kind_type(group, version, &decoded.kind).unwrap();
            let again = read(id, decoded.value.clone()).unwrap();
            prop_assert_eq!(again.value, decoded.value);
        }
    }
}
