//! MachineSets that are made larger, and smaller again.
//!
//! A label on the set says how many of its machines were bought for a job, and is written together
//! with the number of replicas: what was bought once is never bought again, whoever tries.

use std::sync::Arc;

use gantry_reconcile::{Key, Plan, View as _, World, Write};
use serde_json::{Map, Value, json};

use super::{Careful, is_marked, is_mine, label_nodes, machines, merge, of_type, place, relabel};
use super::{instance_type, none_of, purchases};
use crate::ledger::{Grant, Lot};
use crate::marks::{Marks, RETURNED, is_returned, returned};
use crate::reason::Reason;
use crate::view::{DELETE_FIRST, Machine, MachineSet, Node, marked_nodes};

/// Spreads nodes over the sets that have the type, one zone each as a rule: each goes to the set that
/// gives the job the fewest so far.
pub(crate) fn add(
    world: &World,
    instance: &str,
    missing: u32,
    kept: &[Lot],
) -> Result<Vec<Lot>, Reason> {
    let sets = of_type(world, instance);
    let lot = |set: &Arc<MachineSet>| {
        let place = place(&set.metadata.key());
        let before = kept.iter().filter(|lot| lot.place == place).map(|lot| lot.count).sum();
        (before, Lot { instance: instance.to_owned(), count: 0, place })
    };
    let mut lots: Vec<(u32, Lot)> = sets.iter().map(lot).collect();
    for _ in 0..missing {
        let fewest = lots.iter_mut().min_by_key(|(before, lot)| before.saturating_add(lot.count));
        let Some((_, lot)) = fewest else { return Err(none_of(world, instance)) };
        lot.count += 1;
    }
    Ok(lots.into_iter().map(|(_, lot)| lot).filter(|lot| lot.count > 0).collect())
}

/// Makes true what was granted. Returns how many nodes are ready.
pub(crate) fn provide(world: &World, job: &Key, grant: &Grant, plan: &mut Plan) -> u32 {
    let buyer = Buyer::new(world, job, Some(grant));
    let mut ready = 0;
    for set in world.shelf::<MachineSet>().all() {
        let want = grant.at(&place(&set.metadata.key()));
        let touched = buyer.bought(&set).is_some() || buyer.bought_before(&set).is_some();
        if want == 0 && !touched {
            continue;
        }
        buyer.settle(&set, want.into(), plan);
        let have = buyer.bought(&set).unwrap_or_default();
        let shrinks = if have > i64::from(want) { Shrinks::Yes } else { Shrinks::No };
        ready += buyer.label(&set, shrinks, plan);
    }
    ready
}

/// Gives back what was bought for a job. Returns whether nothing is left.
pub(crate) fn give_back(world: &World, job: &Key, grant: Option<&Grant>, plan: &mut Plan) -> bool {
    let buyer = Buyer::new(world, job, grant);
    let mut left = false;
    for set in world.shelf::<MachineSet>().all() {
        let touched = buyer.bought(&set).is_some() || buyer.bought_before(&set).is_some();
        if touched {
            left = true;
            buyer.settle(&set, 0, plan);
            continue;
        }
        let Some(grant) = grant else { continue };
        let granted = grant.at(&place(&set.metadata.key())) > 0;
        if granted && !is_returned(set.metadata.annotations.get(RETURNED), &grant.id) {
            // Nothing was bought here, as far as is known. A request to buy that is still under way
            // must find the set changed.
            left = true;
            let returned = returned(set.metadata.annotations.get(RETURNED), &grant.id);
            let body = json!({"metadata": {"annotations": {RETURNED: returned}}});
            plan.write(change(&set, body));
        }
    }
    !buyer.release_machines(plan) && !left
}

/// What was bought for a job, by the labels of the sets.
pub(crate) fn found(world: &World, job: &Key) -> Vec<Lot> {
    let buyer = Buyer::new(world, job, None);
    let sets = world.shelf::<MachineSet>().all();
    let lot = |set: Arc<MachineSet>| {
        let count = u32::try_from(buyer.bought(&set)?).ok().filter(|count| *count > 0)?;
        let instance = instance_type(&set).unwrap_or_default().to_owned();
        Some(Lot { instance, count, place: place(&set.metadata.key()) })
    };
    sets.into_iter().filter_map(lot).collect()
}

/// Whether anything bears a job's marks.
pub(crate) fn bears(world: &World, job: &Key) -> bool {
    let marks = Marks::of(job);
    let sets = world.shelf::<MachineSet>().all();
    let machines = world.shelf::<Machine>().all();
    sets.iter().any(|set| set.metadata.labels.contains_key(&marks.bought))
        || machines.iter().any(|machine| machine.stays() && is_mine(machine, &marks))
        || !marked_nodes(world, &marks.mine).is_empty()
}

/// The machines of a set that were bought and are nobody's yet. The oldest that are nobody's were there
/// before: as many as nobody bought.
fn unmarked<'m>(set: &MachineSet, machines: &'m [Arc<Machine>]) -> Vec<&'m Arc<Machine>> {
    let bought: i64 = purchases(set).values().sum();
    let before = usize::try_from(set.replicas() - bought).unwrap_or_default();
    machines.iter().filter(|it| !is_marked(it)).skip(before).collect()
}

fn change(set: &MachineSet, body: Value) -> Write {
    merge(MachineSet::RESOURCE, set.metadata.key(), set.metadata.fence(), body)
}

/// Whether machines of a set are about to be taken away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shrinks {
    Yes,
    No,
}

/// Whether the machine API has taken away what a set is to have less.
fn is_settled(set: &MachineSet) -> bool {
    set.status.observed_generation >= set.metadata.generation
        && set.status.replicas <= set.replicas()
}

/// A job, and what is done to sets for it.
struct Buyer<'a> {
    world: &'a World,
    marks: Marks,
    grant: Option<&'a Grant>,
    /// The marks of the job that handed its machines over.
    former: Option<Marks>,
}

impl<'a> Buyer<'a> {
    fn new(world: &'a World, job: &Key, grant: Option<&'a Grant>) -> Self {
        let former = grant.and_then(Grant::former).map(|job| Marks::of(&job));
        Self { world, marks: Marks::of(job), grant, former }
    }

    /// How many machines of a set were bought for the job.
    fn bought(&self, set: &MachineSet) -> Option<i64> {
        let text = set.metadata.labels.get(&self.marks.bought)?;
        // A number that cannot be read is none, but the label is there and goes in the end.
        Some(text.parse().unwrap_or(0))
    }

    /// How many were bought for the job that handed them over.
    fn bought_before(&self, set: &MachineSet) -> Option<i64> {
        let text = set.metadata.labels.get(&self.former.as_ref()?.bought)?;
        Some(text.parse().unwrap_or(0))
    }

    /// Makes a set have as many machines more than without the job as are wanted.
    fn settle(&self, set: &Arc<MachineSet>, want: i64, plan: &mut Plan) {
        if let (Some(count), Some(former)) = (self.bought_before(set), &self.former) {
            let mut labels = self.label_of(count + self.bought(set).unwrap_or_default());
            labels.insert(former.bought.clone(), Value::Null);
            let id = self.grant.and_then(|it| it.from.as_ref()).map(|it| it.id.as_str());
            let list = returned(set.metadata.annotations.get(RETURNED), id.unwrap_or_default());
            let mut annotations = self.owner_of(true);
            annotations.insert(former.bought.clone(), Value::Null);
            annotations.insert(RETURNED.to_owned(), json!(list));
            let body = json!({"metadata": {"labels": labels, "annotations": annotations}});
            plan.write(change(set, body));
            return;
        }
        let have = self.bought(set).unwrap_or_default();
        if have < want {
            let id = self.grant.map(|it| it.id.as_str()).unwrap_or_default();
            let over = is_returned(set.metadata.annotations.get(RETURNED), id);
            if over || set.metadata.is_going() {
                return;
            }
            let body = json!({
                "metadata": {"labels": self.label_of(want), "annotations": self.owner_of(true)},
                "spec": {"replicas": set.replicas() + want - have},
            });
            plan.write(change(set, body));
        } else if have > want || (want == 0 && self.bought(set).is_some()) {
            self.shrink(set, have, want, plan);
        }
    }

    /// Takes machines away. The machine API is told first which are to go, and only when that is seen
    /// to have been heard the set becomes smaller: the other way round it might pick others.
    fn shrink(&self, set: &Arc<MachineSet>, have: i64, want: i64, plan: &mut Plan) {
        let fewer = have - want;
        let target = (set.replicas() - fewer).max(0);
        let machines = machines(self.world, &set.metadata.key());
        let count = i64::try_from(machines.len()).unwrap_or(i64::MAX);
        let victims = usize::try_from((count - target).clamp(0, fewer)).unwrap_or_default();
        let chosen =
            machines.iter().filter(|it| is_mine(it, &self.marks) && it.goes_first()).count();
        let more = victims.saturating_sub(chosen);
        let victims: Vec<_> = self.choose(set, &machines, have).into_iter().take(more).collect();
        if !victims.is_empty() {
            for machine in victims {
                // The mark keeps others from choosing it too.
                let body = json!({"metadata": {
                    "labels": {self.marks.mine.clone(): self.marks.mine},
                    "annotations": {DELETE_FIRST: "true"},
                }});
                let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
                plan.write(merge(Machine::RESOURCE, key, fence, body));
            }
            return;
        }
        let mut annotations = self.owner_of(want > 0);
        if let Some(grant) = self.grant.filter(|_| want == 0) {
            let list = returned(set.metadata.annotations.get(RETURNED), &grant.id);
            annotations.insert(RETURNED.to_owned(), json!(list));
        }
        let body = json!({
            "metadata": {"labels": self.label_of(want), "annotations": annotations},
            "spec": {"replicas": target},
        });
        plan.write(change(set, body));
    }

    /// Machines that may go, those that are missed least in front: some that are not in use yet, then
    /// the job's own, then what else was bought.
    fn choose<'m>(
        &self,
        set: &MachineSet,
        machines: &'m [Arc<Machine>],
        have: i64,
    ) -> Vec<&'m Arc<Machine>> {
        let mine = || machines.iter().rev().filter(|it| is_mine(it, &self.marks));
        let unmarked = unmarked(set, machines);
        let new = || unmarked.iter().rev().copied();
        let unlabelled = usize::try_from(have).unwrap_or_default().saturating_sub(mine().count());
        let unused = new().filter(|it| !it.is_running()).take(unlabelled);
        let used = new().filter(|it| it.is_running());
        unused.chain(mine().filter(|it| !it.goes_first())).chain(used).collect()
    }

    /// Marks machines of a set that are in use as the job's, and their nodes. Returns how many nodes
    /// bear the job's labels.
    fn label(&self, set: &Arc<MachineSet>, shrinks: Shrinks, plan: &mut Plan) -> u32 {
        let machines = machines(self.world, &set.metadata.key());
        let mut moving = 0;
        if let Some(former) = &self.former {
            for machine in machines.iter().filter(|it| is_mine(it, former)) {
                moving += 1;
                let labels = [
                    (former.mine.as_str(), Value::Null),
                    (&self.marks.mine, json!(self.marks.mine)),
                ];
                plan.write(relabel::<Machine>(&machine.metadata, labels, Careful::Yes));
            }
        }
        let kept = |it: &&Arc<Machine>| is_mine(it, &self.marks) && !it.goes_first();
        let mine: Vec<&Arc<Machine>> = machines.iter().filter(kept).collect();
        let have = usize::try_from(self.bought(set).unwrap_or_default()).unwrap_or_default();
        let mut missing = have.saturating_sub(mine.len() + moving);
        if shrinks == Shrinks::No && is_settled(set) {
            for machine in machines.iter().filter(|it| is_mine(it, &self.marks) && it.goes_first())
            {
                if missing > 0 {
                    // Chosen to go, and then handed over, or needed after all.
                    missing -= 1;
                    let body = json!({"metadata": {"annotations": {DELETE_FIRST: null}}});
                    let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
                    plan.write(merge(Machine::RESOURCE, key, fence, body));
                } else {
                    self.unmark(machine, &self.marks, plan);
                }
            }
        }
        let unmarked = unmarked(set, &machines);
        let free = unmarked.into_iter().filter(|it| it.is_running() && !it.goes_first());
        for machine in free.take(missing) {
            let labels = [(self.marks.mine.as_str(), json!(self.marks.mine))];
            plan.write(relabel::<Machine>(&machine.metadata, labels, Careful::Yes));
        }
        label_nodes(self.world, mine, &self.marks, self.former.as_ref(), plan)
    }

    /// Lets go of machines that still bear the marks of a job that has none any more. Returns whether
    /// there are any.
    ///
    /// As a rule they are about to be deleted. A machine that its set kept, although it was to go first,
    /// stays, and is nobody's again.
    fn release_machines(&self, plan: &mut Plan) -> bool {
        let mut left = false;
        let marks = [Some(&self.marks), self.former.as_ref()];
        for machine in self.world.shelf::<Machine>().all() {
            let mark = marks.iter().flatten().find(|it| is_mine(&machine, it));
            let Some(mark) = mark.filter(|_| machine.stays()) else { continue };
            left = true;
            let set = machine.metadata.labels.get(crate::view::SET_LABEL);
            let set = set.and_then(|name| {
                self.world.shelf::<MachineSet>().get(&Key::new(&machine.metadata.namespace, name))
            });
            let settled = set.is_none_or(|set| {
                let bought = self.bought(&set).is_some() || self.bought_before(&set).is_some();
                !bought && is_settled(&set)
            });
            if settled {
                self.unmark(&machine, mark, plan);
            }
        }
        for mark in marks.iter().flatten() {
            for node in marked_nodes(self.world, &mark.mine) {
                // The node of a machine that goes, goes too.
                let goes = self.world.shelf::<Machine>().all().into_iter().any(|machine| {
                    let node_ref = machine.status.node_ref.as_ref();
                    node_ref.is_some_and(|it| it.name == node.metadata.name)
                        && (!machine.stays() || is_mine(&machine, mark))
                });
                if !goes {
                    left = true;
                    let labels = mark.labels().map(|(key, _)| (key, Value::Null));
                    plan.write(relabel::<Node>(&node.metadata, labels, Careful::No));
                }
            }
        }
        left
    }

    /// Makes a machine that its set kept nobody's again, and its node.
    fn unmark(&self, machine: &Machine, marks: &Marks, plan: &mut Plan) {
        let body = json!({"metadata": {
            "labels": {marks.mine.clone(): null},
            "annotations": {DELETE_FIRST: null},
        }});
        let (key, fence) = (machine.metadata.key(), machine.metadata.fence());
        plan.write(merge(Machine::RESOURCE, key, fence, body));
        let node = machine.status.node_ref.as_ref().map(|it| Key::cluster(&it.name));
        let node = node.and_then(|key| self.world.shelf::<Node>().get(&key));
        if let Some(node) = node.filter(|it| it.metadata.labels.contains_key(&marks.mine)) {
            let labels = marks.labels().map(|(key, _)| (key, Value::Null));
            plan.write(relabel::<Node>(&node.metadata, labels, Careful::No));
        }
    }

    fn label_of(&self, count: i64) -> Map<String, Value> {
        let value = if count > 0 { json!(count.to_string()) } else { Value::Null };
        Map::from_iter([(self.marks.bought.clone(), value)])
    }

    fn owner_of(&self, kept: bool) -> Map<String, Value> {
        let value = if kept { json!(self.marks.owner) } else { Value::Null };
        Map::from_iter([(self.marks.bought.clone(), value)])
    }
}
