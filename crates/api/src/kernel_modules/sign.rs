//! How kernel modules in an image are signed, and how settings of two levels are merged.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::container::{DRIVER_MOUNTS, clean_path, is_below};
use super::reference::{LocalReference, Tls};
use crate::finding::Findings;
use gantry_yaml::node::Path;

/// How to sign the kernel modules in an image. On a kernel mapping these settings override those of
/// the container field by field. There is no opt-out: put `sign` on the mappings that need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sign {
    /// The image whose modules are signed; what was built, by default. A mapping replaces the
    /// object as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned_image: Option<UnsignedImage>,
    /// The image that nodes run; `${CONTAINER_IMAGE}` by default. A mapping replaces the object as
    /// a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_image: Option<SignedImage>,
    /// The Secret that holds the private key, under the key `key` or `tls.key`. Required when
    /// modules are signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_secret: Option<LocalReference>,
    /// The Secret that holds the certificate, under the key `cert` or `tls.crt`. It may be the
    /// Secret of the private key. Required when modules are signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret: Option<LocalReference>,
    /// The files to sign: absolute paths in the image, with kernel variables and with `*`, `?` and
    /// `[…]`, which do not cross a `/`. Those of a mapping are added to those of the container. At
    /// least one is required when modules are signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_to_sign: Vec<String>,
    /// The digest that is signed; `sha256` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_algorithm: Option<HashAlgorithm>,
    /// What happens to a module that is signed already; `append` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existing_signature: Option<ExistingSignature>,
}

/// The image whose modules are signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsignedImage {
    /// Name of the image, with a tag or a digest. Kernel variables are replaced.
    pub name: String,
    /// How far the registry is trusted.
    #[serde(flatten)]
    pub tls: Tls,
}

/// The image that holds the signed modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedImage {
    /// Name of the image, with a tag. Kernel variables and `${CONTAINER_IMAGE}` are replaced.
    pub name: String,
    /// The Secret with the credentials to push. It is tried before `imageRepoSecrets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_secret_ref: Option<LocalReference>,
    /// How far the registry is trusted.
    #[serde(flatten)]
    pub tls: Tls,
}

/// A digest that the kernel's signature format knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashAlgorithm {
    /// SHA-2 with 256 bits.
    #[default]
    Sha256,
    /// SHA-2 with 384 bits.
    Sha384,
    /// SHA-2 with 512 bits.
    Sha512,
}

/// What to do about a signature that is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExistingSignature {
    /// Add ours after it; the kernel checks the last one.
    #[default]
    Append,
    /// Remove all of them and sign.
    Replace,
    /// Leave the file alone.
    Skip,
}

impl Sign {
    /// Returns the signing settings of a mapping, given those of the container and its own; nothing
    /// if neither has any.
    #[must_use]
    pub fn merged(container: Option<&Self>, mapping: Option<&Self>) -> Option<Self> {
        let (container, mapping) = match (container, mapping) {
            (None, None) => return None,
            (Some(only), None) | (None, Some(only)) => return Some(only.clone()),
            (Some(container), Some(mapping)) => (container, mapping),
        };
        let mut seen = BTreeSet::new();
        let files = container.files_to_sign.iter().chain(&mapping.files_to_sign);
        Some(Self {
            unsigned_image: mapping
                .unsigned_image
                .as_ref()
                .or(container.unsigned_image.as_ref())
                .cloned(),
            signed_image: mapping
                .signed_image
                .as_ref()
                .or(container.signed_image.as_ref())
                .cloned(),
            key_secret: mapping.key_secret.as_ref().or(container.key_secret.as_ref()).cloned(),
            cert_secret: mapping.cert_secret.as_ref().or(container.cert_secret.as_ref()).cloned(),
            files_to_sign: files.filter(|file| seen.insert(file.as_str())).cloned().collect(),
            hash_algorithm: mapping.hash_algorithm.or(container.hash_algorithm),
            existing_signature: mapping.existing_signature.or(container.existing_signature),
        })
    }

    /// Returns the required fields that are not set.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static str> {
        let unset = |secret: &Option<LocalReference>| {
            secret.as_ref().is_none_or(|secret| secret.name.is_empty())
        };
        [
            ("keySecret", unset(&self.key_secret)),
            ("certSecret", unset(&self.cert_secret)),
            ("filesToSign", self.files_to_sign.is_empty()),
        ]
        .into_iter()
        .filter_map(|(field, missing)| missing.then_some(field))
    }

    /// Rule W-11, on one level. `directory` is where the module is looked for, if that is set.
    pub(super) fn check_files(
        &self,
        directory: Option<&str>,
        path: &Path,
        findings: &mut Findings,
    ) {
        for (index, file) in self.files_to_sign.iter().enumerate() {
            if let Some(problem) = file_problem(file, directory) {
                findings.error(&path.key("filesToSign").index(index), problem);
            }
        }
    }
}

fn file_problem(file: &str, directory: Option<&str>) -> Option<String> {
    if !file.starts_with('/') {
        return Some(format!("\"{file}\" must be an absolute path"));
    }
    let clean = clean_path(file);
    if clean != file {
        return Some(format!("\"{file}\" must be an absolute path, written as \"{clean}\""));
    }
    if DRIVER_MOUNTS.iter().any(|mount| is_below(file, mount.path)) {
        return Some(format!("\"{file}\" is hidden by the host mount"));
    }
    let directory = clean_path(directory?);
    (!is_below(file, &directory)).then(|| format!("\"{file}\" must be below \"{directory}\""))
}
