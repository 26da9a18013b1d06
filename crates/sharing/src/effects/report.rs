//! Reports of the outcome for each object, for users and for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::cluster_client::RequestError;
use crate::inventory::{ObjectKind, owner_role};

/// The report of a command, object by object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether the server only validated what was written.
    pub dry_run: bool,
    /// The outcome for each object.
    pub objects: Vec<ObjectReport>,
    /// What is left in the cluster on purpose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<String>,
}

/// The outcome for one object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The outcome.
    pub outcome: ObjectOutcome,
    /// The reason.
    pub why: String,
    /// The ClusterRole that the caller needs, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_for: Option<String>,
    /// What changes, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// The outcome for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectOutcome {
    /// It was created.
    Created,
    /// It was changed.
    Changed,
    /// It is unchanged.
    Unchanged,
    /// It is left to others, or the server does not support such objects.
    Skipped,
    /// It was deleted.
    Deleted,
    /// It does not exist.
    Absent,
    /// Others would lose something.
    Refused,
    /// The caller lacks a permission.
    Forbidden,
    /// The timeout has passed.
    TimedOut,
    /// The server refused for another reason, or does not respond.
    Failed,
}

impl ObjectOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Deleted => "deleted",
            Self::Absent => "absent",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::TimedOut => "timed out",
            Self::Failed => "failed",
        }
    }
}

impl ObjectReport {
    /// A line about an object.
    #[must_use]
    pub fn new(
        kind: ObjectKind,
        name: &str,
        outcome: ObjectOutcome,
        why: impl Into<String>,
    ) -> Self {
        let why = why.into();
        let kind = kind.as_str().to_owned();
        Self { kind, name: name.to_owned(), outcome, why, ask_for: None, diff: None }
    }

    /// A line about an object for which the server returned an error.
    #[must_use]
    pub fn failed(kind: ObjectKind, name: &str, fault: &RequestError) -> Self {
        let mut line = Self::new(kind, name, ObjectOutcome::Failed, fault.to_string());
        match fault {
            RequestError::Forbidden(_) => {
                line.outcome = ObjectOutcome::Forbidden;
                line.ask_for = Some(owner_role(kind, name).to_owned());
            }
            RequestError::Conflict(_)
            | RequestError::NotFound(_)
            | RequestError::Refused(_)
            | RequestError::NoResponse(_) => {}
        }
        line
    }

    /// The same with what changes.
    #[must_use]
    pub fn with_diff(mut self, diff: Option<String>) -> Self {
        self.diff = diff;
        self
    }
}

impl Report {
    /// The exit code: the first of these that applies.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let any = |outcome| self.objects.iter().any(|line| line.outcome == outcome);
        let codes = [
            (ObjectOutcome::Forbidden, 2),
            (ObjectOutcome::Refused, 3),
            (ObjectOutcome::TimedOut, 4),
            (ObjectOutcome::Failed, 1),
        ];
        codes.into_iter().find(|(outcome, _)| any(*outcome)).map_or(0, |(_, code)| code)
    }

    /// Renders the report for users: a line for each object, then the roles to ask for, then what
    /// stays.
    #[must_use]
    pub fn render(&self) -> String {
        let mut page = String::new();
        let suffix = if self.dry_run { " (dry run)" } else { "" };
        // Writing to a string does not fail.
        for line in &self.objects {
            let ObjectReport { kind, name, outcome, why, ask_for: _, diff } = line;
            let word = outcome.word();
            let _ = writeln!(page, "{}/{name} {word}{suffix}: {why}", kind.to_lowercase());
            for text in diff.iter().flat_map(|it| it.lines()) {
                let _ = writeln!(page, "  {text}");
            }
        }
        let mut roles: Vec<&str> =
            self.objects.iter().filter_map(|line| line.ask_for.as_deref()).collect();
        roles.sort_unstable();
        roles.dedup();
        for role in roles {
            let _ = writeln!(page, "{}", role_request_hint(role));
        }
        for stays in &self.stays {
            let _ = writeln!(page, "stays: {stays}");
        }
        page
    }
}

/// What a user who lacks a role can do about it.
#[must_use]
pub fn role_request_hint(role: &str) -> String {
    match role {
        crate::inventory::CLUSTER_ADMIN => {
            "only an administrator of the cluster can do this (ClusterRole cluster-admin)"
                .to_owned()
        }
        role => format!(
            "ask an administrator of the cluster for ClusterRole {role}: kubectl create \
             clusterrolebinding {role}-YOU --clusterrole={role} --user=YOU"
        ),
    }
}

/// A readable diff; `None` if nothing changes.
#[must_use]
pub fn difference(before: Option<&Value>, after: &Value) -> Option<String> {
    let Some(before) = before else { return Some("all of it is new".to_owned()) };
    let (before, after) = (desired_fields(before), desired_fields(after));
    let text = |value: &Value| gantry_yaml::write(value).unwrap_or_else(|_| format!("{value:#}"));
    if before == after {
        return None;
    }
    let (before, after) = (text(&before), text(&after));
    let diff = similar::TextDiff::from_lines(&before, &after);
    let diff = diff.unified_diff().context_radius(2).header("cluster", "wanted").to_string();
    Some(diff.trim_end().to_owned())
}

/// The part of an object that users set.
#[must_use]
pub fn desired_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    let made_up = ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];
    for field in made_up {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.shift_remove(field);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(outcomes: &[ObjectOutcome]) -> Report {
        let kind = ObjectKind::CustomResourceDefinition;
        let line = |outcome: &ObjectOutcome| ObjectReport::new(kind, "a.b", *outcome, "so");
        let objects = outcomes.iter().map(line).collect();
        Report { dry_run: false, objects, stays: Vec::new() }
    }

    #[test]
    fn codes_tell_how_it_went() {
        let table: [(&[ObjectOutcome], u8); 7] = [
            (&[], 0),
            (
                &[
                    ObjectOutcome::Created,
                    ObjectOutcome::Unchanged,
                    ObjectOutcome::Skipped,
                    ObjectOutcome::Absent,
                ],
                0,
            ),
            (&[ObjectOutcome::Changed, ObjectOutcome::Failed], 1),
            (&[ObjectOutcome::Refused, ObjectOutcome::Forbidden, ObjectOutcome::TimedOut], 2),
            (&[ObjectOutcome::TimedOut, ObjectOutcome::Refused], 3),
            (&[ObjectOutcome::Deleted, ObjectOutcome::TimedOut], 4),
            (&[ObjectOutcome::Failed, ObjectOutcome::TimedOut], 4),
        ];
        for (outcomes, code) in table {
            assert_eq!(report(outcomes).exit_code(), code, "{outcomes:?}");
        }
    }

    #[test]
    fn missing_roles_are_listed_once() {
        let kind = ObjectKind::CustomResourceDefinition;
        let fault = RequestError::Forbidden("no".to_owned());
        let names = ["launcherconfigs.fma.llm-d.ai", "inferenceserverconfigs.fma.llm-d.ai"];
        let objects = names.map(|name| ObjectReport::failed(kind, name, &fault)).to_vec();
        let report = Report { dry_run: false, objects, stays: vec!["your namespace".to_owned()] };
        assert_eq!(report.exit_code(), 2);
        let page = report.render();
        assert_eq!(page.matches("ClusterRole fma-crd-admin").count(), 1, "{page}");
        assert!(page.ends_with("stays: your namespace\n"), "{page}");
    }

    #[test]
    fn only_what_somebody_wants_is_a_difference() {
        let before = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"x": 1}});
        let same = json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"x": 1},
            "status": {"y": 2}});
        let after = json!({"metadata": {"name": "a"}, "spec": {"x": 2}});
        assert_eq!(difference(Some(&before), &same), None);
        let diff = difference(Some(&before), &after).unwrap();
        assert!(diff.contains("-  x: 1\n+  x: 2"), "{diff}");
        assert_eq!(difference(None, &after).as_deref(), Some("all of it is new"));
    }
}
