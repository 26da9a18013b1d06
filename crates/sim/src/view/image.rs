//! Images that were pulled, and the kernels of nodes.

use gantry_reconcile::{Fact, Key};

use crate::image::ImagePull;
use crate::kernel::KernelState;

/// The result of the last pull of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PulledImage {
    /// The node has the image.
    Present {
        /// The digest of its manifest.
        digest: String,
    },
    /// The image cannot be pulled.
    Unavailable {
        /// What the registry says.
        message: String,
    },
}

impl Fact for PulledImage {
    type Subject = ImagePull;
    const NAME: &'static str = "pulled-image";
}

/// The state of a node's kernel since it changed in this process, by the node.
impl Fact for KernelState {
    type Subject = Key;
    const NAME: &'static str = "kernel";
}
