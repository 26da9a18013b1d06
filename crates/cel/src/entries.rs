//! Which entries of a variable an expression looks at.

use std::collections::BTreeSet;

use crate::library::operators;
use crate::tree::{Kind, Node};
use crate::value::Value;

/// The entries of the variable at `place` that the expression names, sorted; nothing if it looks at
/// the variable in any other way.
pub(crate) fn of(root: &Node, place: Option<usize>) -> Option<Vec<&str>> {
    let mut named = BTreeSet::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let is_variable = |node: &Node| matches!(node.kind, Kind::Global(at) if Some(at) == place);
        match &node.kind {
            Kind::Global(_) if is_variable(node) => return None,
            Kind::Literal(_) | Kind::Global(_) | Kind::Local(_) => {}
            Kind::Select { operand, field, .. } if is_variable(operand) => {
                named.insert(&**field);
            }
            Kind::Select { operand, .. } => open.push(operand),
            Kind::Index { operand, index, .. } => match literal(index) {
                Some(name) if is_variable(operand) => {
                    named.insert(name);
                }
                Some(_) | None => open.extend([&**operand, &**index]),
            },
            Kind::Call { callee, args, .. } => match args.as_slice() {
                [key, map] if callee.name() == operators::IN && is_variable(map) => {
                    named.insert(literal(key)?);
                }
                all => open.extend(all),
            },
            Kind::And(pair) | Kind::Or(pair) => open.extend(pair.iter()),
            Kind::Conditional(parts) => open.extend(parts.iter()),
            Kind::List(elements) => open.extend(elements.iter().map(|(element, _)| element)),
            Kind::Map(entries) => {
                open.extend(entries.iter().flat_map(|(key, value, _)| [key, value]));
            }
            Kind::Loop(each) => {
                open.extend([&each.range, &each.body].into_iter().chain(&each.filter));
            }
            Kind::Bind { value, body } => open.extend([&**value, &**body]),
            Kind::OptionalMap { operand, body, .. } => open.extend([&**operand, &**body]),
            Kind::SortBy { range, key } => open.extend([&**range, &**key]),
        }
    }
    Some(named.into_iter().collect())
}

fn literal(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Literal(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::types::Type;
    use crate::value::map_type;
    use crate::{Comparisons, Environment};

    #[test]
    fn entries_are_named_or_the_whole_counts() {
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
