//! Reads a configuration text on top of the defaults, and says everything that is wrong with it.

use gantry_api::node::{Key as Name, Node, Position};
use gantry_api::schema::nearest;
use gantry_api::yaml;

use super::form::Fit;
use super::keys::{self, Effect, Key};
use super::values::{Layer, Origin, Place, Remark, Report};

/// Reads one document. `source` is what messages call it.
///
/// Keys that are absent or null are not in the layer. Unknown keys are warned about and left out,
/// and counted in the report.
#[must_use]
pub fn read(text: &str, source: &str) -> (Layer, Report) {
    let mut reader = Reader { source, layer: Layer::default(), report: Report::default() };
    match yaml::read(text) {
        Err(error) => reader.refuse(error.at, "", format!("{}; {}", error.what, error.remedy)),
        Ok(documents) => match &*documents {
            [] => {}
            [only] => reader.section(only, ""),
            [_, second, ..] => {
                reader.refuse(second.at, "", "found a second document, expected one".to_owned());
            }
        },
    }
    (reader.layer, reader.report)
}

struct Reader<'a> {
    source: &'a str,
    layer: Layer,
    report: Report,
}

impl Reader<'_> {
    fn section(&mut self, node: &Node, path: &str) {
        if node.is_null() {
            return;
        }
        let Some(entries) = node.entries() else {
            self.refuse(node.at, path, "found a single value, expected a map of keys".to_owned());
            return;
        };
        let known = keys::names_in(path);
        for (name, value) in entries {
            let exact = known.iter().find(|known| **known == name.name);
            // The original's reader did not tell upper from lower case.
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
                (None, None) => self.unknown(path, name, &known),
            }
        }
    }

    fn entry(&mut self, path: &str, name: &Name, value: &Node) {
        if let Some(key) = keys::key(path) {
            self.value(key, name, value);
        } else {
            self.section(value, path);
        }
    }

    fn value(&mut self, key: &'static Key, name: &Name, value: &Node) {
        match key.form.fit(value) {
            Err(wrong) => self.refuse(value.at, key.path, wrong),
            Ok(Fit::Default) => {}
            Ok(Fit::Is(found)) => {
                if let Effect::Never(why) = key.effect
                    && found != key.default.value()
                {
                    self.warn(name.at, key.path, why.to_owned());
                }
                let place = Place { source: self.source.to_owned(), at: name.at };
                self.layer.set(key.path, found, Origin::Text(place));
            }
        }
    }

    fn unknown(&mut self, path: &str, name: &Name, known: &[&str]) {
        let whole = join(path, &name.name);
        // A key may be near one of its own section, or a whole path may have lost its section.
        let near = nearest(&name.name, known.iter().copied()).map(|near| join(path, near));
        let elsewhere = || {
            let same = |key: &&Key| key.path.rsplit('.').next() == Some(&*name.name);
            keys::KEYS.iter().find(same).map(|key| key.path.to_owned())
        };
        let text = match near.or_else(elsewhere) {
            Some(near) => format!("ignored: unknown key; did you mean {near}?"),
            None => "ignored: unknown key".to_owned(),
        };
        self.warn(name.at, &whole, text);
        self.report.unknown.push(whole);
    }

    fn refuse(&mut self, at: Position, key: &str, text: String) {
        self.report.errors.push(self.remark(at, key, text));
    }

    fn warn(&mut self, at: Position, key: &str, text: String) {
        self.report.warnings.push(self.remark(at, key, text));
    }

    fn remark(&self, at: Position, key: &str, text: String) -> Remark {
        let place = Place { source: self.source.to_owned(), at };
        Remark { origin: Origin::Text(place), key: key.to_owned(), text }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests;
