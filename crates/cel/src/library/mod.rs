//! The functions that expressions may call.
//!
//! A row of a table says everything about a function: its name, the types it takes and gives, what
//! a call costs, and what it does. The checker, the estimate and the evaluator read the same row.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::signature::Signature;
use crate::value::Value;

pub(crate) mod convert;
mod lists;
pub(crate) mod mixed_comparisons;
pub(crate) mod named_formats;
pub(crate) mod net;
pub(crate) mod operators;
mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
mod string_format;
mod strings;
pub(crate) mod time;
pub(crate) mod url;

/// What a call does; a member function finds its target in front of its arguments.
pub(crate) type FunctionBody = for<'v> fn(&mut EvalContext<'_>, &[Value<'v>]) -> EvalResult<'v>;

/// What a call answers.
pub(crate) type EvalResult<'v> = Result<Value<'v>, EvalError>;

/// A function of the library.
pub(crate) struct LibraryFunction {
    pub(crate) name: &'static str,
    /// The types it is defined for, see [`Signature`].
    pub(crate) signatures: &'static [&'static str],
    pub(crate) charge: CostRule,
    pub(crate) run: FunctionBody,
}

impl fmt::Debug for LibraryFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The function of this name.
pub(crate) fn find(name: &str) -> Option<&'static LibraryFunction> {
    FUNCTIONS_BY_NAME.get(name).map(|(entry, _)| *entry)
}

/// The types that the function is defined for.
pub(crate) fn signatures(entry: &LibraryFunction) -> &'static [Signature] {
    FUNCTIONS_BY_NAME.get(entry.name).map_or(&[], |(_, signatures)| signatures)
}

const TABLES: [&[LibraryFunction]; 14] = [
    operators::FUNCTIONS,
    convert::FUNCTIONS,
    strings::FUNCTIONS,
    string_format::FUNCTIONS,
    regex::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    optional::FUNCTIONS,
    time::FUNCTIONS,
    quantity::FUNCTIONS,
    net::FUNCTIONS,
    url::FUNCTIONS,
    semver::FUNCTIONS,
    named_formats::FUNCTIONS,
];

static FUNCTIONS_BY_NAME: LazyLock<
    HashMap<&'static str, (&'static LibraryFunction, Vec<Signature>)>,
> = LazyLock::new(|| {
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
fn no_overload<'v>() -> EvalResult<'v> {
    Err(EvalError::NoSuchOverload)
}

#[cfg(test)]
mod tests {
    use super::{FUNCTIONS_BY_NAME, TABLES};

    #[test]
    fn every_row_is_found_under_its_name_with_all_its_signatures() {
        let rows: Vec<_> = TABLES.iter().copied().flatten().collect();
        assert_eq!(rows.len(), FUNCTIONS_BY_NAME.len(), "two rows have one name");
        for row in rows {
            let (_, signatures) = &FUNCTIONS_BY_NAME[row.name];
            assert_eq!(signatures.len(), row.signatures.len(), "{}", row.name);
        }
    }
}
