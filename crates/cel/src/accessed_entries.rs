//! Finds the entries of a variable that an expression reads.

use std::collections::BTreeSet;

use crate::ast::{Node, NodeKind};
use crate::library::operators;
use crate::value::Value;

/// The entries of the variable at `place` that the expression names, sorted; nothing if it looks at
/// the variable in any other way.
pub(crate) fn accessed_entries(root: &Node, place: Option<usize>) -> Option<Vec<&str>> {
    let mut named = BTreeSet::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let is_variable =
            |node: &Node| matches!(node.kind, NodeKind::Global(at) if Some(at) == place);
        match &node.kind {
            NodeKind::Global(_) if is_variable(node) => return None,
            NodeKind::Literal(_) | NodeKind::Global(_) | NodeKind::Local(_) => {}
            NodeKind::Select { operand, field, .. } if is_variable(operand) => {
                named.insert(&**field);
            }
            NodeKind::Select { operand, .. } => open.push(operand),
            NodeKind::Index { operand, index, .. } => match literal(index) {
                Some(name) if is_variable(operand) => {
                    named.insert(name);
                }
                Some(_) | None => open.extend([&**operand, &**index]),
            },
            NodeKind::Call { callee, args, .. } => match args.as_slice() {
                [key, map] if callee.name() == operators::IN && is_variable(map) => {
                    named.insert(literal(key)?);
                }
                all => open.extend(all),
            },
            NodeKind::And(pair) | NodeKind::Or(pair) => open.extend(pair.iter()),
            NodeKind::Conditional(parts) => open.extend(parts.iter()),
            NodeKind::List(elements) => open.extend(elements.iter().map(|(element, _)| element)),
            NodeKind::Map(entries) => {
                open.extend(entries.iter().flat_map(|(key, value, _)| [key, value]));
            }
            NodeKind::Comprehension(each) => {
                open.extend([&each.range, &each.body].into_iter().chain(&each.filter));
            }
            NodeKind::Bind { value, body } => open.extend([&**value, &**body]),
            NodeKind::OptionalMap { operand, body, .. } => open.extend([&**operand, &**body]),
            NodeKind::SortBy { range, key } => open.extend([&**range, &**key]),
        }
    }
    Some(named.into_iter().collect())
}

fn literal(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Literal(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::types::Type;
    use crate::value::map_type;
    use crate::{Comparisons, Environment};

    #[test]
    fn entries_are_named_or_all_count() {
        let device = map_type(Type::string(), Type::Dyn);
        let environment =
            Environment::new().with_variable("device", device).with_comparisons(Comparisons::Mixed);
        let table = [
            ("nothing is looked at", "1 < 2", Some(vec![])),
            ("a selection", "device.model == 'a'", Some(vec!["model"])),
            ("an index", "device['odd-name'] == 'a'", Some(vec!["odd-name"])),
            ("a test", "has(device.model) && device.?x.orValue(1) == 1", Some(vec!["model", "x"])),
            ("an optional index", "device[?'x'].hasValue()", Some(vec!["x"])),
            ("membership", "'model' in device", Some(vec!["model"])),
            ("inside a macro", "[1].all(i, device.count > i)", Some(vec!["count"])),
            ("inside a binding", "cel.bind(x, device.a, x == device.b)", Some(vec!["a", "b"])),
            ("below an entry", "device.a.b.c == 1", Some(vec!["a"])),
            ("a computed key", "device['a' + 'b'] == 1", None),
            ("a computed member", "string(device.a) in device", None),
            ("all of it", "device.all(key, key != 'a')", None),
            ("its size", "size(device) > 1", None),
            ("bound to a name", "cel.bind(d, device, d.a == 1)", None),
        ];
        for (why, source, expected) in table {
            let program = environment.compile(source, Some(&Type::Bool)).expect(source);
            assert_eq!(program.entries_of("device"), expected, "{why}: {source}");
        }
    }
}
