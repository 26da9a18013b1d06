//! Keeps AppWrappers that may preempt each other from doing so without end.
//!
//! An owner reclaims its quota from any borrower, even one of higher priority; an AppWrapper of
//! higher priority takes the quota of its own node from any other, an owner or not. So each of two
//! jobs may have a right to what the other holds: one owns the quota of a node, the other is larger
//! than the node and of higher priority; or each owns in one tree what the other borrows there.
//! They would preempt each other without end, and neither would ever finish. With more of them
//! there are longer cycles, which change with every AppWrapper that arrives or ends: so a preempted
//! AppWrapper preempts nothing itself for a while.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition;
use crate::settings::Settings;

/// The AppWrappers that one AppWrapper may not preempt, though quota trees or priorities would let
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PreemptionExemption {
    /// None: it was never preempted, or its preemptor has ended.
    Nothing,
    /// All: it was preempted not long ago. If every preempted AppWrapper does so, each preempts
    /// once and there is an end; to exempt only some, those before it in the queue, leaves three
    /// whole jobs preempted for each that runs, most of them only just admitted. It lasts for as
    /// long as the AppWrapper had existed by then, and for one backoff at least: for one that is
    /// preempted again and again it lasts twice as long each time, so that in the end others finish
    /// before they are disturbed.
    All {
        /// When the exemption ends.
        until: Timestamp,
    },
    /// It was preempted, and this is the AppWrapper that runs because of that: its preemptor; or,
    /// where that one was preempted in turn, the preemptor of that one, and so on. An AppWrapper
    /// that comes before all of these in the queue exempts none.
    Preemptor(Key),
}

impl PreemptionExemption {
    /// Returns which AppWrappers one may not preempt.
    pub(super) fn of(
        world: &World,
        wrapper: &AppWrapper,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let Some((mut next, since)) = condition::last_preemption(&wrapper.status) else {
            return Self::Nothing;
        };
        let own = queue_order_key(wrapper);
        let age = since.duration_since(wrapper.first_seen()).unsigned_abs();
        match since.checked_add(age.max(settings.backoff)) {
            Ok(until) if until > now => return Self::All { until },
            Ok(_) | Err(_) => {}
        }
        let store = world.store::<AppWrapper>();
        let mut is_first = true;
        let mut met = BTreeSet::from([wrapper.metadata.key()]);
        loop {
            let Some(other) = store.get(&next) else { return Self::Nothing };
            // A cycle of pending AppWrappers blocks nothing.
            if !met.insert(next.clone()) {
                return Self::Nothing;
            }
            is_first &= own < queue_order_key(&other);
            if other.status.can_run {
                return if is_first { Self::Nothing } else { Self::Preemptor(next) };
            }
            match condition::last_preemption(&other.status).filter(|_| other.is_queued()) {
                Some((cause, _)) => next = cause,
                None => return Self::Nothing,
            }
        }
    }

    /// Returns whether an AppWrapper is exempt.
    pub(super) fn exempts(&self, key: &Key) -> bool {
        match self {
            Self::Nothing => false,
            Self::All { .. } => true,
            Self::Preemptor(cause) => cause == key,
        }
    }

    /// Returns the explanation for the status message.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::All { .. } => {
                Some("it was preempted recently, and preempts no others for a while".to_owned())
            }
            Self::Preemptor(cause) => Some(format!("it was preempted for {cause}, which runs")),
        }
    }
}

/// The position of an AppWrapper in the queue: the smallest is first. With dynamic priorities
/// nothing is preempted.
type QueueOrderKey = (Reverse<i32>, Timestamp, Key);

fn queue_order_key(wrapper: &AppWrapper) -> QueueOrderKey {
    (Reverse(wrapper.spec.priority), wrapper.first_seen(), wrapper.metadata.key())
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::View as _;
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns an AppWrapper of this priority, first seen in the first second; running or pending,
    /// and possibly preempted for another at some time.
    fn wrapper(name: &str, priority: i32, runs: bool, taken: Option<(&str, i64)>) -> Value {
        let time = |second: i64| at(second).to_string().replace('Z', ".000000Z");
        let mut conditions = vec![json!({"type": "Init", "status": "True"})];
        if let Some((by, when)) = taken {
            conditions.push(json!({
                "type": "Preempted", "status": "True", "reason": "QuotaReclaimed",
                "message": format!("Quota was reclaimed by AppWrapper n/{by}."),
                "lastTransitionMicroTime": time(when),
            }));
        }
        let mut status = json!({
            "state": "Pending", "queuejobstate": "Queueing", "conditions": conditions,
            "controllerfirsttimestamp": time(1),
        });
        if runs {
            status["canrun"] = json!(true);
        }
        json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
            "spec": {"priority": priority, "resources": {}},
            "status": status,
        })
    }

    #[test]
    fn a_preempted_app_wrapper_exempts_its_preemptors() {
        let key = |name: &str| Key::new("n", name);
        let cause = |name: &str| PreemptionExemption::Preemptor(key(name));
        let x = |priority, taken| wrapper("x", priority, false, taken);
        let table = [
            (
                "one that was never preempted exempts none",
                x(0, None),
                vec![],
                PreemptionExemption::Nothing,
            ),
            (
                "for as long as it had existed, all",
                x(0, Some(("a", 101))),
                vec![wrapper("a", 5, true, None)],
                PreemptionExemption::All { until: at(201) },
            ),
            (
                "even if it comes before all others",
                x(9, Some(("a", 101))),
                vec![wrapper("a", 5, true, None)],
                PreemptionExemption::All { until: at(201) },
            ),
            (
                "then its preemptor",
                x(0, Some(("a", 41))),
                vec![wrapper("a", 5, true, None)],
                cause("a"),
            ),
            (
                "unless it comes before that one",
                x(9, Some(("a", 41))),
                vec![wrapper("a", 5, true, None)],
                PreemptionExemption::Nothing,
            ),
            (
                "or the preemptor of its preemptor",
                x(3, Some(("a", 41))),
                vec![wrapper("a", 5, false, Some(("b", 42))), wrapper("b", 0, true, None)],
                cause("b"),
            ),
            (
                "one that ended is not exempt, nor its preemptor",
                x(0, Some(("a", 41))),
                vec![wrapper("b", 5, true, None)],
                PreemptionExemption::Nothing,
            ),
            (
                "a cycle of pending AppWrappers exempts none",
                x(0, Some(("a", 41))),
                vec![wrapper("a", 5, false, Some(("x", 42)))],
                PreemptionExemption::Nothing,
            ),
        ];
        for (why, asks, others, expected) in table {
            let world = World::new([gantry_reconcile::Kind::of::<AppWrapper>()]);
            let store = world.single_store_for(&AppWrapper::RESOURCE).unwrap();
            for object in others.iter().chain([&asks]) {
                store.observe(&object.to_string()).unwrap();
            }
            let asks = world.store::<AppWrapper>().get(&key("x")).unwrap();
            let found = PreemptionExemption::of(&world, &asks, &Settings::default(), at(150));
            assert_eq!(found, expected, "{why}");
        }
    }
}
