//! An object in other versions, for the computation of field ownership.
//!
//! Ownership is computed synchronously, in crate `patch`. When it asks for a version that is not
//! here, the version is recorded as missing and the result discarded; the object is then converted
//! and the computation repeated. It asks for the same versions again, so this ends after a few
//! rounds.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::response::status::StatusError;

/// Rounds in which a version may be found missing. Each version of a kind needs two at most.
const MAX_CONVERSION_ROUNDS: usize = 64;

/// Objects in other versions: those that are known and those that are missing.
#[derive(Debug, Default)]
pub(crate) struct ConvertedVersions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    converted: Vec<(Value, String, Value)>,
    missing: Vec<(Value, String)>,
    rounds: usize,
}

impl ConvertedVersions {
    /// Returns the object in another version, if it is known; otherwise records it as missing.
    pub(crate) fn find(&self, object: &Value, version: &str) -> Option<Value> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = state.converted.iter();
        let found = known.find(|(from, to, _)| to == version && from == object);
        let found = found.map(|(_, _, view)| view.clone());
        if found.is_none() {
            state.missing.push((object.clone(), version.to_owned()));
        }
        found
    }

    /// Takes the missing versions, each once.
    pub(crate) fn take_missing(&self) -> Result<Vec<(Value, String)>, StatusError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = std::mem::take(&mut state.missing);
        let all = wanted.clone();
        let mut place = 0;
        wanted.retain(|it| {
            place += 1;
            !all[..place - 1].contains(it)
        });
        state.rounds += usize::from(!wanted.is_empty());
        if state.rounds > MAX_CONVERSION_ROUNDS {
            return Err(StatusError::internal(
                "ownership asks for ever more versions of an object",
            ));
        }
        Ok(wanted)
    }

    pub(crate) fn insert(&self, object: &Value, version: &str, view: Value) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.converted.push((object.clone(), version.to_owned(), view));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_versions_are_reported_once_and_then_found() {
        let views = ConvertedVersions::default();
        let (object, view) = (json!({ "a": 1 }), json!({ "b": 1 }));
        assert_eq!(views.find(&object, "v2"), None);
        assert_eq!(views.find(&object, "v2"), None);
        assert_eq!(views.take_missing().unwrap(), [(object.clone(), "v2".to_owned())]);
        assert_eq!(views.take_missing().unwrap(), []);
        views.insert(&object, "v2", view.clone());
        assert_eq!(views.find(&object, "v2"), Some(view));
        assert_eq!(views.find(&object, "v3"), None);
    }

    #[test]
    fn conversion_rounds_are_limited() {
        let views = ConvertedVersions::default();
        for round in 0..MAX_CONVERSION_ROUNDS {
            views.find(&json!(round), "v2");
            assert_eq!(views.take_missing().unwrap().len(), 1);
        }
        views.find(&json!("one more"), "v2");
        assert!(views.take_missing().is_err());
    }
}
