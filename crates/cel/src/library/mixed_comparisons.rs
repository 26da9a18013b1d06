//! Comparisons of amounts and versions with what spells one.
//!
//! Constraints on devices are written `device.memory >= '10Gi'`, which a Kubernetes server refuses;
//! so only an environment that asks for it compares in this way.

use std::cmp::Ordering;
use std::sync::LazyLock;

use super::quantity::Quantity;
use super::semver::Semver;
use crate::ast::Callee;
use crate::environment::Comparisons;
use crate::error::EvalError;
use crate::signature::Signature;
use crate::value::Value;

const OPERATORS: [&str; 6] = ["_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"];

const COMPARED: [&str; 8] = [
    "(kubernetes.Quantity,kubernetes.Quantity) bool",
    "(kubernetes.Quantity,string) bool",
    "(string,kubernetes.Quantity) bool",
    "(kubernetes.Quantity,int) bool",
    "(int,kubernetes.Quantity) bool",
    "(kubernetes.Semver,kubernetes.Semver) bool",
    "(kubernetes.Semver,string) bool",
    "(string,kubernetes.Semver) bool",
];

static SIGNATURES: LazyLock<Vec<Signature>> =
    LazyLock::new(|| COMPARED.iter().filter_map(|text| Signature::parse(text)).collect());

/// The types that an operator is defined for besides its own.
pub(crate) fn signatures(comparisons: Comparisons, callee: &Callee) -> &'static [Signature] {
    match comparisons {
        Comparisons::Mixed if OPERATORS.contains(&callee.name()) => &SIGNATURES,
        Comparisons::Mixed | Comparisons::Kubernetes => &[],
    }
}

/// The order of two values of which one is an amount or a version and the other one too, or spells
/// one; nothing for all others, which are compared as ever.
pub(super) fn order(
    comparisons: Comparisons,
    one: &Value<'_>,
    two: &Value<'_>,
) -> Result<Option<Ordering>, EvalError> {
    match comparisons {
        Comparisons::Kubernetes => return Ok(None),
        Comparisons::Mixed => {}
    }
    Ok(Some(match (one, two) {
        (Value::Quantity(one), Value::Quantity(two)) => one.order(*two),
        (Value::Quantity(one), Value::String(two)) => one.order(amount(two)?),
        (Value::String(one), Value::Quantity(two)) => amount(one)?.order(*two),
        (Value::Quantity(one), Value::Int(two)) => one.order(Quantity::whole(*two)),
        (Value::Int(one), Value::Quantity(two)) => Quantity::whole(*one).order(*two),
        (Value::Semver(one), Value::Semver(two)) => one.precedence(two),
        (Value::Semver(one), Value::String(two)) => one.precedence(&version(two)?),
        (Value::String(one), Value::Semver(two)) => version(one)?.precedence(two),
        (Value::Quantity(_), Value::Semver(_)) | (Value::Semver(_), Value::Quantity(_)) => {
            return Err(EvalError::NoSuchOverload);
        }
        _ => return Ok(None),
    }))
}

fn amount(text: &str) -> Result<Quantity, EvalError> {
    Quantity::parse(text).map_err(EvalError::failed)
}

fn version(text: &str) -> Result<Semver, EvalError> {
    Semver::parse(text).map_err(EvalError::failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Environment, Type};

    fn answer(comparisons: Comparisons, source: &str) -> Result<Option<bool>, String> {
        let environment = Environment::new().with_comparisons(comparisons);
        let program = environment.compile(source, Some(&Type::Bool)).map_err(|e| e.to_string())?;
        let answer = program.evaluate(&[], &mut Budget::default()).map_err(|e| e.to_string())?;
        Ok(answer.as_bool())
    }

    #[test]
    fn quantities_compare_with_text() {
        let table = [
            ("quantity('10Gi') >= '10Gi'", true),
            ("quantity('10Gi') >= '20Gi'", false),
            ("'1G' < quantity('1Gi')", true),
            ("quantity('1k') == 1000", true),
            ("1001 <= quantity('1k')", false),
            ("quantity('1Gi') == '1024Mi'", true),
            ("quantity('1Gi') != '1024Mi'", false),
            ("quantity('1Gi') > quantity('1G')", true),
            ("semver('1.8.2') >= '1.8.0'", true),
            ("semver('1.10.0') > '1.9.0'", true),
            ("'1.8.0-rc1' < semver('1.8.0')", true),
            ("semver('1.0.0') == semver('1.0.0')", true),
            ("semver('1.0.0') != '1.0.1'", true),
            ("dyn(quantity('1')) == dyn('1000m')", true),
            ("'10Gi' < '9'", true),
            ("dyn(quantity('1')) == dyn(true)", false),
            ("quantity('1') in [quantity('1')]", true),
            ("dyn('1') in [quantity('1')]", false),
        ];
        for (source, expected) in table {
            assert_eq!(answer(Comparisons::Mixed, source), Ok(Some(expected)), "{source}");
        }
    }

    #[test]
    fn unparsable_text_is_an_error() {
        let suffix = "unable to parse quantity's suffix";
        assert_eq!(answer(Comparisons::Mixed, "quantity('1') < '1KM'"), Err(suffix.to_owned()));
        let parts = "No Major.Minor.Patch elements found".to_owned();
        assert_eq!(answer(Comparisons::Mixed, "semver('1.0.0') == '1.0'"), Err(parts));
        let refused = answer(Comparisons::Mixed, "quantity('1') == semver('1.0.0')").unwrap_err();
        assert!(refused.contains("found no matching overload for '_==_'"), "{refused}");
        let late = "dyn(quantity('1')) == dyn(semver('1.0.0'))";
        assert_eq!(answer(Comparisons::Mixed, late), Err("no such overload".to_owned()));
    }

    #[test]
    fn kubernetes_rejects_mixed_types() {
        for source in ["quantity('1') < '2'", "semver('1.0.0') == '1.0.0'", "quantity('1') == 1"] {
            let refused = answer(Comparisons::Kubernetes, source).unwrap_err();
            assert!(refused.contains("found no matching overload"), "{source}: {refused}");
        }
        let late = "dyn(quantity('1')) < dyn('2')";
        assert_eq!(answer(Comparisons::Kubernetes, late), Err("no such overload".to_owned()));
        let never = "dyn(quantity('1')) == dyn('1')";
        assert_eq!(answer(Comparisons::Kubernetes, never), Ok(Some(false)));
    }
}
