//! What two honest servers may answer differently, and nothing else, is made equal.
//!
//! A server invents uids, times, revisions, suffixes, addresses and tokens. None of their values
//! is a promise, but their relations are: the same uid twice, a revision that grew. So values are
//! replaced by names that keep the relation: uids by the order of their first appearance,
//! revisions of objects by their rank in the conversation. The revision of a list or a bookmark
//! moves with every write of anybody, also on another resource; it keeps only which of the
//! conversation's own revisions it is not older than.
//!
//! Order is kept wherever it is a promise (lists, events) and dropped where it is an accident: keys
//! of objects, causes of a Status, entries of managedFields written in different seconds.

mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::response::{Body, Response};
use crate::transcript::Transcript;
use text::Replacements;

/// The domain below which cases define their own API groups.
///
/// What is below it and does not belong to the conversation belongs to a case that runs beside it,
/// and is left out of discovery.
pub const CASE_GROUP_SUFFIX: &str = ".case.test";

/// One exchange without accidents.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalisedExchange {
    /// Method, path and query.
    pub request: String,
    /// Status, the headers that are compared, and the body or the events.
    pub response: Value,
}

/// Headers whose value is compared.
const COMPARED_HEADERS: [&str; 4] = ["content-type", "retry-after", "vary", "warning"];

/// Headers of which only the presence is compared.
const PRESENCE_ONLY_HEADERS: [&str; 1] = ["etag"];

/// Fields that describe the build or the place of a server, never its behaviour.
const SERVER_FIELDS: [&str; 10] = [
    "buildDate",
    "compiler",
    "gitCommit",
    "gitTreeState",
    "gitVersion",
    "goVersion",
    "nodePort",
    "platform",
    "serverAddressByClientCIDRs",
    "serverAddress",
];

/// The exchanges of a conversation, without accidents.
#[must_use]
pub fn normalise(transcript: &Transcript) -> Vec<NormalisedExchange> {
    let mut words = Replacements::of(transcript);
    let exchanges = transcript.exchanges.iter();
    exchanges
        .map(|exchange| {
            let request = &exchange.request;
            let line = words.request_line(&format!("{} {}", request.method, request.path));
            NormalisedExchange {
                request: line,
                response: normalise_response(&mut words, &exchange.response),
            }
        })
        .collect()
}

/// An answer as one document.
fn normalise_response(words: &mut Replacements, answer: &Response) -> Value {
    let mut headers = BTreeMap::new();
    for name in COMPARED_HEADERS {
        let values: Vec<String> = answer.header(name).iter().map(|it| words.text(it)).collect();
        if !values.is_empty() {
            headers.insert(name, json!(values));
        }
    }
    for name in PRESENCE_ONLY_HEADERS {
        if !answer.header(name).is_empty() {
            headers.insert(name, json!("present"));
        }
    }
    let mut document = json!({ "status": answer.status, "headers": headers });
    match &answer.body {
        Body::Empty => {}
        Body::Json(body) => document["body"] = root(words, body),
        Body::Text(text) => document["text"] = json!(words.text(text)),
        Body::Events { events, ended } => {
            let events = events.iter().filter(|event| !is_plain_bookmark(event));
            document["events"] = events.map(|event| watch_event(words, event)).collect();
            document["ended"] = json!(ended);
        }
    }
    document
}

/// Whether an event is a bookmark that comes when the server's timer says so.
fn is_plain_bookmark(event: &Value) -> bool {
    is_bookmark(event) && !event.to_string().contains("k8s.io/initial-events-end")
}

/// Whether an event is a bookmark of any kind.
fn is_bookmark(event: &Value) -> bool {
    event.get("type").is_some_and(|kind| kind == "BOOKMARK")
}

/// One event of a watch.
fn watch_event(words: &mut Replacements, event: &Value) -> Value {
    let own = if is_bookmark(event) { Revisions::Floor } else { Revisions::Rank };
    value(words, event, ValueContext { key: "", own, hashes: true })
}

/// A whole document.
fn root(words: &mut Replacements, body: &Value) -> Value {
    let hashes = body.get("groupVersion").and_then(Value::as_str);
    let hashes = hashes.is_none_or(|group| !group.contains(CASE_GROUP_SUFFIX));
    value(words, body, ValueContext { key: "", own: Revisions::Rank, hashes })
}

/// How revisions are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revisions {
    /// An object's: by its rank.
    Rank,
    /// A collection's or a bookmark's: by the highest rank it is not older than.
    Floor,
}

/// Where in a document a value is.
#[derive(Clone, Copy)]
struct ValueContext<'doc> {
    /// The key that led here; that of the array for an element.
    key: &'doc str,
    /// How revisions below are named.
    own: Revisions,
    /// Whether storage hashes are the same on every server: not for groups named after a run.
    hashes: bool,
}

impl<'doc> ValueContext<'doc> {
    /// The place below a key.
    fn child(self, key: &'doc str) -> Self {
        Self { key, ..self }
    }
}

/// Any value.
fn value(words: &mut Replacements, from: &Value, place: ValueContext<'_>) -> Value {
    if SERVER_FIELDS.contains(&place.key) || (place.key == "storageVersionHash" && !place.hashes) {
        return json!(format!("{{{}}}", place.key));
    }
    match from {
        Value::Null | Value::Bool(_) | Value::Number(_) => from.clone(),
        Value::String(text) => json!(string(words, text, place)),
        Value::Array(items) => array(words, items, place),
        Value::Object(fields) => object(words, fields, place),
    }
}

/// A string, by what the key says it is.
fn string(words: &mut Replacements, text: &str, place: ValueContext<'_>) -> String {
    match place.key {
        "resourceVersion" => match place.own {
            Revisions::Rank => words.rank(text),
            Revisions::Floor => words.floor(text),
        },
        "continue" if !text.is_empty() => "{continue}".to_owned(),
        "clusterIP" | "clusterIPs" => text::address(text),
        "cells" => text::age(text).map_or_else(|| words.text(text), str::to_owned),
        _ => words.text(text),
    }
}

/// A list: its order is a promise, unless it is one of those that are sets.
fn array(words: &mut Replacements, items: &[Value], place: ValueContext<'_>) -> Value {
    let own: Vec<&Value> = items.iter().filter(|item| !words.is_foreign_object(item)).collect();
    let mut items: Vec<Value> = own.iter().map(|item| value(words, item, place)).collect();
    match place.key {
        "causes" => items.sort_by_key(Value::to_string),
        "managedFields" => items.sort_by_key(manager),
        _ => {}
    }
    Value::Array(items)
}

/// Who a managedFields entry belongs to. Servers sort by time first, which is the clock's accident.
fn manager(entry: &Value) -> [String; 4] {
    ["operation", "manager", "apiVersion", "subresource"]
        .map(|key| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// An object, with its keys in alphabetical order.
fn object(words: &mut Replacements, fields: &Map<String, Value>, place: ValueContext<'_>) -> Value {
    let collection = fields.contains_key("items") || fields.contains_key("rows");
    let mut sorted: Vec<_> = fields.iter().filter(|(key, _)| !words.is_foreign(key)).collect();
    sorted.sort_by_key(|(key, _)| *key);
    let mut result = Map::new();
    for (key, field) in sorted {
        let mut below = place.child(key);
        if collection && key == "metadata" {
            below.own = Revisions::Floor;
        }
        let named = words.text(key);
        result.insert(named, value(words, field, below));
    }
    if result.get("kind").is_some_and(|kind| kind == "Status") {
        order_message(&mut result);
    }
    Value::Object(result)
}

/// Puts the list of errors in a Status's message in the order of its causes.
///
/// Both are made from the same errors; a server that walks a map finds them in any order. A
/// message that is not exactly the list of its causes is left as it is.
fn order_message(status: &mut Map<String, Value>) {
    let text = |cause: &Value, key: &str| cause.get(key)?.as_str().map(str::to_owned);
    let Some(causes) = status.get("details").and_then(|it| it.get("causes")?.as_array()) else {
        return;
    };
    let errors: Option<Vec<String>> = causes
        .iter()
        .map(|cause| Some(format!("{}: {}", text(cause, "field")?, text(cause, "message")?)))
        .collect();
    let (Some(errors), Some(message)) = (errors, status.get("message").and_then(Value::as_str))
    else {
        return;
    };
    let Some((start, listed)) = message.split_once(": [") else { return };
    let Some(listed) = listed.strip_suffix(']') else { return };
    let mut rest = listed.to_owned();
    // Longest first: an error may be the beginning of another.
    let mut by_length: Vec<&String> = errors.iter().collect();
    by_length.sort_by_key(|error| std::cmp::Reverse(error.len()));
    for error in by_length {
        let Some(at) = rest.find(error.as_str()) else { return };
        rest.replace_range(at..at + error.len(), "");
    }
    if rest.replace(", ", "").is_empty() {
        let ordered = format!("{start}: [{}]", errors.join(", "));
        status.insert("message".to_owned(), Value::String(ordered));
    }
}
