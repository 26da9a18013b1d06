//! Evaluation: one recursive walk, no deeper than the tree that was accepted.

mod range;

use std::collections::BTreeMap;

use self::range::{Accumulator, Range, insert};
use crate::ast::{Callee, Comprehension, ComprehensionKind, Node, NodeKind, SelectMode};
use crate::compare;
use crate::cost;
use crate::environment::Resolver;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::library::{EvalResult, operators};
use crate::value::{Map, Text, Value};

/// One evaluation.
pub(crate) struct Evaluation<'p, 'v, 'h> {
    pub(crate) context: EvalContext<'p>,
    /// Values of the declared variables; those the expression does not mention are not there.
    pub(crate) globals: Vec<Option<Value<'v>>>,
    pub(crate) names: &'p [String],
    /// Who knows the declared variables that are not bound.
    pub(crate) resolver: Option<&'h dyn Resolver<'v>>,
    pub(crate) locals: Vec<Value<'v>>,
}

impl<'p: 'v, 'v> Evaluation<'p, 'v, '_> {
    pub(crate) fn node(&mut self, node: &'p Node) -> EvalResult<'v> {
        if let Some(value) = &node.constant {
            return Ok(borrowed_constant(value));
        }
        if let Some((cost, value)) = &node.precomputed {
            self.context.charge(*cost)?;
            return Ok(value.clone());
        }
        match &node.kind {
            NodeKind::Literal(value) => Ok(borrowed_constant(value)),
            NodeKind::Global(place) => {
                self.context.charge(1)?;
                if let Some(value) = self.globals.get(*place).and_then(Option::as_ref) {
                    return Ok(value.clone());
                }
                let name = self.names.get(*place).map_or("", String::as_str);
                let resolved = self.resolver.and_then(|resolver| resolver.resolve(name));
                resolved.unwrap_or_else(|| Err(EvalError::NoSuchAttribute(name.to_owned())))
            }
            NodeKind::Local(slot) => {
                self.context.charge(1)?;
                self.locals.get(*slot).cloned().ok_or(EvalError::NoSuchOverload)
            }
            NodeKind::Select { operand, field, mode } => self.select(operand, field, *mode),
            NodeKind::Index { operand, index, optional } => self.index(operand, index, *optional),
            NodeKind::Call { callee, args, .. } => self.call(callee, args),
            NodeKind::And(pair) => self.logic(pair, false),
            NodeKind::Or(pair) => self.logic(pair, true),
            NodeKind::Conditional(_)
            | NodeKind::List(_)
            | NodeKind::Map(_)
            | NodeKind::Comprehension(_)
            | NodeKind::Bind { .. }
            | NodeKind::OptionalMap { .. }
            | NodeKind::SortBy { .. } => self.eval_rare_kinds(&node.kind),
        }
    }

    /// What most expressions have none of. Apart, so that the frame of all others stays small.
    #[inline(never)]
    fn eval_rare_kinds(&mut self, kind: &'p NodeKind) -> EvalResult<'v> {
        match kind {
            NodeKind::Conditional(parts) => {
                let [test, yes, no] = parts.as_ref();
                match self.node(test)? {
                    Value::Bool(true) => self.node(yes),
                    Value::Bool(false) => self.node(no),
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Comprehension(each) => self.comprehension(each),
            NodeKind::Bind { value, body } => {
                let value = self.node(value)?;
                self.with(value, body)
            }
            NodeKind::OptionalMap { operand, body, flat } => match self.node(operand)? {
                Value::Optional(None) => {
                    self.context.charge(2)?;
                    Ok(Value::none())
                }
                Value::Optional(Some(inner)) => {
                    self.context.charge(2)?;
                    let answer = self.with((*inner).clone(), body)?;
                    match (flat, &answer) {
                        (false, _) => Ok(Value::some(answer)),
                        (true, Value::Optional(_)) => Ok(answer),
                        (true, _) => Err(EvalError::NoSuchOverload),
                    }
                }
                _ => Err(EvalError::NoSuchOverload),
            },
            NodeKind::SortBy { range, key } => self.sort_by(range, key),
            NodeKind::Literal(_)
            | NodeKind::Global(_)
            | NodeKind::Local(_)
            | NodeKind::Select { .. }
            | NodeKind::Index { .. }
            | NodeKind::Call { .. }
            | NodeKind::And(_)
            | NodeKind::Or(_) => {
                Err(EvalError::Internal("a node was taken for another".to_owned()))
            }
        }
    }

    /// `body` with one more variable.
    fn with(&mut self, value: Value<'v>, body: &'p Node) -> EvalResult<'v> {
        self.locals.push(value);
        let answer = self.node(body);
        self.locals.pop();
        answer
    }

    fn select(&mut self, operand: &'p Node, field: &'p str, mode: SelectMode) -> EvalResult<'v> {
        // Mostly it is an entry of a variable, which need not be copied for that.
        if let (NodeKind::Global(place), SelectMode::Value) = (&operand.kind, mode)
            && let Some(Some(Value::Map(map))) = self.globals.get(*place)
        {
            let found = map.get(field)?;
            self.context.charge(2)?;
            return found.ok_or_else(|| EvalError::NoSuchKey(field.to_owned()));
        }
        let operand = self.node(operand)?;
        // Selection looks through an optional and stays one.
        let (operand, mode) = match operand {
            Value::Optional(None) if mode == SelectMode::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) if mode == SelectMode::Value => {
                ((*inner).clone(), SelectMode::Optional)
            }
            Value::Optional(Some(inner)) => ((*inner).clone(), mode),
            other => (other, mode),
        };
        let found = match &operand {
            Value::Map(map) => map.get(field)?,
            Value::List(_) if mode == SelectMode::Value => return Err(unsupported_index("string")),
            _ => None,
        };
        // What is not there is looked for without charge.
        if mode == SelectMode::Value || (mode == SelectMode::Optional && found.is_some()) {
            self.context.charge(1)?;
        }
        match (found, mode) {
            (found, SelectMode::Test) => Ok(Value::Bool(found.is_some())),
            (Some(value), SelectMode::Value) => Ok(value),
            (None, SelectMode::Value) => Err(EvalError::NoSuchKey(field.to_owned())),
            (Some(value), SelectMode::Optional) => Ok(Value::some(value)),
            (None, SelectMode::Optional) => Ok(Value::none()),
        }
    }

    fn index(&mut self, operand: &'p Node, index: &'p Node, optional: bool) -> EvalResult<'v> {
        let operand = self.node(operand)?;
        let computed;
        let index = match &index.constant {
            Some(constant) => constant,
            None => {
                computed = self.node(index)?;
                &computed
            }
        };
        let (operand, optional) = match operand {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, optional),
        };
        match (at(&operand, index), optional) {
            (Err(EvalError::NoSuchKey(_) | EvalError::OutOfBounds(_)), true) => Ok(Value::none()),
            (answer, optional) => {
                self.context.charge(1)?;
                if optional { answer.map(Value::some) } else { answer }
            }
        }
    }

    /// `&&` if `decisive` is false, `||` if it is true: one side may decide in spite of an error on
    /// the other.
    fn logic(&mut self, pair: &'p [Node; 2], decisive: bool) -> EvalResult<'v> {
        let [left, right] = pair;
        let left = self.eval_bool(left);
        if matches!(&left, Ok(truth) if *truth == decisive) {
            return Ok(Value::Bool(decisive));
        }
        let left_error = match left {
            Err(error) if !error.is_absorbable() => return Err(error),
            Err(error) => Some(error),
            Ok(_) => None,
        };
        match (self.eval_bool(right), left_error) {
            (Ok(truth), _) if truth == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) if !error.is_absorbable() => Err(error),
            (_, Some(error)) | (Err(error), None) => Err(error),
            (Ok(truth), None) => Ok(Value::Bool(truth)),
        }
    }

    fn eval_bool(&mut self, node: &'p Node) -> Result<bool, EvalError> {
        match self.node(node)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn call(&mut self, callee: &'p Callee, nodes: &'p [Node]) -> EvalResult<'v> {
        match nodes {
            // Operators, nearly always: no allocation for their operands.
            [one, two] => {
                let first = self.node(one)?;
                // The alternative is not looked at where it is not needed.
                match (&first, callee) {
                    (Value::Optional(Some(inner)), Callee::Library(entry)) => match entry.name {
                        "orValue" => return Ok((**inner).clone()),
                        "or" => return Ok(first),
                        _ => {}
                    },
                    (_, Callee::Library(_) | Callee::Host(_)) => {}
                }
                let args = [first, self.node(two)?];
                // Membership in a list of literals is decided without a walk on a real server.
                let free = matches!(callee, Callee::Library(entry) if entry.name == operators::IN)
                    && matches!(two.constant, Some(Value::List(_)));
                self.apply(callee, &args, free)
            }
            [one] => {
                let args = [self.node(one)?];
                self.apply(callee, &args, false)
            }
            more => {
                let args = more.iter().map(|arg| self.node(arg)).collect::<Result<Vec<_>, _>>()?;
                self.apply(callee, &args, false)
            }
        }
    }

    fn apply(&mut self, callee: &'p Callee, args: &[Value<'v>], free: bool) -> EvalResult<'v> {
        match callee {
            Callee::Library(entry) => {
                if !free {
                    self.context.charge(cost::call_cost(entry.charge, args))?;
                }
                (entry.run)(&mut self.context, args)
            }
            Callee::Host(function) => {
                self.context.charge(function.cost)?;
                (function.run)(args)
            }
        }
    }

    fn list(&mut self, elements: &'p [(Node, bool)]) -> EvalResult<'v> {
        let mut items = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            match (self.node(element)?, optional) {
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(inner)), true) => items.push((*inner).clone()),
                (_, true) => return Err(EvalError::NoSuchOverload),
                (value, false) => items.push(value),
            }
        }
        self.context.charge(cost::list_cost())?;
        Ok(Value::list(items))
    }

    fn map(&mut self, entries: &'p [(Node, Node, bool)]) -> EvalResult<'v> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.node(key)?;
            let value = match (self.node(value)?, optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (_, true) => return Err(EvalError::NoSuchOverload),
                (value, false) => value,
            };
            insert(&mut map, &key, value)?;
        }
        self.context.charge(cost::map_cost())?;
        Ok(Value::Map(Map::new(map)))
    }

    fn comprehension(&mut self, each: &'p Comprehension) -> EvalResult<'v> {
        let range = match self.node(&each.range)? {
            Value::List(list) => Range::List(list),
            Value::Map(map) => Range::Map(map.keys(), map),
            _ => return Err(EvalError::NoSuchOverload),
        };
        let mut gathered = Accumulator::default();
        let outside = self.locals.len();
        for place in 0..range.len() {
            range.bind(place, each.two_variables, &mut self.locals)?;
            let done = self.comprehension_step(each, &mut gathered);
            self.locals.truncate(outside);
            if done?.is_break() {
                if place + 1 < range.len() {
                    self.context.charge(cost::loop_condition_cost(each.kind))?;
                }
                break;
            }
        }
        self.context.charge(cost::loop_result_cost(each.kind))?;
        gathered.result(each.kind)
    }

    /// One step of a macro; breaking off means that the rest cannot change the answer.
    fn comprehension_step(
        &mut self,
        each: &'p Comprehension,
        gathered: &mut Accumulator<'v>,
    ) -> Result<std::ops::ControlFlow<()>, EvalError> {
        use std::ops::ControlFlow::{Break, Continue};
        if let Some(filter) = &each.filter
            && !self.eval_bool(filter)?
        {
            return Ok(Continue(()));
        }
        let overhead = cost::loop_step_cost(each.kind, &each.body);
        match each.kind {
            ComprehensionKind::All | ComprehensionKind::Exists => {
                self.context.charge(overhead)?;
                let decisive = each.kind == ComprehensionKind::Exists;
                match self.eval_bool(&each.body) {
                    Ok(truth) if truth == decisive => {
                        gathered.decided = true;
                        return Ok(Break(()));
                    }
                    Ok(_) => {}
                    Err(error) if error.is_absorbable() => {
                        gathered.error.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            ComprehensionKind::ExistsOne => {
                let truth = self.eval_bool(&each.body)?;
                gathered.count += u64::from(truth);
                self.context.charge(if truth { overhead } else { 0 })?;
            }
            ComprehensionKind::Filter => {
                let element = self.locals.last().cloned();
                let truth = self.eval_bool(&each.body)?;
                self.context.charge(if truth { overhead } else { 0 })?;
                gathered.items.extend(element.filter(|_| truth));
            }
            ComprehensionKind::List => {
                let value = self.node(&each.body)?;
                self.context.charge(overhead)?;
                gathered.items.push(value);
            }
            ComprehensionKind::Map => {
                let key = self.locals.iter().nth_back(1).cloned().unwrap_or(Value::Null);
                let value = self.node(&each.body)?;
                self.context.charge(overhead)?;
                insert(&mut gathered.entries, &key, value)?;
            }
            ComprehensionKind::Entries => {
                let Value::Map(entries) = self.node(&each.body)? else {
                    return Err(EvalError::NoSuchOverload);
                };
                self.context.charge(overhead)?;
                for key in entries.keys() {
                    let value = entries.at(&key)?.unwrap_or(Value::Null);
                    insert(&mut gathered.entries, &key.into(), value)?;
                }
            }
        }
        Ok(Continue(()))
    }

    fn sort_by(&mut self, range: &'p Node, key: &'p Node) -> EvalResult<'v> {
        let Value::List(list) = self.node(range)? else { return Err(EvalError::NoSuchOverload) };
        let mut keyed = Vec::with_capacity(list.len());
        for item in list.iter() {
            let item = item?;
            let key = self.with(item.clone(), key)?;
            self.context.charge(cost::list_cost() + 2)?;
            keyed.push((key, item));
        }
        let sizes = Value::List(list);
        let sort = cost::call_cost(cost::CostRule::SelfComparison, std::slice::from_ref(&sizes));
        self.context.charge(sort + SORT_BY_BASE_COST)?;
        compare::sort_by_key(&mut keyed)?;
        Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
    }
}

/// What sorting by a key costs besides the comparisons: the list of keys is a list too.
const SORT_BY_BASE_COST: u64 = 3;

/// A value of the program. Text is lent, because to share it is to count.
fn borrowed_constant<'v>(value: &'v Value<'static>) -> Value<'v> {
    match value {
        Value::String(text) => Value::String(Text::Borrowed(text)),
        other => other.clone(),
    }
}

/// The element at a place of a list, or the entry of a map.
pub(crate) fn at<'v>(operand: &Value<'v>, index: &Value<'_>) -> EvalResult<'v> {
    match operand {
        Value::List(list) => {
            let place = match index {
                Value::Int(place) => *place,
                Value::Uint(place) => i64::try_from(*place).unwrap_or(i64::MAX),
                Value::Double(place) => match crate::value::whole(*place) {
                    Some(place) => place,
                    None => return Err(EvalError::failed(format!("invalid index: {place}"))),
                },
                other => return Err(unsupported_index(other.type_name())),
            };
            let found = usize::try_from(place).ok().map(|place| list.get(place)).transpose()?;
            found.flatten().ok_or(EvalError::OutOfBounds(place))
        }
        Value::Map(map) => {
            let key = index.as_key().ok_or(EvalError::NoSuchOverload)?;
            map.at(&key)?.ok_or_else(|| no_such_key(index))
        }
        _ => Err(no_such_key(index)),
    }
}

fn no_such_key(key: &Value<'_>) -> EvalError {
    EvalError::NoSuchKey(crate::library::convert::to_text(key).unwrap_or_default())
}

fn unsupported_index(name: &str) -> EvalError {
    EvalError::failed(format!("unsupported index type '{name}' in list"))
}
