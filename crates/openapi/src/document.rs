//! One document in the form it is sent in, the built-in ones, and the index of all.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock, OnceLock};

use aws_lc_rs::digest::{SHA512, digest};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

/// A document, ready to be sent.
///
/// It is kept compressed: nearly every client accepts it compressed, and uncompressed the built-in
/// documents alone would take six megabytes.
#[derive(Debug)]
pub struct Document {
    packed: Bytes,
    hash: String,
    plain: OnceLock<Bytes>,
}

impl Document {
    /// Creates the document with the content `value`.
    #[must_use]
    pub fn new(value: &Value) -> Self {
        let text = value.to_string();
        Self {
            packed: pack(text.as_bytes()).into(),
            hash: hash(text.as_bytes()),
            plain: OnceLock::new(),
        }
    }

    /// Creates the document from `packed`, which must be complete.
    fn packed(packed: &'static [u8]) -> Self {
        let packed = Bytes::from_static(packed);
        let hash = hash(&unpack(&packed));
        Self { packed, hash, plain: OnceLock::new() }
    }

    /// Returns the document as JSON, decompressed when it is first requested.
    pub fn json(&self) -> &Bytes {
        self.plain.get_or_init(|| unpack(&self.packed).into())
    }

    /// Returns the document as JSON, compressed with gzip.
    #[must_use]
    pub fn gzip(&self) -> &Bytes {
        &self.packed
    }

    /// Returns the [`hash`] of the document as JSON: the `hash` in its URL and, in quotes, its
    /// `ETag`.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

fn pack(plain: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::default());
    packer.write_all(plain).expect("memory takes every byte");
    packer.finish().expect("memory takes every byte")
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(packed.len() * 16);
    GzDecoder::new(packed).read_to_end(&mut plain).expect("documents are packed whole");
    plain
}

/// Returns the SHA-512 of a document's bytes, in upper-case hexadecimal digits.
#[must_use]
pub fn hash(document: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digest = digest(&SHA512, document);
    let halves = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(DIGITS[usize::from(half)])).collect()
}

/// Builds the index of documents from the path of each below `/openapi/v3` and its [`hash`].
#[must_use]
pub fn index(paths: impl IntoIterator<Item = (String, String)>) -> Value {
    let sorted: BTreeMap<String, String> = paths.into_iter().collect();
    let entry = |(path, hash): (String, String)| {
        let address = format!("/openapi/v3/{path}?hash={hash}");
        (path, json!({ "serverRelativeURL": address }))
    };
    json!({ "paths": sorted.into_iter().map(entry).collect::<Map<_, _>>() })
}

/// Returns the paths of the built-in documents below `/openapi/v3`, sorted.
pub fn builtin_paths() -> impl Iterator<Item = &'static str> {
    gantry_builtin::openapi::paths()
}

/// Returns the built-in document at `path`, built when it is first requested.
#[must_use]
pub fn builtin_document(path: &str) -> Option<Arc<Document>> {
    static MADE: LazyLock<BTreeMap<&str, OnceLock<Arc<Document>>>> =
        LazyLock::new(|| builtin_paths().map(|path| (path, OnceLock::new())).collect());
    let packed = gantry_builtin::openapi::packed(path)?;
    let made = MADE.get(path)?;
    Some(made.get_or_init(|| Arc::new(Document::packed(packed))).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_sha_512_in_capitals() {
        // The digest of "abc" in FIPS 180-2, appendix C.1.
        let expected = "DDAF35A193617ABACC417349AE20413112E6FA4E89A97EA20A9EEEE64B55D39A\
                        2192992A274FC1A836BA3C23A3FEEBBD454D4423643CE80E2A9AC94FA54CA49F";
        assert_eq!(hash(b"abc"), expected);
    }

    #[test]
    fn a_document_is_the_same_packed_and_plain() {
        let value = json!({ "openapi": "3.0.0", "paths": { "/a": {} } });
        let document = Document::new(&value);
        assert_eq!(serde_json::from_slice::<Value>(document.json()).unwrap(), value);
        assert_eq!(unpack(document.gzip()), *document.json());
        assert_eq!(document.hash(), hash(document.json()));
        assert_eq!(Document::new(&value).gzip(), document.gzip());
    }

    #[test]
    fn an_index_is_sorted_and_links_by_hash() {
        let entries =
            [("version", "3"), ("apis/b.io/v1", "2"), ("apis/a.io/v1", "1"), ("api", "0")];
        let made = index(entries.map(|(path, hash)| (path.to_owned(), hash.to_owned())));
        let expected = concat!(
            r#"{"paths":{"api":{"serverRelativeURL":"/openapi/v3/api?hash=0"},"#,
            r#""apis/a.io/v1":{"serverRelativeURL":"/openapi/v3/apis/a.io/v1?hash=1"},"#,
            r#""apis/b.io/v1":{"serverRelativeURL":"/openapi/v3/apis/b.io/v1?hash=2"},"#,
            r#""version":{"serverRelativeURL":"/openapi/v3/version?hash=3"}}}"#,
        );
        assert_eq!(made.to_string(), expected);
    }

    #[test]
    fn built_in_documents_are_made_once() {
        let first = builtin_document("apis/policy").unwrap();
        assert!(Arc::ptr_eq(&first, &builtin_document("apis/policy").unwrap()));
        assert_eq!(*first.json(), gantry_builtin::openapi::document("apis/policy").unwrap());
        assert_eq!(first.hash(), hash(first.json()));
        assert!(builtin_document("apis/nobody").is_none());
    }
}
