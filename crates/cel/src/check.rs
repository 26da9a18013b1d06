//! Finds errors in an expression before it is evaluated.
//!
//! A real server refuses such expressions when they are written, so this must too; but it must
//! never refuse what a real server accepts, so wherever a type is not known everything is accepted.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Callee, Comprehension, ComprehensionKind, Node, NodeKind, SelectMode};
use crate::environment::Environment;
use crate::error::{CompileError, Issue};
use crate::library::regex::{self, Pattern};
use crate::library::{self, mixed_comparisons, operators, time};
use crate::signature::{Signature, join};
use crate::types::Type;
use crate::value::{Value, map_type};

/// What is known about an expression that may run.
#[derive(Debug)]
pub(crate) struct CheckedExpression {
    /// The types of its nodes.
    pub(crate) types: Vec<Type>,
    /// The type of its answer.
    pub(crate) result: Type,
    /// The patterns it spells out.
    pub(crate) patterns: HashMap<String, Pattern>,
}

pub(crate) fn check(
    source: &str,
    root: &Node,
    nodes: usize,
    environment: &Environment,
) -> Result<CheckedExpression, CompileError> {
    let mut check = Checker {
        source,
        environment,
        locals: Vec::new(),
        types: vec![Type::Dyn; nodes],
        patterns: HashMap::new(),
        issues: Vec::new(),
        mixed: false,
    };
    let result = check.node(root);
    if check.issues.is_empty() {
        return Ok(CheckedExpression { types: check.types, result, patterns: check.patterns });
    }
    check.issues.sort_by_key(|finding| (finding.line, finding.column));
    Err(CompileError::Invalid(check.issues))
}

struct Checker<'a> {
    source: &'a str,
    environment: &'a Environment,
    locals: Vec<Type>,
    types: Vec<Type>,
    patterns: HashMap<String, Pattern>,
    issues: Vec<Issue>,
    /// Whether literals may have elements of different types: those that are formatted may.
    mixed: bool,
}

impl Checker<'_> {
    /// The type of a node; a faulty one is reported and can be anything.
    fn node(&mut self, node: &Node) -> Type {
        let ty = self.type_of(node);
        if let Some(slot) = self.types.get_mut(node.id) {
            *slot = ty.clone();
        }
        ty
    }

    fn report(&mut self, node: &Node, message: String) -> Type {
        self.issues.push(Issue::at(self.source, node.at, message));
        Type::Dyn
    }

    fn type_of(&mut self, node: &Node) -> Type {
        match &node.kind {
            NodeKind::Literal(value) => literal(value),
            NodeKind::Global(place) => self.environment.variable_type(*place),
            NodeKind::Local(slot) => self.locals.get(*slot).cloned().unwrap_or(Type::Dyn),
            NodeKind::Select { operand, field, mode } => self.select(node, operand, field, *mode),
            NodeKind::Index { operand, index, optional } => {
                self.index(node, operand, index, *optional)
            }
            NodeKind::Call { callee, member, args } => self.call(node, callee, *member, args),
            NodeKind::And(pair) | NodeKind::Or(pair) => self.logic(pair),
            NodeKind::Conditional(parts) => {
                let [test, yes, no] = parts.each_ref().map(|part| self.node(part));
                match join(&yes, &no) {
                    Some(joined) if is_assignable(&test, &Type::Bool) => joined,
                    _ => self.no_overload(node, "_?_:_", false, &[test, yes, no]),
                }
            }
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Comprehension(each) => self.comprehension(node, each),
            NodeKind::Bind { value, body } => {
                let value = self.node(value);
                self.with(&[value], body)
            }
            NodeKind::OptionalMap { operand, body, flat } => {
                let inner = match self.node(operand) {
                    Type::Optional(inner) => (*inner).clone(),
                    ty if ty.is_dynamic() => Type::Dyn,
                    other => {
                        let name = if *flat { "optFlatMap" } else { "optMap" };
                        return self.no_overload(node, name, true, &[other, Type::Dyn]);
                    }
                };
                let body = self.with(&[inner], body);
                if *flat { body } else { Type::optional(body) }
            }
            NodeKind::SortBy { range, key } => {
                let range_type = self.node(range);
                let element = self.elements(node, &range_type, false)[0].clone();
                self.with(&[element], key);
                range_type
            }
        }
    }

    /// The elements of a literal must be of one type.
    fn unify_element(&mut self, node: &Node, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        match join(&before, &ty) {
            Some(joined) => joined,
            None if self.mixed => Type::Dyn,
            None => self.report(node, format!("expected type '{before}' but found '{ty}'")),
        }
    }

    fn list(&mut self, elements: &[(Node, bool)]) -> Type {
        let mut joined = None;
        for (element, optional) in elements {
            let ty = self.node(element);
            let ty = if *optional { self.unwrapped(element, ty) } else { ty };
            joined = Some(self.unify_element(element, joined, ty));
        }
        Type::list(joined.unwrap_or(Type::Dyn))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            let key_type = self.node(key);
            keys = Some(self.unify_element(key, keys, key_type));
            let ty = self.node(value);
            let ty = if *optional { self.unwrapped(value, ty) } else { ty };
            values = Some(self.unify_element(value, values, ty));
        }
        map_type(keys.unwrap_or(Type::Dyn), values.unwrap_or(Type::Dyn))
    }

    fn unwrapped(&mut self, node: &Node, ty: Type) -> Type {
        match ty {
            Type::Optional(inner) => (*inner).clone(),
            ty if ty.is_dynamic() => Type::Dyn,
            other => {
                let message = format!("expected type 'optional_type({other})' but found '{other}'");
                self.report(node, message)
            }
        }
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, mode: SelectMode) -> Type {
        let operand_type = self.node(operand);
        let (inner, through) = match operand_type {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let found = match &inner {
            Type::Object(object) => match object.field(field) {
                Some(field) => field.ty.clone(),
                None => self.report(node, format!("undefined field '{field}'")),
            },
            Type::Map(map) if is_assignable(&map.key, &Type::string()) => map.value.clone(),
            Type::Map(_) | Type::Dyn | Type::IntOrString { .. } => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.report(node, message)
            }
        };
        match mode {
            SelectMode::Test => Type::Bool,
            SelectMode::Optional => wrapped(found),
            SelectMode::Value if through => wrapped(found),
            SelectMode::Value => found,
        }
    }

    fn index(&mut self, node: &Node, operand: &Node, index: &Node, optional: bool) -> Type {
        let operand_type = self.node(operand);
        let index_type = self.node(index);
        let (inner, through) = match &operand_type {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let found = match &inner {
            Type::List(list) if is_assignable(&index_type, &Type::Int) => {
                Some(list.element.clone())
            }
            Type::Map(map) if join(&map.key, &index_type).is_some() => Some(map.value.clone()),
            Type::Dyn | Type::IntOrString { .. } => Some(Type::Dyn),
            _ => None,
        };
        let name = if optional { "_[?_]" } else { "_[_]" };
        match found {
            Some(found) if optional || through => wrapped(found),
            Some(found) => found,
            None => self.no_overload(node, name, false, &[operand_type, index_type]),
        }
    }

    fn logic(&mut self, pair: &[Node; 2]) -> Type {
        let types = pair.each_ref().map(|side| self.node(side));
        for (side, ty) in pair.iter().zip(&types) {
            if !is_assignable(ty, &Type::Bool) {
                self.report(side, format!("expected type 'bool' but found '{ty}'"));
            }
        }
        Type::Bool
    }

    fn with(&mut self, locals: &[Type], body: &Node) -> Type {
        let outside = self.locals.len();
        self.locals.extend_from_slice(locals);
        let ty = self.node(body);
        self.locals.truncate(outside);
        ty
    }

    /// What the variables of a macro are.
    fn elements(&mut self, node: &Node, range: &Type, two: bool) -> Vec<Type> {
        match range {
            Type::List(list) if two => vec![Type::Int, list.element.clone()],
            Type::List(list) => vec![list.element.clone()],
            Type::Map(map) if two => vec![map.key.clone(), map.value.clone()],
            Type::Map(map) => vec![map.key.clone()],
            ty if ty.is_dynamic() => vec![Type::Dyn; if two { 2 } else { 1 }],
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                self.report(node, message);
                vec![Type::Dyn; if two { 2 } else { 1 }]
            }
        }
    }

    fn comprehension(&mut self, node: &Node, each: &Comprehension) -> Type {
        let range = self.node(&each.range);
        let locals = self.elements(&each.range, &range, each.two_variables);
        let filter = each.filter.as_ref().map(|filter| (filter, self.with(&locals, filter)));
        let body = self.with(&locals, &each.body);
        let element = locals.first().cloned().unwrap_or(Type::Dyn);
        if let Some((filter, ty)) = filter {
            self.expect_bool(node, filter, &ty, each.kind, &Type::list(body.clone()));
        }
        match each.kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                self.expect_bool(node, &each.body, &body, each.kind, &Type::Int);
                Type::Bool
            }
            ComprehensionKind::Filter => {
                let answer = Type::list(element);
                self.expect_bool(node, &each.body, &body, each.kind, &answer);
                answer
            }
            ComprehensionKind::List => Type::list(body),
            ComprehensionKind::Map => map_type(element, body),
            ComprehensionKind::Entries => match body {
                map @ Type::Map(_) => map,
                ty if ty.is_dynamic() => map_type(Type::Dyn, Type::Dyn),
                other => self.no_overload(
                    node,
                    "cel.@mapInsert",
                    false,
                    &[map_type(Type::Dyn, Type::Dyn), other],
                ),
            },
        }
    }

    fn expect_bool(
        &mut self,
        node: &Node,
        predicate: &Node,
        ty: &Type,
        goal: ComprehensionKind,
        answer: &Type,
    ) {
        if is_assignable(ty, &Type::Bool) {
            return;
        }
        match goal {
            ComprehensionKind::All | ComprehensionKind::Exists => {
                self.report(predicate, format!("expected type 'bool' but found '{ty}'"));
            }
            ComprehensionKind::ExistsOne
            | ComprehensionKind::Filter
            | ComprehensionKind::List
            | ComprehensionKind::Map
            | ComprehensionKind::Entries => {
                // A server sees the choice between extending and not extending the answer.
                let choice = [ty.clone(), answer.clone(), answer.clone()];
                self.no_overload(node, "_?_:_", false, &choice);
            }
        }
    }

    fn call(&mut self, node: &Node, callee: &Callee, member: bool, args: &[Node]) -> Type {
        let outside = self.mixed;
        self.mixed |= callee.name() == "format";
        let types: Vec<Type> = args.iter().map(|arg| self.node(arg)).collect();
        self.mixed = outside;
        let signatures: &[Signature] = match callee {
            Callee::Library(entry) => library::signatures(entry),
            Callee::Host(function) => &function.signatures,
        };
        let mixed = mixed_comparisons::signatures(self.environment.comparisons(), callee);
        let mut result: Option<Type> = None;
        let all = signatures.iter().chain(mixed);
        for signature in all.filter(|signature| signature.member == member) {
            if let Some(answer) = signature.result_type(&types) {
                result = Some(match result {
                    None => answer,
                    Some(before) if before == answer => answer,
                    Some(_) => Type::Dyn,
                });
            }
        }
        let Some(result) = result else {
            return self.no_overload(node, callee.name(), member, &types);
        };
        if let Callee::Library(entry) = callee {
            self.check_constant_args(entry.name, args);
        }
        // Nothing but `+` keeps what is special about a list.
        match (callee.name(), types.as_slice(), &result) {
            (operators::ADD, [list @ Type::List(_), _], Type::List(_)) => list.clone(),
            _ => result,
        }
    }

    /// Constants that a function will refuse whenever it runs.
    fn check_constant_args(&mut self, name: &str, args: &[Node]) {
        let text = |place: usize| match args.get(place).map(|arg| (arg, &arg.kind)) {
            Some((node, NodeKind::Literal(Value::String(text)))) => {
                Some((node, Arc::from(&**text)))
            }
            _ => None,
        };
        match name {
            "timestamp" => {
                if let Some((node, text)) = text(0)
                    && time::parse_rfc3339(&text).is_none()
                {
                    self.report(node, "invalid timestamp argument".to_owned());
                }
            }
            "duration" => {
                if let Some((node, text)) = text(0)
                    && time::parse_duration(&text).is_none()
                {
                    self.report(node, "invalid duration argument".to_owned());
                }
            }
            "matches" | "find" | "findAll" => {
                if let Some((node, text)) = text(1) {
                    match Pattern::compile(&text, regex::LITERAL_PATTERN_MEMORY) {
                        Ok(pattern) => {
                            self.patterns.insert(text.to_string(), pattern);
                        }
                        Err(_) if name == "matches" => {
                            self.report(node, "invalid matches argument".to_owned());
                        }
                        // Only `matches` is looked at on a real server.
                        Err(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn no_overload(&mut self, node: &Node, name: &str, member: bool, types: &[Type]) -> Type {
        let list =
            |types: &[Type]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = match types.split_first() {
            Some((target, rest)) if member => format!("{target}.({})", list(rest)),
            _ => format!("({})", list(types)),
        };
        let message = format!("found no matching overload for '{name}' applied to '{applied}'");
        self.report(node, message)
    }
}

fn literal(value: &Value<'_>) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::string(),
        Value::Bytes(_) => Type::bytes(),
        Value::Type(_) => Type::Kind,
        _ => Type::Dyn,
    }
}

fn is_assignable(ty: &Type, wanted: &Type) -> bool {
    join(ty, wanted).is_some()
}

fn wrapped(ty: Type) -> Type {
    match ty {
        optional @ Type::Optional(_) => optional,
        other => Type::optional(other),
    }
}
