//! MachineSets of OpenShift: which gives machines of a type, and what is done to their machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Fence, Key, Meta, Part, Plan, Resource, View, World, Write};
use serde_json::{Map, Value, json};

use crate::marks::{COPY, Marks};
use crate::reason::Reason;
use crate::view::{Machine, MachineSet, Node};

pub(crate) mod duplicate;
pub(crate) mod reuse;

/// A MachineSet whose provider specification cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read spec.template.spec.providerSpec.value of MachineSet {set}: {why}")]
pub struct Malformed {
    /// The set.
    pub set: Key,
    /// What is wrong.
    pub why: &'static str,
}

/// Where the providers that are known have the type: AWS, Azure, Google.
const TYPES: [&str; 3] = ["instanceType", "vmSize", "machineType"];

/// The type of the machines of a set; empty if it names none.
///
/// # Errors
/// The provider specification is not what one is.
pub fn instance_type(set: &MachineSet) -> Result<&str, Malformed> {
    let value = &set.spec["template"]["spec"]["providerSpec"]["value"];
    let wrong = |why| Malformed { set: set.metadata.key(), why };
    let fields = match value {
        Value::Null => return Ok(""),
        Value::Object(fields) => fields,
        _ => return Err(wrong("it is no object")),
    };
    let named = TYPES.iter().find_map(|name| fields.get(*name));
    match named {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong("the type is no text")),
    }
}

/// The sets that give machines of a type, in order of their keys. Copies are somebody's already.
pub(crate) fn of_type(world: &World, instance: &str) -> Vec<Arc<MachineSet>> {
    let mut sets = world.shelf::<MachineSet>().all();
    sets.retain(|set| {
        let copied = set.metadata.labels.contains_key(COPY);
        !copied && !set.metadata.is_going() && instance_type(set) == Ok(instance)
    });
    sets
}

/// Why there is no set of a type: one that cannot be read may be what is looked for.
pub(crate) fn none_of(world: &World, instance: &str) -> Reason {
    let sets = world.shelf::<MachineSet>().all();
    match sets.iter().find_map(|set| instance_type(set).err()) {
        Some(malformed) => Reason::Malformed(malformed),
        None => Reason::NoSource { instance: instance.to_owned(), source: "MachineSet" },
    }
}

/// The machines of a set that are there, or will be; oldest first.
pub(crate) fn machines(world: &World, set: &Key) -> Vec<Arc<Machine>> {
    let mut machines = world.shelf::<Machine>().tagged(&Machine::of_set(set));
    machines.retain(|it| it.stays());
    machines.sort_by_key(|it| (it.metadata.creation_timestamp, it.metadata.key()));
    machines
}

/// Whether a machine is somebody's. Marks are labels whose value is their key, and there are no others
/// like that on machines.
pub(crate) fn is_marked(machine: &Machine) -> bool {
    machine.metadata.labels.iter().any(|(key, value)| key == value)
}

/// Whether a machine is the job's.
pub(crate) fn is_mine(machine: &Machine, marks: &Marks) -> bool {
    machine.metadata.labels.contains_key(&marks.mine)
}

/// Makes the nodes of machines bear the job's labels. Returns how many do.
pub(crate) fn label_nodes<'a>(
    world: &World,
    machines: impl IntoIterator<Item = &'a Arc<Machine>>,
    marks: &Marks,
    former: Option<&Marks>,
    plan: &mut Plan,
) -> u32 {
    let mut ready = 0;
    for machine in machines {
        let Some(node) = machine.status.node_ref.as_ref() else { continue };
        let Some(node) = world.shelf::<Node>().get(&Key::cluster(&node.name)) else { continue };
        let has = |(key, value): (&str, &str)| {
            node.metadata.labels.get(key).is_some_and(|it| it == value)
        };
        if marks.labels().into_iter().all(has) {
            ready += u32::from(machine.is_running());
            continue;
        }
        let former = former.iter().flat_map(|it| it.labels()).map(|(key, _)| (key, Value::Null));
        let mine = marks.labels().into_iter().map(|(key, value)| (key, json!(value)));
        plan.write(relabel::<Node>(&node.metadata, former.chain(mine), Careful::No));
    }
    ready
}

/// Whether a change is right only if nothing else has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Careful {
    Yes,
    No,
}

/// Changes labels; `null` takes one away.
pub(crate) fn relabel<'a, V: View>(
    meta: &Meta,
    labels: impl IntoIterator<Item = (&'a str, Value)>,
    careful: Careful,
) -> Write {
    let labels: Map<String, Value> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let fence = match careful {
        Careful::Yes => meta.fence(),
        Careful::No => Fence { uid: meta.uid.clone(), revision: None },
    };
    merge(V::RESOURCE, meta.key(), fence, json!({"metadata": {"labels": labels}}))
}

pub(crate) fn merge(resource: Resource, key: Key, fence: Fence, body: Value) -> Write {
    Write::Merge { resource, key, part: Part::Main, fence, body }
}

/// A set as the place of a lot.
pub(crate) fn place(set: &Key) -> String {
    format!("{}/{}", set.namespace(), set.name())
}

/// How many machines of a set were bought for each job, by the label that says so.
pub(crate) fn purchases(set: &MachineSet) -> BTreeMap<&str, i64> {
    let labels = set.metadata.labels.iter();
    let bought = labels.filter(|(key, _)| {
        let other = [COPY, crate::marks::GRANT].contains(&key.as_str());
        key.starts_with("instascale.codeflare.dev-") && !other
    });
    bought.filter_map(|(key, value)| Some((key.as_str(), value.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_2_the_type_is_read_from_the_provider_specification() {
        let table = [
            ("nothing is said", json!(null), Ok("")),
            (
                "of Amazon",
                json!({"instanceType": "m5.xlarge", "kind": "AWSMachineProviderConfig"}),
                Ok("m5.xlarge"),
            ),
            ("of Azure", json!({"vmSize": "Standard_D4s_v3"}), Ok("Standard_D4s_v3")),
            ("of Google", json!({"machineType": "n2-standard-4"}), Ok("n2-standard-4")),
            ("of somebody else", json!({"flavor": "large"}), Ok("")),
            ("no object", json!("m5.xlarge"), Err("it is no object")),
            ("no text", json!({"instanceType": 5}), Err("the type is no text")),
        ];
        for (why, value, expected) in table {
            let set = json!({
                "metadata": {"name": "s", "namespace": "n"},
                "spec": {"template": {"spec": {"providerSpec": {"value": value}}}},
            });
            let set: MachineSet = serde_json::from_value(set).unwrap();
            assert_eq!(instance_type(&set).map_err(|it| it.why), expected, "{why}");
        }
    }

    #[test]
    fn purchases_are_told_from_other_labels() {
        let labels = json!({
            "instascale.codeflare.dev-a-n": "2",
            "instascale.codeflare.dev-b-n": "x",
            "instascale.codeflare.dev-grant": "12",
            "instascale.codeflare.dev-aw": "7",
            "other": "3",
        });
        let set = json!({"metadata": {"name": "s", "namespace": "n", "labels": labels}});
        let set: MachineSet = serde_json::from_value(set).unwrap();
        assert_eq!(purchases(&set), BTreeMap::from([("instascale.codeflare.dev-a-n", 2)]));
    }
}
