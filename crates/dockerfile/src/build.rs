//! Builds an image from a Dockerfile, without running commands.

mod copy;
mod error;
mod file_system;
mod input;
mod modules;
mod ownership;
mod run;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gantry_kmod::KernelRelease;
use gantry_oci::blob::open_blob;
use gantry_oci::build::ImageBuilder;
use gantry_oci::{BlobSink, Manifest, Platform, Reference, TreePath, blob};
use jiff::Timestamp;

pub use error::{BuildError, StepProblem};
use file_system::{Budget, FileSystem, LowerImage};
pub use input::{
    BaseImage, BaseImageError, BaseImages, BuildContext, ContextFile, MemoryContext, MissingBases,
    NoBaseImages,
};
use stage::{StageBase, StageState};

use crate::error::DockerfileError;
use crate::instruction::{Dockerfile, Instruction};
use crate::{expand, parse};

/// The most layers of an image; runtimes refuse more.
const MAX_LAYERS: usize = 127;

/// Build arguments that a Dockerfile need not declare.
const PREDEFINED_ARGUMENTS: [&str; 10] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "ftp_proxy",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// What is built.
#[derive(Clone, Copy)]
pub struct BuildRequest<'a> {
    /// The text of the Dockerfile.
    pub dockerfile: &'a str,
    /// Build arguments; of two with one name the last counts.
    pub args: &'a [(String, String)],
    /// Files that `COPY` and `ADD` find.
    pub context: &'a dyn BuildContext,
    /// Where the image runs.
    pub platform: &'a Platform,
    /// When the image is built, for its configuration and its files.
    pub created: Timestamp,
    /// Labels besides those of the Dockerfile.
    pub labels: &'a [(String, String)],
    /// The kernel of synthetic modules; without it, [`kernel_of_arguments`] counts.
    pub kernel: Option<&'a KernelRelease>,
    /// Absolute paths of modules that the image is to have if the Dockerfile runs commands.
    pub expected_modules: &'a [String],
    /// Files that commands see and that are in no layer, such as `/run/secrets/name/key`.
    pub run_files: &'a [(String, Vec<u8>)],
    /// What is done without a base image.
    pub missing_bases: MissingBases,
}

impl std::fmt::Debug for BuildRequest<'_> {
    // Arguments and files may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuildRequest")
            .field("platform", &self.platform)
            .field("created", &self.created)
            .field("kernel", &self.kernel)
            .field("expected_modules", &self.expected_modules)
            .finish_non_exhaustive()
    }
}

/// An image that was built. All its blobs are in the sink.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether commands were simulated, so that a real build would give another image.
    pub simulated: bool,
    /// The paths of synthetic modules in the image.
    pub synthetic_modules: Vec<String>,
}

/// Builds an image. `log` gets what a builder would print, line by line.
///
/// # Errors
///
/// [`BuildError`] with line, instruction and remedy. Blobs that were written before stay in `sink`.
pub fn build(
    request: &BuildRequest<'_>,
    bases: &dyn BaseImages,
    sink: &mut dyn BlobSink,
    log: &mut dyn FnMut(&str),
) -> Result<BuiltImage, BuildError> {
    let dockerfile = parse::parse(request.dockerfile)?;
    if let Some(syntax) = &dockerfile.syntax {
        log(&format!("directive syntax={syntax} is ignored: only this builder reads the text"));
    }
    let mut build = Build {
        request,
        bases,
        escape: dockerfile.escape,
        args: request.args.iter().cloned().collect(),
        global: BTreeMap::new(),
        used: BTreeSet::new(),
        budget: Rc::new(Budget::default()),
        context: None,
        stage_names: dockerfile.stages.iter().map(|stage| stage.name.clone()).collect(),
        stages: Vec::new(),
        log,
    };
    let last = build.stages(&dockerfile)?;
    build.warn_unused_arguments();
    build.finish(last, &dockerfile, sink)
}

/// The kernel release of build arguments: `KERNEL_FULL_VERSION`, else `KERNEL_VERSION`.
#[must_use]
pub fn kernel_of_arguments(args: &[(String, String)]) -> Option<KernelRelease> {
    let value = |name| args.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value);
    let text = value("KERNEL_FULL_VERSION").or_else(|| value("KERNEL_VERSION"))?;
    text.parse().ok()
}

/// The state of a build.
struct Build<'a> {
    request: &'a BuildRequest<'a>,
    bases: &'a dyn BaseImages,
    escape: char,
    args: BTreeMap<String, String>,
    /// Arguments that are declared before the first stage, with their values.
    global: BTreeMap<String, String>,
    /// Arguments that a stage or a base has used.
    used: BTreeSet<String>,
    budget: Rc<Budget>,
    context: Option<Rc<FileSystem<'a>>>,
    /// Stages that were built, by their numbers; those that the image does not need are none.
    stages: Vec<Option<Rc<StageState<'a>>>>,
    stage_names: Vec<Option<String>>,
    log: &'a mut dyn FnMut(&str),
}

impl<'a> Build<'a> {
    fn log(&mut self, line: &str) {
        (self.log)(line);
    }

    /// Builds the stages that the last one needs, and returns the last.
    fn stages(&mut self, dockerfile: &Dockerfile) -> Result<StageState<'a>, BuildError> {
        self.declare_global(dockerfile)?;
        let mut bases = Vec::new();
        for stage in &dockerfile.stages {
            let base = self.expand_global(&stage.base).map_err(|error| {
                DockerfileError::new(stage.line, &stage.text, error.to_string())
            })?;
            bases.push(base);
        }
        let needed = needed_stages(dockerfile, &bases, &self.stage_names);
        let count = needed.iter().filter(|needed| **needed).count();
        let mut position = 0;
        for (number, stage) in dockerfile.stages.iter().enumerate() {
            if !needed[number] {
                self.stages.push(None);
                continue;
            }
            position += 1;
            let prefix = match count {
                1 => String::new(),
                _ => format!("[{position}/{count}] "),
            };
            let steps = stage.steps.len() + 1;
            self.log(&format!("{prefix}STEP 1/{steps}: {}", first_line(&stage.text)));
            let mut state = self.start_stage(dockerfile, number, &bases[number])?;
            for (index, step) in stage.steps.iter().enumerate() {
                let simulated = match &step.instruction {
                    Instruction::Run { .. } => run::SIMULATED,
                    _ => "",
                };
                let text = first_line(&step.text);
                self.log(&format!("{prefix}STEP {}/{steps}: {text}{simulated}", index + 2));
                self.step(&mut state, step)?;
            }
            if number + 1 == dockerfile.stages.len() {
                return Ok(state);
            }
            self.stages.push(Some(Rc::new(state)));
        }
        Err(DockerfileError::of_file(parse::NO_FROM).into())
    }

    fn declare_global(&mut self, dockerfile: &Dockerfile) -> Result<(), BuildError> {
        for step in &dockerfile.global {
            let Instruction::Arg(arguments) = &step.instruction else { continue };
            for (name, default) in arguments {
                let value = match (self.args.get(name), default) {
                    (Some(value), _) => Some(value.clone()),
                    (None, Some(default)) => {
                        Some(self.expand_global(default).map_err(|error| {
                            DockerfileError::new(step.line, &step.text, error.to_string())
                        })?)
                    }
                    (None, None) => self.platform_argument(name),
                };
                if let Some(value) = value {
                    self.global.insert(name.clone(), value);
                }
            }
        }
        Ok(())
    }

    /// Expands a text with the arguments before the first stage.
    fn expand_global(&mut self, text: &str) -> Result<String, expand::ExpandError> {
        let names = std::cell::RefCell::new(Vec::new());
        let lookup = |name: &str| {
            names.borrow_mut().push(name.to_owned());
            let value = self.global.get(name).cloned();
            value.or_else(|| self.platform_argument(name))
        };
        let expanded = expand::expand(text, self.escape, &lookup);
        let names = names.into_inner();
        self.used.extend(names);
        expanded
    }

    /// Arguments that describe platforms.
    fn platform_argument(&self, name: &str) -> Option<String> {
        let platform = self.request.platform;
        let part = name.strip_prefix("TARGET").or_else(|| name.strip_prefix("BUILD"))?;
        Some(match part {
            "PLATFORM" => platform.to_string(),
            "OS" => platform.os().to_owned(),
            "ARCH" => platform.architecture().to_owned(),
            "VARIANT" => platform.variant().unwrap_or_default().to_owned(),
            _ => return None,
        })
    }

    fn start_stage(
        &mut self,
        dockerfile: &Dockerfile,
        number: usize,
        base: &str,
    ) -> Result<StageState<'a>, BuildError> {
        let stage = &dockerfile.stages[number];
        let fail = |problem| BuildError::at(stage.line, &stage.text, problem);
        if base.is_empty() {
            let problem = format!("{} is empty after expansion; set its ARG", stage.base);
            return Err(DockerfileError::new(stage.line, &stage.text, problem).into());
        }
        let earlier = stage_number(&self.stage_names[..number], base, false);
        if let Some(state) = earlier.and_then(|number| self.stages[number].as_ref()) {
            return Ok(state.child());
        }
        if base == "scratch" {
            return Ok(StageState::new(StageBase::Scratch, FileSystem::new(&self.budget)));
        }
        let platform = match &stage.platform {
            None => self.request.platform.clone(),
            Some(text) => {
                let text = self.expand_global(text).map_err(|error| {
                    DockerfileError::new(stage.line, &stage.text, error.to_string())
                })?;
                text.parse().map_err(|error| fail(StepProblem::Platform(error)))?
            }
        };
        match self.open_base(base, &platform) {
            Ok(lower) => {
                let file_system = FileSystem::on(Rc::clone(&lower), &self.budget);
                let state = StageState::on_image(lower, file_system);
                if state.has_triggers() {
                    self.log("ONBUILD instructions of the base image are not run");
                }
                Ok(state)
            }
            Err(StepProblem::BaseImage { reference, source })
                if self.request.missing_bases == MissingBases::Empty =>
            {
                self.log(&format!(
                    "base image {reference} could not be opened ({source}); an empty image takes \
                     its place"
                ));
                let file_system = FileSystem::new(&self.budget);
                let mut state = StageState::new(StageBase::Scratch, file_system);
                state.incomplete = true;
                Ok(state)
            }
            Err(problem) => Err(fail(problem)),
        }
    }

    fn open_base(
        &self,
        text: &str,
        platform: &Platform,
    ) -> Result<Rc<LowerImage<'a>>, StepProblem> {
        let reference: Reference = text.parse().map_err(StepProblem::Reference)?;
        let image = self
            .bases
            .open(&reference, platform)
            .map_err(|source| StepProblem::BaseImage { reference: text.to_owned(), source })?;
        LowerImage::read(image).map(Rc::new).map_err(StepProblem::Layer)
    }

    fn warn_unused_arguments(&mut self) {
        let unused: Vec<&str> = self
            .args
            .keys()
            .filter(|name| !self.used.contains(*name))
            .map(String::as_str)
            .filter(|name| !PREDEFINED_ARGUMENTS.contains(name))
            .collect();
        if !unused.is_empty() {
            let line = format!("build arguments that no ARG declares: {}", unused.join(", "));
            self.log(&line);
        }
    }

    fn finish(
        mut self,
        mut state: StageState<'a>,
        dockerfile: &Dockerfile,
        sink: &mut dyn BlobSink,
    ) -> Result<BuiltImage, BuildError> {
        if dockerfile.has_run() {
            self.add_expected_modules(&mut state)?;
        }
        let simulated =
            state.incomplete || self.stages.iter().flatten().any(|stage| stage.incomplete);
        let count = state.layer_count();
        if count > MAX_LAYERS {
            return Err(DockerfileError::of_file(format!(
                "the image would have {count} layers, and runtimes refuse more than {MAX_LAYERS}; \
                 copy several files with one COPY"
            ))
            .into());
        }
        let created = self.request.created;
        let mut builder = match &state.base {
            StageBase::Scratch => {
                ImageBuilder::from_scratch(self.request.platform.clone(), created)
            }
            StageBase::Image(lower) => {
                copy_layers(lower, sink)?;
                ImageBuilder::from_image(lower.manifest(), lower.config(), created)
            }
        };
        let synthetic_modules = state.synthetic_modules();
        builder = state.configure(builder)?;
        for (name, value) in self.request.labels {
            builder = builder.label(name, value);
        }
        let manifest = builder.build(sink)?;
        self.log(&format!("built image {}", manifest.digest()));
        Ok(BuiltImage { manifest, simulated, synthetic_modules })
    }

    /// Adds the modules that the request expects and that no instruction made.
    fn add_expected_modules(&mut self, state: &mut StageState<'a>) -> Result<(), BuildError> {
        let mut added = false;
        for path in self.request.expected_modules {
            let fail =
                |problem| BuildError::Expected { path: path.clone(), problem: Box::new(problem) };
            let tree_path = TreePath::from_user(path)
                .map_err(|error| fail(StepProblem::Message(error.to_string())))?;
            let exists = state.file_system.resolve(&tree_path, true).map_err(fail)?.1.is_some();
            if exists {
                continue;
            }
            self.write_module(state, &tree_path).map_err(fail)?;
            added = true;
        }
        if added {
            state.commit("expected kernel modules", run::SIMULATED_COMMENT);
        }
        Ok(())
    }
}

/// Copies the layers of a base image to where the new image is.
fn copy_layers(lower: &LowerImage<'_>, sink: &mut dyn BlobSink) -> Result<(), BuildError> {
    for layer in lower.manifest().layers() {
        if sink.contains(layer) {
            continue;
        }
        let mut reader = open_blob(lower.source(), layer)?;
        sink.put(layer, &mut reader).map_err(|source| {
            let digest = layer.digest().clone();
            blob::BlobError {
                digest: digest.clone(),
                problem: blob::BlobProblem::Io { digest, source },
            }
        })?;
    }
    Ok(())
}

/// Which stages the last one needs.
fn needed_stages(dockerfile: &Dockerfile, bases: &[String], names: &[Option<String>]) -> Vec<bool> {
    let mut needed = vec![false; dockerfile.stages.len()];
    if let Some(last) = needed.last_mut() {
        *last = true;
    }
    for number in (0..needed.len()).rev() {
        if !needed[number] {
            continue;
        }
        if let Some(base) = stage_number(&names[..number], &bases[number], false) {
            needed[base] = true;
        }
        for step in &dockerfile.stages[number].steps {
            let Instruction::Copy(copy) = &step.instruction else { continue };
            match copy.from.as_deref() {
                // Which stage is meant is known when the stage is built.
                Some(from) if from.contains('$') => needed[..number].fill(true),
                Some(from) => {
                    if let Some(from) = stage_number(&names[..number], from, true) {
                        needed[from] = true;
                    }
                }
                None => {}
            }
        }
    }
    needed
}

/// The number of the last of these stages with this name, or of the one with this number.
fn stage_number(earlier: &[Option<String>], name: &str, numbers: bool) -> Option<usize> {
    let named = earlier
        .iter()
        .rposition(|own| own.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name)));
    let number = || name.parse().ok().filter(|number| numbers && *number < earlier.len());
    named.or_else(number)
}

/// The first line of an instruction for the log; lines of here-documents are not repeated.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
