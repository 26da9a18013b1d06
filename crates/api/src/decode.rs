//! Decodes text into validated objects.
//!
//! There are two passes: the first rewrites every spelling that was ever accepted to the canonical
//! one, with a warning; the second rejects everything that is not canonical then. Nothing is
//! dropped silently.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::alias;
use crate::devices::{self, NodeDevices, PodCapacityClaim};
use crate::finding::{Finding, Findings, Source};
use crate::kind::{Kind, Scope};
use crate::kubernetes;
use crate::meta::{dns_label_problem, dns_subdomain_problem};
use crate::object::{self, Object};
use crate::schema::{Rule, Schema, Violation};
use gantry_yaml::SyntaxError;
use gantry_yaml::node::{Content, Node, Path, Position};

/// How strictly documents are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Unknown fields are dropped with a warning instead of rejected.
    pub lenient: bool,
}

/// One document of a file and the result of decoding it.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its number in the file, from 0; items of a list share it.
    pub index: usize,
    /// Where it begins.
    pub at: Position,
    /// Its kind and name, for messages: `DeviceClaim default/train`.
    pub subject: String,
    /// The decoded content.
    pub content: Decoded,
    /// Why it is rejected; empty unless `content` is [`Decoded::Refused`].
    pub errors: Vec<LocatedFinding>,
    /// What was accepted but should be written differently.
    pub warnings: Vec<LocatedFinding>,
}

/// The content of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// An object of one of Gantry's kinds, in canonical form.
    Object(Object),
    /// An inventory in the form that files had before there were API kinds.
    Nodes(Vec<NodeDevices>),
    /// A claim in the form that files had before there were API kinds.
    CapacityClaim(Box<PodCapacityClaim>),
    /// An object of a kind that is not Gantry's; its value with the changes that Gantry made.
    Foreign(Value),
    /// Not acceptable; the errors hold the reasons.
    Refused,
}

/// A finding with the place it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedFinding {
    /// The field.
    pub path: Path,
    /// Where it stands.
    pub at: Position,
    /// What is wrong, and what to do about it.
    pub text: String,
}

/// Decodes every document of a file.
///
/// # Errors
/// A text that is not YAML. A document that is YAML but not acceptable is not an error here: it is
/// a [`Document`] with errors, so that one bad object does not hide the others.
pub fn documents(text: &str, options: Options) -> Result<Vec<Document>, SyntaxError> {
    let mut out = Vec::new();
    for (index, node) in gantry_yaml::read(text)?.into_iter().enumerate() {
        expand(index, node, options, &mut out);
    }
    Ok(out)
}

/// Decodes one object that came from an API server.
///
/// # Errors
/// The findings, if any of them rejects the object.
pub fn object(value: &Value) -> Result<(Object, Findings), Findings> {
    let mut findings = Findings::from(Source::Server);
    let mut node = Node::from_json(value);
    match known_kind(&node, &mut findings) {
        Some(kind) => read_kind(kind, &mut node, &mut findings)
            .ok_or_else(|| findings.clone())
            .map(|object| (object, findings)),
        None => {
            findings.error(&Path::of("kind"), "not a kind of Gantry's");
            Err(findings)
        }
    }
}

/// Expands a `List` into its items.
fn expand(index: usize, mut node: Node, options: Options, out: &mut Vec<Document>) {
    let is_list = node.get("kind").and_then(Node::text).is_some_and(|kind| {
        kind == "List"
            || (kind.ends_with("List")
                && object::KINDS.iter().any(|known| format!("{}List", known.kind) == kind))
    });
    if is_list && let Some((_, items)) = node.take("items") {
        if let Content::List(items) = items.value {
            for item in items {
                expand(index, item, options, out);
            }
        }
        return;
    }
    out.push(document(index, node, options));
}

fn document(index: usize, mut node: Node, options: Options) -> Document {
    let mut findings = Findings { lenient: options.lenient, ..Findings::from(Source::File) };
    let at = node.at;
    let subject = subject(&node);
    let content = read(&mut node, &mut findings);
    let content = if findings.is_accepted() { content } else { Decoded::Refused };
    let place = |finding: Finding| LocatedFinding {
        at: finding
            .at
            .filter(|at| *at != Position::default())
            .unwrap_or_else(|| node.position_of(&finding.path)),
        path: finding.path,
        text: finding.text,
    };
    Document {
        index,
        at,
        subject,
        content,
        errors: findings.errors.into_iter().map(place).collect(),
        warnings: findings.warnings.into_iter().map(place).collect(),
    }
}

fn subject(node: &Node) -> String {
    let kind = node.get("kind").and_then(Node::text).unwrap_or("document");
    let metadata = node.get("metadata");
    let field = |name| metadata.and_then(|m| m.get(name)).and_then(Node::text);
    match (field("namespace"), field("name").or_else(|| field("generateName"))) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.to_owned(),
    }
}

fn read(node: &mut Node, findings: &mut Findings) -> Decoded {
    if let Some(decoded) = devices::read_file_form(node, findings) {
        return decoded;
    }
    if node.entries().is_none() {
        findings.error(
            &Path::root(),
            "not an object; a manifest is a map with apiVersion, kind and metadata",
        );
        return Decoded::Refused;
    }
    devices::convert_set_claim(node, findings);
    match known_kind(node, findings) {
        Some(kind) => read_kind(kind, node, findings).map_or(Decoded::Refused, Decoded::Object),
        None => {
            devices::read_foreign(node, findings);
            Decoded::Foreign(node.to_json())
        }
    }
}

/// Returns the kind an object names. A group of Gantry's with a version or kind that is not served
/// is an error; other groups are ignored.
fn known_kind(node: &Node, findings: &mut Findings) -> Option<&'static Kind> {
    let text = |name: &str| node.get(name).and_then(Node::text);
    let (Some(api_version), Some(name)) = (text("apiVersion"), text("kind")) else {
        for field in ["apiVersion", "kind"] {
            if text(field).is_none() {
                let text = "Required value: every manifest says what it is, for example \
                            `apiVersion: ooto.sigs.k8s.io/v1alpha1` and `kind: Module`";
                findings.error(&Path::of(field), text);
            }
        }
        return None;
    };
    if let Some(kind) = object::find(api_version, name) {
        return Some(kind);
    }
    let group = api_version.split('/').next().unwrap_or_default();
    let ours: Vec<&Kind> = object::KINDS.iter().filter(|kind| kind.group == group).collect();
    if let Some(kind) = ours.iter().find(|kind| kind.kind == name) {
        let text = format!(
            "the version of \"{api_version}\" is not served; use \"{}\"",
            kind.api_version()
        );
        findings.error(&Path::of("apiVersion"), text);
    } else if !ours.is_empty() {
        let known: Vec<_> = ours.iter().map(|kind| kind.kind).collect();
        let text = format!("no kind \"{name}\" in {group}; it has {}", known.join(", "));
        findings.error(&Path::of("kind"), text);
    }
    None
}

fn read_kind(kind: &Kind, node: &mut Node, findings: &mut Findings) -> Option<Object> {
    let schemas = schemas(kind);
    normalise_values(node, &schemas.served, kind.any_case, &Path::root(), findings);
    alias::rewrite(kind.aliases, node, findings);
    (kind.normalise)(node, findings);
    check_names(kind, node, findings);
    report(schemas.canonical.check(&node.to_json()), findings);
    if !findings.is_accepted() {
        return None;
    }
    match (kind.decode)(node.to_json()) {
        Ok(object) => {
            object.validate(findings);
            findings.is_accepted().then_some(object)
        }
        Err(error) => {
            findings.error(&Path::root(), format!("cannot be read: {error}"));
            None
        }
    }
}

/// Turns violations of a canonical schema into findings.
pub(crate) fn report(violations: Vec<Violation>, findings: &mut Findings) {
    for Violation { path, rule, mut text, remedy } in violations {
        if !remedy.is_empty() {
            text = format!("{text}; {remedy}");
        }
        match rule {
            Rule::Unknown if findings.lenient => findings.warn(&path, format!("dropped: {text}")),
            Rule::Unknown | Rule::Required | Rule::Type | Rule::Value | Rule::Duplicate => {
                findings.error(&path, text);
            }
        }
    }
}

/// Drops nulls, which mean "not set", quotes fractions, and corrects letter case where that is
/// allowed.
///
/// Content that a server keeps as it is stays untouched.
pub(crate) fn normalise_values(
    node: &mut Node,
    schema: &Schema,
    any_case: bool,
    path: &Path,
    findings: &mut Findings,
) {
    match &mut node.value {
        Content::Map(entries) => {
            if any_case {
                fix_letter_case(entries, schema, path, findings);
            }
            let open = schema.keeps_unknown();
            entries.retain(|(key, value)| {
                !value.is_null()
                    || match schema.entry(&key.name) {
                        Some(entry) => entry.is_nullable(),
                        None => open,
                    }
            });
            for (key, value) in entries {
                if let Some(entry) = schema.entry(&key.name) {
                    normalise_values(value, entry, any_case, &path.key(&key.name), findings);
                }
            }
        }
        Content::List(items) => {
            if let Some(element) = schema.element() {
                for (index, item) in items.iter_mut().enumerate() {
                    normalise_values(item, element, any_case, &path.index(index), findings);
                }
            }
        }
        Content::Number(number) if schema.is_quantity() && number.is_f64() => {
            let text = number.to_string();
            findings.warn(
                path,
                format!(
                    "a fraction without quotes, which an API server takes in pods only; write \
                     \"{text}\""
                ),
            );
            node.value = Content::String(text);
        }
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => {}
    }
}

fn fix_letter_case(
    entries: &mut [(gantry_yaml::node::Key, Node)],
    schema: &Schema,
    path: &Path,
    findings: &mut Findings,
) {
    for place in 0..entries.len() {
        let name = entries[place].0.name.clone();
        if schema.entry(&name).is_some() {
            continue;
        }
        // A schema lists a name twice when a server must let its capitalised form through; lower
        // case sorts last.
        let candidates = schema.entry_names().filter(|known| known.eq_ignore_ascii_case(&name));
        let Some(meant) = candidates.max() else { continue };
        if entries.iter().any(|(key, _)| key.name == meant) {
            continue;
        }
        let key = &mut entries[place].0;
        findings.warn_at(&path.key(&name), key.at, format!("letter case; use \"{meant}\""));
        meant.clone_into(&mut key.name);
    }
}

fn check_names(kind: &Kind, node: &Node, findings: &mut Findings) {
    let metadata = Path::of("metadata");
    let text = |name: &str| node.get("metadata").and_then(|m| m.get(name)).and_then(Node::text);
    match text("name") {
        Some(name) => {
            if let Some(problem) = dns_subdomain_problem(name) {
                let path = metadata.key("name");
                if kind.any_case && dns_subdomain_problem(&name.to_lowercase()).is_none() {
                    findings.warn(
                        &path,
                        format!(
                            "\"{name}\" has upper case letters, which an API server refuses; use \
                             \"{}\"",
                            name.to_lowercase()
                        ),
                    );
                } else {
                    findings.error(&path, format!("Invalid value: \"{name}\": {problem}"));
                }
            }
        }
        None if text("generateName").is_some() => {}
        None => findings
            .error(&metadata.key("name"), "Required value: name or generateName is required"),
    }
    match (kind.scope, text("namespace")) {
        (Scope::Cluster, Some(namespace)) => findings.warn(
            &metadata.key("namespace"),
            format!("{} objects belong to no namespace; remove \"{namespace}\"", kind.kind),
        ),
        (Scope::Namespaced, Some(namespace)) => {
            if let Some(problem) = dns_label_problem(namespace) {
                findings.error(
                    &metadata.key("namespace"),
                    format!("Invalid value: \"{namespace}\": {problem}"),
                );
            }
        }
        (Scope::Cluster | Scope::Namespaced, None) => {}
    }
}

struct Schemas {
    served: Schema,
    canonical: Schema,
}

/// The schemas of a kind, compiled once. Metadata, open in a CustomResourceDefinition, is checked
/// as the server checks it.
fn schemas(kind: &Kind) -> Arc<Schemas> {
    static COMPILED: Mutex<BTreeMap<String, Arc<Schemas>>> = Mutex::new(BTreeMap::new());
    let name = kind.crd_name();
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(compiled.entry(name).or_insert_with(|| {
        let compile = |mut schema: Value| {
            schema["properties"]["metadata"] = kubernetes::schema("ObjectMeta");
            Schema::compile(&schema).expect("the tests compile the schema of every kind")
        };
        Arc::new(Schemas {
            served: compile(kind.served_schema()),
            canonical: compile((kind.canonical)()),
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Document {
        let mut documents = documents(text, Options::default()).unwrap();
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    }

    const HEAD: &str = "apiVersion: quota.codeflare.dev/v1alpha1\nkind: QuotaSubtree\nmetadata: {name: a, labels: {tree: t}}\n";

    #[test]
    fn every_problem_is_named_with_its_line() {
        let table = [
            ("a wrong type", "spec:\n  children: {a: 1}\n", "spec.children", 5, "write a list"),
            (
                "an unknown field",
                "spec:\n  parrent: x\n",
                "spec.parrent",
                5,
                "did you mean \"parent\"?",
            ),
            (
                "a missing field",
                "spec:\n  children:\n  - quotas: {}\n",
                "spec.children[0].name",
                6,
                "Required value",
            ),
            ("a missing part", "", "spec", 1, "Required value"),
            (
                "a bad quantity",
                "spec:\n  children:\n  - name: x\n    quotas: {requests: {cpu: 1 core}}\n",
                "spec.children[0].quotas.requests.cpu",
                7,
                "should match",
            ),
            (
                "a rule across fields",
                "spec:\n  children:\n  - name: x\n  - name: x\n",
                "spec.children[1].name",
                7,
                "Duplicate value",
            ),
        ];
        for (why, body, path, line, text) in table {
            let document = only(&format!("{HEAD}{body}"));
            assert_eq!(document.content, Decoded::Refused, "{why}");
            let [error] = document.errors.as_slice() else {
                panic!("{why}: {:?}", document.errors)
            };
            assert_eq!(error.path.to_string(), path, "{why}");
            assert_eq!(error.at.line, line, "{why}");
            assert!(error.text.contains(text), "{why}: {}", error.text);
        }
    }

    #[test]
    fn kind_and_version_must_be_served() {
        let table = [
            ("kind: X\n", "apiVersion", "Required value"),
            (
                "apiVersion: quota.codeflare.dev/v1\nkind: QuotaSubtree\n",
                "apiVersion",
                "use \"quota.codeflare.dev/v1alpha1\"",
            ),
            (
                "apiVersion: quota.codeflare.dev/v1alpha1\nkind: Quota\n",
                "kind",
                "it has QuotaSubtree",
            ),
            ("just text\n", "", "not an object"),
        ];
        for (text, path, expected) in table {
            let document = only(text);
            assert_eq!(document.errors[0].path.to_string(), path, "{text}");
            assert!(document.errors[0].text.contains(expected), "{text}: {:?}", document.errors);
        }
    }

    #[test]
    fn foreign_kinds_pass_through() {
        let document = only(
            "apiVersion: example.com/v1\nkind: FoozerConfig\nmetadata: {name: x}\nspec: {any: thing}\n",
        );
        assert!(matches!(document.content, Decoded::Foreign(_)));
    }

    #[test]
    fn a_list_is_expanded_into_its_items() {
        let item = "{apiVersion: quota.codeflare.dev/v1alpha1, kind: QuotaSubtree, metadata: {name: a, labels: {tree: t}}, spec: {}}";
        let text = format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n- {item}\n");
        let found = documents(&text, Options::default()).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|document| matches!(document.content, Decoded::Object(_))));
    }

    #[test]
    fn lenient_reading_drops_unknown_fields_and_says_so() {
        let text = format!("{HEAD}spec: {{parrent: x}}\n");
        let found = documents(&text, Options { lenient: true }).unwrap().remove(0);
        assert!(matches!(found.content, Decoded::Object(_)));
        assert!(found.warnings[0].text.contains("dropped"));
    }

    #[test]
    fn metadata_is_checked_as_a_server_checks_it() {
        let table = [
            ("{name: a, label: {x: y}}", "metadata.label", "unknown field"),
            ("{name: A}", "metadata.name", "DNS subdomain"),
            ("{name: a, namespace: a.b}", "metadata.namespace", "DNS label"),
            ("{labels: {tree: t}}", "metadata.name", "name or generateName"),
            ("{name: a, labels: {tree: 1}}", "metadata.labels.tree", "put it in quotes"),
        ];
        for (metadata, path, text) in table {
            let document = only(&format!(
                "apiVersion: quota.codeflare.dev/v1alpha1\nkind: QuotaSubtree\nmetadata: {metadata}\nspec: {{}}\n"
            ));
            assert_eq!(document.errors[0].path.to_string(), path);
            assert!(document.errors[0].text.contains(text), "{:?}", document.errors);
        }
        let nulls = only(
            &format!("{HEAD}spec: {{parent: null}}\nstatus: null\n")
                .replace("{name: a,", "{name: a, creationTimestamp: null,"),
        );
        assert_eq!(nulls.errors, [], "null means not set");
        let owned =
            "managedFields: [{manager: m, operation: Apply, fieldsV1: {f:spec: {f:parent: {}}}}],";
        let owned = only(
            &format!("{HEAD}spec: {{}}\n").replace("{name: a,", &format!("{{name: a, {owned}")),
        );
        assert_eq!(owned.errors, [], "the server decides which manager owns which field");
    }
}
