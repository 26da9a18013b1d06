//! The two rounds of mutating webhooks: who is asked again, and what they may not break.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_patch::ownership::{BROKEN_BY_ADMISSION, check_entries};
use serde_json::Value;

use super::Webhook;
use crate::admission::Review;

/// How far the mutating webhooks of one write have come.
///
/// In the second round those are asked again who wanted it and came before a change: by a later
/// webhook, or by the server between the rounds.
#[derive(Debug)]
pub(crate) struct Rounds {
    hooks: Arc<Vec<Webhook>>,
    round: usize,
    /// Who was asked since the last change, and wants to see the next.
    behind: BTreeSet<String>,
    /// Who is to be asked again.
    again: BTreeSet<String>,
    /// The object after the first round.
    last: Option<Value>,
    /// The owners of its fields before the first.
    owners: Option<Value>,
}

impl Rounds {
    pub(super) fn new(hooks: Arc<Vec<Webhook>>, object: Option<&Value>) -> Self {
        let owners = object.map(|object| object["metadata"]["managedFields"].clone());
        let (behind, again) = (BTreeSet::new(), BTreeSet::new());
        Self { hooks, round: 0, behind, again, last: None, owners }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, object: Option<&Value>) -> Arc<Vec<Webhook>> {
        self.round += 1;
        if self.round > 1 && self.last.as_ref() != object {
            self.again.append(&mut self.behind);
        }
        Arc::clone(&self.hooks)
    }

    /// Whether a webhook is to be asked in this round.
    pub(super) fn includes(&self, id: &str) -> bool {
        self.round == 1 || self.again.contains(id)
    }

    /// Notes what came of asking a webhook.
    pub(super) fn asked(&mut self, wants_again: bool, id: &str, changed: bool) {
        if changed {
            self.again.append(&mut self.behind);
        }
        if wants_again {
            self.behind.insert(id.to_owned());
        }
    }

    /// Ends a round.
    pub(super) fn end(&mut self, object: Option<&Value>) {
        self.last = object.cloned();
    }

    /// Puts the owners of fields back if what the webhooks left cannot be read.
    pub(crate) fn keep_ownership(&self, review: &mut Review<'_>, object: &mut Value) {
        let Err(fault) = check_entries(object) else { return };
        review.warnings.push(format!("{BROKEN_BY_ADMISSION}{fault}"));
        let Some(metadata) = object["metadata"].as_object_mut() else { return };
        match &self.owners {
            Some(Value::Null) | None => drop(metadata.shift_remove("managedFields")),
            Some(owners) => drop(metadata.insert("managedFields".to_owned(), owners.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Who is asked in the second round, when these are asked in the first (name, wants to be asked
    /// again, changes the object), and the server does or does not change it in between.
    fn second(first: &[(&str, bool, bool)], between: bool) -> Vec<String> {
        let mut rounds = Rounds::new(Arc::default(), None);
        rounds.begin(Some(&json!(0)));
        for (id, again, changed) in first {
            assert!(rounds.includes(id), "all are asked in the first round");
            rounds.asked(*again, id, *changed);
        }
        rounds.end(Some(&json!(1)));
        rounds.begin(Some(&json!(if between { 2 } else { 1 })));
        let ids = first.iter().map(|it| it.0.to_owned());
        ids.filter(|id| rounds.includes(id)).collect()
    }

    #[test]
    fn those_are_asked_again_who_want_it_and_came_before_a_change() {
        let none: Vec<String> = Vec::new();
        assert_eq!(second(&[("a", true, false), ("b", false, true)], false), ["a"]);
        assert_eq!(second(&[("a", false, false), ("b", false, true)], false), none);
        assert_eq!(second(&[("a", true, true), ("b", true, false)], false), none);
        assert_eq!(second(&[("a", true, true), ("b", true, true)], false), ["a"]);
        assert_eq!(second(&[("a", true, true), ("b", true, false)], true), ["a", "b"]);
        assert_eq!(second(&[("a", true, true), ("b", false, false)], true), ["a"]);
    }
}
