//! Sets of fields, and how they are written in `fieldsV1`.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::path::{Path, PathElement, PathElementError};

/// A set of fields, as a tree whose every level is sorted.
///
/// A field and what is inside it are members of their own: a set may hold `.data.a` without
/// `.data`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element, each at most once. Every node is a member or has members below it.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    element: PathElement,
    /// Whether the field itself is in the set.
    member: bool,
    below: FieldSet,
}

impl Node {
    fn is_nonempty(&self) -> bool {
        self.member || !self.below.is_empty()
    }
}

impl FieldSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a field. The path of the whole object is in no set: it has no owner.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((element, rest)) = path.split_first() else { return };
        let node = self.node_or_insert(element);
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    fn node_or_insert(&mut self, element: &PathElement) -> &mut Node {
        let place = match self.nodes.binary_search_by(|node| node.element.cmp(element)) {
            Ok(place) => place,
            Err(place) => {
                let node = Node { element: element.clone(), member: false, below: Self::default() };
                self.nodes.insert(place, node);
                place
            }
        };
        &mut self.nodes[place]
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        let place = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        self.nodes.get(place)
    }

    /// Whether the field is in the set.
    #[must_use]
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((element, rest)) = path.split_first() else { return false };
        match self.node(element) {
            Some(node) if rest.is_empty() => node.member,
            Some(node) => node.below.contains(rest),
            None => false,
        }
    }

    /// What is in the set below `element`.
    #[must_use]
    pub fn below(&self, element: &PathElement) -> Option<&Self> {
        self.node(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// Whether `element` at the top of the set is a member.
    #[must_use]
    pub fn has(&self, element: &PathElement) -> bool {
        self.node(element).is_some_and(|node| node.member)
    }

    /// What is at the top of the set: each element, whether it is a member, and what is below it.
    pub fn entries(&self) -> impl Iterator<Item = (&PathElement, bool, &Self)> {
        self.nodes.iter().map(|node| (&node.element, node.member, &node.below))
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |one, other| match (one, other) {
            (Some(one), Some(other)) => Some(Node {
                element: one.element.clone(),
                member: one.member || other.member,
                below: one.below.union(&other.below),
            }),
            (Some(node), None) | (None, Some(node)) => Some(node.clone()),
            (None, None) => None,
        })
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |one, other| {
            let (one, other) = (one?, other?);
            Some(Node {
                element: one.element.clone(),
                member: one.member && other.member,
                below: one.below.intersection(&other.below),
            })
        })
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |one, other| {
            let one = one?;
            let Some(other) = other else { return Some(one.clone()) };
            Some(Node {
                element: one.element.clone(),
                member: one.member && !other.member,
                below: one.below.difference(&other.below),
            })
        })
    }

    /// What is in this set and neither in the other nor below a member of it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |one, other| {
            let one = one?;
            let Some(other) = other else { return Some(one.clone()) };
            if other.member {
                return None;
            }
            Some(Node {
                element: one.element.clone(),
                member: one.member,
                below: one.below.recursive_difference(&other.below),
            })
        })
    }

    /// Walks two sets side by side.
    fn combine(
        &self,
        other: &Self,
        mut rule: impl FnMut(Option<&Node>, Option<&Node>) -> Option<Node>,
    ) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(one), Some(other)) => one.element.cmp(&other.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let one = if order.is_le() { left.next() } else { None };
            let other = if order.is_ge() { right.next() } else { None };
            nodes.extend(rule(one, other).filter(Node::is_nonempty));
        }
        Self { nodes }
    }

    /// The members that have no members below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.below.is_empty(),
            below: node.below.leaves(),
        });
        Self { nodes: nodes.collect() }
    }

    /// The set in which what `rule` chooses among the inner nodes is a member too. `rule` gets the
    /// element and says whether it becomes a member and how to go on below it.
    pub(crate) fn with_inner<S: Copy>(
        &self,
        state: S,
        rule: &impl Fn(S, &PathElement) -> (bool, S),
    ) -> Self {
        let nodes = self.nodes.iter().map(|node| {
            if node.below.is_empty() {
                return node.clone();
            }
            let (named, state) = rule(state, &node.element);
            Node {
                element: node.element.clone(),
                member: node.member || named,
                below: node.below.with_inner(state, rule),
            }
        });
        Self { nodes: nodes.collect() }
    }

    /// Every field of the set: at each level first the members, then what is below.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, way: &mut Vec<PathElement>, paths: &mut Vec<Path>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            way.push(node.element.clone());
            paths.push(Path(way.clone()));
            way.pop();
        }
        for node in &self.nodes {
            way.push(node.element.clone());
            node.below.collect_paths(way, paths);
            way.pop();
        }
    }

    /// The set as `fieldsV1` has it.
    #[must_use]
    pub fn to_fields(&self) -> Value {
        self.write_fields(false)
    }

    fn write_fields(&self, itself: bool) -> Value {
        let mut fields = Map::new();
        if itself && !self.nodes.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            fields.insert(node.element.to_text(), node.below.write_fields(node.member));
        }
        Value::Object(fields)
    }

    /// Reads a set from `fieldsV1`.
    ///
    /// # Errors
    /// If it is not an object of objects, or a name in it is not a path element.
    pub fn from_fields(fields: &Value) -> Result<Self, FieldsError> {
        Ok(Self::read_fields(fields)?.0)
    }

    /// Reads one level: what is below, and whether the field itself is a member.
    fn read_fields(fields: &Value) -> Result<(Self, bool), FieldsError> {
        let fields = match fields {
            Value::Object(fields) => fields,
            // Read as an empty object, as everywhere in JSON that Go decodes.
            Value::Null => return Ok((Self::default(), true)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(FieldsError::NotAnObject);
            }
        };
        let mut set = Self::default();
        let mut itself = false;
        for (name, below) in fields {
            if name == "." {
                itself = true;
                continue;
            }
            let Some(element) = PathElement::from_text(name)? else { continue };
            let (below, member) = Self::read_fields(below)?;
            let node = Node { element, member, below };
            // Sets are written in order, so that nearly always the end is the place.
            if set.nodes.last().is_none_or(|last| last.element < node.element) {
                set.nodes.push(node);
            } else {
                let known = set.node_or_insert(&node.element);
                known.member |= node.member;
                known.below = known.below.union(&node.below);
            }
        }
        let itself = itself || set.nodes.is_empty();
        Ok((set, itself))
    }
}

impl<'a> FromIterator<&'a Path> for FieldSet {
    fn from_iter<I: IntoIterator<Item = &'a Path>>(paths: I) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }
}

/// Why `fieldsV1` is not a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// Something other than an object stands where an object belongs.
    #[error("cannot read fieldsV1: every value in it is an object")]
    NotAnObject,
    /// A name is not a path element.
    #[error("cannot read fieldsV1")]
    Element(#[from] PathElementError),
}

#[cfg(test)]
mod tests;
