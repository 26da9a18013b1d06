//! Namespaces of test runs, which are kept for their logs and deleted when they expire.

use jiff::civil::Date;
use serde_json::Value;

use crate::definition::text;

/// The label of a namespace that may be swept; its value is `true`.
pub const SWEEP_LABEL: &str = "fma-e2e.llm-d.ai/sweep";
/// The annotation with the last day of a namespace, as `YYYY-MM-DD` in UTC.
pub const EXPIRES_AT_ANNOTATION: &str = "fma-e2e.llm-d.ai/expires-at";

/// What to do about a namespace that may be swept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpiryVerdict {
    /// Its last day is over.
    Expired {
        /// That day.
        last: Date,
        /// The revision at which it was read.
        resource_version: String,
    },
    /// Its last day is today or to come.
    NotExpired {
        /// That day.
        last: Date,
    },
    /// It is already terminating.
    Terminating,
    /// Its last day cannot be determined. It stays: a mistake must not delete anything.
    InvalidDate {
        /// The value of the annotation.
        found: String,
    },
}

/// What to do about a namespace on this day; `None` if it is not one of a test run.
#[must_use]
pub fn check_expiry(namespace: &Value, today: Date) -> Option<ExpiryVerdict> {
    let metadata = &namespace["metadata"];
    if metadata["labels"][SWEEP_LABEL] != "true" {
        return None;
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Some(ExpiryVerdict::Terminating);
    }
    let found = metadata["annotations"][EXPIRES_AT_ANNOTATION].as_str().unwrap_or_default();
    // A full timestamp would be parsed too, and its time zone lost.
    let last = (found.len() == "2026-01-31".len()).then(|| found.parse::<Date>());
    let Some(Ok(last)) = last else {
        return Some(ExpiryVerdict::InvalidDate { found: found.to_owned() });
    };
    if last >= today {
        return Some(ExpiryVerdict::NotExpired { last });
    }
    let resource_version = text(namespace, "/metadata/resourceVersion").to_owned();
    Some(ExpiryVerdict::Expired { last, resource_version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use serde_json::json;

    #[test]
    fn namespaces_expire_the_day_after() {
        let namespace = |day: &str| {
            json!({"metadata": {
                "name": "n", "resourceVersion": "7",
                "labels": {SWEEP_LABEL: "true"}, "annotations": {EXPIRES_AT_ANNOTATION: day},
            }})
        };
        let today = date(2026, 3, 1);
        let due = |last| ExpiryVerdict::Expired { last, resource_version: "7".to_owned() };
        let unknown = |found: &str| ExpiryVerdict::InvalidDate { found: found.to_owned() };
        let table = [
            ("2026-02-28", due(date(2026, 2, 28))),
            ("2025-12-31", due(date(2025, 12, 31))),
            ("2026-03-01", ExpiryVerdict::NotExpired { last: today }),
            ("2026-11-01", ExpiryVerdict::NotExpired { last: date(2026, 11, 1) }),
            ("", unknown("")),
            ("2026-02-30", unknown("2026-02-30")),
            ("2026-2-28", unknown("2026-2-28")),
            ("2026-02-28T00:00:00Z", unknown("2026-02-28T00:00:00Z")),
            ("tomorrow", unknown("tomorrow")),
        ];
        for (day, verdict) in table {
            assert_eq!(check_expiry(&namespace(day), today), Some(verdict), "{day}");
        }
        let mut one = namespace("2026-02-28");
        one["metadata"]["deletionTimestamp"] = json!("2026-03-01T00:00:00Z");
        assert_eq!(check_expiry(&one, today), Some(ExpiryVerdict::Terminating));
    }

    #[test]
    fn namespaces_without_the_label_are_ignored() {
        let today = date(2026, 3, 1);
        for labels in
            [json!({}), json!({SWEEP_LABEL: "false"}), json!({SWEEP_LABEL: true}), json!(null)]
        {
            let annotations = json!({EXPIRES_AT_ANNOTATION: "2020-01-01"});
            let one = json!({"metadata": {"labels": labels, "annotations": annotations}});
            assert_eq!(check_expiry(&one, today), None, "{one}");
        }
    }
}
