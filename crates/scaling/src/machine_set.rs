//! MachineSets of OpenShift: which one provides machines of a type, and how their machines are
//! labelled.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Fence, Key, Meta, Plan, Resource, Subresource, View, World, Write};
use serde_json::{Map, Value, json};

use crate::owner_labels::{COPY_LABEL, OwnerLabels};
use crate::reason::Reason;
use crate::view::{Machine, MachineSet, Node};

pub(crate) mod duplicate;
pub(crate) mod reuse;

/// A MachineSet whose provider specification cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read spec.template.spec.providerSpec.value of MachineSet {set}: {why}")]
pub struct MalformedMachineSet {
    /// The set.
    pub set: Key,
    /// What is wrong.
    pub why: &'static str,
}

/// The field of the instance type at the known providers: AWS, Azure, Google.
const INSTANCE_TYPE_FIELDS: [&str; 3] = ["instanceType", "vmSize", "machineType"];

/// Returns the instance type of the machines of a set; empty if it names none.
///
/// # Errors
/// Fails if the provider specification is malformed.
pub fn instance_type(set: &MachineSet) -> Result<&str, MalformedMachineSet> {
    let value = &set.spec["template"]["spec"]["providerSpec"]["value"];
    let wrong = |why| MalformedMachineSet { set: set.metadata.key(), why };
    let fields = match value {
        Value::Null => return Ok(""),
        Value::Object(fields) => fields,
        _ => return Err(wrong("it is no object")),
    };
    let named = INSTANCE_TYPE_FIELDS.iter().find_map(|name| fields.get(*name));
    match named {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong("the type is no text")),
    }
}

/// Returns the sets that provide machines of a type, in order of their keys. Copies belong to a job
/// already.
pub(crate) fn of_type(world: &World, instance: &str) -> Vec<Arc<MachineSet>> {
    let mut sets = world.store::<MachineSet>().list();
    sets.retain(|set| {
        let copied = set.metadata.labels.contains_key(COPY_LABEL);
        !copied && !set.metadata.is_terminating() && instance_type(set) == Ok(instance)
    });
    sets
}

/// Returns why there is no set of a type: one that cannot be read may be the one.
pub(crate) fn no_source_reason(world: &World, instance: &str) -> Reason {
    let sets = world.store::<MachineSet>().list();
    match sets.iter().find_map(|set| instance_type(set).err()) {
        Some(malformed) => Reason::Malformed(malformed),
        None => Reason::NoSource { instance: instance.to_owned(), source: "MachineSet" },
    }
}

/// Returns the machines of a set that exist or are being provisioned; oldest first.
pub(crate) fn machines(world: &World, set: &Key) -> Vec<Arc<Machine>> {
    let mut machines = world.store::<Machine>().by_index(&Machine::set_tag(set));
    machines.retain(|it| it.is_kept());
    machines.sort_by_key(|it| (it.metadata.creation_timestamp, it.metadata.key()));
    machines
}

/// Returns whether a machine belongs to a job. Owner labels are labels whose value is their key,
/// and machines have no others like that.
pub(crate) fn has_owner(machine: &Machine) -> bool {
    machine.metadata.labels.iter().any(|(key, value)| key == value)
}

/// Returns whether a machine belongs to the job.
pub(crate) fn is_owned_by(machine: &Machine, marks: &OwnerLabels) -> bool {
    machine.metadata.labels.contains_key(&marks.owner_label)
}

/// Adds the job's labels to the nodes of machines. Returns how many have them.
pub(crate) fn label_nodes<'a>(
    world: &World,
    machines: impl IntoIterator<Item = &'a Arc<Machine>>,
    marks: &OwnerLabels,
    former: Option<&OwnerLabels>,
    plan: &mut Plan,
) -> u32 {
    let mut ready = 0;
    for machine in machines {
        let Some(node) = machine.status.node_ref.as_ref() else { continue };
        let Some(node) = world.store::<Node>().get(&Key::cluster(&node.name)) else { continue };
        let has = |(key, value): (&str, &str)| {
            node.metadata.labels.get(key).is_some_and(|it| it == value)
        };
        if marks.labels().into_iter().all(has) {
            ready += u32::from(machine.is_running());
            continue;
        }
        let former = former.iter().flat_map(|it| it.labels()).map(|(key, _)| (key, Value::Null));
        let mine = marks.labels().into_iter().map(|(key, value)| (key, json!(value)));
        plan.write(relabel::<Node>(&node.metadata, former.chain(mine), Fencing::Unfenced));
    }
    ready
}

/// Whether a change is valid only if nothing else has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fencing {
    Fenced,
    Unfenced,
}

/// Changes labels; `null` removes one.
pub(crate) fn relabel<'a, V: View>(
    meta: &Meta,
    labels: impl IntoIterator<Item = (&'a str, Value)>,
    careful: Fencing,
) -> Write {
    let labels: Map<String, Value> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let fence = match careful {
        Fencing::Fenced => meta.fence(),
        Fencing::Unfenced => Fence { uid: meta.uid.clone(), revision: None },
    };
    merge_patch(V::RESOURCE, meta.key(), fence, json!({"metadata": {"labels": labels}}))
}

pub(crate) fn merge_patch(resource: Resource, key: Key, fence: Fence, body: Value) -> Write {
    Write::Merge { resource, key, subresource: Subresource::Main, fence, body }
}

/// Returns the name of a set as the source of an allocation.
pub(crate) fn source_name(set: &Key) -> String {
    format!("{}/{}", set.namespace(), set.name())
}

/// Returns how many machines of a set were bought for each job, by the label that records it.
pub(crate) fn purchases(set: &MachineSet) -> BTreeMap<&str, i64> {
    let labels = set.metadata.labels.iter();
    let bought = labels.filter(|(key, _)| {
        let other = [COPY_LABEL, crate::owner_labels::GRANT_LABEL].contains(&key.as_str());
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
            ("of another provider", json!({"flavor": "large"}), Ok("")),
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
    fn purchases_are_distinguished_from_other_labels() {
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
