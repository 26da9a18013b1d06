//! The words of one conversation: what its names, uids and revisions are called instead.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::{CASE_GROUP_SUFFIX, is_bookmark};
use crate::response::Body;
use crate::transcript::Transcript;

/// What the names of one conversation are called instead.
#[derive(Debug)]
pub(super) struct Replacements {
    namespace: String,
    server: String,
    /// Revisions of objects, which have a rank.
    revisions: BTreeSet<u64>,
    /// Names a server made up, and what they are called instead.
    generated: BTreeMap<String, String>,
    /// Uids in order of appearance.
    uids: BTreeMap<String, usize>,
}

/// Years before this one are a case's own data; a server's clock is past it.
const FIRST_SERVER_YEAR: u16 = 2024;

/// Letters a server adds to a `generateName`.
const SUFFIX: usize = 5;

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(\d{4})-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static HASH: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bhash=[0-9A-Fa-f]+"));
/// A token, or a hash of one.
static TOKEN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.=!-]+"));
/// The volume with a pod's token, named by the server.
static TOKEN_VOLUME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\bkube-api-access-[a-z0-9]{5}\b"));
/// A whole object in a message: its keys come in any order.
static DOCUMENT: LazyLock<Regex> = LazyLock::new(|| pattern(r#"Invalid value: "\{\\".*\}": "#));
/// Where in its sources a server keeps its table of kinds.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| pattern(r#"in scheme "[^"]*""#));
/// What a reader of YAML says about text that is none: each has words of its own.
static YAML: LazyLock<Regex> = LazyLock::new(|| pattern(r"\byaml: line (\d+): .*"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+[smhdy]){1,2}$"));
/// Revisions in texts: the first group is an object's, the second anybody's.
static REVISION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"ResourceVersion in (?:the precondition|record) \((\d+)\)",
        r"|(?:resource version: |, current: |resourceVersion=)(\d+)",
    ))
});
static TOO_OLD: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(too old resource version: .*) \((\d+)\)"));
static CONTINUE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bcontinue=[A-Za-z0-9_=%-]+"));

/// A pattern of this file.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are constants, and a test uses each")
}

/// A cell that says how old something is.
pub(super) fn age(cell: &str) -> Option<&'static str> {
    AGE.is_match(cell).then_some("{age}")
}

/// An address a server chose; a word such as `None` is a promise.
pub(super) fn address(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(_) => "{address}".to_owned(),
        Err(_) => text.to_owned(),
    }
}

impl Replacements {
    /// Collects what must be known before the first word is replaced.
    pub(super) fn of(transcript: &Transcript) -> Self {
        let mut words = Self {
            namespace: transcript.namespace.clone(),
            server: transcript.server.clone(),
            revisions: BTreeSet::new(),
            generated: BTreeMap::new(),
            uids: BTreeMap::new(),
        };
        for exchange in &transcript.exchanges {
            match &exchange.response.body {
                Body::Json(body) => words.collect(body),
                Body::Events { events, .. } => {
                    let events = events.iter().filter(|event| !is_bookmark(event));
                    events.for_each(|event| words.collect(event));
                }
                Body::Empty | Body::Text(_) => {}
            }
        }
        words
    }

    /// Remembers the revisions and generated names in a document.
    fn collect(&mut self, from: &Value) {
        match from {
            Value::Object(fields) => {
                let collection = fields.contains_key("items") || fields.contains_key("rows");
                if let Some(metadata) = fields.get("metadata").filter(|_| !collection) {
                    self.collect_metadata(metadata);
                }
                fields.values().for_each(|field| self.collect(field));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Remembers one object's revision and its name, if that was generated.
    fn collect_metadata(&mut self, metadata: &Value) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        if let Some(revision) = text("resourceVersion").and_then(|it| it.parse().ok()) {
            self.revisions.insert(revision);
        }
        let (Some(prefix), Some(name)) = (text("generateName"), text("name")) else { return };
        let start = name.len().checked_sub(SUFFIX).and_then(|end| name.get(..end));
        if let Some(start) = start.filter(|start| prefix.starts_with(start)) {
            self.generated.insert(name.to_owned(), format!("{start}{{generated}}"));
        }
    }

    /// The rank of an object's revision. One that no answer showed is only placed.
    pub(super) fn rank(&self, text: &str) -> String {
        match text.parse::<u64>() {
            Ok(revision) if self.revisions.contains(&revision) => {
                format!("{{revision {}}}", self.revisions.range(..=revision).count())
            }
            Ok(_) | Err(_) => self.floor(text),
        }
    }

    /// How many of the conversation's revisions one is not older than. `0` is a word of the API.
    pub(super) fn floor(&self, text: &str) -> String {
        match text.parse::<u64>() {
            Ok(0) | Err(_) => text.to_owned(),
            Ok(revision) => {
                format!("{{revision {} or later}}", self.revisions.range(..=revision).count())
            }
        }
    }

    /// A text without accidents.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "{place}");
        if !self.server.is_empty() {
            text = text.replace(&self.server, "{server}");
        }
        for (name, called) in &self.generated {
            // The place may be part of the prefix and is already replaced.
            let (name, called) = (
                name.replace(&self.namespace, "{place}"),
                called.replace(&self.namespace, "{place}"),
            );
            text = text.replace(&name, &called);
        }
        let text = TOKEN.replace_all(&text, "{token}");
        let text = UID.replace_all(&text, |found: &Captures<'_>| {
            let next = self.uids.len() + 1;
            let number = *self.uids.entry(found[0].to_owned()).or_insert(next);
            format!("{{uid {number}}}")
        });
        let text = TIME.replace_all(&text, |found: &Captures<'_>| {
            let year: u16 = found[1].parse().unwrap_or_default();
            match found.get(2) {
                _ if year < FIRST_SERVER_YEAR => found[0].to_owned(),
                Some(_) => "{fine time}".to_owned(),
                None => "{time}".to_owned(),
            }
        });
        let text = TOO_OLD.replace_all(&text, "$1 ({revision})");
        let text = REVISION.replace_all(&text, |found: &Captures<'_>| {
            let (digits, named) = match (found.get(1), found.get(2)) {
                (Some(own), _) => (own, self.rank(own.as_str())),
                (None, Some(any)) => (any, self.floor(any.as_str())),
                (None, None) => return found[0].to_owned(),
            };
            found[0].replace(digits.as_str(), &named)
        });
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-{generated}");
        let text = DOCUMENT.replace_all(&text, "Invalid value: {document}: ");
        let text = SCHEME.replace_all(&text, "in scheme {scheme}");
        let text = YAML.replace_all(&text, "yaml: line $1: {fault}");
        HASH.replace_all(&text, "hash={hash}").into_owned()
    }

    /// A request line without accidents.
    pub(super) fn request_line(&mut self, line: &str) -> String {
        CONTINUE.replace_all(&self.text(line), "continue={continue}").into_owned()
    }

    /// Whether a name is that of an API group of another case.
    pub(super) fn is_foreign(&self, name: &str) -> bool {
        name.contains(CASE_GROUP_SUFFIX) && !name.contains(&self.namespace)
    }

    /// Whether an element of a list belongs to another case.
    pub(super) fn is_foreign_object(&self, item: &Value) -> bool {
        let name = item.get("name").or_else(|| item.get("metadata")?.get("name"));
        name.and_then(Value::as_str).is_some_and(|name| self.is_foreign(name))
    }
}
