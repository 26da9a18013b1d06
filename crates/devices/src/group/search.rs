//! The backtracking search for nodes: members in turn, nodes one after the other.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::device_regions::{ClaimUsers, DeviceRegions, RegionClaims};
use super::member::{fits, has_claims, is_allowed_on, need, size, width};
use super::{Gang, GroupOutcome, PlacedPod, Shortfall};
use crate::problem::{Budget, ClaimAllocation, Inventory, Undecided};

/// Whether a solution was found, or why that is undecided.
type SearchResult = Result<bool, Undecided>;

/// How many nested nodes are searched at most, so that the stack does not overflow.
const MAX_DEPTH: usize = 1_000;
/// How many words are spent on failed states.
const MAX_FAILED_STATE_WORDS: usize = 1 << 21;
/// How often, in steps, the search checks whether it was stopped.
const STOP_CHECK_INTERVAL: u64 = 1 << 12;

/// A search for nodes for the pods of a gang.
#[derive(Debug)]
pub(super) struct Search<'a> {
    gang: &'a Gang<'a>,
    budget: Budget<'a>,
    steps: u64,
    /// The free capacity of each node.
    free_capacity: Vec<Vec<i64>>,
    /// For each node a number that is equal for nodes that the same members may be on.
    eligibility_classes: Vec<usize>,
    device_regions: DeviceRegions<'a>,
    /// The users of claims on each node.
    users: Vec<Vec<ClaimUsers>>,
    /// The nodes of the shared claims.
    shared_claim_nodes: Vec<Option<usize>>,
    /// The members in the order in which they are placed.
    order: Vec<usize>,
    placed: Vec<MemberPlacement>,
    failed: HashSet<Vec<i64>>,
    failed_state_words: usize,
    depth: usize,
    /// Why a negative result may be wrong.
    undecided: Option<Undecided>,
    /// The furthest point reached: an index in the order, and how many of that member were placed.
    best: (usize, usize),
}

/// A number of pods of a member on a node.
#[derive(Clone, Copy, Debug)]
struct MemberPlacement {
    member: usize,
    node: usize,
    count: usize,
    /// How many users came to the node with them.
    users: usize,
}

/// A node that a member may be on.
#[derive(Clone, Copy, Debug)]
struct NodeOption {
    node: usize,
    /// How many pods of the member fit there.
    most: usize,
    /// How many fit there and on the nodes after it.
    rest: usize,
    /// Whether it is equal to the node before it.
    is_like_previous: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(inventory: &'a Inventory, gang: &'a Gang<'a>, budget: Budget<'a>) -> Self {
        let count = gang.free_capacity.len();
        let mut known: Vec<Vec<bool>> = Vec::new();
        let doors = (0..count).map(|node| {
            let door: Vec<bool> = gang.members.iter().map(|it| is_allowed_on(it, node)).collect();
            known.iter().position(|it| *it == door).unwrap_or_else(|| {
                known.push(door);
                known.len() - 1
            })
        });
        let doors = doors.collect();
        let mut order: Vec<usize> = (0..gang.members.len()).collect();
        order.sort_by_key(|at| {
            let member = &gang.members[*at];
            (!has_claims(member), Reverse(size(member, gang)), *at)
        });
        Self {
            gang,
            budget,
            steps: 0,
            free_capacity: gang.free_capacity.clone(),
            eligibility_classes: doors,
            device_regions: DeviceRegions::new(inventory, gang),
            users: vec![Vec::new(); count],
            shared_claim_nodes: vec![None; gang.shared.len()],
            order,
            placed: Vec::new(),
            failed: HashSet::new(),
            failed_state_words: 0,
            depth: 0,
            undecided: None,
            best: (0, 0),
        }
    }

    pub(super) fn run(mut self) -> GroupOutcome {
        let found = match self.greedy() {
            Ok(false) => self.place_members(0),
            known => known,
        };
        let undecided = match found {
            Ok(true) => return self.solution(),
            Ok(false) => self.undecided,
            Err(undecided) => Some(undecided),
        };
        // Users of one claim on several nodes were not considered.
        let is_partial = !self.gang.shared.is_empty() && self.device_regions.is_contested();
        match undecided.or_else(|| is_partial.then_some(Undecided::TooLarge)) {
            Some(undecided) => GroupOutcome::Indeterminate(undecided),
            None => {
                let (at, placed) = self.best;
                let member = self.order.get(at).copied().unwrap_or_default();
                GroupOutcome::Unsatisfiable(Shortfall { member, placed })
            }
        }
    }

    /// Tries the path without backtracking. It is the first that the search would try, and most
    /// gangs that fit at all fit so, on any number of nodes.
    fn greedy(&mut self) -> SearchResult {
        if !self.may_be_feasible(0) {
            // The search will find the same.
            return Ok(false);
        }
        for at in 0..self.order.len() {
            let member = self.order[at];
            let mut left = self.gang.members[member].count;
            for stop in self.node_options(member) {
                if left == 0 {
                    break;
                }
                let most = self.max_with_devices(member, stop.node, stop.most.min(left))?;
                let is_whole = self.gang.members[member].shared.is_empty() || most == left;
                if most > 0 && is_whole {
                    self.place(member, stop.node, most);
                    left -= most;
                }
            }
            if left > 0 {
                while !self.placed.is_empty() {
                    self.undo_placement();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Places a member and all after it.
    fn place_members(&mut self, at: usize) -> SearchResult {
        let Some(member) = self.order.get(at).copied() else { return Ok(true) };
        self.step()?;
        self.best = self.best.max((at, 0));
        if !self.may_be_feasible(at) {
            return Ok(false);
        }
        let state = self.state(at);
        if self.failed.contains(&state) {
            return Ok(false);
        }
        let stops = self.node_options(member);
        let (doubt, left) = (self.undecided, self.gang.members[member].count);
        if self.place_on_nodes(at, &stops, left, None)? {
            return Ok(true);
        }
        if self.undecided == doubt && self.failed_state_words < MAX_FAILED_STATE_WORDS {
            self.failed_state_words += state.len();
            self.failed.insert(state);
        }
        Ok(false)
    }

    /// Places the remaining pods of a member on these nodes, and all members after it.
    fn place_on_nodes(
        &mut self,
        at: usize,
        stops: &[NodeOption],
        left: usize,
        before: Option<usize>,
    ) -> SearchResult {
        if left == 0 {
            return self.place_members(at + 1);
        }
        let Some((stop, others)) = stops.split_first() else { return Ok(false) };
        if stop.rest < left {
            return Ok(false);
        }
        self.step()?;
        if self.depth >= MAX_DEPTH {
            self.undecided = Some(Undecided::TooLarge);
            return Ok(false);
        }
        let member = self.order[at];
        let all = self.gang.members[member].count;
        let twin = before.filter(|_| stop.is_like_previous).unwrap_or(usize::MAX);
        let most = self.max_with_devices(member, stop.node, stop.most.min(left).min(twin))?;
        self.best = self.best.max((at, all - left + most));
        let together = !self.gang.members[member].shared.is_empty();
        let rest = others.first().map_or(0, |it| it.rest);
        for count in (0..=most).rev() {
            if rest < left - count {
                break;
            }
            if together && count != 0 && count != left {
                continue;
            }
            if count > 0 {
                self.place(member, stop.node, count);
            }
            self.depth += 1;
            let found = self.place_on_nodes(at, others, left - count, Some(count));
            self.depth -= 1;
            if found? {
                return Ok(true);
            }
            if count > 0 {
                self.undo_placement();
            }
        }
        Ok(false)
    }

    /// Returns the nodes that a member may be on and fits on, the tightest first, and with equal
    /// nodes next to each other.
    fn node_options(&self, member: usize) -> Vec<NodeOption> {
        let wants = &self.gang.members[member];
        let here = |node: &usize| {
            let mut pins = wants.shared.iter().filter_map(|at| self.shared_claim_nodes[*at]);
            is_allowed_on(wants, *node) && pins.all(|pin| pin == *node)
        };
        let nodes = (0..self.free_capacity.len()).filter(here);
        let nodes = nodes.map(|node| (fits(wants, &self.free_capacity[node]), node));
        let mut nodes: Vec<(usize, usize)> = nodes.filter(|(most, _)| *most > 0).collect();
        nodes.sort_by(|(one, a), (two, b)| {
            one.cmp(two).then_with(|| self.node_state(*a).cmp(&self.node_state(*b))).then(a.cmp(b))
        });
        let mut stops: Vec<NodeOption> = Vec::with_capacity(nodes.len());
        for (most, node) in nodes {
            let is_twin = stops
                .last()
                .is_some_and(|before| self.node_state(before.node) == self.node_state(node));
            stops.push(NodeOption { node, most, rest: 0, is_like_previous: is_twin });
        }
        let mut rest = 0_usize;
        for stop in stops.iter_mut().rev() {
            rest = rest.saturating_add(stop.most);
            stop.rest = rest;
        }
        stops
    }

    /// Returns everything that matters of a node, now.
    fn node_state(&self, node: usize) -> (usize, usize, &[i64], &[ClaimUsers]) {
        (
            self.eligibility_classes[node],
            self.device_regions.kind(node),
            &self.free_capacity[node],
            &self.users[node],
        )
    }

    /// Whether the members from `at` on may still all be placed: each of them has enough nodes if
    /// it were alone, and of every resource there is as much as all of them need.
    fn may_be_feasible(&self, at: usize) -> bool {
        let members = || self.order[at..].iter().map(|member| &self.gang.members[*member]);
        let alone = members().all(|member| {
            let mut left = member.count;
            (0..self.free_capacity.len()).any(|node| {
                if left > 0 && is_allowed_on(member, node) {
                    left = left.saturating_sub(fits(member, &self.free_capacity[node]));
                }
                left == 0
            }) || left == 0
        });
        let resources = self.gang.free_capacity.first().map_or(0, Vec::len);
        let together = (0..resources).all(|resource| {
            let need = members().fold(0_i128, |sum, it| sum + need(it, resource) * width(it.count));
            let open = |node: &usize| members().any(|it| is_allowed_on(it, *node));
            let nodes = (0..self.free_capacity.len()).filter(open);
            need <= nodes
                .map(|node| i128::from(self.free_capacity[node][resource].max(0)))
                .sum::<i128>()
        });
        alone && together
    }

    /// Returns how many pods of a member, of at most so many, can have their devices on a node
    /// beside everything that was placed.
    fn max_with_devices(
        &mut self,
        member: usize,
        node: usize,
        most: usize,
    ) -> Result<usize, Undecided> {
        if most == 0 || !has_claims(&self.gang.members[member]) {
            return Ok(most);
        }
        // If more pods can be served, fewer can too.
        let (mut served, mut beyond) = (0, most + 1);
        let mut next = most;
        while served + 1 < beyond {
            match self.can_allocate(member, node, next)? {
                true => served = next,
                false => beyond = next,
            }
            next = served + (beyond - served) / 2;
        }
        Ok(served)
    }

    fn can_allocate(&mut self, member: usize, node: usize, count: usize) -> SearchResult {
        let region = self.device_regions.region(node);
        let mut given = self.region_claims(region);
        given.entry(node).or_default().extend(self.claim_users(member, count));
        let steps = self.budget.steps.saturating_sub(self.steps);
        let (found, steps) =
            self.device_regions.can_allocate(&given, Budget { steps, ..self.budget });
        self.steps = self.steps.saturating_add(steps);
        match found {
            Ok(serves) => Ok(serves),
            Err(Undecided::TooLarge) => {
                self.undecided = Some(Undecided::TooLarge);
                Ok(false)
            }
            Err(Undecided::Steps(_)) => Err(Undecided::Steps(self.budget.steps)),
            Err(Undecided::Stopped) => Err(Undecided::Stopped),
        }
    }

    /// Returns the users of claims on the nodes of a region.
    fn region_claims(&self, region: usize) -> RegionClaims {
        let nodes = self.users.iter().enumerate().filter(|(_, users)| !users.is_empty());
        let here = nodes.filter(|(node, _)| self.device_regions.region(*node) == region);
        here.map(|(node, users)| (node, users.clone())).collect()
    }

    /// Returns the users of claims that come to a node with some pods of a member: their own, and
    /// those they share if these are not placed yet.
    fn claim_users(&self, member: usize, count: usize) -> Vec<ClaimUsers> {
        let wants = &self.gang.members[member];
        let own = wants.request.map(|_| (member, count));
        let shared = wants.shared.iter().filter(|at| self.shared_claim_nodes[**at].is_none());
        own.into_iter().chain(shared.map(|at| (self.gang.members.len() + at, 1))).collect()
    }

    fn place(&mut self, member: usize, node: usize, count: usize) {
        let asks = self.claim_users(member, count);
        for (user, _) in &asks {
            if let Some(shared) = user.checked_sub(self.gang.members.len()) {
                self.shared_claim_nodes[shared] = Some(node);
            }
        }
        self.account(member, node, count, -1);
        self.placed.push(MemberPlacement { member, node, count, users: asks.len() });
        self.users[node].extend(asks);
    }

    /// Undoes the last placement.
    fn undo_placement(&mut self) {
        let Some(MemberPlacement { member, node, count, users }) = self.placed.pop() else {
            return;
        };
        self.account(member, node, count, 1);
        let first = self.users[node].len() - users;
        for (user, _) in self.users[node].drain(first..) {
            if let Some(shared) = user.checked_sub(self.gang.members.len()) {
                self.shared_claim_nodes[shared] = None;
            }
        }
    }

    fn account(&mut self, member: usize, node: usize, count: usize, sign: i64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        for (left, need) in
            self.free_capacity[node].iter_mut().zip(&self.gang.members[member].needs)
        {
            if *need > 0 {
                *left = left.saturating_add(sign * need.saturating_mul(count));
            }
        }
    }

    /// Returns everything that the members from `at` on depend on. Equal nodes may be swapped.
    fn state(&self, at: usize) -> Vec<i64> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut nodes: Vec<Vec<i64>> = (0..self.free_capacity.len())
            .map(|node| {
                let (door, kind, free, users) = self.node_state(node);
                let users = users.iter().flat_map(|(user, count)| [number(*user), number(*count)]);
                let ends = [i64::MIN];
                let head = [number(door), number(kind)].into_iter().chain(free.iter().copied());
                head.chain(users).chain(ends).collect()
            })
            .collect();
        nodes.sort_unstable();
        std::iter::once(number(at)).chain(nodes.into_iter().flatten()).collect()
    }

    /// Counts a step, and ends the search if it was the last.
    fn step(&mut self) -> Result<(), Undecided> {
        self.steps = self.steps.saturating_add(1);
        if self.steps > self.budget.steps {
            return Err(Undecided::Steps(self.budget.steps));
        }
        let look = self.steps.is_multiple_of(STOP_CHECK_INTERVAL);
        if look && self.budget.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Undecided::Stopped);
        }
        Ok(())
    }

    /// Returns the solution, pod by pod, with what each gets.
    fn solution(&self) -> GroupOutcome {
        let mut claims: Vec<Vec<(usize, Vec<ClaimAllocation>)>> =
            vec![Vec::new(); self.gang.members.len()];
        let mut regions: Vec<usize> =
            (0..self.free_capacity.len()).filter(|at| !self.users[*at].is_empty()).collect();
        regions.iter_mut().for_each(|at| *at = self.device_regions.region(*at));
        regions.sort_unstable();
        regions.dedup();
        for region in regions {
            let given = self.region_claims(region);
            // It was solved before, in no more steps than there are in all.
            let allocation = match self.device_regions.allocate(&given, self.budget) {
                Ok((Some(allocation), _)) => allocation,
                Ok((None, _)) => return GroupOutcome::Indeterminate(Undecided::TooLarge),
                Err(undecided) => return GroupOutcome::Indeterminate(undecided),
            };
            let mut got = allocation.claims.into_iter();
            for (node, users) in given {
                for (user, count) in users {
                    let own = self.gang.members.get(user).and_then(|it| it.request);
                    let Some(own) = own else {
                        let shared = user - self.gang.members.len();
                        got.by_ref().take(self.gang.shared[shared].claims.len()).for_each(drop);
                        continue;
                    };
                    for _ in 0..count {
                        let mine = got.by_ref().take(own.claims.len()).collect();
                        claims[user].push((node, mine));
                    }
                }
            }
        }
        let mut pods = Vec::new();
        for MemberPlacement { member, node, count, .. } in self.placed.iter().copied() {
            for _ in 0..count {
                let at = claims[member].iter().position(|(place, _)| *place == node);
                let claims = at.map(|at| claims[member].swap_remove(at).1).unwrap_or_default();
                pods.push(PlacedPod { member, node, claims });
            }
        }
        pods.sort_by_key(|it| (it.member, it.node));
        GroupOutcome::Placed(pods)
    }
}
