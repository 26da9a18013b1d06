//! The ranges that macros iterate over, and their results.

use std::collections::BTreeMap;

use crate::ast::ComprehensionKind;
use crate::error::EvalError;
use crate::key::Key;
use crate::library::EvalResult;
use crate::value::{List, Map, Value};

/// What a macro runs over.
pub(super) enum Range<'v> {
    List(List<'v>),
    Map(Vec<Key<'v>>, Map<'v>),
}

impl<'v> Range<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Map(keys, _) => keys.len(),
        }
    }

    pub(super) fn bind(
        &self,
        place: usize,
        two: bool,
        locals: &mut Vec<Value<'v>>,
    ) -> Result<(), EvalError> {
        match self {
            Self::List(list) => {
                if two {
                    locals.push(Value::Int(i64::try_from(place).unwrap_or(i64::MAX)));
                }
                locals.push(list.get(place)?.unwrap_or(Value::Null));
            }
            Self::Map(keys, map) => {
                let Some(key) = keys.get(place) else { return Err(EvalError::NoSuchOverload) };
                let value = if two { map.at(key)? } else { None };
                locals.push(key.clone().into());
                if two {
                    locals.push(value.unwrap_or(Value::Null));
                }
            }
        }
        Ok(())
    }
}

/// What a macro has found so far.
#[derive(Default)]
pub(super) struct Accumulator<'v> {
    pub(super) decided: bool,
    pub(super) error: Option<EvalError>,
    pub(super) count: u64,
    pub(super) items: Vec<Value<'v>>,
    pub(super) entries: BTreeMap<Key<'v>, Value<'v>>,
}

impl<'v> Accumulator<'v> {
    pub(super) fn result(self, goal: ComprehensionKind) -> EvalResult<'v> {
        match (goal, self.error) {
            (ComprehensionKind::All, _) if self.decided => Ok(Value::Bool(false)),
            (ComprehensionKind::Exists, _) if self.decided => Ok(Value::Bool(true)),
            (ComprehensionKind::All | ComprehensionKind::Exists, Some(error)) => Err(error),
            (ComprehensionKind::All, None) => Ok(Value::Bool(true)),
            (ComprehensionKind::Exists, None) => Ok(Value::Bool(false)),
            (ComprehensionKind::ExistsOne, _) => Ok(Value::Bool(self.count == 1)),
            (ComprehensionKind::Filter | ComprehensionKind::List, _) => Ok(Value::list(self.items)),
            (ComprehensionKind::Map | ComprehensionKind::Entries, _) => {
                Ok(Value::Map(Map::new(self.entries)))
            }
        }
    }
}

/// Adds an entry that is not there yet.
pub(super) fn insert<'v>(
    entries: &mut BTreeMap<Key<'v>, Value<'v>>,
    key: &Value<'v>,
    value: Value<'v>,
) -> Result<(), EvalError> {
    let key = match key {
        Value::Double(_) => None,
        other => other.as_key(),
    };
    let key = key.ok_or_else(|| EvalError::failed("unsupported key type"))?;
    let text = crate::library::convert::to_text(&key.clone().into()).unwrap_or_default();
    if entries.insert(key, value).is_some() {
        return Err(EvalError::failed(format!("insert failed: key {text} already exists")));
    }
    Ok(())
}
