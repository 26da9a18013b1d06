//! Bindings define which AppWrappers may be charged to which nodes of quota trees.
//!
//! AppWrappers name their leaf by a label that any user may write, so an administrator binds nodes
//! to namespaces or groups: in an annotation of the QuotaSubtree, which ordinary users cannot write
//! and which is stored whatever definition of the kind is installed. A binding covers the node and
//! all below it. A node without a binding is open, unless the settings say otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gantry_reconcile::Key;
use serde::Deserialize;

use super::consumer::DEFAULT_NODE;
use super::subtree::Subtree;

/// The annotation of a QuotaSubtree that binds its nodes, in JSON: for each name of a child the
/// `namespaces` and the `groups` that may be charged to it.
pub const BINDINGS_ANNOTATION: &str = "quota.codeflare.dev/gantry-bindings";

/// How many usable leaves an error names at most.
const MAX_NAMED_LEAVES: usize = 8;

/// What may be charged to a node: the AppWrappers of these namespaces, and those of authors in
/// these groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Binding {
    /// Namespaces of AppWrappers.
    pub namespaces: Vec<String>,
    /// Groups of the recorded authors of AppWrappers.
    pub groups: Vec<String>,
}

impl fmt::Display for Binding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |word: &str, names: &[String]| match names {
            [] => None,
            [one] => Some(format!("{word} {one}")),
            many => Some(format!("{word}s {}", many.join(", "))),
        };
        let lists = [list("namespace", &self.namespaces), list("group", &self.groups)];
        let lists: Vec<String> = lists.into_iter().flatten().collect();
        match lists.is_empty() {
            true => to.write_str("nobody"),
            false => to.write_str(&lists.join(" and ")),
        }
    }
}

/// Reads the annotation of a QuotaSubtree.
///
/// # Errors
/// Fails with what is wrong with it.
pub fn read(annotation: &str) -> Result<BTreeMap<String, Binding>, String> {
    serde_json::from_str(annotation).map_err(|error| error.to_string())
}

/// All bindings of all trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    trees: BTreeMap<String, BTreeMap<String, Node>>,
    is_bound: bool,
}

/// A node of a tree, as far as bindings depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    parent: Option<String>,
    /// Its QuotaSubtree.
    object: Key,
    rule: Rule,
}

/// The binding of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// It has none.
    Open,
    /// These may be charged to it.
    Bound(Binding),
    /// Nothing may be charged to it: the annotation cannot be read.
    Unreadable(String),
}

/// An AppWrapper that asks to be charged.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    /// The namespace of the AppWrapper.
    pub namespace: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its author, where that is recorded and trusted.
    pub author: Option<(&'a str, &'a [String])>,
}

/// An AppWrapper may not be charged to the leaf it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafForbidden {
    /// The tree.
    pub tree: String,
    /// The leaf.
    pub leaf: String,
    reason: ForbiddenReason,
    namespace: String,
    /// Other leaves of the tree that it may use.
    others: Vec<String>,
}

/// Why an AppWrapper may not be charged to a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ForbiddenReason {
    /// The leaf, or a node above it, is bound to others.
    Bound { node: String, object: Key, binding: Binding, user: Option<String> },
    /// The binding cannot be read.
    Unreadable { object: Key, error: String },
    /// The leaf has no binding, and bindings are required.
    Unbound { object: Key },
}

impl fmt::Display for LeafForbidden {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tree, leaf, reason: why, namespace, others } = self;
        write!(to, "leaf {leaf:?} of quota tree {tree} ")?;
        let object = match why {
            ForbiddenReason::Bound { node, object, binding, user } => {
                match node == leaf {
                    true => write!(to, "is bound to {binding}, ")?,
                    false => write!(to, "is below node {node:?}, which is bound to {binding}, ")?,
                }
                match (binding.groups.is_empty(), user) {
                    (true, _) => write!(to, "and namespace {namespace:?} is not among them")?,
                    (false, Some(user)) => write!(
                        to,
                        "and neither namespace {namespace:?} nor a group of user {user:?} is among \
                         them"
                    )?,
                    (false, None) => write!(
                        to,
                        "and namespace {namespace:?} is not among them; groups do not count where \
                         the author of the AppWrapper is not recorded"
                    )?,
                }
                object
            }
            ForbiddenReason::Unreadable { object, error } => {
                write!(to, "cannot be used, because its binding cannot be read ({error})")?;
                object
            }
            ForbiddenReason::Unbound { object } => {
                write!(to, "has no binding, and only bound leaves may be used")?;
                object
            }
        };
        match others.as_slice() {
            [] => write!(to, "; ")?,
            others => {
                write!(to, "; use another leaf by the label {tree} ({}), or ", others.join(", "))?;
            }
        }
        write!(
            to,
            "have an administrator bind it to namespace {namespace:?} in annotation \
             {BINDINGS_ANNOTATION} of QuotaSubtree {object}"
        )
    }
}

impl Bindings {
    /// Returns the bindings of these QuotaSubtrees, in any order.
    #[must_use]
    pub fn of(subtrees: &[Arc<Subtree>]) -> Self {
        let mut sorted: Vec<&Arc<Subtree>> = subtrees.iter().collect();
        // Of two nodes with the same name the first counts, as in the trees themselves.
        sorted.sort_by_cached_key(|it| it.metadata.key());
        let mut bindings = Self::default();
        for subtree in sorted {
            let Some(tree) = subtree.tree() else { continue };
            let nodes = bindings.trees.entry(tree.to_owned()).or_default();
            let written = subtree.bindings().map(read);
            bindings.is_bound |= written.is_some();
            for child in &subtree.spec.children {
                let rule = match &written {
                    None => Rule::Open,
                    // It may apply to any of the children.
                    Some(Err(error)) => Rule::Unreadable(error.clone()),
                    Some(Ok(written)) => {
                        written.get(&child.name).cloned().map_or(Rule::Open, Rule::Bound)
                    }
                };
                let parent = subtree.parent().map(str::to_owned);
                let node = Node { parent, object: subtree.metadata.key(), rule };
                nodes.entry(child.name.clone()).or_insert(node);
            }
        }
        bindings
    }

    /// Returns whether nothing is bound, so that all AppWrappers may be charged to all leaves.
    #[must_use]
    pub fn has_no_bindings(&self) -> bool {
        !self.is_bound
    }

    /// Checks whether an AppWrapper may be charged to the leaves it names; `strict` requires a
    /// binding.
    ///
    /// # Errors
    /// Fails with the first tree, by name, in which it may not.
    pub fn check(&self, applicant: &Applicant<'_>, strict: bool) -> Result<(), Box<LeafForbidden>> {
        if self.has_no_bindings() && !strict {
            return Ok(());
        }
        for (tree, nodes) in &self.trees {
            let leaf = applicant.labels.get(tree).map_or(DEFAULT_NODE, String::as_str);
            let Some(why) = forbidden_reason(nodes, leaf, applicant, strict) else { continue };
            let parents: Vec<&str> = nodes.values().filter_map(|it| it.parent.as_deref()).collect();
            let leaves = nodes.keys().filter(|name| !parents.contains(&name.as_str()));
            let others =
                leaves.filter(|it| forbidden_reason(nodes, it, applicant, strict).is_none());
            return Err(Box::new(LeafForbidden {
                tree: tree.clone(),
                leaf: leaf.to_owned(),
                reason: why,
                namespace: applicant.namespace.to_owned(),
                others: others.take(MAX_NAMED_LEAVES).cloned().collect(),
            }));
        }
        Ok(())
    }
}

/// Returns why an AppWrapper may not be charged to a node. A node that does not exist is refused by
/// the trees.
fn forbidden_reason(
    nodes: &BTreeMap<String, Node>,
    leaf: &str,
    applicant: &Applicant<'_>,
    strict: bool,
) -> Option<ForbiddenReason> {
    let mut next = nodes.get_key_value(leaf);
    let first = next?.1;
    let mut is_bound = false;
    // Parents may form a cycle; then no tree has these nodes.
    for _ in 0..nodes.len() {
        let Some((name, node)) = next else { break };
        match &node.rule {
            Rule::Open => {}
            Rule::Bound(binding) if binding.covers(applicant) => is_bound = true,
            Rule::Bound(binding) => {
                return Some(ForbiddenReason::Bound {
                    node: name.clone(),
                    object: node.object.clone(),
                    binding: binding.clone(),
                    user: applicant.author.map(|(user, _)| user.to_owned()),
                });
            }
            Rule::Unreadable(error) => {
                let (object, error) = (node.object.clone(), error.clone());
                return Some(ForbiddenReason::Unreadable { object, error });
            }
        }
        next = node.parent.as_ref().and_then(|it| nodes.get_key_value(it));
    }
    (strict && !is_bound).then(|| ForbiddenReason::Unbound { object: first.object.clone() })
}

impl Binding {
    fn covers(&self, applicant: &Applicant<'_>) -> bool {
        let namespace = self.namespaces.iter().any(|it| it == applicant.namespace);
        let groups = applicant.author.map(|(_, groups)| groups).unwrap_or_default();
        namespace || groups.iter().any(|it| self.groups.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn subtree(
        name: &str,
        parent: Option<&str>,
        children: &[&str],
        bindings: Option<&str>,
    ) -> Arc<Subtree> {
        let children: Vec<Value> = children.iter().map(|it| json!({"name": it})).collect();
        let mut object = json!({
            "metadata": {"name": name, "namespace": "q", "labels": {"tree": "team"}},
            "spec": {"parent": parent, "children": children},
        });
        if let Some(bindings) = bindings {
            object["metadata"]["annotations"] = json!({BINDINGS_ANNOTATION: bindings});
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn asked(
        bindings: &Bindings,
        namespace: &str,
        groups: Option<&[&str]>,
        leaf: &str,
        strict: bool,
    ) -> Result<(), String> {
        let labels = BTreeMap::from([("team".to_owned(), leaf.to_owned())]);
        let groups: Option<Vec<String>> =
            groups.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
        let author = groups.as_deref().map(|groups| ("bob", groups));
        let applicant = Applicant { namespace, labels: &labels, author };
        bindings.check(&applicant, strict).map_err(|it| it.to_string())
    }

    #[test]
    fn bound_leaves_are_restricted() {
        let bound = r#"{"gold": {"namespaces": ["a", "b"]}, "silver": {"groups": ["ml"]},
                        "both": {"namespaces": ["a"], "groups": ["ml"]}, "shut": {}}"#;
        let leaves = ["gold", "silver", "both", "shut", "open"];
        let all = [
            subtree("root", None, &["all"], None),
            subtree("leaves", Some("all"), &leaves, Some(bound)),
        ];
        let bindings = Bindings::of(&all);
        assert!(!bindings.has_no_bindings());
        let ml: Option<&[&str]> = Some(&["ml"]);
        let table = [
            ("gold", "a", None, true),
            ("gold", "c", None, false),
            ("gold", "c", ml, false),
            ("silver", "a", ml, true),
            ("silver", "a", None, false),
            ("silver", "a", Some(&["others"][..]), false),
            ("both", "a", None, true),
            ("both", "c", ml, true),
            ("both", "c", None, false),
            ("shut", "a", ml, false),
            ("open", "c", None, true),
            ("nowhere", "c", None, true),
        ];
        for (leaf, namespace, groups, allowed) in table {
            let found = asked(&bindings, namespace, groups, leaf, false);
            assert_eq!(found.is_ok(), allowed, "{leaf} {namespace} {groups:?}: {found:?}");
        }
        let said = asked(&bindings, "c", None, "gold", false).unwrap_err();
        let expected = "leaf \"gold\" of quota tree team is bound to namespaces a, b, and namespace \"c\" is not \
                        among them; use another leaf by the label team (open), or have an administrator bind it to \
                        namespace \"c\" in annotation quota.codeflare.dev/gantry-bindings of QuotaSubtree q/leaves";
        assert_eq!(said, expected);
        let strict = asked(&bindings, "c", None, "open", true).unwrap_err();
        assert!(strict.contains("has no binding, and only bound leaves may be used"), "{strict}");
        assert_eq!(asked(&bindings, "a", None, "gold", true), Ok(()));
    }

    #[test]
    fn a_binding_covers_what_is_below() {
        let above = Some(r#"{"all": {"namespaces": ["a", "b"]}}"#);
        let below = Some(r#"{"gold": {"namespaces": ["a", "c"]}}"#);
        let all = [
            subtree("root", None, &["all"], above),
            subtree("leaves", Some("all"), &["gold", "silver"], below),
        ];
        let bindings = Bindings::of(&all);
        let table = [
            ("gold", "a", true),
            ("gold", "b", false),
            ("gold", "c", false),
            ("silver", "b", true),
            ("silver", "c", false),
        ];
        for (leaf, namespace, allowed) in table {
            assert_eq!(
                asked(&bindings, namespace, None, leaf, true).is_ok(),
                allowed,
                "{leaf} {namespace}"
            );
        }
        let said = asked(&bindings, "c", None, "silver", false).unwrap_err();
        assert!(
            said.contains("is below node \"all\", which is bound to namespaces a, b"),
            "{said}"
        );
    }

    #[test]
    fn unreadable_bindings_forbid_everything() {
        for text in ["gold: {}", r#"{"gold": {"namespace": ["a"]}}"#, "[]"] {
            let bindings =
                Bindings::of(&[subtree("leaves", None, &["gold", "silver"], Some(text))]);
            let said = asked(&bindings, "a", None, "silver", false).unwrap_err();
            assert!(said.contains("because its binding cannot be read"), "{text}: {said}");
        }
        // A cycle of parents ends the loop.
        let circle = [
            subtree("one", Some("b"), &["a"], Some("{}")),
            subtree("two", Some("a"), &["b"], None),
        ];
        assert_eq!(asked(&Bindings::of(&circle), "x", None, "a", false), Ok(()));
    }
}
