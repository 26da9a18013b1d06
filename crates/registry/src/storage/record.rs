//! The small files of a repository: links to blobs and manifests, and tags.

use std::io;

use gantry_oci::Digest;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The largest file; a digest, a time and a media type take a few hundred bytes.
pub(super) const MAX_RECORD_BYTES: usize = 4 << 10;

/// A record that is stored as JSON.
pub(super) trait StoredRecord: Sized {
    fn from_json(value: &Value) -> Option<Self>;

    fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let value = serde_json::from_slice(bytes).map_err(io::Error::from)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a field is missing");
        Self::from_json(&value).ok_or_else(damaged)
    }
}

/// That a repository has a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlobRecord {
    pub(super) created: Timestamp,
}

impl BlobRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        json!({"created": self.created.to_string()}).to_string().into_bytes()
    }
}

impl StoredRecord for BlobRecord {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self { created: time(value, "created")? })
    }
}

/// What is recorded of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRecord {
    /// When it was last pushed.
    pub created: Timestamp,
    /// Its media type.
    pub media_type: String,
    /// The manifest that it says something about.
    pub subject: Option<Digest>,
}

impl ManifestRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut value = json!({"created": self.created.to_string(), "mediaType": self.media_type});
        if let Some(subject) = &self.subject {
            value["subject"] = json!(subject.as_str());
        }
        value.to_string().into_bytes()
    }
}

impl StoredRecord for ManifestRecord {
    fn from_json(value: &Value) -> Option<Self> {
        let subject = match value.get("subject") {
            None => None,
            Some(subject) => Some(subject.as_str()?.parse().ok()?),
        };
        let media_type = value.get("mediaType")?.as_str()?.to_owned();
        Some(Self { created: time(value, "created")?, media_type, subject })
    }
}

/// Which manifest a tag means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TagRecord {
    pub(super) digest: Digest,
    pub(super) updated: Timestamp,
}

impl TagRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (digest, updated) = (self.digest.as_str(), self.updated.to_string());
        json!({"digest": digest, "updated": updated}).to_string().into_bytes()
    }
}

impl StoredRecord for TagRecord {
    fn from_json(value: &Value) -> Option<Self> {
        let digest = value.get("digest")?.as_str()?.parse().ok()?;
        Some(Self { digest, updated: time(value, "updated")? })
    }
}

fn time(value: &Value, key: &str) -> Option<Timestamp> {
    value.get(key)?.as_str()?.parse().ok()
}
