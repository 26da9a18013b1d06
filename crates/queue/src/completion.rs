//! Decides whether an item has finished, by the conditions that the user names.

use crate::wrapped::ObjectCondition;

/// Returns whether one of the conditions that the user names is present.
///
/// A condition is named by a part of its type, in any letter case, and matches with any status: a
/// Deployment that is `Progressing` matches at once, and users rely on that. `Type=True` requires
/// the status too.
#[must_use]
pub fn is_complete(named: &str, conditions: &[ObjectCondition]) -> bool {
    let parts = named.split(',').map(str::trim).filter(|it| !it.is_empty());
    let mut parts = parts.map(|part| match part.split_once('=') {
        Some((kind, status)) => (kind.trim().to_lowercase(), Some(status.trim().to_lowercase())),
        None => (part.to_lowercase(), None),
    });
    parts.any(|(kind, status)| {
        conditions.iter().any(|it| {
            it.kind.to_lowercase().contains(&kind)
                && status.as_ref().is_none_or(|status| it.status.to_lowercase() == *status)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_2_any_part_of_a_type_will_do() {
        let table = [
            ("nothing is said", "Complete", vec![], false),
            ("the type", "Complete", vec![("Complete", "True")], true),
            ("in any letter case", "complete", vec![("COMPLETED", "True")], true),
            ("whatever its status", "Complete", vec![("Complete", "False")], true),
            ("unless one is asked for", "Complete=True", vec![("Complete", "False")], false),
            ("and found", "Complete=true", vec![("Complete", "True")], true),
            ("any of them", "Complete, Failed", vec![("Failed", "True")], true),
            ("none of them", "Complete,Failed", vec![("Suspended", "True")], false),
            ("no part is empty", "Complete,", vec![("Suspended", "True")], false),
            (
                "a part of the type",
                "Progress",
                vec![("Available", "F"), ("Progressing", "T")],
                true,
            ),
        ];
        for (why, named, conditions, expected) in table {
            let truth = |(kind, status): (&str, &str)| ObjectCondition {
                kind: kind.into(),
                status: status.into(),
            };
            let conditions: Vec<ObjectCondition> = conditions.into_iter().map(truth).collect();
            assert_eq!(is_complete(named, &conditions), expected, "{why}");
        }
    }
}
