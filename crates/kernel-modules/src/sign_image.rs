//! Signs the modules in an image.

use std::collections::BTreeMap;
use std::fmt;

use gantry_kmod::sign::{ModuleWarning, SignError};
use gantry_kmod::{ExistingSignatures, SignOutcome, Signer, WeakDigests};
use gantry_oci::layer::{LayerError, read_layer};
use gantry_oci::repack::{Edit, Options, RepackError, Repacked, repack};
use gantry_oci::{
    BlobError, BlobSource, Document, LayerProblem, Limits, MemoryBlobs, Pattern, SelectedFile,
};
use jiff::Timestamp;

#[cfg(test)]
mod tests;

/// How the modules of an image are signed.
#[derive(Clone, Debug)]
pub struct SignImageOptions {
    /// Which files are signed.
    pub patterns: Vec<Pattern>,
    /// What happens to signatures that files have already.
    pub existing: ExistingSignatures,
    /// The time of the new layer: `SOURCE_DATE_EPOCH` for the same digest each time, else now.
    pub created: Timestamp,
    /// The name of the image that is signed, for the annotation with the base image.
    pub base_name: Option<String>,
    /// Labels that are added to the image, if any file is signed.
    pub labels: BTreeMap<String, String>,
}

/// An image with signed modules.
#[derive(Clone, Debug)]
pub struct SignedImage {
    /// The manifest or index; the one that was given, byte for byte, if no file was changed.
    pub document: Document,
    /// The blobs and documents that are new. All others are those of the image that was given.
    pub new_blobs: MemoryBlobs,
    /// The selected files in the order in which they were processed; an index has some of them once
    /// for each architecture.
    pub files: Vec<SignedFile>,
    /// Compressed files that were taken for patterns without a suffix, as sentences.
    pub notes: Vec<String>,
}

impl SignedImage {
    /// Whether any file was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.files.iter().any(|file| file.result == FileResult::Signed)
    }
}

/// One file of a signed image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedFile {
    /// Its path in the image.
    pub path: String,
    /// What was done with it.
    pub result: FileResult,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// What was done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileResult {
    /// It was signed.
    Signed,
    /// Its outermost signature was ours already.
    AlreadySigned,
    /// It has another signature, and such files are skipped.
    Skipped,
}

impl fmt::Display for FileResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signed => "signed",
            Self::AlreadySigned => "already-signed",
            Self::Skipped => "skipped",
        })
    }
}

/// Why an image was not signed. The variants are those that users treat differently.
#[derive(Debug, thiserror::Error)]
pub enum SignImageError {
    /// A blob of the image could not be read.
    #[error(transparent)]
    Blob(Box<BlobError>),
    /// A layer could not be read, or is not what its manifest promises.
    #[error(transparent)]
    Layer(Box<LayerError>),
    /// A file that should be signed is not there, or is no file.
    #[error(transparent)]
    Selection(Box<RepackError>),
    /// The key cannot sign.
    #[error("could not sign {path}")]
    Key {
        /// The file.
        path: String,
        /// Why.
        source: SignError,
    },
    /// A file is no module, or cannot be unpacked.
    #[error("cannot sign {path}")]
    Module {
        /// The file.
        path: String,
        /// Why.
        source: SignError,
    },
    /// The image is malformed, or the new layer could not be written.
    #[error(transparent)]
    Image(Box<RepackError>),
    /// What was produced does not verify; it must not be used.
    #[error("the signed image does not verify: {0}; this is a defect, report it")]
    SelfVerification(String),
}

/// Signs the selected files of an image, or of each Linux image of an index, and reads each signed
/// file again from the new layer to verify it.
///
/// Nothing is written anywhere: the new blobs are in the result.
///
/// # Errors
/// [`SignImageError`]; then no part of the result exists.
pub fn sign_image(
    source: &dyn BlobSource,
    document: &Document,
    signer: &Signer,
    options: &SignImageOptions,
) -> Result<SignedImage, SignImageError> {
    let mut repack_options = Options::new(options.patterns.clone(), options.created);
    repack_options.base_name.clone_from(&options.base_name);
    repack_options.labels.clone_from(&options.labels);
    let mut new_blobs = MemoryBlobs::default();
    let mut files = Vec::new();
    let mut sign = |file: &SelectedFile| -> Result<Edit, gantry_oci::repack::BoxError> {
        let outcome = gantry_kmod::sign_module(&file.content, signer, options.existing)?;
        let (result, edit, warnings) = match outcome {
            SignOutcome::Signed { file, warnings } => {
                (FileResult::Signed, Edit::Replace(file), warnings)
            }
            SignOutcome::AlreadySigned => (FileResult::AlreadySigned, Edit::Keep, Vec::new()),
            SignOutcome::Skipped => (FileResult::Skipped, Edit::Keep, Vec::new()),
        };
        let warnings = warnings.iter().map(ModuleWarning::to_string).collect();
        files.push(SignedFile { path: file.path.to_string(), result, warnings });
        Ok(edit)
    };
    let repacked = repack(source, &mut new_blobs, document, &repack_options, &mut sign)
        .map_err(SignImageError::from)?;
    verify_new_layers(&new_blobs, &repacked, signer)?;
    let notes = repacked
        .fallbacks
        .iter()
        .map(|it| format!("{} does not exist: signed {0}{} instead", it.pattern, it.suffix));
    let notes = notes.collect();
    Ok(SignedImage { document: repacked.document, new_blobs, files, notes })
}

/// Reads every file of the new layers again, as a node will, and verifies its signature.
fn verify_new_layers(
    new_blobs: &MemoryBlobs,
    repacked: &Repacked,
    signer: &Signer,
) -> Result<(), SignImageError> {
    let trusted = std::slice::from_ref(signer.certificate());
    let failed = |why: &dyn fmt::Display| SignImageError::SelfVerification(why.to_string());
    for image in repacked.images.iter().filter(|image| image.is_changed()) {
        let Some(layer) = image.manifest.layers().last() else {
            return Err(failed(&"the new image has no layer"));
        };
        let mut refused = None;
        let mut verify = |entry: &gantry_oci::layer::LayerEntry,
                          content: &mut dyn std::io::Read| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).map_err(LayerProblem::Io)?;
            let weak = WeakDigests::Allow;
            if let Err(error) = gantry_kmod::verify_module(&bytes, trusted, weak) {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                refused.get_or_insert_with(|| format!("{name}: {error}"));
            }
            Ok(())
        };
        let read = read_layer(new_blobs, layer, None, &Limits::default(), &mut verify);
        read.map_err(|error: LayerError| failed(&error))?;
        if let Some(refused) = refused {
            return Err(failed(&refused));
        }
    }
    Ok(())
}

impl From<RepackError> for SignImageError {
    fn from(error: RepackError) -> Self {
        match error {
            RepackError::Blob(error) => Self::Blob(Box::new(error)),
            RepackError::Layer(error) if is_unread(&error.problem) => Self::Layer(Box::new(error)),
            error @ (RepackError::Unmatched(_) | RepackError::Selection(_)) => {
                Self::Selection(Box::new(error))
            }
            RepackError::Edit { path, source } => match source.downcast::<SignError>() {
                Ok(source) => Self::from_file(path.to_string(), *source),
                Err(source) => Self::Image(Box::new(RepackError::Edit { path, source })),
            },
            error @ (RepackError::Layer(_)
            | RepackError::Document(_)
            | RepackError::NoLinuxImage { .. }
            | RepackError::NotAnImage { .. }
            | RepackError::Inconsistent { .. }
            | RepackError::Write(_)) => Self::Image(Box::new(error)),
        }
    }
}

/// Whether a layer did not arrive as it was stored. All else is a mistake of who wrote it.
fn is_unread(problem: &LayerProblem) -> bool {
    match problem {
        LayerProblem::Blob(_) | LayerProblem::Wrong(_) | LayerProblem::Io(_) => true,
        LayerProblem::DiffId { .. }
        | LayerProblem::MediaType(_)
        | LayerProblem::Compression(_)
        | LayerProblem::Truncated
        | LayerProblem::Malformed(_)
        | LayerProblem::Sparse
        | LayerProblem::Name(_)
        | LayerProblem::Escape
        | LayerProblem::HardLink { .. }
        | LayerProblem::NotADirectory(_)
        | LayerProblem::SymlinkLoop(_)
        | LayerProblem::Limit { .. }
        | LayerProblem::Visitor(_) => false,
    }
}

impl SignImageError {
    fn from_file(path: String, source: SignError) -> Self {
        match source {
            SignError::SelfVerification(why) => Self::SelfVerification(format!("{path}: {why}")),
            SignError::Key(_) | SignError::Encode(_) => Self::Key { path, source },
            SignError::NotElf(_)
            | SignError::TooLarge { .. }
            | SignError::Decompress(_)
            | SignError::Compress { .. } => Self::Module { path, source },
        }
    }
}
