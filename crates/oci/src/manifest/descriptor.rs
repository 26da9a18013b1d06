//! Descriptors: what a document says about a blob or another document.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::platform::Platform;
use crate::digest::{Digest, Verifier};
use crate::json::{self, FieldError, Object};
use crate::media_type::MediaType;

/// The annotation of documents that describe another image and are none themselves.
pub const ATTESTATION_ANNOTATION: &str = "vnd.docker.reference.type";

/// A reference by digest from one document to another or to a blob.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    media_type: MediaType,
    digest: Digest,
    size: u64,
    platform: Option<Platform>,
    urls: Vec<String>,
    annotations: BTreeMap<String, String>,
    /// The whole object, with keys that are not known here.
    object: Object,
}

impl Descriptor {
    /// Describes content.
    #[must_use]
    pub fn new(media_type: MediaType, digest: Digest, size: u64) -> Self {
        let mut object = Object::new();
        object.insert("mediaType".to_owned(), media_type.as_str().into());
        object.insert("digest".to_owned(), digest.as_str().into());
        object.insert("size".to_owned(), size.into());
        let (platform, urls, annotations) = (None, Vec::new(), BTreeMap::new());
        Self { media_type, digest, size, platform, urls, annotations, object }
    }

    /// Describes these bytes, with their SHA-256 digest.
    #[must_use]
    pub fn of(media_type: MediaType, content: &[u8]) -> Self {
        // A slice is never longer than what 64 bits can count.
        Self::new(media_type, Digest::sha256(content), content.len() as u64)
    }

    pub(crate) fn read(object: &Object) -> Result<Self, FieldError> {
        let required =
            |key| json::string(object, key)?.ok_or_else(|| FieldError::new(key, "is missing"));
        let digest = required("digest")?
            .parse()
            .map_err(|error| FieldError::new("digest", format!("is malformed: {error}")))?;
        let size = json::present(object, "size")
            .and_then(Value::as_u64)
            .ok_or_else(|| FieldError::new("size", "must be a number of bytes"))?;
        let platform = json::object(object, "platform")?
            .map(|platform| Platform::read(platform).map_err(|error| error.within("platform")))
            .transpose()?;
        Ok(Self {
            media_type: MediaType::from(required("mediaType")?),
            digest,
            size,
            platform,
            urls: json::strings(object, "urls")?,
            annotations: json::string_map(object, "annotations")?,
            object: object.clone(),
        })
    }

    /// The media type of the content.
    #[must_use]
    pub const fn media_type(&self) -> &MediaType {
        &self.media_type
    }

    /// The digest of the content.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The size of the content in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The platform, which only children of an index have.
    #[must_use]
    pub const fn platform(&self) -> Option<&Platform> {
        self.platform.as_ref()
    }

    /// Where else the content can be downloaded.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The annotations.
    #[must_use]
    pub const fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// The object as a document has it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// Starts a check of the content.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        Verifier::new(self.digest.clone(), self.size)
    }

    /// Whether this child of an index describes another child (provenance, bills of material)
    /// instead of an image.
    #[must_use]
    pub fn is_attestation(&self) -> bool {
        let unknown = self.platform.as_ref().is_some_and(|platform| {
            platform.os() == "unknown" && platform.architecture() == "unknown"
        });
        unknown || self.annotations.contains_key(ATTESTATION_ANNOTATION)
    }

    /// The same descriptor for other content: platform, annotations and unknown keys stay. What
    /// belongs to the content itself (`urls`, and `data`, a copy of it) is dropped.
    #[must_use]
    pub fn with_content(&self, content: &Self) -> Self {
        let mut object = self.object.clone();
        for key in ["mediaType", "digest", "size"] {
            if let Some(value) = content.object.get(key) {
                object.insert(key.to_owned(), value.clone());
            }
        }
        for key in ["data", "urls"] {
            object.shift_remove(key);
        }
        Self {
            media_type: content.media_type.clone(),
            digest: content.digest.clone(),
            size: content.size,
            urls: Vec::new(),
            object,
            ..self.clone()
        }
    }

    /// The same descriptor with this annotation.
    #[must_use]
    pub fn with_annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        set_annotation(&mut self.object, name, value);
        self
    }

    /// The same descriptor with this platform.
    #[must_use]
    pub fn with_platform(mut self, platform: &Platform) -> Self {
        self.object.insert("platform".to_owned(), platform.to_json());
        self.platform = Some(platform.clone());
        self
    }
}

/// Sets an annotation of a document or descriptor.
pub(super) fn set_annotation(object: &mut Object, name: &str, value: &str) {
    let annotations = object.entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), value.into());
    }
}
