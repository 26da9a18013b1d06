//! Media types of the documents and blobs of images.

use std::fmt;

/// Which project's media types a document uses. They are not mixed within one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The Open Container Initiative's.
    Oci,
    /// Docker's, version 2 schema 2.
    Docker,
}

/// How the tar of a layer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As it is.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// The media type of a document or a blob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MediaType {
    /// An OCI image manifest.
    OciManifest,
    /// An OCI image index.
    OciIndex,
    /// An OCI image configuration.
    OciConfig,
    /// An OCI layer.
    OciLayer,
    /// An OCI layer, compressed with gzip.
    OciLayerGzip,
    /// An OCI layer, compressed with Zstandard.
    OciLayerZstd,
    /// An OCI layer that registries do not distribute; deprecated, and still found.
    OciForeignLayer,
    /// The same, compressed with gzip.
    OciForeignLayerGzip,
    /// The same, compressed with Zstandard.
    OciForeignLayerZstd,
    /// A Docker manifest.
    DockerManifest,
    /// A Docker manifest list.
    DockerManifestList,
    /// A Docker image configuration.
    DockerConfig,
    /// A Docker layer that is not compressed, as archives have it.
    DockerLayer,
    /// A Docker layer, compressed with gzip.
    DockerLayerGzip,
    /// A Docker layer, compressed with Zstandard; BuildKit writes it.
    DockerLayerZstd,
    /// A Docker layer that registries do not distribute.
    DockerForeignLayerGzip,
    /// A Docker manifest of schema 1, which is not supported.
    DockerSchema1,
    /// A signed Docker manifest of schema 1, which is not supported.
    DockerSchema1Signed,
    /// Any other.
    Other(String),
}

/// All media types with a name here.
const NAMED: [(MediaType, &str); 18] = [
    (MediaType::OciManifest, "application/vnd.oci.image.manifest.v1+json"),
    (MediaType::OciIndex, "application/vnd.oci.image.index.v1+json"),
    (MediaType::OciConfig, "application/vnd.oci.image.config.v1+json"),
    (MediaType::OciLayer, "application/vnd.oci.image.layer.v1.tar"),
    (MediaType::OciLayerGzip, "application/vnd.oci.image.layer.v1.tar+gzip"),
    (MediaType::OciLayerZstd, "application/vnd.oci.image.layer.v1.tar+zstd"),
    (MediaType::OciForeignLayer, "application/vnd.oci.image.layer.nondistributable.v1.tar"),
    (
        MediaType::OciForeignLayerGzip,
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    ),
    (
        MediaType::OciForeignLayerZstd,
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
    ),
    (MediaType::DockerManifest, "application/vnd.docker.distribution.manifest.v2+json"),
    (MediaType::DockerManifestList, "application/vnd.docker.distribution.manifest.list.v2+json"),
    (MediaType::DockerConfig, "application/vnd.docker.container.image.v1+json"),
    (MediaType::DockerLayer, "application/vnd.docker.image.rootfs.diff.tar"),
    (MediaType::DockerLayerGzip, "application/vnd.docker.image.rootfs.diff.tar.gzip"),
    (MediaType::DockerLayerZstd, "application/vnd.docker.image.rootfs.diff.tar.zstd"),
    (
        MediaType::DockerForeignLayerGzip,
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ),
    (MediaType::DockerSchema1, "application/vnd.docker.distribution.manifest.v1+json"),
    (MediaType::DockerSchema1Signed, "application/vnd.docker.distribution.manifest.v1+prettyjws"),
];

impl MediaType {
    /// The documents that this crate reads, for an `Accept` header.
    pub const DOCUMENTS: [Self; 4] =
        [Self::OciManifest, Self::OciIndex, Self::DockerManifest, Self::DockerManifestList];

    /// Reads the value of a `Content-Type` header: parameters are dropped, letter case is ignored.
    #[must_use]
    pub fn from_content_type(value: &str) -> Self {
        let name = value.split(';').next().unwrap_or_default().trim();
        Self::from(name.to_ascii_lowercase().as_str())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        if let Self::Other(text) = self {
            return text;
        }
        NAMED.iter().find(|(media_type, _)| media_type == self).map_or("", |(_, text)| text)
    }

    /// Whether this is a manifest of one image.
    #[must_use]
    pub const fn is_manifest(&self) -> bool {
        matches!(self, Self::OciManifest | Self::DockerManifest)
    }

    /// Whether this is an index or a manifest list.
    #[must_use]
    pub const fn is_index(&self) -> bool {
        matches!(self, Self::OciIndex | Self::DockerManifestList)
    }

    /// Whether this is a Docker manifest of schema 1, which is not supported.
    #[must_use]
    pub const fn is_schema1(&self) -> bool {
        matches!(self, Self::DockerSchema1 | Self::DockerSchema1Signed)
    }

    /// Which project's media type this is; none for others.
    #[must_use]
    pub const fn family(&self) -> Option<Family> {
        match self {
            Self::OciManifest
            | Self::OciIndex
            | Self::OciConfig
            | Self::OciLayer
            | Self::OciLayerGzip
            | Self::OciLayerZstd
            | Self::OciForeignLayer
            | Self::OciForeignLayerGzip
            | Self::OciForeignLayerZstd => Some(Family::Oci),
            Self::DockerManifest
            | Self::DockerManifestList
            | Self::DockerConfig
            | Self::DockerLayer
            | Self::DockerLayerGzip
            | Self::DockerLayerZstd
            | Self::DockerForeignLayerGzip
            | Self::DockerSchema1
            | Self::DockerSchema1Signed => Some(Family::Docker),
            Self::Other(_) => None,
        }
    }

    /// How a layer of this type is stored; none if this is not a layer.
    #[must_use]
    pub const fn layer_compression(&self) -> Option<Compression> {
        match self {
            Self::OciLayer | Self::OciForeignLayer | Self::DockerLayer => Some(Compression::None),
            Self::OciLayerGzip
            | Self::OciForeignLayerGzip
            | Self::DockerLayerGzip
            | Self::DockerForeignLayerGzip => Some(Compression::Gzip),
            Self::OciLayerZstd | Self::OciForeignLayerZstd | Self::DockerLayerZstd => {
                Some(Compression::Zstd)
            }
            Self::OciManifest
            | Self::OciIndex
            | Self::OciConfig
            | Self::DockerManifest
            | Self::DockerManifestList
            | Self::DockerConfig
            | Self::DockerSchema1
            | Self::DockerSchema1Signed
            | Self::Other(_) => None,
        }
    }

    /// The type of a manifest of this family.
    #[must_use]
    pub const fn manifest_of(family: Family) -> Self {
        match family {
            Family::Oci => Self::OciManifest,
            Family::Docker => Self::DockerManifest,
        }
    }

    /// The type of an index of this family.
    #[must_use]
    pub const fn index_of(family: Family) -> Self {
        match family {
            Family::Oci => Self::OciIndex,
            Family::Docker => Self::DockerManifestList,
        }
    }

    /// The type of a configuration of this family.
    #[must_use]
    pub const fn config_of(family: Family) -> Self {
        match family {
            Family::Oci => Self::OciConfig,
            Family::Docker => Self::DockerConfig,
        }
    }

    /// The type of a layer of this family that is compressed with gzip.
    #[must_use]
    pub const fn gzip_layer_of(family: Family) -> Self {
        match family {
            Family::Oci => Self::OciLayerGzip,
            Family::Docker => Self::DockerLayerGzip,
        }
    }
}

impl From<&str> for MediaType {
    fn from(text: &str) -> Self {
        NAMED
            .iter()
            .find(|(_, name)| *name == text)
            .map_or_else(|| Self::Other(text.to_owned()), |(media_type, _)| media_type.clone())
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (media_type, text) in &NAMED {
            assert_eq!(&MediaType::from(*text), media_type);
            assert_eq!(media_type.as_str(), *text);
            assert!(media_type.family().is_some(), "{text}");
        }
        assert_eq!(MediaType::from("text/plain"), MediaType::Other("text/plain".to_owned()));
        assert_eq!(MediaType::from("text/plain").to_string(), "text/plain");
    }

    #[test]
    fn content_types_have_parameters_and_any_letter_case() {
        let value = "Application/vnd.OCI.image.index.v1+json; charset=utf-8";
        assert_eq!(MediaType::from_content_type(value), MediaType::OciIndex);
    }

    #[test]
    fn layers_tell_their_compression_by_suffix() {
        for (media_type, text) in &NAMED {
            let expected = match media_type.layer_compression() {
                Some(Compression::Gzip) => text.ends_with("gzip"),
                Some(Compression::Zstd) => text.ends_with("zstd"),
                Some(Compression::None) => text.ends_with("tar"),
                None => !text.contains("tar"),
            };
            assert!(expected, "{text}");
        }
    }
}
