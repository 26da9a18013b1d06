//! Evaluates the steps of a path.

use std::cmp::Ordering;

use serde_json::Value;

use super::{FilterTest, Literal, Operator, PathValue, Slice, Step};

/// A path cannot be evaluated on an object.
#[derive(Debug)]
pub(super) struct EvaluationFailed;

/// The most values that any step may select.
///
/// Unions and recursive descent multiply, so that a short path can select more values than any
/// machine holds, on every object of a list. No real column comes near: only the first value is
/// shown.
const MAX_VALUES: usize = 100_000;

/// Returns all values that the steps select.
pub(super) fn evaluate<'a>(
    steps: &'a [Step],
    object: &'a Value,
) -> Result<Vec<PathValue<'a>>, EvaluationFailed> {
    apply_steps(steps, vec![PathValue::Value(object)])
}

fn apply_steps<'a>(
    steps: &'a [Step],
    input: Vec<PathValue<'a>>,
) -> Result<Vec<PathValue<'a>>, EvaluationFailed> {
    steps.iter().try_fold(input, |input, step| apply_step(step, input))
}

fn apply_step<'a>(
    step: &'a Step,
    input: Vec<PathValue<'a>>,
) -> Result<Vec<PathValue<'a>>, EvaluationFailed> {
    let mut output = Output(Vec::new());
    match step {
        Step::Field(name) => {
            for found in input {
                if let PathValue::Value(Value::Object(fields)) = found {
                    output.extend(fields.get(name).map(PathValue::Value))?;
                }
            }
        }
        Step::Slice(slice) => {
            for found in input {
                match found {
                    PathValue::Value(Value::Null) => {}
                    PathValue::Value(Value::Array(elements)) => {
                        let Some((range, by)) = bounds(*slice, elements.len())? else {
                            // An empty slice ends the step, whatever came before.
                            return Ok(output.0);
                        };
                        output.extend(elements[range].iter().step_by(by).map(PathValue::Value))?;
                    }
                    PathValue::Value(_) | PathValue::Literal(_) | PathValue::Byte(_) => {
                        return Err(EvaluationFailed);
                    }
                }
            }
        }
        Step::Wildcard => {
            for found in input {
                output.extend(children(&found))?;
            }
        }
        Step::Recursive => {
            for found in input {
                descend(found, &mut output)?;
            }
        }
        Step::Union(parts) => {
            for part in parts {
                output.extend(apply_steps(part, input.clone())?)?;
            }
        }
        Step::Filter { left, test } => {
            for found in input {
                let PathValue::Value(Value::Array(elements)) = found else {
                    return Err(EvaluationFailed);
                };
                for element in elements {
                    if filter_matches(left, test, element)? {
                        output.extend([PathValue::Value(element)])?;
                    }
                }
            }
        }
        // A literal text is selected once, even where there is no other value.
        Step::Literal(literal @ Literal::Text(_)) => {
            output.extend([PathValue::Literal(literal)])?;
        }
        Step::Literal(literal) => {
            output.extend(input.iter().map(|_| PathValue::Literal(literal)))?;
        }
        Step::Word => return Err(EvaluationFailed),
    }
    Ok(output.0)
}

struct Output<'a>(Vec<PathValue<'a>>);

impl<'a> Output<'a> {
    fn extend(
        &mut self,
        more: impl IntoIterator<Item = PathValue<'a>>,
    ) -> Result<(), EvaluationFailed> {
        let remaining = MAX_VALUES - self.0.len();
        let mut more = more.into_iter();
        self.0.extend(more.by_ref().take(remaining));
        if more.next().is_some() { Err(EvaluationFailed) } else { Ok(()) }
    }
}

/// Returns the range and the stride of a slice in a list; `None` if it is empty.
fn bounds(
    slice: Slice,
    length: usize,
) -> Result<Option<(std::ops::Range<usize>, usize)>, EvaluationFailed> {
    let length = i64::try_from(length).map_err(|_| EvaluationFailed)?;
    let from_end = |index: i64| if index < 0 { index + length } else { index };
    let from = from_end(slice.from);
    let to = match slice.to {
        None => length,
        // The end of the index -1 is the end of the list.
        Some(0) if slice.index => length,
        Some(to) => from_end(to),
    };
    if from == to {
        return Ok(None);
    }
    if from < 0 || from >= length || to > length || from > to {
        return Err(EvaluationFailed);
    }
    let by =
        usize::try_from(slice.by.unwrap_or(1)).ok().filter(|by| *by > 0).ok_or(EvaluationFailed)?;
    let place = |index: i64| usize::try_from(index).map_err(|_| EvaluationFailed);
    Ok(Some((place(from)?..place(to)?, by)))
}

/// Returns the children of a value: elements, fields, or the bytes of a text.
fn children<'a>(found: &PathValue<'a>) -> Vec<PathValue<'a>> {
    let bytes = |text: &str| text.bytes().map(PathValue::Byte).collect();
    match found {
        PathValue::Value(Value::Object(fields)) => fields.values().map(PathValue::Value).collect(),
        PathValue::Value(Value::Array(elements)) => elements.iter().map(PathValue::Value).collect(),
        PathValue::Value(Value::String(text)) | PathValue::Literal(Literal::Text(text)) => {
            bytes(text)
        }
        PathValue::Value(Value::Null | Value::Bool(_) | Value::Number(_))
        | PathValue::Literal(Literal::Int(_) | Literal::Float(_) | Literal::Bool(_))
        | PathValue::Byte(_) => Vec::new(),
    }
}

/// Returns a value and all below it, except those without children.
fn descend<'a>(found: PathValue<'a>, output: &mut Output<'a>) -> Result<(), EvaluationFailed> {
    let below = children(&found);
    if below.is_empty() {
        return Ok(());
    }
    output.extend([found])?;
    below.into_iter().try_for_each(|it| descend(it, output))
}

fn filter_matches(
    left: &[Step],
    test: &FilterTest,
    element: &Value,
) -> Result<bool, EvaluationFailed> {
    let lefts = evaluate(left, element);
    let (operator, right) = match test {
        // kube-apiserver treats a path that cannot be evaluated to the end as existing.
        FilterTest::Exists => return Ok(lefts.map_or(true, |it| !it.is_empty())),
        FilterTest::Compare(operator, right) => (*operator, right),
    };
    let Some(left) = at_most_one(lefts?)? else {
        return Ok(false);
    };
    let Some(right) = at_most_one(evaluate(right, element)?)? else {
        return Ok(false);
    };
    compare(&left, operator, &right)
}

/// Returns the only value; several values cannot be compared.
fn at_most_one(mut found: Vec<PathValue<'_>>) -> Result<Option<PathValue<'_>>, EvaluationFailed> {
    if found.len() > 1 { Err(EvaluationFailed) } else { Ok(found.pop()) }
}

fn compare(
    left: &PathValue<'_>,
    operator: Operator,
    right: &PathValue<'_>,
) -> Result<bool, EvaluationFailed> {
    let (left, right) = (Comparable::of(left)?, Comparable::of(right)?);
    let ordering = match (left, right) {
        (Comparable::Text(left), Comparable::Text(right)) => Some(left.cmp(right)),
        (Comparable::Int(left), Comparable::Int(right)) => Some(left.cmp(&right)),
        (Comparable::Float(left), Comparable::Float(right)) => left.partial_cmp(&right),
        (Comparable::Bool(left), Comparable::Bool(right)) => {
            // Booleans are equal or not, but not ordered.
            return match operator {
                Operator::Equal => Ok(left == right),
                Operator::NotEqual => Ok(left != right),
                Operator::Less
                | Operator::LessOrEqual
                | Operator::GreaterOrEqual
                | Operator::Greater
                | Operator::Unknown => Err(EvaluationFailed),
            };
        }
        (
            Comparable::Text(_) | Comparable::Int(_) | Comparable::Float(_) | Comparable::Bool(_),
            _,
        ) => return Err(EvaluationFailed),
    };
    match operator {
        Operator::Less => Ok(ordering == Some(Ordering::Less)),
        Operator::LessOrEqual => Ok(ordering.is_some_and(Ordering::is_le)),
        Operator::Equal => Ok(ordering == Some(Ordering::Equal)),
        Operator::NotEqual => Ok(ordering != Some(Ordering::Equal)),
        Operator::GreaterOrEqual => Ok(ordering.is_some_and(Ordering::is_ge)),
        Operator::Greater => Ok(ordering == Some(Ordering::Greater)),
        Operator::Unknown => Err(EvaluationFailed),
    }
}

/// Compares values within their type: an integer is neither less nor more than a float.
#[derive(Clone, Copy)]
enum Comparable<'a> {
    Text(&'a str),
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl<'a> Comparable<'a> {
    fn of(found: &PathValue<'a>) -> Result<Self, EvaluationFailed> {
        match found {
            PathValue::Value(Value::String(text)) | PathValue::Literal(Literal::Text(text)) => {
                Ok(Self::Text(text))
            }
            PathValue::Value(Value::Number(number)) => match number.as_i64() {
                Some(int) => Ok(Self::Int(int)),
                None => number.as_f64().map(Self::Float).ok_or(EvaluationFailed),
            },
            PathValue::Value(Value::Bool(truth)) | PathValue::Literal(Literal::Bool(truth)) => {
                Ok(Self::Bool(*truth))
            }
            PathValue::Literal(Literal::Int(int)) => Ok(Self::Int(*int)),
            PathValue::Literal(Literal::Float(float)) => Ok(Self::Float(*float)),
            PathValue::Byte(byte) => Ok(Self::Int(i64::from(*byte))),
            PathValue::Value(Value::Null | Value::Array(_) | Value::Object(_)) => {
                Err(EvaluationFailed)
            }
        }
    }
}
