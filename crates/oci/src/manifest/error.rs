//! Errors of documents that cannot be used.

use crate::digest::Digest;
use crate::json::FieldError;

/// A document that cannot be used, and which.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the manifest or configuration {digest}: {problem}")]
pub struct DocumentError {
    /// The SHA-256 digest of the document.
    pub digest: Digest,
    /// What is wrong with it.
    pub problem: DocumentProblem,
}

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentProblem {
    /// It is larger than documents may be.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// It is not a JSON object.
    #[error("it is not a JSON object: {why}")]
    NotJson {
        /// What the reader reported.
        why: String,
    },
    /// It is of Docker's schema 1.
    #[error(
        "Docker schema 1 manifests are not supported; push the image again with a current tool, \
         for instance `skopeo copy --format v2s2`"
    )]
    Schema1,
    /// It is a document of another kind, for instance an artifact.
    #[error("the media type {media_type:?} is neither an image nor an index")]
    Unsupported {
        /// The media type.
        media_type: String,
    },
    /// The document and its sender name different media types.
    #[error("it says mediaType {own:?} and was sent as {declared:?}")]
    Contradiction {
        /// What the document says.
        own: String,
        /// What the registry or the referring descriptor says.
        declared: String,
    },
    /// It has the fields of a manifest and of an index, or not those of its media type.
    #[error("it must have either layers or manifests, as its media type says")]
    Ambiguous,
    /// It has the fields of neither.
    #[error("it has neither layers nor manifests")]
    Neither,
    /// An index where the manifest of one image is needed.
    #[error("it is an index, and the manifest of one image is needed; choose a platform")]
    IndexForManifest,
    /// A manifest where an index is needed.
    #[error("it is the manifest of one image, and an index is needed")]
    ManifestForIndex,
    /// A field is missing or malformed.
    #[error("{path} {problem}")]
    Field {
        /// The path of the field.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl DocumentProblem {
    pub(super) fn field(error: FieldError) -> Self {
        Self::Field { path: error.path, problem: error.problem }
    }

    pub(super) fn at(self, bytes: &[u8]) -> DocumentError {
        DocumentError { digest: Digest::sha256(bytes), problem: self }
    }
}
