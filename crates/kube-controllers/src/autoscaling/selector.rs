//! Parses the label selectors that scales have as text.

use gantry_reconcile::Selector;
use gantry_reconcile::labels::{Operator, Requirement};

/// Parses `app=web,tier in (a,b),!old`; returns `None` when the text is not a selector.
pub(super) fn parse_selector(text: &str) -> Option<Selector> {
    let mut selector = Selector::default();
    for clause in clauses(text) {
        selector.match_expressions.push(requirement(clause.trim())?);
    }
    (!selector.is_empty()).then_some(selector)
}

/// Splits at commas that are not within parentheses.
fn clauses(text: &str) -> Vec<&str> {
    let (mut clauses, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                clauses.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    clauses.push(&text[begin..]);
    clauses
}

fn requirement(clause: &str) -> Option<Requirement> {
    let make = |key: &str, operator, values: Vec<&str>| {
        let key = key.trim();
        let values = values.iter().map(|it| it.trim().to_owned()).collect();
        let good = !key.is_empty() && !key.contains([' ', '(', ')', '=', '!']);
        good.then(|| Requirement { key: key.to_owned(), operator, values })
    };
    if let Some(key) = clause.strip_prefix('!') {
        return make(key, Operator::DoesNotExist, Vec::new());
    }
    if let Some((head, list)) = clause.strip_suffix(')').and_then(|it| it.split_once('(')) {
        let values = list.split(',').collect();
        let head = head.trim();
        return match head.strip_suffix(" notin") {
            Some(key) => make(key, Operator::NotIn, values),
            None => make(head.strip_suffix(" in")?, Operator::In, values),
        };
    }
    for (sign, operator) in [("!=", Operator::NotIn), ("==", Operator::In), ("=", Operator::In)] {
        if let Some((key, value)) = clause.split_once(sign) {
            return make(key, operator, vec![value]);
        }
    }
    make(clause, Operator::Exists, Vec::new())
}
