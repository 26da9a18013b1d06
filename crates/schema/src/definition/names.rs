//! The names of a kind, and conflicts between definitions.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{condition_status, text};
use crate::field_error::FieldError;
use crate::go;
use crate::metadata::invalid_value;
use crate::names::dns1035_label;

/// A condition of a definition, without the time it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: bool,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// Which names a definition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesStatus {
    /// `status.acceptedNames`: those it requested and no other definition of the group has; for a
    /// name that another one has, what the definition had before.
    pub accepted: Value,
    /// The condition `NamesAccepted`.
    pub names_accepted: Condition,
    /// The condition `Established`. Once it holds it stays.
    pub established: Condition,
}

/// Decides which names a definition has, given all definitions there are. Those of other groups do
/// not matter, nor do names that others only ask for.
pub fn accept_names<'others>(
    definition: &Value,
    others: impl IntoIterator<Item = &'others Value>,
) -> NamesStatus {
    let empty = Map::new();
    let names = |definition: &'others Value| definition.pointer("/status/acceptedNames");
    let group = definition.pointer("/spec/group");
    let own_name = definition.pointer("/metadata/name");
    let mut used = UsedNames::default();
    for other in others {
        let is_own = other.pointer("/metadata/name") == own_name;
        if !is_own && other.pointer("/spec/group") == group {
            used.add(names(other).and_then(Value::as_object).unwrap_or(&empty));
        }
    }
    let asked = definition.pointer("/spec/names").and_then(Value::as_object).unwrap_or(&empty);
    let had = definition.pointer("/status/acceptedNames").and_then(Value::as_object);
    let had = had.unwrap_or(&empty);
    used.add(had);

    let mut accepted = had.clone();
    let mut conflict = None;
    for (name, pool, reason) in [
        ("plural", &used.resources, "PluralConflict"),
        ("singular", &used.resources, "SingularConflict"),
        ("shortNames", &used.resources, "ShortNamesConflict"),
        ("kind", &used.kinds, "KindConflict"),
        ("listKind", &used.kinds, "ListKindConflict"),
    ] {
        let taken = name_conflicts(asked, had, name, pool);
        match taken.as_slice() {
            [] => copy(asked, &mut accepted, name),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    copy(asked, &mut accepted, "categories");

    let (is_accepted, reason, message) = match conflict {
        Some((reason, message)) => (false, reason, message),
        None => (true, "NoConflicts", "no conflicts found".to_owned()),
    };
    let is_established = condition_status(definition, "Established") == Some("True") || is_accepted;
    let (established, why) = match is_established {
        true => ("InitialNamesAccepted", "the initial names have been accepted"),
        false => ("NotAccepted", "not all names are accepted"),
    };
    NamesStatus {
        accepted: Value::Object(accepted),
        names_accepted: Condition { kind: "NamesAccepted", status: is_accepted, reason, message },
        established: Condition {
            kind: "Established",
            status: is_established,
            reason: established,
            message: why.to_owned(),
        },
    }
}

/// The names that are taken. Resources and kinds do not get in each other's way.
#[derive(Default)]
struct UsedNames<'definition> {
    resources: HashSet<&'definition str>,
    kinds: HashSet<&'definition str>,
}

impl<'definition> UsedNames<'definition> {
    fn add(&mut self, names: &'definition Map<String, Value>) {
        self.resources.extend([text(names, "plural"), text(names, "singular")]);
        self.resources.extend(texts(names, "shortNames"));
        self.kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
}

/// What is said about each name that is asked for and taken.
fn name_conflicts(
    asked: &Map<String, Value>,
    had: &Map<String, Value>,
    name: &str,
    used: &HashSet<&str>,
) -> Vec<String> {
    let (wanted, own) = match name {
        "shortNames" => (texts(asked, name), texts(had, name)),
        _ => (vec![text(asked, name)], vec![text(had, name)]),
    };
    let is_taken = |name: &&&str| !own.contains(name) && used.contains(**name);
    let taken = wanted.iter().filter(is_taken);
    taken.map(|name| format!("{} is already in use", go::quote(name))).collect()
}

fn copy(from: &Map<String, Value>, to: &mut Map<String, Value>, name: &str) {
    match from.get(name).filter(|value| !value.is_null()) {
        Some(value) => to.insert(name.to_owned(), value.clone()),
        None => to.shift_remove(name),
    };
}

fn texts<'map>(map: &'map Map<String, Value>, name: &str) -> Vec<&'map str> {
    let list = map.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Checks how names are spelled.
pub(super) fn validate(names: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, name);
        let is_kind = matches!(name, "kind" | "listKind");
        let wrong = match is_kind {
            true => dns1035_label(&value.to_lowercase()),
            false => dns1035_label(value),
        };
        if value.is_empty() || wrong.is_empty() {
            continue;
        }
        let start = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
        let detail = format!("{start}{}", wrong.join(","));
        faults.push(invalid_value(&format!("{field}.{name}"), value, &detail));
    }
    list(names, "shortNames", field, faults);
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        faults.push(invalid_value(&format!("{field}.listKind"), list_kind, detail));
    }
    list(names, "categories", field, faults);
}

fn list(names: &Map<String, Value>, name: &str, field: &str, faults: &mut Vec<FieldError>) {
    for (index, value) in texts(names, name).into_iter().enumerate() {
        let wrong = dns1035_label(value);
        if !wrong.is_empty() {
            faults.push(invalid_value(
                &format!("{field}.{name}[{index}]"),
                value,
                &wrong.join(","),
            ));
        }
    }
}
