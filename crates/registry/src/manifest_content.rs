//! What a registry reads of a manifest: its media type and what it refers to.
//!
//! Less strict than crate `oci` on purpose: a registry stores manifests of artifacts that are not
//! images, and keeps their bytes as they are.

use gantry_oci::{Digest, MediaType};
use serde_json::{Map, Value};

/// What a manifest refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestContent {
    /// The media type.
    pub media_type: MediaType,
    /// The configuration and the layers; without layers that are kept elsewhere.
    pub blobs: Vec<Digest>,
    /// The manifests of an index.
    pub manifests: Vec<Digest>,
    /// The manifest that this one says something about. It need not exist.
    pub subject: Option<Digest>,
    /// The type of an artifact: its own, else that of its configuration.
    pub artifact_type: Option<String>,
    /// The annotations.
    pub annotations: Option<Map<String, Value>>,
}

/// Why a document is not a manifest that a registry stores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot store the manifest: {0}")]
pub struct ManifestInvalid(String);

/// The largest number of contents that a manifest refers to; images have up to 127 layers.
const MAX_REFERENCES: usize = 10_000;

impl ManifestContent {
    /// Reads a manifest; `declared` is the media type that its sender states.
    ///
    /// # Errors
    /// It is not JSON, of another or an outdated type, or a reference is malformed.
    pub fn parse(bytes: &[u8], declared: Option<&str>) -> Result<Self, ManifestInvalid> {
        let invalid = |why: &str| ManifestInvalid(why.to_owned());
        let Ok(Value::Object(document)) = serde_json::from_slice(bytes) else {
            return Err(invalid("it is not a JSON object"));
        };
        if document.get("schemaVersion").and_then(Value::as_u64) != Some(2) {
            return Err(invalid("its schemaVersion is not 2"));
        }
        let media_type = media_type(&document, declared)?;
        let annotations = document.get("annotations").and_then(Value::as_object).cloned();
        let subject = match document.get("subject") {
            None | Some(Value::Null) => None,
            Some(subject) => Some(digest(subject, "subject")?),
        };
        let (mut blobs, mut manifests, mut config_type) = (Vec::new(), Vec::new(), None);
        if media_type.is_index() {
            for child in list(&document, "manifests")? {
                manifests.push(digest(child, "manifests")?);
            }
        } else {
            let config = document.get("config").ok_or_else(|| invalid("it has no config"))?;
            config_type = config.get("mediaType").and_then(Value::as_str);
            blobs.push(digest(config, "config")?);
            for layer in list(&document, "layers")? {
                let digest = digest(layer, "layers")?;
                // Layers with addresses are kept there and never pushed.
                if layer.get("urls").and_then(Value::as_array).is_none_or(Vec::is_empty) {
                    blobs.push(digest);
                }
            }
        }
        if blobs.len() + manifests.len() > MAX_REFERENCES {
            return Err(ManifestInvalid(format!("it refers to more than {MAX_REFERENCES} items")));
        }
        let own_type = document.get("artifactType").and_then(Value::as_str);
        let artifact_type = own_type.filter(|it| !it.is_empty()).or(config_type).map(str::to_owned);
        Ok(Self { media_type, blobs, manifests, subject, artifact_type, annotations })
    }
}

fn media_type(
    document: &Map<String, Value>,
    declared: Option<&str>,
) -> Result<MediaType, ManifestInvalid> {
    let own = document.get("mediaType").and_then(Value::as_str).map(MediaType::from);
    let declared = declared.map(MediaType::from_content_type);
    let declared = declared.filter(|it| MediaType::DOCUMENTS.contains(it));
    let found = match (own, declared) {
        (Some(own), Some(declared)) if own != declared => {
            let why = format!("its mediaType is {own}, and its Content-Type is {declared}");
            return Err(ManifestInvalid(why));
        }
        (Some(found), _) | (None, Some(found)) => found,
        // OCI documents need not name their type.
        (None, None) if document.contains_key("manifests") => MediaType::OciIndex,
        (None, None) => MediaType::OciManifest,
    };
    match MediaType::DOCUMENTS.contains(&found) {
        true => Ok(found),
        false => Err(ManifestInvalid(format!("manifests of type {found} are not supported"))),
    }
}

fn list<'a>(document: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], ManifestInvalid> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(ManifestInvalid(format!("{key} is not a list"))),
    }
}

fn digest(descriptor: &Value, place: &str) -> Result<Digest, ManifestInvalid> {
    let text = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
    text.parse().map_err(|why| ManifestInvalid(format!("a digest of {place}: {why}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn references_of_manifests_and_indexes() {
        let [one, two, three] = ["1", "2", "3"].map(|it| Digest::sha256(it.as_bytes()));
        let image = json!({
            "schemaVersion": 2, "mediaType": MediaType::DockerManifest.as_str(),
            "config": {"digest": one.as_str(), "mediaType": "text/x"},
            "layers": [{"digest": two.as_str()}, {"digest": three.as_str(), "urls": ["https://x"]}],
            "subject": {"digest": three.as_str()}, "annotations": {"a": "b"},
        });
        let parse = |document: &Value, declared: Option<&str>| {
            ManifestContent::parse(document.to_string().as_bytes(), declared)
        };
        let found = parse(&image, None).unwrap();
        assert_eq!(found.media_type, MediaType::DockerManifest);
        assert_eq!(found.blobs, [one.clone(), two.clone()], "foreign layers need not be there");
        assert_eq!(found.subject, Some(three));
        assert_eq!(found.artifact_type.as_deref(), Some("text/x"));
        let index = json!({"schemaVersion": 2, "manifests": [{"digest": two.as_str()}]});
        let found = parse(&index, None).unwrap();
        assert_eq!((found.media_type, found.manifests), (MediaType::OciIndex, vec![two]));
        let oci = MediaType::OciManifest.as_str();
        let plain = json!({"schemaVersion": 2, "config": {"digest": one.as_str()}});
        assert_eq!(parse(&plain, Some(oci)).unwrap().media_type, MediaType::OciManifest);
        assert_eq!(parse(&plain, Some("text/plain")).unwrap().media_type, MediaType::OciManifest);
        let refused = [
            (json!([]), None),
            (json!({"schemaVersion": 1}), None),
            (json!({"schemaVersion": 2}), None),
            (json!({"schemaVersion": 2, "config": {"digest": "x"}}), None),
            (json!({"schemaVersion": 2, "mediaType": "text/plain"}), None),
            (json!({"schemaVersion": 2, "manifests": 7}), None),
            (json!({"schemaVersion": 2, "manifests": [], "subject": {}}), None),
            (image, Some(oci)),
        ];
        for (document, declared) in refused {
            assert!(parse(&document, declared).is_err(), "{document}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ManifestContent::parse(&bytes, None);
        }
    }
}
