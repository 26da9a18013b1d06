//! Parses shapes from a file, and reports what is wrong with it, where, and what to write instead.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::quantity::Quantity;
use gantry_kmod::verify::Enforcement;
use gantry_yaml as yaml;
use gantry_yaml::node::{Content, Key, Node, Position};

use super::{Accelerator, NodeShape};
use crate::kernel::{check_release, parse_certificates, parse_enforcement};
use crate::view::{Taint, TaintEffect};

/// An error in a file of shapes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}: {}{what}; {remedy}", at.line, prefix(field))]
pub struct ShapeError {
    /// The position of the error.
    pub at: Position,
    /// Which field, such as `nodes[0].cpu`; empty for the whole file.
    pub field: String,
    /// What is wrong, with the value.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

fn prefix(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

/// The most nodes of one shape: as many as there are pod CIDRs for.
pub const MAX_NODES_PER_SHAPE: u32 = 3840;

/// Parses the shapes in a text.
///
/// # Errors
/// Everything that is wrong with it, in order.
pub fn parse(text: &str) -> Result<Vec<NodeShape>, Vec<ShapeError>> {
    let documents = yaml::read(text).map_err(|error| {
        let (at, remedy) = (error.at, error.remedy.to_owned());
        vec![ShapeError { at, field: String::new(), what: error.what, remedy }]
    })?;
    let mut reader = ShapeParser { errors: Vec::new() };
    let mut shapes = Vec::new();
    for document in &documents {
        let nodes = match &document.value {
            Content::Map(_) => {
                let mut nodes = None;
                reader.fields("", document, &["nodes"], |_, _, value| nodes = Some(value));
                nodes
            }
            Content::List(_) => Some(document),
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => None,
        };
        let list = nodes.and_then(Node::items);
        let Some(list) = list else {
            let at = nodes.map_or(document.at, |it| it.at);
            reader.add_error(
                at,
                "nodes",
                "has no list of shapes",
                "write `nodes:` and a list below it",
            );
            continue;
        };
        for (index, node) in list.iter().enumerate() {
            shapes.push((node.at, reader.shape(&format!("nodes[{index}]"), node)));
        }
    }
    let mut names = BTreeSet::new();
    for (index, (at, shape)) in shapes.iter().enumerate() {
        if !shape.name.is_empty() && !names.insert(shape.name.as_str()) {
            let what = format!("{:?} is the name of two shapes", shape.name);
            let field = format!("nodes[{index}].name");
            reader.add_error(*at, &field, &what, "give each its own name, or one a larger count");
        }
    }
    let shapes = shapes.into_iter().map(|(_, shape)| shape).collect();
    if reader.errors.is_empty() { Ok(shapes) } else { Err(reader.errors) }
}

struct ShapeParser {
    errors: Vec<ShapeError>,
}

impl ShapeParser {
    fn add_error(&mut self, at: Position, field: &str, what: &str, remedy: &str) {
        let (field, what) = (field.to_owned(), what.to_owned());
        self.errors.push(ShapeError { at, field, what, remedy: remedy.to_owned() });
    }

    /// Calls `take` for every field of a map that is one of `known`.
    fn fields<'n>(
        &mut self,
        path: &str,
        map: &'n Node,
        known: &[&str],
        mut take: impl FnMut(&mut Self, &'n Key, &'n Node),
    ) {
        let Some(entries) = map.entries() else {
            let what = format!("{} is not a map", shown(map));
            self.add_error(map.at, path, &what, &format!("write fields such as `{}:`", known[0]));
            return;
        };
        for (key, value) in entries {
            if known.contains(&key.name.as_str()) {
                take(self, key, value);
            } else {
                let field = join(path, &key.name);
                let remedy = format!("use one of {}", known.join(", "));
                self.add_error(key.at, &field, "unknown field", &remedy);
            }
        }
    }

    fn shape(&mut self, path: &str, node: &Node) -> NodeShape {
        const KNOWN_FIELDS: [&str; 14] = [
            "name",
            "count",
            "max",
            "cpu",
            "memory",
            "ephemeralStorage",
            "pods",
            "accelerators",
            "kernelVersion",
            "moduleSignatures",
            "trustedKeys",
            "zone",
            "labels",
            "taints",
        ];
        let mut shape = NodeShape::new("");
        self.fields(path, node, &KNOWN_FIELDS, |reader, key, value| {
            let field = join(path, &key.name);
            match key.name.as_str() {
                "name" => shape.name = reader.name(&field, value),
                "count" => shape.count = reader.integer(&field, value, 0..=MAX_NODES_PER_SHAPE),
                "max" => shape.max = Some(reader.integer(&field, value, 0..=MAX_NODES_PER_SHAPE)),
                "cpu" => shape.cpu = reader.amount(&field, value),
                "memory" => shape.memory = reader.amount(&field, value),
                "ephemeralStorage" => shape.ephemeral_storage = reader.amount(&field, value),
                "pods" => shape.pods = reader.integer(&field, value, 1..=u32::MAX),
                "accelerators" => shape.accelerators = reader.accelerators(&field, value),
                "kernelVersion" => shape.kernel_version = reader.release(&field, value),
                "moduleSignatures" => shape.module_signatures = reader.enforcement(&field, value),
                "trustedKeys" => shape.trusted_keys = reader.certificates(&field, value),
                "zone" => shape.zone = reader.text(&field, value),
                "labels" => shape.labels = reader.labels(&field, value),
                _ => shape.taints = reader.taints(&field, value),
            }
        });
        let named = node.entries().is_some_and(|all| all.iter().any(|(key, _)| key.name == "name"));
        if node.entries().is_some() && !named {
            let remedy = "write the prefix of the node names, as in `name: gpu`";
            self.add_error(node.at, &join(path, "name"), "is missing", remedy);
        }
        shape
    }

    fn name(&mut self, field: &str, value: &Node) -> String {
        let name = self.text(field, value).unwrap_or_default();
        let letters = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let fits = (1..=50).contains(&name.len())
            && name.bytes().all(letters)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !fits {
            let what = format!("{name:?} cannot be the prefix of node names");
            let remedy = "use up to 50 of a-z, 0-9 and -, with a letter or digit at both ends";
            self.add_error(value.at, field, &what, remedy);
        }
        name
    }

    fn release(&mut self, field: &str, value: &Node) -> Option<String> {
        let text = self.text(field, value)?;
        if let Err(what) = check_release(&text) {
            self.add_error(value.at, field, &what, "write it as in 6.8.0-45-generic");
        }
        Some(text)
    }

    fn enforcement(&mut self, field: &str, value: &Node) -> Option<Enforcement> {
        // Without quotes, `off` is a boolean to YAML.
        let text = match &value.value {
            Content::Bool(false) => "off".to_owned(),
            _ => self.text(field, value)?,
        };
        let parsed = parse_enforcement(&text);
        if parsed.is_none() {
            let what = format!("{text:?} does not say which modules are loaded");
            self.add_error(value.at, field, &what, "write off, enforce or lockdown");
        }
        parsed
    }

    fn certificates(&mut self, field: &str, value: &Node) -> Option<String> {
        let text = self.text(field, value)?;
        if let Err(what) = parse_certificates(&text) {
            self.add_error(value.at, field, &what, "write certificates in PEM");
        }
        Some(text)
    }

    fn text(&mut self, field: &str, value: &Node) -> Option<String> {
        match &value.value {
            Content::String(text) => Some(text.clone()),
            Content::Number(number) => Some(number.to_string()),
            Content::Null | Content::Bool(_) | Content::List(_) | Content::Map(_) => {
                let what = format!("{} is not a string", shown(value));
                self.add_error(value.at, field, &what, "write a string, in quotes if needed");
                None
            }
        }
    }

    fn integer(&mut self, field: &str, value: &Node, range: std::ops::RangeInclusive<u32>) -> u32 {
        let number = match &value.value {
            Content::Number(number) => number.as_u64().and_then(|it| u32::try_from(it).ok()),
            Content::String(text) => text.parse().ok(),
            Content::Null | Content::Bool(_) | Content::List(_) | Content::Map(_) => None,
        };
        match number.filter(|it| range.contains(it)) {
            Some(number) => number,
            None => {
                let what = format!("{} is not an allowed number", shown(value));
                let remedy =
                    format!("write a whole number from {} to {}", range.start(), range.end());
                self.add_error(value.at, field, &what, &remedy);
                0
            }
        }
    }

    fn amount(&mut self, field: &str, value: &Node) -> Quantity {
        let text = match &value.value {
            Content::Number(number) => number.to_string(),
            Content::String(text) => text.clone(),
            Content::Null | Content::Bool(_) | Content::List(_) | Content::Map(_) => shown(value),
        };
        let parsed = Quantity::parse(&text).map_err(|error| error.to_string());
        let positive = parsed.and_then(|it| match it.sign() {
            1 => Ok(it),
            _ => Err(format!("{text} is not more than zero")),
        });
        positive.unwrap_or_else(|what| {
            self.add_error(value.at, field, &what, "write an amount such as 32, 500m or 128Gi");
            Quantity::ZERO
        })
    }

    fn labels(&mut self, field: &str, value: &Node) -> BTreeMap<String, String> {
        let Some(entries) = value.entries() else {
            let what = format!("{} is not a map", shown(value));
            self.add_error(value.at, field, &what, "write labels as in `tier: gold`");
            return BTreeMap::new();
        };
        let mut labels = BTreeMap::new();
        for (key, value) in entries {
            if let Some(text) = self.text(&join(field, &key.name), value) {
                labels.insert(key.name.clone(), text);
            }
        }
        labels
    }

    fn accelerators(&mut self, field: &str, value: &Node) -> BTreeMap<String, Accelerator> {
        let Some(entries) = value.entries() else {
            let what = format!("{} is not a map", shown(value));
            self.add_error(value.at, field, &what, "write as in `nvidia.com/gpu: {count: 8}`");
            return BTreeMap::new();
        };
        let mut all = BTreeMap::new();
        for (key, value) in entries {
            let path = join(field, &key.name);
            if !key.name.contains('/') {
                let what = format!("{:?} is not a resource name", key.name);
                self.add_error(
                    key.at,
                    &path,
                    &what,
                    "write a domain before it, as in nvidia.com/gpu",
                );
            }
            let mut accelerator = Accelerator::default();
            if value.entries().is_some() {
                self.fields(&path, value, &["count", "model"], |reader, key, value| {
                    let path = join(&path, &key.name);
                    match key.name.as_str() {
                        "count" => accelerator.count = reader.integer(&path, value, 1..=u32::MAX),
                        _ => accelerator.model = reader.text(&path, value),
                    }
                });
            } else {
                accelerator.count = self.integer(&path, value, 1..=u32::MAX);
            }
            all.insert(key.name.clone(), accelerator);
        }
        all
    }

    fn taints(&mut self, field: &str, value: &Node) -> Vec<Taint> {
        let Some(items) = value.items() else {
            let what = format!("{} is not a list", shown(value));
            self.add_error(
                value.at,
                field,
                &what,
                "write as in `- {key: gpu, effect: NoSchedule}`",
            );
            return Vec::new();
        };
        let mut taints = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{field}[{index}]");
            let mut taint = Taint::default();
            self.fields(&path, item, &["key", "value", "effect"], |reader, key, value| {
                let path = join(&path, &key.name);
                let text = reader.text(&path, value).unwrap_or_default();
                match key.name.as_str() {
                    "key" => taint.key = text,
                    "value" => taint.value = text,
                    _ => match effect(&text) {
                        Some(effect) => taint.effect = effect,
                        None => {
                            let what = format!("{text:?} is not a taint effect");
                            let remedy = "write NoSchedule, PreferNoSchedule or NoExecute";
                            reader.add_error(value.at, &path, &what, remedy);
                        }
                    },
                }
            });
            if taint.key.is_empty() && item.entries().is_some() {
                self.add_error(item.at, &join(&path, "key"), "is missing", "name the taint");
            }
            taints.push(taint);
        }
        taints
    }
}

fn effect(text: &str) -> Option<TaintEffect> {
    let all = [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
    all.into_iter().find(|it| it.as_str() == text)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Formats a value approximately as the user wrote it.
fn shown(node: &Node) -> String {
    node.to_json().to_string()
}
