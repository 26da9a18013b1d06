//! Accelerators by ConfigMaps, where no device plugin allocates them: which exist on a node
//! (`gpu-map`), and which requester has which (`gpu-allocs`). Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The ConfigMap with the accelerators of each node.
pub const MAP_NAME: &str = "gpu-map";
/// The ConfigMap with the allocations.
pub const ALLOCATIONS_NAME: &str = "gpu-allocs";

/// One item of `gpu-allocs`, by the UUID of its accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Allocation {
    /// The node.
    pub node_name: String,
    /// The UID of the requester.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
}

/// Returns the accelerators of a node with their places, from the data of `gpu-map`. An item that
/// cannot be read counts as absent.
#[must_use]
pub fn accelerators_of(map: &Value, node: &str) -> BTreeMap<String, u32> {
    let item = map["data"][node].as_str();
    item.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

/// Reads `gpu-allocs`. An item that cannot be read counts as taken by nobody who is alive.
#[must_use]
pub fn allocations_of(map: &Value) -> BTreeMap<String, Allocation> {
    let data = map["data"].as_object();
    let items = data.into_iter().flatten().filter_map(|(uuid, item)| {
        Some((uuid.clone(), serde_json::from_str(item.as_str()?).ok()?))
    });
    items.collect()
}

/// Writes allocations as the data of `gpu-allocs`.
#[must_use]
pub fn data_of(allocations: &BTreeMap<String, Allocation>) -> Value {
    let items = allocations.iter().map(|(uuid, it)| {
        let item = serde_json::to_string(it).unwrap_or_default();
        (uuid.clone(), Value::String(item))
    });
    Value::Object(items.collect())
}

/// Which accelerators a requester may be given, by `NVIDIA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// All of the node.
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl Visible {
    /// Reads the variable.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        match value.map(str::trim) {
            None | Some("" | "all") => Self::All,
            Some("void" | "none") => Self::Only(BTreeSet::new()),
            Some(list) => Self::Only(list.split(',').map(|it| it.trim().to_owned()).collect()),
        }
    }
}

/// A requester that wants accelerators.
#[derive(Clone, Debug)]
pub struct Claimant<'a> {
    /// The UID of its pod.
    pub uid: &'a str,
    /// Its node.
    pub node: &'a str,
    /// How many.
    pub count: usize,
    /// Which ones it may have.
    pub visible: &'a Visible,
}

/// Why no accelerators could be allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} accelerators are wanted on node {node}, {free} are free")]
pub struct NotEnough {
    /// How many are wanted.
    pub wanted: usize,
    /// How many are free.
    pub free: usize,
    /// The node.
    pub node: String,
}

/// Allocates accelerators at random among those that are free, and returns them with the
/// allocations that are to be stored. Allocations of the claimant itself and of pods that are gone
/// do not count. `alive` has the UIDs of the pods there are.
///
/// # Errors
/// Not so many are free.
pub fn allocate(
    accelerators: &BTreeMap<String, u32>,
    allocations: &BTreeMap<String, Allocation>,
    alive: &BTreeSet<String>,
    claimant: &Claimant<'_>,
    random: &mut fastrand::Rng,
) -> Result<(Vec<String>, BTreeMap<String, Allocation>), NotEnough> {
    let Claimant { uid, node, count, visible } = claimant;
    let mut kept = allocations.clone();
    kept.retain(|_, it| it.pod_uid != *uid && alive.contains(&it.pod_uid));
    let may = |it: &&String| match visible {
        Visible::All => true,
        Visible::Only(only) => only.contains(*it),
    };
    let free = accelerators.keys().filter(|it| !kept.contains_key(*it)).filter(may);
    let mut free: Vec<String> = free.cloned().collect();
    if free.len() < *count {
        let node = (*node).to_owned();
        return Err(NotEnough { wanted: *count, free: free.len(), node });
    }
    random.shuffle(&mut free);
    free.truncate(*count);
    free.sort_by_key(|it| accelerators.get(it));
    for uuid in &free {
        let allocation = Allocation { node_name: (*node).to_owned(), pod_uid: (*uid).to_owned() };
        kept.insert(uuid.clone(), allocation);
    }
    Ok((free, kept))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_maps_are_read_and_written() {
        let map = json!({"data": {"n1": "{\"GPU-0\": 0, \"GPU-1\": 1}", "n2": "nonsense"}});
        assert_eq!(accelerators_of(&map, "n1").len(), 2);
        assert!(accelerators_of(&map, "n2").is_empty());
        assert!(accelerators_of(&map, "n3").is_empty());
        let text = r#"{"NodeName":"n1","PodUID":"u"}"#;
        let read = allocations_of(&json!({"data": {"GPU-0": text, "GPU-1": "nonsense"}}));
        assert_eq!(data_of(&read), json!({"GPU-0": text}));
    }

    #[test]
    fn allocations_respect_visibility_and_others() {
        let accelerators: BTreeMap<String, u32> =
            ["a", "b", "c"].iter().zip(0..).map(|(it, at)| ((*it).to_owned(), at)).collect();
        let held = |uuid: &str, uid: &str| {
            let it = Allocation { node_name: "n".into(), pod_uid: uid.into() };
            (uuid.to_owned(), it)
        };
        let alive: BTreeSet<String> = ["u1", "u2"].map(str::to_owned).into();
        let table = [
            // why, held by, visible, count, expected
            ("a free one of those visible", vec![held("a", "u2")], Some("b"), 1, Ok("b")),
            ("a gone pod holds nothing", vec![held("a", "u9")], Some("a"), 1, Ok("a")),
            ("its own do not count", vec![held("a", "u1")], Some("a"), 1, Ok("a")),
            ("in the order of places", vec![], None, 3, Ok("a b c")),
            ("unknown ones are ignored", vec![], Some("c,x"), 1, Ok("c")),
            ("taken", vec![held("a", "u2")], Some("a"), 1, Err(0)),
            ("too many", vec![held("a", "u2")], None, 3, Err(2)),
            ("nothing is visible", vec![], Some("none"), 1, Err(0)),
            ("nothing is wanted", vec![], Some("void"), 0, Ok("")),
        ];
        for (why, held, visible, count, expected) in table {
            let visible = Visible::parse(visible);
            let claimant = Claimant { uid: "u1", node: "n", count, visible: &visible };
            let random = &mut fastrand::Rng::with_seed(1);
            let held: BTreeMap<_, _> = held.into_iter().collect();
            let found = allocate(&accelerators, &held, &alive, &claimant, random);
            let found = found.map(|it| it.0.join(" ")).map_err(|it| it.free);
            assert_eq!(found, expected.map(str::to_owned), "{why}");
        }
    }

    proptest! {
        /// However many come in whatever order, no accelerator is given to two pods.
        #[test]
        fn no_accelerator_is_given_twice(counts in prop::collection::vec(0_usize..3, 1..8)) {
            let accelerators: BTreeMap<String, u32> =
                (0..5).map(|it| (format!("GPU-{it}"), it)).collect();
            let alive: BTreeSet<String> = (0..counts.len()).map(|it| it.to_string()).collect();
            let mut stored = BTreeMap::new();
            let mut given = 0;
            for (pod, count) in counts.iter().enumerate() {
                let uid = pod.to_string();
                let claimant =
                    Claimant { uid: &uid, node: "n", count: *count, visible: &Visible::All };
                let random = &mut fastrand::Rng::with_seed(7);
                match allocate(&accelerators, &stored, &alive, &claimant, random) {
                    Ok((mine, next)) => {
                        prop_assert!(mine.iter().all(|it| !stored.contains_key(it)));
                        given += mine.len();
                        stored = next;
                    }
                    Err(error) => prop_assert_eq!(error.free, 5 - given),
                }
            }
            prop_assert_eq!(stored.len(), given);
        }
    }
}
