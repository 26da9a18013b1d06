//! Values against types, bounds and clauses.

use serde_json::{Map, Value};

use super::kinds::{is_enum_value, type_mismatch};
use super::number;
use crate::checks::{Checks, Clause};
use crate::correlate::{self, OldItems};
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::path::Path;
use crate::tree::{NodeId, Schema, Shape};

/// One walk over a value.
#[derive(Clone, Copy)]
pub(super) struct ValueCheck<'run> {
    pub(super) schema: &'run Schema,
    /// The field the value stands in, empty for a whole object.
    pub(super) above: &'run str,
}

/// What a value is checked against.
#[derive(Clone, Copy)]
pub(super) enum Target<'run> {
    Node(NodeId),
    Clause(&'run Clause),
}

/// The result of a walk. Of alternatives that all fail, the one with the most checks that held is
/// reported.
#[derive(Default)]
pub(super) struct CheckResult {
    pub(super) errors: Vec<ValueError>,
    passed: usize,
}

impl CheckResult {
    fn merge(&mut self, mut other: Self) {
        self.errors.append(&mut other.errors);
        self.passed += other.passed;
    }
}

/// A fault, and the words by which it is known to be said already.
pub(super) struct ValueError {
    pub(super) message: String,
    pub(super) field_error: FieldError,
}

/// The words of a fault in a number.
pub(super) enum NumberError {
    /// After the path.
    After(String),
    /// The factor itself cannot be used.
    Factor { factor: String },
}

impl<'run> ValueCheck<'run> {
    /// Validates a value. `old` is the value it comes from, if that can be determined.
    pub(super) fn value(
        self,
        target: Target<'run>,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
    ) -> CheckResult {
        let checks = match target {
            Target::Node(id) => match self.schema.checks(id) {
                Some(checks) => checks,
                // Nothing is said about the value or anything in it.
                None => return CheckResult::default(),
            },
            Target::Clause(clause) => &clause.checks,
        };
        let mut found = CheckResult::default();
        self.kind(checks, value, path, &mut found);
        if value.is_null() {
            found.passed = usize::from(found.errors.is_empty());
            self.choices(checks, value, path, &mut found);
            return self.ratchet(target, value, old, found);
        }
        self.clauses(checks, value, path, &mut found);
        match value {
            Value::String(text) => self.text(checks, text, value, path, &mut found),
            Value::Number(number) => {
                for words in number::number_errors(checks, number) {
                    self.number(words, value, path, &mut found);
                }
                found.passed += 2;
            }
            Value::Array(items) => self.items(target, checks, items, old, path, &mut found),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.choices(checks, value, path, &mut found);
        found.passed += 2;
        if let Value::Object(map) = value {
            self.entries(target, checks, map, old, path, &mut found);
            found.passed += 1;
        }
        self.ratchet(target, value, old, found)
    }

    /// Forgets what is wrong with a value that has not changed.
    fn ratchet(
        self,
        target: Target<'_>,
        value: &Value,
        old: Option<&Value>,
        mut found: CheckResult,
    ) -> CheckResult {
        if let (Target::Node(id), Some(old), false) = (target, old, found.errors.is_empty())
            && correlate::is_unchanged(self.schema, id, value, old)
        {
            found.errors.clear();
        }
        found
    }

    fn kind(self, checks: &Checks, value: &Value, path: &Path<'_>, found: &mut CheckResult) {
        let Some(fault) = type_mismatch(checks, value) else {
            if checks.kind.is_some() || checks.format.is_some() {
                found.passed += 2;
            }
            return;
        };
        found.passed += 1;
        let (expected, is) = fault;
        let place = path.in_body();
        let words = format!("{place} in body must be of type {expected}: {}", go::quote(is));
        let message = format!("Invalid value: {}: {words}", go::quote(is));
        self.push_error(path, FieldErrorReason::TypeInvalid, message, words, found);
    }

    fn clauses(
        self,
        checks: &'run Checks,
        value: &Value,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        found.passed += 2;
        let holds = |clause| self.value(Target::Clause(clause), value, None, path);
        if !checks.any_of.is_empty() {
            self.any_of(&checks.any_of, holds, path, found);
        }
        if !checks.one_of.is_empty() {
            self.one_of(&checks.one_of, holds, path, found);
        }
        if !checks.all_of.is_empty() {
            let (mut held, count) = (0, checks.all_of.len());
            for clause in &checks.all_of {
                let result = holds(clause);
                held += usize::from(result.errors.is_empty());
                found.merge(result);
            }
            if held < count {
                let none = if held == 0 { ". None validated" } else { "" };
                self.push_object_error(
                    path,
                    &format!("must validate all the schemas (allOf){none}"),
                    found,
                );
            }
        }
        if let Some(clause) = &checks.not
            && holds(clause).errors.is_empty()
        {
            self.push_object_error(path, "must not validate the schema (not)", found);
        }
    }

    fn any_of(
        self,
        clauses: &'run [Clause],
        holds: impl Fn(&'run Clause) -> CheckResult,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        let mut best: Option<CheckResult> = None;
        for clause in clauses {
            let result = holds(clause);
            if result.errors.is_empty() {
                found.merge(result);
                return;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        self.push_object_error(path, "must validate at least one schema (anyOf)", found);
        if let Some(best) = best {
            found.merge(best);
        }
    }

    fn one_of(
        self,
        clauses: &'run [Clause],
        holds: impl Fn(&'run Clause) -> CheckResult,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        let (mut held, mut first, mut best) = (0_usize, None, None::<CheckResult>);
        for clause in clauses {
            let result = holds(clause);
            if result.errors.is_empty() {
                held += 1;
                best = None;
                first.get_or_insert(result);
            } else if held == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        if held == 1 {
            found.merge(first.unwrap_or_default());
            return;
        }
        let count = match held {
            0 => "Found none valid".to_owned(),
            _ => format!("Found {held} valid alternatives"),
        };
        self.push_object_error(
            path,
            &format!("must validate one and only one schema (oneOf). {count}"),
            found,
        );
        if let Some(best) = best {
            found.merge(best);
        }
    }

    fn text(
        self,
        checks: &Checks,
        text: &str,
        value: &Value,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        found.passed += 1;
        // Of the bounds of a text only the first that fails is reported.
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(most) = checks.max_length.filter(|most| length() > *most) {
            let words = format!("{} in body should be at most {most} chars long", path.in_body());
            let unit = if most == 1 { "byte" } else { "bytes" };
            let message = format!("Too long: may not be more than {most} {unit}");
            self.push_error(path, FieldErrorReason::TooLong, message, words, found);
        } else if let Some(least) = checks.min_length.filter(|least| length() < *least) {
            self.push_path_error(
                value,
                &format!("should be at least {least} chars long"),
                path,
                found,
            );
        } else if let Some(pattern) = checks.pattern.as_ref().filter(|it| !it.matches(text)) {
            self.push_path_error(value, &format!("should match '{}'", pattern.text()), path, found);
        }
        let Some(format) = &checks.format else { return };
        found.passed += 1;
        if !format.matches(text) {
            let words = format!(
                "{} in body must be of type {}: {}",
                path.in_body(),
                format.name(),
                go::quote(text)
            );
            let message = format!("Invalid value: {}: {words}", go::quote(text));
            self.push_error(path, FieldErrorReason::TypeInvalid, message, words, found);
        }
    }

    fn number(self, words: NumberError, value: &Value, path: &Path<'_>, found: &mut CheckResult) {
        match words {
            NumberError::After(text) => self.push_path_error(value, &text, path, found),
            NumberError::Factor { factor } => {
                let place = path.in_body();
                let words =
                    format!("factor MultipleOf declared for {place} must be positive: {factor}");
                let message = format!("Invalid value: {factor}: {words}");
                self.push_error(path, FieldErrorReason::Invalid, message, words, found);
            }
        }
    }

    fn items(
        self,
        target: Target<'run>,
        checks: &Checks,
        items: &[Value],
        old: Option<&Value>,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        let part = match target {
            Target::Node(id) => match &self.schema.node(id).shape {
                Shape::List { items, .. } => Some(Target::Node(*items)),
                Shape::Any | Shape::Scalar(_) | Shape::Map { .. } | Shape::Struct { .. } => None,
            },
            Target::Clause(clause) => clause.items.as_deref().map(Target::Clause),
        };
        if let Some(part) = part {
            let olds = match (target, old) {
                (Target::Node(id), Some(_)) => Some(OldItems::new(self.schema, id, old)),
                (Target::Node(_) | Target::Clause(_), _) => None,
            };
            for (index, item) in items.iter().enumerate() {
                let old = olds.as_ref().and_then(|olds| olds.get(item));
                found.merge(self.value(part, item, old, &path.index(index)));
            }
        }
        found.passed += 2;
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(least) = checks.min_items.filter(|least| count < *least) {
            let text = format!("should have at least {least} items");
            self.push_path_error(&Value::from(count), &text, path, found);
        }
        if let Some(most) = checks.max_items.filter(|most| count > *most) {
            self.too_many(count, most, "items", path, found);
        }
    }

    fn entries(
        self,
        target: Target<'run>,
        checks: &Checks,
        map: &Map<String, Value>,
        old: Option<&Value>,
        path: &Path<'_>,
        found: &mut CheckResult,
    ) {
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(least) = checks.min_properties.filter(|least| count < *least) {
            let text = format!("should have at least {least} properties");
            self.push_path_error(&Value::from(count), &text, path, found);
        }
        if let Some(most) = checks.max_properties.filter(|most| count > *most) {
            self.too_many(count, most, "properties", path, found);
        }
        let mut failed: Vec<(&str, CheckResult)> = Vec::new();
        for (key, value) in map {
            let mut result = CheckResult::default();
            match self.entry_target(target, checks, key) {
                EntryTarget::Declared(part) => {
                    let old = self.old_entry(target, key, old, path);
                    result = self.value(part, value, old, &path.field(key));
                }
                EntryTarget::Free(part) => {
                    let old = self.old_entry(target, key, old, path);
                    result = self.value(part, value, old, &path.entry(key));
                }
                EntryTarget::Refused => {
                    let words = format!("{}.{key} in body is a forbidden property", path.in_body());
                    let message = format!("Invalid value: {}: {words}", go::quote(key));
                    self.push_error(path, FieldErrorReason::Invalid, message, words, &mut result);
                }
                EntryTarget::Unknown => {}
            }
            if result.errors.is_empty() {
                found.passed += result.passed;
            } else {
                failed.push((key, result));
            }
        }
        // By name, so that the answer does not depend on how the object was written.
        failed.sort_unstable_by_key(|(key, _)| *key);
        for (_, result) in failed {
            found.merge(result);
        }
        for name in &checks.required {
            if !map.contains_key(&**name) {
                let place = path.entry(name);
                let words = format!("{} in body is required", place.in_body());
                let message = "Required value".to_owned();
                self.push_error(&place, FieldErrorReason::Required, message, words, found);
            }
        }
    }

    fn entry_target(self, target: Target<'run>, checks: &Checks, key: &str) -> EntryTarget<'run> {
        match target {
            Target::Node(id) => match &self.schema.node(id).shape {
                Shape::Struct { fields, .. } => match fields.get(key) {
                    Some(field) => EntryTarget::Declared(Target::Node(field.node)),
                    None if checks.deny_additional => EntryTarget::Refused,
                    None => checks
                        .additional
                        .map_or(EntryTarget::Unknown, |rest| EntryTarget::Free(Target::Node(rest))),
                },
                Shape::Map { .. } if checks.deny_additional => EntryTarget::Refused,
                Shape::Map { values, .. } => EntryTarget::Free(Target::Node(*values)),
                Shape::Any | Shape::Scalar(_) | Shape::List { .. } => EntryTarget::Unknown,
            },
            Target::Clause(clause) => clause
                .fields
                .get(key)
                .map_or(EntryTarget::Unknown, |it| EntryTarget::Declared(Target::Clause(it))),
        }
    }

    /// What an entry comes from. Of `kind` and `apiVersion` nothing is told by their old values:
    /// both objects are of one kind and version when they come here.
    fn old_entry<'old>(
        self,
        target: Target<'_>,
        key: &str,
        old: Option<&'old Value>,
        path: &Path<'_>,
    ) -> Option<&'old Value> {
        match target {
            Target::Node(_) if path.is_root() && matches!(key, "kind" | "apiVersion") => None,
            Target::Node(id) => correlate::entry(self.schema, id, key, old),
            Target::Clause(_) => None,
        }
    }

    fn choices(self, checks: &Checks, value: &Value, path: &Path<'_>, found: &mut CheckResult) {
        if checks.enum_values.is_empty()
            || checks.enum_values.iter().any(|choice| is_enum_value(value, choice))
        {
            return;
        }
        let choices: Vec<String> = checks
            .enum_values
            .iter()
            .map(|choice| match choice {
                Value::String(text) => go::quote(text),
                other => go::quote(&go::json(other)),
            })
            .collect();
        let choices = choices.join(", ");
        let words = format!("{} in body should be one of {choices}", path.in_body());
        let message =
            format!("Unsupported value: {}: supported values: {choices}", go::print(value));
        self.push_error(path, FieldErrorReason::NotSupported, message, words, found);
    }

    fn too_many(self, count: i64, most: i64, what: &str, path: &Path<'_>, found: &mut CheckResult) {
        let words = format!("{} in body should have at most {most} {what}", path.in_body());
        let unit = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {most} {unit}");
        self.push_error(path, FieldErrorReason::TooMany, message, words, found);
    }

    /// A plain fault whose words follow the path.
    fn push_path_error(self, value: &Value, text: &str, path: &Path<'_>, found: &mut CheckResult) {
        let words = format!("{} in body {text}", path.in_body());
        let message = format!("Invalid value: {}: {words}", go::print(value));
        self.push_error(path, FieldErrorReason::Invalid, message, words, found);
    }

    /// A fault of a value as a whole; upstream does not name a field for these.
    fn push_object_error(self, path: &Path<'_>, text: &str, found: &mut CheckResult) {
        let words = format!("{} {text}", go::quote(&path.in_body()));
        let message = format!("Invalid value: \"\": {words}");
        self.push_error(&Path::ROOT, FieldErrorReason::Invalid, message, words, found);
    }

    fn push_error(
        self,
        path: &Path<'_>,
        reason: FieldErrorReason,
        message: String,
        words: String,
        found: &mut CheckResult,
    ) {
        let place = path.in_body();
        let place = place.strip_prefix('.').unwrap_or(&place);
        let field = match (self.above, place) {
            ("", "") => "<nil>".to_owned(),
            ("", place) => place.to_owned(),
            (above, "") => above.to_owned(),
            (above, place) => format!("{above}.{place}"),
        };
        found.errors.push(ValueError {
            message: words,
            field_error: FieldError::new(field, reason, message),
        });
    }
}

/// How an entry is checked.
enum EntryTarget<'run> {
    Declared(Target<'run>),
    Free(Target<'run>),
    Refused,
    Unknown,
}
