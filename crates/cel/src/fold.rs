//! Folds constants: results that are known before evaluation.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use crate::ast::{Callee, Node, NodeKind};
use crate::cost;
use crate::environment::Comparisons;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::library::regex::Pattern;
use crate::value::{Map, Value};

/// Functions of one literal that are applied once, when the expression is compiled.
const FOLDED_FUNCTIONS: [&str; 10] =
    ["int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration", "type", "dyn"];

/// What a node answers, if that is known before evaluation.
pub(crate) fn fold(kind: &NodeKind) -> Result<Option<Value<'static>>, EvalError> {
    Ok(match kind {
        NodeKind::Literal(value) => Some(value.clone()),
        NodeKind::List(elements) => {
            let known =
                elements.iter().map(|(node, optional)| node.constant.clone().filter(|_| !optional));
            known.collect::<Option<Vec<_>>>().map(Value::list)
        }
        NodeKind::Map(entries) => {
            let known = entries.iter().map(|(key, value, optional)| {
                let key = key.constant.as_ref().and_then(Value::as_key).filter(|_| !optional)?;
                Some((key, value.constant.clone()?))
            });
            let known: Option<Vec<_>> = known.collect();
            known.and_then(|known| {
                let count = known.len();
                let entries: BTreeMap<_, _> = known.into_iter().collect();
                // A key that comes twice is an error when it is evaluated.
                (entries.len() == count).then(|| Value::Map(Map::new(entries)))
            })
        }
        NodeKind::Call { callee: Callee::Library(entry), args, .. }
            if FOLDED_FUNCTIONS.contains(&entry.name) =>
        {
            let [Node { constant: Some(value), .. }] = args.as_slice() else { return Ok(None) };
            // None of these functions compares.
            let mut work = EvalContext::new(u64::MAX, &NO_PATTERNS, Comparisons::default());
            match (entry.run)(&mut work, std::slice::from_ref(value)) {
                // The checker says why.
                Err(EvalError::NoSuchOverload) => None,
                answer => Some(answer?),
            }
        }
        _ => None,
    })
}

/// Functions of literals that read text, which takes longer than all else in most expressions.
const PARSING_FUNCTIONS: [&str; 4] = ["quantity", "isQuantity", "semver", "isSemver"];

/// What a call of literals answers and costs. One that fails has to fail when it is evaluated.
pub(crate) fn fold_call(kind: &NodeKind) -> Option<(u64, Value<'static>)> {
    let NodeKind::Call { callee: Callee::Library(entry), args, .. } = kind else { return None };
    if !PARSING_FUNCTIONS.contains(&entry.name) {
        return None;
    }
    let args: Vec<_> = args.iter().map(|arg| arg.constant.clone()).collect::<Option<_>>()?;
    // None of these functions compares.
    let mut work = EvalContext::new(u64::MAX, &NO_PATTERNS, Comparisons::default());
    work.charge(cost::call_cost(entry.charge, &args)).ok()?;
    let answer = (entry.run)(&mut work, &args).ok()?;
    Some((work.meter.used(), answer))
}

static NO_PATTERNS: LazyLock<HashMap<String, Pattern>> = LazyLock::new(HashMap::new);
