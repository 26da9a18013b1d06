//! An object in other versions, for whoever works out who owns its fields.
//!
//! Ownership is worked out without waiting, in crate `patch`. When it asks for a view that is not
//! here, the view is noted as wanted and the result thrown away; the view is then fetched and the
//! work done again. It asks the same again, so this ends after a few rounds.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::status::Refusal;

/// Rounds in which something may be found missing. Each version of a kind needs two at most.
const ROUNDS: usize = 64;

/// Objects in other versions, those that are known and those that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<(Value, String, Value)>,
    wanted: Vec<(Value, String)>,
    rounds: usize,
}

impl Views {
    /// The object in another version, if it is known; else it is wanted from now on.
    pub(crate) fn find(&self, object: &Value, version: &str) -> Option<Value> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = state.known.iter();
        let found = known.find(|(from, to, _)| to == version && from == object);
        let found = found.map(|(_, _, view)| view.clone());
        if found.is_none() {
            state.wanted.push((object.clone(), version.to_owned()));
        }
        found
    }

    /// What was asked for and not found, each once.
    pub(crate) fn wanted(&self) -> Result<Vec<(Value, String)>, Refusal> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = std::mem::take(&mut state.wanted);
        let all = wanted.clone();
        let mut place = 0;
        wanted.retain(|it| {
            place += 1;
            !all[..place - 1].contains(it)
        });
        state.rounds += usize::from(!wanted.is_empty());
        if state.rounds > ROUNDS {
            return Err(Refusal::internal("ownership asks for ever more versions of an object"));
        }
        Ok(wanted)
    }

    pub(crate) fn keep(&self, object: &Value, version: &str, view: Value) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.known.push((object.clone(), version.to_owned(), view));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_wanted_once_and_then_known() {
        let views = Views::default();
        let (object, view) = (json!({ "a": 1 }), json!({ "b": 1 }));
        assert_eq!(views.find(&object, "v2"), None);
        assert_eq!(views.find(&object, "v2"), None);
        assert_eq!(views.wanted().unwrap(), [(object.clone(), "v2".to_owned())]);
        assert_eq!(views.wanted().unwrap(), []);
        views.keep(&object, "v2", view.clone());
        assert_eq!(views.find(&object, "v2"), Some(view));
        assert_eq!(views.find(&object, "v3"), None);
    }

    #[test]
    fn asking_for_ever_ends() {
        let views = Views::default();
        for round in 0..ROUNDS {
            views.find(&json!(round), "v2");
            assert_eq!(views.wanted().unwrap().len(), 1);
        }
        views.find(&json!("one more"), "v2");
        assert!(views.wanted().is_err());
    }
}
