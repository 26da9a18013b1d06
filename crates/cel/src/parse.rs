//! From text to tree.
//!
//! The parser recurses, and so does dropping what it returns. Text that leans to one side
//! (`a + a + …`) nests as deep as it is long without any bracket to count, so all of that happens
//! on a thread with a stack for the longest text that is allowed; what leaves it is no deeper than
//! evaluation can follow on any stack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use cel as engine;
use engine::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, SourceInfo, operators,
};

use crate::ast::{Callee, Comprehension, ComprehensionKind, Node, NodeKind, SelectMode};
use crate::environment::{Environment, Limits};
use crate::error::{CompileError, Issue};
use crate::fold::{fold, fold_call};
use crate::library;
use crate::value::Value;

/// An expression with its names resolved.
#[derive(Debug)]
pub(crate) struct ParsedExpression {
    pub(crate) root: Node,
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// The declared variables it mentions.
    pub(crate) mentioned: Vec<usize>,
}

/// Stack for parsing, next to what a byte of text can add to it.
const BASE_STACK_BYTES: usize = 4 * 1024 * 1024;
/// Stack that one byte of text can need: two bytes make a level, which is given 4 KiB.
const STACK_BYTES_PER_SOURCE_BYTE: usize = 2 * 1024;

pub(crate) fn parse(
    source: &str,
    environment: &Environment,
) -> Result<ParsedExpression, CompileError> {
    let Limits { max_bytes: most_bytes, max_depth: most_depth } = environment.limits();
    if source.len() > most_bytes {
        return Err(CompileError::TooLong { size: source.len(), most: most_bytes });
    }
    thread::scope(|scope| {
        let work = || {
            // Unwinding out of the thread would reach the panic hook and no further; here it also
            // becomes an answer.
            catch_unwind(AssertUnwindSafe(|| parse_on_this_stack(source, environment, most_depth)))
        };
        let stack = BASE_STACK_BYTES + source.len() * STACK_BYTES_PER_SOURCE_BYTE;
        let thread = thread::Builder::new()
            .name("cel-parse".to_owned())
            .stack_size(stack)
            .spawn_scoped(scope, work)
            .map_err(|error| CompileError::Internal(format!("no thread to parse on: {error}")))?;
        match thread.join() {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) | Err(_) => Err(CompileError::Internal("the parser failed".to_owned())),
        }
    })
}

fn parse_on_this_stack(
    source: &str,
    environment: &Environment,
    most_depth: usize,
) -> Result<ParsedExpression, CompileError> {
    // An environment without macros: they become nodes of our tree, not of the parser's.
    let parser = engine::Env::default().with_optional_support(true).parser();
    let (expr, places) = parser.parse_with_source_info(source).map_err(|errors| {
        let findings = errors.errors.iter().map(|error| {
            let line = usize::try_from(error.pos.0).unwrap_or(1).max(1);
            let column = usize::try_from(error.pos.1).unwrap_or(1).max(1);
            let text = source.lines().nth(line - 1).unwrap_or_default().to_owned();
            Issue { line, column, message: error.msg.clone(), text }
        });
        CompileError::Invalid(findings.collect())
    })?;
    let depth = depth_of(&expr);
    if depth > most_depth {
        return Err(CompileError::TooDeep { depth, most: most_depth });
    }
    let mut lower = Lowering {
        source,
        source_info: &places,
        environment,
        locals: Vec::new(),
        nodes: 0,
        mentioned: Vec::new(),
        issues: Vec::new(),
    };
    let root = lower.node(&expr);
    let Lowering { nodes, mentioned, issues: mut findings, .. } = lower;
    findings.sort_by_key(|finding| (finding.line, finding.column));
    match root {
        Some(root) if findings.is_empty() => Ok(ParsedExpression { root, nodes, mentioned }),
        Some(_) | None => Err(CompileError::Invalid(findings)),
    }
}

/// How deep the tree nests, without recursion.
fn depth_of(root: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut open = vec![(root, 1)];
    while let Some((node, depth)) = open.pop() {
        deepest = deepest.max(depth);
        let mut push = |child| open.push((child, depth + 1));
        match &node.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) => {
                call.target.iter().for_each(|target| push(target));
                call.args.iter().for_each(push);
            }
            Expr::Comprehension(fold) => {
                for child in [
                    &fold.iter_range,
                    &fold.accu_init,
                    &fold.loop_cond,
                    &fold.loop_step,
                    &fold.result,
                ] {
                    push(child);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(push),
            Expr::Select(select) => push(&select.operand),
            Expr::Map(map) => entries_of(&map.entries, &mut push),
            Expr::Struct(fields) => entries_of(&fields.entries, &mut push),
        }
    }
    deepest
}

fn entries_of<'a>(entries: &'a [IdedEntryExpr], push: &mut impl FnMut(&'a IdedExpr)) {
    for entry in entries {
        match &entry.expr {
            EntryExpr::StructField(field) => push(&field.value),
            EntryExpr::MapEntry(entry) => {
                push(&entry.key);
                push(&entry.value);
            }
        }
    }
}

/// What a call turns out to be.
enum Expansion {
    /// A call.
    Call,
    /// A macro, unless a fault in it was reported.
    Macro(Option<NodeKind>),
}

/// Resolves names and macros. A node that cannot be resolved is reported and is `None`; the walk
/// goes on, so that one answer names all faults.
struct Lowering<'a> {
    source: &'a str,
    source_info: &'a SourceInfo,
    environment: &'a Environment,
    locals: Vec<String>,
    nodes: usize,
    mentioned: Vec<usize>,
    issues: Vec<Issue>,
}

impl Lowering<'_> {
    fn node(&mut self, expr: &IdedExpr) -> Option<Node> {
        let kind = match &expr.expr {
            Expr::Literal(literal) => Some(NodeKind::Literal(constant(literal))),
            Expr::Ident(_) | Expr::Select(_) => self.name_or_select(expr),
            Expr::Call(call) => self.call(expr.id, call),
            Expr::List(list) => {
                let elements: Vec<_> = list.elements.iter().map(|e| self.node(e)).collect();
                let elements: Option<Vec<Node>> = elements.into_iter().collect();
                elements.map(|elements| {
                    let marked = elements.into_iter().enumerate();
                    let optional = |place: usize| list.optional_indices.contains(&place);
                    NodeKind::List(marked.map(|(place, node)| (node, optional(place))).collect())
                })
            }
            Expr::Map(map) => {
                let entries: Vec<_> = map.entries.iter().map(|entry| self.entry(entry)).collect();
                entries.into_iter().collect::<Option<Vec<_>>>().map(NodeKind::Map)
            }
            Expr::Struct(fields) => {
                let name = fields.type_name.trim_start_matches('.');
                self.undeclared(expr.id, name)
            }
            Expr::Comprehension(_) | Expr::Unspecified => {
                self.report(expr.id, "Syntax error: incomplete expression".to_owned())
            }
        }?;
        let constant = match fold(&kind) {
            Ok(constant) => constant,
            // Constants with a form of their own are looked at by the checker, which points at
            // them.
            Err(_) if matches!(&kind, NodeKind::Call { callee, .. } if is_time(callee.name())) => {
                None
            }
            Err(error) => {
                return self.report(expr.id, format!("program instantiation failed: {error}"));
            }
        };
        let known = fold_call(&kind);
        let node =
            Node { id: self.nodes, at: self.offset(expr.id), kind, constant, precomputed: known };
        self.nodes += 1;
        Some(node)
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Option<Box<Node>> {
        self.node(expr).map(Box::new)
    }

    fn entry(&mut self, entry: &IdedEntryExpr) -> Option<(Node, Node, bool)> {
        match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                let key = self.node(&entry.key);
                let value = self.node(&entry.value);
                Some((key?, value?, entry.optional))
            }
            EntryExpr::StructField(_) => {
                self.report(entry.id, "Syntax error: a field outside of a message".to_owned())
            }
        }
    }

    fn offset(&self, id: u64) -> usize {
        self.source_info
            .offset_for(id)
            .and_then(|(start, _)| usize::try_from(start).ok())
            .unwrap_or(0)
    }

    fn report<T>(&mut self, id: u64, message: String) -> Option<T> {
        self.issues.push(Issue::at(self.source, self.offset(id), message));
        None
    }

    fn undeclared<T>(&mut self, id: u64, name: &str) -> Option<T> {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|known| known == name)
    }

    /// The longest declared name that `expr` spells wins over a field of a shorter one.
    fn name_or_select(&mut self, expr: &IdedExpr) -> Option<NodeKind> {
        if let Some(name) = qualified(expr) {
            let root = name.split('.').next().unwrap_or_default();
            if let (Some(slot), true) = (self.local(root), root.len() == name.len()) {
                return Some(NodeKind::Local(slot));
            }
            if self.local(root).is_none() {
                let name = name.trim_start_matches('.');
                if let Some(place) = self.environment.variable(name) {
                    if !self.mentioned.contains(&place) {
                        self.mentioned.push(place);
                    }
                    return Some(NodeKind::Global(place));
                }
                if library::is_type_name(name) {
                    return Some(NodeKind::Literal(Value::Type(name.into())));
                }
            }
        }
        match &expr.expr {
            Expr::Select(select) => {
                let mode = if select.test { SelectMode::Test } else { SelectMode::Value };
                let operand = self.boxed(&select.operand)?;
                Some(NodeKind::Select { operand, field: select.field.as_str().into(), mode })
            }
            Expr::Ident(name) => self.undeclared(expr.id, name),
            _ => None,
        }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Option<NodeKind> {
        if let Expansion::Macro(expansion) = self.macros(call) {
            return expansion;
        }
        let mut name = call.func_name.clone();
        let mut target = call.target.as_deref();
        if let Some(prefix) = target.and_then(qualified) {
            let full = format!("{}.{name}", prefix.trim_start_matches('.'));
            let root = prefix.split('.').next().unwrap_or_default();
            if self.local(root).is_none() && self.callee(&full).is_some() {
                name = full;
                target = None;
            }
        }
        let mut args: Vec<Option<Node>> =
            target.map(|target| self.node(target)).into_iter().collect();
        args.extend(call.args.iter().map(|arg| self.node(arg)));
        let Some(callee) = self.callee(name.trim_start_matches('.')) else {
            return self.undeclared(id, &name);
        };
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        Some(NodeKind::Call { callee, member: target.is_some(), args })
    }

    fn callee(&self, name: &str) -> Option<Callee> {
        self.environment
            .function(name)
            .map(Callee::Host)
            .or_else(|| library::find(name).map(Callee::Library))
    }

    /// The node of a macro, if the call is one.
    fn macros(&mut self, call: &CallExpr) -> Expansion {
        let name = call.func_name.as_str();
        let Some(target) = call.target.as_deref() else { return self.global_macro(call) };
        Expansion::Macro(match (name, call.args.as_slice()) {
            ("all", [v, p]) => self.comprehension(ComprehensionKind::All, target, &[v], None, p),
            ("all", [k, v, p]) => {
                self.comprehension(ComprehensionKind::All, target, &[k, v], None, p)
            }
            ("exists", [v, p]) => {
                self.comprehension(ComprehensionKind::Exists, target, &[v], None, p)
            }
            ("exists", [k, v, p]) => {
                self.comprehension(ComprehensionKind::Exists, target, &[k, v], None, p)
            }
            ("exists_one", [v, p]) => {
                self.comprehension(ComprehensionKind::ExistsOne, target, &[v], None, p)
            }
            ("exists_one" | "existsOne", [k, v, p]) => {
                self.comprehension(ComprehensionKind::ExistsOne, target, &[k, v], None, p)
            }
            ("filter", [v, p]) => {
                self.comprehension(ComprehensionKind::Filter, target, &[v], None, p)
            }
            ("map", [v, t]) => self.comprehension(ComprehensionKind::List, target, &[v], None, t),
            ("map", [v, f, t]) => {
                self.comprehension(ComprehensionKind::List, target, &[v], Some(f), t)
            }
            ("transformList", [k, v, t]) => {
                self.comprehension(ComprehensionKind::List, target, &[k, v], None, t)
            }
            ("transformList", [k, v, f, t]) => {
                self.comprehension(ComprehensionKind::List, target, &[k, v], Some(f), t)
            }
            ("transformMap", [k, v, t]) => {
                self.comprehension(ComprehensionKind::Map, target, &[k, v], None, t)
            }
            ("transformMap", [k, v, f, t]) => {
                self.comprehension(ComprehensionKind::Map, target, &[k, v], Some(f), t)
            }
            ("transformMapEntry", [k, v, t]) => {
                self.comprehension(ComprehensionKind::Entries, target, &[k, v], None, t)
            }
            ("transformMapEntry", [k, v, f, t]) => {
                self.comprehension(ComprehensionKind::Entries, target, &[k, v], Some(f), t)
            }
            ("sortBy", [v, key]) => {
                let range = self.boxed(target);
                let key = self.scoped(&[v], &[key]).and_then(|mut keys| keys.pop());
                range.zip(key).map(|(range, key)| NodeKind::SortBy { range, key: Box::new(key) })
            }
            ("optMap" | "optFlatMap", [v, body]) => {
                let operand = self.boxed(target);
                let body = self.scoped(&[v], &[body]).and_then(|mut bodies| bodies.pop());
                operand.zip(body).map(|(operand, body)| NodeKind::OptionalMap {
                    operand,
                    body: Box::new(body),
                    flat: name == "optFlatMap",
                })
            }
            ("bind", [v, value, body]) if qualified(target).as_deref() == Some("cel") => {
                let value = self.boxed(value);
                let body = self.scoped(&[v], &[body]).and_then(|mut bodies| bodies.pop());
                value.zip(body).map(|(value, body)| NodeKind::Bind { value, body: Box::new(body) })
            }
            _ => return Expansion::Call,
        })
    }

    fn global_macro(&mut self, call: &CallExpr) -> Expansion {
        Expansion::Macro(match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::HAS, [IdedExpr { expr: Expr::Select(select), .. }]) => {
                self.boxed(&select.operand).map(|operand| NodeKind::Select {
                    operand,
                    field: select.field.as_str().into(),
                    mode: SelectMode::Test,
                })
            }
            (operators::HAS, [other]) => {
                self.report(other.id, "invalid argument to has() macro".to_owned())
            }
            (operators::LOGICAL_AND, [left, right]) => {
                self.pair(left, right).map(|pair| NodeKind::And(Box::new(pair)))
            }
            (operators::LOGICAL_OR, [left, right]) => {
                self.pair(left, right).map(|pair| NodeKind::Or(Box::new(pair)))
            }
            (operators::CONDITIONAL, [test, yes, no]) => {
                let test = self.node(test);
                let pair = self.pair(yes, no);
                test.zip(pair)
                    .map(|(test, [yes, no])| NodeKind::Conditional(Box::new([test, yes, no])))
            }
            (operators::INDEX | operators::OPT_INDEX, [operand, index]) => {
                self.pair(operand, index).map(|[operand, index]| NodeKind::Index {
                    operand: Box::new(operand),
                    index: Box::new(index),
                    optional: call.func_name == operators::OPT_INDEX,
                })
            }
            (operators::OPT_SELECT, [operand, field]) => {
                let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
                    return Expansion::Call;
                };
                self.boxed(operand).map(|operand| NodeKind::Select {
                    operand,
                    field: field.inner().into(),
                    mode: SelectMode::Optional,
                })
            }
            _ => return Expansion::Call,
        })
    }

    fn pair(&mut self, left: &IdedExpr, right: &IdedExpr) -> Option<[Node; 2]> {
        let left = self.node(left);
        let right = self.node(right);
        Some([left?, right?])
    }

    fn comprehension(
        &mut self,
        goal: ComprehensionKind,
        range: &IdedExpr,
        names: &[&IdedExpr],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
    ) -> Option<NodeKind> {
        let range = self.node(range);
        let parts: Vec<&IdedExpr> = filter.into_iter().chain([body]).collect();
        let mut parts = self.scoped(names, &parts)?;
        let body = parts.pop()?;
        let (range, two) = (range?, names.len() == 2);
        Some(NodeKind::Comprehension(Box::new(Comprehension {
            kind: goal,
            range,
            two_variables: two,
            filter: parts.pop(),
            body,
        })))
    }

    /// The parts of a macro in which its variables can be seen.
    fn scoped(&mut self, names: &[&IdedExpr], parts: &[&IdedExpr]) -> Option<Vec<Node>> {
        let outside = self.locals.len();
        for name in names {
            match &name.expr {
                Expr::Ident(name) => self.locals.push(name.clone()),
                _ => {
                    self.locals.truncate(outside);
                    return self.report(name.id, "argument must be a simple name".to_owned());
                }
            }
        }
        let nodes: Vec<Option<Node>> = parts.iter().map(|part| self.node(part)).collect();
        self.locals.truncate(outside);
        nodes.into_iter().collect()
    }
}

fn is_time(name: &str) -> bool {
    matches!(name, "timestamp" | "duration")
}

/// `a.b.c` of an expression that is only names.
fn qualified(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Value<'static> {
    match literal {
        LiteralValue::Boolean(truth) => Value::Bool(*truth.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(bytes.inner().into()),
        LiteralValue::Double(number) => Value::Double(*number.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::text(Arc::<str>::from(text.inner())),
        LiteralValue::UInt(number) => Value::Uint(*number.inner()),
    }
}
