//! The two rounds of mutating webhooks: which ones are called again, and what they must not break.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_patch::ownership::{INVALID_AFTER_ADMISSION, check_managed_fields};
use serde_json::Value;

use super::Webhook;
use crate::admission::Review;

/// The state of the mutating webhooks of one write.
///
/// In the second round those webhooks are called again that allow it and precede a change: by a
/// later webhook, or by the server between the rounds.
#[derive(Debug)]
pub(crate) struct Reinvocation {
    hooks: Arc<Vec<Webhook>>,
    round: usize,
    /// Webhooks that were called since the last change, and want to see the next.
    called_since_change: BTreeSet<String>,
    /// Webhooks to be called again.
    to_reinvoke: BTreeSet<String>,
    /// The object after the first round.
    first_round_result: Option<Value>,
    /// The managed fields before the first round.
    owners: Option<Value>,
}

impl Reinvocation {
    pub(super) fn new(hooks: Arc<Vec<Webhook>>, object: Option<&Value>) -> Self {
        let owners = object.map(|object| object["metadata"]["managedFields"].clone());
        let (behind, again) = (BTreeSet::new(), BTreeSet::new());
        Self {
            hooks,
            round: 0,
            called_since_change: behind,
            to_reinvoke: again,
            first_round_result: None,
            owners,
        }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, object: Option<&Value>) -> Arc<Vec<Webhook>> {
        self.round += 1;
        if self.round > 1 && self.first_round_result.as_ref() != object {
            self.to_reinvoke.append(&mut self.called_since_change);
        }
        Arc::clone(&self.hooks)
    }

    /// Whether a webhook is called in this round.
    pub(super) fn includes(&self, id: &str) -> bool {
        self.round == 1 || self.to_reinvoke.contains(id)
    }

    /// Records the result of a call.
    pub(super) fn record_call(&mut self, wants_again: bool, id: &str, changed: bool) {
        if changed {
            self.to_reinvoke.append(&mut self.called_since_change);
        }
        if wants_again {
            self.called_since_change.insert(id.to_owned());
        }
    }

    /// Ends a round.
    pub(super) fn end(&mut self, object: Option<&Value>) {
        self.first_round_result = object.cloned();
    }

    /// Restores the managed fields if the webhooks left invalid ones.
    pub(crate) fn restore_invalid_ownership(&self, review: &mut Review<'_>, object: &mut Value) {
        let Err(fault) = check_managed_fields(object) else { return };
        review.warnings.push(format!("{INVALID_AFTER_ADMISSION}{fault}"));
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

    /// Returns the webhooks that are called in the second round, when these are called in the first
    /// (name, wants to be called again, changes the object), and the server does or does not change
    /// it in between.
    fn second(first: &[(&str, bool, bool)], between: bool) -> Vec<String> {
        let mut rounds = Reinvocation::new(Arc::default(), None);
        rounds.begin(Some(&json!(0)));
        for (id, again, changed) in first {
            assert!(rounds.includes(id), "all are called in the first round");
            rounds.record_call(*again, id, *changed);
        }
        rounds.end(Some(&json!(1)));
        rounds.begin(Some(&json!(if between { 2 } else { 1 })));
        let ids = first.iter().map(|it| it.0.to_owned());
        ids.filter(|id| rounds.includes(id)).collect()
    }

    #[test]
    fn webhooks_called_before_a_change_are_reinvoked_if_needed() {
        let none: Vec<String> = Vec::new();
        assert_eq!(second(&[("a", true, false), ("b", false, true)], false), ["a"]);
        assert_eq!(second(&[("a", false, false), ("b", false, true)], false), none);
        assert_eq!(second(&[("a", true, true), ("b", true, false)], false), none);
        assert_eq!(second(&[("a", true, true), ("b", true, true)], false), ["a"]);
        assert_eq!(second(&[("a", true, true), ("b", true, false)], true), ["a", "b"]);
        assert_eq!(second(&[("a", true, true), ("b", false, false)], true), ["a"]);
    }
}
