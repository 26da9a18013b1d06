//! The functions that expressions may call.
//!
//! A row of a table says everything about a function: its name, the types it takes and gives, what
//! a call costs, and what it does. The checker, the estimate and the evaluator read the same row.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use crate::cost::Charge;
use crate::fault::EvalError;
use crate::signature::Signature;
use crate::value::Value;
use crate::work::Work;

pub(crate) mod convert;
pub(crate) mod format;
mod formatting;
mod lists;
pub(crate) mod mixed;
pub(crate) mod net;
pub(crate) mod operators;
mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
mod strings;
pub(crate) mod time;
pub(crate) mod url;

/// What a call does; a member function finds its target in front of its arguments.
pub(crate) type Run = for<'v> fn(&mut Work<'_>, &[Value<'v>]) -> Answer<'v>;

/// What a call answers.
pub(crate) type Answer<'v> = Result<Value<'v>, EvalError>;

/// A function of the library.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// The types it is defined for, see [`Signature`].
    pub(crate) signatures: &'static [&'static str],
    pub(crate) charge: Charge,
    pub(crate) run: Run,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The function of this name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.get(name).map(|(entry, _)| *entry)
}

/// The types that the function is defined for.
pub(crate) fn signatures(entry: &Entry) -> &'static [Signature] {
    ENTRIES.get(entry.name).map_or(&[], |(_, signatures)| signatures)
}

const TABLES: [&[Entry]; 14] = [
    operators::FUNCTIONS,
    convert::FUNCTIONS,
    strings::FUNCTIONS,
    formatting::FUNCTIONS,
    regex::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    optional::FUNCTIONS,
    time::FUNCTIONS,
    quantity::FUNCTIONS,
    net::FUNCTIONS,
    url::FUNCTIONS,
    semver::FUNCTIONS,
    format::FUNCTIONS,
];

static ENTRIES: LazyLock<HashMap<&'static str, (&'static Entry, Vec<Signature>)>> =
    LazyLock::new(|| {
        let rows = TABLES.into_iter().flatten();
        rows.map(|entry| {
            let signatures = entry.signatures.iter().filter_map(|text| Signature::parse(text));
            (entry.name, (entry, signatures.collect()))
        })
        .collect()
    });

/// Whether a name in an expression stands for a type.
pub(crate) fn is_type_name(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "bytes"
            | "double"
            | "dyn"
            | "int"
            | "list"
            | "map"
            | "null_type"
            | "string"
            | "type"
            | "uint"
            | "optional_type"
            | "google.protobuf.Timestamp"
            | "google.protobuf.Duration"
            | "kubernetes.Quantity"
            | "kubernetes.URL"
            | "kubernetes.Semver"
            | "kubernetes.NamedFormat"
            | "net.IP"
            | "net.CIDR"
    )
}

/// A call with values that the function is not defined for.
fn no_overload<'v>() -> Answer<'v> {
    Err(EvalError::NoSuchOverload)
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES, TABLES};

    #[test]
    fn every_row_is_found_under_its_name_with_all_its_signatures() {
        let rows: Vec<_> = TABLES.iter().copied().flatten().collect();
        assert_eq!(rows.len(), ENTRIES.len(), "two rows have one name");
        for row in rows {
            let (_, signatures) = &ENTRIES[row.name];
            assert_eq!(signatures.len(), row.signatures.len(), "{}", row.name);
        }
    }
}
