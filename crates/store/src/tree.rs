//! An ordered map whose copies share everything that did not change.
//!
//! A B-tree with all items in its leaves and shared nodes. Cloning it is one reference count;
//! changing a clone copies the nodes on one path and leaves every other clone as it was. Each child
//! carries the number of items below it, which makes counting a range as cheap as looking up a key.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::Arc;

/// Items of a leaf and children of an inner node.
///
/// A change copies one node per level, so wider nodes cost writers; narrower ones make the tree
/// deeper. Three levels of 32 hold 32,000 items.
const MAX_NODE_WIDTH: usize = 32;
/// A node with fewer items than this after a removal is joined with a neighbour.
const MIN_NODE_WIDTH: usize = MAX_NODE_WIDTH / 4;

/// What can be kept in a [`Tree`].
pub(crate) trait Keyed {
    /// What items are ordered by.
    type Key: Ord + ?Sized;
    /// A cheap copy of the key for inner nodes: not the item, so that they keep no old item alive.
    type Separator: Clone + Borrow<Self::Key>;
    fn key(&self) -> &Self::Key;
    fn separator(&self) -> Self::Separator;
}

/// The map. See the module's documentation.
pub(crate) struct Tree<T: Keyed> {
    root: Arc<Node<T>>,
    len: usize,
}

/// A leaf has items, an inner node has children; never both.
struct Node<T: Keyed> {
    items: Vec<T>,
    children: Vec<Child<T>>,
}

struct Child<T: Keyed> {
    /// The last key below, exactly.
    last: T::Separator,
    /// How many items are below.
    count: usize,
    node: Arc<Node<T>>,
}

impl<T: Keyed + Clone> Tree<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both are copies of the same map, without a change in between. Does not walk them.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root) || (self.is_empty() && other.is_empty())
    }

    pub(crate) fn get(&self, key: &T::Key) -> Option<&T> {
        let mut node = &*self.root;
        while !node.children.is_empty() {
            node = &*node.children.get(node.child_for(key))?.node;
        }
        node.find(key).ok().and_then(|index| node.items.get(index))
    }

    /// The item to be changed in place. Its key must stay what it is.
    pub(crate) fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        // Looked up first so that a miss copies nothing.
        self.get(key)?;
        let mut node = Arc::make_mut(&mut self.root);
        while !node.children.is_empty() {
            let index = node.child_for(key);
            node = Arc::make_mut(&mut node.children.get_mut(index)?.node);
        }
        let index = node.find(key).ok()?;
        node.items.get_mut(index)
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<&T> {
        let mut node = &*self.root;
        while let Some(child) = node.children.last() {
            node = &*child.node;
        }
        node.items.last()
    }

    /// Puts an item in and returns the one it replaces.
    pub(crate) fn insert(&mut self, item: T) -> Option<T> {
        let root = Arc::make_mut(&mut self.root);
        let (replaced, right) = root.insert(item);
        if let Some(right) = right {
            let left = std::mem::replace(root, Node::EMPTY);
            root.children = vec![Child::of(left), right];
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &T::Key) -> Option<T> {
        self.get(key)?;
        let removed = Arc::make_mut(&mut self.root).remove(key)?;
        while self.root.children.len() == 1 {
            let only = Arc::clone(&self.root.children[0].node);
            self.root = only;
        }
        self.len -= 1;
        Some(removed)
    }

    /// Items in order, from a bound on.
    pub(crate) fn range(&self, from: Bound<&T::Key>) -> Iter<'_, T> {
        let mut above = Vec::new();
        let mut node = &*self.root;
        while !node.children.is_empty() {
            let start = node.children.partition_point(|child| precedes(child.last.borrow(), from));
            let Some(child) = node.children.get(start) else {
                return Iter { above: Vec::new(), leaf: [].iter() };
            };
            above.push(node.children[start + 1..].iter());
            node = &*child.node;
        }
        let start = node.items.partition_point(|item| precedes(item.key(), from));
        Iter { above, leaf: node.items[start..].iter() }
    }

    pub(crate) fn iter(&self) -> Iter<'_, T> {
        self.range(Bound::Unbounded)
    }

    /// How many items a [`Self::range`] from this bound gives, without walking them.
    pub(crate) fn count(&self, from: Bound<&T::Key>) -> usize {
        let mut node = &*self.root;
        let mut count = 0;
        while !node.children.is_empty() {
            let start = node.children.partition_point(|child| precedes(child.last.borrow(), from));
            let Some(child) = node.children.get(start) else { return count };
            count += node.children[start + 1..].iter().map(|child| child.count).sum::<usize>();
            node = &*child.node;
        }
        count + node.items.len() - node.items.partition_point(|item| precedes(item.key(), from))
    }
}

/// Whether a key lies before the part of the map that starts at a bound.
fn precedes<K: Ord + ?Sized>(key: &K, from: Bound<&K>) -> bool {
    match from {
        Bound::Unbounded => false,
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
    }
}

impl<T: Keyed + Clone> Node<T> {
    const EMPTY: Self = Self { items: Vec::new(), children: Vec::new() };

    fn find(&self, key: &T::Key) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.key().cmp(key))
    }

    /// The child that holds a key, or would: the last one takes what is beyond every child.
    fn child_for(&self, key: &T::Key) -> usize {
        let index = self.children.partition_point(|child| child.last.borrow() < key);
        index.min(self.children.len().saturating_sub(1))
    }

    /// Items of a leaf or children of an inner node.
    fn width(&self) -> usize {
        self.items.len() + self.children.len()
    }

    fn insert(&mut self, item: T) -> (Option<T>, Option<Child<T>>) {
        if self.children.is_empty() {
            return match self.find(item.key()) {
                Ok(index) => (Some(std::mem::replace(&mut self.items[index], item)), None),
                Err(index) => {
                    self.items.insert(index, item);
                    (None, self.split(index + 1 == self.items.len()))
                }
            };
        }
        let index = self.child_for(item.key());
        let child = &mut self.children[index];
        let beyond = child.last.borrow() < item.key();
        if beyond {
            child.last = item.separator();
        }
        let (replaced, right) = Arc::make_mut(&mut child.node).insert(item);
        child.count += usize::from(replaced.is_none());
        let Some(right) = right else { return (replaced, None) };
        child.refresh();
        self.children.insert(index + 1, right);
        (replaced, self.split(index + 2 == self.children.len()))
    }

    /// Gives the upper part of an overfull node away.
    ///
    /// After an insertion at the very end the left part stays full: keys that arrive in order, as
    /// revisions do, then fill their nodes instead of leaving each half empty.
    fn split(&mut self, at_end: bool) -> Option<Child<T>> {
        if self.width() <= MAX_NODE_WIDTH {
            return None;
        }
        let at = if at_end { self.width() - 1 } else { self.width() / 2 };
        Some(Child::of(if self.children.is_empty() {
            Self { items: self.items.split_off(at), children: Vec::new() }
        } else {
            Self { items: Vec::new(), children: self.children.split_off(at) }
        }))
    }

    fn remove(&mut self, key: &T::Key) -> Option<T> {
        if self.children.is_empty() {
            return self.find(key).ok().map(|index| self.items.remove(index));
        }
        let index = self.child_for(key);
        let child = self.children.get_mut(index)?;
        let node = Arc::make_mut(&mut child.node);
        let removed = node.remove(key)?;
        let width = node.width();
        if width == 0 {
            self.children.remove(index);
            return Some(removed);
        }
        child.refresh();
        if width < MIN_NODE_WIDTH && self.children.len() > 1 {
            self.join(index.min(self.children.len() - 2));
        }
        Some(removed)
    }

    /// Makes one node of two neighbours, or two even ones when one would be overfull.
    fn join(&mut self, left: usize) {
        let right = Arc::unwrap_or_clone(self.children.remove(left + 1).node);
        let child = &mut self.children[left];
        let node = Arc::make_mut(&mut child.node);
        node.items.extend(right.items);
        node.children.extend(right.children);
        let rest = node.split(false);
        child.refresh();
        if let Some(rest) = rest {
            self.children.insert(left + 1, rest);
        }
    }
}

impl<T: Keyed + Clone> Child<T> {
    /// Wraps a node, which must not be empty.
    fn of(node: Node<T>) -> Self {
        let (last, count) = Self::measure(&node).expect("a node is split into parts with items");
        Self { last, count, node: Arc::new(node) }
    }

    fn refresh(&mut self) {
        if let Some((last, count)) = Self::measure(&self.node) {
            self.last = last;
            self.count = count;
        }
    }

    fn measure(node: &Node<T>) -> Option<(T::Separator, usize)> {
        if let Some(child) = node.children.last() {
            let count = node.children.iter().map(|child| child.count).sum();
            return Some((child.last.clone(), count));
        }
        node.items.last().map(|item| (item.separator(), node.items.len()))
    }
}

/// Items of a [`Tree`] in order.
pub(crate) struct Iter<'a, T: Keyed> {
    above: Vec<std::slice::Iter<'a, Child<T>>>,
    leaf: std::slice::Iter<'a, T>,
}

impl<'a, T: Keyed> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(item);
            }
            let mut node = loop {
                match self.above.last_mut()?.next() {
                    Some(child) => break &*child.node,
                    None => self.above.pop(),
                };
            };
            while let [child, rest @ ..] = node.children.as_slice() {
                self.above.push(rest.iter());
                node = &*child.node;
            }
            self.leaf = node.items.iter();
        }
    }
}

impl<T: Keyed> Clone for Tree<T> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), len: self.len }
    }
}

impl<T: Keyed + Clone> Clone for Node<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), children: self.children.clone() }
    }
}

impl<T: Keyed> Clone for Child<T> {
    fn clone(&self) -> Self {
        Self { last: self.last.clone(), count: self.count, node: Arc::clone(&self.node) }
    }
}

impl<T: Keyed + Clone> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::EMPTY), len: 0 }
    }
}

#[cfg(test)]
mod tests;
