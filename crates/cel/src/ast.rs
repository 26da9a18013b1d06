//! The form of an expression that is checked, bounded and evaluated.
//!
//! Names are resolved and macros are nodes of their own: what `all` or `map` does is written once,
//! in the evaluator, and what it costs once, in the estimate.

use std::sync::Arc;

use crate::environment::HostFunction;
use crate::library::LibraryFunction;
use crate::value::Value;

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its place in tables about all nodes.
    pub(crate) id: usize,
    /// Where messages point to, in bytes of the source.
    pub(crate) at: usize,
    pub(crate) kind: NodeKind,
    /// What it answers, where that is known before evaluation; it then costs nothing.
    pub(crate) constant: Option<Value<'static>>,
    /// What it answers, where only the cost is left to be taken: that much.
    pub(crate) precomputed: Option<(u64, Value<'static>)>,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Literal(Value<'static>),
    /// A declared variable, by its place among the declarations.
    Global(usize),
    /// A variable of a macro, by its place among those in scope.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        mode: SelectMode,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    Call {
        callee: Callee,
        member: bool,
        args: Vec<Node>,
    },
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    /// Elements, and whether each is an optional to be left out when missing.
    List(Vec<(Node, bool)>),
    /// Keys and values, and whether each value is an optional to be left out when missing.
    Map(Vec<(Node, Node, bool)>),
    Comprehension(Box<Comprehension>),
    /// `value` under a name in `body`.
    Bind {
        value: Box<Node>,
        body: Box<Node>,
    },
    /// `body` of the value inside an optional, if there is one.
    OptionalMap {
        operand: Box<Node>,
        body: Box<Node>,
        flat: bool,
    },
    /// Elements in the order of what `key` says about each.
    SortBy {
        range: Box<Node>,
        key: Box<Node>,
    },
}

/// What a selection answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectMode {
    /// `a.b`: the field, or an error.
    Value,
    /// `has(a.b)`: whether it is there.
    Test,
    /// `a.?b`: an optional.
    Optional,
}

#[derive(Debug)]
pub(crate) enum Callee {
    Library(&'static LibraryFunction),
    Host(Arc<HostFunction>),
}

impl Callee {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Library(entry) => entry.name,
            Self::Host(function) => &function.name,
        }
    }
}

/// A macro over the elements of a list or the entries of a map.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) kind: ComprehensionKind,
    pub(crate) range: Node,
    /// Whether it names key and value, or only the element, or the key of a map.
    pub(crate) two_variables: bool,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComprehensionKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    List,
    Map,
    Entries,
}
