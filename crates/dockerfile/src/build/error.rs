//! Why an image could not be built.

use std::io;

use gantry_kmod::synthetic::SyntheticError;
use gantry_oci::blob::BlobError;
use gantry_oci::{LayerError, PlatformError, ReferenceError};

use super::input::BaseImageError;
use crate::error::{DockerfileError, position, shorten};

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The Dockerfile cannot be read.
    #[error(transparent)]
    Dockerfile(#[from] DockerfileError),
    /// An instruction failed.
    #[error("{}{problem}", position(Some(*line), text))]
    Step {
        /// The line, from 1.
        line: usize,
        /// The instruction, cut if it is long.
        text: String,
        /// What went wrong.
        problem: Box<StepProblem>,
    },
    /// A module that the image is to have could not be added.
    #[error("cannot add the expected module {path}: {problem}")]
    Expected {
        /// Its path.
        path: String,
        /// What went wrong.
        problem: Box<StepProblem>,
    },
    /// A blob of the image could not be copied.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The image could not be written.
    #[error(transparent)]
    Image(#[from] gantry_oci::build::BuildError),
}

impl BuildError {
    pub(super) fn at(line: usize, text: &str, problem: StepProblem) -> Self {
        Self::Step { line, text: shorten(text), problem: Box::new(problem) }
    }
}

/// Why an instruction failed.
#[derive(Debug, thiserror::Error)]
pub enum StepProblem {
    /// A command that is known to fail.
    #[error("the command returned a non-zero code: {code}")]
    CommandFailed {
        /// Its exit code.
        code: u8,
    },
    /// The reference of a base image is malformed.
    #[error(transparent)]
    Reference(ReferenceError),
    /// The platform of a base image is malformed.
    #[error(transparent)]
    Platform(PlatformError),
    /// A base image cannot be opened.
    #[error("could not open base image {reference}: {source}")]
    BaseImage {
        /// The reference.
        reference: String,
        /// What went wrong.
        source: BaseImageError,
    },
    /// A layer of a base image, or an archive, cannot be read.
    #[error(transparent)]
    Layer(LayerError),
    /// A file of the context cannot be read.
    #[error("could not read {path} of the build context: {source}")]
    Context {
        /// The path.
        path: String,
        /// What went wrong.
        source: io::Error,
    },
    /// Something is too large.
    #[error("more than {limit} {what} in one build; leave files out, or use a real builder")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// A synthetic module cannot be made.
    #[error(transparent)]
    Module(#[from] SyntheticError),
    /// Anything else, with its remedy.
    #[error("{0}")]
    Message(String),
}
