//! Manifests and indexes: what a registry returns for a reference.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::descriptor::{Descriptor, set_annotation};
use super::error::{DocumentError, DocumentProblem};
use super::{MAX_DOCUMENT_BYTES, MAX_INDEX_CHILDREN, MAX_LAYERS};
use crate::digest::Digest;
use crate::json::{self, FieldError, Object};
use crate::media_type::{Family, MediaType};

/// A manifest, or an index of manifests.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// Images for several platforms.
    Index(Index),
}

impl Document {
    /// Reads a document. `declared` is the media type that the registry or the referring
    /// descriptor gave it, if any.
    ///
    /// A document without `mediaType` is what `declared` says, else OCI's, a manifest if it has
    /// `layers` and an index if it has `manifests`. One that has both is refused, because two
    /// readers could see two different images in it.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if this is not a document that is supported.
    pub fn parse(bytes: &[u8], declared: Option<&MediaType>) -> Result<Self, DocumentError> {
        let document = read(bytes, declared)?;
        if document.media_type.is_index() {
            Index::from_read(document, bytes).map(Self::Index)
        } else {
            Manifest::from_read(document, bytes).map(Self::Manifest)
        }
    }

    /// The media type.
    #[must_use]
    pub const fn media_type(&self) -> &MediaType {
        match self {
            Self::Manifest(manifest) => manifest.media_type(),
            Self::Index(index) => index.media_type(),
        }
    }

    /// The bytes as they were read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Manifest(manifest) => manifest.bytes(),
            Self::Index(index) => index.bytes(),
        }
    }

    /// The SHA-256 digest of the bytes.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        match self {
            Self::Manifest(manifest) => manifest.digest(),
            Self::Index(index) => index.digest(),
        }
    }

    /// A descriptor of the document.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        match self {
            Self::Manifest(manifest) => manifest.descriptor(),
            Self::Index(index) => index.descriptor(),
        }
    }
}

/// The manifest of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    header: Header,
    config: Box<Descriptor>,
    layers: Vec<Descriptor>,
}

impl Manifest {
    /// Writes a manifest.
    #[must_use]
    pub fn new(
        family: Family,
        config: &Descriptor,
        layers: &[Descriptor],
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let media_type = MediaType::manifest_of(family);
        let mut object = Header::object(&media_type);
        object.insert("config".to_owned(), config.to_json());
        object.insert("layers".to_owned(), to_list(layers));
        if !annotations.is_empty() {
            object.insert("annotations".to_owned(), json!(annotations));
        }
        Self {
            header: Header::written(media_type, object, annotations.clone()),
            config: Box::new(config.clone()),
            layers: layers.to_vec(),
        }
    }

    /// Reads a manifest, and nothing else; see [`Document::parse`].
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if this is not a manifest that is supported.
    pub fn parse(bytes: &[u8], declared: Option<&MediaType>) -> Result<Self, DocumentError> {
        match Document::parse(bytes, declared)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(DocumentProblem::IndexForManifest.at(bytes)),
        }
    }

    fn from_read(read: ReadDocument, bytes: &[u8]) -> Result<Self, DocumentError> {
        let fields = || {
            let config = json::object(&read.object, "config")?
                .ok_or_else(|| FieldError::new("config", "is missing"))?;
            let config = Descriptor::read(config).map_err(|error| error.within("config"))?;
            limit(&read.object, "layers", MAX_LAYERS)?;
            let layers = json::objects(&read.object, "layers", Descriptor::read)?;
            Ok((config, layers, json::string_map(&read.object, "annotations")?))
        };
        let (config, layers, annotations) =
            fields().map_err(|error| DocumentProblem::field(error).at(bytes))?;
        Ok(Self {
            header: Header::read(read, bytes, annotations),
            config: Box::new(config),
            layers,
        })
    }

    /// The media type, also where the document leaves it out.
    #[must_use]
    pub const fn media_type(&self) -> &MediaType {
        &self.header.media_type
    }

    /// Which project's media types the manifest uses.
    #[must_use]
    pub fn family(&self) -> Family {
        self.header.media_type.family().unwrap_or(Family::Oci)
    }

    /// The bytes as they were read or written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.header.bytes
    }

    /// The SHA-256 digest of the bytes.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.header.digest
    }

    /// A descriptor of the manifest.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        self.header.descriptor()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Descriptor {
        &self.config
    }

    /// The layers, the lowest first.
    #[must_use]
    pub fn layers(&self) -> &[Descriptor] {
        &self.layers
    }

    /// The annotations.
    #[must_use]
    pub const fn annotations(&self) -> &BTreeMap<String, String> {
        &self.header.annotations
    }

    /// The document as JSON, with all keys.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.header.object.clone())
    }

    /// The same manifest with another configuration, other layers and more annotations. All other
    /// keys stay, and the order of keys too.
    #[must_use]
    pub fn with_content(
        &self,
        config: &Descriptor,
        layers: &[Descriptor],
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let mut object = self.header.object.clone();
        object.insert("config".to_owned(), config.to_json());
        object.insert("layers".to_owned(), to_list(layers));
        Self {
            header: self.header.rewritten(object, annotations),
            config: Box::new(config.clone()),
            layers: layers.to_vec(),
        }
    }
}

/// An index of images for several platforms; Docker's name is manifest list.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    header: Header,
    manifests: Vec<Descriptor>,
}

impl Index {
    /// Writes an index.
    #[must_use]
    pub fn new(
        family: Family,
        manifests: &[Descriptor],
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let media_type = MediaType::index_of(family);
        let mut object = Header::object(&media_type);
        object.insert("manifests".to_owned(), to_list(manifests));
        if !annotations.is_empty() {
            object.insert("annotations".to_owned(), json!(annotations));
        }
        let header = Header::written(media_type, object, annotations.clone());
        Self { header, manifests: manifests.to_vec() }
    }

    /// Reads an index, and nothing else; see [`Document::parse`].
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if this is not an index that is supported.
    pub fn parse(bytes: &[u8], declared: Option<&MediaType>) -> Result<Self, DocumentError> {
        match Document::parse(bytes, declared)? {
            Document::Index(index) => Ok(index),
            Document::Manifest(_) => Err(DocumentProblem::ManifestForIndex.at(bytes)),
        }
    }

    fn from_read(read: ReadDocument, bytes: &[u8]) -> Result<Self, DocumentError> {
        let fields = || {
            limit(&read.object, "manifests", MAX_INDEX_CHILDREN)?;
            let manifests = json::objects(&read.object, "manifests", Descriptor::read)?;
            Ok((manifests, json::string_map(&read.object, "annotations")?))
        };
        let (manifests, annotations) =
            fields().map_err(|error| DocumentProblem::field(error).at(bytes))?;
        Ok(Self { header: Header::read(read, bytes, annotations), manifests })
    }

    /// The media type, also where the document leaves it out.
    #[must_use]
    pub const fn media_type(&self) -> &MediaType {
        &self.header.media_type
    }

    /// Which project's media types the index uses.
    #[must_use]
    pub fn family(&self) -> Family {
        self.header.media_type.family().unwrap_or(Family::Oci)
    }

    /// The bytes as they were read or written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.header.bytes
    }

    /// The SHA-256 digest of the bytes.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.header.digest
    }

    /// A descriptor of the index.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        self.header.descriptor()
    }

    /// The children, in order: images, and descriptions of images.
    #[must_use]
    pub fn manifests(&self) -> &[Descriptor] {
        &self.manifests
    }

    /// The annotations.
    #[must_use]
    pub const fn annotations(&self) -> &BTreeMap<String, String> {
        &self.header.annotations
    }

    /// The document as JSON, with all keys.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.header.object.clone())
    }

    /// The same index with other children and more annotations. All other keys stay.
    #[must_use]
    pub fn with_manifests(
        &self,
        manifests: &[Descriptor],
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let mut object = self.header.object.clone();
        object.insert("manifests".to_owned(), to_list(manifests));
        Self { header: self.header.rewritten(object, annotations), manifests: manifests.to_vec() }
    }
}

/// What both kinds of documents have.
#[derive(Clone, Debug, PartialEq)]
struct Header {
    media_type: MediaType,
    bytes: Vec<u8>,
    digest: Digest,
    annotations: BTreeMap<String, String>,
    object: Object,
}

impl Header {
    fn object(media_type: &MediaType) -> Object {
        let mut object = Object::new();
        object.insert("schemaVersion".to_owned(), 2.into());
        object.insert("mediaType".to_owned(), media_type.as_str().into());
        object
    }

    fn read(read: ReadDocument, bytes: &[u8], annotations: BTreeMap<String, String>) -> Self {
        let ReadDocument { media_type, object } = read;
        let digest = Digest::sha256(bytes);
        Self { media_type, bytes: bytes.to_vec(), digest, annotations, object }
    }

    fn written(
        media_type: MediaType,
        object: Object,
        annotations: BTreeMap<String, String>,
    ) -> Self {
        let bytes = Value::Object(object.clone()).to_string().into_bytes();
        let digest = Digest::sha256(&bytes);
        Self { media_type, bytes, digest, annotations, object }
    }

    fn rewritten(&self, mut object: Object, added: &BTreeMap<String, String>) -> Self {
        let mut annotations = self.annotations.clone();
        for (name, value) in added {
            set_annotation(&mut object, name, value);
            annotations.insert(name.clone(), value.clone());
        }
        Self::written(self.media_type.clone(), object, annotations)
    }

    fn descriptor(&self) -> Descriptor {
        // A slice is never longer than what 64 bits can count.
        Descriptor::new(self.media_type.clone(), self.digest.clone(), self.bytes.len() as u64)
    }
}

/// A document whose kind is known and whose content was not read yet.
struct ReadDocument {
    media_type: MediaType,
    object: Object,
}

fn read(bytes: &[u8], declared: Option<&MediaType>) -> Result<ReadDocument, DocumentError> {
    classify(bytes, declared).map_err(|problem| problem.at(bytes))
}

fn classify(bytes: &[u8], declared: Option<&MediaType>) -> Result<ReadDocument, DocumentProblem> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentProblem::TooLarge { limit: MAX_DOCUMENT_BYTES });
    }
    let object: Object = serde_json::from_slice(bytes)
        .map_err(|error| DocumentProblem::NotJson { why: error.to_string() })?;
    let own =
        json::string(&object, "mediaType").map_err(DocumentProblem::field)?.map(MediaType::from);
    let version = json::present(&object, "schemaVersion").and_then(Value::as_u64);
    let named = || [own.as_ref(), declared].into_iter().flatten();
    if version == Some(1) || named().any(MediaType::is_schema1) {
        return Err(DocumentProblem::Schema1);
    }
    if version != Some(2) {
        let problem = FieldError::new("schemaVersion", "must be 2");
        return Err(DocumentProblem::field(problem));
    }
    let has = |key| json::present(&object, key).is_some();
    let inferred = match (has("layers") || has("config"), has("manifests")) {
        (true, true) => return Err(DocumentProblem::Ambiguous),
        (true, false) => MediaType::OciManifest,
        (false, true) => MediaType::OciIndex,
        (false, false) => match named().find(|it| it.is_index() || it.is_manifest()) {
            // Go prints an empty list as null.
            Some(named) if named.is_index() => MediaType::OciIndex,
            Some(_) => MediaType::OciManifest,
            None => return Err(DocumentProblem::Neither),
        },
    };
    // A registry that does not know the type sends a general one; that says nothing.
    let declared = declared.filter(|it| it.is_index() || it.is_manifest());
    if let (Some(own), Some(declared)) = (&own, declared)
        && own != declared
    {
        let (own, declared) = (own.to_string(), declared.to_string());
        return Err(DocumentProblem::Contradiction { own, declared });
    }
    let media_type = own.as_ref().or(declared).unwrap_or(&inferred).clone();
    if !media_type.is_index() && !media_type.is_manifest() {
        return Err(DocumentProblem::Unsupported { media_type: media_type.to_string() });
    }
    if media_type.is_index() != inferred.is_index() {
        return Err(DocumentProblem::Ambiguous);
    }
    Ok(ReadDocument { media_type, object })
}

fn limit(object: &Object, key: &str, limit: usize) -> Result<(), FieldError> {
    let count = json::array(object, key)?.map_or(0, <[Value]>::len);
    if count > limit {
        return Err(FieldError::new(key, format!("has {count} items, and {limit} is the limit")));
    }
    Ok(())
}

fn to_list(descriptors: &[Descriptor]) -> Value {
    descriptors.iter().map(Descriptor::to_json).collect()
}
