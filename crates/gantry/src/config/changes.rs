//! What is different between two configurations, and whether it changes while the operator runs.

use serde_json::Value;

use super::keys::Effect;
use super::values::Values;

/// One key with another value than before.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The key.
    pub key: &'static str,
    /// What it was.
    pub old: Value,
    /// What it is.
    pub new: Value,
}

/// Everything that is different, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// What may be taken over at once.
    pub live: Vec<Change>,
    /// What needs a start.
    pub restart: Vec<Change>,
}

/// Compares two configurations by value; where the values were written makes no difference.
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
        Values::stack(keys::KEYS.as_slice(), [&document::read(text, "x").0])
    }

    #[test]
    fn cf_7_safe_changes_are_told_from_the_others() {
        let old = values("mcad: {backoffTime: 20, preemption: true}\n");
        let new = values("mcad: {backoffTime: 5}\nkuberay: {a: 1}\nmetrics: {bindAddress: ':1'}\n");
        let Changes { live, restart } = diff(&old, &new);
        let change = |key, old, new| Change { key, old, new };
        assert_eq!(live, [change("mcad.backoffTime", json!(20), json!(5))]);
        let metrics = change("metrics.bindAddress", json!("127.0.0.1:8080"), json!(":1"));
        let preemption = change("mcad.preemption", json!(true), json!(false));
        assert_eq!(restart, [metrics, preemption]);
        // A default that is written out is no change.
        assert_eq!(diff(&values(""), &values("mcad: {backoffTime: 20}")), Changes::default());
    }
}
