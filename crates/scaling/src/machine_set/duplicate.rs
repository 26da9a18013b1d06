//! Copies of MachineSets: one for each type a job needs, deleted as a whole.

use std::sync::Arc;

use gantry_reconcile::{Key, Plan, Propagation, View as _, World, Write};
use serde_json::{Map, Value, json};

use super::{
    Fencing, instance_type, is_owned_by, label_nodes, machines, merge_patch, no_source_reason,
};
use super::{of_type, relabel, source_name};
use crate::grant_record::{Grant, NodeAllocation};
use crate::owner_labels::{self, COPY_LABEL, GRANT_LABEL, OWNER_ANNOTATION, OwnerLabels};
use crate::reason::Reason;
use crate::view::{Machine, MachineSet, SET_LABEL};

/// Allocates a copy for a type, or enlarges one.
pub(crate) fn allocate(
    world: &World,
    job: &Key,
    instance: &str,
    missing: u32,
) -> Result<Vec<NodeAllocation>, Reason> {
    let source = of_type(world, instance).into_iter().next();
    let source = source.ok_or_else(|| no_source_reason(world, instance))?;
    let copy = source.metadata.key().in_same_namespace(&owner_labels::copy_name(job, instance));
    Ok(vec![NodeAllocation {
        instance: instance.to_owned(),
        count: missing,
        place: source_name(&copy),
    }])
}

/// Provisions what was granted. Returns how many nodes are ready.
///
/// # Errors
/// Fails with what prevents that.
pub(crate) fn provide(
    world: &World,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let marks = OwnerLabels::of(job);
    let mut ready = 0;
    for set in copies(world, &marks) {
        let wanted = grant.lots.iter().any(|lot| lot.place == source_name(&set.metadata.key()));
        if !(wanted && is_for_grant(&set, grant)) {
            delete_copy(&set, plan);
        }
    }
    for lot in &grant.lots {
        let Some(key) = owner_labels::parse_owner(&lot.place) else { continue };
        match world.store::<MachineSet>().get(&key) {
            Some(set) if is_copy(&set, &marks) && is_for_grant(&set, grant) => {
                let count = i64::from(lot.count);
                if set.replicas() != count && !set.metadata.is_terminating() {
                    let body = json!({"spec": {"replicas": count}});
                    plan.write(merge_patch(
                        MachineSet::RESOURCE,
                        key.clone(),
                        set.metadata.fence(),
                        body,
                    ));
                }
                ready += label_machines(world, &key, &marks, plan);
            }
            // What is left of an older grant is deleted first.
            Some(set) if is_copy(&set, &marks) => {}
            Some(_) => {
                let name = key.to_string();
                return Err(Reason::NameTaken { kind: "MachineSet", name });
            }
            None => {
                let source = of_type(world, &lot.instance).into_iter().next();
                let source = source.ok_or_else(|| no_source_reason(world, &lot.instance))?;
                let body = copy(&source, &key, lot.count, &marks, grant);
                plan.write(Write::Create { resource: MachineSet::RESOURCE, body });
            }
        }
    }
    Ok(ready)
}

/// Deletes the copies of a job. Returns whether none are left.
pub(crate) fn release(world: &World, job: &Key, plan: &mut Plan) -> bool {
    let copies = copies(world, &OwnerLabels::of(job));
    copies.iter().for_each(|set| delete_copy(set, plan));
    copies.is_empty()
}

/// Returns what was copied for a job.
pub(crate) fn existing(world: &World, job: &Key) -> Vec<NodeAllocation> {
    let lot = |set: Arc<MachineSet>| {
        let count = u32::try_from(set.replicas()).ok().filter(|count| *count > 0)?;
        let instance = instance_type(&set).unwrap_or_default().to_owned();
        Some(NodeAllocation { instance, count, place: source_name(&set.metadata.key()) })
    };
    copies(world, &OwnerLabels::of(job)).into_iter().filter_map(lot).collect()
}

/// Returns the grant that the copies of a job were created for, if they name it.
pub(crate) fn grant_of(world: &World, job: &Key) -> Option<String> {
    let copies = copies(world, &OwnerLabels::of(job));
    copies.iter().find_map(|set| set.metadata.labels.get(GRANT_LABEL).cloned())
}

fn copies(world: &World, marks: &OwnerLabels) -> Vec<Arc<MachineSet>> {
    let mut sets = world.store::<MachineSet>().list();
    sets.retain(|set| is_copy(set, marks));
    sets
}

fn is_copy(set: &MachineSet, marks: &OwnerLabels) -> bool {
    set.metadata.labels.get(COPY_LABEL) == Some(&marks.owner_label)
}

/// Returns whether a copy was created for this grant. Copies from before grants had identifiers
/// match any.
fn is_for_grant(set: &MachineSet, grant: &Grant) -> bool {
    set.metadata.labels.get(GRANT_LABEL).is_none_or(|id| *id == grant.id)
}

fn delete_copy(set: &MachineSet, plan: &mut Plan) {
    if !set.metadata.is_terminating() {
        plan.write(Write::Delete {
            resource: MachineSet::RESOURCE,
            key: set.metadata.key(),
            fence: set.metadata.fence(),
            grace: None,
            propagation: Some(Propagation::Background),
        });
    }
}

/// Labels the machines of a copy that are in use, and their nodes.
fn label_machines(world: &World, set: &Key, marks: &OwnerLabels, plan: &mut Plan) -> u32 {
    let machines = machines(world, set);
    for machine in machines.iter().filter(|it| it.is_running() && !is_owned_by(it, marks)) {
        let labels = [(marks.owner_label.as_str(), json!(marks.owner_label))];
        plan.write(relabel::<Machine>(&machine.metadata, labels, Fencing::Fenced));
    }
    label_nodes(world, machines.iter().filter(|it| it.is_running()), marks, None, plan)
}

/// Returns the copy of a set. Of the source's labels those of the machine API stay, its cluster
/// among them; the copy selects its own machines and no others, however many copies a job has.
fn copy(source: &MachineSet, key: &Key, count: u32, marks: &OwnerLabels, grant: &Grant) -> Value {
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
    labels.insert(COPY_LABEL.to_owned(), json!(marks.owner_label));
    labels.insert(GRANT_LABEL.to_owned(), json!(grant.id));
    json!({
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "labels": labels,
            "annotations": {OWNER_ANNOTATION: marks.owner},
        },
        "spec": spec,
    })
}
