//! How many nodes of which type a job needs, and whether it needs them now.

use std::collections::BTreeMap;
use std::fmt;

use crate::view::{AppWrapper, NODES_ANNOTATION, ORDERED_INSTANCE_LABEL};

/// Nodes by instance type; never empty, and no number in it is zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand(BTreeMap<String, u32>);

impl Demand {
    /// Returns what a job needs: by its label, or without a label by the annotation of shape
    /// inference.
    #[must_use]
    pub fn of(job: &AppWrapper) -> Option<Self> {
        match job.metadata.labels.get(ORDERED_INSTANCE_LABEL) {
            Some(label) => Self::named(job, label),
            None => Self::read(job.metadata.annotations.get(NODES_ANNOTATION)?),
        }
    }

    /// Returns what the label says; `None` where it names nothing.
    ///
    /// The types of the label, in order, belong to the entries of `custompodresources`, counted
    /// through all items. Surplus types or entries are ignored.
    fn named(job: &AppWrapper, label: &str) -> Option<Self> {
        let types = label.split('_').filter(|it| !it.is_empty());
        let pods = job.items().iter().flat_map(|item| &item.replicas);
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        for (instance, replicas) in types.zip(pods) {
            let replicas = u32::try_from((*replicas).max(0)).unwrap_or(u32::MAX);
            if replicas > 0 {
                let sum = nodes.entry(instance.to_owned()).or_default();
                *sum = sum.saturating_add(replicas);
            }
        }
        Self::new(nodes)
    }

    /// Reads a demand from the text it was [written](fmt::Display) as; `None` if it is none.
    fn read(text: &str) -> Option<Self> {
        let read = |part: &str| {
            let (instance, count) = part.trim().split_once('=')?;
            let count = count.parse().ok().filter(|_| !instance.is_empty())?;
            Some((instance.to_owned(), count))
        };
        Self::new(text.split(',').map(read).collect::<Option<_>>()?)
    }

    /// Creates a demand of these nodes; `None` if there are none.
    #[must_use]
    pub fn new(mut nodes: BTreeMap<String, u32>) -> Option<Self> {
        nodes.retain(|_, count| *count > 0);
        (!nodes.is_empty()).then_some(Self(nodes))
    }

    /// Returns the total number of nodes.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns types and numbers, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(instance, count)| (instance.as_str(), *count))
    }
}

impl fmt::Display for Demand {
    /// Formats it as `g4dn.xlarge=2, m5.xlarge=1`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (instance, count)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(to, "{comma}{instance}={count}")?;
        }
        Ok(())
    }
}

/// Returns whether a job is over, so that nothing is bought for it and everything is released.
#[must_use]
pub fn is_finished(job: &AppWrapper) -> bool {
    job.metadata.is_terminating() || job.has_ended()
}

/// Returns whether a job has not been started yet.
#[must_use]
pub fn is_pending(job: &AppWrapper) -> bool {
    job.is_pending()
}

/// Returns whether a job is pending for lack of resources, by the last condition of the queue.
#[must_use]
pub fn waits_for_capacity(job: &AppWrapper) -> bool {
    job.awaits_resources()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(label: Option<&str>, items: &Value) -> AppWrapper {
        let labels = label.map_or(json!({}), |label| json!({ ORDERED_INSTANCE_LABEL: label }));
        let object = json!({
            "metadata": {"name": "a", "namespace": "n", "labels": labels},
            "spec": {"resources": {"GenericItems": items}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn pods(replicas: i64) -> Value {
        json!({"replicas": replicas, "requests": {"cpu": 1}})
    }

    #[test]
    fn d_1_demand_follows_from_label_and_entries() {
        let two = json!([{"custompodresources": [pods(1), pods(2)]}]);
        let one = json!([{"custompodresources": [pods(3)]}]);
        let table = [
            // why                          label                       items   expected
            (
                "two types, two entries",
                Some("m5.xlarge_g4dn.xlarge"),
                &two,
                "g4dn.xlarge=2, m5.xlarge=1",
            ),
            ("one and one", Some("m5.xlarge"), &one, "m5.xlarge=3"),
            ("an empty label", Some(""), &two, ""),
            ("no label", None, &two, ""),
        ];
        for (why, label, items, expected) in table {
            let found = Demand::of(&job(label, items)).map(|it| it.to_string());
            assert_eq!(found.unwrap_or_default(), expected, "{why}");
        }
    }

    #[test]
    fn is_3_types_belong_to_entries_through_all_items() {
        let two = json!([{"custompodresources": [pods(1), pods(2)]}]);
        let one = json!([{"custompodresources": [pods(3)]}]);
        let apart = json!([
            {"custompodresources": [pods(1), pods(2)]},
            {},
            {"custompodresources": [pods(4)]},
        ]);
        let table = [
            ("an index through all items", Some("a_b_c"), &apart, "a=1, b=2, c=4"),
            ("equal types add up", Some("a_b_a"), &apart, "a=5, b=2"),
            ("an entry too many", Some("a"), &two, "a=1"),
            ("a type too many", Some("a_b_c"), &one, "a=3"),
        ];
        for (why, label, items, expected) in table {
            let found = Demand::of(&job(label, items)).map(|it| it.to_string());
            assert_eq!(found.unwrap_or_default(), expected, "{why}");
        }
        let none = json!([{"custompodresources": [pods(0), pods(-1)]}]);
        assert_eq!(Demand::of(&job(Some("a_b"), &none)), None, "no pods, no nodes");
    }

    #[test]
    fn is_27_without_a_label_the_annotation_counts() {
        let pods = json!([{"custompodresources": [pods(1)]}]);
        let noted = |label: Option<&str>, text: &str| {
            let mut job = job(label, &pods);
            job.metadata.annotations.insert(NODES_ANNOTATION.to_owned(), text.to_owned());
            Demand::of(&job).map(|it| it.to_string()).unwrap_or_default()
        };
        let table = [
            ("as it is written", None, "a=2, b=1", "a=2, b=1"),
            ("the label is what counts", Some("c"), "a=2", "c=1"),
            ("even an empty one", Some(""), "a=2", ""),
            ("no number", None, "a=many", ""),
            ("one part is no part", None, "a=1, b", ""),
            ("no type", None, "=1", ""),
            ("none", None, "a=0", ""),
            ("nothing", None, "", ""),
        ];
        for (why, label, text, expected) in table {
            assert_eq!(noted(label, text), expected, "{why}");
        }
    }

    fn job_with_conditions(state: &str, conditions: &[(&str, &str, &str)]) -> AppWrapper {
        let conditions = conditions.iter().map(|(kind, at, message)| {
            json!({"type": kind, "status": "True", "message": message, "lastUpdateMicroTime": at})
        });
        let conditions: Vec<Value> = conditions.collect();
        let object = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "status": {"state": state, "conditions": conditions},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn is_2_only_the_newest_word_about_resources_counts() {
        const ROOM: &str = "Insufficient resources to dispatch AppWrapper.";
        const QUOTA: &str = "Insufficient quota and/or resources to dispatch AppWrapper.";
        const PODS: &str =
            "Insufficient number of Running and Completed pods, minimum=2, running=0, completed=0.";
        let (early, late) = ("2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000002Z");
        let table = [
            ("it waits for room", "Pending", vec![("Backoff", early, ROOM)], true),
            ("it runs", "Running", vec![("Backoff", early, ROOM)], false),
            ("it waits for quota", "Pending", vec![("Backoff", early, QUOTA)], false),
            ("its pods did not come up", "Pending", vec![("Backoff", early, PODS)], false),
            (
                "another word is newer",
                "Pending",
                vec![("Backoff", early, ROOM), ("Backoff", late, QUOTA)],
                false,
            ),
            (
                "the newer is in front",
                "Pending",
                vec![("Backoff", late, ROOM), ("Backoff", early, QUOTA)],
                true,
            ),
            ("another kind of word", "Pending", vec![("HeadOfLine", early, ROOM)], false),
            ("nothing was said", "Pending", vec![], false),
        ];
        for (why, state, conditions, expected) in table {
            assert_eq!(
                waits_for_capacity(&job_with_conditions(state, &conditions)),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn a_job_is_finished_when_deleted_or_ended() {
        let table = [("Completed", true), ("Failed", true), ("Deleted", true), ("Pending", false)];
        let more = [("Running", false), ("RunningHoldCompletion", false), ("", false)];
        for (state, expected) in table.into_iter().chain(more) {
            assert_eq!(is_finished(&job_with_conditions(state, &[])), expected, "{state}");
        }
    }
}
