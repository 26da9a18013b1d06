//! MachineSets that are scaled up, and down again.
//!
//! A label on the set records how many of its machines were bought for a job, and is written
//! together with the number of replicas: what was bought once is never bought again, by any
//! process.

use std::sync::Arc;

use gantry_reconcile::{Key, Plan, View as _, World, Write};
use serde_json::{Map, Value, json};

use super::{
    Fencing, has_owner, is_owned_by, label_nodes, machines, merge_patch, of_type, relabel,
    source_name,
};
use super::{instance_type, no_source_reason, purchases};
use crate::grant_record::{Grant, NodeAllocation};
use crate::owner_labels::{OwnerLabels, RETURNED_ANNOTATION, is_returned, with_returned};
use crate::reason::Reason;
use crate::view::{DELETE_FIRST, Machine, MachineSet, Node, labelled_nodes};

/// Spreads nodes over the sets that have the type, one zone each as a rule: each node goes to the
/// set from which the job has the fewest so far.
pub(crate) fn allocate(
    world: &World,
    instance: &str,
    missing: u32,
    kept: &[NodeAllocation],
) -> Result<Vec<NodeAllocation>, Reason> {
    let sets = of_type(world, instance);
    let lot = |set: &Arc<MachineSet>| {
        let place = source_name(&set.metadata.key());
        let before = kept.iter().filter(|lot| lot.place == place).map(|lot| lot.count).sum();
        (before, NodeAllocation { instance: instance.to_owned(), count: 0, place })
    };
    let mut lots: Vec<(u32, NodeAllocation)> = sets.iter().map(lot).collect();
    for _ in 0..missing {
        let fewest = lots.iter_mut().min_by_key(|(before, lot)| before.saturating_add(lot.count));
        let Some((_, lot)) = fewest else { return Err(no_source_reason(world, instance)) };
        lot.count += 1;
    }
    Ok(lots.into_iter().map(|(_, lot)| lot).filter(|lot| lot.count > 0).collect())
}

/// Provisions what was granted. Returns how many nodes are ready.
pub(crate) fn provide(world: &World, job: &Key, grant: &Grant, plan: &mut Plan) -> u32 {
    let buyer = JobMachines::new(world, job, Some(grant));
    let mut ready = 0;
    for set in world.store::<MachineSet>().list() {
        let want = grant.count_from(&source_name(&set.metadata.key()));
        let touched = buyer.purchased(&set).is_some() || buyer.purchased_by_former(&set).is_some();
        if want == 0 && !touched {
            continue;
        }
        buyer.scale_to(&set, want.into(), plan);
        let have = buyer.purchased(&set).unwrap_or_default();
        let shrinks = if have > i64::from(want) { IsShrinking::Yes } else { IsShrinking::No };
        ready += buyer.label_machines(&set, shrinks, plan);
    }
    ready
}

/// Releases what was bought for a job. Returns whether nothing is left.
pub(crate) fn release(world: &World, job: &Key, grant: Option<&Grant>, plan: &mut Plan) -> bool {
    let buyer = JobMachines::new(world, job, grant);
    let mut left = false;
    for set in world.store::<MachineSet>().list() {
        let touched = buyer.purchased(&set).is_some() || buyer.purchased_by_former(&set).is_some();
        if touched {
            left = true;
            buyer.scale_to(&set, 0, plan);
            continue;
        }
        let Some(grant) = grant else { continue };
        let granted = grant.count_from(&source_name(&set.metadata.key())) > 0;
        if granted && !is_returned(set.metadata.annotations.get(RETURNED_ANNOTATION), &grant.id) {
            // Nothing was bought here, as far as is known. A request to buy that is still in flight
            // must find the set changed.
            left = true;
            let returned =
                with_returned(set.metadata.annotations.get(RETURNED_ANNOTATION), &grant.id);
            let body = json!({"metadata": {"annotations": {RETURNED_ANNOTATION: returned}}});
            plan.write(set_write(&set, body));
        }
    }
    !buyer.release_machines(plan) && !left
}

/// Returns what was bought for a job, by the labels of the sets.
pub(crate) fn existing(world: &World, job: &Key) -> Vec<NodeAllocation> {
    let buyer = JobMachines::new(world, job, None);
    let sets = world.store::<MachineSet>().list();
    let lot = |set: Arc<MachineSet>| {
        let count = u32::try_from(buyer.purchased(&set)?).ok().filter(|count| *count > 0)?;
        let instance = instance_type(&set).unwrap_or_default().to_owned();
        Some(NodeAllocation { instance, count, place: source_name(&set.metadata.key()) })
    };
    sets.into_iter().filter_map(lot).collect()
}

/// Returns whether any object has a job's owner labels.
pub(crate) fn has_marked_objects(world: &World, job: &Key) -> bool {
    let marks = OwnerLabels::of(job);
    let sets = world.store::<MachineSet>().list();
    let machines = world.store::<Machine>().list();
    sets.iter().any(|set| set.metadata.labels.contains_key(&marks.purchase_label))
        || machines.iter().any(|machine| machine.is_kept() && is_owned_by(machine, &marks))
        || !labelled_nodes(world, &marks.owner_label).is_empty()
}

/// Returns the machines of a set that were bought and have no owner yet. The oldest machines
/// without an owner existed before: as many as were not bought.
fn unowned<'m>(set: &MachineSet, machines: &'m [Arc<Machine>]) -> Vec<&'m Arc<Machine>> {
    let bought: i64 = purchases(set).values().sum();
    let before = usize::try_from(set.replicas() - bought).unwrap_or_default();
    machines.iter().filter(|it| !has_owner(it)).skip(before).collect()
}

fn set_write(set: &MachineSet, body: Value) -> Write {
    merge_patch(MachineSet::RESOURCE, set.metadata.key(), set.metadata.fence(), body)
}

/// Whether machines of a set are about to be deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsShrinking {
    Yes,
    No,
}

/// Returns whether the machine API has finished scaling a set down.
fn is_scaled(set: &MachineSet) -> bool {
    set.status.observed_generation >= set.metadata.generation
        && set.status.replicas <= set.replicas()
}

/// A job, and the changes of sets for it.
struct JobMachines<'a> {
    world: &'a World,
    marks: OwnerLabels,
    grant: Option<&'a Grant>,
    /// The owner labels of the job that handed its machines over.
    former: Option<OwnerLabels>,
}

impl<'a> JobMachines<'a> {
    fn new(world: &'a World, job: &Key, grant: Option<&'a Grant>) -> Self {
        let former = grant.and_then(Grant::former).map(|job| OwnerLabels::of(&job));
        Self { world, marks: OwnerLabels::of(job), grant, former }
    }

    /// Returns how many machines of a set were bought for the job.
    fn purchased(&self, set: &MachineSet) -> Option<i64> {
        let text = set.metadata.labels.get(&self.marks.purchase_label)?;
        // A number that cannot be read counts as zero, but the label exists and is removed in the
        // end.
        Some(text.parse().unwrap_or(0))
    }

    /// Returns how many were bought for the job that handed them over.
    fn purchased_by_former(&self, set: &MachineSet) -> Option<i64> {
        let text = set.metadata.labels.get(&self.former.as_ref()?.purchase_label)?;
        Some(text.parse().unwrap_or(0))
    }

    /// Scales a set so that it has this many more machines than without the job.
    fn scale_to(&self, set: &Arc<MachineSet>, want: i64, plan: &mut Plan) {
        if let (Some(count), Some(former)) = (self.purchased_by_former(set), &self.former) {
            let mut labels = self.purchase_labels(count + self.purchased(set).unwrap_or_default());
            labels.insert(former.purchase_label.clone(), Value::Null);
            let id = self.grant.and_then(|it| it.from.as_ref()).map(|it| it.id.as_str());
            let list = with_returned(
                set.metadata.annotations.get(RETURNED_ANNOTATION),
                id.unwrap_or_default(),
            );
            let mut annotations = self.owner_labels(true);
            annotations.insert(former.purchase_label.clone(), Value::Null);
            annotations.insert(RETURNED_ANNOTATION.to_owned(), json!(list));
            let body = json!({"metadata": {"labels": labels, "annotations": annotations}});
            plan.write(set_write(set, body));
            return;
        }
        let have = self.purchased(set).unwrap_or_default();
        if have < want {
            let id = self.grant.map(|it| it.id.as_str()).unwrap_or_default();
            let over = is_returned(set.metadata.annotations.get(RETURNED_ANNOTATION), id);
            if over || set.metadata.is_terminating() {
                return;
            }
            let body = json!({
                "metadata": {
                    "labels": self.purchase_labels(want), "annotations": self.owner_labels(true),
                },
                "spec": {"replicas": set.replicas() + want - have},
            });
            plan.write(set_write(set, body));
        } else if have > want || (want == 0 && self.purchased(set).is_some()) {
            self.shrink(set, have, want, plan);
        }
    }

    /// Scales a set down. The machines to delete are annotated first, and the set is scaled down
    /// only when that is observed: in the other order the machine API might pick others.
    fn shrink(&self, set: &Arc<MachineSet>, have: i64, want: i64, plan: &mut Plan) {
        let fewer = have - want;
        let target = (set.replicas() - fewer).max(0);
        let machines = machines(self.world, &set.metadata.key());
        let count = i64::try_from(machines.len()).unwrap_or(i64::MAX);
        let victims = usize::try_from((count - target).clamp(0, fewer)).unwrap_or_default();
        let chosen = machines
            .iter()
            .filter(|it| is_owned_by(it, &self.marks) && it.is_deleted_first())
            .count();
        let more = victims.saturating_sub(chosen);
        let victims: Vec<_> =
            self.choose_for_removal(set, &machines, have).into_iter().take(more).collect();
        if !victims.is_empty() {
            for machine in victims {
                // The label keeps other jobs from choosing it too.
                let body = json!({"metadata": {
                    "labels": {self.marks.owner_label.clone(): self.marks.owner_label},
                    "annotations": {DELETE_FIRST: "true"},
                }});
                let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
                plan.write(merge_patch(Machine::RESOURCE, key, fence, body));
            }
            return;
        }
        let mut annotations = self.owner_labels(want > 0);
        if let Some(grant) = self.grant.filter(|_| want == 0) {
            let list = with_returned(set.metadata.annotations.get(RETURNED_ANNOTATION), &grant.id);
            annotations.insert(RETURNED_ANNOTATION.to_owned(), json!(list));
        }
        let body = json!({
            "metadata": {"labels": self.purchase_labels(want), "annotations": annotations},
            "spec": {"replicas": target},
        });
        plan.write(set_write(set, body));
    }

    /// Returns the machines that may be deleted, the least valuable first: machines that are not in
    /// use yet, then the job's own, then others that were bought.
    fn choose_for_removal<'m>(
        &self,
        set: &MachineSet,
        machines: &'m [Arc<Machine>],
        have: i64,
    ) -> Vec<&'m Arc<Machine>> {
        let mine = || machines.iter().rev().filter(|it| is_owned_by(it, &self.marks));
        let unmarked = unowned(set, machines);
        let new = || unmarked.iter().rev().copied();
        let unlabelled = usize::try_from(have).unwrap_or_default().saturating_sub(mine().count());
        let unused = new().filter(|it| !it.is_running()).take(unlabelled);
        let used = new().filter(|it| it.is_running());
        unused.chain(mine().filter(|it| !it.is_deleted_first())).chain(used).collect()
    }

    /// Labels machines of a set that are in use, and their nodes, as the job's. Returns how many
    /// nodes have the job's labels.
    fn label_machines(&self, set: &Arc<MachineSet>, shrinks: IsShrinking, plan: &mut Plan) -> u32 {
        let machines = machines(self.world, &set.metadata.key());
        let mut moving = 0;
        if let Some(former) = &self.former {
            for machine in machines.iter().filter(|it| is_owned_by(it, former)) {
                moving += 1;
                let labels = [
                    (former.owner_label.as_str(), Value::Null),
                    (&self.marks.owner_label, json!(self.marks.owner_label)),
                ];
                plan.write(relabel::<Machine>(&machine.metadata, labels, Fencing::Fenced));
            }
        }
        let kept = |it: &&Arc<Machine>| is_owned_by(it, &self.marks) && !it.is_deleted_first();
        let mine: Vec<&Arc<Machine>> = machines.iter().filter(kept).collect();
        let have = usize::try_from(self.purchased(set).unwrap_or_default()).unwrap_or_default();
        let mut missing = have.saturating_sub(mine.len() + moving);
        if shrinks == IsShrinking::No && is_scaled(set) {
            for machine in
                machines.iter().filter(|it| is_owned_by(it, &self.marks) && it.is_deleted_first())
            {
                if missing > 0 {
                    // It was chosen for deletion, and then handed over, or needed after all.
                    missing -= 1;
                    let body = json!({"metadata": {"annotations": {DELETE_FIRST: null}}});
                    let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
                    plan.write(merge_patch(Machine::RESOURCE, key, fence, body));
                } else {
                    self.disown(machine, &self.marks, plan);
                }
            }
        }
        let unmarked = unowned(set, &machines);
        let free = unmarked.into_iter().filter(|it| it.is_running() && !it.is_deleted_first());
        for machine in free.take(missing) {
            let labels = [(self.marks.owner_label.as_str(), json!(self.marks.owner_label))];
            plan.write(relabel::<Machine>(&machine.metadata, labels, Fencing::Fenced));
        }
        label_nodes(self.world, mine, &self.marks, self.former.as_ref(), plan)
    }

    /// Releases machines that still have the labels of a job without any. Returns whether there are
    /// any.
    ///
    /// As a rule they are about to be deleted. A machine that its set kept, although it was to be
    /// deleted first, stays, and has no owner again.
    fn release_machines(&self, plan: &mut Plan) -> bool {
        let mut left = false;
        let marks = [Some(&self.marks), self.former.as_ref()];
        for machine in self.world.store::<Machine>().list() {
            let mark = marks.iter().flatten().find(|it| is_owned_by(&machine, it));
            let Some(mark) = mark.filter(|_| machine.is_kept()) else { continue };
            left = true;
            let set = machine.metadata.labels.get(crate::view::SET_LABEL);
            let set = set.and_then(|name| {
                self.world.store::<MachineSet>().get(&Key::new(&machine.metadata.namespace, name))
            });
            let settled = set.is_none_or(|set| {
                let bought =
                    self.purchased(&set).is_some() || self.purchased_by_former(&set).is_some();
                !bought && is_scaled(&set)
            });
            if settled {
                self.disown(&machine, mark, plan);
            }
        }
        for mark in marks.iter().flatten() {
            for node in labelled_nodes(self.world, &mark.owner_label) {
                // The node of a deleted machine is deleted, too.
                let goes = self.world.store::<Machine>().list().into_iter().any(|machine| {
                    let node_ref = machine.status.node_ref.as_ref();
                    node_ref.is_some_and(|it| it.name == node.metadata.name)
                        && (!machine.is_kept() || is_owned_by(&machine, mark))
                });
                if !goes {
                    left = true;
                    let labels = mark.labels().map(|(key, _)| (key, Value::Null));
                    plan.write(relabel::<Node>(&node.metadata, labels, Fencing::Unfenced));
                }
            }
        }
        left
    }

    /// Removes the owner labels of a machine that its set kept, and of its node.
    fn disown(&self, machine: &Machine, marks: &OwnerLabels, plan: &mut Plan) {
        let body = json!({"metadata": {
            "labels": {marks.owner_label.clone(): null},
            "annotations": {DELETE_FIRST: null},
        }});
        let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
        plan.write(merge_patch(Machine::RESOURCE, key, fence, body));
        let node = machine.status.node_ref.as_ref().map(|it| Key::cluster(&it.name));
        let node = node.and_then(|key| self.world.store::<Node>().get(&key));
        if let Some(node) = node.filter(|it| it.metadata.labels.contains_key(&marks.owner_label)) {
            let labels = marks.labels().map(|(key, _)| (key, Value::Null));
            plan.write(relabel::<Node>(&node.metadata, labels, Fencing::Unfenced));
        }
    }

    fn purchase_labels(&self, count: i64) -> Map<String, Value> {
        let value = if count > 0 { json!(count.to_string()) } else { Value::Null };
        Map::from_iter([(self.marks.purchase_label.clone(), value)])
    }

    fn owner_labels(&self, kept: bool) -> Map<String, Value> {
        let value = if kept { json!(self.marks.owner) } else { Value::Null };
        Map::from_iter([(self.marks.purchase_label.clone(), value)])
    }
}
