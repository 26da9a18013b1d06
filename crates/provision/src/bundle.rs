//! The lock of a bundle: which programs and images it has, with their digests.

use serde::{Deserialize, Serialize};

use crate::content::Digest;

/// What a bundle contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleLock {
    /// The version of Kubernetes, as `v1.34.10`.
    pub kubernetes: String,
    /// Programs.
    #[serde(default)]
    pub binaries: Vec<BundledProgram>,
    /// Images.
    #[serde(default)]
    pub images: Vec<BundledImage>,
}

/// A program of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundledProgram {
    /// Its name, as `kubelet`.
    pub name: String,
    /// The processor that it is for.
    pub architecture: String,
    /// The digest of the file.
    pub sha256: Digest,
}

/// An image of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundledImage {
    /// The reference under which it is imported.
    pub reference: String,
    /// The processor that it is for.
    pub architecture: String,
    /// The digest of its manifest.
    pub digest: String,
    /// The digest of its archive.
    pub sha256: Digest,
}
