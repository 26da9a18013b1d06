//! Values against types, bounds and clauses.

use serde_json::{Map, Value};

use super::kinds::{is_choice, kind_fault};
use super::number;
use crate::checks::{Checks, Clause};
use crate::correlate::{self, OldItems};
use crate::go;
use crate::invalid::{Invalid, Reason};
use crate::path::Path;
use crate::tree::{NodeId, Schema, Shape};

/// One walk over a value.
#[derive(Clone, Copy)]
pub(super) struct Run<'run> {
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

/// What a walk found. Of alternatives that all fail, the one with the most that held is told.
#[derive(Default)]
pub(super) struct Found {
    pub(super) faults: Vec<Fault>,
    held: usize,
}

impl Found {
    fn merge(&mut self, mut other: Self) {
        self.faults.append(&mut other.faults);
        self.held += other.held;
    }
}

/// A fault, and the words by which it is known to be said already.
pub(super) struct Fault {
    pub(super) words: String,
    pub(super) invalid: Invalid,
}

/// The words of a fault in a number.
pub(super) enum Words {
    /// After the path.
    After(String),
    /// The factor itself cannot be used.
    Factor { factor: String },
}

impl<'run> Run<'run> {
    /// Checks a value. `old` is what it comes from, if that can be told.
    pub(super) fn value(
        self,
        target: Target<'run>,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
    ) -> Found {
        let checks = match target {
            Target::Node(id) => match self.schema.checks(id) {
                Some(checks) => checks,
                // Nothing is said about the value or anything in it.
                None => return Found::default(),
            },
            Target::Clause(clause) => &clause.checks,
        };
        let mut found = Found::default();
        self.kind(checks, value, path, &mut found);
        if value.is_null() {
            found.held = usize::from(found.faults.is_empty());
            self.choices(checks, value, path, &mut found);
            return self.ratchet(target, value, old, found);
        }
        self.clauses(checks, value, path, &mut found);
        match value {
            Value::String(text) => self.text(checks, text, value, path, &mut found),
            Value::Number(number) => {
                for words in number::faults(checks, number) {
                    self.number(words, value, path, &mut found);
                }
                found.held += 2;
            }
            Value::Array(items) => self.items(target, checks, items, old, path, &mut found),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.choices(checks, value, path, &mut found);
        found.held += 2;
        if let Value::Object(map) = value {
            self.entries(target, checks, map, old, path, &mut found);
            found.held += 1;
        }
        self.ratchet(target, value, old, found)
    }

    /// Forgets what is wrong with a value that has not changed.
    fn ratchet(
        self,
        target: Target<'_>,
        value: &Value,
        old: Option<&Value>,
        mut found: Found,
    ) -> Found {
        if let (Target::Node(id), Some(old), false) = (target, old, found.faults.is_empty())
            && correlate::is_unchanged(self.schema, id, value, old)
        {
            found.faults.clear();
        }
        found
    }

    fn kind(self, checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Found) {
        let Some(fault) = kind_fault(checks, value) else {
            if checks.kind.is_some() || checks.format.is_some() {
                found.held += 2;
            }
            return;
        };
        found.held += 1;
        let (expected, is) = fault;
        let place = path.in_body();
        let words = format!("{place} in body must be of type {expected}: {}", go::quote(is));
        let message = format!("Invalid value: {}: {words}", go::quote(is));
        self.fault(path, Reason::TypeInvalid, message, words, found);
    }

    fn clauses(self, checks: &'run Checks, value: &Value, path: &Path<'_>, found: &mut Found) {
        found.held += 2;
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
                held += usize::from(result.faults.is_empty());
                found.merge(result);
            }
            if held < count {
                let none = if held == 0 { ". None validated" } else { "" };
                self.whole(path, &format!("must validate all the schemas (allOf){none}"), found);
            }
        }
        if let Some(clause) = &checks.not
            && holds(clause).faults.is_empty()
        {
            self.whole(path, "must not validate the schema (not)", found);
        }
    }

    fn any_of(
        self,
        clauses: &'run [Clause],
        holds: impl Fn(&'run Clause) -> Found,
        path: &Path<'_>,
        found: &mut Found,
    ) {
        let mut best: Option<Found> = None;
        for clause in clauses {
            let result = holds(clause);
            if result.faults.is_empty() {
                found.merge(result);
                return;
            }
            if best.as_ref().is_none_or(|best| result.held > best.held) {
                best = Some(result);
            }
        }
        self.whole(path, "must validate at least one schema (anyOf)", found);
        if let Some(best) = best {
            found.merge(best);
        }
    }

    fn one_of(
        self,
        clauses: &'run [Clause],
        holds: impl Fn(&'run Clause) -> Found,
        path: &Path<'_>,
        found: &mut Found,
    ) {
        let (mut held, mut first, mut best) = (0_usize, None, None::<Found>);
        for clause in clauses {
            let result = holds(clause);
            if result.faults.is_empty() {
                held += 1;
                best = None;
                first.get_or_insert(result);
            } else if held == 0 && best.as_ref().is_none_or(|best| result.held > best.held) {
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
        self.whole(path, &format!("must validate one and only one schema (oneOf). {count}"), found);
        if let Some(best) = best {
            found.merge(best);
        }
    }

    fn text(self, checks: &Checks, text: &str, value: &Value, path: &Path<'_>, found: &mut Found) {
        found.held += 1;
        // Of the bounds of a text only the first that fails is told.
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(most) = checks.max_length.filter(|most| length() > *most) {
            let words = format!("{} in body should be at most {most} chars long", path.in_body());
            let unit = if most == 1 { "byte" } else { "bytes" };
            let message = format!("Too long: may not be more than {most} {unit}");
            self.fault(path, Reason::TooLong, message, words, found);
        } else if let Some(least) = checks.min_length.filter(|least| length() < *least) {
            self.after(value, &format!("should be at least {least} chars long"), path, found);
        } else if let Some(pattern) = checks.pattern.as_ref().filter(|it| !it.matches(text)) {
            self.after(value, &format!("should match '{}'", pattern.text()), path, found);
        }
        let Some(format) = &checks.format else { return };
        found.held += 1;
        if !format.holds(text) {
            let words = format!(
                "{} in body must be of type {}: {}",
                path.in_body(),
                format.name(),
                go::quote(text)
            );
            let message = format!("Invalid value: {}: {words}", go::quote(text));
            self.fault(path, Reason::TypeInvalid, message, words, found);
        }
    }

    fn number(self, words: Words, value: &Value, path: &Path<'_>, found: &mut Found) {
        match words {
            Words::After(text) => self.after(value, &text, path, found),
            Words::Factor { factor } => {
                let place = path.in_body();
                let words =
                    format!("factor MultipleOf declared for {place} must be positive: {factor}");
                let message = format!("Invalid value: {factor}: {words}");
                self.fault(path, Reason::Invalid, message, words, found);
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
        found: &mut Found,
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
        found.held += 2;
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(least) = checks.min_items.filter(|least| count < *least) {
            let text = format!("should have at least {least} items");
            self.after(&Value::from(count), &text, path, found);
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
        found: &mut Found,
    ) {
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(least) = checks.min_properties.filter(|least| count < *least) {
            let text = format!("should have at least {least} properties");
            self.after(&Value::from(count), &text, path, found);
        }
        if let Some(most) = checks.max_properties.filter(|most| count > *most) {
            self.too_many(count, most, "properties", path, found);
        }
        let mut failed: Vec<(&str, Found)> = Vec::new();
        for (key, value) in map {
            let mut result = Found::default();
            match self.part(target, checks, key) {
                Part::Declared(part) => {
                    let old = self.old_entry(target, key, old, path);
                    result = self.value(part, value, old, &path.field(key));
                }
                Part::Free(part) => {
                    let old = self.old_entry(target, key, old, path);
                    result = self.value(part, value, old, &path.entry(key));
                }
                Part::Refused => {
                    let words = format!("{}.{key} in body is a forbidden property", path.in_body());
                    let message = format!("Invalid value: {}: {words}", go::quote(key));
                    self.fault(path, Reason::Invalid, message, words, &mut result);
                }
                Part::Unknown => {}
            }
            if result.faults.is_empty() {
                found.held += result.held;
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
                self.fault(&place, Reason::Required, message, words, found);
            }
        }
    }

    fn part(self, target: Target<'run>, checks: &Checks, key: &str) -> Part<'run> {
        match target {
            Target::Node(id) => match &self.schema.node(id).shape {
                Shape::Struct { fields, .. } => match fields.get(key) {
                    Some(field) => Part::Declared(Target::Node(field.node)),
                    None if checks.closed => Part::Refused,
                    None => {
                        checks.rest.map_or(Part::Unknown, |rest| Part::Free(Target::Node(rest)))
                    }
                },
                Shape::Map { .. } if checks.closed => Part::Refused,
                Shape::Map { values, .. } => Part::Free(Target::Node(*values)),
                Shape::Any | Shape::Scalar(_) | Shape::List { .. } => Part::Unknown,
            },
            Target::Clause(clause) => clause
                .fields
                .get(key)
                .map_or(Part::Unknown, |it| Part::Declared(Target::Clause(it))),
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

    fn choices(self, checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Found) {
        if checks.choices.is_empty() || checks.choices.iter().any(|choice| is_choice(value, choice))
        {
            return;
        }
        let choices: Vec<String> = checks
            .choices
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
        self.fault(path, Reason::NotSupported, message, words, found);
    }

    fn too_many(self, count: i64, most: i64, what: &str, path: &Path<'_>, found: &mut Found) {
        let words = format!("{} in body should have at most {most} {what}", path.in_body());
        let unit = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {most} {unit}");
        self.fault(path, Reason::TooMany, message, words, found);
    }

    /// A plain fault whose words follow the path.
    fn after(self, value: &Value, text: &str, path: &Path<'_>, found: &mut Found) {
        let words = format!("{} in body {text}", path.in_body());
        let message = format!("Invalid value: {}: {words}", go::print(value));
        self.fault(path, Reason::Invalid, message, words, found);
    }

    /// A fault of a value as a whole; upstream does not name a field for these.
    fn whole(self, path: &Path<'_>, text: &str, found: &mut Found) {
        let words = format!("{} {text}", go::quote(&path.in_body()));
        let message = format!("Invalid value: \"\": {words}");
        self.fault(&Path::ROOT, Reason::Invalid, message, words, found);
    }

    fn fault(
        self,
        path: &Path<'_>,
        reason: Reason,
        message: String,
        words: String,
        found: &mut Found,
    ) {
        let place = path.in_body();
        let place = place.strip_prefix('.').unwrap_or(&place);
        let field = match (self.above, place) {
            ("", "") => "<nil>".to_owned(),
            ("", place) => place.to_owned(),
            (above, "") => above.to_owned(),
            (above, place) => format!("{above}.{place}"),
        };
        found.faults.push(Fault { words, invalid: Invalid::new(field, reason, message) });
    }
}

/// How an entry is checked.
enum Part<'run> {
    Declared(Target<'run>),
    Free(Target<'run>),
    Refused,
    Unknown,
}
