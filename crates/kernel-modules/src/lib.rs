//! Kernel modules in container images: signs and verifies them.
//!
//! [`sign_image()`] signs the selected files of an image and adds one layer with them;
//! [`verify_image()`] says of each selected file whether its signature is trusted. Both read blobs
//! from any [`gantry_oci::BlobSource`] and do no I/O of their own. [`effects`] has the blobs of
//! registries.

pub mod effects;
mod sign_image;
mod verify_image;

pub use sign_image::{
    FileResult, SignImageError, SignImageOptions, SignedFile, SignedImage, sign_image,
};
pub use verify_image::{VerifiedFile, verify_image};
