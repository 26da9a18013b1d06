//! The cost of evaluation: counted while it runs, and bounded before.
//!
//! The unit and the prices are those of a real server, because rules are written against its
//! limits: a step costs one, ten characters of text cost one, a new list ten and a new map thirty.

use crate::ast::{Callee, ComprehensionKind, Node, NodeKind, SelectMode};
use crate::check::CheckedExpression;
use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;

/// What one expression may cost on one object.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What all expressions together may cost on one object.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;
/// What one expression may cost at most by its static estimate.
pub const ESTIMATED_COST_LIMIT: u64 = 10_000_000;
/// What all expressions of a definition may cost at most by their static estimates.
pub const ESTIMATED_CRD_COST_LIMIT: u64 = 100_000_000;

/// What evaluation may still cost, shared by all expressions about one object.
#[derive(Clone, Debug)]
pub struct Budget {
    remaining: u64,
    per_expression: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(RUNTIME_COST_BUDGET, PER_CALL_LIMIT)
    }
}

impl Budget {
    /// A budget for all expressions about one object, and for each of them.
    #[must_use]
    pub fn new(shared: u64, per_expression: u64) -> Self {
        Self { remaining: shared, per_expression }
    }

    /// What is left for all.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// What the next expression may use.
    pub(crate) fn next_limit(&self) -> u64 {
        self.remaining.min(self.per_expression)
    }

    pub(crate) fn spend(&mut self, used: u64) {
        self.remaining = self.remaining.saturating_sub(used);
    }
}

/// How much of one evaluation's budget is used.
#[derive(Debug)]
pub(crate) struct CostTracker {
    limit: u64,
    used: u64,
}

impl CostTracker {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit { Err(EvalError::CostExceeded) } else { Ok(()) }
    }
}

/// What a call costs, by the sizes of what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    /// One.
    Nominal,
    /// So much.
    Fixed(u64),
    /// A walk over the first argument's text.
    Text,
    /// A walk over the first argument's text, which the estimate knows to end with the second.
    Affix,
    /// Two walks over the first argument's text.
    TextTwice,
    /// A walk over the first argument if it is text or bytes, else one.
    Conversion,
    /// A walk over all of the first argument's elements and their text.
    Elements,
    /// What the function itself charges, because only it knows the size of its answer; the estimate
    /// takes twice the text of all elements.
    Joined,
    /// A match of the first argument against the second, a pattern.
    Pattern,
    /// A search for the second argument in the first.
    Search,
    /// A walk over the second argument's elements.
    Membership,
    /// A comparison.
    Comparison,
    /// A comparison of values of any type; the estimate takes nothing for those that a schema
    /// declares and that have no size.
    Equality,
    /// A copy of both arguments if they are text or bytes; a quarter of their elements for lists,
    /// where a real server takes one, since it never copies.
    Concatenation,
    /// Every element of the first with every one of the second, so many times.
    Pairs(u64),
    /// A new list as long as the first.
    NewList,
    /// A new list as long as the number in the first argument.
    Range,
    /// A comparison of all elements with each other, into a new list.
    SelfComparison,
    /// A comparison of addresses, and a walk over the second argument if it is text.
    Addresses(u64),
    /// A match of the second argument against a named format.
    Validation,
}

const LIST_CREATE_COST: u64 = 10;
const MAP_CREATE_COST: u64 = 30;
/// The length that a server assumes for the pattern behind a named format.
const FORMAT_PATTERN_LENGTH: u64 = 128;

/// What a call with these arguments costs.
pub(crate) fn call_cost(charge: CostRule, args: &[Value<'_>]) -> u64 {
    let size = |place: usize| args.get(place).map_or(0, Value::size);
    match charge {
        CostRule::Nominal => 1,
        CostRule::Joined => 0,
        CostRule::Fixed(cost) => cost,
        CostRule::Text | CostRule::Affix => size(0).div_ceil(10),
        CostRule::TextTwice => size(0).saturating_mul(2).div_ceil(10),
        CostRule::Conversion => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => size(0).div_ceil(10),
            _ => 1,
        },
        CostRule::Elements => args.first().map_or(0, traversal),
        CostRule::Pattern => pattern(size(0), size(1)),
        CostRule::Search => size(0).div_ceil(10).saturating_mul(size(1).div_ceil(10)),
        CostRule::Membership => match args.get(1) {
            Some(Value::List(_)) => size(1),
            _ => 1,
        },
        CostRule::Comparison | CostRule::Equality => match args.first() {
            Some(
                Value::Quantity(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Url(_)
                | Value::Semver(_)
                | Value::Format(_)
                | Value::Host(_),
            ) => 1,
            _ => size(0).min(size(1)).div_ceil(10),
        },
        CostRule::Concatenation => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => (size(0) + size(1)).div_ceil(10),
            Some(Value::List(_)) => ((size(0) + size(1)) / 4).max(1),
            _ => 1,
        },
        CostRule::Pairs(times) => size(0).saturating_mul(size(1)).saturating_mul(times) + 1,
        CostRule::NewList => match args {
            [_, Value::Int(start), Value::Int(end)] => {
                u64::try_from(end.saturating_sub(*start)).unwrap_or(0).min(size(0))
                    + LIST_CREATE_COST
                    + 1
            }
            _ => size(0) + LIST_CREATE_COST + 1,
        },
        CostRule::Range => match args.first() {
            Some(Value::Int(count)) => u64::try_from(*count).unwrap_or(0) + LIST_CREATE_COST + 1,
            _ => LIST_CREATE_COST,
        },
        CostRule::SelfComparison => {
            size(0).saturating_mul(size(0)).saturating_mul(2) + LIST_CREATE_COST + 1
        }
        CostRule::Addresses(extra) => {
            let text = if matches!(args.get(1), Some(Value::String(_))) { size(1) } else { 0 };
            (size(0) * 2).div_ceil(10) + extra * (size(0).div_ceil(10) + 1) + text.div_ceil(10)
        }
        CostRule::Validation => match args.first() {
            Some(Value::Format(format)) => pattern(size(1), format.pattern),
            _ => 1,
        },
    }
}

fn pattern(text: u64, pattern: u64) -> u64 {
    text.saturating_add(1).div_ceil(10).saturating_mul(pattern.div_ceil(4))
}

/// What a walk over a value and everything in it costs.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => u64::try_from(text.len() / 10).unwrap_or(u64::MAX),
        Value::Bytes(bytes) => u64::try_from(bytes.len() / 10).unwrap_or(u64::MAX),
        Value::List(list) => list.iter().flatten().map(|item| traversal(&item)).sum(),
        Value::Map(map) => map.size_of_all(),
        _ => 1,
    }
}

impl crate::value::Map<'_> {
    fn size_of_all(&self) -> u64 {
        let costs = self.keys().into_iter().map(|key| {
            let value = self.at(&key).ok().flatten().as_ref().map_or(0, traversal);
            value + traversal(&key.into())
        });
        costs.sum()
    }
}

/// The most an expression can cost, given how large its variables can be.
pub(crate) fn estimate(root: &Node, checked: &CheckedExpression) -> u64 {
    CostEstimator { checked }.node(root).cost
}

struct CostEstimator<'a> {
    checked: &'a CheckedExpression,
}

/// The most something can cost, and how large its answer can be.
#[derive(Clone, Copy, Debug, Default)]
struct CostBound {
    cost: u64,
    size: u64,
}

/// What is assumed of a size about which nothing is known: no value is larger than a request.
const UNKNOWN_SIZE_LIMIT: u64 = 3 * 1024 * 1024;

impl CostEstimator<'_> {
    fn ty(&self, node: &Node) -> &Type {
        self.checked.types.get(node.id).unwrap_or(&Type::Dyn)
    }

    fn size(&self, node: &Node) -> u64 {
        match self.ty(node) {
            Type::Object(_) | Type::Opaque(_) => 1,
            ty => ty.max_size().unwrap_or(UNKNOWN_SIZE_LIMIT),
        }
    }

    fn node(&self, node: &Node) -> CostBound {
        if let Some(value) = &node.constant {
            return CostBound { cost: 0, size: value.size() };
        }
        let declared = self.size(node);
        match &node.kind {
            NodeKind::Literal(value) => CostBound { cost: 0, size: value.size() },
            NodeKind::Global(_) | NodeKind::Local(_) => CostBound { cost: 1, size: declared },
            NodeKind::Select { operand, mode, .. } => {
                let step = if *mode == SelectMode::Test { 0 } else { 1 };
                CostBound { cost: self.node(operand).cost.saturating_add(step), size: declared }
            }
            NodeKind::Index { operand, index, .. } => {
                let cost = self.node(operand).cost.saturating_add(self.node(index).cost);
                CostBound { cost: cost.saturating_add(1), size: declared }
            }
            NodeKind::And(pair) | NodeKind::Or(pair) => {
                CostBound { cost: self.all(pair.iter()), size: 1 }
            }
            NodeKind::Conditional(parts) => {
                let [test, yes, no] = parts.each_ref().map(|part| self.node(part));
                let cost = test.cost.saturating_add(yes.cost.max(no.cost));
                CostBound { cost, size: yes.size.max(no.size) }
            }
            NodeKind::List(elements) => {
                let cost = self.all(elements.iter().map(|(element, _)| element));
                CostBound {
                    cost: cost.saturating_add(LIST_CREATE_COST),
                    size: length(elements.len()),
                }
            }
            NodeKind::Map(entries) => {
                let cost = self.all(entries.iter().flat_map(|(key, value, _)| [key, value]));
                CostBound {
                    cost: cost.saturating_add(MAP_CREATE_COST),
                    size: length(entries.len()),
                }
            }
            NodeKind::Bind { value, body } | NodeKind::OptionalMap { operand: value, body, .. } => {
                let (value, body) = (self.node(value), self.node(body));
                CostBound { cost: value.cost.saturating_add(body.cost), size: body.size }
            }
            NodeKind::SortBy { range, key } => {
                let (range, key) = (self.node(range), self.node(key));
                let each = key.cost.saturating_add(LIST_CREATE_COST + 2).saturating_mul(range.size);
                let sort = range.size.saturating_mul(range.size).saturating_mul(2);
                let cost = range.cost.saturating_add(each).saturating_add(sort);
                CostBound { cost, size: range.size }
            }
            NodeKind::Comprehension(each) => {
                let range = self.node(&each.range);
                let filter = each.filter.as_ref().map_or(0, |filter| self.node(filter).cost);
                let body = self.node(&each.body).cost;
                let step = body
                    .saturating_add(filter)
                    .saturating_add(loop_step_cost(each.kind, &each.body));
                let cost = range.cost.saturating_add(step.saturating_mul(range.size));
                let size = match each.kind {
                    ComprehensionKind::All
                    | ComprehensionKind::Exists
                    | ComprehensionKind::ExistsOne => 1,
                    ComprehensionKind::Filter
                    | ComprehensionKind::List
                    | ComprehensionKind::Map
                    | ComprehensionKind::Entries => range.size,
                };
                CostBound { cost: cost.saturating_add(loop_result_cost(each.kind)), size }
            }
            NodeKind::Call { callee, args, .. } => self.call(callee, args, declared),
        }
    }

    fn all<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> u64 {
        nodes.fold(0, |sum, node| sum.saturating_add(self.node(node).cost))
    }

    /// Whether a node is a variable, or a part of one, that has no size.
    fn is_declared_scalar(&self, node: &Node) -> bool {
        let is_path = matches!(
            node.kind,
            NodeKind::Global(_)
                | NodeKind::Local(_)
                | NodeKind::Select { .. }
                | NodeKind::Index { .. }
        );
        let ty = self.ty(node);
        is_path && matches!(ty, Type::Bool | Type::Int | Type::Uint | Type::Double)
    }

    fn call(&self, callee: &Callee, args: &[Node], declared: u64) -> CostBound {
        let bounds: Vec<CostBound> = args.iter().map(|arg| self.node(arg)).collect();
        let given = bounds.iter().fold(0_u64, |sum, bound| sum.saturating_add(bound.cost));
        let size = |place: usize| bounds.get(place).map_or(0, |bound| bound.size);
        let is_text = |place: usize| {
            let ty = args.get(place).map(|arg| self.ty(arg));
            matches!(ty, Some(Type::String { .. } | Type::Bytes { .. }))
        };
        // The text of one element of the first argument.
        let element = match args.first().map(|arg| self.ty(arg)) {
            Some(Type::List(list)) => match &list.element {
                text @ (Type::String { .. } | Type::Bytes { .. }) => text.max_size(),
                _ => None,
            },
            _ => None,
        };
        let charge = match callee {
            Callee::Library(entry) => entry.charge,
            Callee::Host(function) => CostRule::Fixed(function.cost),
        };
        let mut answer = declared;
        let cost = match charge {
            CostRule::Fixed(cost) => cost,
            CostRule::Text => {
                answer = answer.min(size(0));
                size(0).div_ceil(10)
            }
            CostRule::Affix => size(1).div_ceil(10),
            CostRule::Conversion | CostRule::Elements if is_text(0) => size(0).div_ceil(10),
            CostRule::Nominal | CostRule::Conversion => 1,
            CostRule::TextTwice => {
                answer = answer.min(size(0));
                size(0).saturating_mul(2).div_ceil(10)
            }
            CostRule::Elements => {
                size(0).saturating_mul(element.map_or(1, |text| 1 + text.div_ceil(10)))
            }
            CostRule::Joined => {
                let text = element.unwrap_or(1).saturating_add(size(1)).saturating_mul(size(0));
                answer = text;
                text.div_ceil(10)
            }
            CostRule::Pattern => pattern(size(0), size(1)),
            CostRule::Search => size(0).div_ceil(10).saturating_mul(size(1).div_ceil(10)),
            CostRule::Membership => match args.get(1).map(|arg| self.ty(arg)) {
                Some(Type::Map(_)) => 1,
                _ if args.get(1).is_some_and(|arg| arg.constant.is_some()) => 0,
                _ => size(1),
            },
            CostRule::Equality if args.iter().any(|arg| self.is_declared_scalar(arg)) => 0,
            CostRule::Comparison | CostRule::Equality => size(0).min(size(1)).div_ceil(10),
            CostRule::Concatenation => {
                answer = size(0).saturating_add(size(1));
                if is_text(0) { answer.div_ceil(10) } else { 1 }
            }
            CostRule::Pairs(times) => size(0).saturating_mul(size(1)).saturating_mul(times),
            CostRule::NewList => {
                answer = size(0);
                size(0).saturating_add(LIST_CREATE_COST + 1)
            }
            CostRule::Range => match args.first().map(|arg| &arg.kind) {
                Some(NodeKind::Literal(Value::Int(count))) => {
                    answer = u64::try_from(*count).unwrap_or(0);
                    answer.saturating_add(LIST_CREATE_COST + 1)
                }
                _ => UNKNOWN_SIZE_LIMIT,
            },
            CostRule::SelfComparison => {
                answer = size(0);
                size(0).saturating_mul(size(0)).saturating_mul(2)
            }
            CostRule::Addresses(extra) => {
                let text = if is_text(1) { size(1).div_ceil(10) } else { 0 };
                text.saturating_add(4 + 3 * extra)
            }
            CostRule::Validation => pattern(size(1), FORMAT_PATTERN_LENGTH),
        };
        CostBound { cost: given.saturating_add(cost), size: answer }
    }
}

/// What a step of a macro costs apart from what is written in it: reading and testing or extending
/// what was gathered so far. A step whose outcome is left out costs nothing.
pub(crate) fn loop_step_cost(goal: ComprehensionKind, body: &Node) -> u64 {
    match goal {
        ComprehensionKind::All | ComprehensionKind::Exists => 1 + loop_condition_cost(goal),
        ComprehensionKind::ExistsOne | ComprehensionKind::Entries => 2,
        ComprehensionKind::Filter => LIST_CREATE_COST + 3,
        // A list of one literal was built before.
        ComprehensionKind::List if body.constant.is_some() => 2,
        ComprehensionKind::List => LIST_CREATE_COST + 2,
        ComprehensionKind::Map => 3,
    }
}

/// What it costs to see whether a macro goes on.
pub(crate) fn loop_condition_cost(goal: ComprehensionKind) -> u64 {
    match goal {
        ComprehensionKind::All => 2,
        ComprehensionKind::Exists => 3,
        ComprehensionKind::ExistsOne
        | ComprehensionKind::Filter
        | ComprehensionKind::List
        | ComprehensionKind::Map
        | ComprehensionKind::Entries => 0,
    }
}

/// What the answer of a macro costs.
pub(crate) fn loop_result_cost(goal: ComprehensionKind) -> u64 {
    if goal == ComprehensionKind::ExistsOne { 2 } else { 1 }
}

pub(crate) fn list_cost() -> u64 {
    LIST_CREATE_COST
}

pub(crate) fn map_cost() -> u64 {
    MAP_CREATE_COST
}

fn length(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
