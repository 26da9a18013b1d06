//! Two who may each take from the other what it has.
//!
//! An owner gets its quota back from whoever borrowed it, though that be more important; who is more
//! important takes the quota of its own node from whoever has it, an owner or not. So of two jobs each may
//! have a right to what the other holds: one owns the quota of a node, the other is larger than the node and
//! more important; or each owns in one tree what the other borrows there. They would take it from each other
//! without end, and neither would ever be done. With more of them there are longer circles, which change with
//! everybody who comes or ends: so who was taken back takes nothing itself for a while.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition;
use crate::settings::Settings;

/// Whom an AppWrapper takes nothing from, though quota trees or priorities would let it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spared {
    /// It was never taken back, or whom it was taken back for is done.
    Nobody,
    /// It was taken back not long ago: everybody. If all who are taken back do so, each takes something once
    /// and there is an end; to spare only some of them, those before it in the queue, leaves three whole jobs
    /// taken back for each that runs, of which most have only just passed. It goes on for as long as the
    /// AppWrapper had been there by then, and for a pause at least: who is taken back again and again does so
    /// for twice as long each time, so that in the end others are done before they are disturbed.
    Everybody {
        /// How long that goes on.
        until: Timestamp,
    },
    /// It was taken back, and this is the one that runs because of that: the one it made room for; or,
    /// where that one was taken back in turn, the one it made room for, and so on. Who comes before all of
    /// these in the queue spares nobody.
    Cause(Key),
}

impl Spared {
    /// Whom an AppWrapper spares.
    pub(super) fn by(
        world: &World,
        wrapper: &AppWrapper,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let Some((mut next, since)) = condition::taken_back(&wrapper.status) else {
            return Self::Nobody;
        };
        let own = place(wrapper);
        let age = since.duration_since(wrapper.first_seen()).unsigned_abs();
        match since.checked_add(age.max(settings.backoff)) {
            Ok(until) if until > now => return Self::Everybody { until },
            Ok(_) | Err(_) => {}
        }
        let shelf = world.shelf::<AppWrapper>();
        let mut is_first = true;
        let mut met = BTreeSet::from([wrapper.metadata.key()]);
        loop {
            let Some(other) = shelf.get(&next) else { return Self::Nobody };
            // A circle of those that all wait keeps nobody from anything.
            if !met.insert(next.clone()) {
                return Self::Nobody;
            }
            is_first &= own < place(&other);
            if other.status.can_run {
                return if is_first { Self::Nobody } else { Self::Cause(next) };
            }
            match condition::taken_back(&other.status).filter(|_| other.is_queued()) {
                Some((cause, _)) => next = cause,
                None => return Self::Nobody,
            }
        }
    }

    /// Whether somebody is spared.
    pub(super) fn is(&self, key: &Key) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody { .. } => true,
            Self::Cause(cause) => cause == key,
        }
    }

    /// What people are told about it.
    pub(super) fn why(&self) -> Option<String> {
        match self {
            Self::Nobody => None,
            Self::Everybody { .. } => {
                Some("it was taken back, and takes nothing from others for a while".to_owned())
            }
            Self::Cause(cause) => Some(format!("it made room for {cause}, which runs")),
        }
    }
}

/// Where an AppWrapper is in the queue: what is smaller goes first. With priorities that change nobody is
/// taken back.
type Place = (Reverse<i32>, Timestamp, Key);

fn place(wrapper: &AppWrapper) -> Place {
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

    /// Of this priority, first seen in the first second; who runs is told apart from who waits, and may have
    /// been taken back for another at some time.
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
    fn who_was_taken_back_spares_whom_it_must() {
        let key = |name: &str| Key::new("n", name);
        let cause = |name: &str| Spared::Cause(key(name));
        let x = |priority, taken| wrapper("x", priority, false, taken);
        let table = [
            ("who was never taken back spares nobody", x(0, None), vec![], Spared::Nobody),
            (
                "for as long as it had been there, everybody",
                x(0, Some(("a", 101))),
                vec![wrapper("a", 5, true, None)],
                Spared::Everybody { until: at(201) },
            ),
            (
                "though it comes before all others",
                x(9, Some(("a", 101))),
                vec![wrapper("a", 5, true, None)],
                Spared::Everybody { until: at(201) },
            ),
            (
                "then the one it made room for",
                x(0, Some(("a", 41))),
                vec![wrapper("a", 5, true, None)],
                cause("a"),
            ),
            (
                "unless it comes before that one",
                x(9, Some(("a", 41))),
                vec![wrapper("a", 5, true, None)],
                Spared::Nobody,
            ),
            (
                "or the one for which that one was taken back",
                x(3, Some(("a", 41))),
                vec![wrapper("a", 5, false, Some(("b", 42))), wrapper("b", 0, true, None)],
                cause("b"),
            ),
            (
                "who has ended is not spared, nor whoever it ended for",
                x(0, Some(("a", 41))),
                vec![wrapper("b", 5, true, None)],
                Spared::Nobody,
            ),
            (
                "a circle of those that wait is no reason",
                x(0, Some(("a", 41))),
                vec![wrapper("a", 5, false, Some(("x", 42)))],
                Spared::Nobody,
            ),
        ];
        for (why, asks, others, expected) in table {
            let world = World::new([gantry_reconcile::Kind::of::<AppWrapper>()]);
            let shelf = world.find(&AppWrapper::RESOURCE).unwrap();
            for object in others.iter().chain([&asks]) {
                shelf.saw(&object.to_string()).unwrap();
            }
            let asks = world.shelf::<AppWrapper>().get(&key("x")).unwrap();
            let found = Spared::by(&world, &asks, &Settings::default(), at(150));
            assert_eq!(found, expected, "{why}");
        }
    }
}
