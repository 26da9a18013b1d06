//! The compiled schema: nodes in an arena, so that types may refer to themselves.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::checks::Checks;

/// A compiled schema. Cheap to walk, never changed once built.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    /// What values must satisfy beyond their shape, by node. Schemas of built-in kinds have none,
    /// so this is kept apart and may be shorter than `nodes`.
    checks: Vec<Option<Box<Checks>>>,
    root: NodeId,
}

/// The place of a node in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// What is known about one value.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// What kind of value it is, and what is inside.
    pub shape: Shape,
    /// Whether `null` is a value here and not a way to leave the field out.
    pub nullable: bool,
    /// What an absent field is taken to be.
    pub default: Option<Value>,
}

/// What kind of value a node is.
#[derive(Clone, Debug, Default)]
pub enum Shape {
    /// Anything, kept as it is: nothing is pruned, and the types inside are deduced.
    #[default]
    Any,
    /// A value without parts.
    Scalar(Scalar),
    /// A list and how its elements are identified.
    List {
        /// The elements.
        items: NodeId,
        /// How elements are matched when two lists are merged.
        list_type: ListType,
    },
    /// Entries with free names and one type.
    Map {
        /// The values.
        values: NodeId,
        /// Owned and replaced as a whole.
        atomic: bool,
    },
    /// Entries with declared names.
    Struct {
        /// The declared entries.
        fields: BTreeMap<Box<str>, Field>,
        /// Owned and replaced as a whole.
        atomic: bool,
        /// Undeclared entries are kept, with deduced types.
        preserve_unknown: bool,
        /// A whole object of some kind: `apiVersion`, `kind` and `metadata` are always kept.
        embedded: bool,
    },
}

/// One declared entry of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its value.
    pub node: NodeId,
    /// What a strategic merge patch does with it.
    pub merge: MergeStrategy,
}

/// What a strategic merge patch does with a field. Plain fields of structs and maps merge, plain
/// lists are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeStrategy {
    /// Elements of the list are merged (by [`merge_key`](Self::merge_key), or as a set of scalars).
    pub merge: bool,
    /// The field that tells elements apart.
    pub merge_key: Option<Box<str>>,
    /// Replaced as a whole although it is a struct or a map.
    pub replace: bool,
    /// Entries that `$retainKeys` does not name are dropped (in the struct, or in each element).
    pub retain_keys: bool,
}

/// Values without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or text: ports, quantities.
    IntOrString,
    /// A scalar of unknown type: the engine accepts what JSON has.
    Untyped,
}

/// How elements of a list are identified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects, identified by these fields. An absent key field counts as its default.
    Map(Vec<Box<str>>),
}

impl Schema {
    /// The whole object.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The node at `id`.
    ///
    /// # Panics
    /// If `id` belongs to another schema.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// What the value at `id` must satisfy beyond its shape.
    #[must_use]
    pub fn checks(&self, id: NodeId) -> Option<&Checks> {
        self.checks.get(id.0 as usize)?.as_deref()
    }

    /// About how many bytes of memory it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        /// What an entry of a map of fields costs beside its name.
        const ENTRY: usize = size_of::<(Box<str>, Field)>() * 3 / 2;
        /// A pattern is a machine; how large depends on what it matches.
        const PATTERN: usize = 16 << 10;
        let fields = self.nodes.iter().map(|node| match &node.shape {
            Shape::Struct { fields, .. } => {
                fields.keys().map(|name| name.len() + ENTRY).sum::<usize>()
            }
            Shape::Any | Shape::Scalar(_) | Shape::List { .. } | Shape::Map { .. } => 0,
        });
        let checks =
            self.checks.iter().flatten().map(|checks| {
                size_of::<Checks>() + if checks.pattern.is_some() { PATTERN } else { 0 }
            });
        let nodes = self.nodes.capacity() * size_of::<Node>();
        nodes + self.checks.capacity() * size_of::<usize>() + fields.chain(checks).sum::<usize>()
    }

    /// The entry `name` of the struct or map at `id`, if it is declared.
    #[must_use]
    pub fn entry(&self, id: NodeId, name: &str) -> Option<NodeId> {
        match &self.node(id).shape {
            Shape::Struct { fields, .. } => fields.get(name).map(|field| field.node),
            Shape::Map { values, .. } => Some(*values),
            Shape::Any | Shape::Scalar(_) | Shape::List { .. } => None,
        }
    }
}

/// Builds a [`Schema`]; a node may be referred to before it is known.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<Node>,
    checks: Vec<Option<Box<Checks>>>,
}

impl Builder {
    /// A builder without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a place for a node that is set later; until then it is [`Shape::Any`].
    ///
    /// # Panics
    /// If there are more than four thousand million nodes.
    pub fn reserve(&mut self) -> NodeId {
        self.add(Node::default())
    }

    /// Adds a node.
    ///
    /// # Panics
    /// If there are more than four thousand million nodes.
    pub fn add(&mut self, node: Node) -> NodeId {
        let id = u32::try_from(self.nodes.len()).expect("a schema has fewer nodes than bytes");
        self.nodes.push(node);
        NodeId(id)
    }

    /// The node at `id`, as it is so far.
    ///
    /// # Panics
    /// If `id` belongs to another builder.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Sets a reserved node.
    ///
    /// # Panics
    /// If `id` belongs to another builder.
    pub fn set(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// Sets what the value at `id` must satisfy beyond its shape.
    pub fn check(&mut self, id: NodeId, checks: Checks) {
        let place = id.0 as usize;
        if self.checks.len() <= place {
            self.checks.resize_with(place + 1, || None);
        }
        self.checks[place] = Some(Box::new(checks));
    }

    /// The schema of what stands at `root`.
    #[must_use]
    pub fn build(self, root: NodeId) -> Schema {
        Schema { nodes: self.nodes, checks: self.checks, root }
    }
}
