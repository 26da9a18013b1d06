//! Reads a configuration text on top of the defaults, and reports everything that is wrong with it.

use gantry_api::schema::nearest;
use gantry_yaml as yaml;
use gantry_yaml::node::{Key as Name, Node, Position};

use super::keys::{self, Effect, Key};
use super::source;
use super::value_type::{ParsedValue, describe_found};
use super::values::{ConfigMessage, ConfigReport, Layer, Origin, TextPosition};

/// Reads one document. `source` is its name in messages.
///
/// Keys that are absent or null are not in the layer. Unknown keys are ignored with a warning and
/// counted in the report. For a ConfigMap manifest the text in it is read; any other object is
/// rejected, and an empty text causes a warning.
#[must_use]
pub fn read(text: &str, source: &str) -> (Layer, ConfigReport) {
    let mut reader = Reader::new(source);
    match reader.document(text) {
        Some(root) if is_config_map(&root) => reader.config_map(&root),
        Some(root) => reader.root(&root),
        None => {}
    }
    (reader.layer, reader.report)
}

struct Reader<'a> {
    source: &'a str,
    layer: Layer,
    report: ConfigReport,
}

impl<'a> Reader<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, layer: Layer::default(), report: ConfigReport::default() }
    }

    /// Returns the only document of a text, unless it is empty or invalid.
    fn document(&mut self, text: &str) -> Option<Node> {
        let mut documents = match yaml::read(text) {
            Ok(documents) => documents.into_iter(),
            Err(error) => {
                self.refuse(error.at, "", format!("{}; {}", error.what, error.remedy));
                return None;
            }
        };
        let first = documents.next();
        if let Some(second) = documents.next() {
            self.refuse(second.at, "", "found a second document, expected one".to_owned());
            return None;
        }
        let root = first.filter(|root| !root.is_null());
        if root.is_none() {
            let text =
                "sets nothing: every value is the default; write keys, or remove it".to_owned();
            let origin = Origin::Object(self.source.to_owned());
            self.report.warnings.push(ConfigMessage { origin, key: String::new(), text });
        }
        root
    }

    /// Reads the text in a ConfigMap manifest, by the rules for the object in a cluster.
    fn config_map(&mut self, map: &Node) {
        let name = map.get("metadata").and_then(|it| it.get("name")).and_then(Node::text);
        let mut data = Vec::new();
        for (key, value) in map.get("data").and_then(Node::entries).into_iter().flatten() {
            let Some(text) = value.text() else {
                let wrong = format!(
                    "found {}, expected the configuration as one text",
                    describe_found(value)
                );
                self.refuse(value.at, &format!("data.{}", key.name), wrong);
                return;
            };
            data.push((key.name.clone(), text.to_owned()));
        }
        let binary = map.get("binaryData").and_then(Node::entries).into_iter().flatten();
        let binary: Vec<String> = binary.map(|(key, _)| key.name.clone()).collect();
        let (key, text) = match source::single_key(name.unwrap_or_default(), &data, &binary) {
            Ok(only) => only,
            Err(error) => return self.refuse(map.at, "", error.to_string()),
        };
        let called = format!("{}, {key}", self.source);
        let mut inner = Reader::new(&called);
        if let Some(root) = inner.document(text) {
            inner.root(&root);
        }
        let Reader { source: _, layer, report } = inner;
        self.layer = layer;
        self.report.append(report);
    }

    /// Reads the keys. A Kubernetes object has none of them.
    fn root(&mut self, root: &Node) {
        let text = |name: &str| root.get(name).and_then(Node::text);
        if let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) {
            let known = keys::names_in("");
            if !known.iter().any(|name| root.has(name)) {
                let wrong = format!(
                    "found an object of kind {kind} ({version}), expected the keys of the \
                     configuration, or a ConfigMap with them"
                );
                return self.refuse(root.at, "", wrong);
            }
        }
        self.section(root, "");
    }

    fn section(&mut self, node: &Node, path: &str) {
        if node.is_null() {
            return;
        }
        let Some(entries) = node.entries() else {
            self.refuse(
                node.at,
                path,
                format!("found {}, expected a map of keys", describe_found(node)),
            );
            return;
        };
        let known = keys::names_in(path);
        for (name, value) in entries {
            let exact = known.iter().find(|known| **known == name.name);
            // The original's reader ignored letter case.
            let alike = known.iter().find(|known| known.eq_ignore_ascii_case(&name.name));
            match (exact, alike) {
                (Some(known), _) => self.entry(&join(path, known), name, value),
                (None, Some(known)) if !node.has(known) => {
                    let text = format!("taken for {known}; write it so");
                    self.warn(name.at, &join(path, &name.name), text);
                    self.entry(&join(path, known), name, value);
                }
                (None, Some(known)) => {
                    let text = format!("ignored: {known} is there too; keep one of them");
                    self.warn(name.at, &join(path, &name.name), text);
                }
                (None, None) => self.unknown(path, name, value, &known),
            }
        }
    }

    fn entry(&mut self, path: &str, name: &Name, value: &Node) {
        if let Some(key) = keys::key(path) {
            self.value(key, path, name, value);
        } else {
            self.section(value, path);
        }
    }

    /// Returns a value, at the path of its key or at the original's alias.
    fn value(&mut self, key: &'static Key, path: &str, name: &Name, value: &Node) {
        match key.value_type.parse_node(value) {
            Err(wrong) => self.refuse(value.at, path, wrong),
            Ok(ParsedValue::Default) => {}
            Ok(ParsedValue::Set(found)) => {
                if let Some(other) = self.layer.get(key.path).filter(|other| **other != found) {
                    let keys = keys::paths(key).join(" and ");
                    let wrong =
                        format!("found {found}, and {other} too: {keys} are the same; keep one");
                    return self.refuse(value.at, path, wrong);
                }
                if let Effect::Never(why) = key.effect
                    && found != key.default.value()
                {
                    self.warn(name.at, key.path, why.to_owned());
                }
                let place = TextPosition { source: self.source.to_owned(), at: name.at };
                self.layer.set(key.path, found, Origin::Text(place));
            }
        }
    }

    fn unknown(&mut self, path: &str, name: &Name, value: &Node, known: &[&str]) {
        let whole = join(path, &name.name);
        // An unknown key may be close to a key of its own section, or at the top because it lost
        // its section. A name that several sections have is not suggested.
        let near = nearest(&name.name, known.iter().copied()).map(|near| join(path, near));
        let elsewhere = || {
            let lost = |key: &&Key| {
                path.is_empty()
                    && key.path.split_once('.').is_some_and(|(_, rest)| rest == name.name)
            };
            let mut same = keys::KEYS.iter().filter(lost);
            same.next().filter(|_| same.next().is_none()).map(|key| key.path.to_owned())
        };
        let top = keys::names_in("");
        let deep = value.entries().into_iter().flatten().map(|(name, _)| name.name.as_str());
        let deep: Vec<&str> = deep.filter(|name| top.contains(name)).collect();
        let text = match (near.or_else(elsewhere), deep.as_slice()) {
            (Some(near), _) => format!("ignored: unknown key; did you mean {near}?"),
            (None, []) => "ignored: unknown key".to_owned(),
            (None, deep) => format!(
                "ignored: unknown key; what is below it belongs at the top: {}",
                deep.join(", ")
            ),
        };
        self.warn(name.at, &whole, text);
        self.report.unknown_keys.push(whole);
    }

    fn refuse(&mut self, at: Position, key: &str, text: String) {
        self.report.errors.push(self.remark(at, key, text));
    }

    fn warn(&mut self, at: Position, key: &str, text: String) {
        self.report.warnings.push(self.remark(at, key, text));
    }

    fn remark(&self, at: Position, key: &str, text: String) -> ConfigMessage {
        let place = TextPosition { source: self.source.to_owned(), at };
        ConfigMessage { origin: Origin::Text(place), key: key.to_owned(), text }
    }
}

/// Returns whether this is a ConfigMap manifest.
fn is_config_map(root: &Node) -> bool {
    let is = |name: &str, text: &str| root.get(name).and_then(Node::text) == Some(text);
    is("apiVersion", "v1") && is("kind", "ConfigMap")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests;
