//! The accelerators of simulated nodes: those of ConfigMap `gpu-map` and those of claims, in the
//! ledgers of their node, so that all pods of a node agree about their places.

use std::collections::BTreeMap;
use std::path::Path;

use gantry_engine::allocation::{MAP_NAME, accelerators_of};
use gantry_engine::confinement::CAPACITY;
use gantry_engine::kubernetes::{KubernetesApi, request};
use gantry_engine::ledger::{Ledger, LedgerError, reap_all};
use gantry_process::error_chain;
use gantry_sim::programs::{AllocatedDevice, ProgramContext};
use http::Method;

/// The most accelerators of a simulated node.
const MAX_ACCELERATORS: usize = 64;

/// Returns what the devices of a claim are called. Devices of a pool of identical ones have no
/// names: the first of the pool are meant.
pub(super) fn claimed_uuids(device: &AllocatedDevice) -> Vec<String> {
    match (device.device.as_str(), device.count) {
        ("", count) => {
            let count = count.unwrap_or(1).clamp(0, 1024);
            (0..count).map(|it| format!("{}-{it}", device.pool)).collect()
        }
        (name, _) => vec![format!("{}/{name}", device.pool)],
    }
}

/// Reads the accelerators of the pod's node in ConfigMap `gpu-map` of its namespace.
pub(super) async fn read_map(
    api: &dyn KubernetesApi,
    context: &ProgramContext,
) -> BTreeMap<String, u32> {
    let namespace = context.pod.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{MAP_NAME}");
    match request(api, Method::GET, &path, "application/json", None).await {
        Ok(map) => accelerators_of(&map, &context.node),
        // There need not be one, and not every account may read it.
        Err(_) => BTreeMap::new(),
    }
}

/// Describes accelerators that are new to a node. Those of a map have their places; those of claims
/// get the next ones. The caller sees to it that only one does so at a time.
///
/// # Errors
/// Some could not be described; the others were.
pub(super) fn describe(
    ledgers: &Path,
    map: &BTreeMap<String, u32>,
    devices: &[AllocatedDevice],
    now: jiff::Timestamp,
) -> Result<(), String> {
    let failed = |error: LedgerError| error_chain(&error);
    reap_all(ledgers, now).map_err(failed)?;
    let mut places: BTreeMap<u32, String> = BTreeMap::new();
    for ledger in Ledger::all(ledgers).map_err(failed)? {
        let place = ledger.read().map_err(failed)?.accelerator.index;
        places.insert(place, ledger.uuid().to_owned());
    }
    let mut problems = Vec::new();
    let claimed = devices.iter().flat_map(claimed_uuids).map(|uuid| (uuid, None));
    let mapped = map.iter().map(|(uuid, place)| (uuid.clone(), Some(*place)));
    for (uuid, place) in mapped.chain(claimed) {
        let known = places.iter().find(|(_, it)| **it == uuid).map(|(place, _)| *place);
        let next = places.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let problem = match (known, place) {
            (Some(known), Some(place)) if known != place => {
                Some(format!("it has place {known} until the cluster is started again"))
            }
            (Some(_), _) => continue,
            (None, Some(place)) if places.contains_key(&place) => {
                Some(format!("place {place} is that of {}", places[&place]))
            }
            (None, _) if places.len() >= MAX_ACCELERATORS => {
                Some(format!("the node has {MAX_ACCELERATORS} accelerators already"))
            }
            (None, place) => {
                let place = place.unwrap_or(next);
                let described = Ledger::of(ledgers, &uuid)
                    .and_then(|it| it.describe(place, CAPACITY))
                    .map_err(failed);
                if described.is_ok() {
                    places.insert(place, uuid.clone());
                }
                described.err()
            }
        };
        problems.extend(problem.map(|it| format!("accelerator {uuid}: {it}")));
        // A map with thousands of mistakes is not worth a line for each.
        if problems.len() >= 8 {
            break;
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(device: &str, count: Option<i64>) -> AllocatedDevice {
        AllocatedDevice {
            claim: "c".into(),
            request: String::new(),
            driver: None,
            pool: "n1-gpus".into(),
            device: device.into(),
            count,
        }
    }

    #[test]
    fn devices_of_claims_have_names() {
        assert_eq!(claimed_uuids(&device("gpu-1", None)), ["n1-gpus/gpu-1"]);
        assert_eq!(claimed_uuids(&device("", Some(2))), ["n1-gpus-0", "n1-gpus-1"]);
    }

    #[test]
    fn accelerators_of_a_node_have_different_places() {
        let folder = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let map = |pairs: &[(&str, u32)]| -> BTreeMap<String, u32> {
            pairs.iter().map(|(uuid, place)| ((*uuid).to_owned(), *place)).collect()
        };
        let places = || -> Vec<(String, u32)> {
            let all = Ledger::all(folder.path()).unwrap();
            all.iter()
                .map(|it| (it.uuid().to_owned(), it.read().unwrap().accelerator.index))
                .collect()
        };
        describe(folder.path(), &map(&[("a", 0), ("b", 3)]), &[], now).unwrap();
        describe(folder.path(), &map(&[("a", 0)]), &[device("gpu-7", None)], now).unwrap();
        let expected = [("a".to_owned(), 0), ("b".to_owned(), 3), ("n1-gpus/gpu-7".to_owned(), 4)];
        assert_eq!(places(), expected);
        // What contradicts that is refused, and the rest is described.
        let wrong = map(&[("a", 1), ("c", 3), ("d d", 9), ("e", 2)]);
        let message = describe(folder.path(), &wrong, &[], now).unwrap_err();
        for part in ["a: it has place 0", "c: place 3 is that of b", "\"d d\" cannot be"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(places()[1], ("e".to_owned(), 2));
        let many = (0..100).map(|it| (format!("m{it}"), 100 + it)).collect();
        let message = describe(folder.path(), &many, &[], now).unwrap_err();
        assert!(message.contains("the node has 64 accelerators already"), "{message}");
        assert_eq!(places().len(), 64);
        assert_eq!(
            Ledger::find(folder.path(), "a").unwrap().read().unwrap().accelerator.capacity,
            CAPACITY
        );
    }
}
