//! Stored objects: bytes with a gap for the revision, and cached facts about them.
//!
//! An object is serialized once. Its revision is not known then, so the bytes come in two parts and
//! the store writes the number between them. `kind` and `apiVersion` come first, so that a list of
//! built-in kinds, whose items omit both, and another version of a custom kind are made by cutting.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The bytes before and after the revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedObject {
    /// Up to the opening quote of `resourceVersion`.
    pub head: Bytes,
    /// From its closing quote.
    pub tail: Bytes,
}

/// The bytes before a revision. Only names precede it, and names contain no quotes.
const REVISION_PREFIX: &[u8] = b"\"resourceVersion\":\"";

/// Serializes an object. Its own `resourceVersion` is left out.
///
/// # Panics
/// Never: JSON trees with string keys can always be serialized.
#[must_use]
pub fn encode(object: &Value) -> EncodedObject {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut head = BytesMut::with_capacity(256);
    head.put_slice(b"{");
    for name in ["kind", "apiVersion"] {
        if let Some(value) = fields.get(name) {
            put_entry(&mut head, name, value);
            head.put_slice(b",");
        }
    }
    head.put_slice(b"\"metadata\":{");
    for name in LEADING_METADATA {
        if let Some(value) = metadata.get(name) {
            put_entry(&mut head, name, value);
            head.put_slice(b",");
        }
    }
    head.put_slice(REVISION_PREFIX);
    let mut tail = BytesMut::with_capacity(1024);
    tail.put_slice(b"\"");
    for (name, value) in metadata {
        if !LEADING_METADATA.contains(&name.as_str()) && name != "resourceVersion" {
            tail.put_slice(b",");
            put_entry(&mut tail, name, value);
        }
    }
    tail.put_slice(b"}");
    for (name, value) in fields {
        if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
            tail.put_slice(b",");
            put_entry(&mut tail, name, value);
        }
    }
    tail.put_slice(b"}");
    EncodedObject { head: head.freeze(), tail: tail.freeze() }
}

/// Metadata that precedes the revision.
const LEADING_METADATA: [&str; 4] = ["name", "generateName", "namespace", "uid"];

fn put_entry(out: &mut BytesMut, name: &str, value: &Value) {
    put_json(out, &Value::from(name));
    out.put_slice(b":");
    put_json(out, value);
}

/// Serializes a tree.
fn put_json(out: &mut BytesMut, value: &Value) {
    serde_json::to_writer(out.writer(), value).expect("trees with text keys serialise");
}

/// Returns the same bytes with another revision, in parts that share their memory.
#[must_use]
pub fn with_revision(bytes: &Bytes, revision: u64) -> [Bytes; 3] {
    let Some(start) = find(bytes, REVISION_PREFIX).map(|place| place + REVISION_PREFIX.len())
    else {
        return [bytes.clone(), Bytes::new(), Bytes::new()];
    };
    let end = start + bytes[start..].iter().position(|it| *it == b'"').unwrap_or(0);
    [bytes.slice(..start), Bytes::from(revision.to_string()), bytes.slice(end..)]
}

/// Returns the metadata of an object, as a part of its bytes.
#[must_use]
pub fn metadata_bytes(object: &Bytes) -> Bytes {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    match serde_json::from_slice::<Raw<'_>>(object) {
        Ok(raw) => object.slice_ref(raw.metadata.get().as_bytes()),
        Err(_) => Bytes::from_static(b"null"),
    }
}

/// Returns the bytes without `kind` and `apiVersion`, as items of a built-in list are written; the
/// opening brace is not part of it.
#[must_use]
pub fn without_kind(bytes: &Bytes) -> Bytes {
    find(bytes, b"\"metadata\":").map_or_else(|| bytes.slice(1..), |place| bytes.slice(place..))
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

type Entry = gantry_store::Entry<EntryCache>;

/// Facts about a stored object, computed on first use.
#[derive(Debug, Default)]
pub struct EntryCache {
    // Boxed: most objects are never queried, and there are many.
    metadata: OnceLock<Box<Metadata>>,
    fields: OnceLock<BTreeMap<String, String>>,
    normalized: OnceLock<(u64, Bytes)>,
    converted: OnceLock<Box<(u64, Arc<Entry>)>>,
}

/// The metadata that requests use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace; empty at cluster scope.
    pub namespace: String,
    /// The UID.
    pub uid: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The owner references.
    pub owner_references: Vec<Owner>,
    /// The finalizers.
    pub finalizers: Vec<String>,
    /// The deletion timestamp.
    pub deletion_timestamp: Option<String>,
}

/// An owner reference of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether the reference blocks the foreground deletion of the owner.
    pub block_owner_deletion: bool,
}

impl Metadata {
    /// Parses the metadata of an object.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let head: Head = serde_json::from_slice(bytes).unwrap_or_default();
        head.metadata
    }

    /// Reads the metadata of an object that is available as a tree.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::deserialize(&object["metadata"]).unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
}

impl EntryCache {
    /// Returns the metadata of the object with these bytes.
    pub fn metadata(&self, bytes: &[u8]) -> &Metadata {
        self.metadata.get_or_init(|| Box::new(Metadata::read(bytes)))
    }

    /// Returns the values of selectable fields, computed by `read` on first use.
    pub fn fields(
        &self,
        read: impl FnOnce() -> BTreeMap<String, String>,
    ) -> &BTreeMap<String, String> {
        self.fields.get_or_init(read)
    }

    /// Makes the cache for an object whose bytes are already in the form of the definition of that
    /// epoch.
    #[must_use]
    pub fn for_epoch(epoch: u64, bytes: Bytes) -> Self {
        let known = Self::default();
        known.normalized.get_or_init(|| (epoch, bytes));
        known
    }

    /// Returns the object in the version of an epoch, if it was converted before.
    #[must_use]
    pub fn converted(&self, epoch: u64) -> Option<Arc<Entry>> {
        let (known, entry) = &**self.converted.get()?;
        (*known == epoch).then(|| Arc::clone(entry))
    }

    /// Caches the object in the version of an epoch, unless another one is cached already.
    pub fn cache_converted(&self, epoch: u64, entry: &Arc<Entry>) {
        self.converted.get_or_init(|| Box::new((epoch, Arc::clone(entry))));
    }

    /// Returns the bytes as the current definition of a custom kind, or the other version of a
    /// built-in one, has them, computed by `read` on first use.
    ///
    /// `epoch` identifies the definition, and is zero for built-in kinds. Bytes for another epoch
    /// than the cached one are computed again each time: a definition changes seldom, and the next
    /// write stores the result.
    pub fn normalized_bytes(&self, epoch: u64, read: impl Fn() -> Bytes) -> Bytes {
        let (known, bytes) = self.normalized.get_or_init(|| (epoch, read()));
        if *known == epoch { bytes.clone() } else { read() }
    }
}

/// The encoded form of an event that many watchers share: the line of a plain watch.
#[derive(Debug, Default)]
pub struct EncodedEvent(OnceLock<Bytes>);

impl EncodedEvent {
    /// Returns the line, encoded on first use.
    pub fn get(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        self.0.get_or_init(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stamped(object: &Value, revision: u64) -> Bytes {
        let EncodedObject { head, tail } = encode(object);
        [&head[..], revision.to_string().as_bytes(), &tail[..]].concat().into()
    }

    fn object() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {
                "labels": { "resourceVersion": "x" }, "name": "a", "uid": "u",
                "resourceVersion": "3", "annotations": { "a": "\"resourceVersion\":\"7\"" },
            },
            "spec": { "resourceVersion": "4" },
        })
    }

    #[test]
    fn bytes_read_back_as_the_object_with_its_revision() {
        let mut expected = object();
        expected["metadata"]["resourceVersion"] = json!("12");
        let read: Value = serde_json::from_slice(&stamped(&object(), 12)).unwrap();
        assert_eq!(read, expected);
    }

    #[test]
    fn another_revision_replaces_only_the_revision() {
        let bytes = stamped(&object(), 12);
        assert_eq!(with_revision(&bytes, 1234).concat(), stamped(&object(), 1234));
    }

    #[test]
    fn metadata_is_a_part_of_the_bytes() {
        let bytes = stamped(&object(), 12);
        let metadata = metadata_bytes(&bytes);
        assert!(bytes.as_ptr_range().contains(&metadata.as_ptr()), "shared");
        let tree: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(metadata, tree["metadata"].to_string());
    }

    #[test]
    fn an_item_of_a_list_lacks_its_kind() {
        let bytes = stamped(&object(), 12);
        let item = [b"{", &without_kind(&bytes)[..]].concat();
        let mut expected: Value = serde_json::from_slice(&bytes).unwrap();
        let fields = expected.as_object_mut().unwrap();
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
        assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), expected);
    }

    #[test]
    fn metadata_is_known_without_the_rest() {
        let known = EntryCache::default();
        let metadata = known.metadata(&stamped(&object(), 12));
        assert_eq!((metadata.name.as_str(), metadata.uid.as_str()), ("a", "u"));
        assert_eq!(metadata.labels["resourceVersion"], "x");
    }
}
