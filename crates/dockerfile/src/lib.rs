//! Reads Dockerfiles, and builds images from them without running commands.
//!
//! [`check`] reads a Dockerfile and returns what is in it, or what is wrong with it. [`build()`]
//! makes a real image of it where no builder is installed: files are copied, settings are set, and
//! `RUN` is simulated, which every line of the log says. Where the commands would have built
//! kernel modules, synthetic ones take their place ([`gantry_kmod::SyntheticModule`]).
//!
//! Nothing here opens a file or a connection, reads a clock or starts a process. Input is hostile:
//! every size, count and depth has a bound. The same input gives the same digest.

mod build;
mod error;
mod expand;
mod instruction;
mod lines;
mod parse;
mod shell;
mod words;

pub use build::{
    BaseImage, BaseImageError, BaseImages, BuildContext, BuildError, BuildRequest, BuiltImage,
    ContextFile, MemoryContext, MissingBases, NoBaseImages, StepProblem, build,
    kernel_of_arguments,
};
pub use error::DockerfileError;
pub use instruction::{
    Command, CopySources, Dockerfile, Healthcheck, Heredoc, Instruction, Stage, Step,
};

/// The largest Dockerfile. One that is stored in a ConfigMap has at most 1 MiB.
pub const MAX_DOCKERFILE_BYTES: usize = 1 << 20;

/// The most instructions of a Dockerfile.
pub const MAX_INSTRUCTIONS: usize = 2000;

/// The most stages of a Dockerfile.
pub const MAX_STAGES: usize = 100;

/// Reads a Dockerfile and checks what can be known without building it.
///
/// ```
/// let error = gantry_dockerfile::check("RUN make\n").unwrap_err();
/// assert!(error.to_string().starts_with("Dockerfile line 1: "), "{error}");
/// ```
///
/// # Errors
///
/// [`DockerfileError`] with line, instruction and remedy.
pub fn check(dockerfile: &str) -> Result<Dockerfile, DockerfileError> {
    parse::parse(dockerfile)
}
