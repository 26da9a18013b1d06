//! Verifies the signatures of modules in an image.

use gantry_kmod::verify::VerifyError;
use gantry_kmod::{Certificate, WeakDigests};
use gantry_oci::repack::{Edit, Options, repack};
use gantry_oci::{BlobSource, Document, MemoryBlobs, Pattern, SelectedFile};
use jiff::Timestamp;

use crate::sign_image::SignImageError;

/// A file of an image, and whether its signature is trusted.
#[derive(Debug)]
pub struct VerifiedFile {
    /// Its path in the image.
    pub path: String,
    /// The subject of the certificate that signed it, or why it is refused.
    pub signer: Result<String, VerifyError>,
}

/// Verifies the selected files of an image, or of each Linux image of an index.
///
/// # Errors
/// [`SignImageError`] if the image cannot be read, or a pattern matches no file. A file that is not
/// signed by one of the trusted certificates is a result, not an error.
pub fn verify_image(
    source: &dyn BlobSource,
    document: &Document,
    patterns: &[Pattern],
    trusted: &[Certificate],
    weak_digests: WeakDigests,
) -> Result<Vec<VerifiedFile>, SignImageError> {
    let mut files = Vec::new();
    let mut verify = |file: &SelectedFile| -> Result<Edit, gantry_oci::repack::BoxError> {
        let signer = gantry_kmod::verify_module(&file.content, trusted, weak_digests);
        let signer = signer.map(|certificate| certificate.subject().to_owned());
        files.push(VerifiedFile { path: file.path.to_string(), signer });
        // Nothing is changed, so nothing is repacked.
        Ok(Edit::Keep)
    };
    let options = Options::new(patterns.to_vec(), Timestamp::UNIX_EPOCH);
    repack(source, &mut MemoryBlobs::default(), document, &options, &mut verify)?;
    Ok(files)
}
