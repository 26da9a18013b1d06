//! From steps to values.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Found, Literal, Operator, Slice, Step, Test};

/// That a path cannot be followed through an object.
#[derive(Debug)]
pub(super) struct Lost;

/// The most values that any step may lead to.
///
/// Unions and recursive descent multiply, so that a short path can ask for more values than any
/// machine holds, on every object of a list. No honest column comes near: only the first is shown.
const MOST: usize = 100_000;

/// All values that the steps lead to.
pub(super) fn walk<'a>(steps: &'a [Step], object: &'a Value) -> Result<Vec<Found<'a>>, Lost> {
    follow(steps, vec![Found::Value(object)])
}

fn follow<'a>(steps: &'a [Step], input: Vec<Found<'a>>) -> Result<Vec<Found<'a>>, Lost> {
    steps.iter().try_fold(input, |input, step| take(step, input))
}

fn take<'a>(step: &'a Step, input: Vec<Found<'a>>) -> Result<Vec<Found<'a>>, Lost> {
    let mut output = Output(Vec::new());
    match step {
        Step::Field(name) => {
            for found in input {
                if let Found::Value(Value::Object(fields)) = found {
                    output.extend(fields.get(name).map(Found::Value))?;
                }
            }
        }
        Step::Slice(slice) => {
            for found in input {
                match found {
                    Found::Value(Value::Null) => {}
                    Found::Value(Value::Array(elements)) => {
                        let Some((range, by)) = bounds(*slice, elements.len())? else {
                            // A slice of nothing ends the step, whatever came before.
                            return Ok(output.0);
                        };
                        output.extend(elements[range].iter().step_by(by).map(Found::Value))?;
                    }
                    Found::Value(_) | Found::Literal(_) | Found::Byte(_) => return Err(Lost),
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
                output.extend(follow(part, input.clone())?)?;
            }
        }
        Step::Filter { left, test } => {
            for found in input {
                let Found::Value(Value::Array(elements)) = found else {
                    return Err(Lost);
                };
                for element in elements {
                    if passes(left, test, element)? {
                        output.extend([Found::Value(element)])?;
                    }
                }
            }
        }
        // A text is there once, even where there is nothing else.
        Step::Literal(literal @ Literal::Text(_)) => output.extend([Found::Literal(literal)])?,
        Step::Literal(literal) => output.extend(input.iter().map(|_| Found::Literal(literal)))?,
        Step::Word => return Err(Lost),
    }
    Ok(output.0)
}

struct Output<'a>(Vec<Found<'a>>);

impl<'a> Output<'a> {
    fn extend(&mut self, more: impl IntoIterator<Item = Found<'a>>) -> Result<(), Lost> {
        let room = MOST - self.0.len();
        let mut more = more.into_iter();
        self.0.extend(more.by_ref().take(room));
        if more.next().is_some() { Err(Lost) } else { Ok(()) }
    }
}

/// What a slice takes of a list, and every how manyth; `None` if it asks for nothing.
fn bounds(slice: Slice, length: usize) -> Result<Option<(std::ops::Range<usize>, usize)>, Lost> {
    let length = i64::try_from(length).map_err(|_| Lost)?;
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
        return Err(Lost);
    }
    let by = usize::try_from(slice.by.unwrap_or(1)).ok().filter(|by| *by > 0).ok_or(Lost)?;
    let place = |index: i64| usize::try_from(index).map_err(|_| Lost);
    Ok(Some((place(from)?..place(to)?, by)))
}

/// What a value is made of: elements, fields, or the bytes of a text.
fn children<'a>(found: &Found<'a>) -> Vec<Found<'a>> {
    let bytes = |text: &str| text.bytes().map(Found::Byte).collect();
    match found {
        Found::Value(Value::Object(fields)) => fields.values().map(Found::Value).collect(),
        Found::Value(Value::Array(elements)) => elements.iter().map(Found::Value).collect(),
        Found::Value(Value::String(text)) | Found::Literal(Literal::Text(text)) => bytes(text),
        Found::Value(Value::Null | Value::Bool(_) | Value::Number(_))
        | Found::Literal(Literal::Int(_) | Literal::Float(_) | Literal::Bool(_))
        | Found::Byte(_) => Vec::new(),
    }
}

/// A value and all below it, those apart that are made of nothing.
fn descend<'a>(found: Found<'a>, output: &mut Output<'a>) -> Result<(), Lost> {
    let below = children(&found);
    if below.is_empty() {
        return Ok(());
    }
    output.extend([found])?;
    below.into_iter().try_for_each(|it| descend(it, output))
}

fn passes(left: &[Step], test: &Test, element: &Value) -> Result<bool, Lost> {
    let lefts = walk(left, element);
    let (operator, right) = match test {
        // Real servers take one that cannot be followed to the end for one that is there.
        Test::Exists => return Ok(lefts.map_or(true, |it| !it.is_empty())),
        Test::Compare(operator, right) => (*operator, right),
    };
    let Some(left) = only(lefts?)? else {
        return Ok(false);
    };
    let Some(right) = only(walk(right, element)?)? else {
        return Ok(false);
    };
    compare(&left, operator, &right)
}

/// The one value there is; more than one cannot be compared.
fn only(mut found: Vec<Found<'_>>) -> Result<Option<Found<'_>>, Lost> {
    if found.len() > 1 { Err(Lost) } else { Ok(found.pop()) }
}

fn compare(left: &Found<'_>, operator: Operator, right: &Found<'_>) -> Result<bool, Lost> {
    let (left, right) = (Comparable::of(left)?, Comparable::of(right)?);
    let ordering = match (left, right) {
        (Comparable::Text(left), Comparable::Text(right)) => Some(left.cmp(right)),
        (Comparable::Int(left), Comparable::Int(right)) => Some(left.cmp(&right)),
        (Comparable::Float(left), Comparable::Float(right)) => left.partial_cmp(&right),
        (Comparable::Bool(left), Comparable::Bool(right)) => {
            // Truths are equal or not, but none is less.
            return match operator {
                Operator::Equal => Ok(left == right),
                Operator::NotEqual => Ok(left != right),
                Operator::Less
                | Operator::LessOrEqual
                | Operator::GreaterOrEqual
                | Operator::Greater
                | Operator::Unknown => Err(Lost),
            };
        }
        (
            Comparable::Text(_) | Comparable::Int(_) | Comparable::Float(_) | Comparable::Bool(_),
            _,
        ) => return Err(Lost),
    };
    match operator {
        Operator::Less => Ok(ordering == Some(Ordering::Less)),
        Operator::LessOrEqual => Ok(ordering.is_some_and(Ordering::is_le)),
        Operator::Equal => Ok(ordering == Some(Ordering::Equal)),
        Operator::NotEqual => Ok(ordering != Some(Ordering::Equal)),
        Operator::GreaterOrEqual => Ok(ordering.is_some_and(Ordering::is_ge)),
        Operator::Greater => Ok(ordering == Some(Ordering::Greater)),
        Operator::Unknown => Err(Lost),
    }
}

/// Values are compared within their type: a whole number is neither less nor more than a fraction.
#[derive(Clone, Copy)]
enum Comparable<'a> {
    Text(&'a str),
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl<'a> Comparable<'a> {
    fn of(found: &Found<'a>) -> Result<Self, Lost> {
        match found {
            Found::Value(Value::String(text)) | Found::Literal(Literal::Text(text)) => {
                Ok(Self::Text(text))
            }
            Found::Value(Value::Number(number)) => match number.as_i64() {
                Some(int) => Ok(Self::Int(int)),
                None => number.as_f64().map(Self::Float).ok_or(Lost),
            },
            Found::Value(Value::Bool(truth)) | Found::Literal(Literal::Bool(truth)) => {
                Ok(Self::Bool(*truth))
            }
            Found::Literal(Literal::Int(int)) => Ok(Self::Int(*int)),
            Found::Literal(Literal::Float(float)) => Ok(Self::Float(*float)),
            Found::Byte(byte) => Ok(Self::Int(i64::from(*byte))),
            Found::Value(Value::Null | Value::Array(_) | Value::Object(_)) => Err(Lost),
        }
    }
}
