//! Compares two configurations, and separates changes that apply at once from those that need a
//! restart.

use serde_json::Value;

use super::keys::Effect;
use super::values::Values;

/// A key whose value has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The key.
    pub key: &'static str,
    /// The old value.
    pub old: Value,
    /// The new value.
    pub new: Value,
}

/// All differences, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Changes that are applied at once.
    pub live: Vec<Change>,
    /// Changes that need a restart.
    pub restart: Vec<Change>,
}

/// Compares two configurations by value; the source of a value makes no difference.
#[must_use]
pub fn diff(old: &Values, new: &Values) -> Changes {
    let mut changes = Changes::default();
    for (key, value, _) in new.iter() {
        let before = old.get(key.path);
        if before == value {
            continue;
        }
        let change = Change { key: key.path, old: before.clone(), new: value.clone() };
        match key.effect {
            Effect::Live => changes.live.push(change),
            Effect::Restart => changes.restart.push(change),
            Effect::Never(_) => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{document, keys};
    use serde_json::json;

    fn values(text: &str) -> Values {
        Values::from_layers(keys::KEYS.as_slice(), [&document::read(text, "x").0])
    }

    #[test]
    fn cf_7_live_changes_are_separated_from_restarts() {
        let old = values("mcad: {backoffTime: 20, preemption: true}\n");
        let new = values("mcad: {backoffTime: 5}\nkuberay: {a: 1}\nmetrics: {bindAddress: ':1'}\n");
        let Changes { live, restart } = diff(&old, &new);
        let change = |key, old, new| Change { key, old, new };
        assert_eq!(live, [change("mcad.backoffTime", json!(20), json!(5))]);
        let metrics = change("metrics.bindAddress", json!("127.0.0.1:8080"), json!(":1"));
        let preemption = change("mcad.preemption", json!(true), json!(false));
        assert_eq!(restart, [metrics, preemption]);
        // Writing out a default is not a change.
        assert_eq!(diff(&values(""), &values("mcad: {backoffTime: 20}")), Changes::default());
    }
}
