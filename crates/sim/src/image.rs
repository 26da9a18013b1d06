//! The images of simulated containers, where a registry really has them.
//!
//! Most images are names only: nodes have them all. The images of some registries, those of
//! [`Settings::registries`](crate::kubelet::Settings::registries), are pulled: their digest is
//! asked for before a container starts ([`PodImageInquiry`]), and a container that may load kernel
//! modules sees their files ([`ImageTree`]). [`ImageFiles`] is where they come from.

mod inquiry;
mod root;
mod source;
mod tree;

use std::fmt;
use std::sync::Arc;

pub use inquiry::PodImageInquiry;
pub(crate) use inquiry::pull_of;
pub use root::RootFiles;
pub(crate) use root::module_name;
pub use source::{ImageSource, RegistryImages, ResolvedImage};
pub use tree::{ImageConfig, ImageTree};

use crate::programs::BoxFuture;

/// An image that a pod pulls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePull {
    /// The image as the container names it, or with its digest.
    pub image: String,
    /// The namespace of the pod.
    pub namespace: String,
    /// The service account of the pod.
    pub account: String,
}

/// Opens images.
pub trait ImageFiles: Send + Sync + fmt::Debug {
    /// Returns the digest of an image's manifest.
    fn resolve<'a>(&'a self, pull: &'a ImagePull) -> BoxFuture<'a, Result<String, ImagePullError>>;

    /// Returns the files of an image.
    fn open<'a>(
        &'a self,
        pull: &'a ImagePull,
    ) -> BoxFuture<'a, Result<Arc<ImageTree>, ImagePullError>>;
}

/// Why an image cannot be pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImagePullError {
    /// The registry has no such image.
    #[error("not found")]
    NotFound,
    /// The pod may not pull it.
    #[error("{0}")]
    Forbidden(String),
    /// The image is damaged or beyond the limits, or the registry failed.
    #[error("{0}")]
    Failed(String),
}

impl ImagePullError {
    /// Returns the message of a kubelet about an image.
    #[must_use]
    pub fn message(&self, image: &str) -> String {
        let resolve = format!("failed to resolve reference {image:?}");
        let (code, why) = match self {
            Self::NotFound => ("NotFound", format!("{resolve}: {image}: not found")),
            Self::Forbidden(why) => ("PermissionDenied", format!("{resolve}: {why}")),
            Self::Failed(why) => ("Unknown", why.clone()),
        };
        format!("rpc error: code = {code} desc = failed to pull and unpack image {image:?}: {why}")
    }
}

#[cfg(test)]
pub(crate) mod tests;
