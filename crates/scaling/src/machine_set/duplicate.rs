//! Copies of MachineSets: one for each type a job needs, deleted as a whole.

use std::sync::Arc;

use gantry_reconcile::{Key, Plan, Propagation, View as _, World, Write};
use serde_json::{Map, Value, json};

use super::{Careful, instance_type, is_mine, label_nodes, machines, merge, none_of};
use super::{of_type, place, relabel};
use crate::ledger::{Grant, Lot};
use crate::marks::{self, COPY, GRANT, Marks, OWNER};
use crate::reason::Reason;
use crate::view::{Machine, MachineSet, SET_LABEL};

/// A copy for a type, or a larger one.
pub(crate) fn add(
    world: &World,
    job: &Key,
    instance: &str,
    missing: u32,
) -> Result<Vec<Lot>, Reason> {
    let source = of_type(world, instance).into_iter().next();
    let source = source.ok_or_else(|| none_of(world, instance))?;
    let copy = source.metadata.key().beside(&marks::copy(job, instance));
    Ok(vec![Lot { instance: instance.to_owned(), count: missing, place: place(&copy) }])
}

/// Makes true what was granted. Returns how many nodes are ready.
///
/// # Errors
/// What keeps it from being made true.
pub(crate) fn provide(
    world: &World,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let marks = Marks::of(job);
    let mut ready = 0;
    for set in copies(world, &marks) {
        let wanted = grant.lots.iter().any(|lot| lot.place == place(&set.metadata.key()));
        if !(wanted && is_of(&set, grant)) {
            remove(&set, plan);
        }
    }
    for lot in &grant.lots {
        let Some(key) = marks::owner(&lot.place) else { continue };
        match world.shelf::<MachineSet>().get(&key) {
            Some(set) if is_copy(&set, &marks) && is_of(&set, grant) => {
                let count = i64::from(lot.count);
                if set.replicas() != count && !set.metadata.is_going() {
                    let body = json!({"spec": {"replicas": count}});
                    plan.write(merge(
                        MachineSet::RESOURCE,
                        key.clone(),
                        set.metadata.fence(),
                        body,
                    ));
                }
                ready += label(world, &key, &marks, plan);
            }
            // What is left of an older grant goes first.
            Some(set) if is_copy(&set, &marks) => {}
            Some(_) => {
                let name = key.to_string();
                return Err(Reason::NameTaken { kind: "MachineSet", name });
            }
            None => {
                let source = of_type(world, &lot.instance).into_iter().next();
                let source = source.ok_or_else(|| none_of(world, &lot.instance))?;
                let body = copy(&source, &key, lot.count, &marks, grant);
                plan.write(Write::Create { resource: MachineSet::RESOURCE, body });
            }
        }
    }
    Ok(ready)
}

/// Deletes the copies of a job. Returns whether none are left.
pub(crate) fn give_back(world: &World, job: &Key, plan: &mut Plan) -> bool {
    let copies = copies(world, &Marks::of(job));
    copies.iter().for_each(|set| remove(set, plan));
    copies.is_empty()
}

/// What was copied for a job.
pub(crate) fn found(world: &World, job: &Key) -> Vec<Lot> {
    let lot = |set: Arc<MachineSet>| {
        let count = u32::try_from(set.replicas()).ok().filter(|count| *count > 0)?;
        let instance = instance_type(&set).unwrap_or_default().to_owned();
        Some(Lot { instance, count, place: place(&set.metadata.key()) })
    };
    copies(world, &Marks::of(job)).into_iter().filter_map(lot).collect()
}

/// The grant that the copies of a job were made for, if they say so.
pub(crate) fn grant_of(world: &World, job: &Key) -> Option<String> {
    let copies = copies(world, &Marks::of(job));
    copies.iter().find_map(|set| set.metadata.labels.get(GRANT).cloned())
}

fn copies(world: &World, marks: &Marks) -> Vec<Arc<MachineSet>> {
    let mut sets = world.shelf::<MachineSet>().all();
    sets.retain(|set| is_copy(set, marks));
    sets
}

fn is_copy(set: &MachineSet, marks: &Marks) -> bool {
    set.metadata.labels.get(COPY) == Some(&marks.mine)
}

/// Whether a copy was made for this grant. Those that were made before grants had names are for any.
fn is_of(set: &MachineSet, grant: &Grant) -> bool {
    set.metadata.labels.get(GRANT).is_none_or(|id| *id == grant.id)
}

fn remove(set: &MachineSet, plan: &mut Plan) {
    if !set.metadata.is_going() {
        plan.write(Write::Delete {
            resource: MachineSet::RESOURCE,
            key: set.metadata.key(),
            fence: set.metadata.fence(),
            grace: None,
            propagation: Some(Propagation::Background),
        });
    }
}

/// Marks the machines of a copy that are in use, and their nodes.
fn label(world: &World, set: &Key, marks: &Marks, plan: &mut Plan) -> u32 {
    let machines = machines(world, set);
    for machine in machines.iter().filter(|it| it.is_running() && !is_mine(it, marks)) {
        let labels = [(marks.mine.as_str(), json!(marks.mine))];
        plan.write(relabel::<Machine>(&machine.metadata, labels, Careful::Yes));
    }
    label_nodes(world, machines.iter().filter(|it| it.is_running()), marks, None, plan)
}

/// The copy of a set. Of the source's labels those of the machine API stay, its cluster among them; the
/// copy selects its own machines and no others, however many copies a job has.
fn copy(source: &MachineSet, key: &Key, count: u32, marks: &Marks, grant: &Grant) -> Value {
    let of_api = |labels: Option<&Map<String, Value>>| -> Map<String, Value> {
        let labels = labels.into_iter().flatten();
        let kept =
            labels.filter(|(key, _)| key.contains("machine.openshift.io/") && *key != SET_LABEL);
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let own = [(marks.name.clone(), json!(marks.name)), (SET_LABEL.to_owned(), json!(key.name()))];
    let mut spec = source.spec.clone();
    let mut labels = of_api(spec["template"]["metadata"]["labels"].as_object());
    labels.extend(own.clone());
    spec["replicas"] = json!(count);
    spec["selector"] = json!({"matchLabels": Map::from_iter(own)});
    spec["template"]["metadata"]["labels"] = Value::Object(labels);
    let taint = json!({"key": marks.name, "value": "value1", "effect": "PreferNoSchedule"});
    match spec["template"]["spec"]["taints"].as_array_mut() {
        Some(taints) => taints.push(taint),
        None => spec["template"]["spec"]["taints"] = json!([taint]),
    }
    let source_labels: Map<String, Value> =
        source.metadata.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let mut labels = of_api(Some(&source_labels));
    labels.insert(COPY.to_owned(), json!(marks.mine));
    labels.insert(GRANT.to_owned(), json!(grant.id));
    json!({
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "labels": labels,
            "annotations": {OWNER: marks.owner},
        },
        "spec": spec,
    })
}
