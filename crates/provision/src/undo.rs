//! What `destroy` does: the inverses of a journal, without what others have changed since.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Action, Inverse};
use crate::journal::{Intent, Journal, Outcome};
use crate::state::{Observed, State, Want};

/// What happens to one entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoItem {
    /// The number of the entry.
    pub sequence: u64,
    /// The step that did it.
    pub step: String,
    /// What was done, in words.
    pub what: String,
    /// What happens now.
    pub verdict: UndoVerdict,
}

/// Whether an entry is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoVerdict {
    /// By these actions; without any, it has not happened or is undone already.
    Play(Vec<Action>),
    /// Not: something else has changed the resource since.
    Changed {
        /// The resource.
        want: Want,
    },
    /// Not: it has no inverse.
    Irreversible(String),
}

/// All resources that have to be observed before [`undo`].
#[must_use]
pub fn wants(journal: &Journal) -> Vec<Want> {
    let all = journal.entries().filter(|(_, outcome)| **outcome != Outcome::Undone);
    let wants: BTreeSet<Want> =
        all.flat_map(|(intent, _)| intent.before.iter().map(|(want, _)| want.clone())).collect();
    wants.into_iter().collect()
}

/// Decides what is undone, the newest entry first. Units that ran before are started again at the
/// end, when their configuration is what it was.
#[must_use]
pub fn undo(journal: &Journal, observed: &Observed) -> Vec<UndoItem> {
    let mut current = observed.clone().salted(&journal.salt);
    let mut items = Vec::new();
    let mut restarts: BTreeMap<String, (u64, String, Action)> = BTreeMap::new();
    for (intent, outcome) in journal.entries().rev() {
        if *outcome == Outcome::Undone {
            continue;
        }
        let mut verdict = decide(intent, &mut current);
        if let UndoVerdict::Play(actions) = &mut verdict {
            for action in actions {
                let start = action.clone();
                let Action::Unit { name, active: active @ true, .. } = action else { continue };
                *active = false;
                restarts.insert(name.clone(), (intent.sequence, intent.step.clone(), start));
            }
        }
        items.push(UndoItem {
            sequence: intent.sequence,
            step: intent.step.clone(),
            what: intent.action.to_string(),
            verdict,
        });
    }
    items.extend(restarts.into_values().map(|(sequence, step, action)| UndoItem {
        sequence,
        step,
        what: action.to_string(),
        verdict: UndoVerdict::Play(vec![action]),
    }));
    items
}

fn decide(intent: &Intent, current: &mut Observed) -> UndoVerdict {
    let mut is_left = false;
    for (want, before) in intent.before.iter() {
        let state = current.get(want);
        if is_stopped(before, state) {
            is_left = true;
            continue;
        }
        if state.matches(before) {
            continue;
        }
        // Folders above a file stay while others have something in them; the host decides that.
        if state.matches(&intent.action.after(want)) {
            is_left = true;
        } else if is_gone(state) {
            // What we made was removed by others; there is nothing to undo.
        } else {
            return UndoVerdict::Changed { want: want.clone() };
        }
    }
    if !is_left {
        return UndoVerdict::Play(Vec::new());
    }
    match intent.action.inverse(&intent.before, intent.saved.as_deref()) {
        Inverse::Irreversible(reason) => UndoVerdict::Irreversible(reason),
        Inverse::Actions(actions) => {
            for (want, before) in intent.before.iter() {
                current.set(want.clone(), before.clone());
            }
            UndoVerdict::Play(actions)
        }
    }
}

/// Whether a unit that ran before does not run, since an earlier attempt to undo stopped it.
fn is_stopped(before: &State, state: &State) -> bool {
    matches!(before, State::Unit { active: true, .. })
        && matches!(state, State::Unit { active: false, .. })
}

fn is_gone(state: &State) -> bool {
    *state == State::Absent
}
