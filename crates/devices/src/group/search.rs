//! The search for places: members in turn, nodes one after the other, back when a later member fails.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::equip::{Equipment, Given, Users};
use super::{Gang, GroupAnswer, Member, Placed, Shortfall};
use crate::problem::{Budget, ClaimAllocation, Inventory, Undecided};

/// Whether a solution was found; or why nobody knows.
type Found = Result<bool, Undecided>;

/// Nodes that are gone through one inside the other at most. What is beyond is not looked at, so that no
/// stack runs over.
const DEEPEST: usize = 1_000;
/// Words that are spent on states in which the rest failed.
const REMEMBERED: usize = 1 << 21;
/// How often, in steps, the search looks whether it was stopped.
const LOOK_AROUND: u64 = 1 << 12;

/// A search for places.
#[derive(Debug)]
pub(super) struct Search<'a> {
    gang: &'a Gang<'a>,
    budget: Budget<'a>,
    steps: u64,
    /// What is left of each node.
    rooms: Vec<Vec<i64>>,
    /// For each node a number that is the same for nodes that the same members may be on.
    doors: Vec<usize>,
    equipment: Equipment<'a>,
    /// Whose claims are on each node.
    users: Vec<Vec<Users>>,
    /// Where the claims are that are shared.
    pins: Vec<Option<usize>>,
    /// The members in the order in which they are placed.
    order: Vec<usize>,
    placed: Vec<Put>,
    failed: HashSet<Vec<i64>>,
    remembered: usize,
    depth: usize,
    /// Why a no may not be one.
    doubt: Option<Undecided>,
    /// The furthest that the search came: a place in the order, and how many of that member.
    best: (usize, usize),
}

/// So many of a member on a node.
#[derive(Clone, Copy, Debug)]
struct Put {
    member: usize,
    node: usize,
    count: usize,
    /// How many users came to the node with them.
    users: usize,
}

/// A node that a member may be on.
#[derive(Clone, Copy, Debug)]
struct Stop {
    node: usize,
    /// How many of the member find room there.
    most: usize,
    /// How many find room there and on the nodes after it.
    rest: usize,
    /// Whether it is like the node before it.
    is_twin: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(inventory: &'a Inventory, gang: &'a Gang<'a>, budget: Budget<'a>) -> Self {
        let count = gang.rooms.len();
        let mut known: Vec<Vec<bool>> = Vec::new();
        let doors = (0..count).map(|node| {
            let door: Vec<bool> = gang.members.iter().map(|it| may(it, node)).collect();
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
            rooms: gang.rooms.clone(),
            doors,
            equipment: Equipment::new(inventory, gang),
            users: vec![Vec::new(); count],
            pins: vec![None; gang.shared.len()],
            order,
            placed: Vec::new(),
            failed: HashSet::new(),
            remembered: 0,
            depth: 0,
            doubt: None,
            best: (0, 0),
        }
    }

    pub(super) fn run(mut self) -> GroupAnswer {
        let found = match self.first() {
            Ok(false) => self.members(0),
            known => known,
        };
        let undecided = match found {
            Ok(true) => return self.answer(),
            Ok(false) => self.doubt,
            Err(undecided) => Some(undecided),
        };
        // Users of one claim on several nodes were not looked at.
        let is_partial = !self.gang.shared.is_empty() && self.equipment.is_contested();
        match undecided.or_else(|| is_partial.then_some(Undecided::TooLarge)) {
            Some(undecided) => GroupAnswer::Indeterminate(undecided),
            None => {
                let (at, placed) = self.best;
                let member = self.order.get(at).copied().unwrap_or_default();
                GroupAnswer::Unsatisfiable(Shortfall { member, placed })
            }
        }
    }

    /// The way that needs no going back, if it leads to the end. It is the first that the search would
    /// try, and most gangs that fit at all fit so, on however many nodes.
    fn first(&mut self) -> Found {
        if !self.is_hopeful(0) {
            // The search will say the same.
            return Ok(false);
        }
        for at in 0..self.order.len() {
            let member = self.order[at];
            let mut left = self.gang.members[member].count;
            for stop in self.stops(member) {
                if left == 0 {
                    break;
                }
                let most = self.bearable(member, stop.node, stop.most.min(left))?;
                let is_whole = self.gang.members[member].shared.is_empty() || most == left;
                if most > 0 && is_whole {
                    self.put(member, stop.node, most);
                    left -= most;
                }
            }
            if left > 0 {
                while !self.placed.is_empty() {
                    self.lift();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Places a member and all after it.
    fn members(&mut self, at: usize) -> Found {
        let Some(member) = self.order.get(at).copied() else { return Ok(true) };
        self.step()?;
        self.best = self.best.max((at, 0));
        if !self.is_hopeful(at) {
            return Ok(false);
        }
        let state = self.state(at);
        if self.failed.contains(&state) {
            return Ok(false);
        }
        let stops = self.stops(member);
        let (doubt, left) = (self.doubt, self.gang.members[member].count);
        if self.spread(at, &stops, left, None)? {
            return Ok(true);
        }
        if self.doubt == doubt && self.remembered < REMEMBERED {
            self.remembered += state.len();
            self.failed.insert(state);
        }
        Ok(false)
    }

    /// Places what is left of a member on these nodes, and all members after it.
    fn spread(&mut self, at: usize, stops: &[Stop], left: usize, before: Option<usize>) -> Found {
        if left == 0 {
            return self.members(at + 1);
        }
        let Some((stop, others)) = stops.split_first() else { return Ok(false) };
        if stop.rest < left {
            return Ok(false);
        }
        self.step()?;
        if self.depth >= DEEPEST {
            self.doubt = Some(Undecided::TooLarge);
            return Ok(false);
        }
        let member = self.order[at];
        let all = self.gang.members[member].count;
        let twin = before.filter(|_| stop.is_twin).unwrap_or(usize::MAX);
        let most = self.bearable(member, stop.node, stop.most.min(left).min(twin))?;
        self.best = self.best.max((at, all - left + most));
        let together = !self.gang.members[member].shared.is_empty();
        let room = others.first().map_or(0, |it| it.rest);
        for count in (0..=most).rev() {
            if room < left - count {
                break;
            }
            if together && count != 0 && count != left {
                continue;
            }
            if count > 0 {
                self.put(member, stop.node, count);
            }
            self.depth += 1;
            let found = self.spread(at, others, left - count, Some(count));
            self.depth -= 1;
            if found? {
                return Ok(true);
            }
            if count > 0 {
                self.lift();
            }
        }
        Ok(false)
    }

    /// The nodes that a member may be on and has room on, the tightest first, and such that are alike
    /// next to each other.
    fn stops(&self, member: usize) -> Vec<Stop> {
        let wants = &self.gang.members[member];
        let here = |node: &usize| {
            let mut pins = wants.shared.iter().filter_map(|at| self.pins[*at]);
            may(wants, *node) && pins.all(|pin| pin == *node)
        };
        let nodes = (0..self.rooms.len()).filter(here);
        let nodes = nodes.map(|node| (fits(wants, &self.rooms[node]), node));
        let mut nodes: Vec<(usize, usize)> = nodes.filter(|(most, _)| *most > 0).collect();
        nodes.sort_by(|(one, a), (two, b)| {
            one.cmp(two).then_with(|| self.look(*a).cmp(&self.look(*b))).then(a.cmp(b))
        });
        let mut stops: Vec<Stop> = Vec::with_capacity(nodes.len());
        for (most, node) in nodes {
            let is_twin =
                stops.last().is_some_and(|before| self.look(before.node) == self.look(node));
            stops.push(Stop { node, most, rest: 0, is_twin });
        }
        let mut rest = 0_usize;
        for stop in stops.iter_mut().rev() {
            rest = rest.saturating_add(stop.most);
            stop.rest = rest;
        }
        stops
    }

    /// All that matters of a node, now.
    fn look(&self, node: usize) -> (usize, usize, &[i64], &[Users]) {
        (self.doors[node], self.equipment.kind(node), &self.rooms[node], &self.users[node])
    }

    /// Whether nothing shows yet that the members from `at` on find no place: each of them has enough
    /// nodes if it were alone, and of every resource there is as much as all of them need.
    fn is_hopeful(&self, at: usize) -> bool {
        let members = || self.order[at..].iter().map(|member| &self.gang.members[*member]);
        let alone = members().all(|member| {
            let mut left = member.count;
            (0..self.rooms.len()).any(|node| {
                if left > 0 && may(member, node) {
                    left = left.saturating_sub(fits(member, &self.rooms[node]));
                }
                left == 0
            }) || left == 0
        });
        let resources = self.gang.rooms.first().map_or(0, Vec::len);
        let together = (0..resources).all(|resource| {
            let need = members().fold(0_i128, |sum, it| sum + need(it, resource) * width(it.count));
            let open = |node: &usize| members().any(|it| may(it, *node));
            let nodes = (0..self.rooms.len()).filter(open);
            need <= nodes.map(|node| i128::from(self.rooms[node][resource].max(0))).sum::<i128>()
        });
        alone && together
    }

    /// How many of a member, of at most so many, can have their devices on a node beside all that was
    /// placed.
    fn bearable(&mut self, member: usize, node: usize, most: usize) -> Result<usize, Undecided> {
        if most == 0 || !has_claims(&self.gang.members[member]) {
            return Ok(most);
        }
        // Who has less to ask for is served if who has more is.
        let (mut served, mut beyond) = (0, most + 1);
        let mut next = most;
        while served + 1 < beyond {
            match self.serves(member, node, next)? {
                true => served = next,
                false => beyond = next,
            }
            next = served + (beyond - served) / 2;
        }
        Ok(served)
    }

    fn serves(&mut self, member: usize, node: usize, count: usize) -> Found {
        let region = self.equipment.region(node);
        let mut given = self.given(region);
        given.entry(node).or_default().extend(self.asks(member, count));
        let steps = self.budget.steps.saturating_sub(self.steps);
        let (found, steps) = self.equipment.serves(&given, Budget { steps, ..self.budget });
        self.steps = self.steps.saturating_add(steps);
        match found {
            Ok(serves) => Ok(serves),
            Err(Undecided::TooLarge) => {
                self.doubt = Some(Undecided::TooLarge);
                Ok(false)
            }
            Err(Undecided::Steps(_)) => Err(Undecided::Steps(self.budget.steps)),
            Err(Undecided::Stopped) => Err(Undecided::Stopped),
        }
    }

    /// Whose claims are on the nodes of a region.
    fn given(&self, region: usize) -> Given {
        let nodes = self.users.iter().enumerate().filter(|(_, users)| !users.is_empty());
        let here = nodes.filter(|(node, _)| self.equipment.region(*node) == region);
        here.map(|(node, users)| (node, users.clone())).collect()
    }

    /// What comes to a node with some of a member: their claims, and those they share if nobody has
    /// brought them.
    fn asks(&self, member: usize, count: usize) -> Vec<Users> {
        let wants = &self.gang.members[member];
        let own = wants.request.map(|_| (member, count));
        let shared = wants.shared.iter().filter(|at| self.pins[**at].is_none());
        own.into_iter().chain(shared.map(|at| (self.gang.members.len() + at, 1))).collect()
    }

    fn put(&mut self, member: usize, node: usize, count: usize) {
        let asks = self.asks(member, count);
        for (user, _) in &asks {
            if let Some(shared) = user.checked_sub(self.gang.members.len()) {
                self.pins[shared] = Some(node);
            }
        }
        self.account(member, node, count, -1);
        self.placed.push(Put { member, node, count, users: asks.len() });
        self.users[node].extend(asks);
    }

    /// Takes back what was put last.
    fn lift(&mut self) {
        let Some(Put { member, node, count, users }) = self.placed.pop() else { return };
        self.account(member, node, count, 1);
        let first = self.users[node].len() - users;
        for (user, _) in self.users[node].drain(first..) {
            if let Some(shared) = user.checked_sub(self.gang.members.len()) {
                self.pins[shared] = None;
            }
        }
    }

    fn account(&mut self, member: usize, node: usize, count: usize, sign: i64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        for (left, need) in self.rooms[node].iter_mut().zip(&self.gang.members[member].needs) {
            if *need > 0 {
                *left = left.saturating_add(sign * need.saturating_mul(count));
            }
        }
    }

    /// Everything that the members from `at` on depend on. Nodes that are alike may change places.
    fn state(&self, at: usize) -> Vec<i64> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut nodes: Vec<Vec<i64>> = (0..self.rooms.len())
            .map(|node| {
                let (door, kind, room, users) = self.look(node);
                let users = users.iter().flat_map(|(user, count)| [number(*user), number(*count)]);
                let ends = [i64::MIN];
                let head = [number(door), number(kind)].into_iter().chain(room.iter().copied());
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
        let look = self.steps.is_multiple_of(LOOK_AROUND);
        if look && self.budget.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Undecided::Stopped);
        }
        Ok(())
    }

    /// What was found, pod by pod, with what each gets.
    fn answer(&self) -> GroupAnswer {
        let mut claims: Vec<Vec<(usize, Vec<ClaimAllocation>)>> =
            vec![Vec::new(); self.gang.members.len()];
        let mut regions: Vec<usize> =
            (0..self.rooms.len()).filter(|at| !self.users[*at].is_empty()).collect();
        regions.iter_mut().for_each(|at| *at = self.equipment.region(*at));
        regions.sort_unstable();
        regions.dedup();
        for region in regions {
            let given = self.given(region);
            // It was served before, in no more steps than there are in all.
            let allocation = match self.equipment.allocate(&given, self.budget) {
                Ok((Some(allocation), _)) => allocation,
                Ok((None, _)) => return GroupAnswer::Indeterminate(Undecided::TooLarge),
                Err(undecided) => return GroupAnswer::Indeterminate(undecided),
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
        for Put { member, node, count, .. } in self.placed.iter().copied() {
            for _ in 0..count {
                let at = claims[member].iter().position(|(place, _)| *place == node);
                let claims = at.map(|at| claims[member].swap_remove(at).1).unwrap_or_default();
                pods.push(Placed { member, node, claims });
            }
        }
        pods.sort_by_key(|it| (it.member, it.node));
        GroupAnswer::Placed(pods)
    }
}

fn has_claims(member: &Member<'_>) -> bool {
    member.request.is_some() || !member.shared.is_empty()
}

fn may(member: &Member<'_>, node: usize) -> bool {
    member.nodes.get(node).copied().unwrap_or_default()
}

fn need(member: &Member<'_>, resource: usize) -> i128 {
    i128::from(member.needs.get(resource).copied().unwrap_or_default().max(0))
}

fn width(count: usize) -> i128 {
    i128::try_from(count).unwrap_or(i128::MAX)
}

/// How many of a member find room in what is left of a node.
fn fits(member: &Member<'_>, room: &[i64]) -> usize {
    let wanted = member.needs.iter().zip(room).filter(|(need, _)| **need > 0);
    let most =
        wanted.map(|(need, left)| usize::try_from((*left).max(0) / need).unwrap_or(usize::MAX));
    most.min().unwrap_or(usize::MAX).min(member.count)
}

/// How large a member's pods are: the largest part of what all nodes have of anything, in millionths.
fn size(member: &Member<'_>, gang: &Gang<'_>) -> i128 {
    let resources = member.needs.iter().enumerate();
    let parts = resources.map(|(at, need)| {
        let all = gang.rooms.iter().filter_map(|it| it.get(at));
        let all = all.map(|it| i128::from(*it).max(0)).sum::<i128>();
        i128::from(*need).max(0) * 1_000_000 / all.max(1)
    });
    parts.max().unwrap_or_default()
}
