//! Allocation in one tree: borrowing, sliding up and down, preemption.

use std::sync::Arc;

use super::consumer::ConsumerId;
use super::journal::Journal;
use super::refusal::QuotaRefusal;
use super::tree::{Holder, Placement, ROOT, Tree, add, subtract};

/// Which consumers on a node may be pushed up to free quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlideUpScope {
    /// Those of lower priority: where the new consumer is to be placed.
    LowerPriority,
    /// All of them: above that node, where every placed consumer has borrowed.
    All,
}

/// Returns whether a consumer may not be preempted by the new one, though it could.
pub(super) type IsExempt<'a> = &'a dyn Fn(&ConsumerId) -> bool;

impl Tree {
    /// Places a consumer where its request fits, or where others can be moved or preempted for it.
    ///
    /// Returns the consumers that had to leave the tree for it, in the order in which they left.
    /// Exempt consumers are not among them.
    ///
    /// # Errors
    /// Fails if the request does not fit; then nothing has changed.
    pub(super) fn allocate(
        &mut self,
        holder: &Arc<Holder>,
        spares: IsExempt<'_>,
        journal: &mut Journal,
    ) -> Result<Vec<ConsumerId>, QuotaRefusal> {
        let start = journal.len();
        let mut victims = Vec::new();
        let mut refusal = None;
        loop {
            let Err(last) = self.place_from_leaf(holder, spares, &mut victims, journal) else {
                return Ok(victims);
            };
            refusal.get_or_insert_with(|| self.exceeded_refusal(last, &holder.request));
            // Each round removes a consumer, so the loop ends.
            if !self.preempt(last, holder, spares, &mut victims, journal) {
                break;
            }
        }
        self.rollback(journal, start);
        Err(refusal.unwrap_or_else(|| self.exceeded_refusal(ROOT, &holder.request)))
    }

    /// Walks from the leaf to the root: places the consumer as low as possible and charges it to
    /// every node above. Fails with the last node that was tried, and then nothing has changed.
    fn place_from_leaf(
        &mut self,
        holder: &Arc<Holder>,
        spares: IsExempt<'_>,
        victims: &mut Vec<ConsumerId>,
        journal: &mut Journal,
    ) -> Result<(), usize> {
        let (start, before) = (journal.len(), victims.len());
        let (mut is_placed, mut passed_hard) = (false, false);
        let mut node = holder.home;
        loop {
            let is_hard = self.nodes[node].hard_limit;
            passed_hard |= is_hard;
            let push = if is_placed { SlideUpScope::All } else { SlideUpScope::LowerPriority };
            let has_room = self.nodes[node].fits(&holder.request)
                || self.slide_up(node, (holder, spares), push, victims, journal);
            match (is_placed, has_room) {
                (false, true) => {
                    self.place(node, Arc::clone(holder), journal);
                    self.charge(node, holder, journal);
                    is_placed = true;
                }
                (true, true) => self.charge(node, holder, journal),
                (false, false) if is_hard => return Err(node),
                (false, false) => {}
                (true, false) => {
                    // What was placed below does not fit here, so the walk continues as if no node
                    // had fit so far.
                    self.rollback(journal, start);
                    victims.truncate(before);
                    is_placed = false;
                    if passed_hard {
                        return Err(node);
                    }
                }
            }
            match self.nodes[node].parent {
                Some(parent) => node = parent,
                None if is_placed => return Ok(()),
                None => return Err(node),
            }
        }
    }

    /// Frees quota of a node by moving consumers placed on it to its parent, in order of arrival;
    /// off the root they are preempted. If that is not enough, none moves.
    pub(super) fn slide_up(
        &mut self,
        node: usize,
        (holder, spares): (&Holder, IsExempt<'_>),
        push: SlideUpScope,
        victims: &mut Vec<ConsumerId>,
        journal: &mut Journal,
    ) -> bool {
        let at = &self.nodes[node];
        let is_root = node == ROOT;
        if at.hard_limit && !is_root {
            return false;
        }
        let below = (push == SlideUpScope::LowerPriority).then_some(holder.priority);
        let mut gone = vec![0; holder.request.len()];
        at.add_totals(below, &mut gone);
        if !at.fits_without(&holder.request, &gone) {
            return false;
        }
        let may_move = |other: &Holder| {
            let stays = !other.preemptable || spares(&other.id);
            below.is_none_or(|limit| other.priority < limit) && !(stays && is_root)
        };
        gone.fill(0);
        let mut moving = Vec::new();
        let mut has_room = false;
        let placed = at.placed.iter().filter(|(_, other)| may_move(other));
        for (&arrival, other) in preempt_first_only(placed, at.by_priority.contains_key(&i32::MIN))
        {
            add(&mut gone, &other.request);
            moving.push(Placement { node, arrival });
            has_room = at.fits_without(&holder.request, &gone);
            if has_room {
                break;
            }
        }
        if !has_room {
            return false;
        }
        let parent = at.parent;
        if is_root {
            self.keep_unneeded_victims(node, &holder.request, &mut moving, &mut gone);
        }
        for seat in moving {
            let Some(other) = self.displace(seat, journal) else { continue };
            self.discharge(node, &other, journal);
            match parent {
                Some(parent) => self.place(parent, other, journal),
                None => victims.push(other.id.clone()),
            }
        }
        true
    }

    /// Keeps consumers in the tree without whose removal a request fits on a node as well, in order
    /// of arrival: where a large one must be preempted in the end, preempting small ones before it
    /// has no effect. `gone` is what all of them hold. Consumers that are preempted first are kept
    /// last.
    fn keep_unneeded_victims(
        &self,
        node: usize,
        request: &[i64],
        leaving: &mut Vec<Placement>,
        gone: &mut [i128],
    ) {
        for first in [false, true] {
            leaving.retain(|seat| {
                let Some(other) = self.nodes[seat.node].placed.get(&seat.arrival) else {
                    return false;
                };
                if other.preempt_first != first {
                    return true;
                }
                subtract(gone, &other.request);
                let is_needed = !self.nodes[node].fits_without(request, gone);
                if is_needed {
                    add(gone, &other.request);
                }
                is_needed
            });
        }
    }

    /// Preempts consumers of lower priority on the path from `last` down to the consumer's leaf
    /// until its request fits at `last`. If that is impossible, none is preempted; if the priority
    /// is not above 0, only those that are marked to be preempted first.
    fn preempt(
        &mut self,
        last: usize,
        holder: &Holder,
        spares: IsExempt<'_>,
        victims: &mut Vec<ConsumerId>,
        journal: &mut Journal,
    ) -> bool {
        let only_first = holder.priority <= 0;
        let below = if only_first { i32::MIN + 1 } else { holder.priority };
        let mut way: Vec<usize> = self.path(holder.home).collect();
        way.reverse();
        way.drain(..way.iter().take_while(|&&node| node != last).count());
        let mut gone = vec![0; holder.request.len()];
        for &node in &way {
            self.nodes[node].add_totals(Some(below), &mut gone);
        }
        if !self.nodes[last].fits_without(&holder.request, &gone) {
            return false;
        }
        gone.fill(0);
        let mut going = Vec::new();
        let mut has_room = false;
        let on = way.iter().flat_map(|&node| {
            let placed = self.nodes[node].placed.iter();
            placed.map(move |(&arrival, other)| (Placement { node, arrival }, other))
        });
        let lower = on.filter(|(_, other)| {
            let stays = !other.preemptable || spares(&other.id);
            other.priority < below && !stays && (other.preempt_first || !only_first)
        });
        let any_first =
            way.iter().any(|&node| self.nodes[node].by_priority.contains_key(&i32::MIN));
        for (seat, other) in preempt_first_only(lower, any_first) {
            add(&mut gone, &other.request);
            going.push(seat);
            has_room = self.nodes[last].fits_without(&holder.request, &gone);
            if has_room {
                break;
            }
        }
        if !has_room {
            return false;
        }
        self.keep_unneeded_victims(last, &holder.request, &mut going, &mut gone);
        for seat in going {
            let Some(other) = self.displace(seat, journal) else { continue };
            let mut node = Some(seat.node);
            while let Some(at) = node {
                self.discharge(at, &other, journal);
                node = self.nodes[at].parent;
            }
            victims.push(other.id.clone());
        }
        true
    }

    /// Removes a consumer, and lets borrowers slide down that can now be placed lower.
    pub(super) fn release(&mut self, id: &ConsumerId, journal: &mut Journal) {
        let Some(&seat) = self.placements.get(id) else { return };
        let Some(holder) = self.displace(seat, journal) else { return };
        let mut node = Some(seat.node);
        while let Some(at) = node {
            self.discharge(at, &holder, journal);
            self.slide_down(at, journal);
            node = self.nodes[at].parent;
        }
    }

    /// Moves consumers from the parent that belong below this node and fit, in order of arrival.
    fn slide_down(&mut self, node: usize, journal: &mut Journal) {
        let Some(parent) = self.nodes[node].parent else { return };
        let mut from = 0;
        loop {
            let at = &self.nodes[node];
            let Some(waiting) = self.nodes[parent].branches.get(&node) else { return };
            let fitting = waiting.iter().filter(|(request, _)| at.fits(request));
            let first = fitting.filter_map(|(_, arrivals)| arrivals.range(from..).next()).min();
            let Some(&arrival) = first else { return };
            // Earlier arrivals did not fit, and there is only less quota left now.
            from = arrival + 1;
            if let Some(other) = self.displace(Placement { node: parent, arrival }, journal) {
                self.charge(node, &other, journal);
                self.place(node, other, journal);
            }
        }
    }

    /// Places a consumer on a node and charges it from there up, whether or not it fits.
    pub(super) fn force_place(&mut self, node: usize, holder: &Arc<Holder>, journal: &mut Journal) {
        self.place(node, Arc::clone(holder), journal);
        let mut at = Some(node);
        while let Some(node) = at {
            self.charge(node, holder, journal);
            at = self.nodes[node].parent;
        }
    }

    /// Places a consumer where it would be placed if it asked now, as long as no other has to leave
    /// the tree for it; else on the node it names, whether or not it fits.
    pub(super) fn restore(&mut self, holder: &Arc<Holder>, journal: &mut Journal) {
        let (start, mut victims) = (journal.len(), Vec::new());
        let placed = self.place_from_leaf(holder, &|_| false, &mut victims, journal);
        if placed.is_err() || !victims.is_empty() {
            self.rollback(journal, start);
            self.force_place(holder.home, holder, journal);
        }
    }
}

/// Returns the same in the same order, restricted to consumers to be preempted first, if there may
/// be any. Most of the time there are none, and few of many are requested.
fn preempt_first_only<'a, K: 'a>(
    all: impl Iterator<Item = (K, &'a Arc<Holder>)> + 'a,
    any_first: bool,
) -> Box<dyn Iterator<Item = (K, &'a Arc<Holder>)> + 'a> {
    if !any_first {
        return Box::new(all);
    }
    let (first, others): (Vec<_>, Vec<_>) = all.partition(|(_, it)| it.preempt_first);
    Box::new(first.into_iter().chain(others))
}
