//! Namespaces of test runs, which are kept for their logs and go when their day is over.

use jiff::civil::Date;
use serde_json::Value;

use crate::definition::text;

/// The label of a namespace that may be swept away; its value is `true`.
pub const SWEEP: &str = "fma-e2e.llm-d.ai/sweep";
/// The annotation with the last day of a namespace, as `YYYY-MM-DD` in UTC.
pub const EXPIRES: &str = "fma-e2e.llm-d.ai/expires-at";

/// What is done about a namespace that may be swept away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its last day is over.
    Due {
        /// That day.
        last: Date,
        /// The revision it was read at.
        resource_version: String,
    },
    /// Its last day is today or to come.
    Waits {
        /// That day.
        last: Date,
    },
    /// It is going already.
    Going,
    /// Nobody can say when its last day is. It stays: a mistake must not delete anything.
    Unknown {
        /// What stands where the day should be.
        found: String,
    },
}

/// What is done about a namespace on this day; nothing if it is not one of a test run.
#[must_use]
pub fn judge(namespace: &Value, today: Date) -> Option<Verdict> {
    let metadata = &namespace["metadata"];
    if metadata["labels"][SWEEP] != "true" {
        return None;
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Some(Verdict::Going);
    }
    let found = metadata["annotations"][EXPIRES].as_str().unwrap_or_default();
    // A full timestamp would be read too, and its zone forgotten.
    let last = (found.len() == "2026-01-31".len()).then(|| found.parse::<Date>());
    let Some(Ok(last)) = last else {
        return Some(Verdict::Unknown { found: found.to_owned() });
    };
    if last >= today {
        return Some(Verdict::Waits { last });
    }
    let resource_version = text(namespace, "/metadata/resourceVersion").to_owned();
    Some(Verdict::Due { last, resource_version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use serde_json::json;

    #[test]
    fn a_namespace_goes_the_day_after_its_last() {
        let namespace = |day: &str| {
            json!({"metadata": {
                "name": "n", "resourceVersion": "7",
                "labels": {SWEEP: "true"}, "annotations": {EXPIRES: day},
            }})
        };
        let today = date(2026, 3, 1);
        let due = |last| Verdict::Due { last, resource_version: "7".to_owned() };
        let unknown = |found: &str| Verdict::Unknown { found: found.to_owned() };
        let table = [
            ("2026-02-28", due(date(2026, 2, 28))),
            ("2025-12-31", due(date(2025, 12, 31))),
            ("2026-03-01", Verdict::Waits { last: today }),
            ("2026-11-01", Verdict::Waits { last: date(2026, 11, 1) }),
            ("", unknown("")),
            ("2026-02-30", unknown("2026-02-30")),
            ("2026-2-28", unknown("2026-2-28")),
            ("2026-02-28T00:00:00Z", unknown("2026-02-28T00:00:00Z")),
            ("tomorrow", unknown("tomorrow")),
        ];
        for (day, verdict) in table {
            assert_eq!(judge(&namespace(day), today), Some(verdict), "{day}");
        }
        let mut one = namespace("2026-02-28");
        one["metadata"]["deletionTimestamp"] = json!("2026-03-01T00:00:00Z");
        assert_eq!(judge(&one, today), Some(Verdict::Going));
    }

    #[test]
    fn a_namespace_without_the_label_is_none_of_ours() {
        let today = date(2026, 3, 1);
        for labels in [json!({}), json!({SWEEP: "false"}), json!({SWEEP: true}), json!(null)] {
            let annotations = json!({EXPIRES: "2020-01-01"});
            let one = json!({"metadata": {"labels": labels, "annotations": annotations}});
            assert_eq!(judge(&one, today), None, "{one}");
        }
    }
}
